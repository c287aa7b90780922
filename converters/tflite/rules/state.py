"""Rules of state and control flow: variables, the subgraph that sets them at first (CALL_ONCE), and IF.
A TFLite resource variable is a linnet variable; in a run, reads after an assignment see the new value."""

from __future__ import annotations

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.graph import Tensor, emit


@rule("VAR_HANDLE")
def var_handle(op: Operation) -> list[Tensor]:
    container, name = op.option("container") or "", op.option("shared_name") or ""
    op.scope.handles[op.spec.outputs[0]] = f"{container}/{name}" if container else name or "variable"
    return []


def handle(op: Operation) -> str:
    """The name behind operand 0."""
    name = op.scope.handles.get(op.spec.inputs[0])
    if name is None:
        raise op.unsupported("its resource is not made by VAR_HANDLE in the same subgraph", "export it again")
    return name


@rule("READ_VARIABLE")
def read_variable(op: Operation) -> Tensor:
    return op.importer.read_variable(op.scope, handle(op), op.output())


@rule("ASSIGN_VARIABLE")
def assign_variable(op: Operation) -> list[Tensor]:
    name, value = handle(op), op.input(1)
    if op.scope.initializing:
        if value.data is None:
            raise op.unsupported(f"variable {name!r} starts with a value that is computed", "start it with a constant")
        op.importer.initial[name] = value.data
        return []
    if value.static_shape is None:
        raise op.unsupported(f"variable {name!r} is assigned a value of unknown shape", "fix the input shapes")
    variable = op.importer.variable(name, value.dtype, value.static_shape, None)
    if variable.quantization is None:
        variable.quantization = value.quantization
    made = emit("assign", [op.function.read(variable), value], {}, function=op.function)[0]
    made.quantization = value.quantization
    op.scope.current[name] = made
    return []


@rule("CALL_ONCE")
def call_once(op: Operation) -> list[Tensor]:
    op.importer.initialize(op.option("subgraph"))
    return []


@rule("IF")
def if_(op: Operation) -> list[Tensor]:
    """Both branches become functions of the operands after the condition."""
    condition = op.input(0)
    operands = [op.input(i) for i in range(1, len(op.inputs))]
    branches = [
        op.importer.branch(op.scope, op.option(f"{which}_subgraph"), operands, f"{which}_{op.output().name}")
        for which in ("then", "else")
    ]
    if condition.rank:
        condition = op.reshape(condition, [])
    made = emit(
        "if", [condition, *operands], {"then_function": branches[0], "else_function": branches[1]},
        len(op.outputs), function=op.function,
    )  # fmt: skip
    for tensor, spec in zip(made, op.outputs, strict=True):
        tensor.quantization = spec.quantization
    return made
