"""Custom operators of a TFLite file become nodes of user ops (linnet.UserOp): an op matches if its name is tflite.CUSTOM_CODE.
The options of the operator become attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from flatbuffers import flexbuffers

from linnet.clib.errors import GraphError
from linnet.converters.tflite.problems import Unsupported
from linnet.converters.tflite.schema import NARROW, OperatorSpec, TensorSpec
from linnet.ir.function import Function, Tensor
from linnet.ir.operands import Registered
from linnet.ir.user_op import UserOp, pack

RAW = "custom_options"  # the attribute for options that are not a map of numbers, text and lists


def name_of(op: str) -> str:
    """The name of the user op that takes an operator ("CUSTOM:code"); "" for a builtin operator."""
    code = op.removeprefix("CUSTOM:")
    return "" if code == op else f"tflite.{code}"


def advice(op: str) -> str:
    """The hint for a custom operator without a rule."""
    return f"or give its kernel: from_tflite(path, user_ops=[linnet.UserOp({name_of(op)!r}, ...)]), as docs/user_ops.md says"


def convert(
    op: Registered,
    spec: OperatorSpec,
    operands: Sequence[Tensor | None],
    outputs: Sequence[TensorSpec],
    function: Function,
    fixed: bool,
) -> list[Tensor]:
    """The outputs of the operator. fixed: whether the inputs have the shapes of the file, so that the declared shapes
    are right. Raises Unsupported, GraphError."""
    assert isinstance(op, UserOp)
    if spec.version > op.version:
        raise Unsupported(
            f"the model uses version {spec.version} of this op, and user op {op.name} has version {op.version}",
            f"give a newer one: linnet.UserOp({op.name!r}, version={spec.version}, ...)",
        )
    declared: Any = len(outputs)
    if op.ruleless:
        if not fixed:
            raise Unsupported(
                "the user op has no shape rule, and the shapes of the inputs differ from those in the file",
                "give the op a shape rule: linnet.UserOp(..., shape=function)",
            )
        for tensor in outputs:
            if not tensor.dtype or tensor.dtype in NARROW:
                raise Unsupported(
                    f"the output {tensor.name!r} has the unsupported type {tensor.type_name}",
                    "export the model with a supported type",
                )
        declared = [(tensor.dtype, tensor.shape) for tensor in outputs]
    made = op.node(operands, attributes(spec.custom), declared, outputs[0].name, function, version=spec.version)
    for result, described in zip(made, outputs, strict=True):
        if described.quantization is not None and result.dtype == described.dtype:
            result.quantization = described.quantization
    return made


def attributes(options: bytes) -> dict[str, Any]:
    """The entries of a flexbuffer map. Options in another form become one attribute with their bytes."""
    if not options:
        return {}
    try:
        found = flexbuffers.Loads(options)
        if not isinstance(found, dict):
            return {RAW: options}
        pack(cast(dict[str, Any], found))  # nested maps and lists of several types have no attribute type
    except GraphError:
        return {RAW: options}
    except Exception:  # the package may raise anything for bytes that are not a flexbuffer
        return {RAW: options}
    return found
