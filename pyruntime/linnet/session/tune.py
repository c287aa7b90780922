"""Measures, inside the whole model, the kernels that could run each step, and writes the tuning file (docs/tuning.md).
There are several traced sessions: the first runs each call with the call's first candidate kernel, the second with the
second candidate, and so on. The sessions take turns, so that the machine is in the same state for all."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from linnet.clib.library import library, new_struct
from linnet.file import tuning as tuning_file
from linnet.ir.user_op import UserOp
from linnet.session.choices import Choice, keys_of
from linnet.session.model import Model, string_of
from linnet.session.open_sizes import open_batches
from linnet.session.options import SessionOptions
from linnet.session.planner import Planner
from linnet.session.random_inputs import random_feeds
from linnet.session.session import Session
from linnet.session.usable_sizes import usable_shapes

_LEAST_TURNS = 3
_MARGIN = 0.97  # a kernel that is less than 3 % faster may be so by chance
_LEAST_GAIN = 20.0  # nanoseconds: two readings of a clock


@dataclasses.dataclass(frozen=True)
class Measured:
    """The kernels of the calls with one key: their shortest times in nanoseconds, summed over the steps. `before` is
    the kernel that the cost model chooses. `best` is the fastest kernel, or `before` if no other is clearly faster."""

    key: str
    steps: list[str]
    times: dict[str, float]
    before: str
    best: str

    @property
    def ratio(self) -> float:
        """The time of the best kernel as a fraction of that of the chosen kernel."""
        return self.times[self.best] / self.times[self.before]


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What `tune` found. before_ms, after_ms: median times of a run without and with the file. kept: whether the file
    has lines; it has none if the whole model did not become faster. text: the file. assumed: shapes of inputs whose open
    batch was taken as 1."""

    measured: list[Measured]
    before_ms: float
    after_ms: float
    kept: bool
    text: str
    threads: int
    isa: str
    turns: int
    assumed: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)


def tune(
    path: str | Path,
    *,
    signature: str = "infer",
    seconds: float = 10.0,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    user_ops: Iterable[UserOp] = (),
    rates: Mapping[str, float] | None = None,
    options: SessionOptions | None = None,
) -> Tuned:
    """Measures for about `seconds` on random input. Reference kernels are not measured. rates: the rates of the machine
    (linnet.machine). Plans use them to choose kernels, and the file includes them. Raises UsageError if an input has no
    fixed shape and input_shapes does not give one. Also raises whatever Session raises."""
    shapes = {name: tuple(shape) for name, shape in (input_shapes or {}).items()}
    model = Model(path, user_ops=user_ops)
    specs = model.inputs(signature)
    assumed = open_batches(model, signature, specs, shapes)
    shapes |= assumed
    fields: dict[str, Any] = {"signature": signature, **(options or SessionOptions()).fields}
    Session(model, input_shapes=shapes, **fields)  # rejects shapes for which there is too little memory
    feeds = random_feeds(specs, shapes, partial(usable_shapes, model, signature, shapes))
    fields["rates"] = rates or {}
    planner = Planner(model, **_tuned(fields, {}))
    planner.plan(shapes)
    info = planner.plan_info
    machine = (string_of(library().linnet_version()), info["isa"], info["threads"])

    def text_for(chosen: Mapping[str, str], comments: Mapping[str, str]) -> str:
        lines = [tuning_file.Line(key, kernel, comments.get(key, "")) for key, kernel in chosen.items()]
        return tuning_file.text_of(lines, *machine, rates=rates)

    measured, turns = measure(model, planner.choices, feeds, 0.7 * seconds, 2, input_shapes=shapes, **fields)
    better = {m.key: m.best for m in measured if m.best != m.before}
    comments = {
        m.key: f"{', '.join(m.steps)}: {m.times[m.best] / 1e3:.2f} us, {m.before} takes {m.times[m.before] / 1e3:.2f}"
        for m in measured
    }
    if not better:
        before = after = 0.0
    else:
        both = [_session(model, kernels, feeds, input_shapes=shapes, **fields) for kernels in ({}, better)]
        before, after = _compared(both[0], both[1], 0.3 * seconds)
    kept = bool(better) and after < before
    text = text_for(better if kept else {}, comments)
    return Tuned(measured, before, after, kept, text, info["threads"], info["isa"], turns, assumed)


