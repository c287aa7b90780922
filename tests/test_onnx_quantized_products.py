"""Integer matrix products and pools of ONNX in every form that their definitions allow: 1-D operands, zero points per tensor, per
row and per column, known or computed, open axes. The references are NumPy in i64 and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from tests.test_onnx_quantized import EXACT, reference

Array = np.ndarray[Any, Any]
DIMS = {
    "1x1": ((64,), (64,)), "1x2": ((64,), (64, 4)), "1x3": ((64,), (3, 64, 4)), "2x1": ((5, 64), (64,)),
    "3x1": ((3, 5, 64), (64,)), "2x2": ((5, 64), (64, 4)), "3x2": ((3, 5, 64), (64, 4)), "2x3": ((5, 64), (3, 64, 4)),
    "4x3": ((2, 1, 5, 64), (3, 64, 4)),
}  # fmt: skip


def model(
    op: str,
    operands: dict[str, Array],
    constants: set[str],
    domain: str = "",
    open_axes: bool = False,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node with operands in order; those in `constants` are initializers."""

    def info(name: str, value: Array) -> Any:
        is_open = open_axes if isinstance(open_axes, bool) else name in open_axes
        shape = [f"{name}{i}" for i in range(value.ndim)] if is_open else value.shape
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape)

    node = helper.make_node(op, list(operands), ["y"], domain=domain, **attributes)
    given = [info(n, v) for n, v in operands.items() if n not in constants]
    stored = [numpy_helper.from_array(v, n) for n, v in operands.items() if n in constants]
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name="y")], stored)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run(proto: onnx.ModelProto, operands: dict[str, Array], constants: set[str]) -> Array:
    feeds = {n: v for n, v in operands.items() if n not in constants}
    return np.asarray(linnet.Session(linnet.from_onnx(proto)).run(feeds)["y"])


def factors(rng: np.random.Generator, dims: str, rows: bool, columns: bool) -> tuple[dict[str, Array], Array]:
    """Operands a, b, a_zero, b_zero, and the product of the differences in i64."""
    a_shape, b_shape = DIMS[dims]
    a, b = rng.integers(0, 256, a_shape).astype(np.uint8), rng.integers(-100, 100, b_shape).astype(np.int8)
    rows, columns = rows and len(a_shape) > 1, columns and len(b_shape) > 1
    a_zero = np.asarray(rng.integers(0, 256, a_shape[-2] if rows else ()), np.uint8)
    b_zero = np.asarray(rng.integers(-9, 9, b_shape[-1] if columns else ()), np.int8)
    left = a.astype(np.int64) - (a_zero[:, None] if rows else a_zero)
    wanted = np.matmul(left, b.astype(np.int64) - b_zero)
    return {"a": a, "b": b, "a_zero": a_zero, "b_zero": b_zero}, np.asarray(wanted)


@pytest.mark.parametrize("computed", ["", "a", "ab", "a,a_zero,b_zero", "all"])
@pytest.mark.parametrize("zeros", ["scalar", "one", "rows", "columns", "both"])
@pytest.mark.parametrize("dims", DIMS)
def test_matmul_integer_of_every_rank(dims: str, zeros: str, computed: str) -> None:
    rng = np.random.default_rng([len(dims), len(zeros), len(computed)])
    operands, wanted = factors(rng, dims, zeros in ("rows", "both"), zeros in ("columns", "both"))
    if zeros == "one":
        operands |= {n: v.reshape(1) for n, v in operands.items() if n.endswith("zero")}
    live = set(operands) if computed == "all" else set(computed.split(",")) if "," in computed else set(computed)
    constants = set(operands) - (live or {"a"})
    got = run(model("MatMulInteger", operands, constants), operands, constants)
    assert got.dtype == np.int32
    assert got.shape == wanted.shape
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("zeros", ["scalar", "both"])
@pytest.mark.parametrize("dims", DIMS)
def test_matmul_integer_takes_the_length_of_an_open_axis_from_the_shape(dims: str, zeros: str) -> None:
    """Zero points known only at run time also need the number of products, which is then not a constant either."""
    rng = np.random.default_rng(len(dims))
    operands, wanted = factors(rng, dims, zeros == "both", zeros == "both")
    proto = model("MatMulInteger", operands, set(), open_axes=True)
    assert np.array_equal(run(proto, operands, set()), wanted)


