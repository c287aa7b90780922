"""The kernel that a plan chooses is the one of least cost among those that can run the call: shapes for which a kernel is
slow go to another, and still run on it where no other is fast."""

from __future__ import annotations

import platform

import numpy as np
import pytest

import linnet
from linnet import ops

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


@pytest.mark.parametrize(("stride", "gathers"), [(1, False), (2, True)])
def test_a_transposed_convolution_gathers_where_it_has_steps(stride: int, gathers: bool) -> None:
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, 24, 6, 6))
    w = graph.constant(np.random.default_rng(2).normal(size=(24, 24, 2, 2)).astype(np.float32))
    graph.signature("infer", {"x": x}, {"y": ops.conv_transpose(x, w, strides=[stride, stride])})
    for isa in linnet.isa_names()[1:]:
        assert ("gather" in _kernel(graph, "conv_transpose", isa)) == (gathers and isa != "sse2")


def test_rows_larger_than_the_cache_are_resized_pixel_by_pixel() -> None:
    for width, rows in ((64, True), (40000, False)):
        graph = linnet.Graph()
        x = graph.placeholder("x", (1, 1, 2, width))
        graph.signature("infer", {"x": x}, {"y": ops.resize(x, sizes=[1, 1, 4, 2 * width], mode="linear")})
        found = _kernel(graph, "resize")
        assert "reference" not in found
        assert ("rows" in found) == rows or not rows
