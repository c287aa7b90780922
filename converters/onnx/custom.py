"""Nodes of a custom domain become nodes of user ops (linnet.UserOp): an op matches if its name is DOMAIN.OP_TYPE.
Attributes keep their names and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import onnx
from onnx import AttributeProto, NodeProto, TypeProto

from linnet.converters.onnx.interface import dims_of
from linnet.converters.onnx.operation import DTYPES, storage_of
from linnet.converters.onnx.problems import Unsupported
from linnet.converters.onnx.schemas import MAIN
from linnet.converters.onnx.values import Value
from linnet.ir.function import Function, Tensor
from linnet.ir.operands import Registered
from linnet.ir.user_op import UserOp

_NUMBERS_AND_TEXT = {
    AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS, AttributeProto.STRING,
    AttributeProto.STRINGS,
}  # fmt: skip


def name_of(node: NodeProto) -> str:
    """The name of the user op that takes the node."""
    return f"{'ai.onnx' if node.domain in MAIN else node.domain}.{node.op_type}"


def advice(node: NodeProto) -> str:
    """The hint for a node of a domain without rules."""
    return (
        f"give its kernel: from_onnx(path, user_ops=[linnet.UserOp({name_of(node)!r}, ...)]), as docs/user_ops.md says"
    )


def convert(
    op: Registered,
    node: NodeProto,
    opset: int,
    operands: Sequence[Value],
    function: Function,
    types: Mapping[str, TypeProto],
) -> list[Value]:
    """The outputs of the node. opset: the version of the node's domain that the model imports. types: the types that
    the model declares for its values. Raises Unsupported, GraphError."""
    assert isinstance(op, UserOp)
    if opset > op.version:
        raise Unsupported(
            f"the model uses version {opset} of domain {node.domain!r}, and user op {op.name} has version {op.version}",
            f"give a newer one: linnet.UserOp({op.name!r}, version={opset}, ...)",
        )
    if any(value is not None and not isinstance(value, Tensor) for value in operands):
        raise Unsupported("a user op takes tensors, not sequences or optionals", "take them apart before the node")
    attributes = {a.name: _attribute(a) for a in node.attribute}
    outputs: Any = len(node.output)
    if op.ruleless:
        outputs = [_declared(name, types) for name in node.output]
    made = op.node(
        cast(Sequence[Tensor | None], operands), attributes, outputs, node.name, function, version=max(opset, 1)
    )
    return list(made)


def _attribute(a: AttributeProto) -> Any:
    if a.type not in _NUMBERS_AND_TEXT:
        kind = AttributeProto.AttributeType.Name(a.type).lower()
        raise Unsupported(
            f"attribute {a.name!r} of type {kind} cannot be passed to a user op",
            "pass its value as an input of the node",
        )
    value = onnx.helper.get_attribute_value(a)
    if a.type == AttributeProto.STRING:
        return _text(value)
    if a.type == AttributeProto.STRINGS:
        texts = [_text(v) for v in value]
        return texts if all(isinstance(text, str) for text in texts) else list(value)
    return value if a.type in (AttributeProto.INT, AttributeProto.FLOAT) else list(value)


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _declared(name: str, types: Mapping[str, TypeProto]) -> tuple[str, Sequence[Any]]:
    kind = types[name].tensor_type if name in types else None
    shape = dims_of(kind) if kind is not None else None
    if kind is None or kind.elem_type not in DTYPES or shape is None or not all(isinstance(d, int) for d in shape):
        raise Unsupported(
            f"the user op has no shape rule, and the model does not declare the shape of {name!r}",
            "give the op a shape rule: linnet.UserOp(..., shape=function)",
        )
    return storage_of(kind.elem_type), shape
