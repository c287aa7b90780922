"""Running a graph from Python: Session over the C library, with the same names and meanings.
A Session plans again when shapes or fetches change and keeps the last few plans; the run itself copies in, runs, copies out."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet import _dim_names, bounding
from linnet._generated.ffi import ffi
from linnet._library import exception, library
from linnet.bounds import REGIONS, Dim, MemoryBound, Range, Shapes, Space, inside, resolve, text_of
from linnet.errors import UsageError
from linnet.graph import DTYPE_NAMES, Graph, numpy_dtype
from linnet.model import (
    Array,
    Device,
    Model,
    Store,
    TensorSpec,
    converted,
    fits,
    isa_names,
    string_of,
    wrong_shape,
    wrong_type,
)
from linnet.running import Runner

_PLANS_KEPT = 8


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a plan. ms is the mean over the traced runs (Session(trace=True)), 0 without trace; bytes are read and
    written; flops count multiply and add as two; fused names the nodes that became part of this step."""

    name: str
    op: str
    kernel: str
    layout: str
    device: str
    fused: str
    bytes: int
    flops: int
    runs: int
    ms: float


class _Planned:
    """A plan and its session for one set of shapes and fetches, with NumPy views of the input and output buffers."""

    __slots__ = ("count", "error", "feeds", "key", "outputs", "plan", "segmented", "session", "snapshot")

    def __init__(self, plan: Any, session: Any, key: Any) -> None:
        lib = library()
        self.plan, self.session, self.key = plan, session, key
        self.error = ffi.new("linnet_error *")
        sizes = bounding.info_of(plan)
        self.segmented, self.snapshot = sizes.segments > 1, int(sizes.snapshot)
        info = ffi.new("linnet_tensor_info *")
        self.feeds: list[tuple[str, Array, np.dtype[Any], tuple[int, ...]]] = []
        for i in range(lib.linnet_plan_input_count(plan)):
            lib.linnet_plan_input(plan, i, info)
            view = _view(lib.linnet_session_input(session, i), info)
            self.feeds.append((string_of(info.name), view, view.dtype, view.shape))
        self.count = len(self.feeds)
        # name, view; the view is None where the shape depends on data
        self.outputs: list[tuple[str, Array | None]] = []
        for i in range(lib.linnet_plan_output_count(plan)):
            lib.linnet_plan_output(plan, i, info)
            known = info.rank >= 0 and all(d >= 0 for d in list(info.shape)[: info.rank])
            out = _view(lib.linnet_session_output(session, i), info) if known else None
            self.outputs.append((string_of(info.name), out))

    def run(self, runner: Runner, timeout: float | None) -> dict[str, Array]:
        if timeout is None:
            code = runner.call(self.session, runner.config(), self.error)
        else:
            code = runner.within(self.session, self.error, timeout)
        if code:
            raise runner.failure(self.error)
        return {name: self.output(i) if view is None else view.copy() for i, (name, view) in enumerate(self.outputs)}

    def output(self, i: int) -> Array:
        """An output whose shape depends on data."""
        lib, info = library(), ffi.new("linnet_tensor_info *")
        if lib.linnet_session_output_info(self.session, i, info):
            raise UsageError("the shape of an output is not known after the run", code=104, tensor=self.outputs[i][0])
        return _view(lib.linnet_session_output(self.session, i), info).copy()


def _view(pointer: Any, info: Any) -> Array:
    """The buffer as an array; an empty one owns itself."""
    dtype = numpy_dtype(DTYPE_NAMES[info.dtype])
    shape = tuple(list(info.shape)[: info.rank])
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(shape, dtype)
    return np.frombuffer(ffi.buffer(pointer, count * dtype.itemsize), dtype).reshape(shape)


