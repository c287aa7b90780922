"""Sizes that only grow with the inputs, so that the largest shape bounds all others: detected in graphs as exporters write them,
and rejected if a smaller input may make something larger. The results are compared with plans."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import onnx.parser
import pytest

import linnet
from linnet.session import bounding, monotone_sizes
from linnet.session.bounds import COUNTED, Space, resolve
from linnet.session.planner import Planner
from tests.test_bounds import HEAD
from tests.test_bounds_hold import random_chain


def _frames_hold(model: linnet.Model, ranges: Any, count: int, rng: random.Random) -> int:
    """Plans random smaller shapes in the frame of the largest; returns how many took no more, region by region."""
    planner = Planner(model, threads=2)
    space = Space(resolve(ranges, model.inputs()), model.dim_names("infer"))
    most = bounding.info_of(planner._make_plan(space.corner, None, frame=space.corner))
    made = 0
    for _ in range(count):
        shape = space._shape({key: rng.randint(*span) for key, span in space.spans.items()})
        try:
            planner._make_plan(shape, None)
        except linnet.Error:
            continue  # a shape that the model does not accept
        info = bounding.info_of(planner._make_plan(shape, None, frame=space.corner))
        assert all(getattr(info, name) <= getattr(most, name) for name in COUNTED), shape
        made += 1
    return made


def test_frames_of_random_graphs_hold() -> None:
    for seed in range(40):
        rng = random.Random(1000 + seed)
        graph = linnet.from_onnx(onnx.parser.parse_model(HEAD + random_chain(rng)))
        assert monotone_sizes.obstacle(graph, "infer") == "", seed
        assert _frames_hold(linnet.Model(graph), {"x": "?,?,2..70,2..90"}, 12, rng) == 12


# Shape arithmetic as exporters write it, over x[N, M]. s: its shape; n and m: its sizes; nv and mv: the sizes as 1-element
# vectors; minus1, at0, at1: constant vectors; z: a scalar.
GROWS = {
    "flatten": "to = Concat <axis = 0> (nv, minus1)  y = Reshape (x, to)",
    "expand": "c = Constant <value = int64[1] {7}> ()  to = Concat <axis = 0> (c, nv)  y = Expand (z, to)",
    "half": "two = Constant <value = int64[1] {2}> ()  e = Div (nv, two)  y = Slice (x, at0, e, at0)",
    "tail": "b = Constant <value = int64[1] {2}> ()  y = Slice (x, b, minus1, at1)",
    "range": """step = Constant <value = int64 {1}> ()  three = Constant <value = int64 {3}> ()  less = Sub (n, three)
        r = Range (zero, less, step)  y = Cast <to = 1> (r)""",
    "scale": """f = Cast <to = 1> (nv)  c = Constant <value = float {1.5}> ()  g = Mul (f, c)  h = Floor (g)
        e = Cast <to = 7> (h)  y = Expand (z, e)""",
    "frames": """c = Constant <value = int64[1] {5}> ()  less = Sub (nv, c)  by = Constant <value = int64[1] {2}> ()
        d = Div (less, by)  more = Add (d, at1)  e = Max (more, at0)  y = Expand (z, e)""",
    "swapped": "t = Transpose (x)  to = Concat <axis = 0> (mv, minus1)  y = Reshape (t, to)",
}
MAY_SHRINK = {
    "countdown": "c = Constant <value = int64[1] {40}> ()  e = Sub (c, nv)  y = Expand (z, e)",
    "complement": "c = Constant <value = int64[1] {8}> ()  r = Mod (nv, c)  e = Sub (c, r)  y = Expand (z, e)",
    "product": "c = Constant <value = int64[1] {9}> ()  d = Sub (nv, c)  p = Mul (d, mv)  q = Max (p, at1)  y = Expand (z, q)",
    "quotient": "all = Mul (nv, mv)  q = Div (all, mv)  y = Expand (z, q)",
    "window": "b = Constant <value = int64[1] {-9}> ()  e = Constant <value = int64[1] {20}> ()  y = Slice (x, b, e, at1)",
    "start": "e = Constant <value = int64[1] {99}> ()  y = Slice (x, nv, e, at1)",
    "backwards": "e = Constant <value = int64[1] {99}> ()  y = Slice (x, e, nv, at1, minus1)",
    "rest": "xx = Concat <axis = 0> (x, x)  f = Reshape (xx, minus1)  more = Add (mv, at0)  d = Add (mv, mv) "
    " to = Concat <axis = 0> (minus1, d)  y = Reshape (f, to)",
    "data": "i = NonZero (x)  y = Cast <to = 1> (i)",
    "kernel": "u = Reshape (x, four)  four = Concat <axis = 0> (at1, at1, nv, mv)  c = ConstantOfShape (wide) "
    " wide = Constant <value = int64[4] {1, 1, 30, 30}> ()  y = Conv (c, u)",
}
KNOWN = """s = Shape (x)  zero = Constant <value = int64 {0}> ()  one = Constant <value = int64 {1}> ()
    n = Gather (s, zero)  m = Gather (s, one)  at0 = Constant <value = int64[1] {0}> ()  at1 = Constant <value = int64[1] {1}> ()
    minus1 = Constant <value = int64[1] {-1}> ()  nv = Unsqueeze (n, at0)  mv = Unsqueeze (m, at0)
    z = ReduceSum <keepdims = 0> (x)"""
RANKS = {"range": 1, "scale": 1, "frames": 1, "countdown": 1, "complement": 1, "product": 1, "quotient": 1, "kernel": 4}


def _arithmetic(body: str, name: str) -> linnet.Graph:
    """The graph of these lines, ordered so that operands come first."""
    lines, made, known = re.findall(r"\w+ = \w+(?: <.*?>)? \([^)]*\)", f"{KNOWN}  {body}"), [], {"x"}
    while lines:
        line = next(line for line in lines if set(re.findall(r"\w+", line[line.rindex("(") :])) <= known)
        lines.remove(line)
        made.append(line)
        known.add(line.split()[0])
    dims = ", ".join("ABCD"[: RANKS.get(name, 2)])
    return linnet.from_onnx(
        onnx.parser.parse_model(HEAD + f"g (float[N, M] x) => (float[{dims}] y) {{ {'  '.join(made)} }}")
    )


@pytest.mark.parametrize("name", GROWS)
def test_sizes_that_grow_are_followed(name: str) -> None:
    graph = _arithmetic(GROWS[name], name)
    assert monotone_sizes.obstacle(graph, "infer") == ""
    assert _frames_hold(linnet.Model(graph), {"x": "1..40,4..40"}, 60, random.Random(name)) > 30


@pytest.mark.parametrize("name", MAY_SHRINK)
def test_sizes_that_may_shrink_are_not_promised(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _arithmetic(MAY_SHRINK[name], name)
    assert monotone_sizes.obstacle(graph, "infer")
    dims = "1..30,1..30"
    small = linnet.Session(graph, threads=1, bounds={"x": dims}).bound
    assert small is not None and small.every and not small.unbounded  # planned shape by shape, it has a bound
    monkeypatch.setattr(bounding, "MOST_SHAPES", 100)
    session = linnet.Session(graph, threads=1, bounds={"x": dims})
    assert session.bound is not None and "900 shapes" in session.bound.unbounded
    assert re.search(r"up to \d+ shapes of this model can be planned one by one", session.bound.unbounded)
    for n, m in ((30, 30), (3, 29), (29, 3), (1, 1)):  # without a bound nothing is refused
        try:
            session.run({"x": np.ones((n, m), np.float32)})
        except linnet.GraphError as error:
            assert error.code != bounding.TOO_LARGE


def test_what_is_folded_at_small_shapes_only() -> None:
    """A table as long as the input is folded only if it is short; the frame behaves as at its largest shape."""
    numbers = ", ".join("1" for _ in range(256))
    text = f"""g (float[N, 1] x) => (float[N, 256] y) {{
      s = Shape (x)  zero = Constant <value = int64 {{0}}> ()  one = Constant <value = int64 {{1}}> ()
      n = Gather (s, zero)  r = Range (zero, n, one)  f = Cast <to = 1> (r)  last = Constant <value = int64[1] {{1}}> ()
      u = Unsqueeze (f, last)  c = Constant <value = float[1, 256] {{{numbers}}}> ()  t = MatMul (u, c)  y = Add (x, t) }}"""
    graph = linnet.from_onnx(onnx.parser.parse_model(HEAD + text))
    planner, constants = Planner(linnet.Model(graph), threads=1), []
    for n in (10, 400):
        planner.plan({"x": (n, 1)})
        constants.append(planner.memory["constants"])
    assert constants[0] >= 10 * 256 * 4 > constants[1]
    assert monotone_sizes.obstacle(graph, "infer") == ""
    assert _frames_hold(planner.model, {"x": "1..400,1"}, 60, random.Random(0)) == 60
