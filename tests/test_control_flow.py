"""If, Loop and Scan with decisions made at run time, against ONNX Runtime: values, shapes, captured tensors.
test_allocations.py checks that known shapes allocate nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import linnet
from linnet import ops
from tests.capi import Allocator, Chain, Failure, ffi, lib
from tests.native import SANITIZED, build, run

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '


def check(text: str, *many: dict[str, Any], **options: Any) -> linnet.Session:
    """Runs all feeds (twice, so that cached plans are used), compares with ONNX Runtime and returns the session."""
    model = onnx.parser.parse_model(HEAD + text)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    peer = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    session = linnet.Session(linnet.from_onnx(model), **options)
    for feeds in (*many, *many):
        expected = peer.run(None, feeds)
        results = session.run(feeds)
        for info, want in zip(model.graph.output, expected, strict=True):
            got = results[info.name]
            assert got.shape == want.shape and got.dtype == want.dtype, info.name
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=info.name)
    return session


def f32(*values: float) -> Any:
    return np.array(values, np.float32)


def i64(value: int) -> Any:
    return np.array(value, np.int64)


def flag(value: bool) -> Any:
    return np.array(value)


def test_branches_take_outer_values_and_may_be_nested() -> None:
    text = """g (bool c, bool d, float[N] x, float[N] w) => (float[M] y, float[M] z)
    {
      a = Mul (x, w)
      y, z = If (c) <
        then_branch = t () => (float[M] p, float[M] q) {
          p = Add (a, x)
          q = If (d) <then_branch = tt () => (float[M] r) {r = Sub (p, w)},
                      else_branch = te () => (float[M] r) {r = Concat <axis = 0> (a, p)}>
        },
        else_branch = e () => (float[M] p, float[M] q) {p = Identity (a)  q = Neg (p)}
      >
    }"""
    x, w = f32(1, 2, 3), f32(4, 5, 6)
    check(text, *({"c": flag(c), "d": flag(d), "x": x, "w": w} for c in (True, False) for d in (True, False)))


def test_a_branch_may_give_constants_and_outer_values() -> None:
    text = """g (bool c, float[2] x) => (float[2] y, float[2] z)
    {
      y, z = If (c) <then_branch = t () => (float[2] p, float[2] q)
                       {p = Constant <value = float[2] {1, 2}> ()  q = Identity (x)},
                     else_branch = e () => (float[2] p, float[2] q) {p = Abs (x)  q = Identity (p)}>
    }"""
    check(text, *({"c": flag(c), "x": f32(-3, 4)} for c in (True, False)))


def test_loop_with_a_computed_condition_and_stacked_results() -> None:
    text = """g (float[2] x, float limit) => (float[2] y, int64 n, float[K, 2] rows)
    {
      trips = Constant <value = int64 {40}> ()
      zero = Constant <value = int64 {0}> ()
      go = Constant <value = bool {1}> ()
      one = Constant <value = int64 {1}> ()
      y, n, rows = Loop (trips, go, x, zero) <
        body = b (int64 i, bool c, float[2] v, int64 k) => (bool on, float[2] u, int64 m, float[2] row) {
          u = Add (v, x)
          s = ReduceSum <keepdims = 0> (u)
          on = Less (s, limit)
          m = Add (k, one)
          row = Mul (u, u)
        }>
    }"""
    feeds = [{"x": f32(1, 2), "limit": np.array(v, np.float32)} for v in (0.0, 10.0, 30.0, 1e9)]
    check(text, *feeds)


def test_loop_with_values_that_grow() -> None:
    text = """g (int64 trips, float[N] x) => (float[M] y, float[K] sums)
    {
      go = Constant <value = bool {1}> ()
      y, sums = Loop (trips, go, x) <
        body = b (int64 i, bool c, float[L] v) => (bool on, float[P] u, float s) {
          on = Identity (c)
          f = Cast <to = 1> (i)
          axes = Constant <value = int64[1] {0}> ()
          g1 = Unsqueeze (f, axes)
          u = Concat <axis = 0> (v, g1)
          s = ReduceSum <keepdims = 0> (u)
        }>
    }"""
    feeds = [{"trips": i64(n), "x": f32(1, 2)} for n in (1, 3, 6)]
    check(text, *feeds)


def test_loop_without_iterations() -> None:
    text = """g (int64 trips, bool go, float[2] x) => (float[2] y, float[K, 2] rows)
    {
      y, rows = Loop (trips, go, x) <
        body = b (int64 i, bool c, float[2] v) => (bool on, float[2] u, float[2] row)
          {on = Identity (c)  u = Add (v, x)  row = Identity (u)}>
    }"""
    check(text, *({"trips": i64(n), "go": flag(go), "x": f32(1, 2)} for n, go in ((0, True), (3, False), (2, True))))


def test_nested_loops() -> None:
    text = """g (int64 outer, int64 inner, float[2] x) => (float[2] y, float[K, L] rows)
    {
      go = Constant <value = bool {1}> ()
      y, rows = Loop (outer, go, x) <
        body = b (int64 i, bool c, float[2] v) => (bool on, float[2] u, float[L] row) {
          on = Identity (c)
          u, row = Loop (inner, c, v) <
            body = bb (int64 j, bool d, float[2] p) => (bool on2, float[2] q, float r) {
              on2 = Identity (d)
              ij = Add (i, j)
              f = Cast <to = 1> (ij)
              q0 = Add (p, x)
              q = Mul (q0, f)
              r = ReduceSum <keepdims = 0> (q)
            }>
        }>
    }"""
    check(text, *({"outer": i64(a), "inner": i64(b), "x": f32(0.5, -1)} for a, b in ((1, 1), (2, 3), (3, 2))))


@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scan(axis: int, backwards: int) -> None:
    text = f"""g (float[3, 2] s, float[3, 5, 2] a, float[A, B, C] b, float[2] k) => (float[3, 2] t, float[D, E, F] y)
    {{
      t, y = Scan <num_scan_inputs = 2, scan_input_axes = [1, {axis}], scan_input_directions = [{backwards}, 0],
                   scan_output_axes = [{axis}], scan_output_directions = [{1 - backwards}],
        body = b (float[3, 2] state, float[3, 2] p, float[G, H] q) => (float[3, 2] next, float[3, 2] out)
          {{m = Mul (p, k)  r = ReduceSum <keepdims = 0> (q)  n = Add (state, m)  next = Add (n, r)  out = Sub (next, p)}}>
        (s, a, b)
    }}"""
    rng = np.random.default_rng(axis + 2)
    shape = [2, 3]
    shape.insert(axis % 3, 5)
    feeds = {
        name: rng.standard_normal(s).astype(np.float32)
        for name, s in (("s", (3, 2)), ("a", (3, 5, 2)), ("b", shape), ("k", (2,)))
    }
    check(text, feeds)


def test_any_number_of_iterations() -> None:
    text = """g (int64 trips, float x, float limit) => (float y, int64 n)
    {
      go = Constant <value = bool {1}> ()
      one = Constant <value = int64 {1}> ()
      zero = Constant <value = int64 {0}> ()
      y, n = Loop (trips, go, x, zero) <
        body = b (int64 i, bool c, float v, int64 k) => (bool on, float u, int64 m)
          {u = Add (v, x)  m = Add (k, one)  on = Less (u, limit)}>
    }"""
    some = ((0, 9.0), (1, 9.0), (100_000, 1e9), (1 << 40, 20_000.0))
    one = np.array(1, np.float32)
    session = check(text, *({"trips": i64(n), "x": one, "limit": np.array(limit, np.float32)} for n, limit in some))
    assert session.plan_info["segments"] == 1 and "while" in {step.op for step in session.steps}


def test_iterations_of_which_each_has_another_shape_are_limited() -> None:
    text = """g (int64 trips, float[N] x) => (float[M] y)
    {
      go = Constant <value = bool {1}> ()
      y = Loop (trips, go, x) <body = b (int64 i, bool c, float[L] v) => (bool on, float[P] u)
        {u = Concat <axis = 0> (v, x)  on = Identity (c)}>
    }"""
    session = linnet.Session(linnet.from_onnx(onnx.parser.parse_model(HEAD + text)))
    with pytest.raises(linnet.Error, match="more iterations than can be planned"):
        session.run({"trips": i64(1 << 40), "x": f32(1)})
    assert session.run({"trips": i64(3), "x": f32(1)})["y"].tolist() == [1, 1, 1, 1]


def test_a_loop_over_constants_is_a_constant() -> None:
    """A loop computes a shape, which is then known when planning."""
    text = """g (float[N] x) => (float[A, B] y)
    {
      trips = Constant <value = int64 {300}> ()
      go = Constant <value = bool {1}> ()
      start = Constant <value = int64[2] {1, -299}> ()
      one = Constant <value = int64 {1}> ()
      shape = Loop (trips, go, start) <body = b (int64 i, bool c, int64[2] v) => (bool on, int64[2] u)
        {on = Identity (c)  d = Constant <value = int64[2] {0, 1}> ()  u = Add (v, d)}>
      y = Expand (x, shape)
    }"""
    session = check(text, {"x": f32(3)}, {"x": f32(1, 2)})
    assert session.plan_info["segments"] == 1


# A recurrence with a matrix product, a nested loop, and a branch in each iteration; %s: 64 weights.
RECURRENCE = """g (float[T, 4, 8] x, float[4, 8] h) => (float[4, 8] last, float[T, 4, 8] all, float[T] norms)
{
  w = Constant <value = float[8, 8] {%s}> ()
  s = Shape <start = 0, end = 1> (x)
  trips = Squeeze (s)
  go = Constant <value = bool {1}> ()
  last, all, norms = Loop (trips, go, h) <
    body = b (int64 i, bool c, float[4, 8] p) => (bool on, float[4, 8] q, float[4, 8] row, float norm) {
      on = Identity (c)
      xi = Gather <axis = 0> (x, i)
      m = MatMul (p, w)
      t0 = Add (m, xi)
      t = Tanh (t0)
      sum = ReduceSum <keepdims = 0> (t)
      zero = Constant <value = float {0}> ()
      up = Greater (sum, zero)
      u = If (up) <then_branch = a () => (float[4, 8] r) {r = Mul (t, h)},
                   else_branch = e () => (float[4, 8] r) {k = Abs (t)  r = Sub (k, xi)}>
      twenty = Constant <value = int64 {20}> ()
      q, sums = Loop (twenty, c, u) <
        body = bb (int64 j, bool d, float[4, 8] v) => (bool on2, float[4, 8] z, float o)
          {on2 = Identity (d)  half = Constant <value = float {0.9}> ()  z = Mul (v, half)  o = ReduceMax <keepdims = 0> (z)}>
      row = Identity (q)
      norm = ReduceSum <keepdims = 0> (sums)
    }>
}"""


def test_bodies_with_loops_and_branches_are_planned_once() -> None:
    rng = np.random.default_rng(4)
    text = RECURRENCE % ", ".join(f"{v:.3f}" for v in rng.standard_normal(64))
    feeds = [
        {"x": rng.standard_normal((n, 4, 8)).astype(np.float32), "h": rng.standard_normal((4, 8)).astype(np.float32)}
        for n in (5, 9, 300)
    ]
    for options in ({"threads": 1}, {"threads": 2}, {"reference": True}):
        session = check(text, *feeds, **options)
        assert session.plan_info["segments"] == 1 and session.plan_info["steps"] < 10


def test_an_error_in_a_body_names_its_node() -> None:
    text = """g (int64 trips, float[5] x) => (float y)
    {
      go = Constant <value = bool {1}> ()
      zero = Constant <value = float {0}> ()
      y = Loop (trips, go, zero) <body = b (int64 i, bool c, float v) => (bool on, float u)
        {xi = Gather <axis = 0> (x, i)  u = Add (v, xi)  on = Identity (c)}>
    }"""
    session = linnet.Session(linnet.from_onnx(onnx.parser.parse_model(HEAD + text)))
    x = f32(1, 2, 3, 4, 5)
    with pytest.raises(linnet.GraphError, match=r"node 0 'xi': an index.*data is out of range.*got 5"):
        session.run({"trips": i64(6), "x": x})
    assert session.run({"trips": i64(5), "x": x})["y"] == 15


# A loop without a bound; later nodes read its stacked result.
GROWING = """g (float[2] x, float limit) => (float[2] y, float[K, 2] rows, float total)
{
  go = Constant <value = bool {1}> ()
  y, rows = Loop (, go, x) <
    body = b (int64 i, bool c, float[2] v) => (bool on, float[2] u, float[2] row) {
      u = Add (v, x)
      s = ReduceSum <keepdims = 0> (u)
      on = Less (s, limit)
      row = Mul (u, u)
    }>
  d = Add (rows, rows)
  total = ReduceSum <keepdims = 0> (d)
}"""


def test_stacked_results_of_loops_that_end_by_data_grow() -> None:
    feeds = [{"x": f32(1, 2), "limit": np.array(v, np.float32)} for v in (5000.0, 0.0, 10.0, 100.0, 5000.0)]
    check(GROWING, *feeds)
    model = onnx.parser.parse_model(HEAD + GROWING)
    session = linnet.Session(linnet.from_onnx(model), threads=1, max_bytes=100_000)
    assert session.run(feeds[2])["rows"].shape == (3, 2)
    with pytest.raises(linnet.Error, match=r"more memory than .*max_bytes"):
        session.run({"x": f32(1, 2), "limit": np.float32(3e5)})
    assert session.run(feeds[3])["rows"].shape == (33, 2)


def test_results_that_grew_are_read_where_they_are_now() -> None:
    """A later segment, planned for a small number of rows, runs again after a run with many rows, with other values."""
    session = linnet.Session(linnet.from_onnx(onnx.parser.parse_model(HEAD + GROWING)), threads=1)
    for factor, count in ((1, 3), (2, 400), (4, 3), (8, 9000), (16, 400), (32, 3)):
        found = session.run({"x": factor * f32(1, 2), "limit": np.float32(3 * factor * (count + 0.5))})
        rows = (np.arange(2, count + 2)[:, None] * factor * np.float32([1, 2])) ** 2
        np.testing.assert_allclose(found["rows"], rows, rtol=1e-5)
        np.testing.assert_allclose(found["total"], 2 * rows.sum(), rtol=1e-4)


def test_a_run_that_fails_leaves_no_pointer_to_freed_memory() -> None:
    """The results of an earlier run are freed while a later one grows; the plan's bound then ends the run."""
    data = linnet.from_onnx(onnx.parser.parse_model(HEAD + GROWING)).to_bytes()
    allocator = Allocator()
    with Chain(data, allocator) as chain:
        chain.make_plan(max_bytes=100_000).make_session()
        chain.set({"x": f32(1, 2), "limit": np.array(5000, np.float32)}).run()
        assert chain.output(1).shape[1:] == (2,) and len(chain.output(1)) > 100
        with pytest.raises(Failure, match=r"more memory than .*max_bytes"):
            chain.set({"limit": np.array(3e5, np.float32)}).run()
        for i in range(lib().linnet_plan_output_count(chain.plan)):
            address = int(ffi.cast("uintptr_t", lib().linnet_session_output(chain.session, i)))
            assert not address or any(0 <= address - at < size for at, size in allocator.live.items()), i
        assert len(chain.set({"limit": np.array(5000, np.float32)}).run().output(1)) > 100


