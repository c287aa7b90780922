"""Whole models on liblinnet_cuda and the stand-ins for CUDA's driver against the CPU: how many nodes fall back, how far the
results are apart, and that the driver is called rightly. `make test` runs a small model, `make test-more` three, and `make soak`
every model of tests/zoo.py and tests/nets.py at four formats. The stand-ins compute on the processor, so it takes long."""
# Dear: the stand-in of the driver runs each block of each kernel on the CPU.

from __future__ import annotations

import gc

import numpy as np
import pytest

import linnet
from tests import nets, zoo
from tests.cuda_device import clean, cuda_device
from tests.device_models import DTYPES, compare_model, compare_training_step
from tests.test_opencl_attention import graph_of, operands

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


@pytest.mark.parametrize("past", [0, 50])
def test_attention(past: int) -> None:
    """Keys of this call alone, and with all other operands and attributes."""
    feeds, attributes = operands((2, 3), 20, 70, 8, 12, past), {}
    if past:
        feeds |= {"lengths": np.array([13, past], np.int32), "mask": np.arange(20 * 120).reshape(20, 120) % 7 > 1}
        attributes = {"causal": "end", "window": 40, "cap": 2.0}
    graph = graph_of(feeds, **attributes)
    with clean():
        session = linnet.Session(graph, device=cuda_device())
        assert {step.device for step in session.steps if step.op == "attention"} == {"cuda"}
        got = session.run(feeds)["y"]
        session.close()
        del session
        gc.collect()
    np.testing.assert_allclose(got, linnet.Session(graph).run(feeds)["y"], rtol=0, atol=1e-5)


def test_a_training_step_uses_the_device_and_agrees() -> None:
    compare_training_step(cuda_device())
