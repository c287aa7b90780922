"""Loops that end before their first iteration, or whose trip count or condition is known only in the run, against ONNX
Runtime: every combination of what planning knows, with bodies that keep a shape, change it, and contain another loop."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import linnet
from tests.native import SANITIZED, build, run

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


class Body(NamedTuple):
    nodes: str
    row: str  # the type of the stacked value
    rows: str  # the type of the stacked result
    other: str  # a constant of this type


NESTED = """two = Constant <value = int64 {{2}}> ()
  u, all = Loop (two, {start}, v) <body = inner (int64 j, bool d, float[A, 3] a) => (bool e, float[A, 3] b, float[A, 3] r)
    {{e = Identity (d)  b = Add (a, x)  r = Identity (b)}}>
  row = ReduceSum <keepdims = 0> (all)"""
BODIES = {
    "same": Body("u = Add (v, v)  row = Neg (v)", "float[2, 3]", "float[R, 2, 3]", "float[1, 2, 3] {1, 2, 3, 4, 5, 6}"),
    "grows": Body(
        "u = Concat <axis = 0> (v, x)  row = ReduceSum <keepdims = 0> (v)", "float", "float[R]", "float[1] {7}"
    ),
    "nested": Body(NESTED, "float", "float[R]", "float[1] {7}"),
}
COMPUTED = "total = ReduceSum <keepdims = 0> (v)  most = Constant <value = float {100}> ()  on = Less (total, most)"
GOES_ON = {"passed": "on = Identity (c)", "false": "on = Constant <value = bool {0}> ()", "computed": COMPUTED}
Given = int | str | None  # None: the loop has no such operand. "run": it is an input. A number: it is a constant


def operand(name: str, kind: str, given: Given) -> tuple[str, str, str]:
    """Returns the text of the input, of the constant and of the operand."""
    if given == "run":
        return f", {kind} {name}", "", name
    return ("", "", '""') if given is None else ("", f"{name} = Constant <value = {kind} {{{given}}}> ()", name)


def model(body: str, trips: Given, start: Given, goes_on: str, branch: bool) -> onnx.ModelProto:
    b = BODIES[body]
    trips_input, trips_constant, trips_operand = operand("trips", "int64", trips)
    start_input, start_constant, start_operand = operand("start", "bool", start)
    loop = f"""y, rows = Loop ({trips_operand}, {start_operand}, x) <
        body = l (int64 i, bool c, float[K, 3] v) => (bool on, float[L, 3] u, {b.row} row)
          {{{b.nodes.format(start=start_operand)}  {GOES_ON[goes_on]}}}>"""
    if branch:
        loop = f"""y, rows = If (taken) <
            then_branch = t () => (float[P, 3] y, {b.rows} rows) {{{loop}}},
            else_branch = e () => (float[P, 3] y, {b.rows} rows) {{y = Abs (x)  rows = Constant <value = {b.other}> ()}}>"""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 3] x{trips_input}{start_input}{", bool taken" if branch else ""}) => (float[M, 3] z, {b.rows} rows)
    {{ {trips_constant}  {start_constant}  {loop}  z = Neg (y) }}"""
    return onnx.parser.parse_model(text)


def all_feeds(trips: Given, start: Given, branch: bool) -> list[dict[str, Any]]:
    counts = [{"trips": np.array(n)} for n in (-3, 0, 1, 2, 3)] if trips == "run" else [{}]
    starts = [{"start": np.array(on)} for on in (False, True)] if start == "run" else [{}]
    taken = [{"taken": np.array(on)} for on in (True, False)] if branch else [{}]
    return [{"x": X} | a | b | c for a, b, c in itertools.product(counts, starts, taken)]


def peer(made: onnx.ModelProto) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    return ort.InferenceSession(made.SerializeToString(), settings, providers=["CPUExecutionProvider"])


