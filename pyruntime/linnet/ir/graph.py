"""Graphs: functions, variables and signatures. Python rewrites them and C runs them.
linnet.Graph (linnet.facade) adds files, passes and ONNX, which depend on this module."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.ir.dtypes import FOLD_LIMIT, Dim, DTypeLike, dtype_of
from linnet.ir.exact import floats_as_f32, numbers_of
from linnet.ir.function import Function, Node, Operators, Tensor, Variable, functions_of, refuse_other_graphs
from linnet.ir.operands import Registered
from linnet.ir.scopes import Scopes, assign, beside

if TYPE_CHECKING:
    from typing_extensions import Self

# bytes of all folded results in a graph; above it, only values that shapes depend on are folded (FOLD_TINY)
FOLD_TOTAL = 1 << 26
FOLD_TINY = 1 << 10
_NUMBERS = itertools.count(1)


@runtime_checkable
class Initial(Protocol):
    """Gives a variable its initial value. linnet.init has several."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def value(self, seed: tuple[int, int]) -> npt.NDArray[Any]: ...


@dataclasses.dataclass(eq=False)
class SideUpdate:
    """A new value that a variable gets in every step that computes `along`. See Graph.side_update."""

    variable: Variable
    new: Tensor | Callable[[Tensor], Tensor]
    along: Tensor | None


@dataclasses.dataclass
class Signature:
    """An entry point: names for the inputs and outputs of a function."""

    function: Function
    inputs: list[str]
    outputs: list[str]


class Signatures(dict[str, Signature]):
    """A graph's signatures by name."""

    def __missing__(self, name: str) -> Signature:
        known = ", ".join(self) or "a graph with signatures"
        raise UsageError(
            f"the graph has no signature '{name}'", code=102, expected=known,
            hint=f"graph.signature('{name}', {{inputs}}, {{outputs}}) declares it",
        )  # fmt: skip


