"""Whole models on the OpenCL device against the CPU: how many nodes fall back, and how far the results are apart. `make test`
and `make test-more` run a small one; `make soak` runs every model of tests/zoo.py and tests/nets.py at four formats."""

from __future__ import annotations

import pytest

from tests import nets, zoo
from tests.device_models import DTYPES, compare_model, compare_training_step
from tests.opencl_device import opencl_device


@pytest.mark.parametrize("dtype", ["f32", pytest.param("i8", marks=pytest.mark.more)])
def test_a_small_model(dtype: str) -> None:
    compare_model("ppocr_cls", dtype, opencl_device())


@pytest.mark.soak
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*nets.NETS, *zoo.names()])
def test_all_models(name: str, dtype: str) -> None:
    compare_model(name, dtype, opencl_device())


def test_a_training_step_uses_the_device_and_agrees() -> None:
    compare_training_step(opencl_device())
