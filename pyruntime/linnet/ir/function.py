"""Functions of nodes over tensors and variables. These classes refer to each other and are therefore in one module.
`emit` creates a node, infers its shapes with the C library's own rules, and folds it if everything it reads is
constant."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import Error, GraphError, UsageError
from linnet.ir.dtypes import Dim, DTypeLike, Quantization, Spec, dtype_of, nth
from linnet.ir.exact import numbers_of
from linnet.ir.operators import Arithmetic

if TYPE_CHECKING:
    from linnet.ir.operands import Registered
    from linnet.ir.operators import Value

    class Home(Protocol):
        """The parts of their graph (a linnet.ir.graph.Graph) that functions and variables need."""

        prefix: str
        folded: int
        variables: dict[str, Variable]
        bodies: list[Function]
        user_ops: dict[str, Registered]

        @property
        def main(self) -> Function: ...
        @property
        def label(self) -> str: ...
        def may_fold(self, size: int) -> bool: ...
        def place(self, node: Node) -> str: ...


class Operators(Arithmetic["Tensor"]):
    """Base of Tensor and Variable."""

    if TYPE_CHECKING:  # fields or properties of both classes

        @property
        def rank(self) -> int | None: ...
        @property
        def static_shape(self) -> tuple[int, ...] | None: ...
        @property
        def function(self) -> Function: ...


@dataclasses.dataclass(eq=False)
class Variable(Operators):
    """Mutable state, shared by all signatures of a graph. `value` is the initial value; operators read the current
    value."""

    name: str
    value: npt.NDArray[Any]
    quantization: Quantization | None = None
    graph: Home | None = dataclasses.field(default=None, repr=False)
    trainable: bool = True  # whether optimizers update it by default
    placement: str = ""  # device string; "": anywhere

    def tensor(self, like: Value | None = None) -> Tensor:
        """Reads the value from before the run. The read is in the function of `like`. If that is None, it is in the
        function that the graph is building."""
        return (like.function if like is not None else self.function).read(self)

    @property
    def function(self) -> Function:
        """The function in which the variable is read if no other operand determines this: the one that its graph is
        building. Raises UsageError."""
        if self.graph is None:
            raise UsageError(
                "the variable does not belong to a graph", code=101, tensor=self.name, hint="use function.read(variable)",
            )  # fmt: skip
        return self.graph.main

    @property
    def dtype(self) -> str:
        return dtype_of(self.value.dtype)

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.value.shape

    @property
    def rank(self) -> int:
        return self.value.ndim

    @property
    def static_shape(self) -> tuple[int, ...]:
        return self.value.shape


@dataclasses.dataclass(eq=False)
class Tensor(Operators):
    """A value of a function: the output of a node, an input, a constant (`data`), or a variable's current value.

    shape: one entry per dimension: a number, a name (symbolic), or None (unknown). The whole shape is None if even the
    rank is unknown. dtype: "f32", "i8", ... (constants of bf16 have arrays of ml_dtypes.bfloat16 in `data`).
    """

    function: Function
    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    data: npt.NDArray[Any] | None = None
    variable: Variable | None = None
    quantization: Quantization | None = None
    node: Node | None = None  # the producer
    elements: tuple[Dim, ...] | None = None  # what is known of a small vector or scalar used in shape computations

    def tensor(self, like: Value | None = None) -> Tensor:
        return self

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape if every dimension is a number, else None."""
        if self.shape is None or not all(isinstance(d, int) for d in self.shape):
            return None
        return tuple(d for d in self.shape if isinstance(d, int))

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype} {list(self.shape) if self.shape is not None else '?'}>"


@dataclasses.dataclass(eq=False)
class Node:
    """One call of a runtime op. inputs: may contain None (an absent optional operand). attributes: by name; defaults
    may be omitted."""

    op: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    attributes: dict[str, Any]
    name: str = ""
    source: str = ""  # provenance: "OpType:node_name" in the source model
    placement: str = ""  # device string (linnet.ir.scopes); "": anywhere

    def attribute(self, name: str) -> Any:
        """The attribute's value or its default. Raises KeyError if the op has no such attribute."""
        if name in self.attributes:
            return self.attributes[name]
        from linnet._generated.op_table import OPS

        return OPS[self.op]["attributes"][name][2]


