"""User ops: ops of a program that a graph names (docs/user_ops.md). UserOp is one op, made of Python functions or of
functions of a C library. It builds nodes, and C calls it through the callbacks of linnet_ext.h."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import GraphError, UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import keep_cause
from linnet.ir import traits
from linnet.ir.dtypes import DTYPE_IDS, DTYPE_NAMES, Dim, Spec, dtype_of, numpy_dtype
from linnet.ir.function import Function, Operators, Tensor, checked
from linnet.ir.graph import Graph, graph_of
from linnet.ir.operands import Registered, user_op_name

if TYPE_CHECKING:
    from pathlib import Path

Attribute = int | float | str | bytes | Sequence[int] | Sequence[float] | Sequence[str] | Sequence[bytes]
_KINDS: tuple[type, ...] = (int, float, str, bytes)  # in the order of LINNET_USER_INTEGERS, ...
_EXACT = 2  # LINNET_USER_OP_EXACT
_DECIDES_SIZES = 4  # LINNET_USER_OP_DECIDES_SIZES
_FAILED = 1  # a callback returns this after an error


class Known(NamedTuple):
    """The facts about an operand that a shape rule gets. Entries of `shape` are None if they are unknown; `shape`
    itself is None if the rank is unknown. value: the array, if it is known before the run."""

    dtype: str
    shape: tuple[int | None, ...] | None
    value: npt.NDArray[Any] | None


class AtMost(NamedTuple):
    """A dimension that only the kernel knows, in the result of a shape rule (UserOp.at_most)."""

    size: int


# ---- attributes --------------------------------------------------------------------------------------------------------


def pack(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a user op as the lists of the op `user` (schema/ops/user.toml). Raises GraphError."""
    kinds: list[int] = []
    pools: tuple[list[Any], ...] = ([], [], [], [])
    texts: list[bytes] = []
    for name, value in attributes.items():
        if not name or "\0" in name:
            raise _bad_attribute(name, "a name", name)
        several = isinstance(value, (list, tuple, np.ndarray))
        values = [v.item() if isinstance(v, np.generic) else v for v in (value if several else [value])]
        kind = max((_kind_of(name, v) for v in values), default=0)
        if kind == 1:
            values = [float(v) for v in values if isinstance(v, (int, float))]
        if any(_kind_of(name, v) != kind for v in values):
            raise _bad_attribute(name, "values of one type", values)
        kinds += [kind, len(values) if several else -1]
        pools[kind].extend(int(v) if kind == 0 else v for v in values)
        texts += [v if isinstance(v, bytes) else v.encode("utf-8", "surrogateescape") for v in values if kind >= 2]
    return {
        "names": b"".join(name.encode() + b"\0" for name in attributes),
        "kinds": tuple(kinds),
        "integers": tuple(pools[0]),
        "floats": tuple(pools[1]),
        "text": b"".join(text + b"\0" for text in texts),
        "sizes": tuple(len(text) for text in texts),
    }


def _kind_of(name: str, value: object) -> int:
    for kind, wanted in enumerate(_KINDS):
        if isinstance(value, wanted):
            return kind
    raise _bad_attribute(name, "numbers, text, bytes, or a list of one of them", value)


def _bad_attribute(name: str, expected: str, got: object) -> GraphError:
    return GraphError(
        f"attribute {name!r} of a user op has an invalid value", code=302, expected=expected, got=f"{got!r:.60}"
    )


