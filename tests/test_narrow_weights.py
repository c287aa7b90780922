"""Products and look-ups with quantized weights that stay narrow in memory: every scheme, dtype, transpose and kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet.facade import Graph
from linnet.ir.dtypes import Quantization, bits_of, bytes_of
from tests.test_four_bits import blocks, integers, quantization_of, real

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(7)
SCHEMES = [("tensor", None, 0), ("axis", 0, 0), ("axis", 1, 0), ("block", 0, 16), ("block", 1, 16), ("block", 1, 5)]


def session_of(
    op: str, x: Array, w: Array, q: Quantization, *more: Array, first: bool = False, **attributes: Any
) -> Any:
    """A session of one node that reads the constant w. first: w is the first operand."""
    plan = {k: attributes.pop(k) for k in ("reference", "isa_max", "threads") if k in attributes}
    graph = Graph()
    main = graph.function("main")
    a = main.placeholder("x", linnet.ir.dtypes.dtype_of(x.dtype), x.shape)
    weight = main.constant(w, "w", quantization=q)
    rest = [main.constant(m, "m") for m in more]
    main.outputs = main.emit(op, [weight, a, *rest] if first else [a, weight, *rest], attributes)
    graph.signature("infer", main, outputs=["y"])
    return linnet.Session(graph, **plan)


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("scheme, axis, block", SCHEMES)
@pytest.mark.parametrize("turned", [False, True])
def test_products_by_narrow_weights(dtype: str, scheme: str, axis: int | None, block: int, turned: bool) -> None:
    for m, k, n in ((1, 33, 7), (5, 48, 37), (9, 1, 3)):
        shape = (n, k) if turned else (k, n)
        w, q = integers(dtype, shape), quantization_of(scheme, axis, block, dtype, shape)
        x, bias = RANDOM.standard_normal((2, m, k)).astype(np.float32), RANDOM.standard_normal(n).astype(np.float32)
        wide = real(w, q).astype(np.float64)
        expected = x.astype(np.float64) @ (wide.T if turned else wide) + bias
        most = np.abs(x).astype(np.float64) @ np.abs(wide.T if turned else wide) + np.abs(bias)
        for options in ({}, {"reference": True}, *({"isa_max": name} for name in linnet.isa_names())):
            session = session_of("matmul", x, w, q, bias, transpose_b=turned, **options)
            y = session.run({"x": x})["y"]
            assert (np.abs(y - expected) <= 1e-6 * most + 1e-30).all(), (options, session.steps[0].kernel)


def test_half_precision_and_vectors() -> None:
    w, q = integers("i4", (24, 64)), blocks("i4", (24, 64), 1, 32)
    for x in (RANDOM.standard_normal((3, 64)).astype(np.float16), RANDOM.standard_normal(64).astype(np.float32)):
        y = session_of("matmul", x, w, q, transpose_b=True).run({"x": x})["y"]
        expected = x.astype(np.float64) @ real(w, q).astype(np.float64).T
        assert y.dtype == x.dtype and np.allclose(y, expected, rtol=2e-3, atol=2e-2 if x.dtype == np.float16 else 1e-4)


def test_threads_give_the_same_bits() -> None:
    w, q = integers("u4", (200, 256)), blocks("u4", (200, 256), 1, 32)
    x = RANDOM.standard_normal((37, 256)).astype(np.float32)
    one, two = (session_of("matmul", x, w, q, transpose_b=True, threads=n).run({"x": x})["y"] for n in (1, 2))
    assert np.array_equal(one, two)


def test_memory_is_narrow() -> None:
    w, q = integers("i4", (512, 512)), blocks("i4", (512, 512), 1, 32, zeros=False)
    x = np.ones((4, 512), np.float32)
    session = session_of("matmul", x, w, q, transpose_b=True, threads=1)
    memory = session.memory
    assert bytes_of("i4", w.shape) == 128 << 10 and bits_of("i4") == 4
    assert memory["packed_weights"] == 0 and memory["constants"] == 0
    assert memory["total"] < 512 * 512  # the weights stay in the file; widened to f32 they take four times as much


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("scheme, axis, block", SCHEMES)
@pytest.mark.parametrize("result", ["f32", "f16"])
def test_rows_that_are_looked_up(dtype: str, scheme: str, axis: int | None, block: int, result: str) -> None:
    w, q = integers(dtype, (11, 21)), quantization_of(scheme, axis, block, dtype, (11, 21))
    index = RANDOM.integers(-11, 11, (3, 2))
    for along in (0, 1):
        session = session_of("gather", index, w, q, first=True, kind="take", axis=along, dtype=result)
        expected = np.take(real(w, q), index, along).astype(np.float16 if result == "f16" else np.float32)
        assert np.array_equal(session.run({"x": index})["y"], expected)
    with pytest.raises(linnet.Error, match="out of range"):
        session_of("gather", index, w, q, first=True, kind="take", axis=0, dtype=result).run({"x": index + 100})


def test_look_ups_of_integers_need_whole_bytes() -> None:
    index = np.zeros(2, np.int64)
    for dtype, what in (("i4", "i4|per block"), ("i8", "per block")):
        with pytest.raises(linnet.Error, match=f"({what}).*can only be gathered as real values"):
            session_of("gather", index, integers(dtype, (4, 8)), blocks(dtype, (4, 8), 1, 4), first=True, kind="take")
    with pytest.raises(linnet.Error, match="dtype needs a quantized tensor"):
        one = Quantization(np.ones(1, np.float32), np.zeros(1, np.int32))
        session_of("gather", index, integers("i8", (4, 8)), one, first=True, kind="take", dtype="i32")


def _n_bits(bits: int, zeros: bool, kind: str, n: int = 128, k: int = 256, block: int = 32) -> tuple[Any, Array]:
    """A MatMulNBits model with constant weights, and feeds. kind: of the scales."""
    grid = -(-k // block)
    scale = (RANDOM.random((n, grid)) * 0.1 + 0.01).astype(np.float32)
    if kind == "negative":  # ONNX Runtime's symmetric quantizer writes them
        scale[::2] *= -1
    if kind == "zero":
        scale[3] = 0
    constants = {"b": RANDOM.integers(0, 256, (n, grid, block * bits // 8), np.uint8), "s": scale.reshape(-1)}
    if zeros:
        constants["z"] = RANDOM.integers(0, 256, n * -(-grid * bits // 8), np.uint8)
    node = helper.make_node(
        "MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block
    )
    ports = [helper.make_tensor_value_info(a, TensorProto.FLOAT, [5, d]) for a, d in (("x", k), ("y", n))]
    graph = helper.make_graph(
        [node], "g", ports[:1], ports[1:], [numpy_helper.from_array(v, name) for name, v in constants.items()]
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), RANDOM.standard_normal((5, k)).astype(
        np.float32
    )


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", ["positive", "negative", "zero"])
def test_matmul_n_bits_equals_onnx_runtime(bits: int, zeros: bool, kind: str) -> None:
    proto, x = _n_bits(bits, zeros, kind)
    session = linnet.Session(linnet.from_onnx(proto))
    assert [s.op for s in session.steps] == ["matmul"]
    mine = session.run({"x": x})["y"]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (theirs,) = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})
    assert np.abs(mine - theirs).max() <= 1e-5 * np.abs(theirs).max()


def test_matmul_n_bits_is_as_narrow_in_memory_as_in_the_file() -> None:
    proto, x = _n_bits(4, False, "positive")  # a matrix of 16 kB
    graph = linnet.from_onnx(proto)
    (w,) = (t for f in graph.functions for t in f.tensors() if t.data is not None)
    assert w.data is not None and w.dtype == "i4" and bytes_of("i4", w.data.shape) == 16384
    assert len(graph.to_bytes()) < 16384 + 4 * 128 * 8 + 2048  # the weights, a scale per block, the structure
    session = linnet.Session(graph)
    assert session.memory["packed_weights"] == session.memory["constants"] == 0
    assert np.isfinite(session.run({"x": x})["y"]).all()