@pytest.mark.parametrize("trips", [0, 1, None])
def test_stacked_results_have_at_most_8_dimensions(trips: int | None) -> None:
    """A body whose results have rank 8, in a file that declares no rank for the stacked ones."""
    graph = linnet.Graph()
    main, body = graph.function("main"), graph.function("body")
    body.placeholder("i", "i64", ())
    goes_on, s = body.placeholder("c", "bool", ()), body.placeholder("s", "f32", (1,) * 8)
    body.outputs = [goes_on, ops.relu(s), ops.add(s, 1.0)]
    x = main.placeholder("x", "f32", (1,) * 8)
    number = main.placeholder("n", "i64", ()) if trips is None else main.constant(np.int64(trips))
    last, stacked = main.emit("while", [number, None, x], {"body_function": body, "carried": 1}, 2, fold=False)
    stacked.shape, main.outputs = None, [last, stacked]
    graph.signature("infer", main, ["x", "n"] if trips is None else ["x"], ["y", "z"])
    feeds = {"x": np.ones((1,) * 8, np.float32)}
    for given in ({"n": i64(0)}, {"n": i64(2)}) if trips is None else ({},):
        with pytest.raises(linnet.Error, match="dimensions"):
            linnet.Session(graph.to_bytes()).run({**feeds, **given})


