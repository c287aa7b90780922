"""Describes the main graph of an ONNX model for `linnet.outline`.
The report draws it, so it must work even if the model does not convert."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from linnet.converters.onnx.loader import text_of
from linnet.converters.onnx.nodes import label, reads
from linnet.converters.outline import Outline, OutlineNode


def outline(model: onnx.ModelProto, known: Mapping[str, str]) -> Outline:
    """All nodes in the order of the file, without initializers and Constant nodes. known: shapes that the conversion
    inferred."""
    graph = model.graph
    fixed = {t.name for t in graph.initializer} | {o for n in graph.node if n.op_type == "Constant" for o in n.output}
    shapes = {info.name: _shape(info) for info in (*graph.value_info, *graph.output)} | dict(known)
    nodes = [
        OutlineNode(
            op=text_of(node.op_type),
            label=label(node),
            inputs=sorted(text_of(name) for name in reads(node) if name not in fixed),
            outputs=[text_of(name) for name in node.output if name],
            inside=frozenset(_inside(node)),
            note=next((shapes[name] for name in node.output if name in shapes), ""),
        )
        for node in graph.node
        if node.op_type != "Constant"
    ]
    facts = {"ir_version": str(model.ir_version)}
    facts |= {f"opset {text_of(o.domain) or 'ai.onnx'}": str(o.version) for o in model.opset_import}
    if model.producer_name:
        facts["producer"] = f"{text_of(model.producer_name)} {text_of(model.producer_version)}".strip()
    inputs = [text_of(i.name) for i in graph.input if i.name not in fixed]
    return Outline("onnx", inputs, [text_of(o.name) for o in graph.output], nodes, facts)


def _inside(node: onnx.NodeProto) -> Iterable[str]:
    """The labels of all nodes in a node's subgraphs, at any depth."""
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.type == attribute.GRAPH else attribute.graphs:
            for inner in graph.node:
                yield label(inner)
                yield from _inside(inner)


def _shape(info: onnx.ValueInfoProto) -> str:
    if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
        return ""
    dims = info.type.tensor_type.shape.dim
    return "x".join(str(d.dim_value) if d.HasField("dim_value") else text_of(d.dim_param) or "?" for d in dims)
