"""Walks a TFLite model operator by operator and runs the rule of each; collects all problems instead of stopping at the first.
An operator that fails gives placeholders with the declared dtype and shape, so that the rest is checked too."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.converters.tflite import rules
from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.problems import Problem, Unsupported
from linnet.converters.tflite.registry import RULES
from linnet.converters.tflite.schema import MAX_BYTES, Model, OperatorSpec, SignatureSpec, SubgraphSpec, TensorSpec
from linnet.errors import GraphError, UsageError
from linnet.graph import Function, Graph, Tensor, Variable, numpy_dtype

MAX_DEPTH = 16  # of subgraphs inside subgraphs
MAX_SUBGRAPHS = 1024  # calls of subgraphs in all


class Scope:
    """One subgraph while it is converted into a function."""

    def __init__(self, function: Function, subgraph: SubgraphSpec, number: int, depth: int = 0) -> None:
        self.function, self.subgraph, self.number, self.depth = function, subgraph, number, depth
        self.values: dict[int, Tensor] = {}
        self.handles: dict[int, str] = {}  # resource tensors: the name of the variable behind
        self.current: dict[str, Tensor] = {}  # variables: the value at this point of the run
        self.initializing = False  # in the subgraph of CALL_ONCE: assignments give variables their first values
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
        self.entered = 0  # subgraphs converted because an operator names them
        self.initializing = False  # inside CALL_ONCE
        rules.load()

    def convert(self, input_shapes: Mapping[str, Sequence[int]] | None) -> Graph:
        """The graph: "infer" is subgraph 0, other signatures of the file keep their keys."""
        known = {s.subgraph: s for s in reversed(self.model.signatures)}
        self.entry(0, "infer", known.get(0), dict(input_shapes or {}))
        for signature in self.model.signatures:
            if signature.subgraph != 0 and signature.key not in self.graph.signatures:
                self.entry(signature.subgraph, signature.key or f"signature_{signature.subgraph}", signature, {})
        return self.graph

    def has_open_shapes(self, fixed: Sequence[str]) -> bool:
        """Whether an input of the model has a dimension that the file leaves open (inputs named in `fixed` aside)."""
        subgraph = self.model.subgraphs[0]
        return not fixed and any(-1 in subgraph.tensors[i].signature for i in subgraph.inputs)

    def entry(self, number: int, key: str, names: SignatureSpec | None, shapes: dict[str, Sequence[int]]) -> None:
        """One entry point: a function with the subgraph's inputs and outputs."""
        subgraph = self.model.subgraphs[number]
        function = self.graph.function("main" if number == 0 else key)
        scope = Scope(function, subgraph, number)
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
            if not spec.dtype or spec.dtype in ("i4", "u4"):
                self.problem(
                    "graph", label, f"the input is of type {spec.type_name}", "linnet has no such element type"
                )
            tensor = function.placeholder(label, spec.dtype if spec.dtype not in ("", "i4", "u4") else "f32", shape)
            tensor.quantization = spec.quantization
            scope.values[index] = tensor
        self.run(scope)
        function.outputs = self.outputs_of(scope)
        wanted = [names.outputs.get(i, "") if names else "" for i in subgraph.outputs]
        results = distinct([w or subgraph.tensors[i].name for w, i in zip(wanted, subgraph.outputs, strict=True)])
        self.graph.signature(key, function, labels, results)

    def outputs_of(self, scope: Scope) -> list[Tensor]:
        """The subgraph's outputs; one that cannot be had is a problem."""
        outputs: list[Tensor] = []
        for index in scope.subgraph.outputs:
            spec = scope.subgraph.tensors[index]
            try:
                outputs.append(self.own_output(scope, self.resolve(scope, index), outputs))
            except Unsupported as error:
                self.problem("graph", spec.name, error.reason, error.hint)
                outputs.append(self.placeholder(scope, spec))
        return outputs

    def own_output(self, scope: Scope, tensor: Tensor, taken: Sequence[Tensor]) -> Tensor:
        """The tensor, or a copy of it where it is an input, a constant, a variable, or an output already."""
        from linnet.graph import emit

        if tensor in taken or tensor in scope.function.inputs or tensor.data is not None or tensor.variable is not None:
            q = tensor.quantization
            if tensor.data is not None:
                return tensor
            return emit("copy", [tensor], {"kind": "identity"}, function=scope.function, quantization=[q] if q else ())[
                0
            ]
        return tensor

    # -- problems

    def problem(self, op: str, node: str, reason: str, hint: str = "") -> None:
        found = Problem(node=node, op=op, reason=reason, hint=hint)
        if found not in self.problems:
            self.problems.append(found)

    # -- values

    def resolve(self, scope: Scope, index: int) -> Tensor:
        """The tensor of an index, making constants at their first use. Raises Unsupported."""
        if index in scope.values:
            return scope.values[index]
        spec = scope.subgraph.tensors[index]
        if self.model.has_data(spec) or (0 in spec.shape and not spec.is_variable):
            value = self.model.value(spec)
            dtype = {"i4": "i8", "u4": "u8"}.get(spec.dtype, spec.dtype)
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
        """A variable tensor (of SVDF and recurrent ops): starts as the real value 0."""
        name = f"{scope.number}/{spec.name}"
        if name not in self.graph.variables:
            check_size(spec.shape)
            zero = 0 if spec.quantization is None else int(spec.quantization.zero.reshape(-1)[0])
            self.graph.variable(name, np.full(spec.shape, zero, numpy_dtype(spec.dtype)))
            self.graph.variables[name].quantization = spec.quantization
        return scope.function.read(self.graph.variables[name])

    def read_variable(self, scope: Scope, name: str, spec: TensorSpec) -> Tensor:
        """The value of a variable at this point; makes the variable at its first mention."""
        if name in scope.current:
            return scope.current[name]
        scope.current[name] = scope.function.read(self.variable(name, spec.dtype, spec.shape, spec))
        return scope.current[name]

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
        """Runs the subgraph of CALL_ONCE, which gives variables their first values."""
        scope = Scope(Function(self.graph, f"initialize_{number}"), self.subgraph(number), number)
        scope.initializing, scope.path = True, f"CALL_ONCE {number}: "
        self.initializing = True
        try:
            self.run(scope)
        finally:
            self.initializing = False

    def subgraph(self, number: int) -> SubgraphSpec:
        """A subgraph that an operator names. Raises Unsupported when there is none, or when they call each other on and on."""
        self.entered += 1
        if self.entered > MAX_SUBGRAPHS or self.initializing:
            raise Unsupported(f"subgraph {number} is one of too many, or calls itself", "export the model again")
        if not 0 <= number < len(self.model.subgraphs):
            raise Unsupported(
                f"subgraph {number} of {len(self.model.subgraphs)}", "the model is damaged: export it again"
            )
        return self.model.subgraphs[number]

    def branch(self, outer: Scope, number: int, operands: Sequence[Tensor], name: str) -> Function:
        """A function of the operands, from a subgraph without state."""
        subgraph = self.subgraph(number)
        if outer.depth >= MAX_DEPTH or len(subgraph.inputs) != len(operands):
            raise Unsupported(f"subgraph {number} does not fit its caller, or calls itself", "export it again")
        if any(o.op in ("VAR_HANDLE", "CALL_ONCE") for o in subgraph.operators):
            raise Unsupported(f"subgraph {number} has variables", "assign them outside of branches")
        function = self.graph.function(name)
        scope = Scope(function, subgraph, number, outer.depth + 1)
        scope.path = f"{name}/"
        for index, operand in zip(subgraph.inputs, operands, strict=True):
            spec = subgraph.tensors[index]
            made = function.placeholder(spec.name, operand.dtype, operand.shape)
            made.quantization = operand.quantization
            scope.values[index] = made
        self.run(scope)
        function.outputs = self.outputs_of(scope)
        return function

    # -- operators

    def run(self, scope: Scope) -> None:
        with np.errstate(all="ignore"):  # scales of a damaged file overflow; multipliers made of them are refused
            for number, spec in enumerate(scope.subgraph.operators):
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
                if index < 0 or index in scope.handles:
                    operands.append(None)
                    continue
                operands.append(self.resolve(scope, index))
            tainted = any(t is not None and id(t) in self.tainted for t in operands)
            found = RULES.get(spec.op)
            if found is None:
                hint = "replace it by builtin ops, or write a rule (CONTRIBUTING.md)"
                raise Unsupported(f"there is no rule for op {spec.op!r}", hint)
            made = found(Operation(self, scope, spec, operands, outputs))
            results = [made] if isinstance(made, Tensor) else list(made)
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
            if id(tensor) in fresh and tensor.name != scope.subgraph.tensors[index].name and not scope.depth:
                tensor.name = function.unique(scope.subgraph.tensors[index].name)
                fresh.discard(id(tensor))
            scope.values[index] = tensor

    def placeholder(self, scope: Scope, spec: TensorSpec) -> Tensor:
        """A tensor that stands for one that could not be made."""
        dtype = spec.dtype if spec.dtype not in ("", "i4", "u4") else "f32"
        tensor = scope.function.tensor(spec.name, dtype, tuple(d if d >= 0 else None for d in spec.shape))
        tensor.quantization = spec.quantization
        self.tainted.add(id(tensor))
        self.keep.append(tensor)
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