def combinations() -> list[tuple[Given, Given, str]]:
    """All loops that end. Without an operand for the condition, the standard ignores the body's condition, and ONNX Runtime
    obeys it, so these loops have a body that passes the condition on."""
    some: tuple[Given, ...] = (None, "run", 0, 1)
    return [
        (trips, start, goes_on)
        for trips, start, goes_on in itertools.product((*some, -1, 3), some, ("passed", "false"))
        if (start is not None or goes_on == "passed") and (trips is not None or start == 0 or goes_on == "false")
    ]


@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize("body", BODIES)
def test_a_loop_ends_where_the_standard_says(body: str, branch: bool) -> None:
    for trips, start, goes_on in combinations():
        made = model(body, trips, start, goes_on, branch)
        reference = peer(made)
        graph = linnet.from_onnx(made)
        sessions = [linnet.Session(graph), linnet.Session(graph, reference=True)]
        for feeds, session in itertools.product(all_feeds(trips, start, branch), sessions):
            wanted = reference.run(None, feeds)
            got = session.run(feeds)
            for name, want in zip(("z", "rows"), wanted, strict=True):
                where = f"trips {trips}, start {start}, body {goes_on}, {feeds}: {name}"
                assert got[name].dtype == want.dtype and got[name].shape == want.shape, where
                np.testing.assert_array_equal(got[name], want, err_msg=where)
            if start == 0 and not branch:
                assert session.plan_info["segments"] == 1, "planning knows that the loop does not begin"


@pytest.mark.parametrize("trips", [None, "run", 2, 3])
@pytest.mark.parametrize("body", BODIES)
def test_iterations_are_counted_where_each_is_planned_after_the_one_before(body: str, trips: Given) -> None:
    """The condition is computed and the shape changes. The trip count ends the loop, or the condition after some more."""
    made = model(body, trips, 1, "computed", False)
    reference, session = peer(made), linnet.Session(linnet.from_onnx(made))
    for feeds in all_feeds(trips, 1, False):
        for name, want in zip(("z", "rows"), reference.run(None, feeds), strict=True):
            np.testing.assert_array_equal(session.run(feeds)[name], want, err_msg=f"{feeds}: {name}")


@pytest.mark.parametrize("carries", [False, True])
def test_variables_and_gradients_of_a_loop_that_does_not_begin(carries: bool) -> None:
    """The condition is known to be false, the maximum is known only in the run. The gradient is that of no iteration."""
    graph = linnet.Graph()
    n, x = graph.placeholder("n", (), "i64"), graph.placeholder("x", (2, 3))
    w = graph.variable("w", np.full((3, 3), 2, np.float32))
    begun = x @ w if carries else x
    y = linnet.while_loop(lambda _: graph.constant(np.array(False)), lambda s: s @ w, begun, maximum=n)
    loss = (y * y).sum()
    (gradient,) = linnet.gradients(loss, [w])
    graph.signature("train", {"n": n, "x": x}, {"loss": loss, "dw": gradient}, updates={w: w - gradient})
    product = X @ np.full((3, 3), 2, np.float32) if carries else X
    wanted = X.T @ (2 * product) if carries else np.zeros((3, 3), np.float32)
    for options in ({}, {"reference": True}, {"max_bytes": 1 << 20}):
        for count in (-1, 0, 5):
            session = linnet.Session(graph, "train", **options)
            result = session.run({"n": np.array(count), "x": X})
            assert result["loss"] == (product * product).sum()
            np.testing.assert_array_equal(result["dw"], wanted)
            np.testing.assert_array_equal(session.variables["w"], 2 - wanted)


@pytest.mark.parametrize("body", BODIES)
def test_tools_agree_under_the_address_sanitizer(body: str, tmp_path: Path) -> None:
    made = model(body, "run", 0, "passed", False)
    linnet.from_onnx(made).save(tmp_path / "m.lnt")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "trips.npy", np.array(3))
    command = [
        str(build("address", "linnet-run") / "linnet-run"),
        str(tmp_path / "m.lnt"),
        "--output-dir",
        str(tmp_path),
    ]
    for name in ("x", "trips"):
        command += ["--input", f"{name}={tmp_path / name}.npy"]
    run(command, cwd=tmp_path, timeout=120, env=SANITIZED)
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), -X)
