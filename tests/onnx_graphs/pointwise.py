"""Makers of pointwise ops with broadcasting over all element types, and of casts, Where, comparisons and bit ops.
Divisors and exponents are drawn from the op's domain; otherwise infinities would dominate the comparison."""

from __future__ import annotations

import numpy as np

from tests.onnx_graphs.builder import ANY, FLOATS, INTS, Builder, Refused, Value, maker, type_number, words

SAFE = sorted(
    words(
        "Relu Neg Abs Sign Ceil Floor Round Sigmoid Tanh Erf Softplus Softsign HardSwish Mish Sin Cos Atan Sinh Cosh Asinh Exp "
        "Sqrt Log Tan Asin Acos Acosh Atanh Reciprocal"
    )
)


def partner(b: Builder, x: Value, kind: str = "") -> Value:
    """A tensor of x's type that broadcasts with x."""

    def broadcasts(v: Value) -> bool:
        return all(m == n or 1 in (m, n) for m, n in zip(v.shape[::-1], x.shape[::-1], strict=False))

    fitting = [v for v in b.values if v.dtype == x.dtype and v.rank and broadcasts(v)]
    if fitting and not kind and b.chance(50):
        other: Value = b.choice(fitting)
    else:
        dims = [d if b.chance(60) else 1 for d in x.shape][b.integer(0, x.rank) :]
        if b.chance(15):
            dims = [b.integer(1, 3), *dims] if len(dims) == x.rank < 5 else dims
        other = b.given(b.data(x.dtype, dims, kind))
    if np.prod(np.broadcast_shapes(x.shape, other.shape)) > 6000:
        raise Refused("too large")
    return other


def either(b: Builder, x: Value, y: Value) -> list[Value]:
    return [x, y] if b.chance(60) else [y, x]


@maker("pointwise", 8)
def unary(b: Builder) -> None:
    x = b.pick(*(FLOATS if b.chance(85) else ANY))
    b.add(b.choice(SAFE), [x])


@maker("pointwise", 4)
def with_attributes(b: Builder) -> None:
    x = b.pick(*FLOATS)
    a, c = b.choice([0.01, 0.3, 1.0, 2.0, -0.5]), b.choice([0.5, 0.2, 1.0, 0.0])
    op, attributes = b.choice([
        ("LeakyRelu", {"alpha": a}), ("Elu", {"alpha": a}), ("Selu", {"alpha": a, "gamma": c}), ("Celu", {"alpha": abs(a)}),
        ("HardSigmoid", {"alpha": a, "beta": c}), ("ThresholdedRelu", {"alpha": a}), ("Shrink", {"bias": c, "lambd": abs(a)}),
        ("Gelu", {"approximate": b.choice(["none", "tanh"])}), ("LeakyRelu", {}), ("Elu", {}), ("Selu", {}), ("HardSigmoid", {}),
        ("Swish", {"alpha": a}),
    ])  # fmt: skip
    b.add(op, [x], **attributes)


@maker("pointwise", 8)
def binary(b: Builder) -> None:
    x = b.pick(*(FLOATS if b.chance(60) else INTS))
    op = b.choice(["Add", "Sub", "Mul", "Add", "Mul", "Div", "Max", "Min", "Pow", "PRelu", "Mod"])
    if op in ("Div", "Mod", "Pow") and x.array.dtype.kind != "f":
        return whole(b, op, x)
    if op == "PRelu":
        b.add(
            op,
            [x, b.given(b.data(x.dtype, [d if b.chance(50) else 1 for d in x.shape][b.integer(0, x.rank) :], "mild"))],
        )
    elif op == "Mod":
        b.add(op, [x, partner(b, x, "positive")], fmod=1)
    elif op == "Pow":
        exponent = b.choice([2.0, 0.5, 3.0, -1.0, 1.0, 0.0, 1.7])
        base = x if exponent in (2.0, 3.0, 1.0, 0.0) else b.add("Abs", [x])
        b.add(op, [base, b.given(np.asarray(exponent, b.choice([x.dtype, "float32", "int64"])))])
    elif op == "Div":
        b.add(op, [x, partner(b, x, "positive")])
    else:
        b.add(op, either(b, x, partner(b, x)))


def whole(b: Builder, op: str, x: Value) -> None:
    """Divisors are non-zero constants (ONNX Runtime ends the process on 0), and exponents are small."""
    dims = x.shape[b.integer(0, x.rank) :]
    if op == "Pow":
        if np.abs(x.array.astype(np.float64)).max(initial=0) > 1000:
            raise Refused("ONNX Runtime takes powers of integers as floats")
        b.add(op, [x, b.const(np.abs(b.data(x.dtype, dims, "positive")) % 3)])
        return
    divisor = b.const(b.data(x.dtype, dims, "positive"))
    if np.dtype(x.dtype).kind == "i" and b.chance(50):
        divisor = b.const(-divisor.array)
        if x.array.size and x.array.min() == np.iinfo(x.dtype).min:
            raise Refused("overflow")
    b.add(op, [x, divisor], **({"fmod": b.integer(0, 1)} if op == "Mod" else {}))


