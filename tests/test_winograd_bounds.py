"""What docs/numerics.md states about Winograd's method, on every instruction set that has it: the error of an output, the
largest inputs, and precision="direct", which excludes it from forward passes, transposed convolutions and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph

ERROR = 1e-6  # of the largest input that the tile reads, times the sum of the absolute weights
LARGEST = 9e33  # of the largest input, times the sum over the channels of their largest weights
ISAS = linnet.isa_names()
SIZE = 16


def exact(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64), optimize=True)


def drawn(seed: int, channels: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1, channels, SIZE, SIZE)).astype(np.float32)
    return x, (rng.standard_normal((outputs, channels, 3, 3)) / (3 * channels**0.5)).astype(np.float32)


def graph_of(x: np.ndarray, w: np.ndarray) -> Graph:
    graph = linnet.Graph()
    p = graph.placeholder("x", x.shape)
    graph.signature("infer", {"x": p}, {"y": ops.conv(p, graph.constant(w), pads=[1] * 4)})
    return graph


def run(x: np.ndarray, w: np.ndarray, isa: str, **options: Any) -> tuple[np.ndarray, bool]:
    """Returns the result, and whether Winograd's method computed it."""
    session = linnet.Session(graph_of(x, w), isa_max=isa, threads=1, **options)
    return session.run({"x": x})["y"], any("winograd" in step.kernel for step in session.steps)


@pytest.mark.parametrize("power", range(0, 10, 3))
def test_the_error_is_that_of_the_largest_input_of_the_tile(power: int) -> None:
    ran = 0
    for seed, (channels, outputs) in enumerate(((16, 16), (32, 32), (64, 48))):
        x, w = drawn(seed, channels, outputs)
        x[0, seed, 5, 6 + seed] = 10.0**power
        want = exact(x, w)
        spread = np.pad(np.abs(x).max(axis=1)[0], 4)  # a tile of 4 x 4 outputs reads 6 x 6 inputs
        near = np.lib.stride_tricks.sliding_window_view(spread, (9, 9)).max(axis=(2, 3))
        bound = ERROR * near * np.abs(w).sum(axis=(1, 2, 3))[:, None, None]
        for isa in ISAS:
            got, winograd = run(x, w, isa)
            ran += winograd
            assert (np.abs(got - want)[0] <= bound).all(), isa
            direct, winograd = run(x, w, isa, precision="direct")
            read = np.lib.stride_tricks.sliding_window_view(np.pad(spread[4:-4, 4:-4], 1), (3, 3)).max(axis=(2, 3))
            assert not winograd and (np.abs(direct - want)[0] <= bound / near * read).all(), isa
    assert ran > 0 or not any("avx" in isa for isa in ISAS)


def test_inputs_of_any_size_below_the_stated_one_give_finite_results() -> None:
    x, w = drawn(7, 33, 32)
    for isa in ISAS:
        largest = LARGEST / np.abs(w).max(axis=(2, 3)).sum(axis=1).max()
        scaled = (x * (largest / np.abs(x).max())).astype(np.float32)
        assert np.isfinite(run(scaled, w, isa)[0]).all(), isa
        huge = (x * np.float32(3e37)).astype(np.float32)
        direct, winograd = run(huge, w, isa, precision="direct")
        assert not winograd and np.isfinite(direct).all()
        np.testing.assert_allclose(direct, exact(huge, w), atol=3e37 * 1e-5, rtol=1e-5)


def test_direct_excludes_the_method_everywhere() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 32, SIZE, SIZE))
    w = graph.variable("w", drawn(1, 32, 32)[1])
    t = graph.variable("t", drawn(2, 32, 32)[1])
    y = ops.conv_transpose(ops.conv(x, w, pads=[1] * 4), t, pads=[1] * 4)
    loss = (y * y).mean()
    dw, dt = linnet.gradients(loss, [w, t])
    graph.signature("train", {"x": x}, {"loss": loss}, updates={w: w - dw, t: t - dt})
    for isa in ISAS:
        usual, direct = (linnet.Session(graph, "train", isa_max=isa, precision=p) for p in ("f32", "direct"))
        assert not any("winograd" in step.kernel for step in direct.steps)
        assert direct.plan_info["precision"] == "direct"
        if "avx2" in isa or "avx512" in isa:
            assert sum("winograd" in step.kernel for step in usual.steps) > 1
