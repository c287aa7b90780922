"""Whole models on liblinnet_cuda and the stand-ins for CUDA's driver against the CPU: how many nodes fall back, how far the
results are apart, and that the driver is called rightly. `make test` runs a small model, `make test-more` three, and `make soak`
every model of tests/zoo.py and tests/nets.py at four formats. The stand-ins compute on the processor, so it takes long."""
# Dear: the stand-in of the driver runs each block of each kernel on the CPU.

from __future__ import annotations

import gc

import pytest

from tests import nets, zoo
from tests.cuda_device import clean, cuda_device
from tests.device_models import DTYPES, compare_model, compare_training_step

pytestmark = pytest.mark.usefixtures("few_objects")


def compare(name: str, dtype: str) -> None:
    device = cuda_device()
    with clean():
        compare_model(name, dtype, device)
        gc.collect()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_small_model(dtype: str) -> None:
    compare("ppocr_cls", dtype)


@pytest.mark.more
@pytest.mark.parametrize("dtype", ["f32", "i8"])
@pytest.mark.parametrize("name", ["silero_vad", "dtln_1", "magika"])
def test_small_models(name: str, dtype: str) -> None:
    compare(name, dtype)


@pytest.mark.soak
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*nets.NETS, *zoo.names()])
def test_all_models(name: str, dtype: str) -> None:
    compare(name, dtype)


def test_a_training_step_uses_the_device_and_agrees() -> None:
    compare_training_step(cuda_device())
