"""Random map programs: operands in random broadcast patterns, sizes around the strip, all register and element types.
NumPy evaluates a program while it is made, so that inexact values are known and not used further."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from linnet._generated.op_table import OPCODES
from linnet.ir.dtypes import Quantization, numpy_dtype
from linnet.ir.program import COMPARISONS, Instruction, Program, Store
from tests.maps.numbers import (
    EXACT,
    KINDS,
    ROUGH,
    ULP,
    Array,
    cast,
    computed,
    fixed_multiply,
    loaded,
    quantized,
    stored,
)

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 100, 127, 128, 129, 200, 255, 256, 257, 272, 341,
         400, 511, 512, 513, 521, 768, 1023, 1024, 1025, 1031)  # fmt: skip
SMOOTH = (
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    12,
    16,
    20,
    25,
    32,
    40,
    48,
    50,
    64,
    100,
    128,
    160,
    256,
)  # sizes of which whole lines fit into a strip
NARROW, WIDE = ("f32", "i32"), ("f32", "i32", "f64", "i64")  # register types; wide ones take other code paths


def _others(arity: int, types: str, *drawn: str) -> tuple[str, ...]:
    """The exact opcodes of the table that are not drawn yet: those that are new."""
    return tuple(
        o for o in EXACT if o not in (*drawn, *_APART) and OPCODES[o][1] == arity and OPCODES[o][2] in ("*", types)
    )


_APART = ("select", "and", "or", "xor", "shift_left", "shift_right", "shift_right_logical")
UNARY_FLOAT = ("neg", "abs", "sign", "reciprocal", "sqrt", "floor", "ceil", "round", "trunc", "is_nan", "is_inf")
UNARY_FLOAT += _others(1, "f", *UNARY_FLOAT)
UNARY_INT = ("neg", "abs", "sign", "not")
UNARY_INT += _others(1, "i", *UNARY_INT)
BINARY_FLOAT = (
    "add",
    "sub",
    "mul",
    "add",
    "sub",
    "mul",
    "div",
    "min",
    "max",
    "mod",
    "fmod",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
)
BINARY_FLOAT += _others(2, "f", *BINARY_FLOAT)
BINARY_INT = (*BINARY_FLOAT, "pow", "and", "or", "xor", "shift_left", "shift_right", "shift_right_logical")
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3e38, -3e38, 0.5, 2.5, -1.5, 2.0**31, 2.0**63])
# Element types of the operands of a program, most likely first; lines are repeated only for f32.
ALL = ("f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
FAMILIES = (
    (0.60, ("f32",)), (0.10, ("f32", "f16", "bf16", "i8", "u8", "bool")), (0.06, ("f64", "f32")),
    (0.10, ("i32", "i8", "u16", "bool")), (0.06, ("i64", "u32", "u64", "i32")), (0.08, ALL),
)  # fmt: skip
QUANTIZED = ("i8", "u8", "i16", "u16")


@dataclass
class Operand:
    """An input of the map. `array` is the value that the map reads; `source` tells how it is made (tests/maps/graphs.py)."""

    array: Array
    dtype: str
    quantization: Quantization | None = None
    source: str = "input"
    factors: tuple[Array, ...] = ()  # for a product or conv: small integers, whose sums f32 holds exactly


@dataclass
class Result:
    """The expected value of an output, and its relative error (0: the same bits)."""

    array: Array
    dtype: str
    error: float
    quantization: Quantization | None = None


@dataclass
class Register:
    kind: str
    array: Array
    error: float = 0.0


@dataclass
class Case:
    shape: tuple[int, ...]
    operands: list[Operand]
    program: Program = field(default_factory=Program)
    results: list[Result] = field(default_factory=list)


def _shape(rng: random.Random, lines: bool) -> tuple[int, ...]:
    rank = rng.choice((3, 3, 4, 5)) if lines else rng.choices(range(7), (1, 4, 7, 9, 6, 2, 1))[0]
    left = rng.choices((60, 600, 1300, 2600, 6000), (0, 1, 4, 4, 1) if lines else (2, 4, 5, 4, 1))[0]
    sizes = SMOOTH if lines and rng.random() < 0.8 else rng.choice(((1, *SMOOTH), SIZES))
    dims = [1] * rank
    for axis in rng.sample(range(rank), rank):
        most = left if axis == rank - 1 or rng.random() < 0.4 else min(left, max(2, math.isqrt(left)))
        dims[axis] = rng.choice([size for size in sizes if size <= most] or [1])
        left //= dims[axis]
    if rng.random() < 0.005:
        dims = [0 if rng.random() < 0.3 else d for d in dims]
    return tuple(dims)


def _pattern(rng: random.Random, shape: tuple[int, ...], lines: bool) -> tuple[int, ...]:
    """A shape that broadcasts to `shape`. lines: prefer shapes that are repeated as whole lines."""
    rank, kept = len(shape), list(shape)
    kind, at = rng.random() * (0.4 if lines else 1.0), rng.randint(0, rank)
    if lines and kind < 0.3:
        at = rng.randint(1, rank - 1)
        kept = [1] * at + kept[at:]
    elif kind < 0.25:
        pass
    elif kind < 0.68:  # one line for all leading dimensions
        kept = [1] * at + kept[at:]
    elif kind < 0.77:
        kept = kept[:at] + [1] * (rank - at)
    elif kind < 0.86:
        kept = [d if i == at else 1 for i, d in enumerate(kept)]
    elif kind < 0.95:
        kept = [d if rng.random() < 0.5 else 1 for d in kept]
    else:
        kept = [1] * rank
    while kept and kept[0] == 1 and rng.random() < 0.7:
        kept.pop(0)
    return tuple(kept)


def _data(rng: random.Random, generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype in ("f32", "f64", "f16", "bf16"):
        kind = rng.random()
        x = generator.integers(-9, 10, shape).astype(np.float64) if kind < 0.5 else generator.standard_normal(shape) * 4
        if kind > 0.9:
            x = np.where(generator.random(shape) < 0.1, generator.choice(SPECIAL, shape), x)
        return stored(x, "f64", dtype)
    info = np.iinfo(numpy_dtype(dtype))
    if rng.random() < 0.6:
        return generator.integers(max(info.min, -20), 100, shape, endpoint=False).astype(numpy_dtype(dtype))
    x = generator.integers(info.min, info.max, shape, numpy_dtype(dtype), endpoint=True)
    ends = generator.choice(np.array([info.min, info.max, 0, 1], numpy_dtype(dtype)), shape)
    return np.where(generator.random(shape) < 0.1, ends, x)


class Maker:
    """One random case."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.generator = np.random.default_rng(seed)

    def make(self) -> Case:
        rng = self.rng
        lines = rng.random() < 0.25  # several operands are lines of different lengths: strips are whole lines then
        shape = _shape(rng, lines)
        dtypes = ("f32",) if lines else rng.choices([f for _, f in FAMILIES], [w for w, _ in FAMILIES])[0]
        count = rng.randint(2, 5) if lines else rng.choices(range(7), (2, 6, 7, 5, 3, 1, 1))[0]
        shapes = [_pattern(rng, shape, lines) for _ in range(count)]
        if not shapes or rng.random() < 0.9:  # otherwise no operand may have the whole shape
            shapes.insert(rng.randint(0, len(shapes)), shape)
        self.kinds = (
            NARROW if all(d not in ("f64", "i64", "u32", "u64") for d in dtypes) and rng.random() < 0.8 else WIDE
        )
        self.case, self.registers = Case(np.broadcast_shapes(*shapes), []), list[Register]()
        for each in shapes:
            dtype = dtypes[0] if rng.random() < 0.5 else rng.choice(dtypes)
            self.case.operands.append(self.operand(each, dtype))
        order = list(range(len(self.case.operands)))
        rng.shuffle(order)
        steps = rng.choices((rng.randint(1, 6), rng.randint(4, 20), rng.randint(20, 70)), (6, 4, 1))[0]
        # Loads are mixed with the steps: their position decides which memory may be reused.
        loads = sorted(rng.choice((0, rng.randint(0, steps))) for _ in order)
        loads[0] = 0
        for step in range(steps + 1):
            while loads and loads[0] <= step:
                loads.pop(0)
                self.load(order.pop())
            if step < steps:
                self.step()
        self.stores()
        return self.case

    def operand(self, shape: tuple[int, ...], dtype: str) -> Operand:
        rng = self.rng
        if dtype in QUANTIZED and rng.random() < 0.4:
            quantization = self.quantization(shape, dtype)
            low, high = _range(dtype, quantization.bits)
            array = self.generator.integers(low, high, shape, endpoint=True).astype(numpy_dtype(dtype))
            return Operand(array, dtype, quantization, rng.choice(("input", "constant")))
        array = _data(rng, self.generator, shape, dtype)
        whole = dtype in ("f32", "f64") and bool(np.all(np.isfinite(array)))
        sources, weights = ["input", "constant"], [8, 3 if array.size == 1 else 1]
        if array.ndim > 1 and array.size:
            sources, weights = [*sources, "transposed", "sliced"], [*weights, 1, 1]
        if (
            dtype in ("f32", "f64", "i32", "i64") and array.size
        ):  # a value whose last use is here, so the map may reuse its memory
            sources, weights = [*sources, "negated"], [*weights, 2]
        if (
            dtype == "f32" and whole and array.size and 2 <= array.ndim <= 4
        ):  # a heavy op that may take the map as its epilogue
            sources, weights = [*sources, "product" if array.ndim < 4 or rng.random() < 0.4 else "conv"], [*weights, 1]
        source = rng.choices(sources, weights)[0]
        if source == "product":
            a, b = self.small(*shape[:-1], 3), self.small(3, shape[-1])
            return Operand(a @ b, dtype, None, source, (a, b))
        if source == "conv":
            a, b = self.small(shape[0], 2, *shape[2:]), self.small(shape[1], 2, 1, 1)
            return Operand(np.einsum("nihw,oi->nohw", a, b[:, :, 0, 0]), dtype, None, source, (a, b))
        return Operand(array, dtype, None, source)

    def small(self, *shape: int) -> Array:
        return self.generator.integers(-4, 5, shape).astype(np.float32)

    def quantization(self, shape: tuple[int, ...], dtype: str) -> Quantization:
        rng, g = self.rng, self.generator
        axes = [i for i, d in enumerate(shape) if d > 0]
        axis = rng.choice(axes) if axes and rng.random() < 0.5 else None
        bits = 4 if dtype in ("i8", "u8") and rng.random() < 0.1 else 0
        count = 1 if axis is None else shape[axis]
        low, high = _range(dtype, bits)
        zero = (
            g.integers(low, high, count, endpoint=True)
            if rng.random() < 0.3
            else np.full(count, rng.randint(low, high))
        )
        scale = np.exp(g.uniform(-6, 0, count)).astype(np.float32)
        return Quantization(scale, zero.astype(np.int32), axis, bits or numpy_dtype(dtype).itemsize * 8)

    # ---- instructions

    def add(self, instruction: Instruction, array: Array, error: float = 0.0) -> None:
        register = self.case.program.add(instruction)
        if register == len(self.registers):  # otherwise it is a constant
            self.registers.append(Register(instruction.result, array, error))

    def load(self, number: int) -> None:
        operand = self.case.operands[number]
        if operand.quantization is not None and self.rng.random() < 0.8:
            scale, zero = _along(operand.quantization, operand.array.ndim)
            array = (operand.array.astype(np.int64) - zero).astype(np.float32) * scale
            self.add(Instruction("load_dequantized", "f32", operand=number), array)
            return
        wide = {"f64": "f64", "i64": "i64", "u32": "i64", "u64": "i64", "f32": "f32", "f16": "f32", "bf16": "f32"}
        kind = wide.get(operand.dtype, "i32")
        if self.rng.random() < 0.12:
            kind = self.rng.choice([k for k in self.kinds if (operand.dtype, k) != ("u32", "i32")])
        self.add(Instruction("load", kind, operand=number), loaded(operand.array, operand.dtype, kind))

    def pick(self, kind: str | None = None, exact: bool = True) -> int | None:
        """Picks a register of the kind, preferring recent ones."""
        fitting = [
            i for i, r in enumerate(self.registers) if kind in (None, r.kind) and not (exact and r.error)
        ]  # fmt: skip
        if not fitting:
            return None
        return fitting[-1 - min(int(self.rng.expovariate(0.4)), len(fitting) - 1)]

    def constant(self, kind: str) -> int:
        rng = self.rng
        if kind in ("f32", "f64"):
            number = float(np.float32(rng.choice((0.0, 1.0, -2.0, 0.5, rng.uniform(-4, 4), rng.choice(SPECIAL)))))
        else:
            width = 31 if kind == "i32" else 63
            number = rng.choice((0, 1, -1, 2, rng.randint(-9, 70), -(1 << width), (1 << width) - 1))
        self.add(Instruction("const", kind, number=number), np.array(number, KINDS[kind]))
        register: int = self.case.program.add(Instruction("const", kind, number=number))
        return register

    def second(self, kind: str) -> int:
        chosen = self.pick(kind) if self.rng.random() < 0.85 else None
        return self.constant(kind) if chosen is None else chosen

    def step(self) -> None:
        rng, chance = self.rng, self.rng.random()
        if chance < 0.03 and self.case.shape:
            axis, kind = rng.randrange(len(self.case.shape)), rng.choice(self.kinds)
            steps = np.arange(self.case.shape[axis]).reshape(
                [-1 if i == axis else 1 for i in range(len(self.case.shape))]
            )
            return self.add(Instruction("iota", kind, operand=axis), steps.astype(KINDS[kind]))
        a = self.pick()
        if a is None:
            return None
        r = self.registers[a]
        real = r.kind in ("f32", "f64")
        if chance < 0.08:
            kind = rng.choice([k for k in self.kinds if k != r.kind])
            return self.add(Instruction("cast", kind, (a,)), cast(r.array, r.kind, kind))
        if chance < 0.14 and (condition := self.pick("i32")) is not None:
            registers = (condition, a, self.second(r.kind))
            return self.apply("select", r.kind, registers)
        if chance < 0.17 and r.kind == "i32":
            multiplier, shift = rng.randint(1 << 30, (1 << 31) - 1), rng.randint(-30, 31)
            single = rng.random() < 0.5
            opcode = "fixed_multiply_single" if single else "fixed_multiply"
            array = fixed_multiply(r.array, multiplier, shift, single)
            return self.add(Instruction(opcode, "i32", (a,), extra=(multiplier, shift)), array)
        if chance < 0.19 and r.kind == "i32" and len(self.case.operands) < 20:
            dtype = rng.choice(("f32", "i8", "i32", "f16"))
            table = _data(rng, self.generator, (rng.choice(SIZES[:20]),), dtype)
            self.case.operands.append(Operand(table, dtype, None, rng.choice(("input", "constant"))))
            kind = "f32" if dtype in ("f32", "f16") else "i32"
            values = loaded(table, dtype, kind)[np.clip(r.array, 0, len(table) - 1)]
            return self.add(Instruction("table", kind, (a,), operand=len(self.case.operands) - 1), values)
        if chance < 0.26 and real:
            opcode = rng.choice(tuple(ROUGH))
            registers = (a, self.second(r.kind)) if OPCODES[opcode][1] == 2 else (a,)
            return self.apply(opcode, r.kind, registers, ULP[r.kind])
        if chance < 0.42:
            return self.apply(rng.choice(UNARY_FLOAT if real else UNARY_INT), r.kind, (a,))
        opcode = rng.choice(BINARY_FLOAT if real else BINARY_INT)
        registers = (a, self.second(r.kind))
        return self.apply(opcode, r.kind, registers if rng.random() < 0.5 else registers[::-1])

    def apply(self, opcode: str, kind: str, registers: tuple[int, ...], error: float = 0.0) -> None:
        arrays = [self.registers[r].array for r in registers]
        array = computed(opcode, kind, arrays)
        assert array.dtype == (np.int32 if opcode in COMPARISONS else KINDS[kind]), (opcode, kind, array.dtype)
        self.add(Instruction(opcode, kind, registers), array, error)

    def stores(self) -> None:
        rng, shape = self.rng, self.case.shape
        last = len(self.registers) - 1
        chosen = [last] + [rng.randrange(last + 1) for _ in range(rng.choices((0, 1, 2), (6, 3, 1))[0])]
        # A table that is never read would be an ordinary operand.
        needed, pending = set[int](), list(chosen)
        while pending:
            needed.add(register := pending.pop())
            pending += self.case.program.code[register].args
        code = self.case.program.code
        chosen += [r for r, i in enumerate(code) if i.opcode == "table" and r not in needed]
        for number in dict.fromkeys(chosen):
            register = self.registers[number]
            array = np.broadcast_to(register.array, shape)
            if register.error:
                dtype = register.kind
                made = Result(array, dtype, register.error)
            elif register.kind == "f32" and rng.random() < 0.12:
                dtype = rng.choice(QUANTIZED)
                q = self.quantization(shape, dtype)
                scale, zero = _along(q, len(shape))
                values = quantized(array, scale, zero, *_range(dtype, q.bits)).astype(numpy_dtype(dtype))
                made = Result(values, dtype, 0.0, q)
            else:
                dtype = register.kind if rng.random() < 0.6 else self.memory_type(register.kind)
                made = Result(stored(array, register.kind, dtype), dtype, 0.0)
            self.case.program.stores.append(Store(number, made.quantization is not None))
            self.case.results.append(made)

    def memory_type(self, kind: str) -> str:
        # f16 and bf16 of large i64 numbers would be rounded twice here.
        return self.rng.choice([d for d in ALL if kind != "i64" or d not in ("f16", "bf16")])


def _range(dtype: str, bits: int) -> tuple[int, int]:
    bits = bits or numpy_dtype(dtype).itemsize * 8
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype[0] == "i" else (0, (1 << bits) - 1)


def _along(q: Quantization, rank: int) -> tuple[Array, Array]:
    """Scale and zero point, broadcast against their tensor."""
    dims = [-1 if i == q.axis else 1 for i in range(rank)] if q.axis is not None else []
    return q.scale.reshape(dims), q.zero.reshape(dims).astype(np.int64)


def case_of(seed: int) -> Case:
    with np.errstate(all="ignore"):
        return Maker(seed).make()


def described(case: Case) -> dict[str, Any]:
    """Describes the case, for reports."""
    return {
        "shape": case.shape,
        "operands": [(o.array.shape, o.dtype, o.source) for o in case.operands],
        "program": [(i.opcode, i.kind, i.args, i.number or i.operand) for i in case.program.code],
        "results": [(r.dtype, r.error, case.program.stores[n].register) for n, r in enumerate(case.results)],
    }


assert set(EXACT) | set(ROUGH) >= {*UNARY_FLOAT, *UNARY_INT, *BINARY_FLOAT, *BINARY_INT}
