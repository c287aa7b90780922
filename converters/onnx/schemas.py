"""The schemas of ONNX's ops, by opset. This module also checks whether a node agrees with its schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import NodeProto, defs

from linnet.converters.onnx.problems import Unsupported

MAIN = ("", "ai.onnx")
FUSED_EARLY = {
    "LayerNormalization"
}  # ONNX Runtime's optimizer writes these also into models of opsets that do not define them


def schema_of(op_type: str, opset: int) -> Any:
    """The definition of an ai.onnx op at an opset, or its newest definition if it did not exist yet."""
    try:
        return defs.get_schema(op_type, opset, "")
    except defs.SchemaError:
        return defs.get_schema(op_type, defs.onnx_opset_version(), "")


def has_body(op_type: str, domain: str) -> bool:
    """Whether ONNX defines the op by a function body, which can replace it."""
    schema = defs.get_schema(op_type, domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def pick(get: Any, versions: Sequence[int], opset: int) -> bytes:
    """The serialized function body for an opset."""
    version = max((v for v in versions if v <= opset), default=min(versions))
    return bytes(get(version))


def checked(node: NodeProto, opset: int, domain: str, count: int) -> Any:
    """The schema of a node with `count` operands. Raises Unsupported if the node does not agree with it."""
    try:
        early = node.op_type in FUSED_EARLY
        schema = schema_of(node.op_type, opset) if early else defs.get_schema(node.op_type, opset, domain)
    except defs.SchemaError:
        raise Unsupported(f"opset {opset} has no op {node.op_type!r}", "export the model with a newer opset") from None
    unknown = [a.name for a in node.attribute if a.name not in schema.attributes and a.name != "consumed_inputs"]
    if unknown:
        raise Unsupported(f"{node.op_type} has no attribute {unknown[0]!r} at opset {opset}", "remove it")
    for a in node.attribute:
        wanted = schema.attributes[a.name].type if a.name in schema.attributes else None
        if wanted is not None and a.type and a.type != int(wanted.value):
            has = onnx.AttributeProto.AttributeType.Name(a.type).lower()
            raise Unsupported(
                f"attribute {a.name!r} has type {has}, not {wanted.name.lower()}", "export the model again"
            )
    missing = [n for n, a in schema.attributes.items() if a.required and n not in {a.name for a in node.attribute}]
    if missing:
        raise Unsupported(f"required attribute {missing[0]!r} is missing", "export the model again")
    if count < schema.min_input or count > schema.max_input:
        raise Unsupported(
            f"it has {count} inputs; {node.op_type} takes {schema.min_input} to {schema.max_input}",
            "export the model again",
        )
    return schema
