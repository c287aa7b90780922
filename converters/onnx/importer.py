"""Walks an ONNX graph in order, runs the rule of every node and collects all problems instead of stopping at the first. A failed
node yields placeholders, so that later nodes are checked too. Their shapes come from ONNX's own inference if possible."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Sequence
from typing import Any

import onnx
from onnx import FunctionProto, NodeProto, TypeProto, defs

from linnet.clib.errors import Error, GraphError
from linnet.converters.onnx import custom, interface, legacy, limits, narrow, rules
from linnet.converters.onnx.hints import nearest
from linnet.converters.onnx.interface import dims_of
from linnet.converters.onnx.loader import array_from, text_of
from linnet.converters.onnx.nodes import guessed, label, opsets_of, ordered, size_of, substituted, type_of
from linnet.converters.onnx.operation import DTYPES, Operation, storage_of
from linnet.converters.onnx.problems import (
    MOST_PROBLEMS,
    OutOfRange,
    Problem,
    Unknown,
    Unsupported,
    fault_of,
    malformed,
    more_problems,
    no_tensor,
)
from linnet.converters.onnx.randomness import Randomness
from linnet.converters.onnx.registry import LIKE, MICROSOFT, NEWEST_OPSET, Rule, find, key_of
from linnet.converters.onnx.schemas import MAIN, checked, has_body, pick, schema_of
from linnet.converters.onnx.scope import Body, Scope
from linnet.converters.onnx.values import COMPOSITE, Carried, Value, leaves, rebuilt
from linnet.facade import Graph
from linnet.ir.function import Function, Tensor
from linnet.ir.user_op import UserOp, register

OLDEST_OPSET = 1  # an op of an old opset is refused only for attributes that no rule reads
MAX_DEPTH = 32  # limit on the nesting of functions
MAX_GROWTH = 100  # limit on converted nodes per node in the file (functions inlined, bodies tried again), plus 20,000


class Importer:
    """One conversion: the graph being built and the problems found."""

    def __init__(self, model: onnx.ModelProto, place: str | None, user_ops: Iterable[UserOp] = ()) -> None:
        self.model, self.place = model, place
        self.graph = Graph()
        self.user_ops = register({}, user_ops)
        self.function: Function = self.graph.function("main")
        self.problems: list[Problem] = []
        self.shaped: list[str] = []  # inputs that the model leaves open, with the shapes that the caller gives
        self.tainted: set[int] = set()  # ids of placeholders for outputs of failed nodes and of nodes after them
        self.kinds: dict[Tensor, narrow.Kind] = {}  # tensors that hold codes of a narrow type, and that type
        self.keep: list[Tensor] = []  # keeps tainted tensors alive, so that their ids stay unique
        self.functions: dict[tuple[str, str], FunctionProto] = {(f.domain, f.name): f for f in model.functions}
        self.types: dict[str, TypeProto] = {v.name: v.type for v in (*model.graph.value_info, *model.graph.output)}
        self.depth = 0
        self.final: dict[int, Problem] = {}  # by id: problems of branches that no shapes would solve
        self.active: list[tuple[str, str]] = []  # functions of the model that are being inlined
        self.left = 20_000 + MAX_GROWTH * (sum(map(size_of, model.functions)) + size_of(model.graph))
        self.bodies: dict[Function, Body] = {}
        self.carried: dict[int, Carried] = {}  # by id of a loop's body: the values it was last converted with
        self.randomness = Randomness(self)
        self.made = 0  # elements of constants that rules have made; see Operation.may_make
        self.names: list[str] = []  # names of the signature's inputs
        self.wanted = {info.name for info in model.graph.output}
        self.returned: set[Tensor] = set()  # outputs of the model that are already made

    # -- problems

    def problem(self, node: NodeProto | None, reason: str, hint: str = "", name: str = "", op: str = "") -> None:
        """Records a problem of a node or of a named value. If `op` is not given for a value, it is the first op that
        reads or makes the value."""
        if self.full:
            return
        found = Problem(
            node=label(node) if node is not None else text_of(name),
            op=text_of(node.op_type or "node without an op type")
            if node is not None
            else op or self.near.get(name, "graph"),
            reason=reason,
            hint=hint,
        )
        if (
            found not in self.problems[-50:]
        ):  # repeats come close together; comparing with all would take too long for a file with many problems
            self.problems.append(found)

    @property
    def full(self) -> bool:
        """Whether the search must stop, because the maximum number of problems was found or the maximum number of nodes
        was converted."""
        return len(self.problems) >= MOST_PROBLEMS or self.left < 0

    @functools.cached_property
    def near(self) -> dict[str, str]:
        """Maps the name of a value to the type of the first op of the main graph that reads or makes it."""
        found: dict[str, str] = {}
        for node in self.model.graph.node:
            for name in (*node.input, *node.output):
                found.setdefault(name, node.op_type)
        return found

    # -- values

    def resolve(self, scope: Scope, name: str) -> Value:
        """Returns the value of a name. Creates constants from initializers on first use. Raises KeyError."""
        at: Scope | None = scope
        while at is not None:
            if name in at.values:
                return at.values[name]
            if name in at.initializers:
                data, dtype = array_from(at.initializers[name], self.place)
                constant = self.function.constant(data, name=self.function.claim(name), dtype=dtype)
                if (kind := narrow.KINDS.get(at.initializers[name].data_type)) is not None:
                    self.kinds[constant] = kind
                at.values[name] = constant
                return constant
            if isinstance(at, Body) and at.parent is not None:
                inner, self.function = self.function, at.outer
                try:
                    found = self.resolve(at.parent, name)
                finally:
                    self.function = inner
                found = rebuilt(found, (self.captured(at, t) for t in leaves(found)))
                at.values[name] = found
                return found
            at = at.parent
        raise KeyError(name)

    def captured(self, body: Body, outside: Tensor) -> Tensor:
        """The input that represents an outer tensor inside a body. It has the narrow element type of the outer tensor,
        if any. If the outer tensor is tainted (depends on a failed node), the input is tainted too."""
        inside = body.capture(outside)
        if outside in self.kinds:
            self.kinds[inside] = self.kinds[outside]
        if id(outside) in self.tainted:
            self.tainted.add(id(inside))
            self.keep.append(inside)
        return inside

    def given(self, scope: Scope, name: str) -> Value:
        """The value of an output of a subgraph or function. Raises Unsupported."""
        try:
            return self.resolve(scope, name)
        except KeyError:
            raise Unsupported(
                f"its body returns {name!r}, but no input, initializer or node produces it", "export the model again"
            ) from None

    def inputs_of(self, scope: Scope, node: NodeProto) -> list[Value]:
        """The node's operands. If an operand cannot be resolved, this is recorded as a problem, and a tainted
        placeholder replaces the operand."""
        operands: list[Value] = []
        for name in node.input:
            if not name:
                operands.append(None)
                continue
            try:
                operands.append(self.resolve(scope, name))
            except KeyError:
                hint = "the model is incomplete: export it again"
                self.problem(node, f"it reads {name!r}, but no input, initializer or node produces it", hint)
                operands.append(self.placeholder(name))
            except Unsupported as error:
                self.problem(node, error.reason, error.hint)
                operands.append(self.placeholder(name))
        return operands

    def placeholder(self, name: str) -> Tensor:
        """A tensor that replaces one that could not be made. Its type and shape come from the model or from ONNX's
        inference."""
        dtype, shape = "f32", None
        if name in self.types and self.types[name].HasField("tensor_type"):
            kind = self.types[name].tensor_type
            dtype = storage_of(kind.elem_type) if kind.elem_type in {*DTYPES, *narrow.KINDS} else "f32"
            shape = dims_of(kind)
            if shape is not None and not interface.sensible(shape):
                shape = (None,) * len(shape)
        tensor = self.function.tensor(text_of(name) or "missing", dtype, shape)
        if name in self.types and self.types[name].tensor_type.elem_type in narrow.KINDS:
            self.kinds[tensor] = narrow.KINDS[self.types[name].tensor_type.elem_type]
        self.tainted.add(id(tensor))
        self.keep.append(tensor)
        return tensor

    # -- nodes

    def run(self, nodes: Sequence[NodeProto], scope: Scope) -> None:
        """Converts nodes in an order that makes every value before it is read."""
        for node in ordered(nodes, self.problem):
            if self.full:
                break
            self.convert(node, scope)

    def convert(self, node: NodeProto, scope: Scope) -> None:
        """Runs one node's rule and adds its outputs to the scope."""
        operands = self.inputs_of(scope, node)
        tainted = any(id(t) in self.tainted for value in operands for t in leaves(value))
        before = len(self.function.nodes)
        outer = self.function.source
        if not self.depth:
            self.function.source = f"{node.op_type}:{label(node)}"
        results: Sequence[Value] | None = None
        guess = True
        try:
            results = self.lower(node, scope, operands)
        except Unsupported as error:
            guess = not isinstance(error, OutOfRange)
            if not (tainted and isinstance(error, Unknown)):
                self.problem(node, error.reason, error.hint)
        except Error as error:
            if not tainted:
                given = (
                    f", and the shape given for {', '.join(self.shaped)}" if self.shaped and error.code == 303 else ""
                )
                self.problem(node, str(error), "check the node's operands and attributes" + given)
        except Exception as error:
            # Rules read unchecked attributes and constants, so any exception here is the fault of the file.
            if not tainted:
                self.problem(node, *malformed(error, "attributes"))
        finally:
            self.function.source = outer
        if results is None:
            del self.function.nodes[before:]
            if guess:
                self.types.update(guessed(node, scope.opset(""), operands, self.kinds))
            results = [self.placeholder(name) for name in node.output]
        elif tainted:
            made = [t for value in results for t in leaves(value)]
            self.tainted.update(id(t) for t in made if t.data is None)
            self.keep += made
        fresh = {id(t) for emitted in self.function.nodes[before:] for t in emitted.outputs}
        own = set(fresh)
        for name, value in zip(node.output, results, strict=False):
            if not name:
                continue
            if name in self.wanted and scope.parent is None and not self.depth:
                self.function.source = f"{node.op_type}:{label(node)}"
                value = rebuilt(value, iter([self.separate(t, name, own) for t in leaves(value)]))
                self.function.source = outer
            if isinstance(value, Tensor) and id(value) in fresh and not self.depth and name != value.name:
                value.name = self.function.unique(self.function.claim(name))
                fresh.discard(id(value))
            scope.values[name] = value
        for name in node.output[len(results) :]:
            if name:
                self.problem(node, f"output {name!r} is not supported", "remove it if nothing uses it")
                scope.values[name] = self.placeholder(name)

    def separate(self, tensor: Tensor, name: str, fresh: Container[int]) -> Tensor:
        """Makes an output of the model a tensor of its own, even if a rule returns its operand. So if a run feeds the
        output, the fed value reaches only the nodes that read the output. fresh: ids of the results of the nodes that
        the rule emitted."""
        if id(tensor) not in fresh or tensor in self.returned:
            kind, tainted = self.kinds.get(tensor), id(tensor) in self.tainted
            if tensor.data is not None:
                own = self.function.claim(name)
                tensor = self.function.constant(tensor.data, own, tensor.dtype, tensor.quantization)
            elif not tainted:
                tensor = self.emitted("copy", tensor, kind="identity")
                tensor.name = self.function.unique(self.function.claim(name))
            if kind is not None:
                self.kinds[tensor] = kind
        self.returned.add(tensor)
        return tensor

    def lower(self, node: NodeProto, scope: Scope, operands: Sequence[Value]) -> list[Value]:
        """Returns the outputs of one node. They are made by its rule, by a function of the model, or by its ONNX
        function body."""
        domain = "" if node.domain in MAIN else node.domain
        if not isinstance(node.op_type, str) or not isinstance(node.domain, str):
            raise Unsupported("its op type is not valid UTF-8", "the file is damaged: export the model again")
        self.left -= 1
        if (op := self.user_ops.get(custom.name_of(node))) is not None:
            return custom.convert(op, node, scope.opset(domain), operands, self.function, self.types)
        if (name := (node.domain, node.op_type)) in self.functions:
            if name in self.active:
                raise Unsupported(f"function {node.op_type!r} calls itself", "ONNX functions must not be recursive")
            self.active.append(name)
            try:
                return self.call(self.functions[name], node, operands)
            finally:
                self.active.pop()
        opset = scope.opset(domain)
        foreign = (
            domain if domain or defs.has(node.op_type, domain) else MICROSOFT
        )  # ONNX Runtime adds ops of its own to ai.onnx
        if foreign and (other := find(node.op_type, max(opset, 1), foreign)) is not None:
            return self.foreign(other, node, scope, operands, foreign)
        if not defs.has(node.op_type, domain) or (domain and not has_body(node.op_type, domain)):
            where = f"in domain {domain!r}" if domain else f"in opset {opset}"
            hint = nearest(node.op_type, domain, scope.opset("")) or custom.advice(node)
            raise Unsupported(f"there is no rule for op {node.op_type!r} {where}", hint)
        if opset == 0:
            raise Unsupported("the model declares no opset for this op", f"add an opset import for domain {domain!r}")
        schema = checked(node, opset, domain, len(operands))
        operation = Operation(self, scope, node, operands, opset, schema)
        function = None if domain else find(node.op_type, opset)
        if function is None:
            limits.check(operation)
            return list(self.expand(operation))
        return self.apply(function, operation)

    def foreign(
        self, function: Rule, node: NodeProto, scope: Scope, operands: Sequence[Value], domain: str
    ) -> list[Value]:
        """Returns the outputs of an op outside ai.onnx, which has no schema."""
        like, opset = LIKE.get(key_of(node.op_type, domain)), scope.opset("") or NEWEST_OPSET
        schema = schema_of(like, opset) if like is not None else None
        return self.apply(function, Operation(self, scope, node, operands, opset, schema))

    def apply(self, function: Rule, operation: Operation) -> list[Value]:
        """Runs a rule and checks that it read every attribute of the node."""
        result: Any
        limits.check(operation)
        legacy.enter(operation)
        narrow.enter(operation)
        try:
            result = function(operation)
        except GraphError:  # the cause may be an attribute that the rule does not read
            if not operation.unread():
                raise
            result = None
        except Unsupported:
            raise
        except Exception as error:
            if (fault := fault_of(function, error)) is None:
                raise
            raise fault from error
        unread = operation.unread()
        if unread:
            raise Unsupported(f"attribute {unread[0]!r} is not supported", "remove it, or extend the rule")
        kinds = (Tensor, *COMPOSITE, type(None))
        results = [result] if isinstance(result, kinds) else list(result) if isinstance(result, list | tuple) else None
        if results is None or not all(isinstance(value, kinds) for value in results):
            raise no_tensor(function, result)
        narrow.leave(operation, results)
        return results

    # -- functions and branches

    def expand(self, operation: Operation) -> list[Value]:
        """Lowers a node through the function body of its ONNX schema. Raises Unsupported if the schema has no function
        body."""
        node, schema, opset = operation.node, operation._schema, operation.opset
        body = FunctionProto()
        if schema.has_function:
            body.ParseFromString(pick(schema.get_function_with_opset_version, schema.function_opset_versions, opset))
        elif schema.has_context_dependent_function:
            types = [type_of(value, self.kinds) for value in operation.inputs]
            versions = schema.context_dependent_function_opset_versions
            version = max((v for v in versions if v <= opset), default=min(versions))
            text = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
            if text:
                body.ParseFromString(text)
        if not body.node:
            raise Unsupported(f"there is no rule for op {node.op_type!r}", nearest(node.op_type, "", opset))
        if "" not in opsets_of(body.opset_import):  # true for function bodies of other domains
            body.opset_import.add(domain="", version=operation.scope.opset("") or NEWEST_OPSET)
        return self.call(body, node, operation.inputs, schema)

    def call(self, body: FunctionProto, node: NodeProto, operands: Sequence[Value], schema: Any = None) -> list[Value]:
        """Inlines a function body with the node's operands and attributes."""
        if self.depth >= MAX_DEPTH:
            raise Unsupported(
                f"functions are nested deeper than {MAX_DEPTH}", "export with less deeply nested functions"
            )
        given = {a.name: a for a in node.attribute}
        for default in body.attribute_proto:
            given.setdefault(default.name, default)
        if schema is not None:
            for name, attribute in schema.attributes.items():
                if attribute.default_value.name:
                    given.setdefault(name, attribute.default_value)
        scope = Scope(opsets_of(body.opset_import))
        for index, name in enumerate(body.input):
            scope.values[name] = operands[index] if index < len(operands) else None
        nodes = [substituted(inner, given) for inner in body.node]
        found = len(self.problems)
        self.depth += 1
        try:
            self.run(nodes, scope)
        finally:
            self.depth -= 1
        if len(self.problems) > found:  # report them as one problem of the node that the user knows
            inside = self.problems[found:]
            del self.problems[found:]
            raise Unsupported(f"its function body needs {inside[0].op}: {inside[0].reason}", inside[0].hint)
        # a body made for this node does not compute outputs that the node leaves unnamed
        wanted = [index < len(node.output) and bool(node.output[index]) for index in range(len(body.output))]
        return [self.given(scope, n) if n and w else None for n, w in zip(body.output, wanted, strict=True)]

    def emitted(self, op: str, *inputs: Tensor, **attributes: Any) -> Tensor:
        """Emits a node into the current function, which may belong to a body."""
        from linnet.ir.function import emit

        return emit(op, list(inputs), attributes, 1, function=self.function)[0]

    # -- the whole model

    def convert_model(self, input_shapes: interface.Shapes | None) -> Graph:
        """Converts the whole model into a graph with the signature "infer". Problems are stored in `problems`."""
        rules.load()
        scope = Scope(opsets_of(self.model.opset_import))
        opset = scope.opset("")
        if not OLDEST_OPSET <= opset <= NEWEST_OPSET and opset:
            hint = "export the model with an older opset"
            self.problem(
                None,
                f"the model has opset {opset}; linnet reads {OLDEST_OPSET} to {NEWEST_OPSET}",
                hint,
                "model",
            )
        graph = self.model.graph
        scope.initializers = {t.name: t for t in graph.initializer}
        if graph.sparse_initializer:
            self.problem(
                None,
                "sparse initializers are not supported",
                "store the initializer as a dense tensor",
                graph.sparse_initializer[0].values.name,
            )
        interface.declare_inputs(self, graph, scope, dict(input_shapes or {}))
        named = {*scope.initializers, *(name for node in graph.node for name in node.output if name)}
        self.function.reserve(named - set(scope.values))
        self.run(graph.node, scope)
        interface.declare_outputs(self, graph, scope)
        self.randomness.advance()
        if self.left < 0:
            reason = (
                f"its functions, branches and loops convert to more than {MAX_GROWTH} nodes for each node in the file"
            )
            hint = "export the model with fewer nested functions, branches and loops"
            self.problems.append(Problem("", "graph", reason, hint))
        elif self.full:
            self.problems.append(more_problems())
        return self.graph
