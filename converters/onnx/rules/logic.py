"""Rules of comparisons, logic, bits, selection and element types: each becomes part of a map.
Truth values are i32 registers holding 0 or 1."""

from __future__ import annotations

import math
from collections.abc import Callable

from linnet.converters.onnx.operation import Operation, dtype_name, rank_of
from linnet.converters.onnx.program import FLOATS, REGISTER, Expr, Values
from linnet.converters.onnx.registry import rule
from linnet.graph import Tensor

WIDTHS = {"i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i64": 64, "u64": 64}


def _comparison(opcode: str) -> Callable[[Operation], Tensor]:
    def lower(op: Operation) -> Tensor:
        a, b = op.input(0), op.input(1)
        if a.dtype == "u64" and opcode not in ("eq", "ne"):
            flip = -(1 << 63)
            return op.map([a, b], lambda p, x, y: x.binary("xor", flip).binary(opcode, y.binary("xor", flip)), "bool")
        return op.map([a, b], lambda p, x, y: x.binary(opcode, y), "bool")

    return lower


for _name, _opcode in {
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
}.items():
    rule(_name)(_comparison(_opcode))


def _binary(opcode: str) -> Callable[[Operation], Tensor]:
    def lower(op: Operation) -> Tensor:
        return op.map([op.input(0), op.input(1)], lambda p, a, b: a.binary(opcode, b))

    return lower


for _name, _opcode in {
    "And": "and", "Or": "or", "Xor": "xor", "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor"
}.items():  # fmt: skip
    rule(_name)(_binary(_opcode))


@rule("Not")
def not_(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda p, x: x.binary("xor", 1))


@rule("BitwiseNot")
def bitwise_not(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda p, x: x.unary("not"))


@rule("BitShift")
def bit_shift(op: Operation) -> Tensor:
    right = "shift_right" if op.input(0).dtype in ("i8", "i16", "i32", "i64") else "shift_right_logical"
    opcode = "shift_left" if op.attribute("direction") == "LEFT" else right
    return op.map([op.input(0), op.input(1)], lambda p, x, y: x.binary(opcode, y))


@rule("IsNaN")
def is_nan(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda p, x: x.unary("is_nan"), "bool")


@rule("IsInf")
def is_inf(op: Operation) -> Tensor:
    positive, negative = op.attribute("detect_positive"), op.attribute("detect_negative")

    def body(p: Values, x: Expr) -> Expr:
        if positive and negative:
            return x.unary("is_inf")
        if not positive and not negative:
            return p.constant(0, "i32")
        return x.binary("eq", math.inf if positive else -math.inf)

    return op.map([op.input(0)], body, "bool")


@rule("Where")
def where(op: Operation) -> Tensor:
    x = op.input(1)
    return op.map([op.input(0), x, op.input(2)], lambda p, c, a, b: c.select(a, b), x.dtype)


def cast_to(op: Operation, x: Tensor, dtype: str) -> Tensor:
    """x in another element type. Comparisons make bools, so that a fraction is true."""
    if x.dtype == dtype:
        return x
    if dtype == "bool":
        return op.map([x], lambda p, v: v.binary("ne", 0), "bool")
    if "u64" in (x.dtype, dtype) and (x.dtype in FLOATS or dtype in FLOATS):
        return op.emit("cast", [x], dtype=dtype)  # no register holds all of u64
    if x.dtype in FLOATS and dtype in ("u32", "i64"):
        return op.map([x], lambda p, v: v.cast("i64"), dtype)
    if x.dtype in FLOATS and dtype not in FLOATS:
        return op.map([x], lambda p, v: v, dtype)  # the store saturates to its own range
    return op.map([x], lambda p, v: v.cast(REGISTER[dtype]), dtype)


@rule("Cast")
def cast(op: Operation) -> Tensor:
    op.ignore("saturate", "round_mode")  # both are about float8 only
    return cast_to(op, op.input(0), dtype_name(op.attribute("to"), "the result"))


@rule("CastLike")
def cast_like(op: Operation) -> Tensor:
    op.ignore("saturate", "round_mode")
    return cast_to(op, op.input(0), op.input(1).dtype)


@rule("BitCast")
def bit_cast(op: Operation) -> Tensor:
    """The same bits as another type. Between integers of one width that is a cast, which wraps."""
    x, dtype = op.input(0), dtype_name(op.attribute("to"), "the result")
    if dtype == x.dtype:
        return x
    same = WIDTHS.get(x.dtype) is not None and WIDTHS.get(x.dtype) == WIDTHS.get(dtype)
    if x.dtype == "bool" and dtype == "u8":
        same = True
    if not same:
        raise op.unsupported(f"bits of {x.dtype} as {dtype}", "linnet reinterprets integers of one width only")
    return op.map([x], lambda p, v: v, dtype)


@rule("Trilu")
def trilu(op: Operation) -> Tensor:
    """Keeps one triangle of the last two axes; k moves the diagonal."""
    x, k = op.input(0), op.optional(1)
    rank = rank_of(x, "input 0")
    upper = op.attribute("upper")

    def body(p: Values, value: Expr, *offset: Expr) -> Expr:
        distance = p.iota(rank - 1) - p.iota(rank - 2)
        bound = offset[0] if offset else p.constant(0, "i64")
        keep = distance.binary("ge" if upper else "le", bound)
        return keep.select(value, 0)

    if k is not None and k.rank:
        k = op.reshape(k, [])
    return op.map([x] if k is None else [x, k], body)


@rule("Identity")
def identity(op: Operation) -> Tensor:
    return op.input(0)


@rule("Dropout")
def dropout(op: Operation) -> list[Tensor]:
    op.ignore("ratio", "is_test", "seed")
    x = op.input(0)
    if len(op.inputs) > 2 and op.optional(2) is not None:
        training = op.value(2)
        ratio = op.value(1)
        if training is None or (
            bool(training.reshape(-1)[0])
            and (op.optional(1) is None or ratio is None or float(ratio.reshape(-1)[0]) != 0)
        ):
            raise op.unsupported(
                "training mode draws random numbers", "export the model for inference (training_mode = False)"
            )
    if not op.wants(1):
        return [x]
    dtype = "bool" if op.opset >= 10 else x.dtype
    return [x, op.map([x], lambda p, v: p.constant(1, REGISTER[dtype]), dtype)]
