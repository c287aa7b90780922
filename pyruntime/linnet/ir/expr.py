"""Expressions over map programs: Python's operators on Expr add instructions, and `compiled` turns a function into a
program. This module does not know nodes; linnet.builder.mapping creates them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from linnet._generated.op_table import OPCODES
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import DTypeLike, Quantization, named
from linnet.ir.program import FLOATS, REGISTER, Instruction, Program, Store

ORDERED = frozenset({"lt", "le", "gt", "ge"})
_SIGN_BIT = -(1 << 63)
_RANK = {"i32": 0, "i64": 1, "f32": 2, "f64": 3}


class Expr:
    """A value of a program under construction. Python's operators and the methods below create new values. Numbers
    become immediates of the other operand's type. If operands have two register types, the wider one is used (i32 < i64
    < f32 < f64). unsigned: whether an i64 register holds a u64 value; operations for which signed and unsigned values
    differ then need several instructions."""

    __array_ufunc__ = None  # makes NumPy scalars defer to our operators

    def __init__(self, program: Program, register: int, unsigned: bool = False) -> None:
        self.program, self.register, self.unsigned = program, register, unsigned

    @staticmethod
    def load(program: Program, dtype: str, operand: int) -> Expr:
        """An input of this dtype, in its register type."""
        return Expr(program, program.add(Instruction("load", REGISTER[dtype], operand=operand)), dtype == "u64")

    @staticmethod
    def constant(program: Program, number: float, dtype: str) -> Expr:
        """An immediate of this dtype, in its register type."""
        unsigned = dtype == "u64"
        if unsigned and number >= 1 << 63:
            number = int(number) - (1 << 64)
        return Expr(program, program.constant(number, REGISTER[dtype]), unsigned)

    def other(self, number: float, dtype: str) -> Expr:
        """An immediate of this dtype, in the program of this value."""
        return Expr.constant(self.program, number, dtype)

    @property
    def kind(self) -> str:
        """Register type: f32, f64, i32 or i64."""
        return self.program.code[self.register].result

    def _of(self, instruction: Instruction, unsigned: bool = False) -> Expr:
        made = Expr(self.program, self.program.add(instruction))
        made.unsigned = unsigned and made.kind == "i64"
        return made

    def _signed(self) -> Expr:
        """The same register, read as signed."""
        return Expr(self.program, self.register)

    def lift(self, value: Expr | float) -> Expr:
        """A number as a value of this value's type (f32 if an integer type cannot represent it)."""
        if isinstance(value, Expr):
            return value
        kind = self.kind
        if kind not in FLOATS and value != int(value):
            kind = "f32"
        return Expr.constant(self.program, value, "u64" if self.unsigned and kind == "i64" else kind)

    def unary(self, opcode: str) -> Expr:
        """Applies a unary opcode (schema/map_opcodes.toml) to this value."""
        if self.unsigned and opcode == "abs":
            return self
        if self.unsigned and opcode == "sign":
            return Expr(self.program, self.ne(0).cast("i64").register, True)
        return self._of(Instruction(opcode, self.kind, (self.register,)), self.unsigned)

    def binary(self, opcode: str, other: Expr | float) -> Expr:
        """Applies a binary opcode to this value and another."""
        right = self.lift(other)
        kind = max(self.kind, right.kind, key=_RANK.__getitem__)
        left, right = self.cast(kind), right.cast(kind)
        if left.unsigned or right.unsigned:
            return _unsigned(opcode, left, right)
        return left._of(Instruction(opcode, kind, (left.register, right.register)))

    def reverse(self, opcode: str, other: float) -> Expr:
        """Applies a binary opcode to a number and this value."""
        return self.lift(other).binary(opcode, self)

    def cast(self, kind: str) -> Expr:
        """Converts to another register type: f32, f64, i32, i64."""
        if kind == self.kind:
            return self
        if self.unsigned and kind in FLOATS:  # above 2^63: convert half of it; the lost bit is ORed into the last one
            signed = self._signed()
            half = (signed.binary("shift_right_logical", 1) | (signed & 1)).cast(kind)
            return (signed < 0).select(half + half, signed.cast(kind))
        return self._of(Instruction("cast", kind, (self.register,)))

    def for_store(self, dtype: str | None) -> Expr:
        """The value, prepared for a store as this dtype. A store converts as `cast` does, but it would treat u64 values
        as signed."""
        kind = REGISTER[dtype] if dtype is not None else self.kind
        return self.cast(kind) if self.unsigned and kind in FLOATS else self

    def select(self, yes: Expr | float, no: Expr | float) -> Expr:
        """`yes` where this value is not 0, otherwise `no`."""
        if not isinstance(yes, Expr):
            yes = no.lift(yes) if isinstance(no, Expr) else Expr(self.program, self.program.constant(yes, "f32"))
        no = yes.lift(no)
        kind = max(yes.kind, no.kind, key=_RANK.__getitem__)
        condition = self if self.kind == "i32" else self.binary("ne", 0)
        registers = (condition.register, yes.cast(kind).register, no.cast(kind).register)
        return self._of(Instruction("select", kind, registers), yes.unsigned or no.unsigned)

    def iota(self, axis: int, kind: str = "i64") -> Expr:
        """The coordinate along an axis of the iteration shape."""
        return self._of(Instruction("iota", kind, operand=axis))

    def fixed_multiply(self, multiplier: int, shift: int, single: bool = False) -> Expr:
        """TFLite's MultiplyByQuantizedMultiplier on an i32 value: Q31 multiplier, then a right shift (negative: left)."""
        opcode = "fixed_multiply_single" if single else "fixed_multiply"
        return self._of(Instruction(opcode, "i32", (self.register,), extra=(multiplier, shift)))

    def table(self, values: int, kind: str = "f32") -> Expr:
        """The element of a 1-D tensor, input number `values`, whose index is this value."""
        return self._of(Instruction("table", kind, (self.cast("i32").register,), operand=values))

    def __add__(self, other: Expr | float) -> Expr:
        return self.binary("add", other)

    def __radd__(self, other: float) -> Expr:
        return self.reverse("add", other)

    def __sub__(self, other: Expr | float) -> Expr:
        return self.binary("sub", other)

    def __rsub__(self, other: float) -> Expr:
        return self.reverse("sub", other)

    def __mul__(self, other: Expr | float) -> Expr:
        return self.binary("mul", other)

    def __rmul__(self, other: float) -> Expr:
        return self.reverse("mul", other)

    def __truediv__(self, other: Expr | float) -> Expr:
        return self.binary("div", other)

    def __rtruediv__(self, other: float) -> Expr:
        return self.reverse("div", other)

    def __pow__(self, other: Expr | float) -> Expr:
        return self.binary("pow", other)

    def __mod__(self, other: Expr | float) -> Expr:
        return self.binary("mod", other)

    def __and__(self, other: Expr | float) -> Expr:
        return self.binary("and", other)

    def __or__(self, other: Expr | float) -> Expr:
        return self.binary("or", other)

    def __xor__(self, other: Expr | float) -> Expr:
        return self.binary("xor", other)

    def __lt__(self, other: Expr | float) -> Expr:
        return self.binary("lt", other)

    def __le__(self, other: Expr | float) -> Expr:
        return self.binary("le", other)

    def __gt__(self, other: Expr | float) -> Expr:
        return self.binary("gt", other)

    def __ge__(self, other: Expr | float) -> Expr:
        return self.binary("ge", other)

    def eq(self, other: Expr | float) -> Expr:
        """Whether both are equal."""
        return self.binary("eq", other)

    def ne(self, other: Expr | float) -> Expr:
        """Whether they differ."""
        return self.binary("ne", other)

    def __neg__(self) -> Expr:
        return self.unary("neg")

    def __abs__(self) -> Expr:
        return self.unary("abs")

    def max(self, other: Expr | float) -> Expr:
        """The larger one."""
        return self.binary("max", other)

    def min(self, other: Expr | float) -> Expr:
        """The smaller one."""
        return self.binary("min", other)

    def __getattr__(self, name: str) -> Callable[[], Expr]:
        """The other unary opcodes as methods: exp, log, tanh, sigmoid, erf, sqrt, floor, is_nan, ..."""
        if name in OPCODES and OPCODES[name][1] == 1 and not name.startswith(("store", "load", "cast")):
            return lambda: self.unary(name)
        raise AttributeError(name)