def unpack(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that `pack` has packed. Lists become tuples."""
    texts, at = [], 0
    for size in attributes["sizes"]:
        texts.append(attributes["text"][at : at + size])
        at += size + 1
    pools = [iter(attributes["integers"]), iter(attributes["floats"]), iter(texts)]
    names, kinds = attributes["names"].split(b"\0")[:-1], attributes["kinds"]
    found: dict[str, Any] = {}
    for name, kind, count in zip(names, kinds[::2], kinds[1::2], strict=True):
        values = [next(pools[min(kind, 2)]) for _ in range(1 if count < 0 else count)]
        if kind == 2:
            values = [v.decode("utf-8", "surrogateescape") for v in values]
        found[name.decode()] = values[0] if count < 0 else tuple(values)
    return found


# ---- the op ------------------------------------------------------------------------------------------------------------


class UserOp:
    """An op of the program, which a graph or file names.

    name: a domain that you own, followed by a name: "com.example.crop". A file contains the name and the version, not
        the op.
    run: the kernel: run(*arrays, **attributes) gives an array, or a list of arrays if there are several outputs. It
        gets copies of the operands, and None for an absent operand. Arrays of bf16 have the dtype of ml_dtypes.
    shape: the shape rule: shape(*operands, **attributes) gives (dtype, shape), or a list of them. The operands have
        dtype, shape and value (Known). A dimension that is not known yet is None. If there is no rule, every call needs
        `outputs` with complete shapes.
    gradient: gradient(inputs, outputs, gradients, **attributes) builds nodes and gives one gradient per input, or None
        for an input without one. An entry of `gradients` is None if that output is not used.
    version: increase it when files need a newer kernel. An op runs nodes of its own version and of earlier versions.
    inputs, outputs: the number of operands and of outputs, or (least, most); None: any number.
    exact: the same operands always give the same bits, so constant results may be computed once.
    decides_sizes: the kernel decides dimensions for which the shape rule gives UserOp.at_most(n). The kernel's result
    may then be smaller in these dimensions.

    Calling the op on tensors builds a node: `y = crop(x, size=4)`. Sessions get their ops from the graph, or from
    user_ops=[...] if the model is a file. Raises UsageError.
    """

    def __init__(
        self,
        name: str,
        run: Callable[..., Any],
        shape: Callable[..., Any] | None = None,
        *,
        gradient: Callable[..., Any] | None = None,
        version: int = 1,
        inputs: int | tuple[int, int | None] | None = None,
        outputs: int | tuple[int, int | None] | None = 1,
        exact: bool = False,
        decides_sizes: bool = False,
    ) -> None:
        if not isinstance(name, str) or not name.rpartition(".")[0] or "\0" in name or len(name.encode()) > 95:
            raise UsageError(
                "the name of a user op must be a domain, a dot and a name",
                code=101, expected='"com.example.crop", at most 95 bytes', got=f"{name!r:.60}",
            )  # fmt: skip
        for what, function in (("run", run), ("shape", shape), ("gradient", gradient)):
            if not callable(function) and (function is not None or what == "run"):
                raise UsageError(
                    f"'{what}' of user op {name} must be a function", code=101, got=f"{function!r:.60}", tensor=name
                )
        if not isinstance(version, int) or version < 1:
            raise UsageError(f"the version of user op {name} must be 1 or more", code=101, got=repr(version))
        self.name, self.version = name, version
        self.run: Callable[..., Any] = run
        self.shape: Callable[..., Any] | None = shape
        self.gradient: Callable[..., Any] | None = gradient
        self.inputs, self.outputs = _range(name, inputs, 0), _range(name, outputs, 1)
        self.exact, self.decides_sizes = exact, decides_sizes
        self._library: Any = None

    def __repr__(self) -> str:
        return f"<UserOp {self.name}, version {self.version}>"

    def __getstate__(self) -> dict[str, Any]:
        if self._library is not None:
            raise UsageError(
                f"user op {self.name} is in a C library and cannot be sent to another process", code=101,
                hint="call linnet.load_user_ops there",
            )  # fmt: skip
        return {key: value for key, value in self.__dict__.items() if key not in ("pointer", "_callbacks", "_name")}

    def __call__(
        self,
        *operands: Operators | None,
        outputs: int | Sequence[tuple[str, Sequence[Dim]]] | None = None,
        name: str = "",
        function: Function | None = None,
        **attributes: Any,
    ) -> Any:
        """A node of this op: its output, or the list of its outputs if there are several. outputs: their number, or
        their dtypes and shapes if the op has no shape rule. name, function: as for every op of linnet.ops. The other
        keywords are attributes. Raises GraphError."""
        made = self.node(operands, attributes, outputs, name, function)
        return made[0] if len(made) == 1 else made

    def node(
        self,
        operands: Sequence[Operators | None],
        attributes: Mapping[str, Any],
        outputs: int | Sequence[tuple[str, Sequence[Dim]]] | None = None,
        name: str = "",
        function: Function | None = None,
        version: int | None = None,
    ) -> list[Tensor]:
        """Like a call of the op, but attributes may have any names. version: the version that the node needs, at most
        that of the op. Raises GraphError."""
        like = next((x for x in operands if isinstance(x, Tensor)), None)
        tensors = [None if x is None else checked(x).tensor(like) for x in operands]
        function = function or next((t.function for t in tensors if t is not None), None)
        if function is None:
            raise GraphError(
                f"user op {self.name} without operands needs the argument function", code=302, op=name or self.name
            )
        specs: list[Spec] | None = None
        if outputs is not None and not isinstance(outputs, int):
            specs = [(dtype_of(dtype), tuple(shape)) for dtype, shape in outputs]
        if self.ruleless and specs is None:
            raise GraphError(
                f"user op {self.name} has no shape rule", code=304, op=name or self.name,
                hint="give the op a shape rule, or say outputs=[(dtype, shape), ...] in the call",
            )  # fmt: skip
        count = outputs if isinstance(outputs, int) else max(1, self.outputs[0])
        register(graph_of(function).user_ops, [self])
        packed = {"op": self.name.encode() + b"\0", "version": version or self.version, **pack(attributes)}
        if specs is not None:
            return function.emit_declared("user", tensors, packed, specs, name or self.name)
        return function.emit("user", tensors, packed, count, name or self.name)

    @staticmethod
    def at_most(size: int | None) -> AtMost | None:
        """A dimension that only the kernel knows, for the result of a shape rule. size: its largest possible value;
        None: not known yet."""
        return None if size is None else AtMost(int(size))

    @property
    def ruleless(self) -> bool:
        """Whether the op has no shape rule."""
        return self.shape is None and (self._library is None or self.pointer.infer == ffi.NULL)

    @cached_property
    def _callbacks(self) -> dict[str, Any]:
        kind = "int(linnet_user_call *)"
        made = {"run": ffi.callback(kind, self._run, error=_FAILED)}
        if self.shape is not None:
            made["infer"] = ffi.callback(kind, self._infer, error=_FAILED)
        return made

    @cached_property
    def pointer(self) -> Any:
        """The linnet_user_op struct. It is valid as long as this object exists."""
        made = ffi.new("linnet_user_op *")
        made.struct_size = ffi.sizeof("linnet_user_op")
        self._name = ffi.new("char[]", self.name.encode())
        made.name, made.version = self._name, self.version
        made.flags = (_EXACT if self.exact else 0) | (_DECIDES_SIZES if self.decides_sizes else 0)
        made.least_inputs, made.most_inputs = self.inputs
        made.least_outputs, made.most_outputs = self.outputs
        for field, callback in self._callbacks.items():
            setattr(made, field, callback)
        return made

    # ---- what C calls ----

    def _guarded(self, call: Any, body: Callable[[], None]) -> int:
        """Returns 0, or 1 if the function raised an exception. The text of the exception goes into C's error record.
        When an exception is later raised from the record, the function's exception becomes its cause."""
        try:
            body()
        except BaseException as error:
            keep_cause(error)
            text = f"{type(error).__name__}: {error}".encode("utf-8", "replace").replace(b"\0", b" ")
            text = text[: call.problem_size - 1].decode("utf-8", "ignore").encode()
            ffi.memmove(call.problem, text + b"\0", len(text) + 1)
            return _FAILED
        return 0

    def _infer(self, call: Any) -> int:
        def body() -> None:
            assert self.shape is not None
            given = [_known(call.inputs[i]) for i in range(call.input_count)]
            specs = self.shape(*given, **_attributes(call))
            if isinstance(specs, tuple) and len(specs) == 2 and isinstance(specs[0], str | type | np.dtype):
                specs = [specs]
            specs = list(specs)
            if len(specs) != call.output_count:
                raise ValueError(f"the shape rule gives {len(specs)} outputs, and the node has {call.output_count}")
            for i, (dtype, shape) in enumerate(specs):
                o = call.outputs[i]
                try:
                    dtype = dtype_of(dtype)
                except UsageError:
                    raise ValueError(f"output {i} has the unknown dtype {dtype!r}") from None
                dims = None if shape is None else [_dimension(d) for d in shape]
                o.dtype, o.rank = DTYPE_IDS[dtype], -1 if dims is None else len(dims)
                for d, size in enumerate((dims or [])[:8]):
                    o.shape[d] = size

        return self._guarded(call, body)

    def _run(self, call: Any) -> int:
        def body() -> None:
            given = [_array(call.inputs[i]) for i in range(call.input_count)]
            result = self.run(*[None if a is None else a.copy() for a in given], **_attributes(call))
            results = list(result) if isinstance(result, (list, tuple)) else [result]
            if len(results) != call.output_count:
                raise ValueError(f"the kernel gives {len(results)} outputs, and the node has {call.output_count}")
            for i, value in enumerate(results):
                to, value = _array(call.outputs[i]), np.asarray(value)
                assert to is not None
                fits = value.shape == to.shape or (self.decides_sizes and _inside(value.shape, to.shape))
                if value.dtype != to.dtype or not fits:
                    raise ValueError(
                        f"the kernel gives output {i} as {value.dtype} {list(value.shape)}, expected {to.dtype} "
                        f"{list(to.shape)}"
                    )
                to.reshape(-1)[: value.size] = value.reshape(-1)
                for d, size in enumerate(value.shape):
                    call.outputs[i].shape[d] = size

        return self._guarded(call, body)


def _range(name: str, given: int | tuple[int, int | None] | None, least: int) -> tuple[int, int]:
    """(least, most) with -1 for no limit."""
    if given is None:
        return least, -1
    low, high = (given, given) if isinstance(given, int) else given
    if low < least or (high is not None and high < low):
        raise UsageError(f"the number of operands of user op {name} is out of range", code=101, got=repr(given))
    return low, -1 if high is None else high


def _dimension(d: AtMost | int | None) -> int:
    """The dimension as C expects it: -1 if it is unknown, linnet_user_at_most(n) for AtMost(n)."""
    return -1 if d is None else -2 - d.size if isinstance(d, AtMost) else int(d)


def _inside(shape: tuple[int, ...], most: tuple[int, ...]) -> bool:
    return len(shape) == len(most) and all(a <= b for a, b in zip(shape, most, strict=True))


def _shape_of(operand: Any) -> tuple[int, ...]:
    return tuple(operand.shape[d] for d in range(operand.rank))


def _array(operand: Any) -> npt.NDArray[Any] | None:
    """The operand's memory as an array, or None if it is absent."""
    if operand.dtype == 0:
        return None
    dtype, shape = numpy_dtype(DTYPE_NAMES[operand.dtype]), _shape_of(operand)
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.empty(shape, dtype)
    return np.frombuffer(ffi.buffer(operand.data, count * dtype.itemsize), dtype).reshape(shape)


def _known(operand: Any) -> Known | None:
    if operand.dtype == 0:
        return None
    dims = None if operand.rank < 0 else tuple(d if d >= 0 else None for d in _shape_of(operand))
    value = _array(operand) if operand.data != ffi.NULL and dims is not None and None not in dims else None
    return Known(DTYPE_NAMES[operand.dtype], dims, None if value is None else value.copy())


def _attributes(call: Any) -> dict[str, Any]:
    """The attributes of the node, by name."""
    found: dict[str, Any] = {}
    kind, count, size = ffi.new("int *"), ffi.new("int64_t *"), ffi.new("size_t *")
    i = 0
    while (name := call.attribute(call, i, kind, count)) != ffi.NULL:
        n, i = max(count[0], 1) if count[0] else 0, i + 1
        values: Iterable[Any]
        if kind[0] < 2:
            data = (call.integers if kind[0] == 0 else call.floats)(call, name, ffi.NULL)
            values = [data[k] for k in range(n)]
        else:
            raw = [ffi.buffer(call.text(call, name, k, size), size[0])[:] for k in range(n)]
            values = raw if kind[0] == 3 else [text.decode("utf-8", "surrogateescape") for text in raw]
        found[ffi.string(name).decode()] = tuple(values) if count[0] >= 0 else next(iter(values))
    return found


# ---- sets of ops -------------------------------------------------------------------------------------------------------


def register(table: dict[str, Registered], ops: Iterable[UserOp]) -> dict[str, Registered]:
    """Adds ops to a table by name. Raises UsageError if the table already has another op with the same name."""
    for op in ops:
        if not isinstance(op, UserOp):
            raise UsageError("user_ops must be a list of linnet.UserOp", code=101, got=f"{op!r:.60}")
        if table.setdefault(op.name, op) is not op:
            raise UsageError(
                f"there are two user ops named {op.name}", code=101, hint="use one UserOp object, or give each a name"
            )
    return table


def named_in(graph: Graph) -> list[UserOp]:
    """Stand-ins for ops that nodes of a graph name but that the graph does not have. They allow the graph's file to be
    opened without these ops. Stand-ins cannot run."""
    versions: dict[str, int] = {}
    for node in (node for function in graph.functions for node in function.nodes if node.op in traits.REGISTERED):
        name = user_op_name(node.attributes)
        if name in graph.user_ops:
            continue
        versions[name] = max(versions.get(name, 1), node.attribute("version"))
    return [UserOp(name, _absent, _absent, version=version, outputs=None) for name, version in versions.items()]


def _absent(*_: Any, **__: Any) -> Any:
    raise UsageError("this user op was not given", code=101, hint="give it in user_ops=[...]")


_OPENED: list[Any] = []  # libraries are never closed, because sessions call them until they are freed


def load_user_ops(path: str | Path) -> list[UserOp]:
    """The ops of a shared library that exports `linnet_extension_user_ops` (linnet_ext.h). Give an op a gradient by
    setting its attribute `gradient`. Raises UsageError."""
    try:
        opened = ffi.dlopen(os.path.abspath(path))
        count = ffi.new("int *")
        array = opened.linnet_extension_user_ops(count)
    except (OSError, AttributeError, ffi.error) as error:
        raise UsageError(
            f"cannot load user ops from '{path}': {error}", code=101, tensor=str(path),
            hint="the library must export linnet_extension_user_ops (linnet_ext.h)",
        ) from None  # fmt: skip
    _OPENED.append(opened)
    return [_native(array[i]) for i in range(count[0])]


def _native(pointer: Any) -> UserOp:
    op = UserOp.__new__(UserOp)
    op.name, op.version = ffi.string(pointer.name).decode(), pointer.version
    op.run, op.shape, op.gradient = _in_library, None, None
    op.inputs, op.outputs = (pointer.least_inputs, pointer.most_inputs), (pointer.least_outputs, pointer.most_outputs)
    op.exact, op.decides_sizes = bool(pointer.flags & _EXACT), bool(pointer.flags & _DECIDES_SIZES)
    op._library = pointer
    op.__dict__["pointer"] = pointer
    return op


def _in_library(*_: Any, **__: Any) -> Any:
    raise UsageError("the kernel of this user op is in a C library", code=101, hint="run it in a linnet.Session")
