"""A model in memory with its variables, and what Python needs around it: tensor specs, ISA names.
The C library verifies the file once, here. Sessions (session.py) plan and run the model."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import Error, GraphError, UsageError, checkpoint_as_model
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, library, log_callback, new_struct
from linnet.ir.dtypes import DTYPE_NAMES, bits_of, bytes_of, dtype_of, numpy_dtype, packed, unpacked
from linnet.ir.exact import numbers_of
from linnet.session.lifetime import Native, described, shape_text

if TYPE_CHECKING:
    from pathlib import Path

    from linnet.file.dim_names import Names
    from linnet.ir.graph import Graph
    from linnet.ir.user_op import UserOp

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """An input, output or variable. Entries of `shape` are None if they are known only at run time; `shape` itself is
    None if the rank is unknown too. scale, zero: per-tensor quantization, or None."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    scale: float | None = None
    zero: int | None = None


def isa_names() -> list[str]:
    """Instruction sets of this build that this machine can run, lowest first. These are the values for `isa_max`."""
    names: list[str] = []
    while (name := library().linnet_isa_name(len(names))) != ffi.NULL:
        names.append(string_of(name))
    return names


def string_of(pointer: Any) -> str:
    return "" if pointer == ffi.NULL else bytes(ffi.string(pointer)).decode()


def spec_of(info: Any) -> TensorSpec:
    shape = None if info.rank < 0 else tuple(d if d >= 0 else None for d in list(info.shape)[: info.rank])
    quantized = info.scale != 0
    return TensorSpec(
        string_of(info.name),
        DTYPE_NAMES[info.dtype],
        shape,
        float(info.scale) if quantized else None,
        int(info.zero) if quantized else None,
    )


def _is_graph(source: object) -> TypeGuard[Graph]:
    """Whether the value is a Graph. This does not import linnet.ir, which a program that only runs models does not
    need."""
    module = sys.modules.get("linnet.ir.graph")
    return module is not None and isinstance(source, module.Graph)


def _known_ops(source: object, user_ops: Iterable[UserOp]) -> list[UserOp]:
    """The user ops that the graph was built with, and the given ones."""
    given = list(user_ops)
    if not given and not _is_graph(source):
        return []
    from linnet.ir.user_op import UserOp, register

    known = register(dict(source.user_ops) if _is_graph(source) else {}, given)
    return [op for op in known.values() if isinstance(op, UserOp)]


@dataclasses.dataclass(frozen=True)
class Verified:
    """Result of Model.verify: the number of segments in the file, the bytes in segments that match their digests, the
    bytes in segments without a digest, and the number of places that differ from what was written."""

    segments: int
    bytes: int
    without_digest: int
    problems: int