@maker("pointwise", 2)
def variadic(b: Builder) -> None:
    x = b.pick(*(FLOATS if b.chance(70) else INTS))
    b.add(b.choice(["Sum", "Max", "Min", "Mean"]), [x, *(partner(b, x) for _ in range(b.integer(0, 3)))])


@maker("pointwise", 2)
def clip(b: Builder) -> None:
    x = b.pick(*(FLOATS if b.chance(60) else INTS))
    if x.array.dtype.kind == "f" and not np.isfinite(x.array).all():
        raise Refused("without a limit ONNX Runtime makes infinities the largest number, onnx.reference keeps them")
    low, high = sorted([b.choice([-1, 0, 1, 2]), b.choice([1, 3, 6])])
    if np.dtype(x.dtype).kind == "u":
        low = max(low, 0)
    if b.opset < 11:
        b.add(
            "Clip",
            [x],
            **({"min": float(low)} if b.chance(70) else {}),
            **({"max": float(high)} if b.chance(70) else {}),
        )
        return
    limits = [b.given(np.asarray(v, x.dtype)) if b.chance(75) else None for v in (low, high)]
    b.add("Clip", [x, *limits])


@maker("logic", 5)
def compare(b: Builder) -> None:
    x = b.pick(*ANY)
    op = b.choice(["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
    b.add(op, either(b, x, partner(b, x)))


@maker("logic", 3)
def logic(b: Builder) -> None:
    x = b.pick("bool")
    if b.chance(30):
        b.add("Not", [x])
    else:
        b.add(b.choice(["And", "Or", "Xor"]), either(b, x, partner(b, x)))


@maker("logic", 3)
def bits(b: Builder) -> None:
    x = b.pick(*INTS)
    op = b.choice(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"])
    if op == "BitwiseNot":
        b.add(op, [x])
    elif op == "BitShift":
        x = b.pick("uint8", "uint16", "uint32", "uint64")
        amount = b.given(b.data(x.dtype, x.shape[b.integer(0, x.rank) :], "positive") % 8)
        b.add(op, [x, amount], direction=b.choice(["LEFT", "RIGHT"]))
    else:
        b.add(op, either(b, x, partner(b, x)))


@maker("logic", 2)
def floats_only(b: Builder) -> None:
    x = b.pick(*FLOATS)
    if b.chance(50):
        b.add("IsNaN", [x])
    else:
        b.add(
            "IsInf",
            [x],
            **({"detect_negative": b.integer(0, 1), "detect_positive": b.integer(0, 1)} if b.chance(60) else {}),
        )


@maker("logic", 4)
def where(b: Builder) -> None:
    x = b.pick(*ANY)
    y = partner(b, x)
    shape = np.broadcast_shapes(x.shape, y.shape)
    dims = [d if b.chance(60) else 1 for d in shape][b.integer(0, len(shape)) :]
    conditions = [v for v in b.values if v.dtype == "bool" and v.shape == tuple(shape)]
    b.add("Where", [b.choice(conditions) if conditions and b.chance(60) else b.given(b.data("bool", dims)), x, y])


@maker("logic", 5)
def cast(b: Builder) -> None:
    x = b.pick(*ANY)
    to = b.choice(ANY)
    if x.array.dtype.kind == "f" and np.dtype(to).kind in "iu":
        info = np.iinfo(to)
        with np.errstate(invalid="ignore"):
            inside = (
                np.isfinite(x.array)
                & (x.array > max(info.min, -(2**31)) - 0.5)
                & (x.array < min(info.max, 2**31 - 200))
            )
        if not bool(np.all(inside)):
            raise Refused("a cast of what does not fit is up to the implementation")
    if x.array.dtype.kind in "fi" and np.dtype(to).kind == "f":
        limit = float(np.finfo(to).max)
        if bool(np.any(np.abs(x.array[np.isfinite(x.array)].astype(np.float64)) > limit)):
            raise Refused("overflow")
    if b.opset >= 15 and b.chance(30):
        b.add("CastLike", [x, b.const(np.zeros(1, to))])
    else:
        b.add("Cast", [x], to=type_number(to))


@maker("logic", 1)
def identity(b: Builder) -> None:
    x = b.pick(*ANY)
    b.add(b.choice(["Identity", "Dropout", "Identity"]), [x])
