"""Loads one version of a model for serving: checks that it fits into the memory, finds out whether requests may share a run,
and gives it a lane. What a loaded version needs is known before it takes it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from linnet.clib.errors import Error, FileError, GraphError, UsageError
from linnet.ir.dtypes import numpy_dtype
from linnet.serve.lane import Lane
from linnet.serve.settings import Settings
from linnet.session.bounds import parse
from linnet.session.model import Model, TensorSpec
from linnet.session.planner import Planner
from linnet.session.session import Session

_TOO_LARGE = 306
_PLANS = 7  # plans that a session keeps beside the one in use
_SIDE, _LENGTH = 640, 128  # largest size of an open dimension of pictures, and of others, where nobody gives one
_QUICK_MS = 0.05
_PHOTO, _SOUND = 4096, 30 * 48000  # pixels a side, samples


@dataclasses.dataclass
class Loaded:
    """A version that is ready. dtypes: of the outputs; numpy_dtypes: of the inputs. accepts: {input: (kind, words)} of inputs
    that take a photo or a sound. batches: see Lane. bytes: the most memory that it takes; unbounded: why that is only an
    estimate, or "". quick: whether a run takes less time than handing it to the
    lane's thread. busy: requests that it has not answered yet; used: when it answered last (time.monotonic)."""

    model: Model
    signature: str
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    dtypes: dict[str, str]
    numpy_dtypes: dict[str, Any]
    open_batch: bool
    accepts: dict[str, tuple[str, dict[str, str]]]
    batches: tuple[int, ...]
    bytes: int
    unbounded: str
    quick: bool
    lane: Lane
    seconds: float
    used: float
    busy: int = 0


def read_file(path: Path) -> bytes:
    """The content of a model's file. Raises FileError."""
    try:
        return path.read_bytes()
    except OSError as error:
        code = 201 if isinstance(error, FileNotFoundError) else 202
        raise FileError(
            f"cannot read '{path}': {error.strerror or error}", code=code, tensor=str(path), hint="check the path"
        ) from None


def load(content: bytes, settings: Settings, room: int | None) -> Loaded:
    """A version, from the bytes of its file. room: the bytes that it may take; None: no limit. Raises FileError, GraphError
    (with both numbers if it does not fit), UsageError, ResourceError."""
    from linnet.preprocess._edit import io_key, parse_io

    started = time.perf_counter()
    model = Model(content)
    signature = _signature(model, settings.signature)
    inputs, outputs = model.inputs(signature), model.outputs(signature)
    accepts = {
        spec.name: about
        for spec in inputs
        if (about := parse_io(model.metadata(io_key(signature, spec.name)) or "")) and about[0] in ("image", "audio")
    }
    open_batch = _open_batch(model, signature, inputs, outputs) and not accepts
    bounds = _bounds(inputs, accepts, settings, open_batch)
    session, bounds = _session(model, signature, settings, bounds, open_batch, room, len(content))
    bound = session.bound
    assert bound is not None
    most = bound.total + _PLANS * bound.regions["bookkeeping"]
    if open_batch:  # batches are halves of each other, and so are their inputs and outputs
        most += bound.regions["io"]
    most = most if room is None else min(most, room - len(content))
    session._limit = most  # for plans of several shapes beside each other
    planner = Planner(model, signature, threads=settings.threads)
    planner.plan(bound.largest)
    quick = planner.plan_info["modelled_ms"] < _QUICK_MS
    batches = settings.batches if open_batch and _rows_are_independent(session, bounds) else ()
    dtypes = {spec.name: spec.dtype for spec in outputs}
    return Loaded(
        model, signature, inputs, outputs, dtypes, {spec.name: numpy_dtype(spec.dtype) for spec in inputs}, open_batch, accepts,
        batches, most + len(content), bound.unbounded,
        quick, Lane(session, batches, settings.max_wait_ms / 1e3), time.perf_counter() - started, time.monotonic(),
    )  # fmt: skip


def _signature(model: Model, wanted: str) -> str:
    """The signature to serve. Raises UsageError if it changes variables, because requests share them."""
    if wanted:
        model.inputs(wanted)  # raises if there is none
        if model.assigns(wanted):
            raise UsageError(
                f"signature {wanted!r} changes variables, which all requests share", code=101, tensor=wanted,
                hint="serve a signature that only reads them",
            )  # fmt: skip
        return wanted
    model.refuse_checkpoint()
    for name in sorted(model.signatures, key=lambda name: name != "infer"):
        if not model.assigns(name):
            return name
    raise UsageError("the model has no signature that leaves its variables as they are", code=102)


