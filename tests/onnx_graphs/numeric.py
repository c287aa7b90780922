"""Makers of products, windows, reductions, normalizations, resizing and recurrent layers.
Sizes are small and odd, so that every kernel has edges to handle."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.onnx_graphs.builder import FLOATS, INTS, LARGEST, Builder, Refused, Value, maker
from tests.onnx_graphs.movement import with_axes

CONV_FLOATS = ("float32", "float32", "float32", "float64", "float16")
MOSTLY_F32 = ("float32",) * 5 + ("float64", "float16")


def small(v: Value) -> bool:
    """Integers whose sums and products ONNX Runtime computes exactly, even as floats."""
    return bool(np.abs(v.array.astype(np.float64)).max(initial=0) < 100)


def finite(v: Value) -> bool:
    """A non-empty tensor of numbers: for empty ones ONNX Runtime has different shapes, and InstanceNormalization crashes."""
    return v.array.size > 0 and bool(np.isfinite(v.array).all())


def floats(b: Builder, ranks: list[int], dtype: str = "") -> Value:
    return b.pick(dtype or b.choice(MOSTLY_F32), ranks=ranks, where=finite)


@maker("linear", 5)
def matmul(b: Builder) -> None:
    x = floats(b, [1, 2, 3, 4])
    k, n = x.shape[-1], b.choice([1, 2, 3, 5, 8, 16, 17, 33])
    batch = [b.choice([1, d]) for d in x.shape[:-2]][b.integer(0, max(x.rank - 2, 0)) :] if b.chance(40) else []
    other = b.weights(x.dtype, *batch, k, n) if b.chance(85) else b.weights(x.dtype, k)
    y = b.add("MatMul", [x, other])
    if b.chance(40) and other.rank > 1:
        y = b.add("Add", [y, b.weights(x.dtype, n)])
    if b.chance(30):
        b.add(b.choice(["Relu", "Sigmoid", "Tanh", "HardSwish"]), [y])


@maker("linear", 2)
def matmul_of_two(b: Builder) -> None:
    x = floats(b, [2, 3, 4])
    y = b.add("Transpose", [x], perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])
    if x.array.size * x.shape[-2] > LARGEST * 20:
        raise Refused("too large")
    b.add("MatMul", [x, y] if b.chance(50) else [y, x])


@maker("linear", 3)
def gemm(b: Builder) -> None:
    x = floats(b, [2]) if b.chance(95) else b.input(b.data("float32", (b.integer(0, 1), b.integer(1, 3))))
    ta, tb = b.integer(0, 1), b.integer(0, 1)
    m, k = x.shape[::-1] if ta else x.shape
    n = b.integer(1, 18)
    w = b.weights(x.dtype, *((n, k) if tb else (k, n)))
    c = (
        b.weights(x.dtype, *b.choice([(n,), (1, n), (m, 1), (m, n), (1,), ()]))
        if b.chance(70) or b.opset < 11
        else None
    )
    scale = {"alpha": b.choice([0.5, 2.0, 0.0]), "beta": b.choice([0.5, 2.0, 0.0])} if b.chance(40) else {}
    b.add("Gemm", [x, w, c], transA=ta, transB=tb, **scale)


@maker("linear", 2)
def einsum(b: Builder) -> None:
    equation = b.choice(["ij,jk->ik", "ij,kj->ik", "ij,jk", "ij->ji", "ij->i", "ij->", "ij,ij->ij", "ij,i->j", "i,j->ij",
                         "bij,bjk->bik", "bij,bkj->bik", "bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "...ij,...jk->...ik",
                         "ii->i", "ij,jk,kl->il", "b...->...b", "bij,jk->bik", "ij, jk -> ik"])  # fmt: skip
    terms = equation.replace(" ", "").split("->")[0].split(",")
    size = {letter: b.integer(1, 6) for letter in "abcdefghijklmnopqrstuvwxyz"}
    extra = b.ints(b.integer(0, 2), 1, 3)
    dtype = b.choice(MOSTLY_F32)
    operands = []
    for term in terms:
        shape: list[int] = []
        for part in term.replace("...", "."):
            shape += extra if part == "." else [size[part]]
        operands.append(b.weights(dtype, *shape))
    operands[0] = b.input(operands[0].array) if operands[0].kind == "constant" else operands[0]
    b.add("Einsum", operands, equation=equation)


def window(
    b: Builder, spatial: tuple[int, ...], kernel: list[int], dilated: bool = True, pool: bool = False
) -> dict[str, Any]:
    """Strides, dilations and pads; any of them may be omitted."""
    result: dict[str, Any] = {}
    if b.chance(60):
        result["strides"] = b.ints(len(kernel), 1, 3)
    if dilated and b.chance(40):
        result["dilations"] = b.ints(len(kernel), 1, 3)
    how = b.integer(0, 5)
    if how <= 2:
        result["pads"] = [b.integer(0, k - 1 if pool else k + 1) for k in kernel * 2]
    elif how == 3:
        result["auto_pad"] = b.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    check_window(spatial, kernel, result)
    return result


def check_window(spatial: tuple[int, ...], kernel: list[int], named: dict[str, Any]) -> None:
    """Refuses windows that frameworks refuse or that ONNX Runtime handles differently: a window larger than the padded input (C's
    division makes one position of it), and SAME with strides larger than the window (it pads by a negative number)."""
    n = len(kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, named.get("dilations", [1] * n), strict=True)]
    pads = named.get("pads", [0] * 2 * n)
    if str(named.get("auto_pad", "")).startswith("SAME"):
        if any(s > r for s, r in zip(named.get("strides", [1] * n), reach, strict=True)):
            raise Refused("SAME with strides beyond the window")
    elif any(r > d + pads[i] + pads[n + i] for i, (r, d) in enumerate(zip(reach, spatial, strict=True))):
        raise Refused("a window larger than its input")


@maker("windows", 8)
def conv(b: Builder) -> None:
    x = floats(b, [3, 4, 4, 5], b.choice(CONV_FLOATS))
    spatial, channels = x.shape[2:], x.shape[1]
    if not channels:
        raise Refused("no channels")
    kernel = [b.choice([1, 1, 2, 3, 3, 5]) for _ in spatial]
    group = b.choice([g for g in range(1, channels + 1) if channels % g == 0])
    out = group * b.choice([1, 1, 2, 3, 4, 8])
    inputs: list[Value | None] = [x, b.weights(x.dtype, out, channels // group, *kernel)]
    if b.chance(55):
        inputs.append(b.weights(x.dtype, out))
    named: dict[str, Any] = {"kernel_shape": kernel} if b.chance(70) else {}
    if group > 1 or b.chance(30):
        named["group"] = group
    y = b.add("Conv", inputs, **named, **window(b, spatial, kernel))
    if b.chance(25):
        one = (1, out, *[1] * len(kernel))
        y = b.add(b.choice(["Mul", "Add"]), [y, b.const(b.data(x.dtype, one, "positive"))])
    if b.chance(30):
        b.add(b.choice(["Relu", "Sigmoid", "HardSwish", "LeakyRelu"]), [y])


@maker("windows", 4)
def conv_transpose(b: Builder) -> None:
    x = floats(b, [3, 4, 4, 5], b.choice(CONV_FLOATS))
    spatial, channels = x.shape[2:], x.shape[1]
    if not channels or 0 in x.shape:
        raise Refused("no channels")
    kernel = [b.choice([1, 2, 3, 4]) for _ in spatial]
    group = b.choice([g for g in range(1, channels + 1) if channels % g == 0])
    out = b.choice([1, 2, 3, 4])
    named = window(b, tuple(99 for _ in spatial), kernel)
    if b.chance(60):
        named.pop("auto_pad", None)
    if "pads" in named:
        named["pads"] = [min(p, k - 1) for p, k in zip(named["pads"], kernel * 2, strict=True)]
    strides = named.get("strides", [1] * len(kernel))
    if b.chance(30):
        named["output_padding"] = [b.integer(0, s - 1) for s in strides]
    if b.chance(20):
        named["output_shape"] = [
            (d - 1) * s + k - b.integer(0, 1) for d, s, k in zip(spatial, strides, kernel, strict=True)
        ]
        named.pop("pads", None)
    if group > 1:
        named["group"] = group
    inputs: list[Value | None] = [x, b.weights(x.dtype, channels, out, *kernel)]
    if b.chance(50):
        inputs.append(b.weights(x.dtype, out * group))
    b.add("ConvTranspose", inputs, **({"kernel_shape": kernel} if b.chance(70) else {}), **named)


@maker("windows", 6)
def pool(b: Builder) -> None:
    op = b.choice(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"])
    x = floats(b, [3, 4, 4, 5])
    if op == "MaxPool" and b.opset >= 12 and b.chance(15):
        x = b.pick("int8", "uint8", ranks=[3, 4])
    if 0 in x.shape:
        raise Refused("empty")
    kernel = [b.choice([1, 2, 2, 3, 3]) for _ in x.shape[2:]]
    dilated = (
        (op == "MaxPool" and b.opset >= 10)
        or (op == "LpPool" and b.opset >= 18)
        or (op == "AveragePool" and b.opset >= 19)
    )
    named = window(b, x.shape[2:], kernel, dilated, pool=True)
    if str(named.get("auto_pad", "")).startswith("SAME") and "dilations" in named:
        raise Refused("ONNX Runtime pads as if there were no dilations")
    if b.chance(40) and (op == "LpPool") <= (b.opset >= 18) and b.opset >= 10 and "auto_pad" not in named:
        named["ceil_mode"] = b.integer(0, 1)
    if op == "AveragePool" and b.chance(50):
        named["count_include_pad"] = b.integer(0, 1)
    if op == "LpPool" and b.chance(70):
        named["p"] = b.integer(1, 3)
    outputs = 1
    if op == "MaxPool" and b.opset >= 8 and b.chance(25) and "auto_pad" not in named and x.array.dtype.kind == "f":
        outputs = 2
        if b.chance(20):
            named["storage_order"] = b.integer(0, 1)
    b.node(op, [x], outputs, kernel_shape=kernel, **named)


@maker("windows", 1)
def max_unpool(b: Builder) -> None:
    x = floats(b, [4], "float32")
    kernel = [2, 2]
    if min(x.shape) < 2 or b.opset < 11:
        raise Refused("too small")
    values, at = b.node("MaxPool", [x], 2, kernel_shape=kernel, strides=[2, 2])
    if x.shape[2] % 2 or x.shape[3] % 2:
        raise Refused("ONNX Runtime reads the indices for the size asked for, onnx.reference for the size without it")
    size = b.const(np.asarray(x.shape, np.int64), plain=True) if b.chance(50) else None
    b.add("MaxUnpool", [values, at, size], kernel_shape=kernel, strides=[2, 2])


@maker("windows", 2)
def global_pool(b: Builder) -> None:
    x = floats(b, [3, 4, 5])
    op = b.choice(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "GlobalAveragePool"])
    b.add(op, [x], **({"p": b.integer(1, 3)} if op == "GlobalLpPool" else {}))


@maker("reduce", 6)
def reduce(b: Builder) -> None:
    op = b.choice(["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Mean", "Sum"])
    x = b.pick(b.choice(MOSTLY_F32), where=finite) if b.chance(80) else b.pick(*INTS, ranks=[1, 2, 3], where=small)
    if x.array.dtype.kind != "f" and op in ("LogSumExp", "Prod"):
        raise Refused("ONNX Runtime rounds every exponential to an integer, and products to a float")
    if op == "LogSum":
        x = b.add("Exp", [x])
    axes = None if b.chance(15) or not x.rank else b.subset(x.rank)
    if axes is not None and b.opset >= 11:
        axes = b.negated(axes, x.rank)
    since = 13 if op == "Sum" else 18
    named = {"keepdims": b.integer(0, 1)} if b.chance(70) else {}
    if b.opset >= since and b.chance(15):
        named["noop_with_empty_axes"] = b.integer(0, 1)
        if b.chance(30):
            b.add(f"Reduce{op}", [x, b.const(np.zeros(0, np.int64))], **named)
            return
    with_axes(b, f"Reduce{op}", since, [x], axes, **named)


@maker("reduce", 3)
def softmax(b: Builder) -> None:
    x = floats(b, [1, 2, 3, 4])
    low = -x.rank if b.opset >= 11 else 0
    op = b.choice(["Softmax", "Softmax", "LogSoftmax", "Hardmax"])
    b.add(op, [x], **({"axis": b.integer(low, x.rank - 1)} if b.chance(80) else {}))


@maker("normalize", 3)
def batch_norm(b: Builder) -> None:
    x = floats(b, [2, 3, 4, 5])
    c = x.shape[1]
    scale, bias, mean = (b.weights(x.dtype, c) for _ in range(3))
    variance = b.given(b.data(x.dtype, (c,), "positive"))
    b.add(
        "BatchNormalization",
        [x, scale, bias, mean, variance],
        **({"epsilon": b.choice([1e-5, 1e-3])} if b.chance(50) else {}),
    )


@maker("normalize", 2)
def instance_norm(b: Builder) -> None:
    x = floats(b, [3, 4, 5])
    b.add("InstanceNormalization", [x, b.weights(x.dtype, x.shape[1]), b.weights(x.dtype, x.shape[1])], epsilon=1e-2)


def stash(x: Value) -> float:
    """stash_type allows a normalization of f64 to compute in f32."""
    return 1e7 if x.dtype == "float64" else 1.0


@maker("normalize", 2)
def group_norm(b: Builder) -> None:
    x = floats(b, [3, 4])
    c = x.shape[1]
    groups = b.choice([g for g in range(1, c + 1) if c % g == 0]) if c else 1
    length = groups if b.opset < 21 else c
    b.add(
        "GroupNormalization",
        [x, b.weights(x.dtype, length), b.weights(x.dtype, length)],
        num_groups=groups,
        epsilon=1e-2,
        noise=stash(x),
    )


@maker("normalize", 3)
def layer_norm(b: Builder) -> None:
    x = floats(b, [1, 2, 3, 4])
    axis = b.axis(x.rank)
    shape = x.shape[axis:]
    at = b.negated([axis], x.rank)[0]
    if b.opset >= 23 and b.chance(40):
        b.add("RMSNormalization", [x, b.weights(x.dtype, *shape)], axis=at, epsilon=1e-2, noise=stash(x))
        return
    bias = b.weights(x.dtype, *shape) if b.chance(60) else None
    outputs = 1 if b.chance(75) else 3
    b.node("LayerNormalization", [x, b.weights(x.dtype, *shape), bias], outputs, axis=at, epsilon=1e-2, noise=stash(x))


@maker("normalize", 2)
def spelled_layer_norm(b: Builder) -> None:
    """In the form that exporters write below opset 17."""
    x = floats(b, [2, 3, 4], "float32")
    mean = with_axes(b, "ReduceMean", 18, [x], [-1] if b.opset >= 11 else [x.rank - 1], keepdims=1)
    d = b.add("Sub", [x, mean])
    square = b.add("Pow", [d, b.const(np.asarray(2.0, np.float32))]) if b.chance(60) else b.add("Mul", [d, d])
    variance = with_axes(b, "ReduceMean", 18, [square], [-1] if b.opset >= 11 else [x.rank - 1], keepdims=1)
    root = b.add("Sqrt", [b.add("Add", [variance, b.const(np.asarray(1e-2, np.float32))])])
    y = b.add("Mul", [b.add("Div", [d, root]), b.weights("float32", x.shape[-1])])
    b.add("Add", [y, b.weights("float32", x.shape[-1])])


@maker("normalize", 2)
def small_norms(b: Builder) -> None:
    op = b.choice(["LRN", "MeanVarianceNormalization", "LpNormalization"])
    if op == "LRN":
        x = floats(b, [4], "float32")
        if not x.shape[1]:
            raise Refused("empty")
        b.add(
            op,
            [x],
            size=b.choice([1, 3, 5]),
            alpha=b.choice([1e-4, 0.1]),
            beta=b.choice([0.75, 0.5]),
            bias=b.choice([1.0, 2.0]),
        )
    elif op == "LpNormalization":
        x = floats(b, [1, 2, 3])
        b.add(op, [x], axis=b.negated([b.axis(x.rank)], x.rank)[0], p=b.integer(1, 2))
    else:
        x = floats(b, [4], "float32")
        if min(x.shape) < 2:
            raise Refused("no variance: 0 / 0 up to rounding")
        b.add(op, [x], **({"axes": sorted(b.subset(4))} if b.chance(60) else {}))


@maker("resize", 6)
def resize(b: Builder) -> None:
    x = b.pick(
        *(["float32"] * 6),
        *(["uint8"] if b.opset >= 11 else []),
        ranks=[3, 4, 4, 5],
        where=lambda v: v.dtype != "float32" or bool(np.isfinite(v.array).all()),
    )
    if 0 in x.shape:
        raise Refused("empty")
    fixed = 2
    scales = [1.0] * fixed + [b.choice([1.0, 2.0, 0.5, 1.5, 3.0, 0.6]) for _ in x.shape[fixed:]]
    if b.opset < 10:
        mode = b.choice(["nearest", "linear"])
        if b.opset >= 9:
            b.add("Upsample", [x, b.const(np.asarray(scales, np.float32), plain=True)], mode=mode)
        else:
            b.add("Upsample", [x], mode=mode, scales=[max(s, 1.0) for s in scales])
        return
    if b.opset == 10:
        b.add("Resize", [x, b.const(np.asarray(scales, np.float32), plain=True)], mode=b.choice(["nearest", "linear"]))
        return
    mode = b.choice(["nearest", "linear", "cubic", "nearest", "linear"] if x.dtype == "float32" else ["nearest"])
    named: dict[str, Any] = {"mode": mode}
    coordinates = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]
    if b.opset >= 19:
        coordinates.append("half_pixel_symmetric")
    if b.chance(80):
        named["coordinate_transformation_mode"] = b.choice(coordinates)
    if mode == "nearest" and b.chance(70):
        named["nearest_mode"] = b.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if mode == "cubic" and b.chance(50):
        named["cubic_coeff_a"] = b.choice([-0.5, -0.75])
        named["exclude_outside"] = b.integer(0, 1)
    roi = None
    if named.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        roi = b.const(
            np.asarray([0.0] * fixed + [0.1] * (x.rank - fixed) + [1.0] * fixed + [0.8] * (x.rank - fixed), np.float32),
            plain=True,
        )
        if b.chance(50):
            named["extrapolation_value"] = 3.0
        if mode == "nearest" or 1.0 in scales[fixed:]:
            raise Refused("ONNX Runtime differs from onnx.reference: it leaves an axis that keeps its size uncropped")
    elif b.opset >= 18 and mode != "nearest" and b.chance(25):
        named["antialias"] = 1
    sizes = [int(d) if s == 1.0 else max(1, int(d * s) + b.integer(0, 1)) for d, s in zip(x.shape, scales, strict=True)]
    if b.opset >= 18 and b.chance(30) and roi is None:
        named["axes"] = list(range(fixed, x.rank))
        scales, sizes = scales[fixed:], sizes[fixed:]
        if b.chance(40):
            named["keep_aspect_ratio_policy"] = b.choice(["not_larger", "not_smaller", "stretch"])
            b.add("Resize", [x, None, None, b.const(np.asarray(sizes, np.int64))], **named)
            return
    kept = any(
        d == size
        for d, size in zip(x.shape[x.rank - len(sizes) :][-(x.rank - fixed) :], sizes[-(x.rank - fixed) :], strict=True)
    )
    if roi is not None and kept:
        raise Refused("ONNX Runtime leaves an axis that keeps its size uncropped")
    fractional = any(s * d != int(s * d) for s, d in zip(scales, x.shape[x.rank - len(scales) :], strict=True))
    empty = b.const(np.zeros(0, np.float32), plain=True) if b.opset < 13 else None
    if fractional and named.get("coordinate_transformation_mode") in ("align_corners", "pytorch_half_pixel"):
        raise Refused("ONNX Runtime rounds the length first, onnx.reference does not")
    if b.chance(50):
        b.add("Resize", [x, roi or empty, b.const(np.asarray(scales, np.float32), plain=b.chance(70))], **named)
    else:
        b.add("Resize", [x, roi or empty, empty, b.const(np.asarray(sizes, np.int64), plain=b.chance(70))], **named)


@maker("resize", 2)
def grid_sample(b: Builder) -> None:
    x = floats(b, [4], "float32")
    if 0 in x.shape:
        raise Refused("empty")
    grid = b.given(
        np.tanh(b.data("float32", (x.shape[0], b.integer(1, 4), b.integer(1, 4), 2), "mild")) * np.float32(1.1)
    )
    modes = ["bilinear", "nearest", "bicubic"] if b.opset < 20 else ["linear", "nearest", "cubic"]
    b.add(
        "GridSample",
        [x, grid],
        mode=b.choice(modes),
        padding_mode=b.choice(["zeros", "border", "reflection"]),
        align_corners=b.integer(0, 1),
    )


@maker("recurrent", 4)
def recurrent(b: Builder) -> None:
    op = b.choice(["RNN", "GRU", "LSTM"])
    x = floats(b, [3], b.choice(["float32"] * 4 + ["float64"]))
    steps, batch, size = x.shape
    if 0 in x.shape or steps * batch > 60:
        raise Refused("empty or long")
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    direction = b.choice(["forward", "reverse", "bidirectional"])
    d = 2 if direction == "bidirectional" else 1
    hidden = b.choice([1, 2, 3, 4, 7, 8])
    named: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    w, r = b.weights(x.dtype, d, gates * hidden, size), b.weights(x.dtype, d, gates * hidden, hidden)
    bias = b.weights(x.dtype, d, 2 * gates * hidden) if b.chance(60) else None
    lengths = None
    if b.chance(30):
        values = np.random.default_rng(b.integer(0, 99)).integers(1, steps + 1, batch)
        lengths = b.given(values.astype(np.int32))
    state = b.weights(x.dtype, d, batch, hidden) if b.chance(40) else None
    inputs: list[Value | None] = [x, w, r, bias, lengths, state]
    if op == "LSTM":
        inputs.append(b.weights(x.dtype, d, batch, hidden) if b.chance(40) else None)
        inputs.append(b.weights(x.dtype, d, 3 * hidden) if b.chance(30) else None)
        if b.chance(15):
            named["input_forget"] = 1
    if op == "GRU" and b.chance(60):
        named["linear_before_reset"] = b.integer(0, 1)
    if b.chance(25):
        own = [
            "Relu",
            "Tanh",
            "Sigmoid",
            "HardSigmoid",
            "Softsign",
            "Elu",
            "LeakyRelu",
            "Affine",
            "ScaledTanh",
            "ThresholdedRelu",
            "Softplus",
        ]
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[op]
        named["activations"] = [b.choice(own[:5]) for _ in range(count)] * d
        if b.chance(30):
            named["activations"] = [b.choice(["LeakyRelu", "HardSigmoid", "ScaledTanh"]) for _ in range(count)] * d
            named["activation_alpha"] = [0.3] * (count * d)
            named["activation_beta"] = [0.4] * (count * d)
    if b.chance(15):
        named["clip"] = b.choice([0.5, 2.0])
    outputs = 3 if op == "LSTM" else 2
    skip = [i for i in range(outputs) if b.chance(25)][: outputs - 1]
    b.node(op, inputs, outputs, skip=skip, noise=2.0, **named)


@maker("recurrent", 1)
def attention(b: Builder) -> None:
    """Scaled dot products in the form that exporters write."""
    q = floats(b, [3, 4], "float32")
    if 0 in q.shape:
        raise Refused("empty")
    k, v = b.weights("float32", *q.shape[:-2], b.integer(1, 6), q.shape[-1]), None
    v = b.weights("float32", *k.shape[:-1], b.integer(1, 6))
    t = b.add("Transpose", [k], perm=[*range(q.rank - 2), q.rank - 1, q.rank - 2])
    scores = b.add("Mul", [b.add("MatMul", [q, t]), b.const(np.asarray(0.5, np.float32))])
    if b.chance(50):
        mask = b.const(np.where(b.data("bool", scores.shape[-2:]), np.float32(0), np.float32(-1e4)))
        scores = b.add("Add", [scores, mask])
    b.add("MatMul", [b.add("Softmax", [scores], axis=-1 if b.opset >= 13 else q.rank - 1), v])


@maker("linear", 1)
def attention_op(b: Builder) -> None:
    if b.opset < 23:
        raise Refused("new")
    heads, d, length, batch = b.choice([1, 2, 4]), b.choice([2, 4, 8]), b.integer(1, 5), b.integer(1, 2)
    kv_heads = b.choice([h for h in (1, 2, 4) if heads % h == 0])
    total = b.integer(1, 6)
    q = b.input(b.data("float32", (batch, heads, length, d), "mild"))
    k, v = (b.input(b.data("float32", (batch, kv_heads, total, d), "mild")) for _ in range(2))
    mask = b.given(b.data(b.choice(["float32", "bool"]), (length, total), "mild")) if b.chance(40) else None
    if mask is not None and mask.dtype == "bool":
        mask.array[:, 0] = True
    named: dict[str, Any] = {"is_causal": b.integer(0, 1)} if b.chance(50) else {}
    if b.chance(30):
        named["scale"] = 0.3
    if b.chance(30):
        named["softcap"] = 2.0
    b.add("Attention", [q, k, v, mask], **named)


__all__ = ["FLOATS"]