def test_weights_that_a_loop_hands_on_are_constants() -> None:
    """Carried values that never change, as TensorFlow's exporter writes them. Values that are swapped or passed on do change."""
    text = """g (int64 trips, float[1, 4] x) => (float[1, 4] y, float[4, 4] same, float[1, 4] a, float[1, 4] b)
    {
      go = Constant <value = bool {1}> ()
      w = Constant <value = float[4, 4] {%s}> ()
      n = Neg (x)
      y, same, a, b = Loop (trips, go, x, w, x, n) <
        body = l (int64 i, bool c, float[1, 4] v, float[4, 4] k, float[1, 4] p, float[1, 4] q)
          => (bool on, float[1, 4] u, float[4, 4] kk, float[1, 4] qq, float[1, 4] pp)
          {on = Identity (c)  m = MatMul (v, k)  u = Tanh (m)  kk = Identity (k)  qq = Identity (q)  pp = Identity (p)}>
    }"""
    text %= ", ".join(str(0.1 * i) for i in range(16))
    x = f32(1, 2, 3, 4)[None]
    session = check(text, *({"trips": i64(n), "x": x} for n in (0, 1, 12, 33)))
    assert session.memory["packed_weights"] > 0 and session.plan_info["segments"] == 1


@pytest.mark.parametrize("name", ["recurrence", "growing"])
def test_bodies_under_the_address_sanitizer(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    weights = ", ".join(f"{v:.3f}" for v in rng.standard_normal(64))
    text = RECURRENCE % weights if name == "recurrence" else GROWING
    inputs = {"x": f32(1, 2), "limit": np.array(900, np.float32)}
    if name == "recurrence":
        inputs = {"x": rng.standard_normal((12, 4, 8)).astype(np.float32), "h": np.ones((4, 8), np.float32)}
    linnet.from_onnx(onnx.parser.parse_model(HEAD + text)).save(tmp_path / "m.lnt")
    command = [str(build("address", "linnet-run") / "linnet-run"), str(tmp_path / "m.lnt"), "--threads", "2"]
    for key, value in inputs.items():
        np.save(tmp_path / f"{key}.npy", value)
        command += ["--input", f"{key}={tmp_path / key}.npy"]
    run(command, cwd=tmp_path, timeout=120, env=SANITIZED)


def test_what_a_body_cannot_do_is_a_problem_of_the_model() -> None:
    text = """g (bool c, float[2] x) => (float[2] y)
    {
      y = If (c) <then_branch = t () => (float[2] p) {s = StringNormalizer (x)  p = Abs (x)},
                  else_branch = e () => (float[2] p) {p = Missing (x)}>
    }"""
    with pytest.raises(linnet.ConversionError) as caught:
        linnet.from_onnx(onnx.parser.parse_model(HEAD + text))
    assert {p.op for p in caught.value.problems} == {"StringNormalizer", "Missing"}


def test_branch_for_other_shapes_is_no_obstacle() -> None:
    """A branch that does not fit the shapes at hand (silero's network for 8 kHz, at 16) gives an error when it is taken."""
    text = """g (bool c, float[2, 3] x) => (float[M, N] y)
    <float[3, 4] four = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float[5, 2] two = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}>
    {
      y = If (c) <then_branch = t () => (float[M, N] p) {p = MatMul (x, four)},
                  else_branch = e () => (float[M, N] p) {p = MatMul (x, two)}>
    }"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    session = linnet.Session(linnet.from_onnx(onnx.parser.parse_model(HEAD + text)))
    four = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(session.run({"c": flag(True), "x": x})["y"], x @ four)
    with pytest.raises(linnet.GraphError, match="inner dimensions"):
        session.run({"c": flag(False), "x": x})
    np.testing.assert_allclose(session.run({"c": flag(True), "x": x})["y"], x @ four)
