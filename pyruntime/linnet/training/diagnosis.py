"""Where a loss that is not finite came from: the steps since the last good values are run again, counting NaN and
infinity behind every op, until one gives the first."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.model import Model, Store

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The first op whose result was not finite. name: of the node; tensor: of its first output."""

    step: int
    name: str
    op: str
    not_a_number: int
    infinite: int


def find(
    model: Model,
    signature: str,
    values: Mapping[str, Array],
    step: int,
    count: int,
    batches: Iterable[Mapping[str, Array]],
) -> Finding | None:
    """values: the variables before training step `step`; batches: the feeds of it and of those that follow, `count` in all.
    Steps are exact repetitions: all randomness is in the variables. None when every result was finite."""
    from linnet.session import Session

    store = Store(model)
    for name, value in values.items():
        store[name] = value
    session = Session(model, signature, store=store, count_special=True)
    usual: set[int] = set()  # steps of the plan that give infinity while all is well, such as masks
    for i, feeds in enumerate(itertools.islice(batches, count)):
        session.run(feeds)
        found = session.special
        wrong = [c["not_a_number"] + c["infinite"] > 0 for c in found]
        if i == 0 and count > 1 and not any(c["not_a_number"] for c in found):
            usual = {index for index, bad in enumerate(wrong) if bad}
        for index, what in enumerate(session.steps):
            if wrong[index] and (found[index]["not_a_number"] or index not in usual):
                counts = found[index]
                return Finding(step + i, what.name, what.op, counts["not_a_number"], counts["infinite"])
    return None


def bad_feed(feeds: Mapping[str, Array]) -> str:
    """What is wrong with a batch itself; "" when it is finite."""
    for name, value in feeds.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            row = int(np.argwhere(~np.isfinite(value))[0][0]) if value.ndim else 0
            return f"the data is not finite: input '{name}' holds {value[~np.isfinite(value)][0]} in example {row} of the batch"
    return ""
