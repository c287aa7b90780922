"""Export rules for pointwise programs, casts and quantization: one ONNX node, or a few, per instruction.
Results of comparisons are bool in ONNX. They become integers only if a program calculates with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from linnet.builder.mapping import program_of
from linnet.converters.export.writer import TYPES, Writer, export
from linnet.converters.problems import Unsupported
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Node, Tensor
from linnet.ir.program import FLOATS, REGISTER, Instruction

_UNARY = {
    "neg": "Neg", "abs": "Abs", "sign": "Sign", "reciprocal": "Reciprocal", "sqrt": "Sqrt", "exp": "Exp", "log": "Log",
    "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "is_nan": "IsNaN", "is_inf": "IsInf",
}  # fmt: skip
_BINARY = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "min": "Min", "max": "Max", "pow": "Pow", "eq": "Equal",
    "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
}  # fmt: skip
_LOGIC = {"and": "And", "or": "Or", "xor": "Xor"}
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_nan", "is_inf"})
_LIMITS = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767), "u16": (0, 65535)}


class Value(NamedTuple):
    """A register: its ONNX name, and its ONNX type (f32, f64, i32, i64 or bool)."""

    name: str
    kind: str


class _Program:
    def __init__(self, writer: Writer, node: Node) -> None:
        self.writer, self.node = writer, node
        program = program_of(node)
        assert program is not None
        self.program = program
        self.values: list[Value] = []
        self.full = ""  # a tensor of the full iteration shape, once one is needed

    def outputs(self) -> list[str]:
        for instruction in self.program.code:
            self.values.append(self.value(instruction))
        return [
            self.stored(i, store.register, store.quantized, tensor)
            for i, (store, tensor) in enumerate(zip(self.program.stores, self.node.outputs, strict=True))
        ]

    # ---- types

    def number(self, value: float, kind: str) -> str:
        return self.writer.constant(np.asarray(value, bool if kind == "bool" else numpy_dtype(kind)), "number")

    def cast(self, value: Value, kind: str) -> Value:
        if value.kind == kind:
            return value
        if kind == "bool":
            zero = self.number(0, value.kind)
            return Value(self.writer.emit("Not", [self.writer.emit("Equal", [value.name, zero])]), "bool")
        return Value(self.writer.emit("Cast", [value.name], to=TYPES[kind]), kind)

    def names(self, registers: Sequence[int], kind: str) -> list[str]:
        return [self.cast(self.values[r], kind).name for r in registers]

    # ---- instructions

    def value(self, i: Instruction) -> Value:
        w = self.writer
        if i.opcode == "load":
            return self.loaded(i)
        if i.opcode == "load_dequantized":
            return Value(w.real(self.node.inputs[i.operand]), "f32")
        if i.opcode == "const":
            return Value(self.number(i.number, i.kind), i.kind)
        if i.opcode == "iota":
            return self.iota(i)
        if i.opcode == "cast":
            source = self.values[i.args[0]]
            return self.cast(source, i.kind)
        if i.opcode == "select":
            condition = self.cast(self.values[i.args[0]], "bool").name
            if all(self.values[r].kind == "bool" for r in i.args[1:]):
                return Value(w.emit("Where", [condition, *(self.values[r].name for r in i.args[1:])]), "bool")
            return Value(w.emit("Where", [condition, *self.names(i.args[1:], i.kind)]), i.kind)
        if i.opcode in _LOGIC:
            if all(self.values[r].kind == "bool" for r in i.args):
                return Value(w.emit(_LOGIC[i.opcode], self.names(i.args, "bool")), "bool")
            return Value(w.emit(f"Bitwise{_LOGIC[i.opcode]}", self.names(i.args, i.kind)), i.kind)
        if i.opcode == "table":
            index = self.cast(self.values[i.args[0]], "i64").name
            table = self.node.inputs[i.operand]
            assert table is not None
            last = (table.static_shape or (0,))[0] - 1
            if last < 0:
                raise Unsupported("the size of the lookup table is unknown", "make the table a constant")
            index = w.emit("Clip", [index, self.number(0, "i64"), self.number(last, "i64")])
            return self.cast(Value(w.emit("Gather", [w.of(table), index]), table.dtype), i.kind)
        if i.opcode in _BINARY:
            return self.binary(i)
        if i.opcode in _UNARY:
            name = w.emit(_UNARY[i.opcode], self.names(i.args, i.kind))
            return Value(name, "bool" if i.opcode in _COMPARISONS else i.kind)
        if i.opcode in _MADE:
            name = _MADE[i.opcode](self, i, *self.names(i.args, i.kind))
            return Value(name, "bool" if i.opcode in _COMPARISONS else i.kind)
        raise Unsupported(
            f"ONNX has no op for the map opcode {i.opcode}",
            "replace it by other ops",
        )

    def loaded(self, i: Instruction) -> Value:
        tensor = self.node.inputs[i.operand]
        assert tensor is not None
        name = self.writer.of(tensor)
        if tensor.dtype == "bool":
            return Value(name, "bool")
        return Value(name, tensor.dtype) if tensor.dtype == i.kind else self.cast(Value(name, tensor.dtype), i.kind)

    def binary(self, i: Instruction) -> Value:
        w, kind = self.writer, i.kind
        if i.opcode in ("eq",) and all(self.values[r].kind == "bool" for r in i.args):
            return Value(w.emit("Equal", self.names(i.args, "bool")), "bool")
        for bound, other in (i.args, i.args[::-1]):
            constant = self.program.code[bound]
            if i.opcode == "max" and constant.opcode == "const" and constant.number == 0 and kind in FLOATS:
                return Value(w.emit("Relu", self.names([other], kind)), kind)
        name = w.emit(_BINARY[i.opcode], self.names(i.args, kind))
        return Value(name, "bool" if i.opcode in _COMPARISONS else kind)

    def iota(self, i: Instruction) -> Value:
        """The coordinates along an axis, in a shape that broadcasts against the other operands."""
        w, y = self.writer, self.node.outputs[0]
        if y.shape is None:
            raise Unsupported("coordinates (iota) need an output of known rank", "give the graph's inputs known shapes")
        rank, axis = len(y.shape), i.operand
        extent = y.shape[axis]
        tail = [1] * (rank - axis)
        if isinstance(extent, int):
            column = np.arange(extent, dtype=numpy_dtype(i.kind)).reshape(-1, *tail[1:])
            return Value(w.constant(column, "coordinates"), i.kind)
        size = w.emit("Shape", [self.whole()], start=axis, end=axis + 1)
        limit = w.emit("Squeeze", [size])
        numbers = w.emit("Range", [self.number(0, "i64"), limit, self.number(1, "i64")])
        made = Value(w.emit("Reshape", [numbers, w.integers([-1, *tail[1:]])]), "i64")
        return self.cast(made, i.kind)

    def whole(self) -> str:
        """A tensor of the map's iteration shape: all loaded operands, broadcast."""
        if not self.full:
            loads = list(dict.fromkeys(i.operand for i in self.program.code if i.opcode.startswith("load")))
            tensors = [self.node.inputs[i] for i in loads]
            self.full = self.broadcast([t for t in tensors if t is not None])
        return self.full

    def broadcast(self, tensors: Sequence[Tensor]) -> str:
        w, name = self.writer, ""
        for tensor in tensors:
            if not name:
                name = w.emit("Cast", [w.of(tensor)], to=TYPES["f32"])
            else:
                other = w.emit("Cast", [w.of(tensor)], to=TYPES["f32"])
                name = w.emit("Where", [self.number(1, "bool"), name, other])
        return name

    # ---- results

    def stored(self, number: int, register: int, quantized: bool, tensor: Tensor) -> str:
        w = self.writer
        value = self.spread(self.values[register], register, tensor)
        if quantized:
            return w.stored(self.cast(value, "f32").name, tensor)
        return to_dtype(w, value, tensor.dtype)

    def spread(self, value: Value, register: int, tensor: Tensor) -> Value:
        """Expands a result to the iteration shape, because loaded operands broadcast even if the result does not depend
        on them."""
        used, pending = set(), [register]
        while pending:
            i = self.program.code[pending.pop()]
            if i.opcode.startswith("load"):
                used.add(i.operand)
            pending += i.args
        used.update(-1 for i in self.program.code if i.opcode == "iota")
        w = self.writer
        if not self.node.inputs:
            if tensor.static_shape is None:
                raise Unsupported("a map without inputs has no fixed shape", "set the map's attribute 'shape'")
            return Value(w.emit("Expand", [value.name, w.integers(tensor.static_shape)]), value.kind)
        missing = [t for i, t in enumerate(self.node.inputs) if t is not None and i in self.program.loads - used]
        kept = [t for i, t in enumerate(self.node.inputs) if t is not None and i in used]
        if not missing or (
            tensor.static_shape is not None and any(t.static_shape == tensor.static_shape for t in kept)
        ):
            return value
        if all(
            t.static_shape is not None and math.prod(t.static_shape) == 1 and len(t.static_shape) == 0 for t in missing
        ):
            return value
        other = self.broadcast(missing)
        shape = w.emit("Shape", [other])
        return Value(w.emit("Expand", [value.name, shape]), value.kind)


