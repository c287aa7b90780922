"""Rules for comparisons, logic, bits, selection and element types. Each becomes part of a map.
Truth values are i32 registers that hold 0 or 1."""

from __future__ import annotations

import math
from collections.abc import Callable

from linnet.converters.onnx import narrow
from linnet.converters.onnx.narrow import Kind
from linnet.converters.onnx.operation import Operation, rank_of, storage_of
from linnet.converters.onnx.program import FLOATS, REGISTER, Expr
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.values import Value
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Tensor


def _comparison(opcode: str) -> Callable[[Operation], Tensor]:
    def lower(op: Operation) -> Tensor:
        a, b = op.input(0), op.input(1)
        return op.map([a, b], lambda x, y: x.binary(opcode, y), "bool")

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
        return op.map([op.input(0), op.input(1)], lambda a, b: a.binary(opcode, b))

    return lower


for _name, _opcode in {
    "And": "and", "Or": "or", "Xor": "xor", "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor"
}.items():  # fmt: skip
    rule(_name)(_binary(_opcode))


@rule("Not")
def not_(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda x: x.binary("xor", 1))


@rule("BitwiseNot")
def bitwise_not(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda x: x.unary("not"))


@rule("BitShift")
def bit_shift(op: Operation) -> Tensor:
    right = "shift_right" if op.input(0).dtype in ("i8", "i16", "i32", "i64") else "shift_right_logical"
    opcode = "shift_left" if op.attribute("direction") == "LEFT" else right
    return op.map([op.input(0), op.input(1)], lambda x, y: x.binary(opcode, y))


@rule("IsNaN")
def is_nan(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda x: x.unary("is_nan"), "bool")


@rule("IsInf")
def is_inf(op: Operation) -> Tensor:
    positive, negative = op.attribute("detect_positive"), op.attribute("detect_negative")

    def body(x: Expr) -> Expr:
        if positive and negative:
            return x.unary("is_inf")
        if not positive and not negative:
            return x.other(0, "i32")
        return x.binary("eq", math.inf if positive else -math.inf)

    return op.map([op.input(0)], body, "bool")


@rule("Where")
def where(op: Operation) -> Tensor:
    x = op.input(1)
    return op.map([op.input(0), x, op.input(2)], lambda c, a, b: c.select(a, b), x.dtype)


def cast_to(op: Operation, x: Tensor, dtype: str) -> Tensor:
    """Casts x to another element type. A cast to bool compares with 0, so that a fraction is true."""
    if x.dtype == dtype:
        return x
    if dtype == "bool":
        return op.map([x], lambda v: v.binary("ne", 0), "bool")
    if "u64" in (x.dtype, dtype) and (x.dtype in FLOATS or dtype in FLOATS):
        return op.emit("cast", [x], dtype=dtype)  # no register type holds every u64
    if x.dtype in FLOATS and dtype in ("u32", "i64"):
        return op.map([x], lambda v: v.cast("i64"), dtype)
    if x.dtype in FLOATS and dtype not in FLOATS:
        return op.map([x], lambda v: v, dtype)  # the store saturates to the range of the dtype
    return op.map([x], lambda v: v.cast(REGISTER[dtype]), dtype)


def _cast(op: Operation, target: Kind | None, dtype: str) -> Tensor:
    """Casts input 0. Both types may be narrow; the attributes concern only narrow types."""
    saturate, round_mode = bool(op.attribute("saturate", 1)), str(op.attribute("round_mode", "up"))
    x, source = op.input(0), op.kind(0)
    if source is not None and source is target:
        return x
    if source is not None:
        x = narrow.decoded(op, x, source)
    if target is not None:
        return op.of_kind(narrow.encoded(op, x, target, saturate, round_mode), target)
    y = cast_to(op, x, dtype)
    if y is op.input(0):  # int4 as int8: the bytes stay the same
        return op.emit("copy", [y], kind="identity") if y.data is None else op.constant(y.data)
    return y


@rule("Cast")
def cast(op: Operation) -> Tensor:
    number = op.attribute("to")
    return _cast(op, narrow.KINDS.get(number), storage_of(number, "the result"))


@rule("CastLike")
def cast_like(op: Operation) -> Tensor:
    return _cast(op, op.kind(1), op.input(1).dtype)


@rule("BitCast")
def bit_cast(op: Operation) -> Tensor:
    """Reinterprets the bits as another type of the same width."""
    x, number = op.input(0), op.attribute("to")
    dtype, source, target = storage_of(number, "the result"), op.kind(0), narrow.KINDS.get(number)
    before, after = (
        k.bits if k is not None else 8 * numpy_dtype(d).itemsize for k, d in ((source, x.dtype), (target, dtype))
    )
    if before != after:
        raise op.unsupported(f"BitCast cannot turn {before} bits into {after} bits", "use a type of the same width")
    if source is not None or target is not None:
        return op.of_kind(narrow.bit_cast(op, x, source, target, dtype), target)
    return x if x.dtype == dtype else op.emit("copy", [x], kind="bitcast", dtype=dtype)


@rule("Trilu")
def trilu(op: Operation) -> Tensor:
    """Keeps one triangle of the last two axes; k shifts the diagonal."""
    x, k = op.input(0), op.optional(1)
    rank = rank_of(x, "input 0")
    upper = op.attribute("upper")

    def body(value: Expr, *offset: Expr) -> Expr:
        distance = value.iota(rank - 1) - value.iota(rank - 2)
        bound = offset[0] if offset else value.other(0, "i64")
        keep = distance.binary("ge" if upper else "le", bound)
        return keep.select(value, 0)

    if k is not None and k.rank:
        k = op.reshape(k, [])
    return op.map([x] if k is None else [x, k], body)


@rule("Identity")
def identity(op: Operation) -> Value:
    return op.any(0)


@rule("Dropout")
def dropout(op: Operation) -> list[Tensor]:
    op.ignore("ratio", "is_test", "seed")
    x = op.input(0)
    if not op.wants(1):
        return [x]
    dtype = "bool" if op.opset >= 10 else x.dtype
    return [x, op.map([x], lambda v: v.other(1, REGISTER[dtype]), dtype)]
