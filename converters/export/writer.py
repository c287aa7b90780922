"""Walks a graph and writes ONNX nodes. The rules call it for names, constants, nodes and problems.
Subgraphs of If and Loop see the names of the enclosing graph, so captured operands need no nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from linnet.clib.errors import Problem
from linnet.converters.problems import Unsupported
from linnet.ir import traits
from linnet.ir.dtypes import Dim, Quantization
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.graph import Graph

OLDEST, NEWEST = 18, 23
TYPES = {
    "f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16,
    "i8": TensorProto.INT8, "i16": TensorProto.INT16, "i32": TensorProto.INT32, "i64": TensorProto.INT64,
    "u8": TensorProto.UINT8, "u16": TensorProto.UINT16, "u32": TensorProto.UINT32, "u64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}  # fmt: skip
_IR = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11}  # the IR version released with each opset

Rule = Callable[["Writer", Node], "Sequence[str] | str"]
RULES: dict[str, Rule] = {}


def export(*ops: str) -> Callable[[Rule], Rule]:
    """Registers the rule for runtime ops. A rule maps (writer, node) to the names of the node's outputs."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, rule))
        return rule

    return register


class Writer:
    """One model being written."""

    def __init__(self, graph: Graph, opset: int) -> None:
        self.graph, self.opset = graph, opset
        self.problems: list[Problem] = []
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.names: dict[Tensor, str] = {}
        self.used: set[str] = set()
        self.numbers: dict[Any, str] = {}  # small constants by value, so that equal ones are shared
        self.node: Node | None = None

    # ---- for rules

    def unique(self, name: str) -> str:
        candidate, count = name or "t", 0
        while candidate in self.used:
            count += 1
            candidate = f"{name or 't'}_{count}"
        self.used.add(candidate)
        return candidate

    def emit(self, op: str, inputs: Sequence[str], outputs: int = 1, name: str = "", **attributes: Any) -> Any:
        """Adds a node. Returns the name of its output, or a list of names. Attributes that are None are left out."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        base = name or (self.node.name or self.node.outputs[0].name if self.node is not None else op)
        made = [self.unique(base) for _ in range(outputs)]
        given = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(helper.make_node(op, list(inputs), made, name=made[0], **given))
        return made[0] if outputs == 1 else made

    def constant(self, value: npt.ArrayLike, name: str = "constant") -> str:
        """Adds an initializer and returns its name; equal small constants are shared."""
        data = np.asarray(value)
        key = (data.dtype.name, data.shape, data.tobytes()) if data.size <= 64 else None
        if key is not None and key in self.numbers:
            return self.numbers[key]
        made = self.unique(name)
        tensor = numpy_helper.from_array(np.ascontiguousarray(data).reshape(data.shape), made)
        self.initializers.append(tensor)
        if key is not None:
            self.numbers[key] = made
        return made

    def integers(self, values: Sequence[int]) -> str:
        return self.constant(np.asarray(values, np.int64), "numbers")

    def of(self, tensor: Tensor | None) -> str:
        """The ONNX name of an operand; "" for an absent one."""
        if tensor is None:
            return ""
        if tensor not in self.names:
            if tensor.data is not None:
                self.names[tensor] = self.constant(tensor.data, tensor.name)
            elif tensor.variable is not None:
                raise Unsupported(
                    f"it reads the variable '{tensor.variable.name}', which the model changes at run time",
                    "ONNX graphs have no state: make the variable an input and an output of the model",
                )
            else:
                raise KeyError(tensor.name)
        return self.names[tensor]

    def operand(self, node: Node, index: int) -> str:
        return self.of(node.inputs[index]) if index < len(node.inputs) else ""

    def real(self, tensor: Tensor | None) -> str:
        """An operand as floats. Quantized integers go through DequantizeLinear."""
        if tensor is None or tensor.quantization is None:
            return self.of(tensor)
        scale, zero, axis = self.parameters(tensor.quantization, tensor.dtype)
        block = tensor.quantization.block or None
        if block and self.opset < 21:
            raise Unsupported("quantization per block needs opset 21", "call to_onnx with opset=21")
        return str(self.emit("DequantizeLinear", [self.of(tensor), scale, zero], axis=axis, block_size=block))

    def stored(self, value: str, tensor: Tensor) -> str:
        """Quantizes floats with the quantization of a tensor."""
        assert tensor.quantization is not None
        scale, zero, axis = self.parameters(tensor.quantization, tensor.dtype)
        return str(self.emit("QuantizeLinear", [value, scale, zero], axis=axis))

    def parameters(self, q: Quantization, dtype: str) -> tuple[str, str, int | None]:
        """The names of scale and zero point, and the axis."""
        scale, zero = np.asarray(q.scale, np.float32), np.asarray(q.zero)
        zero = np.broadcast_to(zero, scale.shape)
        if q.axis is None:
            scale, zero = scale.reshape(-1)[0], zero.reshape(-1)[0]
        kinds = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32}
        if dtype not in kinds:
            raise Unsupported(f"ONNX has no quantized {dtype}", "quantize to 8 or 16 bits")
        if dtype in ("i16", "u16") and self.opset < 21:
            raise Unsupported("16-bit quantization needs opset 21", "call to_onnx with opset=21")
        return self.constant(scale, "scale"), self.constant(np.asarray(zero, kinds[dtype]), "zero"), q.axis

    def transposed(self, name: str, perm: Sequence[int]) -> str:
        return str(self.emit("Transpose", [name], perm=list(perm)))

    def body(self, function: Function, bindings: Sequence[str]) -> list[str]:
        """Writes a function's nodes in place, with its inputs bound to names. Returns the names of its outputs."""
        outer, self.names = self.names, dict(self.names)
        try:
            self.names.update(zip(function.inputs, bindings, strict=True))
            self.run(function)
            return [self.of(t) for t in function.outputs]
        finally:
            self.names = outer

    def subgraph(self, function: Function, inputs: Sequence[Tensor], captured: Sequence[str]) -> onnx.GraphProto:
        """Writes a function as a separate graph. Its first inputs become inputs of the graph; the others are bound to
        outer names."""
        outer, self.nodes = self.nodes, []
        try:
            own = [self.unique(t.name) for t in inputs]
            results = self.body(function, [*own, *captured])
            # ONNX requires every output to be produced inside the subgraph, and only once
            given = [str(self.emit("Identity", [name])) for name in results]
            infos = [value_info(name, t) for name, t in zip(own, inputs, strict=True)]
            outputs = [value_info(name, t) for name, t in zip(given, function.outputs, strict=True)]
            return helper.make_graph(self.nodes, function.name or "body", infos, outputs)
        finally:
            self.nodes = outer

    # ---- the walk

    def run(self, function: Function) -> None:
        needed = _needed(function)
        for node in function.nodes:
            if node in needed:
                self.convert(node)

    def convert(self, node: Node) -> None:
        outer, self.node = self.node, node
        try:
            rule = RULES.get(node.op)
            if rule is None:
                raise Unsupported(f"ONNX has no counterpart of the runtime op {node.op}", "leave it out of the export")
            made = rule(self, node)
            names = [made] if isinstance(made, str) else list(made)
        except Unsupported as error:
            self.problems.append(Problem(node.name or node.outputs[0].name, node.op, error.reason, error.hint))
            names = [self.unique(t.name) for t in node.outputs]
        finally:
            self.node = outer
        self.names.update(zip(node.outputs, names, strict=False))

    def model(self) -> onnx.ModelProto:
        signature = self.graph.signatures["infer"]
        function = signature.function
        self.used.update(signature.inputs, signature.outputs)
        self.names.update(zip(function.inputs, signature.inputs, strict=True))
        self.run(function)
        made = {name for node in self.nodes for name in node.output}
        renamed: dict[str, str] = {}
        for tensor, wanted in zip(function.outputs, signature.outputs, strict=True):
            try:
                name = self.of(tensor)
            except Unsupported as error:
                self.problems.append(Problem(wanted, "output", error.reason, error.hint))
                continue
            if name in made and name not in renamed:
                renamed[name] = wanted
            else:
                name = renamed.get(name, name)
                self.nodes.append(helper.make_node("Identity", [name], [wanted], name=wanted))
        for node in self.nodes:
            _rename(node, renamed)
        read = set().union(*(_reads(node) for node in self.nodes)) if self.nodes else set()
        graph = helper.make_graph(
            self.nodes, self.graph.metadata.get("model", "linnet"),
            [value_info(n, t) for n, t in zip(signature.inputs, function.inputs, strict=True)],
            [value_info(n, t) for n, t in zip(signature.outputs, function.outputs, strict=True)],
            [t for t in self.initializers if t.name in read],
        )  # fmt: skip
        model = helper.make_model(
            graph,
            producer_name="linnet",
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=_IR[self.opset],
        )
        helper.set_model_props(model, self.graph.metadata)
        _complete(model)
        return model