def to_dtype(w: Writer, value: Value, dtype: str) -> str:
    """Casts a value to an element type. Floats that become narrow integers saturate, as in the runtime's casts."""
    if value.kind == dtype:
        return value.name
    name = value.name
    if dtype == "bool":
        zero = w.constant(np.asarray(0, numpy_dtype(value.kind)), "number")
        return str(w.emit("Not", [w.emit("Equal", [name, zero])]))
    if value.kind in FLOATS and dtype in _LIMITS:
        low, high = (w.constant(np.asarray(v, numpy_dtype(value.kind)), "number") for v in _LIMITS[dtype])
        name = w.emit("Clip", [name, low, high])
    return str(w.emit("Cast", [name], to=TYPES[dtype]))


def _not_equal(p: _Program, i: Instruction, a: str, b: str) -> str:
    return str(p.writer.emit("Not", [p.writer.emit("Equal", [a, b])]))


def _mod(p: _Program, i: Instruction, a: str, b: str) -> str:
    """Modulo with the sign of the divisor. ONNX's Mod does that only for integers."""
    w = p.writer
    if i.kind not in FLOATS:
        return str(w.emit("Mod", [a, b]))
    rest, zero = w.emit("Mod", [a, b], fmod=1), p.number(0, i.kind)
    apart = w.emit("Xor", [w.emit("Less", [rest, zero]), w.emit("Less", [b, zero])])
    some = w.emit("Not", [w.emit("Equal", [rest, zero])])
    return str(w.emit("Where", [w.emit("And", [apart, some]), w.emit("Add", [rest, b]), rest]))