class Function:
    """A list of nodes, ordered so that every input is created before it is used."""

    iteration: Tensor | None = None  # loop counter, if this is a loop body

    def __init__(self, graph: Home, name: str) -> None:
        self.graph = graph
        self.name = name
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.nodes: list[Node] = []
        self.source = self.placement = ""  # of nodes emitted from now on; open scopes may change the placement
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}  # by base name: the last number tried
        self._reserved: set[str] = set()  # names of values of the source model that are not made yet

    def unique(self, name: str) -> str:
        """Returns `name`, or `name_1`, ... if it is taken."""
        base = candidate = name or "t"
        while candidate in self._names or candidate in self._reserved:
            self._counts[base] = self._counts.get(base, 0) + 1
            candidate = f"{base}_{self._counts[base]}"
        self._names.add(candidate)
        return candidate

    def reserve(self, names: Iterable[str]) -> None:
        """Keeps names for the values of the source model that have them; `claim` ends this for one name."""
        self._reserved.update(names)

    def claim(self, name: str) -> str:
        """Returns `name`, and allows the next tensor to have it. Called before the value of this name is made."""
        self._reserved.discard(name)
        return name

    def tensor(self, name: str, dtype: DTypeLike, shape: Sequence[Dim] | None) -> Tensor:
        name = self.unique(self.graph.prefix + name)
        return Tensor(self, name, dtype_of(dtype), None if shape is None else tuple(shape))

    def placeholder(self, name: str, dtype: DTypeLike, shape: Sequence[Dim] | None) -> Tensor:
        """A new input."""
        tensor = self.tensor(name, dtype, shape)
        self.inputs.append(tensor)
        return tensor

    def constant(
        self, value: npt.ArrayLike, name: str = "", dtype: DTypeLike | None = None,
        quantization: Quantization | None = None,
    ) -> Tensor:  # fmt: skip
        """A constant. By default, it has the dtype of the array, and it keeps the array: the caller must not change it.
        If a dtype is given, the numbers are converted to it. Raises UsageError if it cannot represent them."""
        data = numbers_of(value, dtype, copy=False)
        data = np.ascontiguousarray(data).reshape(data.shape)  # ascontiguousarray makes scalars 1-D
        tensor = self.tensor(name or "constant", dtype_of(data.dtype), data.shape)
        tensor.data, tensor.quantization = data, quantization
        return tensor

    def read(self, variable: Variable) -> Tensor:
        """The variable's value from before the run. Raises UsageError for a variable of another graph."""
        refuse_other_graphs(self.graph, variable)
        tensor = Tensor(self, self.unique(variable.name), dtype_of(variable.value.dtype), variable.value.shape)
        tensor.variable, tensor.quantization = variable, variable.quantization
        return tensor

    def own(self, tensor: Tensor) -> Tensor:
        """The tensor as seen from this function. linnet.ir.body.Body captures tensors of enclosing functions."""
        return tensor

    def emit(
        self, op: str, inputs: Sequence[Tensor | None], attributes: dict[str, Any], outputs: int = 1, name: str = "",
        quantization: Sequence[Quantization | None] = (), dtypes: Sequence[str] = (), fold: bool = True,
    ) -> list[Tensor]:  # fmt: skip
        """Appends a node to this function, or to the branch or loop under construction: see `emit` below. fold: False
        keeps a node even if all its operands are constants."""
        from linnet.ir import infer, traits  # these modules load the C library on first use

        function, inputs, attributes = self._placed(op, inputs, attributes, name)
        if op in traits.CONTROL:
            specs = infer.control_flow(op, inputs, attributes, outputs, name)
            return function._append(op, inputs, attributes, specs, name, quantization)
        try:
            may_fold = self.graph.may_fold if fold else None
            if op in traits.REGISTERED:
                found = infer.outputs_of_user_op(inputs, attributes, outputs, quantization, self.graph.user_ops)
            else:
                found = infer.outputs_of(op, inputs, attributes, outputs, quantization, dtypes, may_fold)
        except Error as error:
            error.op = name or error.op or op
            raise
        if found.values is None:
            made = function._append(op, inputs, attributes, found.specs, name, quantization)
            made[0].elements = found.elements
            return made
        if found.evaluated:
            self.graph.folded += sum(value.nbytes for value in found.values)
            widest = max((t for t in inputs if t is not None), key=_elements, default=None)
            name = name or ("" if widest is None else widest.name)  # what is computed from a weight keeps its name
        return [
            function.constant(value, name if i == 0 else f"{name}_{i}" if name else "", dtype, nth(quantization, i))
            for i, (value, (dtype, _)) in enumerate(zip(found.values, found.specs, strict=True))
        ]

    def emit_declared(
        self, op: str, inputs: Sequence[Tensor | None], attributes: dict[str, Any], specs: Sequence[Spec], name: str
    ) -> list[Tensor]:
        """Appends a node as `emit` does. specs: the dtypes and shapes of its outputs, which the caller knows."""
        function, inputs, attributes = self._placed(op, inputs, attributes, name)
        return function._append(op, inputs, attributes, specs, name, ())

    def _placed(
        self, op: str, inputs: Sequence[Tensor | None], attributes: dict[str, Any], name: str
    ) -> tuple[Function, Sequence[Tensor | None], dict[str, Any]]:
        """The function to which a node is appended: this one, or the branch or loop under construction. Also the
        operands as seen from there, and all attributes."""
        from linnet.ir import encode

        _check_op(op, name)
        refuse_other_graphs(self.graph, *inputs, *(v for v in attributes.values() if isinstance(v, Function)))
        attributes = encode.complete(op, attributes)
        function: Function = self
        if bodies := self.graph.bodies:
            function = bodies[-1]
            inputs = [None if t is None else function.own(t) for t in inputs]
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        return function, inputs, attributes

    def _append(
        self, op: str, inputs: Sequence[Tensor | None], attributes: dict[str, Any], specs: Sequence[Spec], name: str,
        quantization: Sequence[Quantization | None],
    ) -> list[Tensor]:  # fmt: skip
        made = []
        for i, (dtype, shape) in enumerate(specs):
            tensor = self.tensor((name or op) if i == 0 else f"{name or op}_{i}", dtype, shape)
            tensor.quantization = nth(quantization, i)
            made.append(tensor)
        node = Node(op, list(inputs), made, attributes, name and self.graph.prefix + name, self.source, self.placement)
        node.placement = self.graph.place(node)
        for tensor in made:
            tensor.node = node
        self.nodes.append(node)
        return list(made)  # a rule may replace a tensor in this list; the node's own list stays unchanged

    def fill(
        self,
        old: Function,
        functions: Mapping[Function, Function] | None = None,
        inputs: Sequence[Tensor] | None = None,
        outputs: Sequence[Tensor] | None = None,
        nodes: Sequence[Node] | None = None,
    ) -> None:
        """Copies `old` into this empty function. functions: other functions to which the copied nodes refer instead of
        those of `old`. inputs, outputs, nodes: the part to copy. Variables become those of this graph with the same
        names.
        """
        inputs = old.inputs if inputs is None else inputs
        outputs = old.outputs if outputs is None else outputs
        nodes = old.nodes if nodes is None else nodes
        table: dict[int, Tensor] = {}

        def own(t: Tensor) -> Tensor:
            if id(t) not in table:
                variable = self.graph.variables[t.variable.name] if t.variable is not None else None
                table[id(t)] = dataclasses.replace(t, function=self, variable=variable, node=None)
            return table[id(t)]

        self.inputs = [own(t) for t in inputs]
        for node in nodes:
            attributes = {
                key: (functions or {}).get(value, value) if isinstance(value, Function) else value
                for key, value in node.attributes.items()
            }
            read = [None if t is None else own(t) for t in node.inputs]
            made = dataclasses.replace(node, inputs=read, outputs=[own(t) for t in node.outputs], attributes=attributes)
            for tensor in made.outputs:
                tensor.node = made
            self.nodes.append(made)
        self.outputs = [own(t) for t in outputs]
        self._names, self._counts, self._reserved = set(old._names), dict(old._counts), set(old._reserved)

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor once: inputs first, then in the order of use and creation."""
        seen: set[int] = set()
        every: Iterable[Tensor | None] = [
            *self.inputs,
            *(t for node in self.nodes for t in (*node.inputs, *node.outputs)),
            *self.outputs,
        ]
        for tensor in every:
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield tensor

    def consumers(self) -> dict[Tensor, list[Node]]:
        """For each tensor, the nodes that read it, in order."""
        table: dict[Tensor, list[Node]] = {}
        for node in self.nodes:
            for tensor in dict.fromkeys(t for t in node.inputs if t is not None):
                table.setdefault(tensor, []).append(node)
        return table


def emit(
    op: str,
    inputs: Sequence[Operators | None],
    attributes: dict[str, Any],
    outputs: int = 1,
    name: str = "",
    function: Function | None = None,
    quantization: Sequence[Quantization | None] = (),
    dtypes: Sequence[str] = (),
) -> list[Tensor]:
    """Appends a node to the function of its operands and returns its outputs. The C library infers their shapes.

    If every operand is a constant and the result is small, it is computed at once and constants are returned.
    inputs: tensors; a variable is read in the function of the other operands, or in `function`.
    quantization, dtypes: the quantizations and dtypes of the outputs, if the op leaves them open (quantize, conv,
        matmul, map, ...).
    name: the name of the node and of its first output.
    Raises linnet.GraphError if the operands do not match the op.
    """
    like = next((x for x in inputs if isinstance(x, Tensor)), None)
    if like is None and function is not None:
        inputs = [function.read(x) if isinstance(x, Variable) else x for x in inputs]
    tensors = [None if x is None else checked(x).tensor(like) for x in inputs]
    if function is None:
        function = next((t.function for t in tensors if t is not None), None)
        if function is None:
            _check_op(op, name)
            raise GraphError(f"{op} without inputs needs the argument function", code=302, op=name or op)
    return function.emit(op, tensors, attributes, outputs, name, quantization, dtypes)


def refuse_other_graphs(graph: Home, *items: Operators | Function | None) -> None:
    """Raises UsageError if a tensor, variable or function belongs to another graph. Two graphs cannot be connected,
    because a signature would use a variable with the same name in its own graph, or would not find the variable."""
    for item in items:
        if item is None:
            continue
        other = item.graph if isinstance(item, Function | Variable) else item.function.graph
        if other is not graph and other is not None:
            raise UsageError(
                f"{item.name!r} belongs to another graph", code=101, tensor=item.name, expected=f"a part of {graph.label}",
                got=f"a part of {other.label}", hint="build all parts of a model in one linnet.Graph",
            )  # fmt: skip


def checked(x: Operators) -> Operators:
    """Returns x. Raises UsageError if it is neither a tensor nor a variable."""
    if not isinstance(x, Operators):
        raise UsageError(
            "the operand must be a tensor or variable", code=103, expected="a tensor", got=type(x).__name__,
            hint="turn an array into a constant: graph.constant(array)",
        )  # fmt: skip
    return x


def _check_op(op: str, name: str) -> None:
    from linnet._generated.op_table import OPS

    if op not in OPS:
        raise GraphError(f"op {op!r} does not exist", code=301, op=name or op, hint=f"the ops are {', '.join(OPS)}")


def _elements(tensor: Tensor) -> int:
    return 0 if tensor.data is None else tensor.data.size


def functions_of(function: Function) -> Iterator[Function]:
    """The functions that a function's nodes refer to, in order."""
    from linnet._generated.op_table import OPS

    for node in function.nodes:
        for name, (_, kind, _, _) in OPS[node.op]["attributes"].items():
            if kind == "function" and node.attributes.get(name) is not None:
                yield node.attributes[name]


def check_order(function: Function) -> None:
    """Checks that every input is created before it is used. Raises GraphError if not: a pass or rule has then ordered
    nodes wrongly."""
    made = {id(t) for t in function.inputs}
    for node in function.nodes:
        for t in node.inputs:
            if t is not None and id(t) not in made and t.data is None and t.variable is None:
                raise GraphError(
                    f"{t.name!r} is used before it is created, in function {function.name!r}", code=302,
                    op=node.name or node.op, tensor=t.name, hint="nodes must be in order of execution",
                )  # fmt: skip
        made.update(id(t) for t in node.outputs)
    for t in function.outputs:
        if id(t) not in made and t.data is None and t.variable is None:
            raise GraphError(
                f"output {t.name!r} of function {function.name!r} is not created by any node", code=302, tensor=t.name
            )