class Model(Native):
    """An immutable model whose structure has been verified. `source`: a path, the bytes of a .lnt file, or a Graph.
    verify: whether to check the weights against their digests, which reads the whole file. None: check a file given as
    bytes, but not a file given by path (its weights stay on disk until used). True also rejects a file without digests.
    user_ops: the user ops that the file names. A Graph also brings the user ops that it was built with. Raises
    FileError, GraphError, UsageError."""

    _instead = "send its path or its bytes, and create a Model from them in the other process"

    def __init__(
        self,
        source: str | Path | bytes | Graph,
        *,
        verify: bool | None = None,
        user_ops: Iterable[UserOp] = (),
    ) -> None:
        out, error = ffi.new("linnet_model **"), ffi.new("linnet_error *")
        config = new_struct("linnet_model_config")
        lib = library()
        config.verify = lib.LINNET_VERIFY_STRICT if verify else lib.LINNET_VERIFY_NEVER
        config.log = log_callback()
        self.user_ops = _known_ops(source, user_ops)  # their callbacks must outlive the model
        pointers = ffi.new("linnet_user_op *[]", [op.pointer for op in self.user_ops])
        config.user_ops, config.user_op_count = pointers, len(self.user_ops)
        self._content: bytes | None = None  # kept alive because the model reads from it
        self.path: str | None = None
        self._dim_names: dict[str, Names] = {}
        if isinstance(source, str | os.PathLike):
            if verify is None:
                config.verify = lib.LINNET_VERIFY_DEFAULT
            self.path = os.fspath(source)
            code = lib.linnet_model_open(os.fsencode(self.path), config, out, error)
        else:
            if _is_graph(source):
                from linnet.file.writer import to_bytes

                self._content = to_bytes(source)
            elif isinstance(source, bytes | bytearray | memoryview):
                self._content = bytes(source)
            else:
                raise wrong_type("the model", "a path, the bytes of a .lnt file, or a linnet.Graph", source)
            data = ffi.from_buffer(self._content)
            code = lib.linnet_model_open_memory(data, len(self._content), lib.LINNET_BORROW, config, out, error)
        if code:
            raise exception(error)
        self.pointer = ffi.gc(out[0], lib.linnet_model_free)
        if verify is None and self.path is None and not _is_graph(source):
            _, problem = self.verified(strict=False)
            if problem is not None:
                raise problem
        self._structure = int(lib.linnet_model_bytes(self.pointer))  # taken before any session has packed weights
        self.signatures = [
            string_of(lib.linnet_model_signature_name(self.pointer, i))
            for i in range(lib.linnet_model_signature_count(self.pointer))
        ]

    def __repr__(self) -> str:
        of = f" of {self.path!r}" if self.path else ""
        texts = [
            f"{name} ({described(self.inputs(name))} -> {described(self.outputs(name))})" for name in self.signatures
        ]
        return f"<linnet.Model{of}: {'; '.join(texts) or 'no signature'}>"

    def _signature(self, name: str) -> int:
        index = int(library().linnet_model_find_signature(self.pointer, name.encode()))
        if index < 0:
            self.refuse_checkpoint()
            raise UsageError(
                f"the model has no signature named {name!r}",
                code=102,
                tensor=name,
                expected=" or ".join(self.signatures),
            )
        return index

    def refuse_checkpoint(self) -> None:
        """Raises FileError if the file is a checkpoint, which has no signatures."""
        from linnet.file.layout import CHECKPOINT_KEY

        if (digest := self.metadata(CHECKPOINT_KEY)) is not None:
            raise checkpoint_as_model(self.path or "this file", digest)

    def _specs(self, signature: str, which: str) -> list[TensorSpec]:
        index, info, lib = self._signature(signature), new_struct("linnet_tensor_info"), library()
        specs = []
        for i in range(getattr(lib, f"linnet_model_{which}_count")(self.pointer, index)):
            getattr(lib, f"linnet_model_get_{which}")(self.pointer, index, i, info)
            specs.append(spec_of(info))
        return specs

    def inputs(self, signature: str = "infer") -> list[TensorSpec]:
        """The declared inputs of a signature. Raises UsageError if the signature does not exist."""
        return self._specs(signature, "input")

    def outputs(self, signature: str = "infer") -> list[TensorSpec]:
        """The declared outputs of a signature. Raises UsageError if the signature does not exist."""
        return self._specs(signature, "output")

    def tensor(self, name: str, signature: str = "infer") -> TensorSpec | None:
        """What the file declares for an output, for any tensor of the signature's graph, or for the first result of a
        step. None if nothing has this name. Raises UsageError if the signature does not exist."""
        info = new_struct("linnet_tensor_info")
        lib, index = library(), self._signature(signature)
        missing = lib.linnet_model_get_tensor(self.pointer, index, name.encode(), info)
        return None if missing else dataclasses.replace(spec_of(info), name=name)

    def verify(self) -> Verified:
        """Reads the whole file, checks the weights against their digests, and checks that there are no extra bytes
        between them. Raises FileError if the file has no digests or is damaged (the error names the first damaged
        tensor). Writing the file again adds digests."""
        found, problem = self.verified(strict=True)
        if problem is not None:
            raise problem
        return found

    def verified(self, strict: bool) -> tuple[Verified, Error | None]:
        """Like verify, but returns the error. If not strict, bytes without a digest are only counted."""
        found, error = new_struct("linnet_verified"), ffi.new("linnet_error *")
        how = library().LINNET_VERIFY_STRICT if strict else library().LINNET_VERIFY_DEFAULT
        failed = library().linnet_model_verify(self.pointer, how, found, error)
        return (
            Verified(found.segments, found.bytes, found.without_digest, found.problems),
            exception(error) if failed else None,
        )

    def metadata(self, key: str) -> str | None:
        """Value of a metadata key, or None if the file does not have the key."""
        value = library().linnet_model_metadata(self.pointer, key.encode())
        return None if value == ffi.NULL else string_of(value)

    def dim_names(self, signature: str = "infer") -> dict[str, tuple[str, ...]]:
        """For each input, the names of its open dimensions, with "" for each other dimension. Dimensions with the same
        name should have the same size in a run; see Session's strict_dims."""
        if signature not in self._dim_names:
            from linnet.file import dim_names

            self._dim_names[signature] = dim_names.read(self.content, signature)
        return self._dim_names[signature]

    def assigns(self, signature: str = "infer") -> bool:
        """Whether running the signature updates variables."""
        from linnet.file import dim_names

        return dim_names.assigns(self.content, signature)

    @property
    def content(self) -> bytes | str:
        """The bytes of the file, or its path."""
        return self._content or self.path or b""

    @property
    def variables(self) -> list[TensorSpec]:
        """Names, dtypes and shapes of the variables."""
        lib, info, specs = library(), new_struct("linnet_tensor_info"), []
        for i in range(lib.linnet_model_variable_count(self.pointer)):
            lib.linnet_model_get_variable(self.pointer, i, info)
            specs.append(spec_of(info))
        return specs


