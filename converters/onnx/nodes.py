"""Helpers that read names, versions, types and sizes from the protobuf messages of ONNX nodes, graphs and functions.
The importer uses them; nothing here depends on the graph being built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
from onnx import FunctionProto, NodeProto, TypeProto, defs

from linnet.converters.onnx import narrow
from linnet.converters.onnx.loader import text_of
from linnet.converters.onnx.operation import DTYPES
from linnet.converters.onnx.values import Listed, Maybe, Packed, Value
from linnet.ir.function import Tensor

MAIN = ("", "ai.onnx")
NUMBERS = {name: number for number, name in DTYPES.items()}


def schema_of(op_type: str, opset: int) -> Any:
    """The definition of an ai.onnx op at an opset, or its newest definition if it did not exist yet."""
    try:
        return defs.get_schema(op_type, opset, "")
    except defs.SchemaError:
        return defs.get_schema(op_type, defs.onnx_opset_version(), "")


def opsets_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Opset numbers by domain, clipped to the range of onnx's tables. The importer reports larger numbers as a problem."""
    return {("" if o.domain in MAIN else o.domain): min(max(o.version, 0), 2**31 - 1) for o in imports}


def label(node: NodeProto) -> str:
    """The node's name, or its first output when it has none."""
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


def has_body(op_type: str, domain: str) -> bool:
    """Whether ONNX defines the op by a function body, which can replace it."""
    schema = defs.get_schema(op_type, domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def pick(get: Any, versions: Sequence[int], opset: int) -> bytes:
    """The serialized function body for an opset."""
    version = max((v for v in versions if v <= opset), default=min(versions))
    return bytes(get(version))


def substituted(node: NodeProto, given: Mapping[str, onnx.AttributeProto]) -> NodeProto:
    """A node of a function body with references to attributes replaced by their values."""
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