def _atan2(p: _Program, i: Instruction, y: str, x: str) -> str:
    """Computes atan2 by quadrants: ONNX has no Atan2."""
    w, zero = p.writer, p.number(0, i.kind)
    half, pi = p.number(math.pi / 2, i.kind), p.number(math.pi, i.kind)
    base = w.emit("Atan", [w.emit("Div", [y, x])])
    down = w.emit("Less", [y, zero])
    turn = w.emit("Where", [down, w.emit("Neg", [pi]), pi])
    left = w.emit("Where", [w.emit("Less", [x, zero]), w.emit("Add", [base, turn]), base])
    upright = w.emit("Where", [w.emit("Equal", [y, zero]), zero, w.emit("Where", [down, w.emit("Neg", [half]), half])])
    return str(w.emit("Where", [w.emit("Equal", [x, zero]), upright, left]))


def _log1p(p: _Program, i: Instruction, x: str) -> str:
    """log(1 + x) without cancellation: log(u) * x / (u - 1) with u = 1 + x (Goldberg 1991, theorem 4)."""
    w, one = p.writer, p.number(1, i.kind)
    u = w.emit("Add", [x, one])
    rest = w.emit("Sub", [u, one])
    exact = w.emit("Equal", [rest, p.number(0, i.kind)])
    safe = w.emit("Where", [exact, one, rest])
    infinite = w.emit("Equal", [u, w.emit("Add", [u, u])])  # 0 or infinity: use the plain log
    scaled = w.emit("Mul", [w.emit("Log", [u]), w.emit("Div", [x, safe])])
    return str(w.emit("Where", [exact, x, w.emit("Where", [infinite, w.emit("Log", [u]), scaled])]))