@pytest.mark.parametrize("open_axes", [False, True])
@pytest.mark.parametrize("dims", DIMS)
def test_matmul_integer_to_float_of_every_rank(dims: str, open_axes: bool) -> None:
    rng = np.random.default_rng(len(dims))
    operands, exact = factors(rng, dims, False, True)
    columns = len(DIMS[dims][1]) > 1
    scale = rng.uniform(0.01, 0.1, DIMS[dims][1][-1] if columns else ()).astype(np.float32)
    bias = rng.standard_normal(DIMS[dims][1][-1]).astype(np.float32) if columns else None
    order = {"a": operands["a"], "b": operands["b"], "a_scale": np.float32([0.03]), "b_scale": scale,
             "a_zero": operands["a_zero"], "b_zero": operands["b_zero"]}  # fmt: skip
    order |= {} if bias is None else {"bias": bias}
    wanted = exact.astype(np.float32) * (np.float32(0.03) * scale) + (0 if bias is None else bias)
    for constants in (set(), set(order) - {"a"}):
        proto = model("MatMulIntegerToFloat", order, constants, "com.microsoft", open_axes)
        got = run(proto, order, constants)
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("dims", DIMS)
def test_qlinear_matmul_of_every_rank(dims: str, rows: bool, computed: bool) -> None:
    rng = np.random.default_rng(len(dims))
    operands, exact = factors(rng, dims, rows, True)
    rows, columns = rows and len(DIMS[dims][0]) > 1, len(DIMS[dims][1]) > 1
    a_scale = rng.uniform(0.01, 0.1, operands["a_zero"].shape).astype(np.float32)
    b_scale = rng.uniform(0.01, 0.1, operands["b_zero"].shape).astype(np.float32)
    y_scale, y_zero = np.float32(0.05 * 0.05 * 40000 / 100), np.uint8(120)
    order = {"a": operands["a"], "a_scale": a_scale, "a_zero": operands["a_zero"], "b": operands["b"], "b_scale": b_scale,
             "b_zero": operands["b_zero"], "y_scale": np.asarray(y_scale), "y_zero": np.asarray(y_zero)}  # fmt: skip
    left = a_scale[:, None] if rows else a_scale
    factor = left * b_scale if columns or not rows else a_scale * b_scale  # without columns, rows are the last axis
    real = exact.astype(np.float64) * factor.astype(np.float64) / y_scale
    wanted = np.clip(np.rint(real) + 120, 0, 255)
    constants = set() if computed else set(order) - {"a"}
    got = run(model("QLinearMatMul", order, constants), order, constants)
    assert got.shape == wanted.shape
    assert np.all((got == wanted) | (np.abs(real - np.rint(real)) > 0.4999))
    assert got.size == 1 or got.min() != got.max()


@pytest.mark.parametrize("dims", ["2x2", "3x2", "2x3"])
def test_dynamic_quantize_matmul(dims: str) -> None:
    rng = np.random.default_rng(3)
    a_shape, b_shape = DIMS[dims]
    limit = 100 if EXACT else 60
    order = {"a": rng.standard_normal(a_shape).astype(np.float32),
             "b": rng.integers(-limit, limit, b_shape).astype(np.int8), "b_scale": rng.uniform(0.01, 0.02, 4).astype(np.float32),
             "b_zero": rng.integers(-3, 4, 4).astype(np.int8)}  # fmt: skip
    if len(b_shape) > 2:  # ONNX Runtime supports one scale for a batch of matrices
        order["b_scale"], order["b_zero"] = order["b_scale"][0], order["b_zero"][0]
    constants = set(order) - {"a"}
    proto = model("DynamicQuantizeMatMul", order, constants, "com.microsoft")
    (wanted,) = reference(proto, {"a": order["a"]}).values()
    for open_axes in (False, True):
        got = run(model("DynamicQuantizeMatMul", order, constants, "com.microsoft", open_axes), order, constants)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("flags", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["none", "scalar", "[1]", "[n]", "[1, n]", "[m, 1]", "[1, 1]", "[m, n]"])
