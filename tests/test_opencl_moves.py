"""Gather and scatter of single elements, and random numbers, on the OpenCL device, compared with the CPU's reference. The
cases are those of `linnet check-device`."""

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


def test_random_numbers() -> None:
    """Bits and uniform numbers are those of the CPU."""
    cases = [case for case in all_cases() if case.op == "random"]
    with quiet():
        results = run_cases(opencl_device(), cases)
    assert {(result.status, result.kernel) for result in results} == {("agrees", "random")}, results
    exact = [result.worst for case, result in zip(cases, results, strict=True) if case.attributes["kind"] != "normal"]
    assert len(exact) > 10 and max(exact) == 0
