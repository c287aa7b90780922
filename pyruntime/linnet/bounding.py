"""The memory of a session over a range of shapes: what the most is, and how plans of several shapes share it.
A small range is planned shape by shape; a large one is bounded by a plan in whose place any smaller shape's fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet import file, growth
from linnet._generated.ffi import ffi
from linnet._library import exception, library
from linnet.bounds import COUNTED, REGIONS, MemoryBound, Range, Shapes, Space
from linnet.errors import GraphError, ResourceError, UsageError

if TYPE_CHECKING:
    from linnet.session import Session

TOO_LARGE = 306
# Plans of a range that are made one by one: so many, and so much work in all, in steps or as many bytes folded as take as
# long; a few seconds.
MOST_SHAPES, MOST_WORK, STEP_BYTES = 1 << 14, 1 << 17, 1 << 12


class _Most:
    """The most of several plans, region by region."""

    def __init__(self) -> None:
        self.regions = dict.fromkeys(REGIONS, 0)
        self.arena = self.beside = self.later = 0  # beside: everything but the arena, later segments included
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


def info_of(plan: Any) -> Any:
    """Its linnet_plan_info."""
    info = ffi.new("linnet_plan_info *")
    info.struct_size = ffi.sizeof("linnet_plan_info")
    library().linnet_plan_get_info(plan, info)
    return info


def find(session: Session, ranges: Mapping[str, Range]) -> tuple[MemoryBound, Shapes | None]:
    """The bound of every shape in the ranges, and the shapes in whose frame those are planned that would exceed it (None:
    all were planned, and none does, or there is no bound). Raises GraphError when the model takes none of the shapes."""
    space = Space(ranges, session.model.dim_names(session.signature))
    most, corner = _Most(), space.corner
    first = _plan_all(session, [corner], most)
    if first is not None:  # another shape has to tell how much work one is
        _plan_all(session, space.samples()[1:], probed := _Most())
        most.work = probed.work
    every = space.count <= MOST_SHAPES and space.count * most.work <= MOST_WORK
    if not every and first is not None:
        raise first  # the upper corner must be a shape that the model takes
    frame: Shapes | None = None
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
    if session._max_bytes and not most.unbounded and most.arena + most.beside > session._max_bytes:
        raise _too_little(session, f"{most.arena + most.beside} bytes", " for some shape inside the bounds")
    regions = most.regions | {"total": sum(most.regions[name] for name in COUNTED) + most.later}
    found = MemoryBound(
        regions, most.arena, most.later, most.largest if first else corner, most.unbounded, most.planned, most.refused,
        space.count, every,
    )  # fmt: skip
    return found, frame


def _plan_all(
    session: Session, shapes: Iterable[Shapes], most: _Most, frame: Shapes | None = None
) -> GraphError | UsageError | None:
    """Plans them all; the first reason why the model does not take one."""
    first: GraphError | UsageError | None = None
    for one in shapes:
        try:
            most.add(session._make_plan(one, session._fetches, frame=frame), one)
        except (GraphError, UsageError) as error:
            if error.code == TOO_LARGE and session._max_bytes:
                raise _too_little(session, error.got, f" at {one}") from None
            first = first or error
            most.refused += 1
    return first


def _leave_room(most: _Most) -> None:
    """A plan between the samples may need a little more than they: with room for it, the slower one in the frame of the
    corner is hardly ever called for."""
    for name, part in (("scratch", 4), ("activations", 16), ("bookkeeping", 16)):
        more = (most.regions[name] // part + 63) // 64 * 64
        most.regions[name] += more
        most.arena += more if name != "bookkeeping" else 0
        most.beside += more if name == "bookkeeping" else 0


def _why_not(session: Session, space: Space, most: _Most) -> str:
    """Why a plan of the largest shape does not bound the others; "" when it does."""
    model = session.model
    graph = file.from_bytes(model._content) if model._content else file.read(Path(str(model.path)))
    reason = growth.obstacle(graph, session.signature, space.loose)
    if any(low == 0 for dims in space.ranges.values() for low, _ in dims):
        reason = reason or "a range begins at 0"
    if session._devices:
        reason = reason or "devices plan for themselves"
    if not reason:
        return ""
    limit = min(MOST_SHAPES, MOST_WORK // most.work)
    return (
        f"the range holds {space.count:,} shapes, of which the largest may not need the most ({reason}); "
        f"up to {limit:,} shapes of this model are planned one by one"
    )


def _too_little(session: Session, got: str, where: str) -> GraphError:
    return GraphError(
        f"max_bytes is too little{where}", code=TOO_LARGE, expected=f"at most {session._max_bytes} bytes", got=got,
        hint="raise max_bytes, or give smaller bounds",
    )  # fmt: skip


def arena_for(bound: MemoryBound, given: Any) -> Any:
    """The given arena, or a new one, 64-byte aligned. Raises ResourceError where there is no room for every shape inside."""
    if given is not None:
        if len(given) >= bound.arena:
            return given
        raise ResourceError(
            "the arena is smaller than a shape inside the bounds needs", code=402, expected=f"{bound.arena} bytes",
            got=f"{len(given)} bytes", hint="give smaller bounds, or a larger arena",
        )  # fmt: skip
    if bound.arena == 0:
        return None
    available, need = int(library().linnet_memory_available()), bound.arena + bound.regions["io"]
    memory = _memory(bound.arena + 64) if need <= available else None
    if memory is None:
        raise ResourceError(
            "a run inside these bounds needs more memory than the machine has left", code=401,
            expected=f"at most {available} bytes more", got=f"{need} bytes",
            hint="give smaller bounds; `linnet plan` tells what bounds need",
        )  # fmt: skip
    start = -memory.ctypes.data % 64
    return ffi.from_buffer(memory[start : start + bound.arena], require_writable=True)


def _memory(size: int) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    try:
        return np.empty(size, np.uint8)
    except MemoryError:
        return None


def fitting(
    session: Session, shapes: Mapping[str, tuple[int, ...]], fetches: tuple[str, ...] | None
) -> tuple[Any, int]:
    """A plan that the session has room for, having dropped others for it, and what it may take with its later segments (0:
    anything). Raises GraphError (too_large)."""
    try:
        plan = session._make_plan(shapes, fetches)
        if session._frame is None or session._fits_arena(plan):
            return plan, _make_room(session, plan)
    except GraphError as error:
        if error.code != TOO_LARGE or session._frame is None:
            raise
    plan = session._make_plan(shapes, fetches, frame=session._frame)
    return plan, _make_room(session, plan)


def _make_room(session: Session, plan: Any) -> int:
    """Drops plans, those not used for longest first, until the session of this one fits in what is left of max_bytes."""
    limit, lib, info = session._limit, library(), info_of(plan)
    if not limit:
        return 0
    arena = int(info.activations + info.scratch) if session._fits_arena(plan) else 0
    own = int(info.total - info.packed_weights - info.variables) - session.model._structure - arena
    if any(planned.snapshot for planned in session._plans.values()):  # it shares theirs
        own -= int(info.snapshot + info.committed)
    beside = session._arena_bytes - arena  # an arena for larger shapes
    if int(info.total) + beside > limit:
        raise GraphError(
            "the plan needs more memory than the bound that was set", code=TOO_LARGE, expected=f"at most {limit} bytes",
            got=f"{int(info.total) + beside} bytes", hint="raise max_bytes, or give smaller shapes",
        )  # fmt: skip
    # Later segments come and go inside one session, so it has no other beside it.
    while session._plans:
        missing = int(lib.linnet_plan_share(plan))
        segmented = info.segments > 1 or any(planned.segmented for planned in session._plans.values())
        if not segmented and session.memory_kept + own + missing <= limit:
            break
        session._drop_oldest()
    return limit - beside