class Store(Native):
    """The variables of a model, independent of any session. Several sessions may share one store if they belong to the
    same Model. `store[name]` returns a copy; `store[name] = value` writes. Thread safe."""

    _instead = "send {name: store[name] for name in store}, or save a checkpoint"

    def __init__(self, model: Model) -> None:
        self.model = model
        self._specs = {spec.name: spec for spec in model.variables}
        self._made: Any = None
        self._lock = threading.Lock()

    def _check(self, max_bytes: int) -> None:
        """Raises GraphError if the variables alone exceed the limit of a session that cannot plan yet (0: no limit), unless
        they are in memory already."""
        if self._made is None and 0 < max_bytes < self._bytes:
            raise GraphError(
                "the variables of the model need more memory than max_bytes allows", code=306,
                expected=f"at most {max_bytes} bytes", got=f"{self._bytes} bytes", hint="raise max_bytes",
            )  # fmt: skip

    @property
    def pointer(self) -> Any:
        """The store of the C library. Its first use makes it, so that a session can refuse a plan before the variables
        take memory."""
        with self._lock:
            if self._made is None:
                out, error = ffi.new("linnet_store **"), ffi.new("linnet_error *")
                if library().linnet_store_create(self.model.pointer, ffi.NULL, out, error):
                    raise exception(error)
                self._made = ffi.gc(out[0], library().linnet_store_free)
            return self._made

    @property
    def _bytes(self) -> int:
        """Bytes that the store holds, or will hold when something uses it."""
        lib, made = library(), self._made
        return int(lib.linnet_model_store_bytes(self.model.pointer) if made is None else lib.linnet_store_bytes(made))

    def __repr__(self) -> str:
        return f"<linnet.Store: {len(self)} variable{'s' * (len(self) != 1)}, {self._bytes:,} bytes>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def _spec(self, name: str) -> TensorSpec:
        if name not in self._specs:
            raise UsageError(
                f"the model has no variable named {name!r}",
                code=102,
                tensor=name,
                expected=" or ".join(self._specs) or "a model with variables",
            )
        return self._specs[name]

    def __getitem__(self, name: str) -> Array:
        spec = self._spec(name)
        shape = [d or 0 for d in spec.shape or ()]
        value = np.empty(shape, numpy_dtype(spec.dtype))
        if bits_of(spec.dtype) == 4:
            value = np.empty(bytes_of(spec.dtype, shape), np.uint8)
        error = ffi.new("linnet_error *")
        data = ffi.from_buffer(value, require_writable=True)
        if library().linnet_store_read(self.pointer, name.encode(), data, value.nbytes, error):
            raise exception(error)
        return value if bits_of(spec.dtype) >= 8 else unpacked(value, spec.dtype, shape)

    def __setitem__(self, name: str, value: npt.ArrayLike) -> None:
        spec = self._spec(name)
        array = np.ascontiguousarray(converted(value, spec, "variable"))
        if array.shape != spec.shape and not (array.size == 1 and spec.shape == ()):
            raise wrong_shape(spec, array.shape, "variable")
        error = ffi.new("linnet_error *")
        array = packed(array)
        data = ffi.from_buffer(array)
        if library().linnet_store_write(self.pointer, name.encode(), data, array.nbytes, error):
            raise exception(error)

    def as_dict(self) -> dict[str, Array]:
        """A copy of every variable, by name."""
        return {name: self[name] for name in self}

    def save(
        self, path: str | Path, variables: Sequence[str] | None = None, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Writes a checkpoint: the variables and the digest of the model. After a crash, a kill or a full disk, the
        file is either the complete old one or the complete new one.

        variables: names of the variables to write. None: those that have changed since the store was created (assigned
        by a run, written or loaded), so that frozen variables are not written again. list(store): all. metadata: text
        that `load` returns, for example the step. Raises FileError (write_failed; the old file is unchanged),
        UsageError.
        """
        from linnet.file import checkpoint

        checkpoint.save(self.pointer, path, variables, metadata)

    def load(self, path: str | Path) -> dict[str, str]:
        """Loads the variables in a checkpoint (all of them, or none on failure) and returns its metadata. Variables
        that are not in the checkpoint keep their values. Raises FileError if the file is missing, damaged, or from
        another model (other_model)."""
        from linnet.file import checkpoint

        return checkpoint.load(self.pointer, path)


def converted(value: npt.ArrayLike, spec: TensorSpec, role: str) -> Array:
    """The value as an array of the declared dtype. Lists, numbers, and arrays of float64 and int64 (NumPy's dtypes for
    lists and numbers) are converted if the dtype can represent every number; floats are rounded. Arrays of narrower
    floats are widened. Arrays of uint16 are bit patterns of bf16. Raises UsageError (WRONG_DTYPE) otherwise."""
    wanted = numpy_dtype(spec.dtype)
    array: Array = np.asarray(value)
    given, hint = array.dtype, f"convert the array first: array.astype({_text(wanted)})"
    convertible = True
    if isinstance(value, np.ndarray | np.generic):
        if given == wanted or (given.isnative is False and given.newbyteorder("=") == wanted):
            return array.astype(wanted, copy=False)
        if spec.dtype == "bf16" and given == np.uint16:
            return array.view(wanted)
        wider = given.kind == wanted.kind == "f" and np.can_cast(given, wanted)
        convertible = wider or given in (np.float64, np.int64) or (bits_of(spec.dtype) == 4 and given.kind in "iu")
    whole = given.kind in "iub" or wanted.kind == "f" or spec.dtype == "bf16"
    if (convertible and whole) or not array.size:
        try:
            return numbers_of(array, spec.dtype, copy=False)
        except UsageError as error:
            hint = f"{error.what}: {error.got}"
    try:
        got = dtype_of(given)
    except UsageError:
        got = str(given)
    raise UsageError(
        f"{role} {spec.name!r} has the wrong dtype", code=103, tensor=spec.name,
        expected=f"{spec.dtype} (NumPy {wanted})", got=got, hint=hint,
    )  # fmt: skip


def _text(dtype: np.dtype[Any]) -> str:
    return f"{'ml_dtypes' if dtype.name in ('bfloat16', 'int4', 'uint4') else 'numpy'}.{dtype}"


def wrong_type(what: str, expected: str, got: object) -> UsageError:
    return UsageError(f"{what} has the wrong type", code=101, expected=expected, got=f"{got!r:.60}")


def wrong_shape(spec: TensorSpec, shape: Sequence[int], role: str = "input") -> UsageError:
    return UsageError(
        f"{role} {spec.name!r} has the wrong shape", code=104, tensor=spec.name, expected=shape_text(spec.shape),
        got=shape_text(shape), hint="reshape the array, or convert the model again for this shape",
    )  # fmt: skip


def fits(shape: tuple[int, ...], declared: tuple[int | None, ...] | None) -> bool:
    if declared is None:
        return True
    return len(shape) == len(declared) and all(d is None or d == s for s, d in zip(shape, declared, strict=True))
