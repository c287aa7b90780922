"""Rules for arithmetic and elementary functions. Each becomes part of a map.
Values are computed in the register type that can hold their element type (linnet.mapping)."""

from __future__ import annotations

from collections.abc import Callable

from linnet.converters.onnx.operation import Operation
from linnet.converters.onnx.program import FLOATS, Expr
from linnet.converters.onnx.registry import rule
from linnet.ir.function import Tensor


def _unary(opcode: str) -> Callable[[Operation], Tensor]:
    def lower(op: Operation) -> Tensor:
        return op.map([op.input(0)], lambda x: x.unary(opcode))

    return lower


for _name, _opcode in {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Log": "log", "Neg": "neg", "Sign": "sign",
    "Reciprocal": "reciprocal", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
    "Sigmoid": "sigmoid",
}.items():  # fmt: skip
    rule(_name)(_unary(_opcode))


def _rounding(opcode: str) -> Callable[[Operation], Tensor]:
    def lower(op: Operation) -> Tensor:
        return op.map([op.input(0)], lambda x: x.unary(opcode) if x.kind in FLOATS else x)

    return lower


for _name, _opcode in {"Ceil": "ceil", "Floor": "floor", "Round": "round"}.items():
    rule(_name)(_rounding(_opcode))


@rule("Add")
def add(op: Operation) -> Tensor:
    return op.map([op.input(0), op.input(1)], lambda a, b: a + b)


@rule("Sub")
def sub(op: Operation) -> Tensor:
    return op.map([op.input(0), op.input(1)], lambda a, b: a - b)


@rule("Mul")
def mul(op: Operation) -> Tensor:
    return op.map([op.input(0), op.input(1)], lambda a, b: a * b)


@rule("Div")
def div(op: Operation) -> Tensor:
    """Integer division truncates towards zero."""
    return op.map([op.input(0), op.input(1)], lambda x, y: x / y)


@rule("Mod")
def mod(op: Operation) -> Tensor:
    """With fmod = 0, the result has the sign of the divisor; with fmod = 1, that of the dividend."""
    fmod = op.attribute("fmod")
    return op.map([op.input(0), op.input(1)], lambda x, y: x.binary("fmod" if fmod else "mod", y))


@rule("Pow")
def power(op: Operation) -> Tensor:
    """The result has the base's element type. An integer base with a float exponent is computed in f64."""
    a, b = op.input(0), op.input(1)
    if a.dtype in FLOATS:
        if b.data is not None and b.data.size == 1 and (b.rank or 0) <= (a.rank or 0) and b.dtype != "bf16":
            exponent = float(b.data.reshape(-1)[0])
            if exponent in (2.0, 3.0):
                return op.map([a], lambda x: x * x if exponent == 2.0 else x * x * x)
            if exponent in (0.5, -0.5):
                root = "sqrt"
                return op.map([a], lambda x: x.unary(root) if exponent > 0 else x.unary(root).unary("reciprocal"))
        return op.map([a, b], lambda x, y: x.binary("pow", y.cast(x.kind)))
    if b.dtype in FLOATS:
        return op.map([a, b], lambda x, y: x.cast("f64").binary("pow", y.cast("f64")).cast(x.kind))
    return op.map([a, b], lambda x, y: x.binary("pow", y).cast(x.kind))


def _variadic(op: Operation, combine: Callable[[Expr, Expr], Expr], mean: bool = False) -> Tensor:
    tensors = op.all_inputs()
    if len(tensors) == 1:
        return tensors[0]

    def body(*values: Expr) -> Expr:
        result = values[0]
        for value in values[1:]:
            result = combine(result, value)
        return result / len(values) if mean else result

    return op.map(tensors, body)


@rule("Sum")
def sum_(op: Operation) -> Tensor:
    return _variadic(op, lambda a, b: a + b)


@rule("Mean")
def mean(op: Operation) -> Tensor:
    return _variadic(op, lambda a, b: a + b, mean=True)


@rule("Max")
def maximum(op: Operation) -> Tensor:
    return _variadic(op, lambda a, b: a.max(b))


@rule("Min")
def minimum(op: Operation) -> Tensor:
    return _variadic(op, lambda a, b: a.min(b))


@rule("Clip")
def clip_by_attributes(op: Operation) -> Tensor:
    low, high = op.attribute("min"), op.attribute("max")
    return op.map([op.input(0)], lambda x: x.max(low).min(high))


@rule("Clip", since=11)
def clip(op: Operation) -> Tensor:
    """min(max(x, low), high). If low > high, the result is high."""
    x, low, high = op.input(0), op.optional(1), op.optional(2)
    if low is None and high is None:
        return x

    def body(value: Expr, *bounds: Expr) -> Expr:
        at = 0
        if low is not None:
            value = value.max(bounds[at])
            at += 1
        if high is not None:
            value = value.min(bounds[at])
        return value

    return op.map([x, *(t for t in (low, high) if t is not None)], body)
