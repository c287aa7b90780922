"""The kernel that a plan chooses is the one of least cost among those that can run the call: shapes for which a kernel is
slow go to another, and still run on it where no other is fast."""

from __future__ import annotations

import platform

import numpy as np
import pytest

import linnet
from linnet import ops
from tests.bench_kernels import cases, planned

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="needs kernels with vectors")


def _kernel(graph: linnet.Graph, op: str, isa: str | None = None) -> str:
    """The kernel of the op's only step. Its result is compared with that of the reference."""
    rng = np.random.default_rng(1)
    fast, slow = linnet.Session(graph, isa_max=isa), linnet.Session(graph, reference=True)
    feeds = {port.name: rng.normal(size=port.shape).astype(np.float32) for port in fast.inputs}
    np.testing.assert_allclose(fast.run(feeds)["y"], slow.run(feeds)["y"], rtol=1e-4, atol=1e-4)
    (kernel,) = [step.kernel for step in fast.steps if step.op == op]
    return str(kernel)


def _conv(channels: int, group: int, kernel: tuple[int, int]) -> linnet.Graph:
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, channels, 9, 9))
    w = graph.constant(np.random.default_rng(2).normal(size=(channels, channels // group, *kernel)).astype(np.float32))
    graph.signature("infer", {"x": x}, {"y": ops.conv(x, w, group=group)})
    return graph


def test_one_channel_with_a_wide_kernel_is_a_product() -> None:
    assert "depthwise" in _kernel(_conv(8, 8, (3, 3)), "conv")
    assert "depthwise" in _kernel(_conv(1, 1, (3, 3)), "conv")
    assert "depthwise" not in _kernel(_conv(1, 1, (3, 5)), "conv")


def test_small_groups_take_a_product_rather_than_the_reference() -> None:
    for isa in linnet.isa_names()[1:]:
        found = _kernel(_conv(8, 4, (3, 3)), "conv", isa)
        assert "reference" not in found and "depthwise" not in found


@pytest.mark.parametrize(("stride", "kernel"), [(1, 2), (2, 2), (2, 4)])
def test_a_transposed_convolution_is_a_product(stride: int, kernel: int) -> None:
    """With steps, it is a convolution to blocks of the output."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, 24, 6, 6))
    w = graph.constant(np.random.default_rng(2).normal(size=(24, 24, kernel, kernel)).astype(np.float32))
    graph.signature("infer", {"x": x}, {"y": ops.conv_transpose(x, w, strides=[stride, stride])})
    for isa in linnet.isa_names()[1:]:
        assert _kernel(graph, "conv_transpose", isa).startswith("conv_transpose_f32_")


def test_rows_larger_than_the_cache_are_resized_pixel_by_pixel() -> None:
    """If the elements of a pixel are not contiguous, only the kernel for rows can run the call."""
    for channels, width, kernel in ((16, 64, "rows"), (16, 2048, "rows"), (16, 2100, "channels"), (1, 40000, "rows")):
        graph = linnet.Graph()
        x = graph.placeholder("x", (1, 2, width, channels))
        graph.signature("infer", {"x": x}, {"y": ops.resize(x, sizes=[1, 4, 2 * width, channels], mode="linear")})
        assert f"resize_{kernel}__" in _kernel(graph, "resize")


def _chosen(case_op: str, case_name: str) -> str:
    """The kernel of a case of the bench, which measured these choices."""
    (case,) = [case for case in cases() if (case.op, case.name) == (case_op, case_name)]
    return planned(case, 1)[1].step.kernel


@pytest.mark.skipif("avx512" not in linnet.isa_names(), reason="compares kernels for AVX2 and AVX-512")
def test_short_lines_of_channels_take_narrower_vectors() -> None:
    """Measured: f32 with 8 channels 18 us, not 43. Integers are mixed into lanes first, so that short vectors cost no more:
    i8 with 12 channels 47 us, and 68 with AVX2; with 24, 72 and 84."""
    for channels, isa in ((8, "avx2"), (12, "avx2"), (16, "avx512"), (24, "avx2"), (32, "avx512"), (96, "avx512")):
        found = _chosen("conv", f"f32 depthwise {channels}x56x56, 3x3")
        assert "depthwise" in found and found.endswith(isa), (channels, found)
    for dtype in ("i8", "u8", "i16"):
        for channels in (12, 16, 24, 32, 96):
            found = _chosen("conv", f"{dtype} depthwise {channels}x56x56, 3x3")
            assert "integer_depthwise" in found and "__avx512" in found, (dtype, channels, found)
    assert _chosen("pool", "i8 max 8x56x56, 3x3/2").endswith("avx2")
    assert _chosen("pool", "i8 max 64x56x56, 3x3/2").endswith("avx512")


@pytest.mark.skipif("avx512vnni" not in linnet.isa_names(), reason="compares kernels for SSE2 and wider ones")
def test_integers_with_few_columns_take_the_widest_panels() -> None:
    """A panel of 32 columns of which most are empty is still level with one of 8 or faster. Measured for i8: 16 groups of 8
    columns 504 us and 1095, of 4 2440 and 2814; one channel 5x5 81 us, depthwise 42, and a line of 256 taps is 6 times faster."""
    for dtype in ("i8", "u8", "i16"):
        for columns in (3, 4, 8):
            assert _chosen("conv", f"{dtype} 16 groups of {columns}, 28x28, 3x3").endswith("avx512vnni")
        assert "depthwise" in _chosen("conv", f"{dtype} one channel 56x56, 5x5")


def test_gradients_of_convolutions_with_a_stride_scatter() -> None:
    """Measured for 64 to 64 channels, 4x4/2: 472 us, gathering 735. Without a stride, or with few inputs, another kernel
    is faster."""
    for name, scatters in (
        ("64x14x14 to 64, 4x4/2", True), ("512x4x4 to 64, 3x3/2", True), ("64x14x14 to 1, 4x4/2", True),
        ("32x28x28 to 32, 3x3/1", False), ("8x56x56 to 16, 2x2/2", False),
    ):  # fmt: skip
        assert ("scatter" in _chosen("conv_transpose", f"f32 {name}, weights of the run")) == scatters


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("channels", [1, 5, 24])
def test_windows_that_meet_are_a_product_with_its_epilogue(dtype: str, channels: int) -> None:
    """A clamp, a function and a sum with another tensor are parts of the step, and so is the bias."""
    rng = np.random.default_rng(3)
    number = {"f32": np.float32, "f16": np.float16}[dtype]
    shapes = {"x": (2, 3, 61, 11), "other": (2, 6, 183, channels)}
    values = {name: rng.normal(size=shape).astype(number) for name, shape in shapes.items()}
    for after in ("", "relu", "sigmoid", "add"):
        graph = linnet.Graph(seed=1)
        x, other = (graph.placeholder(name, value.shape, dtype) for name, value in values.items())
        w, bias = (graph.constant(rng.normal(size=n).astype(number)) for n in ((11, channels, 2, 3), channels))
        y = ops.conv_transpose(x, w, bias, strides=[2, 3], channel_axis=-1)
        y = y + other if after == "add" else getattr(ops, after)(y) if after else y
        graph.signature("infer", {"x": x, "other": other}, {"y": y})
        want = linnet.Session(graph, reference=True).run(values)["y"]
        for isa in linnet.isa_names()[1:]:
            session = linnet.Session(graph, isa_max=isa)
            kernels = [step.kernel for step in session.steps if step.op != "copy"]
            assert len(kernels) == 1 and "gather" not in kernels[0], kernels
            error = 1e-4 if dtype == "f32" else 1e-2
            found = session.run(values)["y"]
            np.testing.assert_allclose(found.astype(np.float32), want.astype(np.float32), rtol=error, atol=error)
