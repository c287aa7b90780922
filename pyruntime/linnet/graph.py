"""The graph in Python: functions of nodes over tensors, variables, signatures. What Python rewrites and C runs.

`emit` makes a node, infers its shapes by the C library's own rules, and folds it when everything it reads is constant.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from linnet._generated.op_table import OPS
from linnet.errors import UsageError
from linnet.operators import Operators, checked

if TYPE_CHECKING:
    from linnet.body import Body
    from linnet.errors import Error as Error
    from linnet.init import Initializer

Dim = int | str | None
FOLD_LIMIT = 1 << 16  # bytes: larger folded results stay nodes, which C evaluates at plan time
FOLD_TOTAL = 1 << 26  # bytes of folded results in a graph; beyond, only those stay that shapes are made of (FOLD_TINY)
FOLD_TINY = 1 << 10


@dataclasses.dataclass
class Quantization:
    """real = (stored - zero) * scale. One entry per tensor (`axis` None) or one per slice along `axis`."""

    scale: npt.NDArray[np.float32]
    zero: npt.NDArray[np.int32]
    axis: int | None = None
    bits: int = 8


@dataclasses.dataclass(eq=False)
class Variable(Operators):
    """Mutable state, shared by all signatures of a graph. `value` is the initial value; operators read the current one."""

    name: str
    value: npt.NDArray[Any]
    quantization: Quantization | None = None
    graph: Graph | None = dataclasses.field(default=None, repr=False)
    trainable: bool = True  # whether optimizers update it when they are not told what to update

    def tensor(self, like: Operators | None = None) -> Tensor:
        """A read of the value from before the run, in the function of `like`, or where its graph is being built."""
        return (like.function if like is not None else self.function).read(self)

    @property
    def function(self) -> Function:
        """Where it is read unless another operand says otherwise: what its graph builds. Raises UsageError."""
        if self.graph is None:
            raise UsageError("the variable belongs to no graph", code=101, tensor=self.name, hint="use function.read")
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
    """A value of a function: made by a node, an input, a constant (`data`) or a variable's current value.

    shape: one entry per dimension: a number, a name (symbolic), or None (unknown); None in place of the tuple when even
    the rank is unknown. dtype: "f32", "i8", ... (bf16 constants hold uint16 bit patterns in `data`).
    """

    function: Function
    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    data: npt.NDArray[Any] | None = None
    variable: Variable | None = None
    quantization: Quantization | None = None
    node: Node | None = None  # the producer
    elements: tuple[Dim, ...] | None = None  # what is known of those of a vector or scalar that shapes are made of

    def tensor(self, like: Operators | None = None) -> Tensor:
        return self

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape when every dimension is a number."""
        if self.shape is None or not all(isinstance(d, int) for d in self.shape):
            return None
        return tuple(d for d in self.shape if isinstance(d, int))

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype} {list(self.shape) if self.shape is not None else '?'}>"


@dataclasses.dataclass(eq=False)
class Node:
    """One runtime op. inputs may hold None (absent optional operand); attributes are by name, defaults may be left out."""

    op: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    attributes: dict[str, Any]
    name: str = ""
    source: str = ""  # provenance: "OpType:node_name" of the model it came from

    def attribute(self, name: str) -> Any:
        """The attribute's value, or its default. KeyError when the op has no such attribute."""
        return self.attributes[name] if name in self.attributes else OPS[self.op]["attributes"][name][2]


