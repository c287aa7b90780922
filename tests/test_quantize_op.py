"""The op quantize with a scale and zero points as operands, against its definition: fast and reference kernels, constant and fed
operands, zero points that are equal or differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops

KINDS: dict[str, Any] = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16}


@pytest.mark.parametrize("fed", ["nothing", "scale", "zero"])
@pytest.mark.parametrize("zeros", [(0, 0, 0), (7, 7, 7), (7, 7, 2), (0, 5, 100)])
@pytest.mark.parametrize("dtype", KINDS)
def test_zero_points_of_an_axis(dtype: str, zeros: tuple[int, ...], fed: str) -> None:
    x = np.random.default_rng(1).uniform(-300, 300, (2, 3, 37)).astype(np.float32)
    x[0, 0, :3] = 1e9, -1e9, 0
    scale, zero = np.float32([0.5, 1.25, 2]), np.array(zeros, KINDS[dtype])
    limits = np.iinfo(KINDS[dtype])
    along = (1, 3, 1)
    expected = np.rint(x / scale.reshape(along)) + zero.reshape(along).astype(np.float32)
    expected = np.clip(expected, limits.min, limits.max).astype(KINDS[dtype])
    graph = linnet.Graph()
    given: dict[str, Any] = {"x": x, "scale": scale, "zero": zero}
    inputs = {"x": graph.placeholder("x", x.shape)}
    if fed == "scale":
        inputs["scale"] = graph.placeholder("scale", (3,))
    if fed == "zero":
        inputs["zero"] = graph.placeholder("zero", (3,), dtype)
    operands = [inputs[name] if name in inputs else graph.constant(given[name]) for name in ("scale", "zero")]
    graph.signature("infer", inputs, {"y": ops.quantize(inputs["x"], *operands, dtype=dtype, axis=1)})
    for reference in (False, True):
        session = linnet.Session(graph, reference=reference)
        assert reference or "reference" not in session.steps[0].kernel
        np.testing.assert_array_equal(session.run({name: given[name] for name in inputs})["y"], expected)
