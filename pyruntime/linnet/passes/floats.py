"""Converts a quantized graph to floats: every integer that represents a real number becomes this number. The result can
be differentiated. Rounding of activations is kept as straight-through nodes, or removed. Saturation is always kept,
because it often is the network's relu."""

from __future__ import annotations

from typing import Any

import numpy as np

from linnet.builder.mapping import pointwise, program_of
from linnet.builder.straight_through import on_grid
from linnet.ir import traits
from linnet.ir.dtypes import DTYPE_IDS, Quantization
from linnet.ir.expr import Expr
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.ir.graph import Graph
from linnet.ir.program import Instruction, Program, Store

REAL = "/real"  # suffix of the float variable that replaces an integer variable
_LIMITS = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767), "u16": (0, 65535)}
_CODES = frozenset({"load", "const", "cast", "add", "sub", "mul", "div", "min", "max", "round", "fixed_multiply",
                    "fixed_multiply_single"})  # fmt: skip
_MOVES = traits.having("integers", "moves")
_RECURRENT = traits.family("recurrent")
_COMPUTES = traits.having("integers", "averages", "sums")


def dequantized(data: np.ndarray[Any, Any], q: Quantization) -> np.ndarray[Any, Any]:
    """The real numbers that integers represent, as f32."""
    scale, zero = np.asarray(q.scale, np.float32), np.asarray(q.zero, np.int64)
    if q.block:
        assert q.axis is not None
        places = np.arange(data.shape[q.axis]) // q.block
        scale, zero = np.take(scale, places, axis=q.axis), np.take(zero, places, axis=q.axis)
    elif q.axis is not None:
        shape = [1] * data.ndim
        shape[q.axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    elif data.ndim != scale.ndim:
        scale, zero = scale.reshape(-1)[0], zero.reshape(-1)[0]
    made: np.ndarray[Any, Any] = np.asarray((data.astype(np.int64) - zero) * scale, np.float32).reshape(data.shape)
    return made


def to_floats(graph: Graph, rounding: bool = False) -> None:
    """Rewrites `graph.main` so that quantized tensors become f32. rounding: whether activations are rounded as in the
    integer model, with straight-through gradients. If false, they only saturate. Inputs and outputs keep their dtypes.
    """
    old = graph.main
    graph.main = Function(graph, "main")
    _Floats(old, graph.main, rounding).run()


class _Floats:
    """Emits the function again. `real` maps quantized tensors to their floats; `same` maps all other tensors."""

    def __init__(self, old: Function, new: Function, rounding: bool) -> None:
        self.old, self.new, self.rounding = old, new, rounding
        self.reals: dict[Tensor, Tensor] = {}
        self.others: dict[Tensor, Tensor] = {}
        self.relabels: dict[
            Tensor, tuple[Tensor, float]
        ] = {}  # integers with another scale: the real numbers and the ratio of the scales
        self.numbers: dict[
            Tensor, Tensor
        ] = {}  # i32 without a scale, for example sums of stored integers: as floats, not rounded

    def run(self) -> None:
        for tensor in self.old.inputs:
            made = self.new.placeholder(tensor.name, tensor.dtype, tensor.shape)
            made.quantization = tensor.quantization
            self.others[tensor] = made
        for node in self.old.nodes:
            self.new.source, self.new.placement = node.source, node.placement
            self.node(node)
        self.new.source = self.new.placement = ""
        for tensor in self.old.outputs:
            self.new.outputs.append(self.other(tensor))

    # ---- values

    def other(self, tensor: Tensor) -> Tensor:
        """The tensor with its own dtype."""
        if tensor not in self.others:
            if tensor.data is not None:
                made = self.new.constant(tensor.data, tensor.name, tensor.dtype, tensor.quantization)
            elif tensor.variable is not None:
                made = self.new.read(tensor.variable)
            elif tensor in self.numbers:
                made = pointwise([self.numbers[tensor]], lambda v: v.unary("round"), tensor.dtype)
            else:  # exists only as floats
                made = pointwise(
                    [self.reals[tensor]], lambda v: v, tensor.dtype, name=tensor.name,
                    quantization=[tensor.quantization],
                )  # fmt: skip
            self.others[tensor] = made
        return self.others[tensor]

    def real(self, tensor: Tensor) -> Tensor:
        """The tensor as floats."""
        if tensor.quantization is None:
            return self.other(tensor)
        if tensor not in self.reals:
            if tensor.data is not None:
                made = self.new.constant(dequantized(tensor.data, tensor.quantization), tensor.name)
            else:
                name = "" if tensor.variable is None else tensor.variable.name + REAL
                made = pointwise([self.other(tensor)], lambda v: v, "f32", dequantize=True, name=name)
            self.reals[tensor] = made
        return self.reals[tensor]

    def keep(self, node: Node, made: list[Tensor]) -> None:
        for old, new in zip(node.outputs, made, strict=True):
            if old.quantization is not None and new.dtype == "f32" and old.dtype != "f32":
                self.reals[old] = new
            else:
                self.others[old] = new
            if new.shape is None or None in new.shape:
                new.shape = old.shape if old.shape is not None else new.shape

    def settled(self, value: Tensor, q: Quantization | None, dtype: str) -> Tensor:
        """The float that replaces a value stored as integers: saturated, and rounded if requested."""
        if q is None or dtype not in _LIMITS:
            return value
        low, high = _LIMITS[dtype]
        scale, zero = np.float32(np.reshape(q.scale, -1)[0]), int(np.reshape(q.zero, -1)[0])
        return on_grid(value, float(scale), zero, low, high, self.rounding)

    # ---- nodes

    def node(self, node: Node) -> None:
        inputs = [t for t in node.inputs if t is not None]
        if node.op == "map" and self.codes(node):
            return
        if node.op == "reduce" and self.sum_of_codes(node):
            return
        if node.op == "cast" and node.outputs[0].dtype == "f32" and _per_tensor(inputs[0]):
            self.others[node.outputs[0]] = self.number(inputs[0])
            return
        if all(t.quantization is None for t in (*inputs, *node.outputs)):
            self.emit(node, [None if t is None else self.other(t) for t in node.inputs])
        elif node.op == "copy" and self.relabelled(node):
            return
        elif node.op in traits.PRODUCTS:
            self.product(node)
        elif node.op == "map":
            self.map(node)
        elif node.op in traits.CONVERTS and len(inputs) == 1:
            y = node.outputs[0]
            value = self.real(inputs[0])
            self.keep(node, [self.settled(value, y.quantization, y.dtype) if node.op == "quantize" else value])
        elif node.op in _MOVES | _COMPUTES and inputs[0].quantization is not None:
            first = len(inputs) if node.op == "copy" and node.attribute("kind") == "concat" else 1
            given = [
                None if t is None else self.real(t) if i < first else self.other(t) for i, t in enumerate(node.inputs)
            ]
            made = emit(node.op, given, node.attributes, len(node.outputs), node.name, self.new)
            y = node.outputs[0]
            if node.op in _COMPUTES and y.quantization is not None and node.attributes.get("kind") != "max":
                made[0] = self.settled(made[0], y.quantization, y.dtype)
            self.keep(node, made)
        elif node.op in _RECURRENT:  # weights of 8 bits
            self.emit(node, [None if t is None else self.real(t) for t in node.inputs])
        else:
            self.emit(node, [None if t is None else self.other(t) for t in node.inputs])

    def emit(self, node: Node, inputs: list[Tensor | None]) -> None:
        made = emit(
            node.op, inputs, node.attributes, len(node.outputs), node.name, self.new,
            [t.quantization for t in node.outputs], [t.dtype for t in node.outputs],
        )  # fmt: skip
        for old, new in zip(node.outputs, made, strict=True):
            self.others[old] = new
            if new.node is not None:
                new.name = self.new.unique(old.name) if new.name != old.name else new.name

    def relabelled(self, node: Node) -> bool:
        """The floats of a node whose result has the same integers as its input, with another scale. Importers move the
        scale of a product's weights into such a node."""
        x, y = node.inputs[0], node.outputs[0]
        if (
            x is None
            or not (_per_tensor(x) and _per_tensor(y))
            or node.attribute("kind") not in ("identity", "reshape")
        ):
            return False
        assert x.quantization is not None and y.quantization is not None
        before, after = (float(np.reshape(t.quantization.scale, -1)[0]) for t in (x, y) if t.quantization is not None)
        if before == after or np.any(x.quantization.zero != y.quantization.zero):
            return False
        made = self.real(x)
        if node.attribute("kind") == "reshape":
            rest = [None if t is None else self.other(t) for t in node.inputs[1:]]
            made = emit("copy", [made, *rest], node.attributes, 1, node.name, self.new)[0]
        self.relabels[y] = made, after / before
        self.reals[y] = pointwise([made], lambda v: v * (after / before), "f32")
        return True

    def product(self, node: Node) -> None:
        """The float product of the real numbers. The scale of the integer bias is the scale of x times the scale of
        w."""
        x, w = node.inputs[0], node.inputs[1]
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        y = node.outputs[0]
        if x is None or w is None or x.quantization is None or w.quantization is None or y.dtype in ("i32", "i64"):
            self.emit(node, [None if t is None else self.other(t) for t in node.inputs])
            return
        operands: list[Tensor | None] = [self.real(x), self.real(w)]
        if x in self.relabels and operands[1] is not None and operands[1].data is not None:
            operands[0], factor = self.relabels[x]
            operands[1] = self.new.constant(np.asarray(operands[1].data * np.float32(factor)), w.name)
        if bias is not None:
            scale = np.float64(x.quantization.scale.reshape(-1)[0]) * w.quantization.scale.astype(np.float64)
            if bias.variable is not None and bias.dtype in ("i32", "i64"):
                steps = self.new.constant(scale.astype(np.float32))
                name = bias.variable.name + REAL
                operands.append(pointwise([self.other(bias), steps], lambda b, s: b.cast("f32") * s, "f32", name=name))
            elif bias.data is None:
                operands.append(self.real(bias))
            else:
                real = bias.data if bias.data.dtype.kind == "f" else bias.data * scale
                operands.append(self.new.constant(real.astype(np.float32), bias.name))
        attributes = {k: v for k, v in node.attributes.items() if k not in ("requant", "output_dtype")}
        made = emit(node.op, operands, attributes, 1, node.name, self.new)[0]
        self.keep(node, [self.settled(made, y.quantization, y.dtype)])

    def map(self, node: Node) -> None:
        """The same program on floats. Where the old program dequantizes a value on load, the new one only loads it.
        Where the old program quantizes a value on store, the new value goes through `settled`."""
        old = program_of(node)
        assert old is not None
        plain = {i.operand for i in old.code if i.opcode in ("load", "table")}
        read = {i.operand for i in old.code if i.opcode == "load_dequantized"}
        operands: list[Tensor] = []
        place: dict[tuple[int, bool], int] = {}
        for i, tensor in enumerate(node.inputs):
            assert tensor is not None
            for real in (True, False):
                if i in (read if real else plain):
                    place[i, real] = len(operands)
                    operands.append(self.real(tensor) if real else self.other(tensor))
        program = Program()
        registers: list[int] = []
        for instruction in old.code:
            if instruction.opcode in ("load", "table", "load_dequantized"):
                real = instruction.opcode == "load_dequantized"
                instruction = Instruction(
                    "load" if real else instruction.opcode, instruction.kind, instruction.args,
                    operand=place[instruction.operand, real],
                )  # fmt: skip
            registers.append(program.add(instruction._replace(args=tuple(registers[r] for r in instruction.args))))
        program.stores = [Store(registers[s.register], False) for s in old.stores]
        dtypes = ["f32" if s.quantized else t.dtype for s, t in zip(old.stores, node.outputs, strict=True)]
        attributes = program.attributes(dtypes, node.attributes.get("shape", ()))
        assert all(d in DTYPE_IDS for d in dtypes)
        kept = [None if s.quantized else t.quantization for s, t in zip(old.stores, node.outputs, strict=True)]
        made = emit("map", operands, attributes, len(dtypes), node.name, self.new, kept, dtypes)
        for i, (store, y) in enumerate(zip(old.stores, node.outputs, strict=True)):
            if store.quantized:
                made[i] = self.settled(made[i], y.quantization, y.dtype)
        self.keep(node, made)

    def codes(self, node: Node) -> bool:
        """Rewrites a program over stored integers (for example TFLite's sums of quantized tensors) as the same program
        over real numbers. A loaded value becomes real / scale + zero, and fixed-point factors become float factors.
        Returns False if the node has no such program or the program cannot be rewritten."""
        program = program_of(node)
        assert program is not None
        given = {i: t for i, t in enumerate(node.inputs) if t is not None}
        stored = [t for t in given.values() if _per_tensor(t) or t in self.numbers or t.dtype == "f32"]
        if (
            all(t.dtype == "f32" for t in (*given.values(), *node.outputs))
            or any(i.opcode not in _CODES for i in program.code)
            or any(s.quantized for s in program.stores)
        ):
            return False
        if not all(_per_tensor(t) or t.dtype == "i32" for t in node.outputs):
            return False
        if any(t not in stored and t.data is None for t in given.values()):
            return False
        operands = [self.number(t) for t in given.values()]
        places = {i: n for n, i in enumerate(given)}

        def body(*values: Expr) -> tuple[Expr, ...]:
            made: list[Expr] = []
            for i in program.code:
                args = [made[r] for r in i.args]
                if i.opcode == "load":
                    made.append(values[places[i.operand]].cast("f32"))
                elif i.opcode == "const":
                    made.append(values[0].cast("f32").lift(float(i.number)))
                elif i.opcode in ("cast", "round"):
                    made.append(args[0])
                elif i.opcode.startswith("fixed"):
                    multiplier, shift = i.extra
                    made.append(args[0] * float(multiplier * 2.0 ** (-31 - shift)))
                else:
                    made.append(args[0].binary(i.opcode, args[1]))
            return tuple(made[store.register] for store in program.stores)

        made = pointwise(operands, body, ["f32"] * len(node.outputs), name=node.name, function=self.new)
        for number, y in zip(made, node.outputs, strict=True):
            q = y.quantization
            if q is None:
                self.numbers[y] = number
                continue
            zero, scale = (float(np.reshape(v, -1)[0]) for v in (q.zero, q.scale))
            real = pointwise([number], lambda v, z=zero, s=scale: (v - z) * s, "f32")
            self.reals[y] = self.settled(real, q, y.dtype)
        return True

    def number(self, tensor: Tensor) -> Tensor:
        """The integers of a tensor as floats without rounding."""
        q = tensor.quantization
        if tensor in self.numbers:
            return self.numbers[tensor]
        if q is None or tensor.data is not None:
            return self.other(tensor)
        scale, zero = np.float32(np.reshape(q.scale, -1)[0]), float(np.reshape(q.zero, -1)[0])
        made: Tensor = pointwise([self.real(tensor)], lambda v: v / float(scale) + zero, "f32")
        return made

    def sum_of_codes(self, node: Node) -> bool:
        """Rewrites a sum of stored integers in i32. Returns whether the node is such a sum."""
        x, y = node.inputs[0], node.outputs[0]
        if (
            x is None
            or y.dtype != "i32"
            or y.quantization is not None
            or node.attribute("kind") not in ("sum", "max", "min")
        ):
            return False
        if not (_per_tensor(x) or x in self.numbers) or x.data is not None:
            return False
        rest = [None if t is None else self.other(t) for t in node.inputs[1:]]
        self.numbers[y] = emit("reduce", [self.number(x), *rest], node.attributes, 1, node.name, self.new)[0]
        return True


def _per_tensor(tensor: Tensor) -> bool:
    return tensor.quantization is not None and tensor.quantization.axis is None and tensor.dtype in _LIMITS
