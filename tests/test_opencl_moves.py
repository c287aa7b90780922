"""Gather and scatter of single elements on the OpenCL device, compared with the CPU's reference. The cases are those of `linnet
check-device`."""

from __future__ import annotations

import pytest

from linnet.conformance.cases import all_cases
from linnet.conformance.running import quiet, run_cases
from tests.opencl_device import opencl_device


@pytest.mark.parametrize("dtype", ["f32", *(pytest.param(d, marks=pytest.mark.more) for d in ("f16", "i8", "i64"))])
def test_indices_that_are_shorter_along_other_axes_too(dtype: str) -> None:
    cases = [case for case in all_cases() if case.note.startswith("shorter indices") and case.dtype == dtype]
    with quiet():
        results = run_cases(opencl_device(), cases)
    assert len(results) == 12
    assert {(result.status, result.kernel) for result in results} == {("agrees", "gather"), ("agrees", "scatter")}, (
        results
    )