def measure(
    model: Model, choices: Sequence[Choice], feeds: Mapping[str, Any], seconds: float, least: int = 1, **options: Any
) -> tuple[list[Measured], int]:
    """Times the kernels of each call of a plan, in turns. least: calls with fewer kernels than this are left out.
    options: the options of the Session. Also returns how many times each kernel ran."""
    alike: dict[str, list[Choice]] = {}
    for choice in choices:
        alike.setdefault(choice.key, []).append(choice)
    ranks = {key: order for key, same in alike.items() if len(order := _candidates(same[0])) >= least}
    rounds = max((len(order) for order in ranks.values()), default=0)
    chosen = [{key: order[r] for key, order in ranks.items() if r < len(order)} for r in range(rounds)]
    sessions = [Timed(_session(model, kernels, feeds, trace=True, **options)) for kernels in chosen]
    turns, end = 0, time.perf_counter() + seconds
    while ranks and (turns < _LEAST_TURNS or time.perf_counter() < end):
        for timed in sessions:
            timed.turn()
        turns += 1
    return [_best(key, order, alike[key], sessions) for key, order in ranks.items()], turns


def _tuned(options: Mapping[str, Any], kernels: Mapping[str, str]) -> dict[str, Any]:
    """The options of a Session whose calls use these kernels. The option "rates" becomes a part of the tuning file."""
    rest = {name: value for name, value in options.items() if name != "rates"}
    lines = [tuning_file.Line(*line) for line in kernels.items()]
    return rest | {"tuning": tuning_file.text_of(lines, "", "", 0, rates=options.get("rates")).encode()}


def _session(model: Model, kernels: Mapping[str, str], feeds: Mapping[str, Any], **options: Any) -> Session:
    """A session whose calls use these kernels. It has run once, so the feeds are in its inputs."""
    session = Session(model, **_tuned(options, kernels))
    session.run(feeds)
    return session


def _candidates(choice: Choice) -> list[str]:
    """The kernels worth measuring: the chosen one, then the others that can run the step."""
    could = [c for c in choice.candidates if not c.why and (c.chosen or not c.reference)]
    return [c.kernel for c in sorted(could, key=lambda c: (not c.chosen, c.cost_ns))]


class Timed:
    """A traced session, and the shortest time of each of its steps so far."""

    def __init__(self, session: Session) -> None:
        self._session, self._planned = session, session._current()
        self.keys = keys_of(self._planned.plan)
        self.kernels = [step.kernel for step in session.steps]
        self.least = np.full(len(self.keys), np.inf)
        self._total = self._totals()

    def _totals(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        lib, info = library(), new_struct("linnet_step_info")
        found = np.empty(len(self.keys))
        for i in range(len(found)):
            lib.linnet_session_get_step(self._planned.session, i, info)
            found[i] = info.total_ns
        return found

    def turn(self) -> None:
        run_again(self._session)
        total = self._totals()
        self.least = np.minimum(self.least, total - self._total)
        self._total = total

    def times(self, key: str) -> tuple[list[str], float]:
        """The kernels of the steps with this key, and the sum of their shortest times."""
        found = [i for i, other in enumerate(self.keys) if other == key]
        return [self.kernels[i] for i in found], float(self.least[found].sum())


def run_again(session: Session) -> None:
    """One run on the feeds that are there already, without copies."""
    planned, runner = session._current(), session._runner
    if runner.call(planned.session, runner.config(), planned.error):
        raise runner.failure(planned.error)


def _best(key: str, order: Sequence[str], same: Sequence[Choice], sessions: Sequence[Timed]) -> Measured:
    times: dict[str, float] = {}
    for timed in sessions:
        kernels, ns = timed.times(key)
        if len(kernels) == len(same) and len(set(kernels)) == 1:
            times[kernels[0]] = min(times.get(kernels[0], np.inf), ns)
    before = order[0]
    best = min(times, key=lambda kernel: times[kernel])
    if times[best] > _MARGIN * times[before] or times[before] - times[best] < _LEAST_GAIN * len(same):
        best = before
    return Measured(key, [choice.step.name for choice in same], times, before, best)


def _compared(before: Session, after: Session, seconds: float) -> tuple[float, float]:
    """The median times of a run of each session in milliseconds. The two sessions take turns."""
    times: tuple[list[int], list[int]] = ([], [])
    end = time.perf_counter() + seconds
    while len(times[0]) < _LEAST_TURNS or time.perf_counter() < end:
        for session, list_of in zip((before, after), times, strict=True):
            begin = time.perf_counter_ns()
            run_again(session)
            list_of.append(time.perf_counter_ns() - begin)
    return float(np.median(times[0])) / 1e6, float(np.median(times[1])) / 1e6
