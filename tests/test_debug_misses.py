"""`debug-quant` on real networks that lose much with 8 bits in all layers (tests/accuracy/debug_quant.py)."""

from __future__ import annotations

import numpy as np
import pytest

from linnet._fetch import FetchError
from tests.accuracy import debug_quant
from tests.accuracy.entry import entries


@pytest.mark.more
@pytest.mark.parametrize("name", ["dtln_2", "oww_melspectrogram"])
def test_the_first_suggestion_halves_the_loss(name: str) -> None:
    """At no more than 1.2 times the modelled time. `python -m tests.accuracy.debug_quant` also measures the time, for all."""
    assert name in debug_quant.MISSES
    try:
        found = debug_quant.measured(name, timed=False)
    except FetchError as error:
        pytest.skip(str(error))
    text = debug_quant.line(found)
    assert found.points[0] < 95, text
    assert found.halved, text
    assert found.modelled <= 1.2, text


def test_the_misses_are_networks_of_the_measurement() -> None:
    assert len(debug_quant.MISSES) == 5 and set(debug_quant.MISSES) <= set(entries())


def test_noise_is_that_of_all_outputs_together() -> None:
    f32 = [{"y": np.array([3.0, 4.0]), "z": np.array([1.0])}, {"y": np.array([0.0, 5.0]), "z": np.array([1.0])}]
    other = [{"y": np.array([3.0, 3.0]), "z": np.array([1.0])}, {"y": np.array([0.0, 5.0]), "z": np.array([1.0])}]
    assert debug_quant.noise(f32, other) == pytest.approx(-10 * np.log10((1 / 50 + 0) / 2))
