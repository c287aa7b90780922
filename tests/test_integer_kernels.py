"""Every integer op on every instruction set gives the bits of the scalar reference, for random shapes, scales and zero points
(tests/integer_random.py). Many cases share a graph, and so a plan. `make soak`: 100,000 cases."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import linnet
from linnet.conformance.case import Case, add
from linnet.facade import Graph
from linnet.session.model import isa_names
from tests.integer_random import batch

TOGETHER = 140  # cases in a graph
SOAK, PARTS = 100_000, 20


def compare(cases: list[Case]) -> Counter[str]:
    """Runs the cases in one graph. Returns how often each kernel ran."""
    graph = Graph()
    main = graph.function()
    feeds: dict[str, np.ndarray] = {}
    placed = [add(case, main, feeds, number) for number, case in enumerate(cases)]
    graph.signature("infer", main)
    model = linnet.Model(graph)
    want = linnet.Session(model, reference=True).run(feeds)
    taken: Counter[str] = Counter()
    for number, isa in enumerate(isa_names()):
        session = linnet.Session(model, isa_max=isa, threads=1 + number % 2)
        taken.update(step.kernel for step in session.steps)
        found = session.run(feeds)
        for place in placed:
            for name in place.outputs:
                what = f"{place.case.id} on {isa}: {place.case.about} to {', '.join(place.dtypes)}"
                a, b = (np.ascontiguousarray(values[name]) for values in (found, want))
                np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8), what)
    return taken


def test_integer_ops_give_the_bits_of_the_reference() -> None:
    taken: Counter[str] = Counter()
    for first in range(0, 3 * TOGETHER, TOGETHER):
        taken += compare(batch(first, TOGETHER))
    fast = {kernel for kernel in taken if "reference" not in kernel}
    for isa in isa_names()[1:]:
        assert any(kernel.endswith(f"__{isa}") for kernel in fast), f"no kernel of {isa} ran"
    assert sum(taken[kernel] for kernel in fast) > sum(taken.values()) / 3


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_many_integer_ops_give_the_bits_of_the_reference(part: int) -> None:
    size = SOAK // PARTS
    for first in range(part * size, (part + 1) * size, TOGETHER):
        compare(batch(1_000_000 + first, min(TOGETHER, (part + 1) * size - first)))
