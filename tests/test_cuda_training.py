"""Training steps on the CUDA device, on the stand-ins for the driver and the compiler (tests/cuda/), against the CPU."""

from __future__ import annotations

from types import ModuleType

import pytest

import linnet
from tests.cuda_device import clean, cuda_device
from tests.small_nets import NETS, compare_steps, training

USUAL = ("lenet", "mobile")


@pytest.mark.parametrize("name", [*USUAL, *(pytest.param(n, marks=pytest.mark.more) for n in NETS if n not in USUAL)])
def test_ten_training_steps_agree(name: str) -> None:
    with clean():
        compare_steps(*training(name, linnet.Momentum(0.01)), cuda_device())


@pytest.mark.torch
def test_ten_steps_of_a_whole_network_agree(torch: ModuleType) -> None:
    """LeNet-5 as tests/train_models.py describes it, with plain SGD."""
    from tests.train_models import batch, graph_of, twin

    name, shape = "lenet5", (4, 1, 28, 28)
    graph = graph_of(name, twin(name, shape), shape, rate=0.001)
    images, labels = batch(name, shape)
    compare_steps(graph, {"x": images.numpy(), "t": labels.numpy()}, cuda_device(), 2e-3)