class Session:
    """Runs one signature of a model.

    model: a path, the bytes of a .lnt file, a Graph, or a Model. threads: None for the cores of the largest cluster.
    isa_max: one of isa_names(). fetches: names of outputs or of any tensor, None for all outputs of the signature.
    input_shapes: plans at once for inputs whose shape is not fixed, instead of at the first run. store: variables shared
    with other sessions of the same Model; a private one otherwise. trace: time every step (see `steps`). reference: only
    scalar kernels, no fusion. max_bytes: of everything that the session holds (memory_kept): plans of shapes met before are
    given up for a new one, and a plan that needs more alone is refused (GraphError); a training step first recomputes
    values instead of keeping them (the same bits, more time), as far as that helps. devices: extension devices
    (load_device), preferred to the CPU. arena: writable memory, 64-byte aligned, for activations and scratch; allocated
    otherwise.
    count_special: after each run, count what `special` tells (slow). Every run holds the session's own lock, so threads
    may share a session, one at a time.
    bounds: per input, for each dimension a number, (least, most), or None for what the model declares; or the same as
    text, "1..8,3,?,?". Then `bound` is the most that any shape inside takes, one arena serves all plans, no shape inside is
    refused for its memory, and a run outside is refused (UsageError). max_bytes with bounds: GraphError at
    once where it is too little; what is more than `bound.total` keeps plans of shapes met before.
    verify: whether the weights are checked against their digests before anything runs (see Model).
    strict_dims: True refuses shapes that give open dimensions of one name several sizes (UsageError); False warns once, and
    runs with the sizes given. None: True where the signature updates variables, as gradients count on the names.
    snapshot: runs read the variables as the last update left them, from a copy, and do not wait for one that is under way
    on the same store; nor does it wait for them. For signatures that change no variable.
    Raises FileError, GraphError, UsageError, ResourceError.
    """

    def __init__(
        self,
        model: str | Path | bytes | Graph | Model,
        signature: str = "infer",
        *,
        threads: int | None = None,
        isa_max: str | None = None,
        fetches: Sequence[str] | None = None,
        input_shapes: Mapping[str, Sequence[int]] | None = None,
        store: Store | None = None,
        trace: bool = False,
        reference: bool = False,
        max_bytes: int = 0,
        devices: Sequence[Device] = (),
        arena: Array | bytearray | None = None,
        count_special: bool = False,
        bounds: Mapping[str, Sequence[Dim] | str] | None = None,
        verify: bool | None = None,
        strict_dims: bool | None = None,
        snapshot: bool = False,
    ) -> None:
        self.model = model if isinstance(model, Model) else Model(model, verify=verify)
        if verify and isinstance(model, Model):
            model.verify()
        if threads is not None and (not isinstance(threads, int) or threads < 0):
            raise wrong_type("threads", "a number of threads, or None for the machine's default", threads)
        if isa_max is not None and not isinstance(isa_max, str):
            raise wrong_type("isa_max", "one of " + ", ".join(isa_names()), isa_max)
        if store is not None and store.model is not self.model:
            raise UsageError(
                "the store belongs to another model", code=101, hint="make both sessions of one linnet.Model object"
            )
        self.signature = signature
        self.inputs = self.model.inputs(signature)
        self.outputs = self.model.outputs(signature)
        self._specs = {spec.name: spec for spec in self.inputs}
        self._fetches = None if fetches is None else tuple(fetches)
        self._threads, self._isa_max, self._trace = threads or 0, isa_max, trace
        self._reference, self._max_bytes, self._devices = reference, max_bytes, tuple(devices)
        self.variables = store if store is not None else Store(self.model)
        self._arena = None if arena is None else ffi.from_buffer(arena, require_writable=True)
        self._count_special, self._strict_dims, self._warned = count_special, strict_dims, False
        self._snapshot = snapshot
        self._lock = threading.Lock()
        self._runner = Runner()
        self._plans: OrderedDict[Any, _Planned] = OrderedDict()
        self._last: _Planned | None = None
        self._last_fetches: Sequence[str] | None = None
        self._ranges: dict[str, Range] = {}
        self._space: Space | None = None
        self._frame: Shapes | None = None  # shapes of the plan in whose places any plan inside the bounds fits
        self._limit = max_bytes  # of everything that is held: it is this that drops plans
        self.bound: MemoryBound | None = None
        self._begin(bounds, input_shapes)

    def _begin(
        self, bounds: Mapping[str, Sequence[Dim] | str] | None, input_shapes: Mapping[str, Sequence[int]] | None
    ) -> None:
        """What is planned and taken at once."""
        if bounds is not None:
            self._take_bounds(resolve(bounds, self.inputs))
        shapes = {name: tuple(int(d) for d in shape) for name, shape in (input_shapes or {}).items()}
        for name, shape in shapes.items():
            self._check_shape(self._spec(name), shape)
        fixed = all((s.shape is not None and None not in s.shape) or s.name in shapes for s in self.inputs)
        if fixed:
            self._planned(shapes, self._fetches)

    def _take_bounds(self, ranges: dict[str, Range]) -> None:
        """Finds out what shapes in the range take at most, and gets the arena."""
        self.bound, self._frame = bounding.find(self, ranges)
        self._ranges, self._space = ranges, Space(ranges, self.model.dim_names(self.signature))
        if not self.bound.unbounded:
            self._limit = self._max_bytes or self.bound.total
        if not self.bound.unbounded or self._arena is None:
            self._arena = bounding.arena_for(self.bound, self._arena)

    @property
    def _arena_bytes(self) -> int:
        return 0 if self._arena is None else len(self._arena)

    def _fits_arena(self, plan: Any) -> bool:
        """Whether there is an arena for all plans, and this one's is not larger."""
        info = bounding.info_of(plan)
        return self._arena is not None and int(info.activations + info.scratch) <= len(self._arena)

    def _drop_oldest(self) -> None:
        """Gives back the plan and the session that were used longest ago."""
        _, dropped = self._plans.popitem(last=False)
        if self._last is dropped:
            self._last = None

    def _check_shape(self, spec: TensorSpec, shape: tuple[int, ...]) -> None:
        if not fits(shape, spec.shape):
            raise wrong_shape(spec, shape)
        dims = self._ranges.get(spec.name)
        if dims is not None and not inside(shape, dims):
            raise UsageError(
                f"input {spec.name!r} is outside the session's bounds", code=104, tensor=spec.name,
                expected=text_of([low if low == high else (low, high) for low, high in dims]),
                got=text_of(shape), hint="make a Session with wider bounds",
            )  # fmt: skip

    def _spec(self, name: str) -> TensorSpec:
        if name not in self._specs:
            raise UsageError(
                f"signature {self.signature!r} has no input {name!r}", code=102, tensor=name,
                expected=" or ".join(self._specs) or "no input",
            )  # fmt: skip
        return self._specs[name]

    def run(
        self,
        feeds: Mapping[str, npt.ArrayLike],
        fetches: Sequence[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, Array]:
        """Runs once; returns fresh arrays by name.

        feeds: every input that the fetches need, of the declared dtype and shape (Python lists and numbers are converted,
        arrays of another dtype are refused). fetches: as in the constructor; None: those of the session. timeout: seconds
        that the run may take, waiting for other runs of its store included. Ctrl-C ends a run of the main thread, `cancel`
        any: before its next step, without a change of any variable.
        Raises UsageError for wrong feeds, GraphError for indices out of range and for shapes that do not fit, Cancelled,
        DeadlineExceeded (which is a TimeoutError too), KeyboardInterrupt.
        """
        with self._lock:
            last = self._last
            usual = fetches is None and self._last_fetches is None and isinstance(feeds, dict)
            if usual and last is not None and len(feeds) == last.count:
                for name, view, dtype, shape in last.feeds:
                    value = feeds.get(name)
                    if value.__class__ is np.ndarray and value.dtype == dtype and value.shape == shape:
                        np.copyto(view, value)
                    else:
                        break
                else:
                    return last.run(self._runner, timeout)
            del last  # it may have to make room
            return self._run_slowly(feeds, fetches, timeout)

    def _run_slowly(
        self, feeds: Mapping[str, npt.ArrayLike], fetches: Sequence[str] | None, timeout: float | None
    ) -> dict[str, Array]:
        """The run that checks and converts feeds, and plans when it must."""
        return self._filled(feeds, fetches).run(self._runner, timeout)

    def cancel(self) -> None:
        """Ends the run that is on, if there is one: it raises Cancelled. From any thread, without waiting."""
        self._runner.cancel()

    def _filled(
        self,
        feeds: Mapping[str, npt.ArrayLike],
        fetches: Sequence[str] | None,
        elsewhere: Mapping[str, tuple[int, ...]] | None = None,
    ) -> _Planned:
        """The plan for these feeds, with them in its inputs, not run. elsewhere: shapes of inputs that others will fill."""
        values: dict[str, Array] = {}
        if not isinstance(feeds, Mapping):
            names = ", ".join(spec.name for spec in self.inputs)
            raise UsageError(
                "feeds are no mapping of names to arrays", code=101, expected=f"a dictionary with {names or 'nothing'}",
                got=type(feeds).__name__, hint="run({'name': array})",
            )  # fmt: skip
        if isinstance(fetches, str):
            raise UsageError(
                "fetches are one string", code=101, expected="a list of names", got=fetches, hint=f"[{fetches!r}]"
            )
        for name, value in feeds.items():
            spec = self._spec(name)
            array = converted(value, spec, "input")
            self._check_shape(spec, array.shape)
            values[name] = array
        shapes = {name: array.shape for name, array in values.items()} | dict(elsewhere or {})
        planned = self._planned(shapes, self._fetches if fetches is None else tuple(fetches))
        self._last_fetches = fetches
        for name, view, _, _ in planned.feeds:
            if name in values:
                np.copyto(view, values[name])
            elif name not in shapes:
                raise self._missing(name, values)
        return planned

    def _missing(self, name: str, given: Mapping[str, Any]) -> UsageError:
        return UsageError(
            f"input {name!r} is missing", code=105, tensor=name, got=" and ".join(given) or "no inputs",
            hint="feed it, or fetch only outputs that do not need it",
        )  # fmt: skip

    def _planned(self, shapes: Mapping[str, tuple[int, ...]], fetches: tuple[str, ...] | None) -> _Planned:
        """The plan for these input shapes and fetches, from the cache or new."""
        key = (tuple(sorted(shapes.items())), fetches)
        planned = self._plans.get(key)
        if planned is None:
            if self._space is not None:
                self._space.check(shapes)
            while len(self._plans) >= _PLANS_KEPT:
                self._drop_oldest()
            planned = self._plans[key] = self._plan(shapes, fetches, key)
        else:
            self._plans.move_to_end(key)
        self._last = planned
        return planned

    def _check_dims(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Says so, or refuses, where open dimensions of one name have several sizes."""
        found = _dim_names.mismatches(self.model.dim_names(self.signature), shapes)
        if not found:
            return
        if self._strict_dims is None:
            self._strict_dims = self.model.assigns(self.signature)
        if self._strict_dims:
            raise found[0].error("give them one size, or make the Session with strict_dims=False")
        if not self._warned:
            self._warned = True
            warnings.warn(_dim_names.text_of(found), stacklevel=2)

    def _make_plan(
        self, shapes: Mapping[str, tuple[int, ...]], fetches: tuple[str, ...] | None, *, frame: Shapes | None = None
    ) -> Any:
        """frame: shapes at least as large, whose plan this one takes no more than."""
        lib, error = library(), ffi.new("linnet_error *")
        config = ffi.new("linnet_plan_config *")
        lib.linnet_plan_config_init(config)
        keep: list[Any] = [ffi.new("char[]", self.signature.encode())]
        config.signature = keep[0]
        dynamic = [n for n in shapes if (d := self._specs[n].shape) is None or None in d]
        if dynamic:
            self._check_dims(shapes)
        config.shapes, config.shape_count = self._rows(shapes, dynamic, keep), len(dynamic)
        if frame is not None:
            config.bounds, config.bound_count = self._rows(frame, dynamic, keep), len(dynamic)
        if fetches is not None:
            texts = [ffi.new("char[]", name.encode()) for name in fetches]
            names = ffi.new("char *[]", texts or [ffi.NULL])
            keep += [texts, names]
            config.fetches, config.fetch_count = ffi.cast("const char *const *", names), len(fetches)
        config.threads = self._threads
        if self._isa_max is not None:
            keep.append(ffi.new("char[]", self._isa_max.encode()))
            config.isa_max = keep[-1]
        if self._devices:
            pointers = ffi.new("const linnet_device *[]", [device.pointer for device in self._devices])
            keep.append(pointers)
            config.devices, config.device_count = pointers, len(self._devices)
        config.snapshot = int(self._snapshot)
        config.strict_dims = bool(self._strict_dims)
        config.reference, config.max_bytes = 2 if frame is not None else int(self._reference), self._max_bytes
        out = ffi.new("linnet_plan **")
        if lib.linnet_plan_create(self.model.pointer, config, out, error):
            failure = exception(error)
            if failure.code == 304 and failure.tensor in self._specs and failure.tensor not in shapes:
                raise self._missing(failure.tensor, shapes)
            raise failure
        return ffi.gc(out[0], lib.linnet_plan_free)

    def _rows(self, shapes: Mapping[str, tuple[int, ...]], names: Sequence[str], keep: list[Any]) -> Any:
        """The shapes of these inputs as linnet_shape; keep: what they point to."""
        rows = ffi.new("linnet_shape[]", max(len(names), 1))
        keep.append(rows)
        for row, name in zip(rows, names, strict=False):
            if len(shapes[name]) > 8:
                raise wrong_shape(self._specs[name], shapes[name])
            keep.append(ffi.new("char[]", name.encode()))
            row.input, row.rank, row.dims = keep[-1], len(shapes[name]), list(shapes[name])
        return rows

    def _plan(self, shapes: Mapping[str, tuple[int, ...]], fetches: tuple[str, ...] | None, key: Any) -> _Planned:
        lib, error = library(), ffi.new("linnet_error *")
        plan, most = bounding.fitting(self, shapes, fetches)
        session_config = ffi.new("linnet_session_config *")
        lib.linnet_session_config_init(session_config)
        session_config.max_bytes = most
        session_config.trace, session_config.count_special = int(self._trace), int(self._count_special)
        if self._arena is not None and (not self._ranges or self._fits_arena(plan)):
            session_config.arena, session_config.arena_size = self._arena, len(self._arena)
        if self._snapshot:  # one for all shapes
            session_config.share_snapshot = next((p.session for p in self._plans.values() if p.snapshot), ffi.NULL)
        session_out = ffi.new("linnet_session **")
        if lib.linnet_session_create(plan, self.variables.pointer, session_config, session_out, error):
            raise exception(error)
        return _Planned(plan, ffi.gc(session_out[0], lib.linnet_session_free), key)

    def _current(self) -> _Planned:
        if self._last is None:
            raise UsageError(
                "there is no plan yet: the shapes of some inputs are not fixed", code=304,
                hint="run once, or give input_shapes to the Session",
            )  # fmt: skip
        return self._last

    def _info(self) -> Any:
        return bounding.info_of(self._current_plan())

    def _current_plan(self) -> Any:
        return self._current().plan

    @property
    def memory(self) -> dict[str, int]:
        """Exact bytes by region of the plan used last; the regions are those of linnet_plan_info."""
        info = self._info()
        return {name: int(getattr(info, name)) for name in REGIONS}

    @property
    def memory_kept(self) -> int:
        """Bytes of everything that is kept now: the model, the store, all plans for shapes met lately, and the packed
        weights that they share (with other sessions of the Model too)."""
        lib = library()
        total = int(lib.linnet_model_bytes(self.model.pointer) + lib.linnet_store_bytes(self.variables.pointer))
        total += sum(int(lib.linnet_session_bytes(p.session)) - p.snapshot for p in self._plans.values())
        return total + self._arena_bytes + max((p.snapshot for p in self._plans.values()), default=0)

    @property
    def plan_info(self) -> dict[str, Any]:
        """steps, segments, recomputed (steps), threads, isa, plan_ms of the plan used last."""
        info = self._info()
        return {
            "steps": int(info.steps), "segments": int(info.segments), "recomputed": int(info.recomputed),
            "threads": int(info.threads), "isa": string_of(info.isa), "plan_ms": info.plan_ns / 1e6,
        }  # fmt: skip

    @property
    def steps(self) -> list[Step]:
        """The steps of the plan used last; with trace=True, with their mean times."""
        plan, lib = self._current_plan(), library()
        info, steps = ffi.new("linnet_step_info *"), []
        for i in range(self._info().steps):
            info.struct_size = ffi.sizeof("linnet_step_info")
            if self._trace:
                lib.linnet_session_get_step(self._current().session, i, info)
            else:
                lib.linnet_plan_get_step(plan, i, info)
            runs = int(info.runs)
            steps.append(
                Step(
                    string_of(info.name),
                    string_of(info.op),
                    string_of(info.kernel),
                    string_of(info.layout),
                    string_of(info.device),
                    string_of(info.fused),
                    int(info.bytes),
                    int(info.flops),
                    runs,
                    info.total_ns / 1e6 / runs if runs else 0.0,
                )
            )
        return steps

    @property
    def special(self) -> list[dict[str, int]]:
        """Per step, of its first output in the last run: how many values were at the limits of their integer type
        (saturated), infinite, or NaN (not_a_number). Needs count_special=True."""
        if not self._count_special:
            raise UsageError("nothing was counted", code=101, hint="make the Session with count_special=True")
        planned, lib, found = self._current(), library(), []
        counts = ffi.new("uint64_t[3]")
        for i in range(self._info().steps):
            lib.linnet_session_get_special(planned.session, i, counts, counts + 1, counts + 2)
            found.append(dict(zip(("saturated", "infinite", "not_a_number"), map(int, counts), strict=True)))
        return found
