"""Walks a TFLite model operator by operator and runs the rule of each; collects all problems instead of stopping at the first.
An operator that fails gives placeholders with the declared dtype and shape, so that the rest is checked too."""

from __future__ import annotations

import math
import struct
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.converters.tflite import complex_numbers, rules
from linnet.converters.tflite.hints import nearest
from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.problems import MOST_PROBLEMS, Problem, Unsupported, more_problems
from linnet.converters.tflite.registry import RULES
from linnet.converters.tflite.schema import (
    MAX_BYTES,
    NARROW,
    Model,
    OperatorSpec,
    SignatureSpec,
    SubgraphSpec,
    TensorSpec,
)
from linnet.errors import GraphError, UsageError
from linnet.graph import Function, Graph, Tensor, Variable, dtype_of, emit, numpy_dtype

MAX_DEPTH = 16  # of subgraphs inside subgraphs
MAX_SUBGRAPHS = 1024  # calls of subgraphs in all


Value = Tensor | str  # in the place of a resource, the name of the variable


class State:
    """The variables of one function: an entry point, a branch or the body of a loop. An entry point reads the variables
    themselves and assigns them at its end; other functions take those they touch as inputs and give what they assign."""

    def __init__(self, kind: str = "entry") -> None:
        self.kind = kind  # "entry", "nested", or "first": the subgraph of CALL_ONCE, which gives first values
        self.current: dict[str, Tensor] = {}  # the value at this point of the run
        self.captured: dict[str, Tensor] = {}  # nested: the input of each variable that is touched
        self.assigned: dict[str, None] = {}  # names, in the order of their first assignment


class Scope:
    """One subgraph while it is converted into a function, or into a part of one."""

    def __init__(self, function: Function, subgraph: SubgraphSpec, number: int, state: State, depth: int = 0) -> None:
        self.function, self.subgraph, self.number = function, subgraph, number
        self.state, self.depth = state, depth
        self.values: dict[int, Tensor] = {}
        self.handles: dict[int, str] = {}  # resource tensors: the name of the variable behind
        self.path = ""  # of the operators that led to this subgraph, for problems


