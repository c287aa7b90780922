"""Determines whether every size inside a graph only grows with the sizes of its inputs. If so, a plan of the largest
inputs has room for any smaller ones. The graph alone decides this, so any part of it that is not understood counts as
an obstacle."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

from linnet._generated.op_table import OPS
from linnet.clib.errors import GraphError
from linnet.ir import symbolic, traits
from linnet.ir.dtypes import Dim
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.graph import Graph
from linnet.ir.program import Program

# A quantity is a number, a word, or None. A word names a value that never falls when an input grows. Equal words mean
# equal values. Only words that begin with _SIGNED may be negative. None means that the value may change in any way.
Quantity = float | int | str | None
_SIGNED = "~"

_KEEP = ("add", "mul", "max", "min")
_ROUND = ("cast", "floor", "ceil", "round", "trunc")
_FAR = 1 << 31


def obstacle(graph: Graph, signature: str, open_names: Collection[str] = ()) -> str:
    """Why a size in the signature's function may be larger for smaller inputs, or "" if none can. open_names: names of
    dimensions that may have several sizes."""
    walk = _Walk(set(open_names))
    function = graph.signatures[signature].function
    return walk.function(function, [None] * len(function.inputs))


class _Walk:
    def __init__(self, open_names: set[str]) -> None:
        self.open_names = open_names
        self.known: dict[int, Tensor] = {}  # tensors with the known facts about their sizes and elements
        self.values: dict[int, tuple[Quantity, ...]] = {}
        self.words = 0

    def word(self, signed: bool = False) -> str:
        """A new word, a symbol for a quantity that only grows when inputs grow."""
        self.words += 1
        return f"{_SIGNED if signed else ' '}{self.words}"

    def shadow(self, tensor: Tensor) -> Tensor:
        """A copy of the tensor in which a word stands for every unknown size."""
        if id(tensor) not in self.known:
            shape = tensor.shape
            if shape is not None:
                carried = self._carried(tensor.node, len(shape)) if None in shape else (None,) * len(shape)
                shape = tuple(
                    (same or self.word()) if d is None or d in self.open_names else d
                    for d, same in zip(shape, carried, strict=True)
                )
            self.known[id(tensor)] = dataclasses.replace(tensor, shape=shape, node=None)
        return self.known[id(tensor)]

    def _carried(self, node: Node | None, rank: int) -> tuple[Dim, ...]:
        """For each size of the node's first output: the size of an input if it is the same, else None."""
        unknown: tuple[Dim, ...] = (None,) * rank
        if node is None or not node.inputs or node.inputs[0] is None or id(node.outputs[0]) in self.known:
            return unknown
        shape = self.shadow(node.inputs[0]).shape
        if shape is None or len(shape) != rank:
            return unknown
        carries = OPS[node.op]["carries"]
        if carries == "batch":
            return (shape[0], *unknown[1:])
        if node.op == "copy" and node.attribute("kind") == "transpose":
            return tuple(shape[p] for p in node.attribute("perm") or range(rank)[::-1])
        if carries == "all":
            # Only if no other operand affects the shape.
            others = [() if t is None else t.shape for t in node.inputs[1:]]
            if any(other is None or len(other) > rank for other in others):
                return unknown
            padded = [(1,) * (rank - len(other)) + other for other in others if other is not None]
            return tuple(d if all(other[i] == 1 for other in padded) else None for i, d in enumerate(shape))
        return unknown

    def elements(self, tensor: Tensor | None) -> tuple[Quantity, ...] | None:
        """What is known about each element of a small tensor, or None if not even the number of elements is known."""
        if tensor is None:
            return None
        if tensor.data is not None and tensor.dtype != "bf16":
            return tuple(tensor.data.reshape(-1).tolist()) if tensor.data.size <= symbolic.LONGEST else None
        return self.values.get(id(tensor))

    def sizes(self, tensor: Tensor | None) -> tuple[Quantity, ...] | None:
        """Like `elements`, for values that are used as sizes. A value that may be negative counts as unknown."""
        values = self.elements(tensor)
        return None if values is None else tuple(None if _signed(v) else v for v in values)

    def function(self, function: Function, arguments: Sequence[tuple[Quantity, ...] | None]) -> str:
        for tensor, values in zip(function.inputs, arguments, strict=False):
            if values is not None:
                self.values[id(tensor)] = values
        for node in function.nodes:
            if node.op == "call":
                callee = node.attribute("callee")
                reason = self.function(callee, [self.elements(t) for t in node.inputs])
                for inner, outer in zip(callee.outputs, node.outputs, strict=False):
                    values = self.elements(inner)
                    if values is not None:
                        self.values[id(outer)] = values
            else:
                reason = self.node(node)
            if reason:
                return reason
        return ""

    def node(self, node: Node) -> str:
        reason = self._rule(node)
        if reason:
            name = node.name or (node.outputs[0].name if node.outputs else "")
            return f"{node.op} {name!r}: {reason}"
        values = self._made(node)
        if values is not None:
            self.values[id(node.outputs[0])] = values
        return ""

    def _rule(self, node: Node) -> str:
        """Why an output may shrink when an input grows, or "" if it cannot."""
        if any(t.shape is None for t in node.outputs):
            return "its rank is unknown"
        bound = OPS[node.op]["bound"]
        if all(t.static_shape is not None for t in node.outputs) and bound != "data":
            return ""
        kernels = [node.inputs[i] for i in traits.operands(node.op, "shrinks")]
        if any(kernel is None or kernel.static_shape is None for kernel in kernels):
            return "its kernel may grow, which makes the output smaller"
        if bound == "grows":
            return ""
        if node.op == "copy":
            return self._copy(node)
        if bound == "data":
            return "the shape of its output depends on data"
        if node.op == "resize" and node.attribute("aspect") != "stretch":
            return "it keeps the aspect ratio"
        if node.op == "range":
            parts = [self.elements(t) for t in node.inputs]
            start, limit, step = (p[0] if p else None for p in parts)
            plain = isinstance(start, int | float) and isinstance(step, int | float) and step > 0 and limit is not None
            return "" if plain else "its length is not known to grow with the input"
        return self._grows(node, traits.decides(node.op, len(node.inputs)))

    def _grows(self, node: Node, operands: Sequence[int]) -> str:
        """Checks that operands used as sizes only grow, and that operands used as positions are constant."""
        places = node.op == "reduce" or (node.op == "copy" and node.attribute("kind") in ("squeeze", "unsqueeze"))
        for i in operands:
            operand = node.inputs[i] if i < len(node.inputs) else None
            if operand is None or operand.data is not None:
                continue
            values = self.sizes(operand)
            numbers_only = places or (node.op == "resize" and i == 3)
            if values is None or None in values or (numbers_only and any(isinstance(v, str) for v in values)):
                return f"{operand.name!r} may have any value"
        return ""

    def _copy(self, node: Node) -> str:
        kind = node.attribute("kind")
        if kind == "reshape":
            return self._reshape(node)
        if kind == "slice":
            return self._slice(node)
        if kind == "squeeze" and not node.attribute("axes") and len(node.inputs) < 2:
            return "it removes whichever dimensions have size 1"
        if kind == "split" and len(node.inputs) < 2 and not node.attribute("shape"):
            return "it splits into a number of parts, and the last may shrink"
        return "" if kind == "concat" else self._grows(node, range(1, len(node.inputs)))

    def _reshape(self, node: Node) -> str:
        x = self.shadow(node.inputs[0]) if node.inputs[0] is not None else None
        second = node.inputs[1] if len(node.inputs) > 1 else None
        wanted = self.sizes(second) if second is not None else tuple(node.attribute("shape"))
        if x is None or x.shape is None or wanted is None or None in wanted:
            return "its shape operand is unknown"
        dims: list[Any] = [
            x.shape[i] if d == 0 and not node.attribute("allow_zero") and i < len(x.shape) else d
            for i, d in enumerate(wanted)
        ]
        if -1 in dims:
            left: list[Dim] = list(x.shape)
            for d in dims:
                if isinstance(d, str) and d not in left:
                    return "the size for -1 is computed by dividing by a size that grows"
                if isinstance(d, str):
                    left.remove(d)
            # Dividing by a plain number keeps the result growing. What remains is one quantity or an unchanged name.
            numbers = [math.prod(d for d in ds if isinstance(d, int) and d != -1) for ds in (left, dims)]
            words = [d for d in left if isinstance(d, str)]
            rest: Dim = words[0] if len(words) == 1 and numbers[0] == numbers[1] else self.word()
            if not words and numbers[1] > 0:
                rest = numbers[0] // numbers[1]
            dims[dims.index(-1)] = rest
        shape = tuple(d if isinstance(d, str) else int(d) for d in dims)
        self.known[id(node.outputs[0])] = dataclasses.replace(node.outputs[0], shape=shape, node=None)
        return ""

    def _slice(self, node: Node) -> str:
        x = self.shadow(node.inputs[0]) if node.inputs[0] is not None else None
        parts: list[tuple[Quantity, ...] | None] = [
            tuple(node.attribute(n)) for n in ("starts", "ends", "axes", "steps")
        ]
        for i, operand in enumerate(node.inputs[1:5]):
            if operand is not None:
                parts[i] = self.sizes(operand)
        starts, ends, axes, steps = parts
        if x is None or x.shape is None or None in (starts, ends, axes, steps):
            return "its start and end are unknown"
        assert starts is not None and ends is not None and axes is not None and steps is not None
        for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
            axis, step = axes[i] if axes else i, steps[i] if steps else 1
            if not isinstance(axis, int) or not isinstance(step, int):
                return "its axes or steps are unknown"
            if not isinstance(x.shape[axis], int) and not _cut_grows(start, end, step):
                return f"the part it takes of axis {axis} may shrink"
            numbers = isinstance(start, int) and (isinstance(end, int) or (isinstance(end, str) and step > 0))
            if isinstance(x.shape[axis], int) and not numbers:
                return f"the part it takes of axis {axis} may shrink"
        return ""

    def _made(self, node: Node) -> tuple[Quantity, ...] | None:
        """What is known about the elements of the node's first output."""
        if not node.outputs:
            return None
        out = node.outputs[0]
        if node.op == "shape" and node.inputs[0] is not None:
            shape = self.shadow(node.inputs[0]).shape
            return None if shape is None else shape[node.attribute("start") : node.attribute("end")]
        if node.op == "map":
            return self._map(node)
        if node.op == "cast":
            return self.elements(node.inputs[0])
        if node.op == "reduce" and node.attribute("kind") in ("prod", "sum", "max", "min"):
            values = self.elements(node.inputs[0])
            return (self._all(values),) if values is not None and out.shape in ((), (1,)) else None
        if node.op not in symbolic.ELEMENTS or out.dtype not in ("i32", "i64", "f32"):
            return None
        # The rules for partly known vectors do not look inside an element.
        inputs: list[Tensor | None] = []
        for t in node.inputs:
            if t is None:
                inputs.append(None)
                continue
            elements: Any = self.elements(t)
            inputs.append(dataclasses.replace(t, dtype="i64", data=None, elements=elements, node=None))
        if node.op == "gather" and len(node.inputs) > 1:
            inputs[1] = node.inputs[1]
        attributes = {
            name: node.attribute(name) for name in ("kind", "axis", "starts", "ends", "steps") if name in _names(node)
        }
        return symbolic.elements(node.op, inputs, attributes, ("i64", out.shape))

    def _all(self, values: Sequence[Quantity]) -> Quantity:
        """Combines some quantities: their sum, product or extreme."""
        return self.word() if all(_positive(v) for v in values) else None

    def _map(self, node: Node) -> tuple[Quantity, ...] | None:
        shape = node.outputs[0].static_shape
        count = math.prod(shape) if shape is not None else 0
        inputs = [self.elements(t) for t in node.inputs]
        if not 0 < count <= symbolic.LONGEST or len(node.outputs) != 1 or any(v is None for v in inputs):
            return None
        if any(v is not None and len(v) not in (1, count) for v in inputs):
            return None
        try:
            program = Program.decode({n: node.attribute(n) for n in ("program", "floats", "integers", "dtypes")})
        except GraphError:
            return None
        made: list[Quantity] = []
        for k in range(count):
            registers: list[Quantity] = []
            for code in program.code:
                args = [registers[r] for r in code.args]
                if code.opcode == "load":
                    values = inputs[code.operand]
                    registers.append(values[k if len(values) > 1 else 0] if values is not None else None)
                else:
                    registers.append(code.number if code.opcode == "const" else self._step(code.opcode, args))
            made.append(registers[program.stores[0].register])
        return tuple(made)

    def _step(self, opcode: str, args: Sequence[Quantity]) -> Quantity:
        """The result of an instruction applied to quantities."""
        if None in args:
            return None
        a, b = (*args, None)[:2]
        signed = any(not _positive(v) for v in args)
        if opcode in _ROUND:
            return a if opcode == "cast" and isinstance(a, str) else self.word(signed)
        if opcode in _KEEP:
            neutral = {"add": 0, "mul": 1}.get(opcode)
            if b == neutral or a == neutral:
                return a if b == neutral else b
            if opcode == "mul" and signed and not any(isinstance(v, int | float) and v >= 0 for v in args):
                return None  # both factors may be negative, or the number is negative
            return self.word(signed and not (opcode == "max" and any(_positive(v) for v in args)))
        if opcode == "sub" and isinstance(b, int | float):
            return a if b == 0 else self.word(signed=True)
        if opcode == "div" and isinstance(b, int | float) and b > 0:
            return a if b == 1 else self.word(signed)
        return None


def _signed(value: Quantity) -> bool:
    return isinstance(value, str) and value.startswith(_SIGNED)


def _positive(value: Quantity) -> bool:
    """Whether the value is never negative."""
    return not _signed(value) if isinstance(value, str) else value is not None and value >= 0


def _names(node: Node) -> Collection[str]:
    names: Collection[str] = OPS[node.op]["attributes"]
    return names


def _cut_grows(start: Quantity, end: Quantity, step: int) -> bool:
    """Whether x[start:end:step] never gets shorter when x gets longer or `end` gets larger."""
    if not isinstance(start, int):
        return False
    if step < 0:
        return start == -1 or start >= _FAR - 1 if isinstance(end, int) and (end >= 0 or end <= 1 - _FAR) else False
    if isinstance(end, str):
        return start >= 0
    return isinstance(end, int) and (start >= 0 or end < 0 or end >= _FAR - 1)
