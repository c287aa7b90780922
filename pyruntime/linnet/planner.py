"""A session that only plans: what a model would need, here or on a machine with more memory than this one.
It takes none to run in; `memory`, `plan_info` and `steps` tell of what it planned last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from linnet import bounding
from linnet.bounds import Dim, MemoryBound, resolve
from linnet.errors import UsageError
from linnet.session import Session


class Planner(Session):
    """Takes the arguments of a Session, less bounds, input_shapes and those that are about runs."""

    _made: Any = None

    def _begin(
        self, bounds: Mapping[str, Sequence[Dim] | str] | None, input_shapes: Mapping[str, Sequence[int]] | None
    ) -> None:
        return

    def plan(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Plans for these shapes. Raises GraphError, UsageError."""
        self._made = self._make_plan(shapes, self._fetches)

    def plan_bounds(self, bounds: Mapping[str, Sequence[Dim] | str]) -> MemoryBound:
        """What shapes inside take at most; plans the largest of them. Raises GraphError, UsageError."""
        bound, _ = bounding.find(self, resolve(bounds, self.inputs))
        self.plan(bound.largest)
        return bound

    def _current_plan(self) -> Any:
        if self._made is None:
            raise UsageError("there is no plan yet", code=304, hint="call plan first")
        return self._made