def _expm1(p: _Program, i: Instruction, x: str) -> str:
    """exp(x) - 1 without cancellation: (u - 1) * x / log(u) with u = exp(x) (Higham 2002, section 1.14.1)."""
    w, one = p.writer, p.number(1, i.kind)
    u = w.emit("Exp", [x])
    rest = w.emit("Sub", [u, one])
    exact = w.emit("Equal", [rest, p.number(0, i.kind)])
    far = w.emit("Greater", [w.emit("Abs", [x]), one])
    logarithm = w.emit("Where", [w.emit("Or", [exact, far]), one, w.emit("Log", [u])])
    near = w.emit("Div", [w.emit("Mul", [rest, x]), logarithm])
    return str(w.emit("Where", [exact, x, w.emit("Where", [far, rest, near])]))


def _trunc(p: _Program, i: Instruction, x: str) -> str:
    w = p.writer
    return str(w.emit("Mul", [w.emit("Sign", [x]), w.emit("Floor", [w.emit("Abs", [x])])]))


def _shift(p: _Program, i: Instruction, a: str, b: str) -> str:
    """Shifts by multiplying and dividing by powers of two: ONNX shifts only unsigned integers."""
    w = p.writer
    if i.opcode == "shift_right_logical":
        unsigned = {"i32": "u32", "i64": "u64"}[i.kind]
        operands = [w.emit("Cast", [name], to=TYPES[unsigned]) for name in (a, b)]
        return str(w.emit("Cast", [w.emit("BitShift", operands, direction="RIGHT")], to=TYPES[i.kind]))
    bits = w.emit("Min", [w.emit("Cast", [b], to=TYPES["f64"]), p.number(62, "f64")])
    factor = w.emit("Cast", [w.emit("Pow", [p.number(2, "f64"), bits])], to=TYPES["i64"])
    wide = w.emit("Cast", [a], to=TYPES["i64"])
    if i.opcode == "shift_left":
        made = w.emit("Mul", [wide, factor])
    else:  # towards minus infinity; Mod has the sign of the divisor
        made = w.emit("Div", [w.emit("Sub", [wide, w.emit("Mod", [wide, factor])]), factor])
    return str(w.emit("Cast", [made], to=TYPES[i.kind]))


def _fixed(p: _Program, i: Instruction, x: str) -> str:
    """TFLite's MultiplyByQuantizedMultiplier, computed exactly in i64 (docs/numerics.md)."""
    w, (multiplier, shift) = p.writer, i.extra
    wide = w.emit("Cast", [x], to=TYPES["i64"])

    def number(value: int) -> str:
        return p.number(value, "i64")

    def floor_divided(name: str, bits: int) -> str:
        divisor = number(1 << bits)
        return str(w.emit("Div", [w.emit("Sub", [name, w.emit("Mod", [name, divisor])]), divisor]))

    if i.opcode == "fixed_multiply_single":
        total = 31 + shift
        product = w.emit("Add", [w.emit("Mul", [wide, number(multiplier)]), number(1 << (total - 1))])
        made = w.emit("Clip", [floor_divided(product, total), number(-(1 << 31)), number((1 << 31) - 1)])
        return str(w.emit("Cast", [made], to=TYPES["i32"]))
    if shift < 0:
        wrapped = w.emit("Cast", [w.emit("Mul", [wide, number(1 << -shift)])], to=TYPES["i32"])
        wide = w.emit("Cast", [wrapped], to=TYPES["i64"])
    product = w.emit("Mul", [wide, number(multiplier)])
    low = w.emit("Less", [product, number(0)])
    nudge = w.emit("Where", [low, number(1 - (1 << 30)), number(1 << 30)])
    high = w.emit("Div", [w.emit("Add", [product, nudge]), number(1 << 31)])  # towards zero
    if shift > 0:
        rest = w.emit("Mod", [high, number(1 << shift)])
        middle = ((1 << shift) - 1) >> 1
        below = w.emit("Cast", [w.emit("Less", [high, number(0)])], to=TYPES["i64"])
        up = w.emit("Greater", [rest, w.emit("Add", [below, number(middle)])])
        high = w.emit("Add", [floor_divided(high, shift), w.emit("Cast", [up], to=TYPES["i64"])])
    return str(w.emit("Cast", [high], to=TYPES["i32"]))