class Function:
    """A list of nodes in an order in which every input is made before it is used."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = name
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.nodes: list[Node] = []
        self.source = ""  # provenance given to nodes emitted from now on
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}  # base name: the last number tried

    def unique(self, name: str) -> str:
        """`name`, or `name_1`, ... when it is taken."""
        base = candidate = name or "t"
        while candidate in self._names:
            self._counts[base] = self._counts.get(base, 0) + 1
            candidate = f"{base}_{self._counts[base]}"
        self._names.add(candidate)
        return candidate

    def tensor(self, name: str, dtype: str, shape: Sequence[Dim] | None) -> Tensor:
        name = self.unique(self.graph.prefix + name)
        return Tensor(self, name, dtype, None if shape is None else tuple(shape))

    def placeholder(self, name: str, dtype: str, shape: Sequence[Dim] | None) -> Tensor:
        """A new input."""
        tensor = self.tensor(name, dtype, shape)
        self.inputs.append(tensor)
        return tensor

    def constant(
        self, value: npt.ArrayLike, name: str = "", dtype: str | None = None, quantization: Quantization | None = None
    ) -> Tensor:
        """A constant; dtype is that of the array unless given (needed for bf16, whose arrays are uint16)."""
        data = np.asarray(value)
        data = np.ascontiguousarray(data).reshape(data.shape)  # ascontiguousarray makes scalars 1-D
        tensor = self.tensor(name or "constant", dtype or dtype_of(data.dtype), data.shape)
        tensor.data, tensor.quantization = data, quantization
        return tensor

    def read(self, variable: Variable) -> Tensor:
        """The variable's value from before the run."""
        tensor = Tensor(self, self.unique(variable.name), dtype_of(variable.value.dtype), variable.value.shape)
        tensor.variable, tensor.quantization = variable, variable.quantization
        return tensor

    def fill(
        self,
        old: Function,
        functions: Mapping[Function, Function] | None = None,
        inputs: Sequence[Tensor] | None = None,
        outputs: Sequence[Tensor] | None = None,
        nodes: Sequence[Node] | None = None,
    ) -> None:
        """Makes this empty function a copy of `old`. functions: what stands for the functions that its nodes name, when
        they are not the same. inputs, outputs, nodes: of a part of it. Variables are those of this graph that have the same
        names."""
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
            made = Node(node.op, read, [own(t) for t in node.outputs], attributes, node.name, node.source)
            for tensor in made.outputs:
                tensor.node = made
            self.nodes.append(made)
        self.outputs = [own(t) for t in outputs]
        self._names, self._counts = set(old._names), dict(old._counts)

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor once: inputs, then in order of use and production."""
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
        """Tensor: the nodes that read it, in order."""
        table: dict[Tensor, list[Node]] = {}
        for node in self.nodes:
            for tensor in dict.fromkeys(t for t in node.inputs if t is not None):
                table.setdefault(tensor, []).append(node)
        return table


@dataclasses.dataclass(eq=False)
class SideUpdate:
    """A new value of a variable that goes along with whatever is computed from `along`: see Graph.side_update."""

    variable: Variable
    new: Tensor | Callable[[Tensor], Tensor]
    along: Tensor | None


@dataclasses.dataclass
class Signature:
    """An entry point: names for the inputs and outputs of a function."""

    function: Function
    inputs: list[str]
    outputs: list[str]


class Graph:
    """Functions, variables and signatures: the content of one .lnt file.

    Two ways to build: function by function (`function`, then `signature(name, function)`), or on the graph itself, where
    `placeholder`, `constant` and operators build in `main`, out of which every `signature(name, inputs, outputs)` takes
    what it needs. seed: what initial values are drawn from.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.prefix = ""  # of names made from now on: see scope
        self.reuse = False  # whether variables named from now on must exist already: see scope
        self.random_nodes = 0  # so far: each takes a Philox stream of its own
        self.side_updates: list[SideUpdate] = []
        self._scopes: dict[str, int] = {}  # base name: how often the current scope took it
        self.main = Function(self, "main")  # not in `functions`: only what signatures take from it is written
        self.functions: list[Function] = []
        self.variables: dict[str, Variable] = {}
        self.signatures: dict[str, Signature] = {}
        self.metadata: dict[str, str] = {}
        self.folded = 0  # bytes of folded results
        self.bodies: list[Body] = []  # branches and loops that are being built, the innermost last

    def may_fold(self, size: int, limit: int = FOLD_LIMIT) -> bool:
        """Whether a result of so many bytes may become a constant, within what all of them may take together."""
        return size <= (limit if self.folded < FOLD_TOTAL else FOLD_TINY)

    def function(self, name: str = "main") -> Function:
        """A new, empty function."""
        function = Function(self, name)
        self.functions.append(function)
        return function

    def placeholder(self, name: str, shape: Sequence[Dim] | None, dtype: str = "f32") -> Tensor:
        """A new input, in `main`. Dimensions that are not fixed are best named ("batch"): equal names are known to be equal."""
        return self.main.placeholder(name, dtype, shape)

    def constant(self, value: npt.ArrayLike, name: str = "", dtype: str | None = None) -> Tensor:
        """A constant, in `main`. Python floats are f32."""
        data = np.asarray(value)
        if dtype is None and data.dtype == np.float64 and not isinstance(value, np.ndarray | np.generic):
            data = data.astype(np.float32)
        return self.main.constant(data, name, dtype)

    def find(self, name: str) -> Tensor:
        """The tensor of this name in `main`: an input, an output of "infer", or one in between. Raises UsageError."""
        results = self.signatures["infer"].outputs if "infer" in self.signatures else []
        table = {t.name: t for t in self.main.tensors()}
        table.update(zip(results, self.main.outputs, strict=False))
        if name in table:
            return table[name]
        near = difflib.get_close_matches(name, table, n=3, cutoff=0.3) or list(table)[:3]
        raise UsageError(
            f"no tensor of the graph is called {name!r}", code=102, tensor=name, hint=f"near: {', '.join(near)}"
        )

    def variable(self, name: str, value: npt.ArrayLike | Initializer, *, trainable: bool = True) -> Variable:
        """A new variable with its initial value: an array, or an initializer (linnet.init), seeded by the graph's seed and
        the name. In a scope with reuse: the variable of that name, which must exist and have the same shape and dtype.

        trainable: whether optimizers update it when they are not told what to update. Raises UsageError.
        """
        from linnet.init import Initializer

        name = self.prefix + name
        known = self.variables.get(name)
        if self.reuse:
            return _same(known, name, value, tuple(self.variables))
        if known is not None:
            raise UsageError(
                f"variable {name!r} exists already", code=101, tensor=name,
                hint="give another name, or share it inside `with graph.scope(name, reuse=True):`",
            )  # fmt: skip
        data = value.value((self.seed, zlib.crc32(name.encode()))) if isinstance(value, Initializer) else value
        array = np.ascontiguousarray(data).reshape(np.shape(data))
        self.variables[name] = Variable(name, array, graph=self, trainable=trainable)
        return self.variables[name]

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables made with trainable=True (the default), in the order in which they were made."""
        return [variable for variable in self.variables.values() if variable.trainable]

    @contextlib.contextmanager
    def scope(self, name: str, reuse: bool | None = None) -> Iterator[None]:
        """`with graph.scope("layer1"):` puts "layer1/" before the names of what is made inside. Scopes nest.

        reuse: True shares: every variable named inside is the one that was made before under that name, so that a model is
        built once for training and again, with the same weights, for inference. None: as the scope around it.
        """
        outer = self.prefix, self.reuse, self._scopes
        self.prefix, self._scopes = f"{outer[0]}{name}/", {}
        self.reuse = outer[1] if reuse is None else reuse
        try:
            yield
        finally:
            self.prefix, self.reuse, self._scopes = outer

    def unique_scope(self, name: str) -> str:
        """A name for a scope inside the current one: `name`, then `name_1`, ... Entering a scope anew begins anew."""
        count = self._scopes.get(name, 0)
        self._scopes[name] = count + 1
        return f"{name}_{count}" if count else name

    def side_update(
        self, variable: Variable, new: Tensor | Callable[[Tensor], Tensor], along: Tensor | None = None
    ) -> None:
        """Registers an update that is not an optimizer's: a moving average, the counter of random numbers.

        new: the new value, or a function that makes it of the current one. Functions follow one another when a layer is
        used more than once; the same function object given again counts once. along: the update belongs to every training
        step that computes this tensor (None: to every one). `optimizer.minimize` adds it; with updates written by hand:
        `updates={**graph.side_updates_of([loss]), w: ...}`. Within a branch or loop, every training step has the update, and
        `new` cannot be a value of it: UsageError.
        """
        if isinstance(new, Tensor) and new.function in self.bodies:
            raise UsageError(
                "an update cannot take a value out of a branch or loop", code=101, tensor=new.name,
                expected="a tensor from outside", hint="return it, and register the update outside",
            )  # fmt: skip
        if along is not None and along.function in self.bodies:
            along = None
        self.side_updates.append(SideUpdate(variable, new, along))

    def side_updates_of(self, tensors: Sequence[Tensor]) -> dict[Variable, Tensor]:
        """The side updates that belong to a step that computes these tensors, for `signature(..., updates=)`.

        Raises UsageError when a variable would get two fixed values.
        """
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
                found[update.variable] = update.new(
                    update.variable.tensor(tensors[0] if tensors else None) if current is None else current
                )
            elif update.variable in found:
                raise UsageError(
                    "this variable gets two values in one step", code=101, tensor=update.variable.name,
                    hint="give side_update a function of the current value",
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

        signature(name, function, inputs, outputs): of a function; names default to those of its tensors.
        signature(name, {input name: tensor}, {output name: tensor}, updates={variable: new value}): takes what the outputs
        and updates need from where the tensors were built, and simplifies it (linnet.passes); every update happens in each
        run, after all reads. replace: tensors that stand for others, here alone; what is behind them must not depend on these.
        Raises UsageError when they need a placeholder that is no input.
        """
        if isinstance(function, Function):
            self.signatures[name] = Signature(
                function,
                list(inputs) or [t.name for t in function.inputs],
                list(outputs) or [t.name for t in function.outputs],
            )
            return
        from linnet.passes import simplify

        feeds: Mapping[str, Tensor] = function
        results: dict[str, Tensor] = {key: value.tensor() for key, value in inputs.items()}
        results = {key: (replace or {}).get(value, value) for key, value in results.items()}
        every = [*feeds.values(), *results.values(), *(updates or {}).values()]
        if not every:
            raise UsageError(f"signature '{name}' has neither outputs nor updates", code=101)
        old = every[0].function
        assigned = [emit("assign", [variable.tensor(new), new], {})[0] for variable, new in (updates or {}).items()]
        part = self.function(name)
        nodes = nodes_behind(old, list(feeds.values()), [*results.values(), *assigned], name, replace or {})
        part.fill(old, None, list(feeds.values()), list(results.values()), nodes)
        simplify(part)
        self._adopt(part)
        self.signatures[name] = Signature(part, list(feeds), list(results))

    def _adopt(self, function: Function) -> None:
        """Takes the functions that its nodes name, and those that theirs do, into `functions`."""
        from linnet.file import functions_of

        for used in functions_of(function):
            if used not in self.functions:
                self.functions.append(used)
                self._adopt(used)

    def copy(self) -> Graph:
        """A graph whose functions, nodes and tensors are its own; the arrays of constants and variables are shared."""
        made = Graph(self.seed)
        made.metadata = dict(self.metadata)
        made.variables = {name: dataclasses.replace(v, graph=made) for name, v in self.variables.items()}
        functions = {function: made.function(function.name) for function in self.functions}
        for old, new in functions.items():
            new.fill(old, functions)
        for name, s in self.signatures.items():
            made.signatures[name] = Signature(functions[s.function], list(s.inputs), list(s.outputs))
        return made

    def freeze(self, values: Mapping[str, npt.ArrayLike] | None = None, signature: str = "infer") -> Graph:
        """The inference graph of a trained one, its variables constants: see `linnet.passes.freeze`."""
        from linnet.passes import freeze

        return freeze(self, values, signature)

    def to_onnx(
        self,
        path: str | Path,
        values: Mapping[str, npt.ArrayLike] | None = None,
        signature: str = "infer",
        opset: int | None = None,
    ) -> None:
        """Writes one signature as an ONNX model, variables at `values` or their initial ones as its weights: see
        `linnet.converters.onnx.export.to_onnx`."""
        from linnet.converters.onnx.export import to_onnx

        to_onnx(self, path, values, signature=signature, opset=opset)

    def save(self, path: str | Path) -> None:
        """Writes the .lnt file, atomically (a temporary file, then a rename)."""
        from linnet.file import write

        write(self, Path(path))

    def to_bytes(self) -> bytes:
        from linnet.file import to_bytes

        return to_bytes(self)

    @staticmethod
    def load(path: str | Path) -> Graph:
        """Reads a .lnt file back into a graph."""
        from linnet.file import read

        return read(Path(path))


