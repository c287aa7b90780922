"""Runs a graph from Python: Session, with the names and meanings of the C library.
A Session plans again when shapes or fetches change, and keeps the last few plans. A run copies inputs and outputs."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from linnet.clib.arguments import fields_of, unchecked, with_fields
from linnet.clib.errors import DeviceError, UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, library, new_struct
from linnet.ir.dtypes import packed
from linnet.session import bounding, c_plan, host_loss
from linnet.session.lifetime import Closes
from linnet.session.model import Array, Model, Store, TensorSpec, converted, fits, wrong_shape, wrong_type
from linnet.session.options import SessionOptions
from linnet.session.planned import (
    REGIONS,
    DeviceMemory,
    Planned,
    device_memory_of,
    facts_of,
    info_of,
    special_of,
    steps_of,
)
from linnet.session.running import Runner

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Unpack

    from linnet.ir.graph import Graph
    from linnet.ir.user_op import UserOp
    from linnet.session import binding
    from linnet.session.bounds import Dim, MemoryBound, Range, Shapes, Space
    from linnet.session.device import Device  # noqa: F401  # a field of SessionOptions names it
    from linnet.session.options import SessionFields
    from linnet.session.step import Step

_PLANS_KEPT = 8


class Session(Closes):
    """Runs one signature of a model.

    model: a path, the bytes of a .lnt file, a Graph, or a Model.
    fetches: names of outputs, of any tensors, or of steps (their first result); None: all outputs of the signature.
    input_shapes: shapes of inputs that are not fixed; planning then happens at once and not in the first run.
    store: variables shared with other sessions of the same Model; default: a private one.
    trace: time every step (see `steps`).
    reference: use only scalar kernels, without fusion.
    arena: writable memory, aligned to 64 bytes, for activations and scratch; default: allocated by the session.
    count_special: after each run, count what `special` returns (slow). Every run holds the session's lock, so threads
        may share a session; their runs then take turns.
    bounds: for each input, a number, (low, high), or None (what the model declares) per dimension; or the same as text,
        "1..8,3,?,?". `bound` is then the most memory that any shape within them takes, and one arena serves all plans. No
        shape within them is rejected for its memory; a run outside is rejected (UsageError). If max_bytes is too small for
        the bounds, GraphError is raised at once; memory beyond `bound.total` is used to keep plans of earlier shapes.
    verify: whether to check the weights against their digests before anything runs (see Model).
    strict_dims: True rejects shapes that give open dimensions with the same name different sizes (UsageError). False
        warns once and runs with these sizes. None: True if the signature updates variables, because gradients rely on
        names.
    snapshot: runs read a copy of the variables as the last update left them. They do not wait for an update in progress
        on the same store, and updates do not wait for them. Signatures that change variables cannot use it.
    user_ops: the user ops that the file names (see Model).
    options: the fields of SessionOptions, which says what they mean: threads, isa_max, precision, device, devices,
        placement, cluster, max_bytes, max_device_bytes, tuning, bind_threads, on_loss.
    A session can be used in a `with` statement, which closes it. Raises FileError, GraphError, UsageError, ResourceError.
    """

    _keeps_changes = False  # whether plans keep what each pass changed: session/planner.py

    @with_fields(SessionOptions)
    def __init__(
        self,
        model: str | Path | bytes | Graph | Model,
        signature: str = "infer",
        *,
        fetches: Sequence[str] | None = None,
        input_shapes: Mapping[str, Sequence[int]] | None = None,
        store: Store | None = None,
        trace: bool = False,
        reference: bool = False,
        arena: Array | bytearray | None = None,
        count_special: bool = False,
        bounds: Mapping[str, Sequence[Dim] | str] | None = None,
        verify: bool | None = None,
        strict_dims: bool | None = None,
        snapshot: bool = False,
        user_ops: Iterable[UserOp] = (),
        **options: Unpack[SessionFields],
    ) -> None:
        self._options = fields_of(SessionOptions, options, "Session").opened()
        self.model = model if isinstance(model, Model) else Model(model, verify=verify, user_ops=user_ops)
        if verify and isinstance(model, Model):
            model.verify()
        if store is not None and store.model is not self.model:
            hint = "create both from the same linnet.Model object"
            raise UsageError("the store belongs to another model", code=101, hint=hint)
        self.signature = signature
        self.inputs = self.model.inputs(signature)
        self.outputs = self.model.outputs(signature)
        self._specs = {spec.name: spec for spec in self.inputs}
        self._fed: dict[str, TensorSpec] = {}  # other tensors that were fed
        self._bindings: weakref.WeakSet[binding.Binding] = weakref.WeakSet()
        self._fetches = None if fetches is None else tuple(fetches)
        self._trace, self._reference = trace, reference
        self.variables = store if store is not None else Store(self.model)
        self._arena = None if arena is None else ffi.from_buffer(arena, require_writable=True)
        self._count_special, self._strict_dims, self._warned = count_special, strict_dims, False
        tuning = self._options.tuning
        if tuning is not None and not isinstance(tuning, bytes):
            from linnet.file import tuning as tuning_file

            tuning = tuning_file.read(tuning)
        self._tuning, self._snapshot = tuning, snapshot
        self._lock, self._runner = threading.Lock(), Runner()
        self._plans: OrderedDict[Any, Planned] = OrderedDict()
        self._last: Planned | None = None
        self._last_fetches: Sequence[str] | None = None
        self._ranges: dict[str, Range] = {}
        self._space: Space | None = None
        self._frame: Shapes | None = None  # shapes of the plan whose layout has room for any plan within the bounds
        self._limit = self._options.max_bytes  # for everything that is held; plans are dropped to stay below it
        self.bound: MemoryBound | None = None
        self._begin(bounds, input_shapes)
        host_loss.prepare(self)

    def _begin(
        self, bounds: Mapping[str, Sequence[Dim] | str] | None, input_shapes: Mapping[str, Sequence[int]] | None
    ) -> None:
        """Makes the plan and the memory that are needed at once."""
        if bounds is not None:
            from linnet.session.bounds import resolve

            self._take_bounds(resolve(bounds, self.inputs))
        shapes = {name: tuple(int(d) for d in shape) for name, shape in (input_shapes or {}).items()}
        for name, shape in shapes.items():
            if any(size < 0 for size in shape):
                raise UsageError(
                    "a size in input_shapes is negative", code=104, tensor=name, expected="0 or more",
                    got=str(list(shape)),
                )  # fmt: skip
        for name, shape in shapes.items():
            self._check_shape(self._spec(name), shape)
        fixed = all((s.shape is not None and None not in s.shape) or s.name in shapes for s in self.inputs)
        if fixed:
            self._planned(shapes, self._fetches)
        else:
            self.variables._check(self._options.max_bytes)

    def _take_bounds(self, ranges: dict[str, Range]) -> None:
        """Finds the most memory that any shape in the range takes, and gets the arena."""
        from linnet.session.bounds import Space

        self.bound, self._frame = bounding.find(self, ranges)
        self._ranges, self._space = ranges, Space(ranges, self.model.dim_names(self.signature))
        if not self.bound.unbounded:
            self._limit = self._options.max_bytes or self.bound.total
        if not self.bound.unbounded or self._arena is None:
            self._arena = bounding.arena_for(self.bound, self._arena)

    @property
    def _arena_bytes(self) -> int:
        return 0 if self._arena is None else len(self._arena)

    def _fits_arena(self, plan: Any) -> bool:
        """Whether there is one arena for all plans that is large enough for this one."""
        info = info_of(plan)
        return self._arena is not None and int(info.activations + info.scratch) <= len(self._arena)

    def _drop_oldest(self) -> None:
        """Frees the least recently used plan and its session."""
        _, dropped = self._plans.popitem(last=False)
        if self._last is dropped:
            self._last = None

    def _check_shape(self, spec: TensorSpec, shape: tuple[int, ...]) -> None:
        if not fits(shape, spec.shape):
            raise wrong_shape(spec, shape, "input" if spec.name in self._specs else "tensor")
        dims = self._ranges.get(spec.name)
        if dims is None:
            return
        from linnet.session.bounds import inside, text_of

        if not inside(shape, dims):
            raise UsageError(
                f"input {spec.name!r} is outside the session's bounds", code=104, tensor=spec.name,
                expected=text_of([low if low == high else (low, high) for low, high in dims]),
                got=text_of(shape), hint="create a Session with wider bounds",
            )  # fmt: skip

    def _spec(self, name: str) -> TensorSpec:
        """What the file declares for an input, or for any other tensor that may be fed."""
        spec = self._specs.get(name) or self._fed.get(name) or self.model.tensor(name, self.signature)
        if spec is None:
            raise c_plan.unknown(self.model, self.signature, name)
        if name not in self._specs:
            self._fed[name] = spec
        return spec

    @unchecked
    def run(
        self,
        feeds: Mapping[str, npt.ArrayLike],
        fetches: Sequence[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, Array]:
        """Runs once and returns new arrays by name.

        feeds: every input that the fetches need, in the declared dtype and shape. Python lists and numbers, and arrays of
            float64 and int64, are converted; arrays of another dtype are rejected. Any other tensor of the graph may be
            fed by its name. The run then starts there, and inputs that only this tensor needs are left out. Each set of
            feeds has its own plan. A fed tensor that no fetch needs is rejected, unless it is an input.
        fetches: as in the constructor; None: those of the session.
        timeout: maximum time in seconds, including the wait for other runs on the same store. Ctrl-C ends a run in the
            main thread, and `cancel` ends a run in any thread. The run then ends before its next step and changes no
            variable.
        Raises UsageError for wrong feeds, GraphError for indices out of range and for shapes that do not match,
        Cancelled, DeadlineExceeded (also a TimeoutError), KeyboardInterrupt.
        """
        with self._lock:
            last = self._last
            usual = fetches is None and self._last_fetches is None and isinstance(feeds, dict)
            try:
                if usual and last is not None and len(feeds) == last.count:
                    for name, view, dtype, shape in last.feeds:
                        value = feeds.get(name)
                        if value.__class__ is np.ndarray and value.dtype == dtype and value.shape == shape:
                            np.copyto(view, value)
                        else:
                            break
                    else:
                        return last.run(self._runner, timeout)
                last = None  # allows this plan to be dropped to make room
                return self._run_slowly(feeds, fetches, timeout)
            except DeviceError as error:
                last = None
                return host_loss.run_again(self, error, lambda: self._run_slowly(feeds, fetches, timeout))

    def _run_slowly(
        self, feeds: Mapping[str, npt.ArrayLike], fetches: Sequence[str] | None, timeout: float | None
    ) -> dict[str, Array]:
        """A run that checks and converts feeds, and plans if necessary."""
        return self._filled(feeds, fetches).run(self._runner, timeout)

    def bind(
        self, feeds: Mapping[str, Any], outputs: Mapping[str, Any] | Sequence[str] | None = None
    ) -> binding.Binding:
        """Prepares runs on the caller's memory. Each `run` of the result computes from the current values of the arrays
        in `feeds` into the arrays in `outputs`, and copies nothing.

        feeds: as for `run`, but each is a NumPy array, an object of another library with `__dlpack__` (torch.Tensor) in
            memory of the CPU, or a DeviceArray. A device copies the values of its DeviceArrays without the host.
        outputs: for each output or tensor, a writable array of one of these kinds; or only names, for which new arrays
            are made. None: all outputs of the session. Output arrays must not overlap other arrays of the binding.
        Arrays are dense, aligned to 64 bytes (see `empty`), and of exactly the declared dtype. The binding has its own
        plan and memory, which count in memory_kept until it is freed. Raises UsageError, GraphError.
        """
        from linnet.session import binding

        with self._lock:
            self._check_open()
            made = binding.bind(self, feeds, self._fetches if outputs is None else outputs)
            self._bindings.add(made)
            return made

    def empty(self, name: str, shape: Sequence[int] | None = None) -> Array:
        """A new array for an input, an output or a tensor, aligned so that `bind` takes it. Its values are undefined.
        shape: needed if the file leaves the shape open. Raises UsageError."""
        from linnet.session import binding

        return binding.empty(self._spec(name), shape)

    def cancel(self) -> None:
        """Ends the current run, if any; that run raises Cancelled. May be called from any thread and does not wait."""
        self._runner.cancel()

    def _filled(
        self,
        feeds: Mapping[str, npt.ArrayLike],
        fetches: Sequence[str] | None,
        elsewhere: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Planned:
        """The plan for these feeds, ready to run: the feeds are already in its inputs. elsewhere: shapes of inputs that
        are filled later."""
        values: dict[str, Array] = {}
        if not isinstance(feeds, Mapping):
            names = ", ".join(spec.name for spec in self.inputs)
            raise UsageError(
                "feeds must be a mapping from names to arrays", code=101, expected="a dictionary with "
                                                                              f"{names or 'no entries'}",
                got=type(feeds).__name__, hint="run({'name': array})",
            )  # fmt: skip
        if isinstance(fetches, str):
            raise UsageError(
                "fetches is a string", code=101, expected="a list of names", got=fetches, hint=f"[{fetches!r}]"
            )
        if fetches is not None and not (isinstance(fetches, Sequence) and all(isinstance(n, str) for n in fetches)):
            raise wrong_type("fetches", "a list of names", fetches)
        for name, value in feeds.items():
            spec = self._spec(name)
            array = converted(value, spec, "input" if name in self._specs else "tensor")
            self._check_shape(spec, array.shape)
            values[name] = array
        shapes = {name: array.shape for name, array in values.items()} | dict(elsewhere or {})
        planned = self._planned(shapes, self._fetches if fetches is None else tuple(fetches))
        self._last_fetches = fetches
        for name, view, _, _ in planned.feeds:
            if name in values:
                np.copyto(view, packed(values[name]))
            elif name not in shapes:
                raise self._missing(name, values)
        return planned

    def _missing(self, name: str, given: Mapping[str, Any]) -> UsageError:
        return UsageError(
            f"no value is given for input {name!r}", code=105, tensor=name, got=" and ".join(given) or "no inputs",
            hint="feed this input or a tensor computed from it, or fetch only outputs that do not depend on it",
        )  # fmt: skip

    def _planned(self, shapes: Mapping[str, tuple[int, ...]], fetches: tuple[str, ...] | None) -> Planned:
        """The plan for these input shapes and fetches, from the cache or newly made."""
        self._check_open()
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
        """Warns or raises if open dimensions with the same name have different sizes."""
        from linnet.file import dim_names

        found = dim_names.mismatches(self.model.dim_names(self.signature), shapes)
        if not found:
            return
        if self._strict_dims is None:
            self._strict_dims = self.model.assigns(self.signature)
        if self._strict_dims:
            raise found[0].error("give them the same size, or create the Session with strict_dims=False")
        if not self._warned:
            self._warned = True
            warnings.warn(dim_names.text_of(found), stacklevel=2)

    def _make_plan(
        self, shapes: Mapping[str, tuple[int, ...]], fetches: tuple[str, ...] | None, *, frame: Shapes | None = None,
        separate: bool = False, beside: int = 0,
    ) -> Any:  # fmt: skip
        return c_plan.plan(self, shapes, fetches, frame, separate, beside)

    def _plan(
        self, shapes: Mapping[str, tuple[int, ...]], fetches: tuple[str, ...] | None, key: Any, separate: bool = False
    ) -> Planned:
        lib, error = library(), ffi.new("linnet_error *")
        plan, most = bounding.fitting(self, shapes, fetches, separate)
        session_config = new_struct("linnet_session_config")
        session_config.max_bytes, session_config.bind_threads = most, self._options.bind_threads
        session_config.trace, session_config.count_special = bool(self._trace), bool(self._count_special)
        if self._arena is not None and (not self._ranges or self._fits_arena(plan)):
            session_config.arena, session_config.arena_size = self._arena, len(self._arena)
        if self._snapshot:  # one copy for all shapes
            session_config.share_snapshot = next((p.session for p in self._plans.values() if p.snapshot), ffi.NULL)
        session_out = ffi.new("linnet_session **")
        if lib.linnet_session_create(plan, self.variables.pointer, session_config, session_out, error):
            raise exception(error)
        return Planned(ffi.gc(session_out[0], lib.linnet_session_free), key)

    def _current(self) -> Planned:
        self._check_open()
        if self._last is None:
            raise UsageError(
                "nothing is planned yet because the shapes of some inputs are open", code=304,
                hint="run once, or pass input_shapes to the Session",
            )  # fmt: skip
        return self._last

    def _current_plan(self) -> Any:
        return self._current().plan

    @property
    def memory(self) -> dict[str, int]:
        """Exact bytes of the last used plan, by region; the regions are those of linnet_plan_info."""
        info = info_of(self._current_plan())
        return {name: int(getattr(info, name)) for name in REGIONS}

    @property
    def memory_kept(self) -> int:
        """Bytes of everything held now: the model, the store, all plans for recent shapes, bindings, and the packed
        weights that they share (also with other sessions of the Model)."""
        lib = library()
        total = int(lib.linnet_model_bytes(self.model.pointer)) + self.variables._bytes
        total += sum(int(lib.linnet_session_bytes(p.session)) - p.snapshot for p in self._plans.values())
        total += self._arena_bytes + self._bound_bytes
        return total + max((p.snapshot for p in self._plans.values()), default=0)

    @property
    def _bound_bytes(self) -> int:
        return sum(made.bytes for made in self._bindings)

    @property
    def plan_info(self) -> dict[str, Any]:
        """Facts about the last used plan: steps, segments, threads, isa, precision, plan_ms. recomputed: number of
        recomputed steps. fallbacks: number of steps that no device took. modelled_ms: modelled time of a run
        (docs/tuning.md). stored_weights: bytes of packed weights that kernels read directly from the file.
        loop_iterations: number of iterations that fit into memory["loop_values"]; 0: nothing is reserved."""
        return facts_of(info_of(self._current_plan()))

    @property
    def device_memory(self) -> list[DeviceMemory]:
        """What the last used plan needs on each device, in the order of the devices."""
        return device_memory_of(self._current_plan())

    @property
    def steps(self) -> list[Step]:
        """The steps of the last used plan. With trace=True they have mean times."""
        return steps_of(self._current_plan(), self._current().session if self._trace else None)

    @property
    def special(self) -> list[dict[str, int]]:
        """For each step, counts over its first output in the last run: values at the limits of their integer type
        (saturated), infinite values, and NaN (not_a_number). Needs count_special=True."""
        if not self._count_special:
            raise UsageError("special values were not counted", code=101, hint="give Session count_special=True")
        return special_of(self._current_plan(), self._current().session)