_MADE: dict[str, Callable[..., str]] = {
    "ne": _not_equal,
    "mod": _mod,
    "fmod": lambda p, i, a, b: p.writer.emit("Mod", [a, b], fmod=1),
    "atan2": _atan2,
    "log1p": _log1p,
    "expm1": _expm1,
    "trunc": _trunc,
    "not": lambda p, i, a: p.writer.emit("BitwiseNot", [a]),
    "fixed_multiply": _fixed,
    "fixed_multiply_single": _fixed,
    "shift_left": _shift,
    "shift_right": _shift,
    "shift_right_logical": _shift,
}


@export("map")
def map_(w: Writer, node: Node) -> list[str]:
    return _Program(w, node).outputs()


@export("cast")
def cast(w: Writer, node: Node) -> str:
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    if x.dtype in ("f16", "bf16") and y.dtype in _LIMITS:
        return to_dtype(w, Value(w.emit("Cast", [w.of(x)], to=TYPES["f32"]), "f32"), y.dtype)
    if x.dtype == y.dtype:
        return str(w.emit("Identity", [w.of(x)]))
    if REGISTER[x.dtype] in FLOATS or y.dtype == "bool":
        return to_dtype(w, Value(w.of(x), x.dtype), y.dtype)
    return str(w.emit("Cast", [w.of(x)], to=TYPES[y.dtype]))


@export("quantize")
def quantize(w: Writer, node: Node) -> str:
    y = node.outputs[0]
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return w.stored(w.operand(node, 0), y)
    zero = w.operand(node, 2)
    scale = node.inputs[1]
    if not zero:
        shape = scale.static_shape
        if shape is None:
            raise Unsupported("the shape of the scale is unknown and the zero point is missing", "add a zero point")
        zero = w.constant(np.zeros(shape, numpy_dtype(y.dtype)), "zero")
    block = int(node.attribute("block")) or None
    if block and w.opset < 21:
        raise Unsupported("blockwise quantization needs opset 21", "call to_onnx with opset=21")
    return str(
        w.emit(
            "QuantizeLinear",
            [w.operand(node, 0), w.of(scale), zero],
            axis=int(node.attribute("axis")),
            block_size=block,
        )
    )


@export("dequantize")
def dequantize(w: Writer, node: Node) -> str:
    x, y = node.inputs[0], node.outputs[0]
    if len(node.inputs) < 2 or node.inputs[1] is None:
        name = w.real(x)
    else:
        block = int(node.attribute("block")) or None
        if block and w.opset < 21:
            raise Unsupported("blockwise quantization needs opset 21", "call to_onnx with opset=21")
        name = w.emit(
            "DequantizeLinear", [w.of(x), w.operand(node, 1), w.operand(node, 2)],
            axis=int(node.attribute("axis")), block_size=block,
        )  # fmt: skip
    made = "f32" if len(node.inputs) < 2 or node.inputs[1] is None else node.inputs[1].dtype
    return name if y.dtype == made else str(w.emit("Cast", [name], to=TYPES[y.dtype]))
