"""Finds the largest memory that a session needs within a range of shapes, and lets the plans of several shapes share
it. A small range is planned shape by shape. A large range is bounded by one plan whose layout has room for any smaller
shape."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from linnet.clib.errors import GraphError, ResourceError, UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, library
from linnet.session.model import Model
from linnet.session.planned import COUNTED, REGIONS, Planned, info_of

if TYPE_CHECKING:
    from linnet.session.bounds import MemoryBound, Range, Shapes, Space
    from linnet.session.options import SessionOptions

TOO_LARGE = 306
# Limits for planning a range shape by shape: the number of shapes, and the total work. Work is counted in steps;
# folding STEP_BYTES bytes takes as long as one step. Together this is a few seconds.
MOST_SHAPES, MOST_WORK, STEP_BYTES = 1 << 14, 1 << 17, 1 << 12


class Planning(Protocol):
    """The part of linnet.Session that is used here."""

    model: Model
    signature: str
    _fetches: tuple[str, ...] | None
    _options: SessionOptions
    _limit: int
    _frame: Shapes | None
    _plans: OrderedDict[Any, Planned]

    @property
    def _arena_bytes(self) -> int: ...
    @property
    def memory_kept(self) -> int: ...
    @property
    def _bound_bytes(self) -> int: ...
    def _make_plan(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        fetches: tuple[str, ...] | None,
        *,
        frame: Shapes | None = None,
        separate: bool = False,
        beside: int = 0,
    ) -> Any: ...
    def _fits_arena(self, plan: Any) -> bool: ...
    def _drop_oldest(self) -> None: ...


class _Most:
    """The maximum over several plans, region by region."""

    def __init__(self) -> None:
        self.regions = dict.fromkeys(REGIONS, 0)
        self.arena = self.beside = self.later = 0  # beside: everything except the arena, later segments included
        self.unbounded = ""
        self.planned = self.refused = 0
        self.work = 1
        self.largest: Shapes = {}

    def add(self, plan: Any, shapes: Shapes) -> None:
        lib, error, most = library(), ffi.new("linnet_error *"), ffi.new("uint64_t *")
        info = info_of(plan)
        self.planned += 1
        if info.total > self.regions["total"]:
            self.largest = shapes
        self.work = max(self.work, int(info.steps + info.folded // STEP_BYTES))
        for name in REGIONS:
            self.regions[name] = max(self.regions[name], int(getattr(info, name)))
        if lib.linnet_plan_bound(plan, most, error):
            failure = exception(error)
            if not isinstance(failure, GraphError):
                raise failure
            self.unbounded, most[0] = self.unbounded or str(failure), info.total
        arena = int(info.activations + info.scratch)
        self.later = max(self.later, int(most[0] - info.total))
        self.arena, self.beside = max(self.arena, arena), max(self.beside, int(most[0]) - arena)


def find(session: Planning, ranges: Mapping[str, Range]) -> tuple[MemoryBound, Shapes | None]:
    """Returns the bound over all shapes in the ranges, and the frame. The frame is the set of input shapes whose memory
    layout is used for a plan that would exceed the bound. The frame is None if every shape was planned and none exceeds
    the bound, or if there is no bound.
    Raises GraphError if the model accepts none of the shapes."""
    from linnet.session.bounds import MemoryBound, Space

    space = Space(ranges, session.model.dim_names(session.signature))
    most, corner = _Most(), space.corner
    first = _plan_all(session, [corner], most)
    if first is not None:  # use another shape to estimate the work per shape
        _plan_all(session, space.samples()[1:], probed := _Most())
        most.work = probed.work
    every = space.count <= MOST_SHAPES and space.count * most.work <= MOST_WORK
    if not every and first is not None:
        raise first  # the model must accept the upper corner
    frame: Shapes | None = None
    if space.count > 1 and most.regions["loop_values"]:
        most.unbounded = "a plan for each shape reserves for loops what max_bytes leaves"
    if every:
        _plan_all(session, (one for one in space.shapes() if one != corner), most)
        if first is not None and most.planned == 0:
            raise first
    else:
        _plan_all(session, space.samples()[1:], most)
        most.unbounded = most.unbounded or _why_not(session, space, most)
        if not most.unbounded:
            frame = corner
            _leave_room(most)
            if (failure := _plan_all(session, [corner], most, frame)) is not None:
                raise failure
    if session._options.max_bytes and not most.unbounded and most.arena + most.beside > session._options.max_bytes:
        raise _too_little(session, f"{most.arena + most.beside} bytes", "for some shape within the bounds")
    regions = most.regions | {"total": sum(most.regions[name] for name in COUNTED) + most.later}
    found = MemoryBound(
        regions, most.arena, most.later, most.largest if first else corner, most.unbounded, most.planned, most.refused,
        space.count, every,
    )  # fmt: skip
    return found, frame


def _plan_all(
    session: Planning, shapes: Iterable[Shapes], most: _Most, frame: Shapes | None = None
) -> GraphError | UsageError | None:
    """Plans all shapes. Returns the first error with which the model rejected a shape, or None."""
    first: GraphError | UsageError | None = None
    for one in shapes:
        try:
            most.add(session._make_plan(one, session._fetches, frame=frame), one)
        except (GraphError, UsageError) as error:
            if error.code == TOO_LARGE and session._options.max_bytes:
                raise _too_little(session, error.got, f" at {one}") from None
            first = first or error
            most.refused += 1
    return first


def _leave_room(most: _Most) -> None:
    """Adds some room, because a shape between the samples may need slightly more memory than the samples do. Without
    enough room, such a shape gets a slower plan that uses the layout of the largest shape."""
    for name, part in (("scratch", 4), ("activations", 16), ("bookkeeping", 16)):
        more = (most.regions[name] // part + 63) // 64 * 64
        most.regions[name] += more
        most.arena += more if name != "bookkeeping" else 0
        most.beside += more if name == "bookkeeping" else 0


def _why_not(session: Planning, space: Space, most: _Most) -> str:
    """Why a plan of the largest shape does not bound the others, or "" if it does."""
    from pathlib import Path

    from linnet.file import reader
    from linnet.ir.graph import Graph
    from linnet.session import monotone_sizes

    model = session.model
    graph = reader.from_bytes(model._content) if model._content else reader.read(Path(str(model.path)), Graph)
    reason = monotone_sizes.obstacle(graph, session.signature, space.loose)
    if any(low == 0 for dims in space.ranges.values() for low, _ in dims):
        reason = reason or "a range starts at 0"
    if session._options.devices:
        reason = reason or "devices plan their own memory"
    if not reason:
        return ""
    limit = min(MOST_SHAPES, MOST_WORK // most.work)
    return (
        f"the range has {space.count:,} shapes, and the largest is not certain to need the most memory ({reason}); "
        f"up to {limit:,} shapes of this model can be planned one by one"
    )


def _too_little(session: Planning, got: str, where: str) -> GraphError:
    return GraphError(
        f"max_bytes is too small{where}", code=TOO_LARGE, expected=f"at most {session._options.max_bytes} bytes", got=got,
        hint="raise max_bytes or narrow the bounds",
    )  # fmt: skip


def arena_for(bound: MemoryBound, given: Any) -> Any:
    """Returns the given arena, or a new one aligned to 64 bytes. Raises ResourceError if it is too small for some shape
    within the bounds."""
    if given is not None:
        if len(given) >= bound.arena:
            return given
        raise ResourceError(
            "the arena is too small for some shape within the bounds", code=402, expected=f"{bound.arena} bytes",
            got=f"{len(given)} bytes", hint="narrow the bounds or give a larger arena",
        )  # fmt: skip
    if bound.arena == 0:
        return None
    available, need = int(library().linnet_memory_available()), bound.arena + bound.regions["io"]
    memory = _memory(bound.arena + 64) if need <= available else None
    if memory is None:
        raise ResourceError(
            "a run within these bounds needs more memory than the machine has available", code=401,
            expected=f"at most {available} more bytes", got=f"{need} bytes",
            hint="narrow the bounds; `linnet plan` shows how much memory given bounds need",
        )  # fmt: skip
    start = -memory.ctypes.data % 64
    return ffi.from_buffer(memory[start : start + bound.arena], require_writable=True)


def _memory(size: int) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    try:
        return np.empty(size, np.uint8)
    except MemoryError:
        return None


def fitting(
    session: Planning, shapes: Mapping[str, tuple[int, ...]], fetches: tuple[str, ...] | None, separate: bool
) -> tuple[Any, int]:
    """Makes a plan that fits into the session's memory. If necessary, it drops older plans. Returns the plan, and the
    limit in bytes for the plan together with its later segments (0: no limit). Raises GraphError (too_large)."""
    try:
        plan = session._make_plan(shapes, fetches, separate=separate)
        if info_of(plan).loop_values and (beside := _beside(session, plan)):  # less can be reserved for loops
            plan = session._make_plan(shapes, fetches, separate=separate, beside=beside)
        if session._frame is None or session._fits_arena(plan):
            return plan, _make_room(session, plan)
    except GraphError as error:
        if error.code != TOO_LARGE or session._frame is None:
            raise
    plan = session._make_plan(shapes, fetches, frame=session._frame, separate=separate)
    return plan, _make_room(session, plan)


def _beside(session: Planning, plan: Any) -> int:
    """The bytes that the session holds in addition to the plan's total, and that it never drops."""
    info = info_of(plan)
    arena = int(info.activations + info.scratch) if session._fits_arena(plan) else 0
    return session._arena_bytes - arena + session._bound_bytes


def _make_room(session: Planning, plan: Any) -> int:
    """Drops the least recently used plans until this plan's session fits into the rest of max_bytes."""
    limit, lib, info = session._limit, library(), info_of(plan)
    if not limit:
        return 0
    arena = int(info.activations + info.scratch) if session._fits_arena(plan) else 0
    own = int(info.total - info.packed_weights - info.variables) - session.model._structure - arena
    if any(planned.snapshot for planned in session._plans.values()):  # the plan shares their snapshot
        own -= int(info.snapshot + info.committed)
    beside = _beside(session, plan)
    if int(info.total) + beside > limit:
        raise GraphError(
            "the plan needs more memory than max_bytes allows", code=TOO_LARGE, expected=f"at most {limit} bytes",
            got=f"{int(info.total) + beside} bytes", hint="raise max_bytes or use smaller shapes",
        )  # fmt: skip
    # Later segments are allocated and freed inside one session, so no other session may be kept beside it.
    while session._plans:
        missing = int(lib.linnet_plan_share(plan))
        segmented = info.segments > 1 or any(planned.segmented for planned in session._plans.values())
        if not segmented and session.memory_kept + own + missing <= limit:
            break
        session._drop_oldest()
    return limit - beside
