"""Interval arithmetic over a float graph (Moore 1966): bounds of a tensor's values from those of its operands. Without
calibration, it finds what f16 may be unable to hold: unbounded squares, powers, exponentials and sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from linnet._generated.op_table import OPCODES
from linnet.ir import traits
from linnet.ir.function import Function, Node, Tensor

Interval = tuple[float, float]
_ALL: Interval = (-math.inf, math.inf)
_NAMES = {row[0]: name for name, row in OPCODES.items()}
_GROWS = ("pow", "exp", "expm1", "sinh", "cosh")  # opcodes whose results leave f16 for operands that do not
_SUMS = ("sum", "sum_square", "prod", "l1")
_BETWEEN = {
    "tanh": (-1.0, 1.0), "sigmoid": (0.0, 1.0), "erf": (-1.0, 1.0), "sin": (-1.0, 1.0), "cos": (-1.0, 1.0), "sign": (-1.0, 1.0),
    "eq": (0.0, 1.0), "ne": (0.0, 1.0), "lt": (0.0, 1.0), "le": (0.0, 1.0), "gt": (0.0, 1.0), "ge": (0.0, 1.0),
    "atan": (-1.6, 1.6), "is_nan": (0.0, 1.0), "is_inf": (0.0, 1.0),
}  # fmt: skip
_RISES: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "sqrt": lambda v: math.sqrt(max(v, 0.0)),
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
}


def may_overflow(function: Function, largest: float) -> set[Tensor]:
    """The f32 tensors that grow fast (squares, powers, exponentials, sums of many) and for which no bound below `largest` is
    known. Other tensors without a bound are left to calibration."""
    bounds: dict[Tensor, Interval] = {}
    found: set[Tensor] = set()
    for node in function.nodes:
        made, grows = _node(node, [_of(t, bounds) for t in node.inputs])
        for tensor, interval in zip(node.outputs, made, strict=True):
            bounds[tensor] = interval
        for tensor, risky in zip(node.outputs, grows, strict=True):
            low, high = bounds[tensor]
            if risky and tensor.dtype == "f32" and not max(-low, high) <= largest:
                found.add(tensor)
    return found


def _of(tensor: Tensor | None, bounds: dict[Tensor, Interval]) -> Interval:
    if tensor is None:
        return _ALL
    if tensor.data is not None and tensor.dtype != "bf16" and tensor.data.size and tensor.quantization is None:
        low, high = float(np.min(tensor.data)), float(np.max(tensor.data))
        return _ALL if math.isnan(low) or math.isnan(high) else (low, high)
    return bounds.get(tensor, _ALL)


def _node(node: Node, given: Sequence[Interval]) -> tuple[list[Interval], list[bool]]:
    """The intervals of a node's outputs, and which of them grow fast."""
    count = len(node.outputs)
    if node.op == "map":
        return _map(node, given)
    if node.op in traits.COPIES:
        low, high = given[0]
        if node.attributes.get("kind") in ("concat", "pad"):
            ends = [g for g, t in zip(given, node.inputs, strict=True) if t is not None and t.dtype == "f32"]
            low, high = min([0.0, *(a for a, _ in ends)]), max([0.0, *(b for _, b in ends)])
        return [(low, high)] * count, [False] * count
    if node.op == "reduce":
        kind = str(node.attribute("kind"))
        within = given[0] if kind in ("mean", "max", "min") else _ALL
        size, made = node.inputs[0].static_shape if node.inputs[0] is not None else None, node.outputs[0].static_shape
        if kind == "sum" and size is not None and made is not None:
            terms = math.prod(size) / max(1, math.prod(made))
            within = _product(given[0], (terms, terms))
        return [within] * count, [kind in _SUMS] * count
    if node.op in traits.PRODUCTS:
        return [_weighted(node, given)] * count, [False] * count
    if node.op == "softmax":
        return [_ALL if node.attribute("log") else (0.0, 1.0)] * count, [False] * count
    return [_ALL] * count, [False] * count


def _weighted(node: Node, given: Sequence[Interval]) -> Interval:
    """The interval of a product with constant weights. Its bound is the largest input times the sum of the weights'
    absolute values."""
    w = node.inputs[1]
    peak = max(-given[0][0], given[0][1])
    if w is None or w.data is None or w.dtype != "f32" or not math.isfinite(peak):
        return _ALL
    axis = traits.weight_axis(node.op, node.attributes, w.data.ndim)
    rest = tuple(i for i in range(w.data.ndim) if i != axis)
    bias = max(-given[2][0], given[2][1]) if len(given) > 2 and node.inputs[2] is not None else 0.0
    most = (
        float(np.abs(w.data).astype(np.float64).sum(axis=rest if axis is not None else None).max(initial=0.0)) * peak
        + bias
    )
    return (-most, most)


def _product(a: Interval, b: Interval) -> Interval:
    ends = [0.0 if 0.0 in (x, y) else x * y for x in a for y in b]
    return min(ends), max(ends)


def _map(node: Node, given: Sequence[Interval]) -> tuple[list[Interval], list[bool]]:
    """Evaluates the program of a map in intervals. An opcode without a rule gives no bound."""
    words = node.attributes["program"]
    floats = list(node.attributes.get("floats", ()))
    registers: list[Interval] = []
    fast: list[bool] = []  # whether a register's value grew fast and was not bounded again
    made, grows = [_ALL] * len(node.outputs), [False] * len(node.outputs)
    for i in range(0, len(words), 5):
        opcode, kind, a, b, c = words[i : i + 5]
        name = _NAMES[opcode]
        interval, grew = _ALL, False
        arity = OPCODES[name][1]
        operands = [registers[r] for r in (a, b, c)[:arity]] if arity and not name.startswith("store") else []
        if name in ("load", "load_dequantized"):
            interval = given[a]
        elif name == "const":
            interval = (floats[a], floats[a]) if kind == 1 and a < len(floats) else _ALL
        elif name.startswith("store"):
            made[b], grows[b] = registers[a], fast[a]
        elif name in _RULES:
            interval = _RULES[name](*operands)
            if name == "mul" and a == b:
                interval = (0.0, max(operands[0][0] ** 2, operands[0][1] ** 2))
        elif name in _BETWEEN:
            interval = _BETWEEN[name]
        elif name in _RISES:
            interval = _rising(_RISES[name], operands[0])
        if operands:
            carried = (
                any(fast[r] for r in (a, b, c)[:arity])
                and name not in _BETWEEN
                and name not in ("log", "sqrt", "log1p")
            )
            grew = carried or name in _GROWS or (name == "mul" and a == b)
        registers.append(interval)
        fast.append(grew)
    return made, grows


def _rising(function: Callable[[float], float], x: Interval) -> Interval:
    """The interval of the results of a non-decreasing function."""

    def at(value: float) -> float:
        try:
            return float(function(value))
        except (OverflowError, ValueError):
            return math.inf if value > 0 else -math.inf

    return (0.0 if function is math.exp and x[0] == -math.inf else at(x[0]), at(x[1]))


def _select(condition: Interval, a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])


_RULES: dict[str, Callable[..., Interval]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0.0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1])), max(abs(a[0]), abs(a[1]))),
    "select": _select,
    "cast": lambda a: a,
}
