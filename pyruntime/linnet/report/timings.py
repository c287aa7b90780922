"""Times a converted graph for its report, on random input: the median run, and the median time of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from linnet.clib.errors import Error
from linnet.report.contents import Timings
from linnet.session.bench import steady_times
from linnet.session.random_inputs import random_feeds
from linnet.session.session import Session
from linnet.session.step_times import timed_steps

if TYPE_CHECKING:
    from linnet.session.device import Device
    from linnet.session.model import Model
    from linnet.session.step import Step

_LIMIT = 60.0  # seconds; a loop over random data may never end
_TRACED_RUNS = 20


def measure(
    model: Model, shapes: Mapping[str, Sequence[int]], seconds: float, devices: Sequence[Device] = ()
) -> tuple[Timings, list[Step]]:
    """Measures for about `seconds`. If the model does not run on random input, the steps are empty and `note` says
    why."""
    try:
        session = Session(model, devices=devices, input_shapes=shapes)
        feeds = random_feeds(model.inputs("infer"), dict(shapes))
        session.run(feeds, timeout=_LIMIT)
        times = steady_times(session, seconds)
        traced = Session(model, store=session.variables, devices=devices, trace=True)
        steps = timed_steps(traced, lambda: traced.run(feeds, timeout=_LIMIT), min(_TRACED_RUNS, len(times)))
    except Error as error:
        return Timings(None, None, 0, 0, "", f"the model does not run on random input: {error}"), []
    info, steady = session.plan_info, np.array(times) / 1e6
    made = Timings(float(np.median(steady)), float(steady.min()), len(times), info["threads"], info["isa"], "")
    return made, steps
