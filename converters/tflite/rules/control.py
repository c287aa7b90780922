"""Rules for control flow: CALL inlines the subgraph; IF and WHILE turn subgraphs into functions. If a condition is
known during conversion, only its branch is converted. Variables that a function uses are passed in and out."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.problems import Unsupported
from linnet.converters.tflite.registry import rule
from linnet.converters.tflite.scope import State, Value, own_output
from linnet.ir.dtypes import Dim
from linnet.ir.function import Tensor, emit
from linnet.ir.graph import graph_of
from linnet.ir.infer import common_shape

ROUNDS = 4  # attempts to find shapes of carried values that every iteration keeps


class Body:
    """A function made of subgraphs: a branch, or the body of a loop."""

    def __init__(self, op: Operation, name: str) -> None:
        self.op, self.name = op, name
        self.function = graph_of(op.function).function(name)
        self.state = State("nested")

    def run(self, number: int, operands: Sequence[Value]) -> list[Value]:
        """Inlines a subgraph into this function and returns its results."""
        return self.op.importer.inline(self.op.scope, number, operands, self.function, self.state, self.name)

    def take(self, operands: Sequence[Value], shapes: Sequence[tuple[Dim, ...] | None]) -> list[Value]:
        """Creates an input for each operand that is a tensor."""
        given: list[Value] = []
        for operand, shape in zip(operands, shapes, strict=True):
            if isinstance(operand, Tensor):
                made = self.function.placeholder(operand.name, operand.dtype, shape)
                made.quantization = operand.quantization
                operand = made
            given.append(operand)
        return given

    def variable(self, name: str) -> Tensor:
        """The input of this function for a variable."""
        if name not in self.state.captured:
            self.op.importer.touch(self.function, self.state, name)
        return self.state.captured[name]

    def finish(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self.function.inputs = list(inputs)
        taken = {*self.function.inputs, *self.function.outputs}
        for tensor in outputs:
            self.function.outputs.append(own_output(self.function, tensor, taken))
            taken.add(self.function.outputs[-1])


def operands(op: Operation, first: int = 0) -> list[Value]:
    """The arguments of the subgraph: operands from `first` on."""
    found: list[Value] = []
    for i in range(first, len(op.spec.inputs)):
        name = op.scope.handles.get(op.spec.inputs[i])
        found.append(op.input(i) if name is None else name)
    return found


def given(op: Operation, values: Sequence[Value]) -> list[Tensor]:
    """The operator's outputs. Outputs that are resources become handles of the scope."""
    made = []
    for index, value in zip(op.spec.outputs, values, strict=True):
        if isinstance(value, str):
            op.scope.handles[index] = value
            value = op.constant(0)  # keeps the position in the list; only the handle is used
        made.append(value)
    return made


def only_tensors(values: Sequence[Value]) -> list[Tensor]:
    return [v for v in values if isinstance(v, Tensor)]


def flag(op: Operation, condition: Value) -> Tensor:
    """Converts a condition to a scalar."""
    if isinstance(condition, str) or condition.dtype != "bool":
        raise op.unsupported("its condition is not a boolean", "the model is damaged: export it again")
    if not condition.rank:
        return condition
    shape = condition.function.constant([], dtype="i64")
    return emit("copy", [condition, shape], {"kind": "reshape"}, function=condition.function)[0]


@rule("CALL", "STABLEHLO_COMPOSITE")
def call(op: Operation) -> list[Tensor]:
    """Inlines the subgraph; for a composite this is its decomposition."""
    number = op.option("subgraph")
    return given(op, op.importer.inline(op.scope, number, operands(op), op.function, op.scope.state, f"call_{number}"))


