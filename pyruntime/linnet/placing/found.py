"""place(): finds where the nodes of a model should run over several machines, and says what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linnet.clib.errors import UsageError
from linnet.placing.placement import Placement
from linnet.placing.task import Task
from linnet.session.options import SessionOptions

if TYPE_CHECKING:
    from linnet.session.device import Device


def place(
    model: Any,
    devices: Sequence[str | Device],
    signature: str = "infer",
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: SessionOptions | None = None,
    search: float = 0.0,
    seed: int = 0,
) -> Placement:
    """Finds on which of these devices, or on this machine, each node of a model should run. Devices that are other machines
    predict what nodes take there; nothing runs. The result is at least as good, by these predictions, as each machine
    alone.

    model: as for Session. devices: such as ["remote:pi1:7700", "remote:pi2:7700"]. shapes: those of inputs whose shapes
    the model leaves open. options: of the sessions that will run the model; max_bytes limits what this machine holds.
    With options.placement, the result is this placement, and what it costs by the predictions; there is no search.
    search: seconds for a search that goes on from the first placement, first by the predictions, then by runs on the real
    machines. seed: of the search's random numbers.

    Raises UsageError without a device and for a search of a given placement, GraphError if the model fits on no set of the
    machines, and the errors of Session.
    """
    given = SessionOptions.of(options, devices=tuple(devices))
    if not given.devices:
        raise UsageError("no machine to place nodes on", code=101, tensor="devices", hint="name a device or a host")
    if given.placement and search > 0:
        raise UsageError(
            "a given placement is not searched for", code=101, tensor="search", expected="0 with options.placement",
            got=str(search), hint="leave out search=, or options.placement",
        )  # fmt: skip
    task = Task(model, signature, dict(shapes or {}), given)
    if given.placement:
        return task.given()
    found = task.default()
    if search > 0:
        from linnet.placing.search import improved

        found = improved(task, found, search, seed)
    return found