class Graph(Scopes):
    """Functions, variables and signatures: the content of one .lnt file.

    There are two ways to build a graph. One is function by function (`function`, then `signature(name, function)`). The
    other is on the graph itself: `placeholder`, `constant` and operators build in `main`, and every `signature(name,
    inputs, outputs)` takes from there what it needs. seed: seed of initial values.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.number = next(_NUMBERS)  # by which messages tell graphs apart
        self.seed = seed
        self.prefix = ""  # prefix of new names; see scope
        self.reuse = False  # whether variables named from now on must already exist; see scope
        self.random_nodes = 0  # number so far; each uses its own Philox stream
        self.side_updates: list[SideUpdate] = []
        self._scopes: dict[str, int] = {}  # by base name: how often the current scope used the name
        self.main = Function(self, "main")  # not in `functions`: a file has only the parts that signatures take from it
        self.functions: list[Function] = []
        self.variables: dict[str, Variable] = {}
        self.signatures: dict[str, Signature] = Signatures()
        self.metadata: dict[str, str] = {}
        self.folded = 0  # total bytes of folded results
        self.user_ops: dict[str, Registered] = {}  # by name
        self.bodies: list[Function] = []  # branches and loops under construction, the innermost last

    @property
    def label(self) -> str:
        """The graph's name in messages: its number in the order of creation, and the first names in it."""
        parts = {
            "input": [t.name for t in self.main.inputs], "variable": list(self.variables), "signature": list(self.signatures),
        }  # fmt: skip
        texts = [
            f"{kind}{'s' * (len(names) > 1)} {', '.join(map(repr, names[:3]))}{', ...' * (len(names) > 3)}"
            for kind, names in parts.items()
            if names
        ]
        return f"graph {self.number} ({'; '.join(texts) or 'empty'})"

    def __repr__(self) -> str:
        return f"<linnet.{type(self).__name__}: {self.label}>"

    def may_fold(self, size: int, limit: int = FOLD_LIMIT) -> bool:
        """Whether a result of `size` bytes may become a constant. There is a limit for the total of all such
        results."""
        return size <= (limit if self.folded < FOLD_TOTAL else FOLD_TINY)

    def function(self, name: str = "main") -> Function:
        """Creates a new, empty function."""
        function = Function(self, name)
        self.functions.append(function)
        return function

    def placeholder(self, name: str, shape: Sequence[Dim] | None, dtype: DTypeLike = "f32") -> Tensor:
        """A new input in `main`. Give open dimensions a name ("batch") if possible: dimensions with equal names are
        known to be equal."""
        for size in () if shape is None else shape:
            if isinstance(size, int) and size < 0:
                raise UsageError(
                    "a dimension is negative", code=104, tensor=name, expected="0 or more, a name or None",
                    got=str(list(shape or ())), hint="None or a name leaves a dimension open",
                )  # fmt: skip
        return self.main.placeholder(name, dtype, shape)

    def constant(self, value: npt.ArrayLike, name: str = "", dtype: DTypeLike | None = None) -> Tensor:
        """A constant in `main`, with a copy of the value. Without a dtype, Python floats become f32. With a dtype, every
        number is converted: floats are rounded, and a number that the dtype cannot represent raises UsageError."""
        return self.main.constant(floats_as_f32(value) if dtype is None else numbers_of(value, dtype), name)

    def find(self, name: str) -> Tensor:
        """The tensor with this name: an input, an output of "infer", any tensor in between, or the first result of the step
        with this name. `main` is searched first, then the signatures. If the graph comes from a file or a converter,
        `main` gets a copy of "infer", on which a loss or other outputs can be built. Raises UsageError."""
        from linnet.ir.finding import find

        return find(self.main, self.signatures, name)

    def variable(
        self, name: str, value: npt.ArrayLike | Initial, *, trainable: bool = True, dtype: DTypeLike | None = None,
        copy: bool = True,
    ) -> Variable:  # fmt: skip
        """A new variable with its initial value: an array, or an initializer (linnet.init), which is seeded by the
        graph's seed and the name. In a scope with reuse: the existing variable with that name, which must have the same
        shape and dtype.

        trainable: whether optimizers update it by default. dtype: converts the value to this dtype, as `constant` does.
        copy: False keeps the array itself, which must then not be changed. Raises UsageError.
        """
        name = self.prefix + name
        known = self.variables.get(name)
        if self.reuse:
            return _same(known, name, value, tuple(self.variables))
        if known is not None:
            raise UsageError(
                f"a variable named {name!r} already exists", code=101, tensor=name,
                hint="choose another name, or share it inside `with graph.scope(name, reuse=True):`",
            )  # fmt: skip
        if isinstance(value, Initial):
            value, dtype, copy = value.value((self.seed, zlib.crc32(name.encode()))), dtype or value.dtype, False
        array = numbers_of(value, dtype, copy=copy)
        array = np.ascontiguousarray(array).reshape(array.shape)
        where = self.place_variable(name)
        self.variables[name] = Variable(name, array, graph=self, trainable=trainable, placement=where)
        return self.variables[name]

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables created with trainable=True (the default), in order of creation."""
        return [variable for variable in self.variables.values() if variable.trainable]

    @contextlib.contextmanager
    def scope(self, name: str, reuse: bool | None = None) -> Iterator[None]:
        """`with graph.scope("layer1"):` puts "layer1/" before the names of everything created inside. Scopes nest.

        reuse: True shares variables: every variable named inside is the existing one with that name, so that a model
        can be built once for training and again, with the same weights, for inference. None: the same as in the
        enclosing scope.
        """
        outer = self.prefix, self.reuse, self._scopes
        self.prefix, self._scopes = f"{outer[0]}{name}/", {}
        self.reuse = outer[1] if reuse is None else reuse
        try:
            yield
        finally:
            self.prefix, self.reuse, self._scopes = outer

    def unique_scope(self, name: str) -> str:
        """A unique scope name inside the current scope: `name`, then `name_1`, ... Numbering restarts when a scope is
        entered again."""
        count = self._scopes.get(name, 0)
        self._scopes[name] = count + 1
        return f"{name}_{count}" if count else name

    def side_update(
        self, variable: Variable, new: Tensor | Callable[[Tensor], Tensor], along: Tensor | None = None
    ) -> None:
        """Registers an update that does not come from an optimizer, for example a moving average or the counter of
        random numbers.

        new: the new value, or a function that computes it from the current value. If a layer is used more than once,
        its functions are applied one after another. If the same function object is registered again, it is applied only
        once. along: the update belongs to every training step that computes this tensor (None: to every step).
        `optimizer.minimize` includes it. For updates written by hand, use `updates={**graph.side_updates_of([loss]), w:
        ...}`. Inside a branch or loop, the update belongs to every training step, and `new` must not be a value from
        the body (UsageError).
        """
        if not isinstance(variable, Variable) or not (isinstance(new, Operators) or callable(new)):
            raise UsageError(
                "a side update needs a variable and its new value", code=101,
                expected="a variable, and a tensor or a function",
                got=f"{type(variable).__name__}, {type(new).__name__}",
            )  # fmt: skip
        if isinstance(new, Tensor) and new.function in self.bodies:
            raise UsageError(
                "an update cannot use a value from inside a branch or loop", code=101, tensor=new.name,
                expected="a tensor from outside",
                hint="return the value from the branch or loop, and register the update outside",
            )  # fmt: skip
        refuse_other_graphs(self, variable, new if isinstance(new, Operators) else None, along)
        if along is not None and along.function in self.bodies:
            along = None
        self.side_updates.append(SideUpdate(variable, new, along))

    def side_updates_of(self, tensors: Sequence[Tensor]) -> dict[Variable, Tensor]:
        """The side updates that belong to a step that computes these tensors, for `signature(..., updates=)`.

        Raises UsageError if a variable would get two fixed values."""
        seen: set[Tensor] = set()
        pending = list(tensors)
        while pending:
            tensor = pending.pop()
            if tensor not in seen:
                seen.add(tensor)
                pending += [t for t in (tensor.node.inputs if tensor.node is not None else []) if t is not None]
        found: dict[Variable, Tensor] = {}
        done: set[tuple[Variable, int]] = set()
        for update in self.side_updates:
            if (update.along is not None and update.along not in seen) or (update.variable, id(update.new)) in done:
                continue
            done.add((update.variable, id(update.new)))
            if not isinstance(update.new, Tensor):
                current = found.get(update.variable)
                if current is None:
                    current = update.variable.tensor(tensors[0] if tensors else None)
                with beside(update.variable):
                    found[update.variable] = update.new(current)
            elif update.variable in found:
                raise UsageError(
                    "this variable would get two values in one step", code=101, tensor=update.variable.name,
                    hint="pass side_update a function of the current value",
                )  # fmt: skip
            else:
                found[update.variable] = update.new
        return found

    @overload
    def signature(
        self, name: str, function: Function, inputs: Sequence[str] = (), outputs: Sequence[str] = ()
    ) -> None: ...
    @overload
    def signature(
        self,
        name: str,
        function: Mapping[str, Tensor],
        inputs: Mapping[str, Tensor],
        *,
        updates: Mapping[Variable, Tensor] | None = None,
        replace: Mapping[Tensor, Tensor] | None = None,
    ) -> None: ...
    def signature(
        self,
        name: str,
        function: Any,
        inputs: Any = (),
        outputs: Sequence[str] = (),
        updates: Mapping[Variable, Tensor] | None = None,
        replace: Mapping[Tensor, Tensor] | None = None,
    ) -> None:
        """Declares an entry point, in one of two ways.

        signature(name, function, inputs, outputs): uses a function. Names default to those of its tensors.
        signature(name, {input name: tensor}, {output name: tensor}, updates={variable: new value}): copies the nodes
        that the outputs and updates need, and simplifies them (linnet.passes). Every update happens in each run, after
        all reads. replace: tensors to use instead of others, only in this signature; they must not depend on the
        tensors that they replace. Raises UsageError if a needed placeholder is not among the inputs. Warns if a signature
        of this name is replaced.
        """
        if isinstance(function, Function):
            refuse_other_graphs(self, function)
            names = (
                list(inputs) or [t.name for t in function.inputs],
                list(outputs) or [t.name for t in function.outputs],
            )
            self.signatures[name] = Signature(function, *names)
            return
        for what, given in (("inputs", function), ("outputs", inputs)):
            if not isinstance(given, Mapping):
                raise UsageError(
                    f"the {what} of signature '{name}' are not a dictionary", code=101, expected="{name: tensor}",
                    got=type(given).__name__, hint='write graph.signature("infer", {"x": x}, {"y": y})',
                )  # fmt: skip
            for key, value in given.items():
                if not isinstance(value, Operators):
                    raise UsageError(
                        f"'{key}' of the {what} of signature '{name}' is not a tensor", code=101,
                        expected="a tensor of the graph", got=type(value).__name__,
                    )  # fmt: skip
        for mapping in (updates or {}, replace or {}):
            refuse_other_graphs(self, *mapping, *mapping.values())
        refuse_other_graphs(self, *function.values(), *inputs.values())
        feeds: Mapping[str, Tensor] = function
        results: dict[str, Tensor] = {key: value.tensor() for key, value in inputs.items()}
        results = {key: (replace or {}).get(value, value) for key, value in results.items()}
        every = [*feeds.values(), *results.values(), *(updates or {}).values()]
        if not every:
            raise UsageError(
                f"signature '{name}' has no outputs and no updates", code=101, hint="give it outputs or updates"
            )
        old = every[0].function
        assigned = [assign(variable, new) for variable, new in (updates or {}).items()]
        part = self.function(name)
        nodes = nodes_behind(old, list(feeds.values()), [*results.values(), *assigned], name, replace or {})
        part.fill(old, None, list(feeds.values()), list(results.values()), nodes)
        with self.device(None):  # passes place nodes as those from which they make them
            self._simplify(part)
        self._adopt(part)
        if name in self.signatures:
            text = f"signature {name!r} was defined already; the new definition replaces it. Other names keep both"
            warnings.warn(text, stacklevel=3)
        self.signatures[name] = Signature(part, list(feeds), list(results))

    def _simplify(self, function: Function) -> None:
        """Simplifies the part of a graph that a signature takes. linnet.Graph overrides this to run the passes."""

    def _adopt(self, function: Function) -> None:
        """Adds the functions to which the nodes of a function refer, directly or indirectly, to `functions`."""
        for used in functions_of(function):
            if used not in self.functions:
                self.functions.append(used)
                self._adopt(used)

    def copy(self) -> Self:
        """A copy with its own functions, nodes and tensors. The arrays of constants and variables are shared."""
        made = type(self)(self.seed)
        made.metadata = dict(self.metadata)
        made.user_ops = dict(self.user_ops)
        made.variables = {name: dataclasses.replace(v, graph=made) for name, v in self.variables.items()}
        functions = {function: made.function(function.name) for function in self.functions}
        for old, new in functions.items():
            new.fill(old, functions)
        for name, s in self.signatures.items():
            made.signatures[name] = Signature(functions[s.function], list(s.inputs), list(s.outputs))
        return made


def graph_of(x: Operators | Function) -> Graph:
    """The graph to which a tensor, variable or function belongs."""
    return cast(Graph, x.graph if isinstance(x, Function) else x.function.graph)


def _same(known: Variable | None, name: str, value: npt.ArrayLike | Initial, names: Sequence[str]) -> Variable:
    """The variable that a scope with reuse refers to. Raises UsageError if it does not exist or does not match."""
    if known is None:
        close = [other for other in names if other.rpartition("/")[2] == name.rpartition("/")[2]]
        raise UsageError(
            f"there is no variable named {name!r} to share", code=102, tensor=name, expected=" or ".join(close[:8]),
            hint="build once in the scope without reuse, and use the same layer names and order",
        )  # fmt: skip
    array = value if isinstance(value, Initial) else np.asarray(value)
    dtype = array.dtype if isinstance(array, Initial) else dtype_of(array.dtype)
    have = dtype_of(known.value.dtype)
    if tuple(array.shape) != known.value.shape or (dtype != have and isinstance(value, Initial)):
        raise UsageError(
            f"the shared variable {name!r} has another shape or dtype", code=104, tensor=name,
            expected=f"{have} {list(known.value.shape)}", got=f"{dtype} {list(array.shape)}",
        )  # fmt: skip
    return known


def nodes_behind(
    function: Function,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    signature: str,
    replace: Mapping[Tensor, Tensor] | None = None,
) -> list[Node]:
    """The nodes on which outputs depend, back to the inputs, in order. replace: tensors to read instead of others."""
    replace = replace or {}

    def behind(outputs: Iterable[Tensor]) -> set[int]:
        seen, pending, nodes = set(inputs), [replace.get(t, t) for t in outputs], set()
        while pending:
            tensor = pending.pop()
            if tensor in seen:
                continue
            seen.add(tensor)
            if tensor.function is not function:
                raise UsageError(
                    f"the tensor belongs to function '{tensor.function.name}'", code=101, tensor=tensor.name,
                    expected=f"a tensor of '{function.name}'",
                )  # fmt: skip
            if tensor.node is not None:
                nodes.add(id(tensor.node))
                pending += [replace.get(t, t) for t in tensor.node.inputs if t is not None]
            elif tensor.data is None and tensor.variable is None:
                raise UsageError(
                    f"the placeholder is needed by signature '{signature}' but is not among its inputs", code=105,
                    tensor=tensor.name, expected="the placeholder in inputs",
                    got=", ".join(f"'{t.name}'" for t in inputs) or "none",
                )  # fmt: skip
        return nodes

    wanted, first = behind(outputs), behind(replace.values())
    needed = [n for n in function.nodes if id(n) in wanted]
    order = [n for n in needed if id(n) in first] + [n for n in needed if id(n) not in first]
    if not replace:
        return order
    return [dataclasses.replace(n, inputs=[None if t is None else replace.get(t, t) for t in n.inputs]) for n in order]


_SIGNED = {"u8": "i8", "u16": "i16"}
_COMPUTED = ("f64", "f32", "f16", "bf16", "i8", "u8", "i16", "u16")  # not of counts, indices and conditions


def dtype_of_graph(graph: Graph) -> str:
    """The dtype in which the heavy ops compute: the dtype that the converter has recorded, or else the dtype of most of
    these ops. Unsigned integers count as signed integers of the same width, because models with either are of the same
    kind."""
    from linnet.ir import traits

    if "dtype" in graph.metadata:
        return graph.metadata["dtype"]
    nodes = [node for function in graph.functions for node in function.nodes]
    heavy = Counter(n.inputs[0].dtype for n in nodes if n.op in traits.PRODUCTS and n.inputs[0] is not None)
    every = Counter(t.dtype for n in nodes for t in n.outputs if t.dtype in _COMPUTED)
    name = next((name for name, _ in (heavy or every).most_common(1)), "f32")
    return _SIGNED.get(name, name)
