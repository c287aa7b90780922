"""Measures the rates of this machine (such as operations per nanosecond), from which plans estimate times (docs/tuning.md).
Small graphs run with the kernels of each instruction set. Each rate is set so that the modelled time of its graph
equals the measured time."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from linnet.builder import ops
from linnet.clib.library import library
from linnet.facade import Graph
from linnet.file import tuning as tuning_file
from linnet.ir.dtypes import numpy_dtype
from linnet.quantization.entry import quantize
from linnet.quantization.table import Row, Table
from linnet.session.model import Model, isa_names, string_of
from linnet.session.planner import Planner
from linnet.session.session import Session
from linnet.session.tune import Timed, run_again

_TURNS = 3  # at least
_TURN = 0.005  # seconds
_ROUNDS = 3  # each rate depends a little on the others
_FORKS = 8  # steps of the graph that measures a fork
_LONG = 112  # side of the image, in pixels, with which threads matter more than forks


@dataclasses.dataclass(frozen=True)
class Probe:
    """A graph that spends most of its time on one kind of work. `only` names the op whose steps are timed; "": all
    steps."""

    make: Callable[[], Graph]
    only: str = ""


@dataclasses.dataclass(frozen=True)
class Rates:
    """The result of `measure`. rates: each rate by its name, e.g. "avx2 f32", as in the lines of a tuning file. Most
    are operations or bytes per nanosecond. "step" and "fork" are nanoseconds; "thread" is a fraction of a core. text:
    the tuning file. isa: the widest instruction set. seconds: how long it took."""

    rates: dict[str, float]
    text: str
    isa: str
    seconds: float


def _graph(build: Callable[[Graph], Any]) -> Graph:
    graph = Graph(seed=1)
    x, y = build(graph)
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def _weights(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return (np.random.default_rng(1).standard_normal(shape) / np.prod(shape[1:])).astype(np.float32)


def _products(dtype: str, side: int = 28) -> Graph:
    """A 1x1 and a 3x3 convolution over the same channels-last image of side x side pixels."""

    def build(graph: Graph) -> Any:
        x = graph.placeholder("x", (1, side, side, 64))
        pair = [(graph.constant(_weights(96, 64, k, k)), k) for k in (1, 3)]
        ys = [ops.conv(x, w, pads=[k // 2] * 4, channel_axis=-1) for w, k in pair]
        return x, ys[0] + ys[1]

    graph = _graph(build)
    if dtype == "f32":
        return graph
    image = np.random.default_rng(2).standard_normal((1, side, side, 64)).astype(np.float32)
    integers = Table([Row("*", "w16a16")]) if dtype == "i16" else None  # even where floats would be faster
    return quantize(graph, calibration=[{"x": image}], dtype=dtype, effort="fast", table=integers)


def _pointwise() -> Graph:
    """A scale and an offset per channel, then a ReLU, as after a convolution. The numbers fit into a core's cache."""

    def build(graph: Graph) -> Any:
        x = graph.placeholder("x", (1, 14, 14, 128))
        scale, offset = graph.constant(_weights(128)), graph.constant(_weights(128))
        return x, ops.relu(ops.relu(x * scale + offset) * scale - offset)

    return _graph(build)


def _moves() -> Graph:
    """A concatenation that copies many short runs of bytes. Starting each copy takes most of the time."""

    def build(graph: Graph) -> Any:
        x = graph.placeholder("x", (1500, 16))
        return x, ops.concat([x, x], axis=1)

    return _graph(build)


def _adds(count: int) -> Graph:
    """Reads and writes `count` f32 numbers."""

    def build(graph: Graph) -> Any:
        x = graph.placeholder("x", (count,))
        return x, x + 1.0

    return _graph(build)


def _chain(side: int) -> Graph:
    """Convolutions one after another; on an image of 14 x 14 pixels, each takes about 20 us."""

    def build(graph: Graph) -> Any:
        x = y = graph.placeholder("x", (1, side, side, 64))
        for _ in range(_FORKS):
            y = ops.conv(y, graph.constant(_weights(64, 64, 1, 1)), channel_axis=-1)
        return x, y

    return _graph(build)


