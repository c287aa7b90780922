"""Cases of map, cast, quantize and dequantize: every opcode group, broadcasting, and the conversions of elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from linnet.conformance.case import Case, Operand, const, fed, given, per_axis, per_tensor

SIZES = (1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 257)  # around the tiles 4, 8, 16 and 64, and primes
BROADCASTS = (
    ((5, 7), (7,)),
    ((4, 1, 3), (1, 6, 1)),
    ((2, 3, 5), ()),
    ((1,), (65,)),
    ((3, 1), (3, 17)),
    ((2, 1, 4, 1, 3), (1, 5, 1, 2, 1)),
    ((2, 1, 2, 1, 2, 1, 2, 3), (1, 2, 1, 2, 1, 2, 1, 3)),
)
_UNARY = {
    "normal": "neg abs sign exp tanh sigmoid erf floor ceil round trunc sin cos tan atan sinh cosh asinh expm1",
    "positive": "sqrt log log1p reciprocal",
    "unit": "asin acos atanh",
    "special": "is_nan is_inf neg abs exp tanh sigmoid floor",
}
_BINARY = "add sub mul div min max mod fmod atan2 eq ne lt le gt ge"
_INTEGER = "add sub mul div min max mod fmod and or xor eq ne lt le gt ge"
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "is_nan", "is_inf")


def maps() -> Iterator[Case]:
    """Every opcode with f32, and groups of opcodes with the other dtypes."""
    for values, names in _UNARY.items():
        chunks = [[name] for name in names.split()]
        for opcodes in chunks:
            usual = values == "special" or opcodes[0] in ("exp", "tanh", "sin", "sqrt", "atanh")
            yield _unary("f32", opcodes, values, usual and opcodes[0] in ("exp", "tanh", "is_nan", "sin"))
        for dtype in ("f16", "bf16"):
            yield _unary(dtype, names.split()[:6], values, dtype == "f16" and values == "normal")
    for opcodes in ([name] for name in _BINARY.split()):
        yield _binary("f32", opcodes, "normal", opcodes[0] in ("div", "lt"))
    yield _binary("f32", ["min", "max", "eq", "lt"], "special", True)
    yield _binary("f32", ["pow"], "positive", False)
    yield _binary("f16", _BINARY.split()[:6], "normal", True)
    yield _binary("bf16", _BINARY.split()[:6], "normal", False)
    yield from _integers()
    yield from _others()
    for dtype in ("f32", "f16", "bf16", "i8", "u8", "i16", "i32", "i64"):
        for size in SIZES:
            operands = (fed(dtype, size), fed(dtype, size))
            yield Case("map", dtype, operands, body=_add, dtypes=(dtype,), note="add", usual=dtype in ("f32", "i8"))
        for a, b in BROADCASTS:
            operands = (fed(dtype, *a), fed(dtype, *b))
            yield Case("map", dtype, operands, body=_add, dtypes=(dtype,), note="add", usual=dtype == "f32")


def _add(a: Any, b: Any) -> Any:
    return a + b


def _dtypes(dtype: str, opcodes: list[str]) -> tuple[str, ...]:
    return tuple("bool" if name in _COMPARISONS else dtype for name in opcodes)


def _unary(dtype: str, opcodes: list[str], values: str, usual: bool) -> Case:
    def body(a: Any) -> Any:
        made = tuple(a.unary(name) for name in opcodes)
        return made if len(made) > 1 else made[0]

    return Case(
        "map", dtype, (fed(dtype, 3, 37, values=values),), body=body, dtypes=_dtypes(dtype, opcodes), usual=usual,
        note=" ".join(opcodes) + (f" of {values} values" if values != "normal" else ""),
    )  # fmt: skip


def _binary(dtype: str, opcodes: list[str], values: str, usual: bool, other: str = "") -> Case:
    def body(a: Any, b: Any) -> Any:
        made = tuple(a.binary(name, b) for name in opcodes)
        return made if len(made) > 1 else made[0]

    operands = (fed(dtype, 3, 37, values=values), fed(dtype, 37, values=other or values))
    return Case("map", dtype, operands, body=body, dtypes=_dtypes(dtype, opcodes), usual=usual, note=" ".join(opcodes))


def _integers() -> Iterator[Case]:
    for dtype in ("i32", "i64", "i8", "u8", "i16"):
        names = _INTEGER.split()
        yield _binary(dtype, names[:8], "full", dtype == "i32")
        yield _binary(dtype, names[8:], "full", False)
        yield _binary(dtype, ["shift_left", "shift_right", "shift_right_logical"], "full", dtype == "i32", "0..9")
        yield _unary(dtype, ["neg", "abs", "sign", "not"], "full", dtype == "i64")
    yield _binary("i32", ["pow"], "normal", False, "0..5")
    yield _binary("i32", ["shift_left", "shift_right", "shift_right_logical"], "full", False, "-2..40")
    for dtype in ("i32", "i64"):
        zeros = (fed(dtype, 64, values="full"), fed(dtype, 64, values="-1..2"))
        yield Case(
            "map", dtype, zeros, body=lambda a, b: (a / b, a.binary("mod", b), a.binary("fmod", b)), dtypes=(dtype,) * 3,
            note="div mod fmod by -1, 0 and 1", usual=dtype == "i32",
        )  # fmt: skip
    logic = (fed("bool", 5, 13), fed("bool", 13))
    yield Case(
        "map", "bool", logic, body=lambda a, b: (a & b, a | b, a ^ b, a.eq(0)), dtypes=("bool",) * 4,
        note="and or xor not", usual=True,
    )  # fmt: skip
    for single in (False, True):
        for shift in (-2, 0, 1, 9, 31):
            yield Case(
                "map", "i32", (fed("i32", 67, values="full" if shift > 0 else "normal"),), dtypes=("i32",), usual=shift == 9,
                body=lambda a, s=shift, one=single: a.fixed_multiply(1518500250, s, one),
                note=f"fixed_multiply{'_single' if single else ''} shift {shift}",
            )  # fmt: skip


def _others() -> Iterator[Case]:
    """select, iota, table, immediates, several outputs, and quantized operands."""
    where = (fed("bool", 4, 1, 9), fed("f32", 5, 1), fed("f32", 9))
    yield Case("map", "f32", where, body=lambda c, a, b: c.select(a, b), dtypes=("f32",), note="select", usual=True)
    for axis in (0, 1, 2):
        yield Case(
            "map", "i64", (fed("i64", 3, 5, 7),), body=lambda a, d=axis: a + a.iota(d), dtypes=("i64",),
            note=f"iota axis {axis}", usual=axis == 1,
        )  # fmt: skip
    for dtype in ("f32", "i32"):
        yield Case(
            "map", dtype, (fed("i32", 41, values="-3..20"), const(dtype, 17)), note="table", usual=dtype == "f32"
        )
    yield Case(
        "map", "f32", (fed("f32", 19),), body=lambda a: (a * 2.5, a.exp() + a, a < 0.25), dtypes=("f32", "f16", "bool"),
        note="three outputs", usual=True,
    )  # fmt: skip
    for dtype, scale, zero in (("i8", 0.05, -3), ("u8", 0.04, 120), ("i16", 0.001, 0)):
        operands = (
            fed(dtype, 5, 13, values="full", quantization=per_tensor(scale, zero)),
            fed(dtype, 13, values="full", quantization=per_tensor(scale * 1.5, zero)),
        )
        for note, body in (("add", _add), ("tanh", lambda a, b: (a * b).tanh())):
            yield Case(
                "map", dtype, operands, body=body, quantization=(per_tensor(scale * 0.7, zero),), note=f"quantized {note}",
                dtypes=(dtype,), usual=dtype == "i8",
            )  # fmt: skip


_CASTS = {
    "f32": "f16 bf16 i8 u8 i16 i32 i64 bool",
    "f16": "f32 i8 bf16 i32 bool",
    "bf16": "f32 f16 i32",
    "i8": "f32 i32 u8 f16",
    "u8": "f32 i64 i8",
    "i16": "f32 i8",
    "i32": "f32 i8 u8 i16 i64 f16 bool",
    "i64": "f32 i8 i32 bf16",
    "bool": "f32 i8 i64",
}


def casts() -> Iterator[Case]:
    for source, targets in _CASTS.items():
        for target in targets.split():
            usual = (source, target) in (("f32", "f16"), ("f32", "i8"), ("i32", "i8"))
            values = "full" if source.startswith(("i", "u")) else "special" if source != "bool" else "normal"
            for size in (1, 17, 64, 67):
                yield Case("cast", source, (fed(source, size, values=values),), {"dtype": target}, usual=usual)
            if source == "f32":
                wide = given([0, 0.5, -0.5, 1.5, 2.5, 127.5, 128, -129, 255.9, 256, 3e4, 7e4, 1e5, -1e5, 3e9, -3e9, 1e19],
                             "f32", constant=False)  # fmt: skip
                yield Case("cast", source, (wide,), {"dtype": target}, usual=usual, note="at the limits")


_GRIDS = (("i8", 0.05, -3), ("u8", 0.04, 120), ("i16", 0.0007, 0))


def quantizations() -> Iterator[Case]:
    for dtype, scale, zero in _GRIDS:
        usual = dtype == "i8"
        steps = np.arange(-40, 41) * 0.5 * np.float32(scale)  # halves of a step: rounding to even
        for x in (fed("f32", 67, values="special"), given(steps, "f32", constant=False)):
            yield Case("quantize", dtype, (x,), {"dtype": dtype}, quantization=(per_tensor(scale, zero),), usual=usual)
        for shape, axis in (((5, 7), 1), ((3, 4, 9), 0), ((2, 17, 5), 1), ((64, 3), 0)):
            q = per_axis(shape[axis], axis, scale, zeros=dtype != "i16")
            yield Case("quantize", dtype, (fed("f32", *shape),), {"dtype": dtype, "axis": axis}, quantization=(q,),
                       usual=usual, note="per channel")  # fmt: skip
        scales = Operand("f32", (7,), "positive")
        yield Case("quantize", dtype, (fed("f32", 5, 7), scales, const(dtype, 7, values="-3..4" if dtype != "u8" else "0..9")),
                   {"dtype": dtype, "axis": 1}, note="scales are operands")  # fmt: skip


def dequantizations() -> Iterator[Case]:
    for dtype, scale, zero in _GRIDS:
        for size in (1, 17, 64, 67):
            x = fed(dtype, size, values="full", quantization=per_tensor(scale, zero))
            yield Case("dequantize", dtype, (x,), usual=dtype == "i8")
        for shape, axis in (((5, 7), 1), ((3, 4, 9), 0), ((2, 17, 5), 1), ((64, 3), 0)):
            q = per_axis(shape[axis], axis, scale, zeros=dtype != "i16")
            x = fed(dtype, *shape, values="full", quantization=q)
            yield Case("dequantize", dtype, (x,), {"axis": axis}, usual=dtype == "i8")
        x = fed(dtype, 19, values="full", quantization=per_tensor(scale, zero))
        yield Case("dequantize", dtype, (x,), {"dtype": "f16"})
    sums = fed("i32", 33, values="full", quantization=per_tensor(0.001))
    yield Case("dequantize", "i32", (sums,), usual=True)