class Importer:
    """One conversion: the graph being made and the problems found."""

    def __init__(self, model: Model, open_shapes: bool = False) -> None:
        self.model, self.open_shapes = model, open_shapes
        self.graph = Graph()
        self.problems: list[Problem] = []
        self.tainted: set[int] = set()  # ids of tensors that a failed operator, or one after it, should have made
        self.keep: list[Tensor] = []  # holds tainted tensors, so that ids stay unique
        self.initial: dict[str, npt.NDArray[Any]] = {}  # variables: values that CALL_ONCE assigns
        self.hybrid: list[str] = []  # operators whose weights are integers while they compute in floats
        self.made = 0  # elements of constants that rules made, see Operation.may_make
        self.entered = 0  # subgraphs converted because an operator names them
        self.initialized: set[int] = set()  # subgraphs that CALL_ONCE has run
        rules.load()

    def convert(self, input_shapes: Mapping[str, Sequence[int]] | None) -> Graph:
        """The graph: "infer" is subgraph 0, other signatures of the file keep their keys."""
        known = {s.subgraph: s for s in reversed(self.model.signatures)}
        self.entry(0, "infer", known.get(0), dict(input_shapes or {}))
        for signature in self.model.signatures:
            if signature.subgraph != 0 and signature.key not in self.graph.signatures:
                self.entry(signature.subgraph, signature.key or f"signature_{signature.subgraph}", signature, {})
        if self.full:
            self.problems.append(more_problems())
        return self.graph

    def has_open_shapes(self, fixed: Sequence[str]) -> bool:
        """Whether an input of the model has a dimension that the file leaves open (inputs named in `fixed` aside)."""
        subgraph = self.model.subgraphs[0]
        return not fixed and any(-1 in subgraph.tensors[i].signature for i in subgraph.inputs)

    def entry(self, number: int, key: str, names: SignatureSpec | None, shapes: dict[str, Sequence[int]]) -> None:
        """One entry point: a function with the subgraph's inputs and outputs."""
        subgraph = self.model.subgraphs[number]
        function = self.graph.function("main" if number == 0 else key)
        scope = Scope(function, subgraph, number, State())
        given = [names.inputs.get(i, "") if names else "" for i in subgraph.inputs]
        labels = distinct([g or subgraph.tensors[i].name for g, i in zip(given, subgraph.inputs, strict=True)])
        unknown = [name for name in shapes if name not in labels]
        if unknown:
            raise UsageError(
                f"there is no input {unknown[0]!r}", code=102, expected=", ".join(labels), hint="see input_shapes"
            )
        for label, index in zip(labels, subgraph.inputs, strict=True):
            spec = subgraph.tensors[index]
            own: Sequence[int | None] = spec.shape
            if self.open_shapes and len(spec.signature) == len(spec.shape):
                own = [None if s < 0 else d for s, d in zip(spec.signature, spec.shape, strict=True)]
            given_shape = shapes.get(label)
            shape = tuple(own) if given_shape is None else tuple(int(d) for d in given_shape)
            if len(shape) != len(spec.shape):
                raise UsageError(
                    f"the shape given for {label!r} has another rank", code=104, tensor=label,
                    expected=str(list(spec.shape)), got=str(list(shape)),
                )  # fmt: skip
            if not spec.dtype or spec.dtype in NARROW:
                self.problem(
                    "graph", label, f"the input is of type {spec.type_name}", "linnet has no such element type"
                )
            tensor = function.placeholder(
                label, spec.dtype if spec.dtype and spec.dtype not in NARROW else "f32", shape
            )
            tensor.quantization = spec.quantization
            scope.values[index] = tensor
        self.run(scope)
        function.outputs = self.outputs_of(scope)
        self.commit(scope)
        wanted = [names.outputs.get(i, "") if names else "" for i in subgraph.outputs]
        results = distinct([w or subgraph.tensors[i].name for w, i in zip(wanted, subgraph.outputs, strict=True)])
        self.graph.signature(key, function, labels, results)

    def outputs_of(self, scope: Scope) -> list[Tensor]:
        """The subgraph's outputs; one that cannot be had is a problem."""
        outputs: list[Tensor] = []
        taken = set(scope.function.inputs)
        for index in scope.subgraph.outputs:
            spec = scope.subgraph.tensors[index]
            try:
                outputs.append(own_output(scope.function, self.resolve(scope, index), taken))
                taken.add(outputs[-1])
            except Unsupported as error:
                self.problem("graph", spec.name, error.reason, error.hint)
                outputs.append(self.placeholder(scope, spec))
        return outputs

    # -- problems

    def problem(self, op: str, node: str, reason: str, hint: str = "") -> None:
        found = Problem(node=node, op=op, reason=reason, hint=hint)
        if not self.full and found not in self.problems:
            self.problems.append(found)

    @property
    def full(self) -> bool:
        """Whether so many problems were found that no more are looked for."""
        return len(self.problems) >= MOST_PROBLEMS

    # -- values

    def resolve(self, scope: Scope, index: int) -> Tensor:
        """The tensor of an index, making constants at their first use. Raises Unsupported."""
        if index in scope.values:
            return scope.values[index]
        spec = scope.subgraph.tensors[index]
        if self.model.has_data(spec) or (0 in spec.shape and not spec.is_variable):
            value = self.model.value(spec)
            dtype = NARROW[spec.dtype][0] if spec.dtype in NARROW else spec.dtype
            made = scope.function.constant(value, spec.name, dtype, spec.quantization)
        elif spec.is_variable:
            made = self.state(scope, spec)
        elif spec.type_name == "RESOURCE":
            raise Unsupported(f"{spec.name!r} is a resource", "only variables are supported")
        else:
            raise Unsupported(
                f"reads {spec.name!r}, which no input, constant or operator gives",
                "the model is damaged: export it again",
            )
        scope.values[index] = made
        return made

    def state(self, scope: Scope, spec: TensorSpec) -> Tensor:
        """The value of a variable tensor (of SVDF and recurrent ops), which starts as the real value 0."""
        name = self.state_name(scope, spec)
        if name not in self.graph.variables:
            check_size(spec.shape)
            zero = 0 if spec.quantization is None else int(spec.quantization.zero.reshape(-1)[0])
            self.graph.variable(name, np.full(spec.shape, zero, numpy_dtype(spec.dtype)))
            self.graph.variables[name].quantization = spec.quantization
        return self.read_variable(scope, name, spec)

    def state_name(self, scope: Scope, spec: TensorSpec) -> str:
        return f"{scope.number}/{spec.name}"

    def read_variable(self, scope: Scope, name: str, spec: TensorSpec | None = None) -> Tensor:
        """The value of a variable at this point; the first mention, which needs the declaration, makes the variable."""
        state = scope.state
        if name not in state.current:
            if name not in self.graph.variables and spec is None:
                raise Unsupported(f"variable {name!r} is read before it has a shape", "export the model again")
            if state.kind == "first":
                assert spec is not None
                value = self.initial.get(name, np.zeros(spec.shape, numpy_dtype(spec.dtype)))
                state.current[name] = scope.function.constant(value, quantization=spec.quantization)
                return state.current[name]
            variable = self.variable(name, spec.dtype, spec.shape, spec) if spec else self.graph.variables[name]
            if state.kind == "entry":
                state.current[name] = scope.function.read(variable)
            else:
                self.touch(scope.function, state, name)
        return state.current[name]

    def touch(self, function: Function, state: State, name: str) -> None:
        """Makes a variable an input of a branch or a body."""
        variable = self.graph.variables[name]
        made = function.placeholder(name, dtype_of(variable.value.dtype), variable.value.shape)
        made.quantization = variable.quantization
        state.captured[name] = state.current[name] = made

    def assign_variable(self, scope: Scope, name: str, value: Tensor) -> None:
        """The variable holds the value from here on."""
        state = scope.state
        if state.kind == "first":
            self.initial[name] = self.computed(value)
            state.current[name] = value
            return
        if value.static_shape is None:
            raise Unsupported(f"variable {name!r} is assigned a value of unknown shape", "fix the input shapes")
        variable = self.variable(name, value.dtype, value.static_shape, None)
        if variable.value.shape != value.static_shape or variable.value.dtype != numpy_dtype(value.dtype):
            declared = f"{dtype_of(variable.value.dtype)} {list(variable.value.shape)}"
            raise Unsupported(
                f"variable {name!r} is {declared} and is assigned {value.dtype} {list(value.static_shape)}",
                "give it one shape",
            )
        if variable.quantization is None:
            variable.quantization = value.quantization
        if state.kind == "nested":
            self.read_variable(scope, name)  # a branch that leaves the variable alone gives what came in
        state.current[name] = value
        state.assigned[name] = None

    def commit(self, scope: Scope) -> None:
        """At the end of an entry point: what was assigned goes to the variables."""
        for name in scope.state.assigned:
            value, variable = scope.state.current[name], self.graph.variables[name]
            made = emit("assign", [scope.function.read(variable), value], {}, function=scope.function)[0]
            made.quantization = value.quantization

    def computed(self, value: Tensor) -> npt.NDArray[Any]:
        """The value of a tensor that depends on constants alone, by running what makes it."""
        from linnet.session import Session

        if value.data is not None:
            return value.data
        function = value.function
        if value.node is None or function.inputs:
            raise Unsupported("a variable starts with a value that is not known", "start it with a constant")
        function.outputs = [value]
        function.graph.signatures.clear()
        function.graph.signature("infer", function, [], ["value"])
        return np.asarray(Session(function.graph).run({})["value"])

    def variable(self, name: str, dtype: str, shape: tuple[int, ...], spec: TensorSpec | None) -> Variable:
        if name not in self.graph.variables:
            value = self.initial.get(name)
            if value is None:
                check_size(shape)
                value = np.zeros(shape, numpy_dtype(dtype))
            if tuple(value.shape) != tuple(shape) or value.dtype != numpy_dtype(dtype):
                raise Unsupported(
                    f"variable {name!r} is {dtype} {list(shape)} and starts as {value.dtype} {list(value.shape)}",
                    "give it one shape",
                )
            made = self.graph.variable(name, value)
            made.quantization = spec.quantization if spec is not None else None
        return self.graph.variables[name]

    # -- subgraphs

    def initialize(self, number: int) -> None:
        """Runs the subgraph of CALL_ONCE, which gives variables their first values, once in a conversion."""
        if number in self.initialized:
            return
        self.initialized.add(number)
        subgraph = self.subgraph(number)
        scope = Scope(Graph().function("main"), subgraph, number, State("first"), 1)
        scope.path = f"CALL_ONCE {number}/"
        self.run(scope)

    def subgraph(self, number: int) -> SubgraphSpec:
        """A subgraph that an operator names. Raises Unsupported when there is none, or when they call each other on and on."""
        self.entered += 1
        if self.entered > MAX_SUBGRAPHS:
            raise Unsupported(f"subgraph {number} is one of too many, or calls itself", "export the model again")
        if not 0 <= number < len(self.model.subgraphs):
            raise Unsupported(
                f"subgraph {number} of {len(self.model.subgraphs)}", "the model is damaged: export it again"
            )
        return self.model.subgraphs[number]

    def inline(
        self, outer: Scope, number: int, operands: Sequence[Value], function: Function, state: State, name: str
    ) -> list[Value]:
        """The results of a subgraph whose operators become nodes of `function`."""
        subgraph = self.subgraph(number)
        if outer.depth >= MAX_DEPTH or len(subgraph.inputs) != len(operands):
            raise Unsupported(f"subgraph {number} does not fit its caller, or calls itself", "export it again")
        scope = Scope(function, subgraph, number, state, outer.depth + 1)
        scope.path = f"{outer.path}{name}/"
        for index, operand in zip(subgraph.inputs, operands, strict=True):
            if isinstance(operand, str):
                scope.handles[index] = operand
            else:
                scope.values[index] = operand
        self.run(scope)
        return [scope.handles[i] if i in scope.handles else self.resolve(scope, i) for i in subgraph.outputs]

    # -- operators

    def run(self, scope: Scope) -> None:
        with np.errstate(all="ignore"):  # scales of a damaged file overflow; multipliers made of them are refused
            for number, spec in enumerate(scope.subgraph.operators):
                if self.full:
                    break
                self.operator(scope, spec, number)

    def operator(self, scope: Scope, spec: OperatorSpec, number: int) -> None:
        """Runs one operator's rule and enters its outputs."""
        outputs = [scope.subgraph.tensors[i] for i in spec.outputs]
        label = scope.path + (outputs[0].name if outputs else f"operator {number}")
        function = scope.function
        before, outer = len(function.nodes), function.source
        function.source = f"{spec.op}:{label}"
        tainted, results = False, None
        try:
            operands: list[Tensor | None] = []
            for index in spec.inputs:
                if index < 0 or index in scope.handles:  # a rule asks the scope for what is behind a handle
                    operands.append(None)
                    continue
                operands.append(self.resolve(scope, index))
            tainted = any(t is not None and id(t) in self.tainted for t in operands)
            found = RULES.get(spec.op)
            if found is None:
                custom = spec.op.removeprefix("CUSTOM:")
                name = f"the custom op {custom!r}" if custom != spec.op else f"op {spec.op!r}"
                raise Unsupported(f"there is no rule for {name}", nearest(spec.op))
            results = complex_numbers.run(found, Operation(self, scope, spec, operands, outputs))
        except Unsupported as error:
            if not tainted or spec.op not in RULES:
                self.problem(spec.op, label, error.reason, error.hint)
        except GraphError as error:
            if not tainted:
                self.problem(spec.op, label, str(error), "check the operator's operands and options")
        except (TypeError, ValueError, IndexError, KeyError, AssertionError, ArithmeticError, struct.error) as error:
            # The rules read options and constants of a file that nobody checked; what they stumble over is its fault.
            if not tainted:
                reason = f"its operands or options are malformed ({type(error).__name__}: {error})"
                self.problem(spec.op, label, reason, "export the model again")
        finally:
            function.source = outer
        if results is None:
            del function.nodes[before:]
            results = [self.placeholder(scope, o) for o in outputs]
        elif tainted:
            self.tainted.update(id(t) for t in results if t.data is None)
            self.keep += results
        fresh = {id(t) for node in function.nodes[before:] for t in node.outputs}
        for index, tensor in zip(spec.outputs, results, strict=False):
            if index in scope.handles:
                continue
            if id(tensor) in fresh and tensor.name != scope.subgraph.tensors[index].name and not scope.depth:
                tensor.name = function.unique(scope.subgraph.tensors[index].name)
                fresh.discard(id(tensor))
            scope.values[index] = tensor

    def placeholder(self, scope: Scope, spec: TensorSpec) -> Tensor:
        """A tensor that stands for one that could not be made."""
        dtype = spec.dtype if spec.dtype and spec.dtype not in NARROW else "f32"
        tensor = scope.function.tensor(spec.name, dtype, tuple(d if d >= 0 else None for d in spec.shape))
        tensor.quantization = spec.quantization
        self.tainted.add(id(tensor))
        self.keep.append(tensor)
        return tensor


def own_output(function: Function, tensor: Tensor, taken: Container[Tensor]) -> Tensor:
    """The tensor, or a copy of it where it is an input or an output already (`taken`), or a variable."""
    if tensor.data is None and (tensor in taken or tensor.variable is not None):
        q = tensor.quantization
        return emit("copy", [tensor], {"kind": "identity"}, function=function, quantization=[q] if q else ())[0]
    return tensor


def check_size(shape: Sequence[int]) -> None:
    """Refuses a tensor that only a damaged file would ask for."""
    if any(d < 0 for d in shape) or math.prod(shape) * 8 > MAX_BYTES:
        raise Unsupported(f"a tensor of shape {list(shape)}", "the model is damaged: export it again")


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with _1, _2, ... on those that came before."""
    seen: set[str] = set()
    result = []
    for name in names:
        candidate, count = name, 0
        while candidate in seen:
            count += 1
            candidate = f"{name}_{count}"
        seen.add(candidate)
        result.append(candidate)
    return result