def test_qgemm_with_every_shape_of_c(kind: str, flags: int, stored: bool) -> None:
    rng = np.random.default_rng(flags)
    m, k, n = 7, 24, 10
    shape = {
        "scalar": (),
        "[1]": (1,),
        "[n]": (n,),
        "[1, n]": (1, n),
        "[m, 1]": (m, 1),
        "[1, 1]": (1, 1),
        "[m, n]": (m, n),
    }
    limit = 128 if EXACT else 64
    columns = flags % 2 == 0
    order = {"a": rng.integers(0, 256, (k, m) if flags & 2 else (m, k)).astype(np.uint8), "a_scale": np.float32(0.02),
             "a_zero": np.uint8(100), "b": rng.integers(-limit, limit, (n, k) if flags & 1 else (k, n)).astype(np.int8),
             "b_scale": np.linspace(0.01, 0.02, n).astype(np.float32) if columns else np.float32(0.013),
             "b_zero": np.zeros(n, np.int8) if columns else np.int8(0)}  # fmt: skip
    order["c"] = rng.integers(-9000, 9000, shape[kind]).astype(np.int32) if kind != "none" else None
    order |= {"y_scale": np.float32(0.4), "y_zero": np.uint8(120)} if stored else {}
    operands = {n: np.asarray(v) for n, v in order.items() if v is not None}
    a = operands["a"].astype(np.int64) - 100
    b = operands["b"].astype(np.int64)
    exact = (a.T if flags & 2 else a) @ (b.T if flags & 1 else b) + operands.get("c", np.int32(0)).astype(np.int64)
    for alpha in (1.0, 0.5):
        for live in ({"a"}, {"a", "c"} & set(operands)):
            constants = set(operands) - live
            proto = model(
                "QGemm", operands, constants, "com.microsoft", transA=flags >> 1, transB=flags & 1, alpha=alpha
            )
            if kind == "none" and stored:
                node = proto.graph.node[0]
                node.input.insert(6, "")
            got = run(proto, operands, constants)
            real = exact * (np.float64(alpha) * 0.02 * operands["b_scale"].astype(np.float64))
            if stored:
                real = real / np.float64(np.float32(0.4))
                wanted = np.clip(np.rint(real) + 120, 0, 255)
                assert np.all((got == wanted) | (np.abs(real - np.rint(real)) > 0.4999))
                assert got.min() != got.max()
            else:
                np.testing.assert_allclose(got, real, rtol=1e-5, atol=1e-5)


