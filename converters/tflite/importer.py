"""Walks a TFLite model, runs the rule of every operator and collects all problems instead of stopping at the first.
A failed operator yields placeholders with the declared dtype and shape, so that later operators are checked too."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import GraphError, UsageError
from linnet.converters.tflite import complex_numbers, custom, limits, rules
from linnet.converters.tflite.hints import nearest
from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.problems import MOST_PROBLEMS, Problem, Unsupported, fault_of, malformed, more_problems
from linnet.converters.tflite.registry import RULES
from linnet.converters.tflite.schema import (
    NARROW,
    Model,
    OperatorSpec,
    SignatureSpec,
    SubgraphSpec,
    TensorSpec,
)
from linnet.converters.tflite.scope import Scope, State, Value, check_size, copied, distinct, own_output
from linnet.facade import Graph
from linnet.ir.dtypes import dtype_of, numpy_dtype
from linnet.ir.function import Function, Tensor, Variable, emit
from linnet.ir.graph import graph_of
from linnet.ir.user_op import UserOp, register

MAX_DEPTH = 16  # limit on the nesting of subgraphs
MAX_SUBGRAPHS = 1024  # limit on the total number of subgraph calls


class Importer:
    """One conversion: the graph being built and the problems found."""

    def __init__(self, model: Model, open_shapes: bool = False, user_ops: Iterable[UserOp] = ()) -> None:
        self.model, self.open_shapes = model, open_shapes
        self.user_ops = register({}, user_ops)
        self.declared = True  # the inputs have the shapes of the file, so the shapes that it declares are true
        self.graph = Graph()
        self.problems: list[Problem] = []
        self.tainted: set[int] = (
            set()
        )  # ids of placeholders for outputs of failed operators and of operators after them
        self.keep: list[Tensor] = []  # keeps tainted tensors alive, so that their ids stay unique
        self.initial: dict[str, npt.NDArray[Any]] = {}  # initial values of variables that CALL_ONCE assigns
        self.hybrid: list[str] = []  # operators with integer weights that compute in floats
        self.made = 0  # elements of constants that rules have made; see Operation.may_make
        self.entered = 0  # number of subgraphs entered from an operator
        self.initialized: set[int] = set()  # subgraphs that CALL_ONCE has already run
        rules.load()

    def convert(self, input_shapes: Mapping[str, Sequence[int]] | None) -> Graph:
        """Builds the graph: subgraph 0 becomes "infer", other signatures of the file keep their keys."""
        known = {s.subgraph: s for s in reversed(self.model.signatures)}
        self.entry(0, "infer", known.get(0), dict(input_shapes or {}))
        for signature in self.model.signatures:
            if signature.subgraph != 0 and signature.key not in self.graph.signatures:
                self.entry(signature.subgraph, signature.key or f"signature_{signature.subgraph}", signature, {})
        if self.full:
            self.problems.append(more_problems())
        return self.graph

    def has_open_shapes(self, fixed: Sequence[str]) -> bool:
        """Whether the file leaves a dimension of an input open. False if `fixed` gives a shape for any input."""
        subgraph = self.model.subgraphs[0]
        return not fixed and any(-1 in subgraph.tensors[i].signature for i in subgraph.inputs)

    def entry(self, number: int, key: str, names: SignatureSpec | None, shapes: dict[str, Sequence[int]]) -> None:
        """Creates an entry point: a function with the subgraph's inputs and outputs."""
        subgraph = self.model.subgraphs[number]
        function = self.graph.function("main" if number == 0 else key)
        scope = Scope(function, subgraph, number, State())
        given = [names.inputs.get(i, "") if names else "" for i in subgraph.inputs]
        labels = distinct([g or subgraph.tensors[i].name for g, i in zip(given, subgraph.inputs, strict=True)])
        unknown = [name for name in shapes if name not in labels]
        if unknown:
            raise UsageError(
                f"input_shapes names {unknown[0]!r}, but the model has no input of this name",
                code=102,
                expected=", ".join(labels),
            )
        for label, index in zip(labels, subgraph.inputs, strict=True):
            spec = subgraph.tensors[index]
            own: Sequence[int | None] = spec.shape
            if self.open_shapes and len(spec.signature) == len(spec.shape):
                own = [None if s < 0 else d for s, d in zip(spec.signature, spec.shape, strict=True)]
            given_shape = shapes.get(label)
            shape = tuple(own) if given_shape is None else tuple(int(d) for d in given_shape)
            self.declared = self.declared and shape == spec.shape
            if len(shape) != len(spec.shape):
                raise UsageError(
                    f"the shape that input_shapes gives for {label!r} has the wrong rank", code=104, tensor=label,
                    expected=str(list(spec.shape)), got=str(list(shape)),
                )  # fmt: skip
            if not spec.dtype or spec.dtype in NARROW:
                self.problem(
                    "graph",
                    label,
                    f"the input has the unsupported type {spec.type_name}",
                    "export the model with a supported type",
                )
            tensor = function.placeholder(
                label, spec.dtype if spec.dtype and spec.dtype not in NARROW else "f32", shape
            )
            tensor.quantization = spec.quantization
            scope.values[index] = tensor
        function.reserve({t.name for i, t in enumerate(subgraph.tensors) if i not in scope.values})
        self.run(scope)
        function.outputs = self.outputs_of(scope)
        self.commit(scope)
        wanted = [names.outputs.get(i, "") if names else "" for i in subgraph.outputs]
        results = distinct([w or subgraph.tensors[i].name for w, i in zip(wanted, subgraph.outputs, strict=True)])
        self.graph.signature(key, function, labels, results)

    def outputs_of(self, scope: Scope) -> list[Tensor]:
        """The subgraph's outputs. If an output cannot be resolved, this is recorded as a problem."""
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
        """Whether the maximum number of problems has been found, so that the search stops."""
        return len(self.problems) >= MOST_PROBLEMS

    # -- values

    def resolve(self, scope: Scope, index: int) -> Tensor:
        """Returns the tensor of an index. Creates constants on first use. Raises Unsupported."""
        if index in scope.values:
            return scope.values[index]
        spec = scope.subgraph.tensors[index]
        if self.model.has_data(spec) or (0 in spec.shape and not spec.is_variable):
            value = self.model.value(spec)
            dtype = NARROW[spec.dtype][0] if spec.dtype in NARROW else spec.dtype
            made = scope.function.constant(value, scope.function.claim(spec.name), dtype, spec.quantization)
        elif spec.is_variable:
            made = self.state(scope, spec)
        elif spec.type_name == "RESOURCE":
            raise Unsupported(f"{spec.name!r} is a resource other than a variable", "use only variables as resources")
        else:
            raise Unsupported(
                f"it reads {spec.name!r}, but no input, constant or operator produces it",
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
        """The current value of a variable. The first use creates the variable and needs its declaration (spec)."""
        state = scope.state
        if name not in state.current:
            if name not in self.graph.variables and spec is None:
                raise Unsupported(f"variable {name!r} is read before its shape is known", "export the model again")
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
        """Makes a variable an input of a branch or loop body."""
        variable = self.graph.variables[name]
        made = function.placeholder(name, dtype_of(variable.value.dtype), variable.value.shape)
        made.quantization = variable.quantization
        state.captured[name] = state.current[name] = made

    def assign_variable(self, scope: Scope, name: str, value: Tensor) -> None:
        """Sets the current value of the variable."""
        state = scope.state
        if state.kind == "first":
            self.initial[name] = self.computed(value)
            state.current[name] = value
            return
        if value.static_shape is None:
            raise Unsupported(
                f"variable {name!r} is assigned a value of unknown shape", "set the input shapes with input_shapes"
            )
        variable = self.variable(name, value.dtype, value.static_shape, None)
        if variable.value.shape != value.static_shape or variable.value.dtype != numpy_dtype(value.dtype):
            declared = f"{dtype_of(variable.value.dtype)} {list(variable.value.shape)}"
            raise Unsupported(
                f"variable {name!r} is {declared}, but the value assigned is {value.dtype} {list(value.static_shape)}",
                "use one type and shape for the variable",
            )
        if variable.quantization is None:
            variable.quantization = value.quantization
        if state.kind == "nested":
            self.read_variable(scope, name)  # a branch that does not assign the variable returns its incoming value
        state.current[name] = value
        state.assigned[name] = None

    def commit(self, scope: Scope) -> None:
        """Called at the end of an entry point: writes the assigned values to the variables."""
        for name in scope.state.assigned:
            value, variable = scope.state.current[name], self.graph.variables[name]
            made = emit("assign", [scope.function.read(variable), value], {}, function=scope.function)[0]
            made.quantization = value.quantization

    def computed(self, value: Tensor) -> npt.NDArray[Any]:
        """Computes a tensor that depends only on constants, by running its function."""
        from linnet.session.session import Session

        if value.data is not None:
            return value.data
        function = value.function
        if value.node is None or function.inputs:
            raise Unsupported("the initial value of a variable is unknown", "initialize it with a constant")
        function.outputs = [value]
        graph_of(function).signatures.clear()
        graph_of(function).signature("infer", function, [], ["value"])
        return np.asarray(Session(graph_of(function)).run({})["value"])

    def variable(self, name: str, dtype: str, shape: tuple[int, ...], spec: TensorSpec | None) -> Variable:
        if name not in self.graph.variables:
            value = self.initial.get(name)
            if value is None:
                check_size(shape)
                value = np.zeros(shape, numpy_dtype(dtype))
            if tuple(value.shape) != tuple(shape) or value.dtype != numpy_dtype(dtype):
                raise Unsupported(
                    f"variable {name!r} is {dtype} {list(shape)}, but its initial value is {value.dtype} {list(value.shape)}",
                    "use one type and shape for the variable",
                )
            made = self.graph.variable(name, value)
            made.quantization = spec.quantization if spec is not None else None
        return self.graph.variables[name]

    # -- subgraphs

    def initialize(self, number: int) -> None:
        """Runs the subgraph of CALL_ONCE once per conversion. It sets initial values of variables."""
        if number in self.initialized:
            return
        self.initialized.add(number)
        subgraph = self.subgraph(number)
        scope = Scope(Graph().function("main"), subgraph, number, State("first"), 1)
        scope.path = f"CALL_ONCE {number}/"
        self.run(scope)

    def subgraph(self, number: int) -> SubgraphSpec:
        """The subgraph that an operator names. Raises Unsupported if it does not exist, or if there are too many
        calls."""
        self.entered += 1
        if self.entered > MAX_SUBGRAPHS:
            raise Unsupported(f"subgraph {number} calls itself, or there are too many calls", "export the model again")
        if not 0 <= number < len(self.model.subgraphs):
            raise Unsupported(
                f"there is no subgraph {number}; the model has {len(self.model.subgraphs)}",
                "the model is damaged: export it again",
            )
        return self.model.subgraphs[number]

    def inline(
        self, outer: Scope, number: int, operands: Sequence[Value], function: Function, state: State, name: str
    ) -> list[Value]:
        """Inlines a subgraph into `function` and returns its results."""
        subgraph = self.subgraph(number)
        if outer.depth >= MAX_DEPTH or len(subgraph.inputs) != len(operands):
            raise Unsupported(f"subgraph {number} does not match its caller, or calls itself", "export the model again")
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
        with np.errstate(all="ignore"):  # scales of a damaged file may overflow; rules refuse the resulting multipliers
            for number, spec in enumerate(scope.subgraph.operators):
                if self.full:
                    break
                self.operator(scope, spec, number)

    def operator(self, scope: Scope, spec: OperatorSpec, number: int) -> None:
        """Runs one operator's rule and adds its outputs to the scope."""
        outputs = [scope.subgraph.tensors[i] for i in spec.outputs]
        label = scope.path + (outputs[0].name if outputs else f"operator {number}")
        function = scope.function
        before, outer = len(function.nodes), function.source
        function.source = f"{spec.op}:{label}"
        tainted, results = False, None
        try:
            operands: list[Tensor | None] = []
            for index in spec.inputs:
                if index < 0 or index in scope.handles:  # a rule looks up the handle in the scope
                    operands.append(None)
                    continue
                operands.append(self.resolve(scope, index))
            tainted = any(t is not None and id(t) in self.tainted for t in operands)
            results = self.converted(scope, spec, operands, outputs)
        except Unsupported as error:
            if not tainted or spec.op not in RULES:
                self.problem(spec.op, label, error.reason, error.hint)
        except GraphError as error:
            if not tainted:
                self.problem(spec.op, label, str(error), "check the operator's operands and options")
        except (TypeError, ValueError, IndexError, KeyError, AssertionError, ArithmeticError, struct.error) as error:
            # Rules read unchecked options and constants, so these exceptions are the fault of the file.
            if not tainted:
                self.problem(spec.op, label, *malformed(error, "options"))
        finally:
            function.source = outer
        if results is None:
            del function.nodes[before:]
            results = [self.placeholder(scope, o) for o in outputs]
        elif tainted:
            self.tainted.update(id(t) for t in results if t.data is None)
            self.keep += results
        fresh = {id(t) for node in function.nodes[before:] for t in node.outputs}
        own = set(fresh)
        for index, tensor in zip(spec.outputs, results, strict=False):
            if index in scope.handles:
                continue
            if index in scope.subgraph.outputs and not scope.depth and id(tensor) not in self.tainted:
                # An output of the model is a tensor of its own, also if a rule returns its operand. A run that is fed the
                # output then feeds all operators that read it, and no others.
                if tensor.data is None and id(tensor) not in own:
                    function.source = f"{spec.op}:{label}"
                    tensor = copied(function, tensor)
                    function.source = outer
                    fresh.add(id(tensor))
                own.discard(id(tensor))
            if id(tensor) in fresh and tensor.name != scope.subgraph.tensors[index].name and not scope.depth:
                tensor.name = function.unique(function.claim(scope.subgraph.tensors[index].name))
                fresh.discard(id(tensor))
            scope.values[index] = tensor

    def converted(
        self, scope: Scope, spec: OperatorSpec, operands: list[Tensor | None], outputs: list[TensorSpec]
    ) -> list[Tensor]:
        """The outputs of an operator, made by a user op or by the operator's rule. Raises Unsupported."""
        if (op := self.user_ops.get(custom.name_of(spec.op))) is not None:
            return custom.convert(op, spec, operands, outputs, scope.function, self.declared)
        found = RULES.get(spec.op)
        if found is None:
            code = spec.op.removeprefix("CUSTOM:")
            if code == spec.op:
                raise Unsupported(f"there is no rule for op {spec.op!r}", nearest(spec.op))
            raise Unsupported(
                f"there is no rule for the custom op {code!r}", f"{nearest(spec.op)}; {custom.advice(spec.op)}"
            )
        try:
            operation = Operation(self, scope, spec, operands, outputs)
            limits.check(operation)
            return complex_numbers.run(found, operation)
        except (Unsupported, GraphError):
            raise
        except Exception as error:
            if (fault := fault_of(found, error)) is None:
                raise
            raise fault from error

    def placeholder(self, scope: Scope, spec: TensorSpec) -> Tensor:
        """A tensor that replaces one that could not be made."""
        dtype = spec.dtype if spec.dtype and spec.dtype not in NARROW else "f32"
        tensor = scope.function.tensor(spec.name, dtype, tuple(d if d >= 0 else None for d in spec.shape))
        tensor.quantization = spec.quantization
        self.tainted.add(id(tensor))
        self.keep.append(tensor)
        return tensor
