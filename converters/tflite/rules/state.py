"""Rules for variables: a TFLite resource variable is a linnet variable. Within a run, a read after an assignment
returns the new value. Variables of a branch or loop body become its inputs and outputs (importer.State)."""

from __future__ import annotations

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.ir.function import Tensor


@rule("VAR_HANDLE")
def var_handle(op: Operation) -> list[Tensor]:
    container, name = op.option("container") or "", op.option("shared_name") or ""
    op.scope.handles[op.spec.outputs[0]] = f"{container}/{name}" if container else name or "variable"
    return []


def handle(op: Operation) -> str:
    """The variable name of operand 0."""
    name = op.scope.handles.get(op.spec.inputs[0])
    if name is None:
        raise op.unsupported("its resource does not come from VAR_HANDLE", "export the model again")
    return name


@rule("READ_VARIABLE")
def read_variable(op: Operation) -> Tensor:
    return op.importer.read_variable(op.scope, handle(op), op.output())


@rule("ASSIGN_VARIABLE")
def assign_variable(op: Operation) -> list[Tensor]:
    op.importer.assign_variable(op.scope, handle(op), op.input(1))
    return []


@rule("CALL_ONCE")
def call_once(op: Operation) -> list[Tensor]:
    op.importer.initialize(op.option("subgraph"))
    return []