def _same(known: Variable | None, name: str, value: npt.ArrayLike | Initializer, names: Sequence[str]) -> Variable:
    """The variable that a scope with reuse means; UsageError when there is none, or another."""
    from linnet.init import Initializer

    if known is None:
        close = [other for other in names if other.rpartition("/")[2] == name.rpartition("/")[2]]
        raise UsageError(
            f"there is no variable {name!r} to share", code=102, tensor=name, expected=" or ".join(close[:8]),
            hint="build once in the scope without reuse, and name and order layers the same way",
        )  # fmt: skip
    array = value if isinstance(value, Initializer) else np.asarray(value)
    dtype = array.dtype if isinstance(array, Initializer) else dtype_of(array.dtype)
    have = dtype_of(known.value.dtype)
    if tuple(array.shape) != known.value.shape or (dtype != have and isinstance(value, Initializer)):
        raise UsageError(
            f"variable {name!r} is shared, but differs", code=104, tensor=name,
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
    """The nodes on which outputs depend, back to the inputs, in order. replace: tensors that are read in place of others."""
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
                    f"it belongs to function '{tensor.function.name}'", code=101, tensor=tensor.name,
                    expected=f"a tensor of '{function.name}'",
                )  # fmt: skip
            if tensor.node is not None:
                nodes.add(id(tensor.node))
                pending += [replace.get(t, t) for t in tensor.node.inputs if t is not None]
            elif tensor.data is None and tensor.variable is None:
                raise UsageError(
                    f"signature '{signature}' needs this placeholder", code=105, tensor=tensor.name,
                    expected="it among the inputs", got=", ".join(f"'{t.name}'" for t in inputs) or "none",
                )  # fmt: skip
        return nodes

    wanted, first = behind(outputs), behind(replace.values())
    needed = [n for n in function.nodes if id(n) in wanted]
    order = [n for n in needed if id(n) in first] + [n for n in needed if id(n) not in first]
    if not replace:
        return order
    return [dataclasses.replace(n, inputs=[None if t is None else replace.get(t, t) for t in n.inputs]) for n in order]


