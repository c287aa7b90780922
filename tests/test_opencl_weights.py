"""Products of floats by weights of 4 and 8 bits on the OpenCL device, each kernel by its name, compared with the CPU's reference:
all quantization schemes, and sizes around the tiles. The cases are those of `linnet check-device`."""

from __future__ import annotations

import pytest

from linnet.conformance.case import Case
from linnet.conformance.cases import all_cases
from linnet.conformance.running import quiet, run_cases
from tests.opencl_device import opencl_device

CASES = [case for case in all_cases() if " by " in case.note]
KERNELS = ["matmul_weights", "matmul_weights_dot", "matmul_weights_local"]


def shapes(case: Case) -> tuple[tuple[int, ...], tuple[int, ...]]:
    a, b = case.operands[:2]
    assert a is not None and b is not None
    return a.shape, b.shape


def agree(cases: list[Case], kernel: str) -> None:
    device = opencl_device(f"kernel={kernel}")
    with quiet():
        results = run_cases(device, cases)
    bad = [(result.id, result.about, result.status, result.why) for result in results if result.status != "agrees"]
    assert not bad, bad
    for case, result in zip(cases, results, strict=True):
        if kernel != "matmul_weights_dot" or (case.attributes and shapes(case)[0][1] >= 4):  # the sum is contiguous
            assert result.kernel == kernel, result


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels(kernel: str) -> None:
    """17, 64, 65 and 65, 127, 67, which share programs."""
    wanted = {("i8", "columns"), ("u4", "blocks")}
    agree(
        [
            case
            for case in CASES
            if tuple(case.note.split(" by ")) in wanted and case.dtype == "f32" and not case.epilogue
            and shapes(case)[0][0] in (17, 65) and (case.attributes or kernel == "matmul_weights_local")
        ],
        kernel,
    )  # fmt: skip


@pytest.mark.more
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_all_schemes_and_sizes(kernel: str, dtype: str) -> None:
    agree([case for case in CASES if case.dtype == dtype], kernel)
