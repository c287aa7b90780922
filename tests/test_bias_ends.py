"""Biases at both ends of 64 bits in products of 16-bit activations: the sums wrap as NumPy's do, on every instruction set, and
the sanitizers find no signed overflow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.facade import Graph
from linnet.ir.function import Tensor, emit
from linnet.session.model import isa_names
from tests.native import SANITIZED, build, run
from tests.test_wide_weights import W_SCALE, X_SCALE, Y_SCALE, grid, integers

COUNT = 16  # channels
TOP = np.iinfo(np.int64).max
ENDS = (TOP, -TOP - 1, TOP - 127, -TOP + 127, TOP - (1 << 31), (1 << 62) + 5, -(1 << 62), 1 << 55, -(1 << 39), 0)
BIAS = np.resize(np.array(ENDS, np.int64), COUNT)
SHAPE = (2, COUNT, 5, 7)
KINDS = {
    "matmul": {},
    "conv": {"pads": [0] * 4},
    "conv3": {"pads": [1] * 4},
    "depthwise": {"pads": [1] * 4, "group": COUNT},
    "conv_transpose": {"pads": [1] * 4, "strides": [2, 2]},
}


def weights(kind: str, bits: int) -> np.ndarray:
    size = 1 if kind == "conv" else 3
    inner = 1 if kind == "depthwise" else COUNT
    shape = (COUNT, COUNT) if kind == "matmul" else (COUNT, inner, size, size)
    w = integers(np.random.default_rng(5), *shape)
    return w if bits == 16 else (w >> 8).astype(np.int8)


def graph_of(kinds: list[str], bits: int, output: str, stays: bool) -> Graph:
    """One product of each kind. stays: the bias is a constant; otherwise it is an input."""
    graph = Graph()
    main = graph.function()
    inputs: dict[str, Tensor] = {}
    for name, shape in (("x", SHAPE), ("rows", (6, COUNT))):
        if (name == "rows") == ("matmul" in kinds) or len(kinds) > 1:
            inputs[name] = main.placeholder(name, "i16", shape)
            inputs[name].quantization = grid(X_SCALE)
    if not stays:
        inputs["bias"] = main.placeholder("bias", "i64", (COUNT,))
    outputs = {}
    for kind in kinds:
        op = kind if kind in ("matmul", "conv_transpose") else "conv"
        w = main.constant(weights(kind, bits), quantization=grid(W_SCALE, COUNT, 0 if op == "conv" else 1))
        bias = main.constant(BIAS) if stays else inputs["bias"]
        x = inputs["rows" if kind == "matmul" else "x"]
        y = emit(op, [x, w, bias], {**KINDS[kind], "output_dtype": output})[0]
        if output == "i16":
            y.quantization = grid(Y_SCALE)
        outputs[kind] = y
    main.outputs.extend(outputs.values())
    graph.signature("infer", inputs, outputs)
    return graph


def feeds_of(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(6)
    made = {"x": integers(rng, *SHAPE), "rows": integers(rng, 6, COUNT), "bias": BIAS}
    return {name: made[name] for name in graph.signatures["infer"].inputs}


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_wrap_alike(kind: str, bits: int) -> None:
    for output in ("i64", "i16", "f32", "i32"):
        for stays in (True, False):
            graph = graph_of([kind], bits, output, stays)
            feeds = feeds_of(graph)
            want = linnet.Session(graph, reference=True).run(feeds)[kind]
            if output == "i64" and kind in ("matmul", "conv"):
                w = weights(kind, bits).reshape(COUNT, COUNT).astype(np.int64)
                with np.errstate(over="ignore"):
                    exact = (
                        feeds["rows"].astype(np.int64) @ w
                        if kind == "matmul"
                        else (np.einsum("nchw,oc->nhwo", feeds["x"].astype(np.int64), w))
                    )
                    exact = exact + BIAS
                np.testing.assert_array_equal(want, exact if kind == "matmul" else exact.transpose(0, 3, 1, 2))
                assert (np.abs(exact.astype(np.float64) - BIAS) > 1e18).any(), "a sum wraps"
            for isa in isa_names():
                got = linnet.Session(graph, isa_max=isa, threads=1).run(feeds)[kind]
                np.testing.assert_array_equal(got, want, f"{output}, constant bias {stays}, {isa}")


@pytest.mark.parametrize("bits", [8, 16])
def test_no_sum_overflows_under_the_sanitizers(bits: int, tmp_path: Path) -> None:
    tool = str(build("address", "linnet-run") / "linnet-run")
    for output in ("i64", "f32"):
        for stays in (True, False):
            graph = graph_of(list(KINDS), bits, output, stays)
            graph.save(tmp_path / "m.lnt")
            command = [tool, str(tmp_path / "m.lnt"), "--threads", "1"]
            for name, value in feeds_of(graph).items():
                np.save(tmp_path / f"{name}.npy", value)
                command += ["--input", f"{name}={tmp_path / name}.npy"]
            for isa in isa_names():
                run([*command, "--isa-max", isa], cwd=tmp_path, timeout=120, env=SANITIZED)