_DTYPES = {
    "f32": np.float32, "f16": np.float16, "bf16": np.uint16, "f64": np.float64, "i8": np.int8, "i16": np.int16,
    "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_,
}  # fmt: skip
DTYPE_IDS = {
    "none": 0, "f32": 1, "f16": 2, "bf16": 3, "f64": 4, "i8": 5, "i16": 6, "i32": 7, "i64": 8, "u8": 9, "u16": 10,
    "u32": 11, "u64": 12, "bool": 13,
}  # fmt: skip
DTYPE_NAMES = {number: name for name, number in DTYPE_IDS.items()}


def dtype_of(dtype: npt.DTypeLike) -> str:
    """linnet's name of a NumPy element type. Raises TypeError for one that linnet has not."""
    wanted = np.dtype(dtype)
    for name, candidate in _DTYPES.items():
        if name != "bf16" and np.dtype(candidate) == wanted:
            return name
    raise TypeError(f"linnet has no element type for NumPy {wanted}; it has {', '.join(_DTYPES)}")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's element type of a linnet name; bf16 gives uint16 (bit patterns)."""
    return np.dtype(_DTYPES[name])


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
    """Appends a node to the function of its operands and returns its outputs, with shapes inferred by the C library.

    When every operand is a constant and the result is small, it is computed at once and constants are returned instead.
    inputs: tensors; a variable is read in the function of the others, or in `function`.
    quantization, dtypes: of the outputs, where the op leaves them open (quantize, conv, matmul, map, ...).
    name: of the node, and of its first output. Raises linnet.GraphError when the operands do not fit the op.
    """
    from linnet import _ops

    like = next((x for x in inputs if isinstance(x, Tensor)), None)
    if like is None and function is not None:
        inputs = [function.read(x) if isinstance(x, Variable) else x for x in inputs]
    tensors = [None if x is None else checked(x).tensor(like) for x in inputs]
    return _ops.emit(op, tensors, attributes, outputs, name, function, quantization, dtypes)