_PRODUCTS = ("f32", "i8", "i16")
_BEYOND = 10_000_000  # numbers that no cache holds
# Bytes that a core's cache (_CACHE) and the cache that all cores share (_SHARED) move in the time of one operation.
# Like the rate of operations, both rates follow the processor's clock.
_CACHE, _SHARED = 7.5, 2.5


def _probes(isa: str) -> dict[str, Probe]:
    """The probes of an instruction set. Scalar kernels are slower, so their probes use a smaller image."""
    side = 7 if isa == "scalar" else 28
    found = {kind: Probe(partial(_products, kind, side), "conv") for kind in _PRODUCTS}
    return found | {"map": Probe(_pointwise, "map"), "move": Probe(_moves, "copy")}


_OF_ALL: Mapping[str, Probe] = {
    "step": Probe(partial(_adds, 16)),
    "memory": Probe(partial(_adds, _BEYOND)),
}


class _Measured:
    """A probe on one instruction set: its shortest time so far, and its modelled time for given rates."""

    def __init__(self, probe: Probe, isa: str | None) -> None:
        self._model, self._isa, self._only = Model(probe.make()), isa, probe.only
        session = Session(self._model, threads=1, isa_max=isa, trace=True)
        session.run({s.name: np.ones(s.shape or (), numpy_dtype(s.dtype)) for s in self._model.inputs("infer")})
        self._timed, self._ops = Timed(session), [step.op for step in session.steps]
        self.kernels = [k for k, op in zip(self._timed.kernels, self._ops, strict=True) if self._counts(op)]

    def turn(self) -> None:
        """Runs several times in a row, because before the first run the caches hold the numbers of other probes."""
        end = time.perf_counter() + _TURN
        self._timed.turn()
        self._timed.turn()
        while time.perf_counter() < end:
            self._timed.turn()

    @property
    def ns(self) -> float:
        return float(sum(t for t, op in zip(self._timed.least, self._ops, strict=True) if self._counts(op)))

    def _counts(self, op: str) -> bool:
        return not self._only or op == self._only

    def modelled(self, rates: Mapping[str, float]) -> float:
        planner = Planner(self._model, threads=1, isa_max=self._isa, tuning=_text(rates).encode())
        planner.plan({})
        return 1e6 * sum(step.modelled_ms for step in planner.steps if self._counts(step.op))

    def solve(self, name: str, rates: Mapping[str, float]) -> float:
        """The rate at which the modelled time equals the measured one; the other rates stay as they are. Doubling the
        rate shows which part of the modelled time depends on it."""
        rate = rates[name]
        inverse = name == "step"  # nanoseconds, not a rate
        whole = self.modelled(rates)
        part = 2 * (whole - self.modelled({**rates, name: rate / 2 if inverse else rate * 2}))
        left = self.ns - (whole - part)
        if part <= 0.02 * whole:  # the probe says nothing about this rate
            return rate
        left = max(left, 0.1 * part, 1e-3)
        factor = min(max(part / left, 1 / 8), 8)
        return rate / factor if inverse else rate * factor


def _text(rates: Mapping[str, float], library: str = "", isa: str = "") -> str:
    return tuning_file.text_of([], library, isa, 0, rates=rates)


def measure(seconds: float = 4.0) -> Rates:
    """Measures for about `seconds`. The probes take turns, and the shortest time of each is used, so that other
    programs have little influence. A probe is too short to feel a quota of a control group (cgroup), so the rates are
    multiplied by the share of a processor that the quota grants. Raises whatever Session raises."""
    begin = time.perf_counter()
    sets = isa_names()
    probes: dict[str, _Measured] = {name: _Measured(probe, None) for name, probe in _OF_ALL.items()}
    for isa in sets:
        ending = "_reference" if isa == "scalar" else f"__{isa}"
        for kind, probe in _probes(isa).items():
            found = _Measured(probe, isa)
            if all(kernel.endswith(ending) for kernel in found.kernels):
                probes[f"{isa} {kind}"] = found
    turns, end = 0, begin + 0.8 * seconds
    while turns < _TURNS or time.perf_counter() < end:
        for found in probes.values():
            found.turn()
        turns += 1
    rates = _start(list(probes))
    for _ in range(_ROUNDS):
        for name, found in probes.items():
            rates[name] = found.solve(name, rates)
        for kind in _probes(""):
            _rising(rates, kind)
        speed = rates[_of_best(rates, "map")]
        rates |= {"cache": _CACHE * speed, "shared": _SHARED * speed}
        rates["memory"] = min(rates["memory"], rates["shared"])
    if (os.cpu_count() or 1) > 1:
        rates |= _threads(0.1 * seconds)
    rates = _granted(rates, processor_share())
    rates = {name: float(f"{rate:.4g}") for name, rate in rates.items()}
    version = string_of(library().linnet_version())
    return Rates(rates, _text(rates, version, sets[-1]), sets[-1], time.perf_counter() - begin)