def _open_batch(model: Model, signature: str, inputs: list[TensorSpec], outputs: list[TensorSpec]) -> bool:
    """Whether the first dimension of all inputs and outputs is one open batch."""
    if not inputs or not outputs:
        return False
    names = model.dim_names(signature)
    first = {(names.get(spec.name) or ("",))[0] for spec in inputs}
    return len(first) == 1 and all(bool(spec.shape) and spec.shape[0] is None for spec in [*inputs, *outputs])  # type: ignore[index]


def _bounds(
    inputs: list[TensorSpec], accepts: Mapping[str, Any], settings: Settings, open_batch: bool
) -> dict[str, list[Any]]:
    """A range for each open dimension: what the settings give, or else sizes that are usual."""
    made: dict[str, list[Any]] = {}
    for spec in inputs:
        if spec.name in settings.bounds:
            made[spec.name] = list(parse(spec.name, settings.bounds[spec.name]))
            continue
        if spec.shape is None:
            raise UsageError(
                f"the rank of input {spec.name!r} is open", code=304, tensor=spec.name,
                hint=f"give its bounds: --bounds {spec.name}=1..32,1..128",
            )  # fmt: skip
        kind = accepts[spec.name][0] if spec.name in accepts else ""
        most = _PHOTO if kind == "image" else _SOUND if kind == "audio" else _SIDE if len(spec.shape) == 4 else _LENGTH
        made[spec.name] = [
            None if size is not None else (1, settings.max_batch if axis == 0 and open_batch else most)
            for axis, size in enumerate(spec.shape)
        ]
    return made


def _session(
    model: Model,
    signature: str,
    settings: Settings,
    bounds: dict[str, list[Any]],
    open_batch: bool,
    room: int | None,
    file_bytes: int,
) -> tuple[Session, dict[str, list[Any]]]:
    """A session for all shapes within the bounds, and the bounds. It takes no memory if its bound is above the room. If the
    model refuses the largest batch, it gets a batch of 1."""
    left = 0 if room is None else room - file_bytes
    if room is not None and left <= 0:
        raise _too_large(file_bytes, room)

    def within(bounds: dict[str, list[Any]]) -> Session:
        return Session(
            model, signature, bounds=bounds, max_bytes=left, threads=settings.threads, strict_dims=True
        )  # fmt: skip

    try:
        return within(bounds), bounds
    except GraphError as error:
        if error.code == _TOO_LARGE and room is not None:
            need = Planner(model, signature, threads=settings.threads).plan_bounds(bounds).total
            raise _too_large(need + file_bytes, room) from None
        if not open_batch or any(spec.name in settings.bounds for spec in model.inputs(signature)):
            raise
        single = {name: [1, *dims[1:]] for name, dims in bounds.items()}
        try:
            return within(single), single
        except Error:
            raise error from None


def _too_large(need: int, room: int) -> GraphError:
    return GraphError(
        "the model does not fit", code=_TOO_LARGE, expected=f"at most {max(room, 0)} bytes", got=f"{need} bytes",
        hint="raise --max-bytes, or lower --max-batch or --bounds",
    )  # fmt: skip


def _rows_are_independent(session: Session, bounds: Mapping[str, list[Any]]) -> bool:
    """Whether each row of the outputs is what the same row of the inputs gives alone: two different rows are run together and
    one by one. A model that, say, normalizes over the batch fails this."""
    generator = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for spec in session.inputs:
        dims = bounds[spec.name]
        high = dims[0][1] if isinstance(dims[0], tuple) else dims[0]
        if high < 2:
            return False
        sizes = [2] + [
            min(dim[1], 16) if isinstance(dim, tuple) else dim if dim is not None else size
            for dim, size in zip(dims[1:], (spec.shape or ())[1:], strict=True)
        ]
        dtype = numpy_dtype(spec.dtype)
        if dtype.kind == "f" or spec.dtype == "bf16":
            feeds[spec.name] = generator.standard_normal(sizes).astype(dtype)
        elif spec.scale is not None:
            limits = np.iinfo(dtype)
            feeds[spec.name] = generator.integers(limits.min, limits.max, sizes, dtype, endpoint=True)
        else:  # indices and masks: both rows differ, and 0 and 1 are almost always valid
            feeds[spec.name] = generator.integers(0, 2, sizes).astype(dtype)
            if feeds[spec.name].ndim > 1:
                feeds[spec.name][:, :1] = 1
    try:
        together = session.run(feeds)
        alone = [session.run({name: value[i : i + 1] for name, value in feeds.items()}) for i in range(2)]
    except Error:
        return False
    return all(
        value.shape[:1] == (2,) and np.allclose(value, np.concatenate([one[name] for one in alone]), 1e-3, 1e-4, True)
        for name, value in together.items()
    )
