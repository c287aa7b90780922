"""Scales, zero points and clamps of quantized ONNX models as numbers, and conversions of constants with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.builder.mapping import program_of
from linnet.ir.dtypes import Quantization, numpy_dtype
from linnet.ir.function import Node, Tensor
from linnet.ir.program import Instruction, Program, Store

Array = npt.NDArray[Any]
LIMITS = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767)}


def parameters(node: Node) -> Quantization | None:
    """The parameters of a quantize or dequantize node if they are constant. None if they are computed, per block or
    invalid."""
    if node.attribute("block"):
        return None
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    integers = node.inputs[0] if node.op == "dequantize" else node.outputs[0]
    if scale is None:
        return integers.quantization if integers is not None else None
    if scale.data is None or scale.dtype != "f32" or (zero is not None and zero.data is None):
        return None
    scales = np.asarray(scale.data, np.float32).reshape(-1)
    zeros = np.zeros(scales.size, np.int32) if zero is None or zero.data is None else zero.data.reshape(-1)
    if zeros.size not in (1, scales.size) or scales.size == 0 or not np.all(np.isfinite(scales) & (scales > 0)):
        return None
    zeros = np.broadcast_to(zeros.astype(np.int32), scales.shape).copy()
    bits = 16 if integers is not None and integers.dtype in ("i16", "u16") else 8
    if scale.rank == 0 or scales.size == 1:
        return Quantization(scales, zeros, None, bits)
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    axis = int(node.attribute("axis"))
    if shape is None or not -len(shape) <= axis < len(shape) or shape[axis] != scales.size:
        return None
    return Quantization(scales, zeros, axis % len(shape), bits)


def same(a: Quantization, b: Quantization) -> bool:
    return a.axis == b.axis and np.array_equal(a.scale, b.scale) and np.array_equal(a.zero, b.zero)


def whole_window(node: Node, x: Tensor) -> list[int] | None:
    """The axes of an average pool whose single window covers all of x; None for other pools."""
    rank, kernel = x.rank, list(node.attribute("kernel"))
    if rank is None or x.shape is None or any(node.attribute("pads")) or rank != len(kernel) + 2:
        return None
    first = 2 if node.attribute("channel_axis") == 1 else 1
    axes = list(range(first, first + len(kernel)))
    covered = [x.shape[axis] for axis in axes] == kernel and not any(d != 1 for d in node.attribute("dilations"))
    return axes if covered and node.attribute("auto_pad") in ("explicit", "valid") else None


def _along(values: Array, axis: int | None, rank: int) -> Array:
    if axis is None:
        return values.reshape(-1)[:1].reshape([1] * rank)
    shape: list[int] = [-1 if i == axis else 1 for i in range(rank)]
    return np.asarray(values.reshape(shape))


def dequantized(data: Array, q: Quantization) -> Array:
    """(stored - zero) * scale in f32, as ONNX DequantizeLinear."""
    difference = data.astype(np.int64) - _along(q.zero, q.axis, data.ndim)
    return np.asarray(difference.astype(np.float32) * _along(q.scale, q.axis, data.ndim), np.float32)


def quantized(data: Array, q: Quantization, dtype: str) -> Array:
    """saturate(round_half_even(x / scale) + zero), as ONNX QuantizeLinear."""
    low, high = LIMITS[dtype]
    steps = np.rint(data.astype(np.float32) / _along(q.scale, q.axis, data.ndim))
    stored = np.clip(steps + _along(q.zero, q.axis, data.ndim), low, high)
    return np.asarray(stored, numpy_dtype(dtype))


def exactly(value: float, q: Quantization, dtype: str) -> int | None:
    """The stored integer that represents a number exactly, or None."""
    number = float(np.rint(np.float32(value) / q.scale[0])) + float(q.zero[0])
    low, high = LIMITS.get(dtype, (0, -1))
    if not low <= number <= high or np.float32((number - float(q.zero[0])) * float(q.scale[0])) != np.float32(value):
        return None
    return int(number)


def signed(w: Tensor) -> Tensor:
    """Converts constant u8 weights to i8 with a zero point that is lower by 128. The differences stay the same, so i8
    kernels can be used."""
    if w.dtype != "u8" or w.data is None or w.quantization is None:
        return w
    q = w.quantization
    shifted = (w.data ^ np.uint8(128)).view(np.int8)
    return w.function.constant(shifted, w.name, "i8", Quantization(q.scale, q.zero - np.int32(128), q.axis, q.bits))


def saturates(limits: tuple[float, float], q: Quantization, dtype: str) -> bool:
    """Whether the stored range already saturates at the limits of the clamp. Comparing the limits is enough, because
    rounding is monotonic."""
    low, high = LIMITS[dtype]
    with np.errstate(over="ignore"):
        least, most = (np.rint(np.float32(v) / q.scale[0]) + q.zero[0] for v in limits)
    return bool(least <= low and most >= high)


def clamp_limits(node: Node) -> tuple[float, float] | None:
    """(low, high) of a map that only clamps its single f32 input; None for any other node."""
    if node.op != "map" or len(node.inputs) != 1 or len(node.outputs) != 1 or node.outputs[0].dtype != "f32":
        return None
    program = program_of(node)
    assert program is not None
    known: dict[int, tuple[float, float]] = {}
    for register, (opcode, kind, args, _, _, _) in enumerate(program.code):
        if opcode == "const":
            continue
        if opcode == "load" and kind == "f32":
            known[register] = (-np.inf, np.inf)
            continue
        if opcode not in ("min", "max"):
            return None
        value, other = args if args[0] in known else args[::-1]
        if value not in known or program.code[other].opcode != "const":
            return None
        limit = program.code[other].number
        pick = max if opcode == "max" else min
        low, high = known[value]
        known[register] = pick(low, limit), pick(high, limit)
    return known.get(program.stores[0].register)


def identity(load: bool = False, store: bool = False) -> Program:
    """A program that copies a value, and dequantizes it when it loads it or quantizes it when it stores it."""
    program = Program()
    register = program.add(Instruction("load_dequantized" if load else "load", "f32"))
    program.stores = [Store(register, store)]
    return program
