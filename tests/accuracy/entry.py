"""What the measurement knows of one network: its file, calibration and test data, and how results are compared.
A sample is a sequence of feeds; most have one. The outputs of a run are flat: one dictionary per step of every sample."""

from __future__ import annotations

import functools
import hashlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Feeds = dict[str, Array]
Outputs = dict[str, Array]
Sample = Sequence[Feeds]
CALIBRATION, TEST = "calibration", "test"
# From f32's outputs and others to points of 100.
Agreement = Callable[[Sequence[Outputs], Sequence[Outputs]], float]
GROUPS = ("vision", "faces", "text", "speech", "tiny")


@dataclass(frozen=True)
class Entry:
    """One network. `data(part, count)` makes `count` samples of the part "calibration" or "test"; these must be disjoint,
    and the same in every call. `agreement` gives points, and `measure` says in words what they are.

    share: from f32's outputs to the share of the results that count (the others are too close to call).
    feedback: {output: input}: state that each step of a sample gets from the step before; the first step has its own.
    note: what is special, for example data that could not be real."""

    file: Callable[[], Path]
    data: Callable[[str, int], list[Sample]]
    agreement: Agreement
    measure: str
    calibrations: int = 48
    tests: int = 100
    share: Callable[[Sequence[Outputs]], float] | None = None
    feedback: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@functools.cache
def entries() -> dict[str, Entry]:
    """All networks by name, in the order of the groups."""
    found: dict[str, Entry] = {}
    for group in GROUPS:
        found.update(importlib.import_module(f"tests.accuracy.models_{group}").MODELS)
    return found


def one(feeds: Feeds) -> Sample:
    """A sample of one step."""
    return (feeds,)


def each(name: str, arrays: Sequence[Array]) -> list[Sample]:
    """A sample per array, for a network with this one input."""
    return [({name: np.ascontiguousarray(array)},) for array in arrays]


def digest(samples: Sequence[Sample]) -> str:
    """A short name for data: equal for equal arrays, names and order."""
    total = hashlib.sha256()
    for sample in samples:
        total.update(b"sample")
        for feeds in sample:
            for name, value in sorted(feeds.items()):
                total.update(f"{name} {value.dtype} {value.shape}".encode())
                total.update(np.ascontiguousarray(value).tobytes())
    return total.hexdigest()[:20]


def run(call: Callable[[Feeds], Outputs], samples: Sequence[Sample], feedback: Mapping[str, str]) -> list[Outputs]:
    """The outputs of all steps; `call` runs the network once."""
    found: list[Outputs] = []
    for sample in samples:
        state: Feeds = {}
        for feeds in sample:
            outputs = call({**feeds, **state})
            state = {name: outputs[output] for output, name in feedback.items()}
            found.append(outputs)
    return found


def unrolled(call: Callable[[Feeds], Outputs], samples: Sequence[Sample], feedback: Mapping[str, str]) -> list[Feeds]:
    """All steps as single feeds, with the states that `call` (f32) gives: what a quantizer calibrates on."""
    if not feedback:
        return [feeds for sample in samples for feeds in sample]
    seen: list[Feeds] = []

    def watched(feeds: Feeds) -> Outputs:
        seen.append(feeds)
        return call(feeds)

    run(watched, samples, feedback)
    return seen
