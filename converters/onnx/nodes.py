"""Helpers that read names, versions, types and sizes from the protobuf messages of ONNX nodes, graphs and functions.
The importer uses them; nothing here depends on the graph being built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import onnx
from onnx import FunctionProto, NodeProto, TypeProto, defs

from linnet.converters.onnx import narrow
from linnet.converters.onnx.loader import text_of
from linnet.converters.onnx.operation import DTYPES
from linnet.converters.onnx.schemas import MAIN
from linnet.converters.onnx.values import Listed, Maybe, Packed, Value
from linnet.ir.function import Tensor

NUMBERS = {name: number for number, name in DTYPES.items()}


def opsets_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Opset numbers by domain, clipped to the range of onnx's tables. The importer reports larger numbers as a problem."""
    return {("" if o.domain in MAIN else o.domain): min(max(o.version, 0), 2**31 - 1) for o in imports}


def label(node: NodeProto) -> str:
    """The node's name, or the name of its first output if the node has no name."""
    return text_of(node.name or next((o for o in node.output if o), ""))


def size_of(graph: onnx.GraphProto | FunctionProto) -> int:
    """Number of nodes of a graph, including its subgraphs."""
    inner = (a.g for n in graph.node for a in n.attribute if a.type == a.GRAPH)
    return len(graph.node) + sum(map(size_of, inner))


def reads(node: NodeProto) -> set[str]:
    """Names that a node reads, including those that its subgraphs capture."""
    names = {n for n in node.input if n}
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.type == attribute.GRAPH else attribute.graphs:
            made = {t.name for t in graph.initializer} | {i.name for i in graph.input}
            made |= {o for inner in graph.node for o in inner.output}
            for inner in graph.node:
                names |= reads(inner) - made
            names |= {o.name for o in graph.output} - made
    return names


def ordered(nodes: Sequence[NodeProto], problem: Callable[[NodeProto, str, str], None]) -> list[NodeProto]:
    """Returns a stable topological order. Nodes on a cycle are reported to `problem` and left out."""
    maker: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.output:
            if name and name in maker:
                problem(
                    node,
                    f"it produces {name!r}, which another node produces too",
                    "give every value a unique name",
                )
            elif name:
                maker[name] = index
    waits = [{maker[name] for name in reads(node) if name in maker} for node in nodes]
    if all(not w or max(w) < i for i, w in enumerate(waits)):
        return list(nodes)
    users: dict[int, list[int]] = {}
    for index, wait in enumerate(waits):
        for other in wait:
            users.setdefault(other, []).append(index)
    left = [len(w) for w in waits]
    ready = [i for i, n in enumerate(left) if n == 0]
    order: list[int] = []
    for index in ready:  # the list grows during the loop
        order.append(index)
        for user in users.get(index, ()):
            left[user] -= 1
            if left[user] == 0:
                ready.append(user)
    for index in sorted(set(range(len(nodes))) - set(order)):
        problem(
            nodes[index],
            "it is part of a cycle, or depends on one",
            "ONNX graphs must be acyclic: export the model again",
        )
    return [nodes[i] for i in order]


def type_of(value: Value, kinds: Mapping[Tensor, narrow.Kind]) -> bytes:
    """A serialized TypeProto of a value."""
    text: bytes = proto_of(value, kinds).SerializeToString()
    return text


def proto_of(value: Value, kinds: Mapping[Tensor, narrow.Kind]) -> TypeProto:
    """A TypeProto of a value."""
    proto = TypeProto()
    if isinstance(value, Maybe):
        proto.optional_type.elem_type.CopyFrom(proto_of(value.value, kinds))
    elif isinstance(value, (Listed, Packed)):
        dtype = value.dtype if isinstance(value, Listed) else value.values.dtype
        kind = value.kind if isinstance(value, Listed) else kinds.get(value.values)
        proto.sequence_type.elem_type.tensor_type.elem_type = kind.number if kind else NUMBERS[dtype]
    elif value is not None:
        kind = kinds.get(value)
        proto.tensor_type.elem_type = kind.number if kind else NUMBERS[value.dtype]
        if value.shape is not None:
            proto.tensor_type.shape.SetInParent()
            for d in value.shape:
                dim = proto.tensor_type.shape.dim.add()
                if isinstance(d, int):
                    dim.dim_value = d
                elif isinstance(d, str):
                    dim.dim_param = d
    return proto


def guessed(
    node: NodeProto, opset: int, operands: Sequence[Value], kinds: Mapping[Tensor, narrow.Kind]
) -> dict[str, TypeProto]:
    """The output types that ONNX's inference finds. The inference runs for single nodes, because it can crash on a
    damaged model."""
    try:
        schema = defs.get_schema(node.op_type, opset, "")
        if node.domain not in MAIN or len(operands) < schema.min_input or any(a.HasField("g") for a in node.attribute):
            return {}
        given = {n: proto_of(v, kinds) for n, v in zip(node.input, operands, strict=True) if v is not None}
        constants = {
            name: onnx.numpy_helper.from_array(value.data, name)
            for name, value in zip(node.input, operands, strict=True)
            if isinstance(value, Tensor) and value.dtype == "i64" and value.data is not None and value.data.size < 64
        }
        return dict(onnx.shape_inference.infer_node_outputs(schema, node, given, constants))
    except Exception:  # the guess is optional: later nodes work without it
        return {}


def substituted(node: NodeProto, given: Mapping[str, onnx.AttributeProto]) -> NodeProto:
    """A node of a function body in which references to attributes are replaced by the values of the attributes."""
    result = NodeProto()
    result.CopyFrom(node)
    del result.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                copy = result.attribute.add()
                copy.CopyFrom(given[attribute.ref_attr_name])
                copy.name = attribute.name
            continue
        copy = result.attribute.add()
        copy.CopyFrom(attribute)
        graphs = [copy.g] if copy.type == copy.GRAPH else list(copy.graphs)
        for graph in graphs:
            inner = [substituted(n, given) for n in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return result