@rule("IF")
def if_(op: Operation) -> list[Tensor]:
    """Operands: the condition, then the arguments, which both branches get."""
    numbers = [op.option(f"{which}_subgraph") for which in ("then", "else")]
    arguments = operands(op, 1)
    condition = flag(op, op.input(0))
    if condition.data is not None:
        number = numbers[0 if bool(condition.data) else 1]
        return given(op, op.importer.inline(op.scope, number, arguments, op.function, op.scope.state, f"if_{number}"))
    shapes = [t.shape if isinstance(t, Tensor) else None for t in arguments]
    branches, results, inputs = [], [], []
    for which, number in zip(("then", "else"), numbers, strict=True):
        branch = Body(op, f"{which}_{op.scope.path}{op.outputs[0].name if op.outputs else number}")
        taken = branch.take(arguments, shapes)
        inputs.append(only_tensors(taken))
        results.append(branch.run(number, taken))
        branches.append(branch)
    touched = list(dict.fromkeys(n for b in branches for n in b.state.captured))
    assigned = list(dict.fromkeys(n for b in branches for n in b.state.assigned))
    for branch, own, result in zip(branches, inputs, results, strict=True):
        own += [branch.variable(n) for n in touched]
        branch.finish(own, [*only_tensors(result), *(branch.state.current[n] for n in assigned)])
    variables = [op.importer.read_variable(op.scope, n) for n in touched]
    made = emit(
        "if", [condition, *only_tensors(arguments), *variables],
        {"then_function": branches[0].function, "else_function": branches[1].function},
        len(branches[0].function.outputs), function=op.function,
    )  # fmt: skip
    return after(op, made, results[0], assigned, branches[0])


def after(
    op: Operation, made: list[Tensor], pattern: Sequence[Value], assigned: Sequence[str], body: Body
) -> list[Tensor]:
    """Makes the operator's outputs from the outputs of the node. The last outputs of the node are the assigned
    variables."""
    count = len(only_tensors(pattern))
    for tensor, source in zip(made, body.function.outputs[-len(made) :], strict=True):
        tensor.quantization = source.quantization
    for name, tensor in zip(assigned, made[count:], strict=True):
        op.importer.assign_variable(op.scope, name, tensor)
    left = iter(made[:count])
    return given(op, [value if isinstance(value, str) else next(left) for value in pattern])


@rule("WHILE")
def while_(op: Operation) -> list[Tensor]:
    """The condition's subgraph runs once before the loop, and then after each iteration of the body."""
    test, repeat = op.option("cond_subgraph"), op.option("body_subgraph")
    importer, arguments = op.importer, operands(op)
    first = op.importer.inline(op.scope, test, arguments, op.function, op.scope.state, f"while_{test}")
    condition = flag(op, first[0])
    if condition.data is not None and not bool(condition.data):
        return given(op, arguments)
    shapes = [t.shape if isinstance(t, Tensor) else None for t in arguments]
    functions, problems = len(graph_of(op.function).functions), len(importer.problems)
    for attempt in range(ROUNDS):
        body = Body(op, f"while_{op.scope.path}{op.outputs[0].name if op.outputs else repeat}")
        leading = [
            body.function.placeholder("iteration", "i64", ()),
            body.function.placeholder("condition", "bool", ()),
        ]
        taken = body.take(arguments, shapes)
        result = body.run(repeat, taken)
        again = flag(op, body.run(test, result)[0])
        wider = [
            common_shape(s, r.shape) if isinstance(r, Tensor) else None for s, r in zip(shapes, result, strict=True)
        ]
        if wider == shapes or len(importer.problems) > problems:
            break
        if attempt == ROUNDS - 1:
            raise op.unsupported(
                "the shapes of its loop variables never stop changing", "set the input shapes with input_shapes"
            )
        shapes = wider if attempt < ROUNDS - 2 else [None] * len(shapes)
        del graph_of(op.function).functions[functions:]
    if len(importer.problems) > problems:
        raise Unsupported("its body cannot be converted", "fix the problems of the body first")
    state = body.state
    carried = list(state.assigned)
    fixed = [n for n in state.captured if n not in state.assigned]
    inputs = [*leading, *only_tensors(taken), *(state.captured[n] for n in [*carried, *fixed])]
    body.finish(inputs, [again, *only_tensors(result), *(state.current[n] for n in carried)])
    values = [*only_tensors(arguments), *(importer.read_variable(op.scope, n) for n in carried)]
    captured = [importer.read_variable(op.scope, n) for n in fixed]
    made = emit(
        "while", [None, condition, *values, *captured], {"body_function": body.function, "carried": len(values)},
        len(values), function=op.function,
    )  # fmt: skip
    return after(op, made, arguments, carried, body)
