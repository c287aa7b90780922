"""Makes the C plans of a Session: fills linnet_plan_config from the Session's arguments, the shapes of the feeds, and
the fetches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from linnet.clib.errors import UsageError, nearest
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, library, new_struct
from linnet.clib.precision import precision_number
from linnet.session.model import Model, TensorSpec, wrong_shape
from linnet.session.options import devices_of

if TYPE_CHECKING:
    from linnet.session.bounds import Shapes
    from linnet.session.options import SessionOptions


class Made(Protocol):
    """The part of linnet.Session that is used here."""

    model: Model
    signature: str
    _specs: dict[str, TensorSpec]
    _options: SessionOptions
    _tuning: bytes | None
    _snapshot: bool
    _strict_dims: bool | None
    _reference: bool
    _keeps_changes: bool

    def _spec(self, name: str) -> TensorSpec: ...
    def _check_dims(self, shapes: Mapping[str, tuple[int, ...]]) -> None: ...
    def _missing(self, name: str, given: Mapping[str, Any]) -> UsageError: ...


def plan(
    session: Made,
    shapes: Mapping[str, tuple[int, ...]],
    fetches: tuple[str, ...] | None,
    frame: Shapes | None,
    separate: bool,
    beside: int,
) -> Any:
    """A new linnet_plan. Names in `shapes` that are not inputs are tensors that the caller feeds. frame: input shapes
    at least as large as these. The plan then takes no more memory than a plan for the frame. separate: every output has
    memory of its own, which can be bound. beside: the plan must leave this many bytes of max_bytes free. Raises
    GraphError, UsageError."""
    lib, error = library(), ffi.new("linnet_error *")
    config = new_struct("linnet_plan_config")
    keep: list[Any] = [ffi.new("char[]", session.signature.encode())]
    config.signature = keep[0]
    fed = [name for name in shapes if name not in session._specs]
    dynamic = [n for n in shapes if n not in fed and ((d := session._specs[n].shape) is None or None in d)]
    if dynamic:
        session._check_dims(shapes)
    config.shapes, config.shape_count = _rows(session, shapes, dynamic, keep), len(dynamic)
    config.feeds, config.feed_count = _rows(session, shapes, fed, keep), len(fed)
    config.separate_outputs = int(separate)
    if frame is not None:
        config.bounds, config.bound_count = _rows(session, frame, dynamic, keep), len(dynamic)
    if fetches is not None:
        texts = [ffi.new("char[]", name.encode()) for name in fetches]
        names = ffi.new("char *[]", texts or [ffi.NULL])
        keep += [texts, names]
        config.fetches, config.fetch_count = ffi.cast("const char *const *", names), len(fetches)
    options = session._options
    devices = [device.pointer for device in devices_of(None, options.devices)]
    config.threads, config.precision = options.threads or 0, precision_number(options.precision)
    if options.isa_max is not None:
        keep.append(ffi.new("char[]", options.isa_max.encode()))
        config.isa_max = keep[-1]
    if devices:
        pointers = ffi.new("const linnet_device *[]", devices)
        keep.append(pointers)
        config.devices, config.device_count = pointers, len(devices)
    if options.places:
        _check_placement(session.model, options.places)
        hints = tuple(options.places.items())
        config.placement, config.placement_count = _texts("linnet_placement", hints, keep), len(hints)
    if options.cluster is not None:
        from linnet.session.cluster import open_cluster

        tasks = open_cluster(options.cluster).tasks
        config.cluster, config.cluster_count = _texts("linnet_cluster_task", tasks, keep), len(tasks)
    if session._tuning is not None:
        keep.append(ffi.new("char[]", session._tuning))
        config.tuning = keep[-1]
    config.snapshot = int(session._snapshot)
    config.passes = int(session._keeps_changes)
    config.strict_dims = bool(session._strict_dims)
    config.reference = 2 if frame is not None else int(session._reference)
    config.max_bytes = max(options.max_bytes - beside, 1) if options.max_bytes else 0
    config.max_device_bytes = options.max_device_bytes
    out = ffi.new("linnet_plan **")
    if lib.linnet_plan_create(session.model.pointer, config, out, error):
        failure = exception(error)
        if failure.code == 304 and failure.tensor in session._specs and failure.tensor not in shapes:
            raise session._missing(failure.tensor, shapes)
        if failure.code == 102 and failure.tensor in (*(fetches or ()), *fed):
            raise unknown(session.model, session.signature, failure.tensor, failure.tensor in fed)
        raise failure
    return ffi.gc(out[0], lib.linnet_plan_free)


def _texts(kind: str, pairs: Sequence[tuple[str, str]], keep: list[Any]) -> Any:
    """An array of structs with two texts each. The objects that it refers to are appended to `keep`."""
    texts = [tuple(ffi.new("char[]", text.encode()) for text in pair) for pair in pairs]
    keep += [texts, ffi.new(f"{kind}[]", texts)]
    return keep[-1]


def _check_placement(model: Model, placement: Mapping[str, str]) -> None:
    """Raises UsageError for a name in a placement that matches no step."""
    from fnmatch import fnmatchcase

    from linnet.file.names import steps_of

    steps = steps_of(model.content)
    for name in placement:
        pattern = name.replace("[", "[[]").replace("?", "[?]")
        if "(" in name:  # planning adds such nodes, quantize(x) for one, which a placement of another plan may name
            continue
        if steps and not any(fnmatchcase(step, pattern) for step in steps):
            raise UsageError(
                "a name in placement matches no step of the model", code=102, tensor=name,
                expected=nearest(name, steps), hint="`linnet inspect --all` lists steps",
            )  # fmt: skip


def unknown(model: Model, signature: str, name: str, fed: bool = True) -> UsageError:
    """The error for a name to feed or fetch if no input, output, step or tensor has this name."""
    from linnet.file.names import near

    return UsageError(
        f"signature {signature!r} has no input, output, step or tensor named {name!r}", code=102, tensor=name,
        expected=near(model.content, signature, name, fed), hint="`linnet inspect --all` lists steps and tensors",
    )  # fmt: skip


def _rows(session: Made, shapes: Mapping[str, tuple[int, ...]], names: Sequence[str], keep: list[Any]) -> Any:
    """The shapes of these inputs and tensors as linnet_shape structs. Objects that their pointers refer to are appended
    to `keep`."""
    rows = ffi.new("linnet_shape[]", max(len(names), 1))
    keep.append(rows)
    for row, name in zip(rows, names, strict=False):
        if len(shapes[name]) > 8:
            raise wrong_shape(session._spec(name), shapes[name])
        keep.append(ffi.new("char[]", name.encode()))
        row.input, row.rank, row.dims = keep[-1], len(shapes[name]), list(shapes[name])
    return rows