def test_open_names() -> None:
    """The type of a product with open sizes is known."""
    operands = {"a": np.zeros((2, 3), np.uint8), "b": np.zeros((3, 2), np.int8)}
    proto = model("MatMulInteger", operands, set(), open_axes=True)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    assert run(proto, operands, set()).dtype == np.int32


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("window", ["rows", "padded", "counted", "whole", "global"])
@pytest.mark.parametrize("last", [0, 1])
def test_quantized_average_pools(last: int, window: str, dtype: Any) -> None:
    """Channels first and last, between equal and different scales; the bits equal ONNX Runtime's."""
    rng = np.random.default_rng(5)
    low = np.iinfo(dtype).min
    for quotient in (1.0, 2 / 3, 1.5, 2.0, 0.731):
        shape = (2, 6, 7, 5) if last else (2, 5, 6, 7)
        scale, zero = rng.uniform(0.01, 0.1), int(rng.integers(256)) + low
        y_zero = zero if quotient == 1 else int(rng.integers(256)) + low
        order = {"x": (rng.integers(0, 256, shape) + low).astype(dtype), "s": np.float32(scale), "z": dtype(zero),
                 "t": np.float32(np.float32(scale) * quotient), "u": dtype(y_zero)}  # fmt: skip
        attributes: dict[str, Any] = {"channels_last": last}
        if window != "global":
            attributes |= {
                "kernel_shape": [6, 7] if window == "whole" else [2, 3],
                "count_include_pad": window == "counted",
            }
            attributes["pads"] = [1, 1, 0, 1] if window in ("padded", "counted") else [0] * 4
        op = "QLinearGlobalAveragePool" if window == "global" else "QLinearAveragePool"
        operands, constants = {n: np.asarray(v) for n, v in order.items()}, set(order) - {"x"}
        proto = model(op, operands, constants, "com.microsoft", **attributes)
        (wanted,) = reference(proto, {"x": operands["x"]}).values()
        assert np.array_equal(run(proto, operands, constants), wanted), quotient


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_max_pool_with_channels_last(dtype: Any) -> None:
    rng = np.random.default_rng(6)
    operands = {"x": (rng.integers(0, 256, (2, 6, 7, 5)) + np.iinfo(dtype).min).astype(dtype)}
    attributes = {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [0, 1, 1, 1]}
    proto = model("NhwcMaxPool", operands, set(), "com.microsoft", **attributes)
    (wanted,) = reference(proto, operands).values()
    assert np.array_equal(run(proto, operands, set()), wanted)


def convolved(x: Array, w: Array, pads: tuple[int, int, int, int]) -> Array:
    """An integer pool in i64 with stride 1."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    height, width = x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1
    y = np.zeros((x.shape[0], w.shape[0], height, width), np.int64)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            y += np.einsum("nchw,oc->nohw", x[:, :, i : i + height, j : j + width], w[:, :, i, j])
    return y


@pytest.mark.parametrize("computed", ["x", "x,x_zero", "x,w_zero", "x,w,x_zero,w_zero"])
@pytest.mark.parametrize("zeros", ["scalar", "one", "channels"])
@pytest.mark.parametrize("padding", ["none", "pads", "same"])
@pytest.mark.parametrize("open_axes", [False, True])
def test_conv_integer_with_every_zero_point(open_axes: bool, padding: str, zeros: str, computed: str) -> None:
    rng = np.random.default_rng(8)
    x, w = rng.integers(0, 256, (2, 3, 7, 6)).astype(np.uint8), rng.integers(-100, 100, (4, 3, 3, 2)).astype(np.int8)
    x_zero, w_zero = np.uint8(131), rng.integers(-9, 9, 4 if zeros == "channels" else ()).astype(np.int8)
    pads = {"none": (0, 0, 0, 0), "pads": (1, 0, 2, 1), "same": (1, 0, 1, 1)}[padding]
    per = w_zero.reshape(-1, 1, 1, 1) if w_zero.ndim else w_zero
    wanted = convolved(x.astype(np.int64) - 131, w.astype(np.int64) - per, pads)
    shape = (1,) if zeros == "one" else ()
    operands = {
        "x": x,
        "w": w,
        "x_zero": np.full(shape, x_zero),
        "w_zero": w_zero if w_zero.ndim else np.full(shape, w_zero),
    }
    constants = set(operands) - set(computed.split(","))
    attributes: dict[str, Any] = {"auto_pad": "SAME_UPPER"} if padding == "same" else {"pads": list(pads)}
    opened = {"x"} if open_axes else set()
    got = run(model("ConvInteger", operands, constants, "", opened, **attributes), operands, constants)
    assert got.dtype == np.int32
    assert np.array_equal(got, wanted)
