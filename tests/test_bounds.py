"""Upper bounds of memory: no shape within a range, and no data, takes more than predicted; larger shapes are an error.
Measured with a counting allocator. Unbounded dimensions are named."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import onnx.parser
import pytest
from click.testing import CliRunner

import linnet
from linnet.cli.main import cli
from linnet.session.bounds import Range, Space, inside, parse, resolve
from linnet.session.model import Model, TensorSpec
from tests import zoo
from tests.capi import NULL, Allocator, Chain, Failure, ffi, lib, new_struct, text

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '

# Convolutions over open sizes, concatenated with a resize to a fixed size, then a matrix product over any batch.
PICTURE = """g (float[N, 3, H, W] x) => (float[N, 10] y)
{
  k = Constant <value = float[8, 3, 3, 3] {%s}> ()
  a = Conv <pads = [1, 1, 1, 1]> (x, k)
  b = Relu (a)
  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)
  sizes = Constant <value = int64[2] {24, 24}> ()
  s = Shape <end = 2> (p)
  full = Concat <axis = 0> (s, sizes)
  r = Resize <mode = "linear"> (p, , , full)
  q = Concat <axis = 1> (r, r)
  m = GlobalAveragePool (q)
  f = Flatten (m)
  w = Constant <value = float[16, 10] {%s}> ()
  y = MatMul (f, w)
}"""
# Two points where data decides shapes: a column per non-zero, then a branch.
BY_DATA = """g (float[N, 16] x) => (float[M, 16] y)
{
  i = NonZero (x)
  zero = Constant <value = int64 {0}> ()
  rows = Gather <axis = 0> (i, zero)
  a = Gather <axis = 0> (x, rows)
  t = ReduceMax <keepdims = 0> (x)
  limit = Constant <value = float {1.5}> ()
  c = Less (t, limit)
  y = If (c) <then_branch = b () => (float[M, 16] p) {p0 = Mul (a, a)  p1 = Softmax (p0)  p = Add (p1, a)},
              else_branch = e () => (float[M, 16] p) {p = Neg (a)}>
}"""


def _model(text_: str) -> bytes:
    return linnet.from_onnx(onnx.parser.parse_model(HEAD + text_)).to_bytes()


def _picture() -> bytes:
    values = ", ".join(f"{v:.3f}" for v in np.random.default_rng(1).standard_normal(216))
    weights = ", ".join(f"{v:.3f}" for v in np.random.default_rng(2).standard_normal(160))
    return _model(PICTURE % (values, weights))


def _held(
    data: bytes, ranges: dict[str, Range], shapes: list[dict[str, tuple[int, ...]]], make: Any
) -> tuple[int, int]:
    """The bound of a Session, and the most that chains for these shapes held after a step, in the given arena."""
    session = linnet.Session(data, threads=1, bounds=ranges)
    bound = session.bound
    assert bound is not None and not bound.unbounded
    memory = np.empty(bound.arena + 64, np.uint8)
    arena = ffi.cast("void *", memory.ctypes.data + -memory.ctypes.data % 64)
    most = 0
    for shape in shapes:
        allocator = Allocator()
        with Chain(data, allocator, copy=False) as chain:
            chain.make_plan(shapes=shape, max_bytes=bound.total)
            chain.make_session(arena=arena, arena_size=bound.arena, allocator=allocator.struct)
            for seed in range(2):
                chain.set(make(shape, seed)).run()
                most = max(most, allocator.bytes + bound.arena)
        assert not allocator.live
    return bound.total, most


def _noise(shape: dict[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(dims).astype(np.float32) for name, dims in shape.items()}


def test_no_shape_inside_takes_more() -> None:
    ranges: dict[str, Range] = {"x": ((1, 6), (3, 3), (2, 70), (2, 90))}
    seeded = random.Random(3)
    shapes = [{"x": tuple(seeded.randint(*span) for span in ranges["x"])} for _ in range(60)]
    bound, held = _held(_picture(), ranges, [Space(ranges, {}).corner, *shapes], _noise)
    assert bound // 2 < held <= bound


def test_data_dependent_segments_are_inside_the_bound() -> None:
    ranges: dict[str, Range] = {"x": ((1, 40), (16, 16))}

    def make(shape: dict[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
        x = np.random.default_rng(seed).random(shape["x"]).astype(np.float32)
        return {"x": x * (3 if seed else 1)}  # nothing is zero: the largest result, and both branches

    data = _model(BY_DATA)
    bound, held = _held(data, ranges, [{"x": (n, 16)} for n in range(1, 41)], make)
    assert bound // 2 < held <= bound
    session = linnet.Session(data, threads=1, bounds=ranges)
    assert session.bound is not None and session.bound.later > 40 * 16 * 16 * 4
    for n in range(1, 41):
        session.run(make({"x": (n, 16)}, n % 2))


@pytest.mark.parametrize(
    ("name", "dims", "count"),
    [("ppocr_v4_rec", ((1, 2), (3, 3), (48, 48), (16, 320)), 12), ("nsnet2", ((1, 1), (1, 120), (161, 161)), 12)],
)
def test_real_models_stay_inside(name: str, dims: Range, count: int) -> None:
    data = linnet.from_onnx(zoo.fetch(name)).to_bytes()
    (feed,) = zoo.inputs(name)
    seeded = random.Random(5)
    shapes = [{feed: tuple(seeded.randint(*span) for span in dims)} for _ in range(count)]
    bound, held = _held(data, {feed: dims}, shapes, _noise)
    assert held <= bound


def test_a_session_refuses_what_is_outside() -> None:
    session = linnet.Session(_picture(), threads=1, bounds={"x": ((2, 4), None, (2, 40), 30)})
    assert session.bound == linnet.Session(_picture(), threads=1, bounds={"x": "2..4,?,2..40,30"}).bound
    arena = session.bound.arena if session.bound else 0
    for n, h in ((2, 2), (4, 40), (3, 17)):
        x = np.ones((n, 3, h, 30), np.float32)
        assert session.run({"x": x})["y"].shape == (n, 10)
        assert session.memory["activations"] + session.memory["scratch"] <= arena
        assert session.bound is not None and session.memory_kept <= session.bound.total
    for shape in ((5, 3, 40, 30), (1, 3, 40, 30), (4, 3, 41, 30), (4, 3, 40, 31)):
        with pytest.raises(linnet.UsageError, match=r"outside the session's bounds.*expected 2\.\.4,3,2\.\.40,30"):
            session.run({"x": np.ones(shape, np.float32)})
    with pytest.raises(linnet.UsageError, match="outside the session's bounds"):
        linnet.Session(_picture(), bounds={"x": ((2, 4), 3, 8, 8)}, input_shapes={"x": (1, 3, 8, 8)})


def test_bounds_in_c() -> None:
    """linnet_plan_config.bounds: alone it is the largest shape; with shapes it is a check."""
    rows = ffi.new("linnet_shape[1]")
    name = ffi.new("char[]", b"x")
    rows[0].input, rows[0].rank = name, 4
    rows[0].dims[0:4] = [4, 3, 32, 32]
    with Chain(_picture()) as chain:
        info = chain.make_plan(bounds=rows, bound_count=1).info()
        spec = new_struct("linnet_tensor_info")
        lib().linnet_plan_get_input(chain.plan, 0, spec)
        assert list(spec.shape[0:4]) == [4, 3, 32, 32]
        most = ffi.new("uint64_t *")
        assert lib().linnet_plan_bound(chain.plan, most, NULL) == 0 and most[0] == info.total
    with Chain(_picture()) as chain:
        assert chain.make_plan(shapes={"x": (2, 3, 32, 20)}, bounds=rows, bound_count=1).info().total < info.total
    with Chain(_picture()) as chain, pytest.raises(Failure) as caught:
        chain.make_plan(shapes={"x": (2, 3, 33, 20)}, bounds=rows, bound_count=1)
    record = caught.value.record
    assert caught.value.status == 104 and text(record.tensor) == "x" and "larger than its bound" in text(record.what)
    assert text(record.expected) == "at most [4, 3, 32, 32]" and text(record.got) == "[2, 3, 33, 20]"


def test_what_has_no_bound_is_named() -> None:
    model = onnx.parser.parse_model(
        HEAD
        + """g (float[N] x, int64[2] shape) => (float[A, B] y)
        { a = Abs (x)  y = Expand (a, shape) }"""
    )
    session = linnet.Session(linnet.from_onnx(model), threads=1, bounds={"x": [(1, 9)]})
    assert (
        session.bound is not None
        and "'y'" in session.bound.unbounded
        and "has no upper bound" in session.bound.unbounded
    )
    assert session.run({"x": np.ones(1, np.float32), "shape": np.array([300, 7])})["y"].shape == (300, 7)


@pytest.mark.parametrize(
    ("text_", "what"),
    [
        ("1..8,3,?,?", "dimension 2 of input 'x' is open in the model and has no bound"),
        ("1..8,3,4..,4", "a range needs both ends"),
        ("8..1,3,4,4", "not a valid range"),
        ("1..8,3,4", "wrong number of dimensions"),
        ("1..8,4,4,4", "fixed in the model; expected 3"),
        ("1..8,1..4,4,4", "fixed in the model; expected 3"),
        ("1..8,three,4,4", "is invalid"),
    ],
)
def test_ranges_that_are_none(text_: str, what: str) -> None:
    spec = TensorSpec("x", "f32", (None, 3, None, None))
    with pytest.raises(linnet.UsageError, match=what):
        resolve({"x": parse("x", text_)}, [spec])
    with pytest.raises(linnet.UsageError, match="no such input"):
        resolve({"z": (1,)}, [spec])


def test_samples_hold_the_corners() -> None:
    ranges: dict[str, Range] = {"a": ((1, 8), (4, 64)), "b": ((1, 8), (3, 3))}
    shapes = Space(ranges, {}).samples()
    assert shapes[0] == Space(ranges, {}).corner == {"a": (8, 64), "b": (8, 3)} and {"a": (1, 4), "b": (1, 3)} in shapes
    assert {"a": (1, 64), "b": (1, 3)} in shapes and len(shapes) > 10
    assert all(inside(one[name], dims) for one in shapes for name, dims in ranges.items())


def test_the_command(tmp_path: Any) -> None:
    path = tmp_path / "m.lnt"
    path.write_bytes(_picture())
    result = CliRunner().invoke(cli, ["plan", str(path), "--input", "x=1..2,?,8..16,9", "--json", "--threads", "1"])
    report = json.loads(result.output)
    exact = Model(path)
    session = linnet.Session(exact, threads=1, input_shapes={"x": (2, 3, 16, 9)})
    assert report["shapes"] == {"x": [2, 3, 16, 9]} and not report["exact"]
    assert report["shapes_inside"] == report["shapes_planned"] == 18 and report["every_shape_planned"]
    assert report["memory"] == session.memory and report["bound"]["total"] >= session.memory["total"]
    assert session.memory["activations"] + session.memory["scratch"] <= report["arena"]
    assert report["arena"] <= report["bound"]["activations"] + report["bound"]["scratch"]
    shown = CliRunner().invoke(cli, ["plan", str(path), "--input", "x=2,3,16,9", "--threads", "1"]).output
    assert f"{session.memory['total']:,}" in shown