def positive_power(x: Expr, exponent: float) -> Expr:
    """x to a power, for x >= 0. The powers 1/2 and 3/4 use square roots, which are several times as fast as `pow` and
    wrong by at most 2 ulp."""
    if exponent not in (0.5, 0.75):
        return x.binary("pow", exponent)
    root = x.unary("sqrt")
    return root if exponent == 0.5 else root * root.unary("sqrt")


def _unsigned(opcode: str, a: Expr, b: Expr) -> Expr:
    """A binary opcode on two i64 registers, at least one of which holds u64 values."""
    x, y = a._signed(), b._signed()
    if opcode in ORDERED:  # with the highest bits flipped, signed order equals unsigned order
        made = (x ^ _SIGN_BIT).binary(opcode, y ^ _SIGN_BIT)
    elif opcode in ("min", "max"):
        made = _unsigned("lt" if opcode == "min" else "gt", a, b).select(x, y)
    elif opcode == "div":
        made = _divide_unsigned(x, y)
    elif opcode in ("mod", "fmod"):
        made = y.eq(0).select(0, x - _divide_unsigned(x, y) * y)
    else:
        if opcode == "shift_right" and a.unsigned:
            opcode = "shift_right_logical"
        if (
            opcode == "pow" and b.unsigned
        ):  # modulo 2^64, powers repeat after 2^62, except for factors of 2, which have vanished by then
            y = (y < 0).select((y & ((1 << 62) - 1)) | (1 << 62), y)
        made = x._of(Instruction(opcode, "i64", (x.register, y.register)))
        if opcode == "pow" or opcode.startswith("shift"):
            made.unsigned = a.unsigned
            return made
    made.unsigned = made.kind == "i64"
    return made


