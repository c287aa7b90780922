"""Random quantized ONNX operators and chains against ONNX Runtime: which give the same bits, and how rare one quantum is for the
others (docs/converting.md). Half of the scales have simple quotients, which give exact ties. `make soak` draws many more."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import linnet
from tests import onnx_random as drawing
from tests.onnx_random import Draw
from tests.test_onnx_quantized import EXACT, reference

Array = np.ndarray[Any, Any]
X86 = platform.machine().lower() in (
    "x86_64",
    "amd64",
)  # on other machines ONNX Runtime's compiler fuses products and sums
SAME = (
    "Relu", "LeakyRelu", "Clip", "Abs", "Sub", "Concat", "MaxPool", "AveragePool", "GlobalAveragePool", "Resize nearest",
    "Resize linear", "Resize cubic",
)  # fmt: skip
PRODUCTS = (
    "Conv",
    "depthwise Conv",
    "MatMul",
    "Gemm",
)  # the same if ONNX Runtime multiplies integers: u8 activations
UNFUSED = ("Add", "Mul")  # the same as ONNX Runtime without its fused kernels, whose bits depend on the processor
RARE = {
    "Sigmoid": 1e-3,
    "Tanh": 1e-3,
    "HardSwish": 1e-3,
    "Elu": 1e-3,
    "Softmax": 1e-3,
    "Conv Relu": 1e-3,
    "ReduceMean": 2e-2,
}


def unfused(proto: onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    """Computes node by node, as ONNX defines them."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def difference(r: Draw, name: str, plain: bool) -> tuple[Array, bool]:
    """The difference of each element in quanta, and whether the results are meaningful."""
    proto = r.model(name)
    wanted = unfused(proto, r.inputs) if plain else reference(proto, r.inputs)[name]
    got = linnet.Session(linnet.from_onnx(proto)).run(r.inputs)[name]
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    return np.abs(got.astype(np.int64) - wanted.astype(np.int64)), bool(wanted.min() != wanted.max())


def run_operators(op: str, dtype: str, seeds: range) -> None:
    limit = RARE.get(op, 0.0)
    if not X86 or (op in PRODUCTS and (dtype == "i8" or not EXACT)):
        limit = max(limit, 1e-3)
    elements = apart = says = 0
    for seed in seeds:
        r = Draw([seed], dtype, EXACT)
        found, varied = difference(r, drawing.OPS[op](r, op).name, op in UNFUSED)
        assert found.max() <= (1 if limit else 0), f"seed {seed} of {op} {dtype}: {(found > 0).mean():.2%} differ"
        elements, apart, says = elements + found.size, apart + np.count_nonzero(found), says + varied
    assert apart <= limit * elements + (limit > 0), f"{apart} of {elements} elements are one off"
    assert says >= 0.5 * len(seeds)


def run_fused(op: str, dtype: str, seeds: range) -> None:
    """Sums and products as ONNX Runtime's fused kernels round them: by quotients of scales, with fused steps if available."""
    elements = apart = 0
    for seed in seeds:
        r = Draw([seed], dtype, EXACT)
        found, _ = difference(r, drawing.OPS[op](r, op).name, False)
        assert found.max() <= 1
        elements, apart = elements + found.size, apart + np.count_nonzero(found)
    assert apart <= 1e-2 * elements


@pytest.mark.parametrize("dtype", ["u8", "i8"])
@pytest.mark.parametrize("op", drawing.OPS)
def test_random_operators(op: str, dtype: str) -> None:
    run_operators(op, dtype, range(12))


@pytest.mark.parametrize("op", UNFUSED)
def test_fused_kernels_round_in_other_ways_rarely(op: str) -> None:
    run_fused(op, "u8", range(12))


def run_chains(dtype: str, seeds: range) -> None:
    """A different element may change later ones, so whole models are counted."""
    equal = elements = apart = 0
    for seed in seeds:
        r = Draw([seed, 7], dtype, EXACT)
        found, _ = difference(r, drawing.chain(r).name, False)
        equal, elements, apart = equal + (not found.any()), elements + found.size, apart + np.count_nonzero(found)
    assert equal >= 0.9 * len(seeds), f"{len(seeds) - equal} of {len(seeds)} differ"
    assert apart <= 5e-3 * elements


@pytest.mark.parametrize("dtype", ["u8", "i8"])
def test_random_chains(dtype: str) -> None:
    run_chains(dtype, range(40))


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["u8", "i8"])
@pytest.mark.parametrize("op", drawing.OPS)
def test_many_random_operators(op: str, dtype: str) -> None:
    run_operators(op, dtype, range(1000, 1200))


@pytest.mark.soak
@pytest.mark.parametrize("op", UNFUSED)
def test_fused_kernels_in_many_random_operators(op: str) -> None:
    run_fused(op, "u8", range(1000, 1200))


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["u8", "i8"])
def test_many_random_chains(dtype: str) -> None:
    run_chains(dtype, range(1000, 1600))