def processor_share(groups: str = "/proc/self/cgroup", mount: str = "/sys/fs/cgroup") -> float:
    """Returns the share of one processor that the quotas of this process's control groups grant: at most 1, and 1 without
    a quota. groups, mount: the files of the system."""
    share = 1.0
    try:
        lines = [line.split(":", 2) for line in Path(groups).read_text().splitlines()]
    except OSError:  # not Linux
        return share
    for _, controllers, group in (line for line in lines if len(line) == 3):
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = Path(mount, "cpu" if controllers else "")
        folder = top / group.strip("/")
        for each in (folder, *folder.parents):
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
            with contextlib.suppress(OSError, ValueError):  # no such file, "max", or the group of all processes
                quota, period = map(int, " ".join((each / name).read_text() for name in names).split())
                share = min(share, quota / period) if quota > 0 < period else share
            if each == top:
                break
    return share


def _granted(rates: Mapping[str, float], share: float) -> dict[str, float]:
    """The rates of a process that gets this share of the time. "step" and "fork" are times, and "thread" is a proportion."""
    powers = {"step": -1, "fork": -1, "thread": 0}
    return {name: rate * share ** powers.get(name, 1) for name, rate in rates.items()}


def _names(rates: Mapping[str, float], kind: str) -> list[str]:
    """The names of the rates of one kind of work, in order from the narrowest to the widest instruction set."""
    return [name for name in rates if name.endswith(f" {kind}")]


def _of_best(rates: Mapping[str, float], kind: str) -> str:
    return _names(rates, kind)[-1]


def _rising(rates: dict[str, float], kind: str) -> None:
    """Raises each rate to at least that of the next narrower instruction set. A lower rate can only be a
    disturbance."""
    names = _names(rates, kind)
    for narrow, wide in pairwise(names):
        rates[wide] = max(rates[wide], rates[narrow])


def _start(names: list[str]) -> dict[str, float]:
    """The rates of a usual processor. The search begins with them, and its rounds replace them."""
    usual = {
        "f32": 10.0,
        "i8": 15.0,
        "i16": 15.0,
        "map": 5.0,
        "move": 1.0,
        "step": 100.0,
        "memory": 8.0,
    }
    scalar = {"f32": 0.2, "i8": 0.1, "i16": 0.1, "map": 0.2, "move": 0.3}
    rates = {n: scalar[n[7:]] if n.startswith("scalar ") else usual[n.split(" ")[-1]] for n in names}
    return rates | {"cache": 40.0, "shared": 15.0}


def _on_threads(side: int, seconds: float) -> list[float]:
    """Nanoseconds of the chain on one thread and on two."""
    model = Model(_chain(side))
    sessions = [Session(model, threads=n) for n in (1, 2)]
    for session in sessions:
        session.run({"x": np.ones((1, side, side, 64), np.float32)})
    least, end = [np.inf, np.inf], time.perf_counter() + max(seconds, 0.05)
    while time.perf_counter() < end:
        for i, session in enumerate(sessions):
            start = time.perf_counter_ns()
            run_again(session)
            least[i] = min(least[i], time.perf_counter_ns() - start)
    return least


def _threads(seconds: float) -> dict[str, float]:
    """Measures two rates: the gain from a second thread ("thread"), with long convolutions; and the extra time per step
    on two threads ("fork"), with short convolutions."""
    alone, both = _on_threads(_LONG, seconds)
    share = min(max(alone / both - 1, 0.1), 1.0)
    alone, both = _on_threads(14, seconds)
    fork = min(max((both - alone / (1 + share)) / _FORKS, 200.0), 10_000.0)
    return {"thread": float(share), "fork": float(fork)}