def _divide_unsigned(a: Expr, b: Expr) -> Expr:
    """The u64 quotient in i64 registers, 0 for division by zero: divides halves, then corrects by at most one (Hacker's
    Delight, 9-3)."""

    def reaches(x: Expr, y: Expr) -> Expr:
        return (x ^ _SIGN_BIT).binary("ge", y ^ _SIGN_BIT).cast("i64")

    half = a.binary("shift_right_logical", 1) / b
    quotient = half.binary("shift_left", 1)
    quotient = b.eq(0).select(0, quotient + reaches(a - quotient * b, b))
    return (b < 0).select(reaches(a, b), quotient)  # b >= 2^63: the quotient is 0 or 1


class Value(Protocol):
    """The properties of an input that a program needs."""

    @property
    def dtype(self) -> str: ...
    @property
    def quantization(self) -> Quantization | None: ...


V = TypeVar("V", bound=Value)


def compiled(
    inputs: Sequence[V],
    body: Callable[..., Expr | Sequence[Expr]],
    dtypes: DTypeLike | Sequence[DTypeLike] | None = None,
    quantization: Sequence[Quantization | None] = (),
    dequantize: bool = False,
) -> tuple[list[V], dict[str, Any], list[str], bool]:
    """The parts of an expression's map node: its operands, its attributes, the dtypes of its outputs, and whether
    `body` returned a single Expr. For the arguments see linnet.builder.mapping.pointwise."""
    if not inputs:
        raise UsageError("a map needs one or more inputs", code=101, expected="tensors or variables", got="none")
    program, operands, values = Program(), list(dict.fromkeys(inputs)), []
    for tensor in inputs:
        if dequantize and tensor.quantization is not None:
            loaded = program.add(Instruction("load_dequantized", "f32", operand=operands.index(tensor)))
            values.append(Expr(program, loaded))
        else:
            values.append(Expr.load(program, tensor.dtype, operands.index(tensor)))
    result = body(*values)
    results = [result] if isinstance(result, Expr) else list(result)
    if len(quantization) > len(results):
        raise UsageError(
            "a map has more quantizations than outputs", code=101, expected=f"at most {len(results)}",
            got=str(len(quantization)),
        )  # fmt: skip
    nothing: Sequence[DTypeLike | None] = [None] * len(results)
    given = nothing if dtypes is None else [dtypes] if isinstance(dtypes, str | type | np.dtype) else dtypes
    wanted = [None if dtype is None else named(dtype) for dtype in given]
    for dtype in wanted:
        if dtype is not None and dtype not in REGISTER:
            raise UsageError(
                "a map cannot store this dtype", code=103, expected=f"one of {', '.join(REGISTER)}", got=str(dtype)
            )
    if len(wanted) != len(results):
        raise UsageError(
            "a map needs one dtype for each of its outputs", code=101, expected=f"{len(results)} dtypes",
            got=f"{len(wanted)}",
        )  # fmt: skip
    made: list[str] = []
    for i, (expression, dtype) in enumerate(zip(results, wanted, strict=True)):
        quantized = i < len(quantization) and quantization[i] is not None
        stored = expression.cast("f32") if quantized else expression.for_store(dtype)
        program.stores.append(Store(stored.register, quantized))
        made.append(dtype or _default_dtype(expression, inputs))
    return operands, program.attributes(made), made, isinstance(result, Expr)


def _default_dtype(expression: Expr, inputs: Sequence[Value]) -> str:
    if expression.program.boolean(expression.register):
        return "bool"
    if expression.unsigned:
        return "u64"
    same = (t.dtype for t in inputs if REGISTER[t.dtype] == expression.kind and t.dtype != "bool")
    return next(same, expression.kind)