def value_info(name: str, tensor: Tensor) -> onnx.ValueInfoProto:
    """Name, element type and the known part of the shape."""
    shape: list[Dim] | None = None if tensor.shape is None else list(tensor.shape)
    return helper.make_tensor_value_info(name, TYPES[tensor.dtype], shape)


def _complete(model: onnx.ModelProto) -> None:
    """Outputs of unknown rank get the rank that ONNX's own inference finds, because a model must declare the rank of
    its outputs."""
    if all(o.type.tensor_type.HasField("shape") for o in model.graph.output):
        return
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for tensor in bare.graph.initializer:  # large weights do not affect ranks, but small constants may be shapes
        if len(tensor.raw_data) > 1024:
            tensor.ClearField("raw_data")
    try:
        found = onnx.shape_inference.infer_shapes(bare).graph.output
    except Exception:  # the inference is optional
        return
    for output, better in zip(model.graph.output, found, strict=True):
        if better.type.tensor_type.HasField("shape"):
            output.CopyFrom(better)


def _needed(function: Function) -> set[Node]:
    """Nodes on which the outputs depend. Counters of random numbers and updates of state are not written."""
    wanted, needed = set(function.outputs), set()
    for node in reversed(function.nodes):
        if any(t in wanted for t in node.outputs):
            needed.add(node)
            counters = traits.operands(node.op, "role", "counter")
            wanted.update(t for i, t in enumerate(node.inputs) if t is not None and i not in counters)
    return needed


def _reads(node: onnx.NodeProto) -> set[str]:
    names = set(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                names |= _reads(inner)
    return names


def _rename(node: onnx.NodeProto, table: dict[str, str]) -> None:
    for names in (node.input, node.output):
        for i, name in enumerate(names):
            if name in table:
                names[i] = table[name]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                _rename(inner, table)
