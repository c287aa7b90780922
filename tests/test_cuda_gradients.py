"""Gradients of convolutions on the CUDA device by its own kernels, on the stand-ins: those of the weights, and those of the
inputs, which are transposed convolutions. The CPU has the results."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda_device import clean, cuda_device
from tests.opencl_cases import Cases, values
from tests.test_opencl_gradients import CONVS, Conv, add_conv

# As CONVS: sizes beyond a tile, sums of several parts, and planes of even and odd sizes.
LARGE: list[Conv] = [
    (3, 8, 70, 1, [(9, 3, 1, 1, (1, 1)), (7, 3, 1, 1, (1, 1))]),
    (2, 3, 33, 1, [(23, 5, 2, 1, (2, 2)), (22, 5, 2, 1, (2, 2))]),
    (9, 66, 130, 1, [(13, 1, 1, 1, (0, 0)), (12, 1, 1, 1, (0, 0))]),
    (5, 40, 36, 2, [(12, 3, 1, 2, (2, 2)), (6, 3, 2, 1, (0, 1))]),
    (2, 18, 17, 1, [(5, 3, 1, 1, (1, 1)), (6, 2, 2, 1, (0, 0)), (7, 3, 2, 2, (2, 1))]),
]
KINDS = [
    ("tensor", "f32", 3e-3, "tf32"),
    ("tensor", "f16", 0, "f32"),
    ("tensor", "bf16", 0, "f32"),
    ("tiles", "f32", 0, "f32"),
]


@pytest.mark.parametrize(("way", "dtype", "tolerance", "precision"), KINDS)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_gradients_of_weights(way: str, dtype: str, tolerance: float, precision: str, last: bool) -> None:
    cases, kernel = Cases("conv_gradient", cuda_device), f"conv_gradient_{way}"
    for convs in (CONVS, LARGE):
        for case in convs:
            add_conv(cases, case, dtype, last)
    with clean():
        cases.check(f"kernel={kernel}", tolerance, kernel, precision)


def test_gradients_of_weights_have_the_same_bits_in_each_run() -> None:
    cases = Cases("conv_gradient", cuda_device)
    add_conv(cases, LARGE[0], "f32", last=False)
    with clean():
        session = cases.session("kernel=conv_gradient_tensor", "tf32")
        assert {s.kernel for s in session.steps if s.op == "conv_gradient"} == {"conv_gradient_tensor"}
        first, again = (next(iter(session.run(cases.feeds).values())) for _ in range(2))
        del session
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(("way", "dtype", "tolerance", "precision"), KINDS)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_gradients_of_inputs(way: str, dtype: str, tolerance: float, precision: str, last: bool) -> None:
    """Of convolutions of stride 1: transposed ones, whose weights are fed."""
    cases, kernel = Cases("conv_transpose", cuda_device), f"conv_transpose_{way}"
    for images, channels, outputs, groups, axes in (*CONVS, *LARGE):
        if groups > 2:
            continue
        size, taps = [a[0] for a in axes], [a[1] for a in axes]
        channels, outputs = (channels + 7, outputs + 9) if groups == 1 else (8 * groups, 12 * groups)
        if images == 3:
            channels = 64
        x = [images, *size, channels] if last else [images, channels, *size]
        more = [values(dtype, channels, outputs // groups, *taps), values(dtype, outputs) if images == 2 else None]
        cases.add(values(dtype, *x), dtype, more=more, group=groups, dilations=[a[3] for a in axes],
                  pads=[a[4][i] for i in (0, 1) for a in axes], channel_axis=-1 if last else 1)  # fmt: skip
    with clean():
        cases.check(f"kernel={kernel}", tolerance, kernel, precision)
