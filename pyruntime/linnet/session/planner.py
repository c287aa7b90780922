"""A session that only plans. It reports what a model would need, here or on a machine with more memory than this one.
It allocates no memory for runs. `memory`, `plan_info` and `steps` describe its latest plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from linnet.clib.errors import UsageError
from linnet.session import bounding
from linnet.session.bounds import Dim, MemoryBound, resolve
from linnet.session.changes import PassChange, changes_of
from linnet.session.choices import Choice, choices_of
from linnet.session.session import Session


class Planner(Session):
    """Takes the arguments of Session, except bounds, input_shapes and those that only affect runs."""

    _made: Any = None
    _shapes: Mapping[str, tuple[int, ...]] = {}

    def _begin(
        self, bounds: Mapping[str, Sequence[Dim] | str] | None, input_shapes: Mapping[str, Sequence[int]] | None
    ) -> None:
        return

    def plan(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Plans for these shapes. Raises GraphError, UsageError."""
        self._shapes = shapes
        self._made = self._make_plan(shapes, self._fetches)

    def plan_bounds(self, bounds: Mapping[str, Sequence[Dim] | str]) -> MemoryBound:
        """The most memory that any shape within the bounds takes. Also plans the largest of these shapes. Raises
        GraphError, UsageError."""
        bound, _ = bounding.find(self, resolve(bounds, self.inputs))
        self.plan(bound.largest)
        return bound

    @property
    def choices(self) -> list[Choice]:
        """For each step of the latest plan: the kernels that could run it, their modelled costs, and why other kernels
        cannot."""
        return choices_of(self._current_plan())

    @property
    def passes(self) -> list[PassChange]:
        """What each pass of planning changed. To find this out, the method makes the latest plan again."""
        self._current_plan()
        self._keeps_changes = True
        try:
            return changes_of(self._make_plan(self._shapes, self._fetches))
        finally:
            self._keeps_changes = False

    def _current_plan(self) -> Any:
        if self._made is None:
            raise UsageError("nothing has been planned yet", code=304, hint="call plan first")
        return self._made
