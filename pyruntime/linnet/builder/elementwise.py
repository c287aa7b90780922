"""Pointwise functions under NumPy's names: exp, maximum, softplus, ... Each creates one `map` node, and neighbouring
maps are fused. Operands are tensors, variables, arrays and numbers (at least one tensor or variable). Shapes are
broadcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.ir.expr import Expr
from linnet.ir.function import Operators
from linnet.ir.operators import pair

if TYPE_CHECKING:
    from linnet.ir.function import Tensor

_Unary = Callable[..., "Tensor"]
Number = int | float


def _unary(doc: str, body: Callable[[Expr], Expr]) -> _Unary:
    def function(x: Operators, *, name: str = "") -> Tensor:
        return _apply(body, x, name=name)

    function.__doc__ = f"{doc}, element by element: a tensor of the shape of `x`."
    return function


def _named(doc: str, opcode: str) -> _Unary:
    return _unary(doc, lambda v: v.unary(opcode))


def _apply(body: Callable[..., Expr], *operands: Any, name: str = "", dtype: str | None = None) -> Tensor:
    """Creates one map node over the operands. Numbers become immediates."""
    first = next((operand for operand in operands if isinstance(operand, Operators)), None)
    if first is None:
        raise UsageError(
            "at least one operand must be a tensor or variable", code=103, expected="a tensor", got="numbers only"
        )
    tensors: list[Tensor] = []
    fixed: dict[int, Any] = {}
    for i, operand in enumerate(operands):
        if isinstance(operand, int | float):
            fixed[i] = operand
        else:
            tensors.append(pair(first, operand)[1])

    def call(*values: Expr) -> Expr:
        rest = iter(values)
        return body(*(values[0].lift(fixed[i]) if i in fixed else next(rest) for i in range(len(operands))))

    made = pointwise(tensors, call, dtype, name=name)
    return made  # type: ignore[no-any-return]


def _softplus(v: Expr) -> Expr:  # the limits keep the branch that is not selected, and its gradient, finite
    above = v + (-v.max(-60.0)).unary("exp").unary("log1p")
    return (v > 0.0).select(above, v.min(60.0).unary("exp").unary("log1p"))


exp, log = _named("e to the x", "exp"), _named("Natural logarithm", "log")
expm1, log1p = _named("exp(x) - 1, accurate near 0", "expm1"), _named("log(1 + x), accurate near 0", "log1p")
sqrt, reciprocal = _named("Square root", "sqrt"), _named("1 / x", "reciprocal")
rsqrt = _unary("1 / sqrt(x)", lambda v: v.unary("sqrt").unary("reciprocal"))
square = _unary("x * x", lambda v: v * v)
absolute, negative, sign = _named("|x|", "abs"), _named("-x", "neg"), _named("-1, 0 or 1", "sign")
sin, cos, tan = (
    _named("Sine of radians", "sin"),
    _named("Cosine of radians", "cos"),
    _named("Tangent of radians", "tan"),
)
arcsin, arccos, arctan = _named("Arc sine", "asin"), _named("Arc cosine", "acos"), _named("Arc tangent", "atan")
sinh, cosh, tanh = (
    _named("Hyperbolic sine", "sinh"),
    _named("Hyperbolic cosine", "cosh"),
    _named("Hyperbolic tangent", "tanh"),
)
arcsinh, arccosh, arctanh = (_named(f"Inverse of {n}", f"a{n}") for n in ("sinh", "cosh", "tanh"))
erf = _named("Gauss's error function", "erf")
floor, ceil = _named("The largest integer not above x", "floor"), _named("The smallest integer not below x", "ceil")
trunc, rint = (
    _named("x rounded to an integer towards zero", "trunc"),
    _named("x rounded to the nearest integer, halves to even", "round"),
)
isnan, isinf = _named("Whether x is not a number", "is_nan"), _named("Whether x is infinite", "is_inf")
isfinite = _unary("Whether x is neither infinite nor not a number", lambda v: (v - v).eq(0))
sigmoid = _named("1 / (1 + exp(-x))", "sigmoid")
relu = _unary("max(x, 0)", lambda v: v.max(0))
relu6 = _unary("min(max(x, 0), 6) (Krizhevsky 2010)", lambda v: v.max(0).min(6))
silu = _unary("x * sigmoid(x)", lambda v: v * v.unary("sigmoid"))
softsign = _unary("x / (1 + |x|)", lambda v: v / (v.unary("abs") + 1.0))
hard_sigmoid = _unary("clip(x / 6 + 1/2, 0, 1) (Howard et al. 2019)", lambda v: (v * (1 / 6) + 0.5).max(0).min(1))
hard_swish = _unary("x * clip(x / 6 + 1/2, 0, 1) (Howard et al. 2019)", lambda v: v * (v * (1 / 6) + 0.5).max(0).min(1))
softplus = _unary("log(1 + exp(x)), without overflow", _softplus)
mish = _unary("x * tanh(softplus(x)) (Misra 2019)", lambda v: v * _softplus(v).unary("tanh"))


def gelu(x: Operators, *, approximate: bool = False, name: str = "") -> Tensor:
    """x * (1 + erf(x / sqrt(2))) / 2. With `approximate`, the tanh form (Hendrycks, Gimpel 2016)."""

    def body(v: Expr) -> Expr:
        if approximate:
            return v * ((v * 0.7978845608028654 * (v * v * 0.044715 + 1.0)).unary("tanh") + 1.0) * 0.5
        return v * ((v * 0.7071067811865476).unary("erf") + 1.0) * 0.5

    return _apply(body, x, name=name)


def elu(x: Operators, alpha: float = 1.0, *, name: str = "") -> Tensor:
    """x where x > 0, alpha * (exp(x) - 1) elsewhere (Clevert et al. 2015)."""
    return _apply(lambda v: (v > 0.0).select(v, v.min(60.0).unary("expm1") * alpha), x, name=name)


def selu(x: Operators, *, name: str = "") -> Tensor:
    """elu, scaled so that activations keep mean 0 and variance 1 from layer to layer (Klambauer et al. 2017)."""
    rate, alpha = 1.0507009873554805, 1.6732632423543772
    return _apply(lambda v: (v > 0.0).select(v, v.min(60.0).unary("expm1") * alpha) * rate, x, name=name)


def leaky_relu(x: Operators, slope: float = 0.01, *, name: str = "") -> Tensor:
    """x where x > 0, slope * x elsewhere (Maas et al. 2013)."""
    return _apply(lambda v: (v > 0.0).select(v, v * slope), x, name=name)


def clip(x: Operators, low: float, high: float, *, name: str = "") -> Tensor:
    """min(max(x, low), high)."""
    return _apply(lambda v: v.max(low).min(high), x, name=name)


def scale(x: Operators, factor: float, offset: float = 0.0, *, name: str = "") -> Tensor:
    """x * factor + offset, in the element type of `x`."""
    tensor = x.tensor()
    made = pointwise([tensor], lambda v: v * factor + offset if offset else v * factor, tensor.dtype, name=name)
    return made  # type: ignore[no-any-return]


def add(a: Any, b: Any, *, name: str = "") -> Tensor:
    """a + b."""
    return _apply(lambda x, y: x + y, a, b, name=name)


def subtract(a: Any, b: Any, *, name: str = "") -> Tensor:
    """a - b."""
    return _apply(lambda x, y: x - y, a, b, name=name)


def multiply(a: Any, b: Any, *, name: str = "") -> Tensor:
    """a * b."""
    return _apply(lambda x, y: x * y, a, b, name=name)


def divide(a: Any, b: Any, *, name: str = "") -> Tensor:
    """a / b. Integer division truncates."""
    return _apply(lambda x, y: x / y, a, b, name=name)


def power(a: Any, b: Any, *, name: str = "") -> Tensor:
    """a to the b."""
    return _apply(lambda x, y: x**y, a, b, name=name)


def mod(a: Any, b: Any, *, name: str = "") -> Tensor:
    """The remainder with the sign of `b`, as in NumPy."""
    return _apply(lambda x, y: x % y, a, b, name=name)


def maximum(a: Any, b: Any, *, name: str = "") -> Tensor:
    """The larger of a and b."""
    return _apply(lambda x, y: x.max(y), a, b, name=name)


def minimum(a: Any, b: Any, *, name: str = "") -> Tensor:
    """The smaller of a and b."""
    return _apply(lambda x, y: x.min(y), a, b, name=name)


def arctan2(a: Any, b: Any, *, name: str = "") -> Tensor:
    """The angle in radians of the point (b, a)."""
    return _apply(lambda x, y: x.binary("atan2", y), a, b, name=name)


def logical_not(x: Operators, *, name: str = "") -> Tensor:
    """Logical not of a bool tensor."""
    return _apply(lambda v: v.eq(0), x, name=name, dtype="bool")


def equal(a: Any, b: Any, *, name: str = "") -> Tensor:
    """Whether a == b, as bool. (`a == b` compares identity, because tensors are keys of dictionaries.)"""
    return _apply(lambda x, y: x.eq(y), a, b, name=name, dtype="bool")


def not_equal(a: Any, b: Any, *, name: str = "") -> Tensor:
    """Whether a and b differ, as bool."""
    return _apply(lambda x, y: x.ne(y), a, b, name=name, dtype="bool")


def less(a: Any, b: Any, *, name: str = "") -> Tensor:
    """Whether a < b, as bool."""
    return _apply(lambda x, y: x < y, a, b, name=name, dtype="bool")


def less_equal(a: Any, b: Any, *, name: str = "") -> Tensor:
    """Whether a <= b, as bool."""
    return _apply(lambda x, y: x <= y, a, b, name=name, dtype="bool")


def greater(a: Any, b: Any, *, name: str = "") -> Tensor:
    """Whether a > b, as bool."""
    return _apply(lambda x, y: x > y, a, b, name=name, dtype="bool")


def greater_equal(a: Any, b: Any, *, name: str = "") -> Tensor:
    """Whether a >= b, as bool."""
    return _apply(lambda x, y: x >= y, a, b, name=name, dtype="bool")


def logical_and(a: Any, b: Any, *, name: str = "") -> Tensor:
    """Logical and of bool tensors."""
    return _apply(lambda x, y: x & y, a, b, name=name, dtype="bool")


def logical_or(a: Any, b: Any, *, name: str = "") -> Tensor:
    """Logical or of bool tensors."""
    return _apply(lambda x, y: x | y, a, b, name=name, dtype="bool")


def logical_xor(a: Any, b: Any, *, name: str = "") -> Tensor:
    """Logical exclusive or of bool tensors."""
    return _apply(lambda x, y: x ^ y, a, b, name=name, dtype="bool")


def where(condition: Operators, yes: Any, no: Any, *, name: str = "") -> Tensor:
    """`yes` where the bool condition is true, else `no`."""
    made = _apply(lambda a, b, c: c.select(a, b), yes, no, condition, name=name) if _lead(yes, no) else None
    if made is None:
        raise UsageError(
            "where needs a tensor as `yes` or `no`, but both are numbers",
            code=103,
            expected="a tensor as `yes` or `no`",
            got=f"{yes}, {no}",
        )
    return made


def _lead(*operands: Any) -> bool:
    return any(isinstance(operand, Operators) for operand in operands)
