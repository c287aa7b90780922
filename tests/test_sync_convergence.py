"""Compressed gradients train as well as plain ones (MNIST, four workers, error feedback), with the stated bytes per step."""
# Dear: models are trained until their accuracy can be compared.

from __future__ import annotations

import functools

import pytest

from examples import datasets
from tests.sync_convergence import Outcome, train

pytestmark = pytest.mark.network  # MNIST is fetched once
PLAIN = 4 * (784 * 256 + 256 + 256 * 10 + 10)  # bytes of the gradients


@functools.cache
def outcome(compression: str, epochs: int) -> Outcome:
    return train(datasets.mnist(), compression, epochs=epochs)


# Bytes sent per step, as a fraction of plain gradients.
SENT = {"f16": 1 / 2, "bf16": 1 / 2, "i8": 1 / 3.9, "topk:0.01": 1 / 125, "1bit": 1 / 30}


@pytest.mark.parametrize(
    "compression", ["topk:0.01", *(pytest.param(kind, marks=pytest.mark.more) for kind in ("i8", "1bit"))]
)
def test_accuracy_is_that_of_plain_gradients(compression: str) -> None:
    plain, found = outcome("none", 1), outcome(compression, 1)
    print(
        f"{compression}: {found.accuracy:.2f} % (plain {plain.accuracy:.2f} %), {found.bytes_per_step:,.0f} bytes a step"
    )
    assert plain.accuracy > 94 and plain.bytes_per_step == PLAIN
    assert found.accuracy > plain.accuracy - 0.3
    assert found.bytes_per_step <= SENT[compression] * PLAIN * 1.01


@pytest.mark.soak
@pytest.mark.parametrize("compression", SENT)
def test_accuracy_of_a_longer_training(compression: str) -> None:
    plain, found = outcome("none", 4), outcome(compression, 4)
    assert plain.accuracy > 97
    assert found.accuracy > plain.accuracy - 0.3
    assert found.bytes_per_step <= SENT[compression] * PLAIN * 1.01
