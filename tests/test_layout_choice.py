"""Which layout a region of the graph gets (runtime_c/plan/graph/layouts.c): the cost of its kernels and conversions decides. The
results do not depend on it."""

from __future__ import annotations

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph


def weights(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return (np.random.default_rng(3).standard_normal(shape) / np.prod(shape[1:])).astype(dtype)


def one_conv(
    shape: tuple[int, ...], out: int, kernel: int, stride: int = 1, dtype: type = np.float32
) -> tuple[linnet.Session, np.ndarray]:
    """x -> softmax along the last axis -> conv -> softmax -> y. Softmax wants dense operands. Returns the session and an x."""
    graph = Graph()
    names = {np.float32: "f32", np.float64: "f64", np.float16: "f16"}
    x = graph.placeholder("x", shape, names[dtype])
    w = graph.constant(weights(out, shape[1], kernel, kernel, dtype=dtype), "w")
    y = ops.conv(ops.softmax(x, axis=-1), w, strides=[stride, stride], pads=[kernel // 2] * 4, channel_axis=1)
    graph.signature("infer", {"x": x}, {"y": ops.softmax(y, axis=-1)})
    session = linnet.Session(graph, threads=1)
    value = np.random.default_rng(4).standard_normal(shape).astype(dtype)
    got = session.run({"x": value})["y"]
    plain = linnet.Session(graph, reference=True).run({"x": value})["y"]
    np.testing.assert_allclose(
        got.astype(np.float64), plain.astype(np.float64), rtol=2e-2 if dtype == np.float16 else 1e-5
    )
    return session, value


def layout_of(session: linnet.Session) -> str:
    return next(step.layout for step in session.steps if step.op == "conv")


def copies(session: linnet.Session) -> int:
    return sum(step.op == "copy" for step in session.steps)


def test_a_convolution_with_fast_kernels_is_worth_its_conversions() -> None:
    session, _ = one_conv((1, 16, 12, 10), 24, 3)
    assert layout_of(session) == "channels_last" and copies(session) == 2


def test_a_convolution_of_one_result_channel_gathers_for_every_tap() -> None:
    """The result has the same bytes in both layouts, and the kernel could read dense channels, but reads each nine times."""
    session, _ = one_conv((1, 16, 12, 10), 1, 3)
    assert layout_of(session) == "channels_last" and copies(session) == 1


def test_a_convolution_that_reads_a_part_of_its_input_stays_dense() -> None:
    """A quarter of the elements is gathered; a conversion would move all of them."""
    session, _ = one_conv((1, 16, 32, 32), 1, 1, stride=2)
    assert layout_of(session) == "dense" and copies(session) == 0


def test_a_convolution_without_fast_kernels_stays_dense() -> None:
    """Both layouts have only the reference, so conversions would gain nothing."""
    session, _ = one_conv((1, 5, 7, 6), 6, 3, dtype=np.float64)
    assert layout_of(session) == "dense" and copies(session) == 0


def test_half_floats_are_judged_by_the_kernels_that_will_run() -> None:
    """The f16 convolution has only a reference, and later runs in f32 between casts."""
    session, _ = one_conv((1, 16, 12, 10), 24, 3, dtype=np.float16)
    assert layout_of(session) == "channels_last"


@pytest.mark.parametrize("fast", [False, True])
def test_the_convolutions_of_a_region_decide_together(fast: bool) -> None:
    """Two convolutions with a pointwise op between them: alone, the second one would read dense channels."""
    graph = Graph()
    x = graph.placeholder("x", (1, 16, 32, 32))
    y = ops.softmax(x, axis=-1)
    if fast:
        y = ops.conv(y, graph.constant(weights(16, 16, 3, 3), "w0"), pads=[1] * 4, channel_axis=1)
    y = y * 2.0
    y = ops.conv(y, graph.constant(weights(1, 16, 1, 1), "w1"), strides=[2, 2], channel_axis=1)
    graph.signature("infer", {"x": x}, {"y": ops.softmax(y, axis=-1)})
    session = linnet.Session(graph, threads=1)
    layouts = {step.layout for step in session.steps if step.op == "conv"}
    assert layouts == ({"channels_last"} if fast else {"dense"})
    value = np.random.default_rng(4).standard_normal((1, 16, 32, 32)).astype(np.float32)
    expected = linnet.Session(graph, reference=True).run({"x": value})["y"]
    np.testing.assert_allclose(session.run({"x": value})["y"], expected, rtol=1e-4)


def shuffled(groups: int, channels: int, dtype: str, conv: bool, *, fetched: bool = False) -> int:
    """x -> conv -> a shuffle of its channels -> depthwise conv -> y, or the shuffle alone. Compares it with the reference.
    Returns how many copies the plan has."""
    graph = Graph()
    kind = {"f32": np.float32, "f16": np.float16, "u8": np.uint8}[dtype]
    shape = (2, 8 if conv else channels, 9, 7)
    x = h = graph.placeholder("x", shape, dtype)
    if conv:
        h = ops.conv(x, graph.constant(weights(channels, 8, 1, 1, dtype=kind), "w"))
    split = ops.copy([h], kind="reshape", shape=(2, groups, channels // groups, 9, 7))[0]
    turned = ops.copy([split], kind="transpose", perm=(0, 2, 1, 3, 4))[0]
    y = ops.copy([turned], kind="reshape", shape=(2, channels, 9, 7))[0]
    if conv:
        y = ops.conv(y, graph.constant(weights(channels, 1, 3, 3, dtype=kind), "d"), group=channels, pads=[1] * 4)
    graph.signature("infer", {"x": x}, {"y": y, **({"turned": turned} if fetched else {})})
    feeds = {"x": (np.random.default_rng(5).standard_normal(shape) * 50).astype(np.int8).view(np.uint8).astype(kind)}
    expected = linnet.Session(graph, reference=True).run(feeds)
    for isa in linnet.isa_names():
        session = linnet.Session(graph, threads=2, isa_max=isa)
        for name, value in session.run(feeds).items():
            np.testing.assert_allclose(
                value.astype(np.float64), expected[name].astype(np.float64), rtol=1e-2 if kind == np.float16 else 1e-4,
                atol=1e-2 if kind == np.float16 else 1e-4,
            )  # fmt: skip
    return copies(session)


@pytest.mark.parametrize("groups", [2, 3, 4, 5, 34])
def test_a_channel_shuffle_is_one_copy(groups: int) -> None:
    """Between convolutions, it runs in their layout: the others are the conversions of x and y."""
    assert shuffled(groups, groups * 34, "f32", conv=True) == 3
    for dtype in ("f32", "f16", "u8"):
        assert shuffled(groups, groups * 6, dtype, conv=False) == 1


def test_a_shuffle_whose_parts_are_fetched_stays_in_parts() -> None:
    assert shuffled(4, 24, "f32", conv=True, fetched=True) > 3
