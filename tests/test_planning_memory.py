"""Planning stays within max_bytes and 32 MiB, whatever the graph: pads in parts of their axes, states of kernels, nodes with very
many results. The peak is that of all that planning allocates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.ir.function import Tensor
from tests.capi import Allocator, Chain, Failure

MB = 1 << 20
BESIDE = 32 * MB


def peak(data: bytes, max_bytes: int = 0) -> tuple[int, str, dict[str, int]]:
    """The most bytes that planning holds besides the model, the error or "", and numbers of the plan."""
    allocator = Allocator()
    with Chain(data, allocator) as chain:
        before = allocator.live.most = allocator.live.now
        try:
            chain.make_plan(max_bytes=max_bytes)
        except Failure as failure:
            return allocator.live.most - before, str(failure), {}
        info = chain.info()
        return allocator.live.most - before, "", {name: getattr(info, name) for name in ("total", "bookkeeping")}


def graph_of(shape: tuple[int, ...], body: Any, dtype: str = "f32") -> bytes:
    graph = linnet.Graph()
    x = graph.placeholder("x", shape, dtype)
    y = body(x)
    graph.signature("infer", {"x": x}, {f"y{i}": t for i, t in enumerate(y if isinstance(y, list) else [y])})
    return graph.to_bytes()


def pad(x: Tensor, pads: list[int], mode: str) -> list[Tensor]:
    return ops.copy([x], kind="pad", pads=pads, pad_mode=mode)


def numbers(n: int, before: int, after: int, mode: str) -> np.ndarray:
    """Which of n elements the result of a pad takes, element by element."""
    i = np.arange(-before, n + after)
    if mode == "edge":
        return i.clip(0, n - 1)
    if mode == "wrap" or n == 1:
        return i % n
    i %= 2 * (n - 1)
    return np.where(i < n, i, 2 * (n - 1) - i)


@pytest.mark.parametrize("mode", ["reflect", "wrap", "edge"])
def test_pads_many_times_as_long_as_the_axis(mode: str) -> None:
    for n in (1, 2, 3, 5):
        for before, after in (
            (0, 0),
            (1, 0),
            (0, 1),
            (n, n),
            (2 * n + 1, 3 * n - 2),
            (4 * n - 4, 31),
            (17, 8 * n - 7),
            (40, 0),
        ):
            x = np.arange(2 * n, dtype=np.float32).reshape(2, n)
            pads = [3, before, 2, after]
            want = x[numbers(2, 3, 2, mode)][:, numbers(n, before, after, mode)]
            graph = graph_of((2, n), lambda t, pads=pads: pad(t, pads, mode))
            for reference in (False, True):
                session = linnet.Session(graph, reference=reference)
                np.testing.assert_array_equal(session.run({"x": x})["y0"], want, f"{n} {before} {after}")


@pytest.mark.parametrize("mode", ["reflect", "wrap", "edge", "constant"])
def test_a_pad_takes_the_memory_of_its_pieces(mode: str) -> None:
    """Not that of its elements, nor of its repetitions: it is the same for a thousand and for 2^40."""
    found = [
        peak(graph_of((3, 2), lambda t, n=n: pad(t, [0, n, 5, n], mode), "u8")) for n in (1000, 1_000_000, 1 << 40)
    ]
    assert len({numbers["bookkeeping"] for _, _, numbers in found}) == 1
    assert max(most for most, _, _ in found) < 20_000


def test_a_folded_pad_takes_little_more_than_its_result() -> None:
    def body(x: Tensor) -> Tensor:
        t = x.function.constant(np.arange(4, dtype=np.float32).reshape(2, 2))
        y = x.function.emit(
            "copy", [t], {"kind": "pad", "pads": [0, 0, 1998, 1998], "pad_mode": "reflect"}, fold=False
        )[0]
        return x + x.function.emit("reduce", [y], {"kind": "max", "axes": [0, 1]}, fold=False)[0]

    most, error, _ = peak(graph_of((1,), body), 64 * MB)
    assert not error and most < 20 * MB


def test_states_of_kernels_are_part_of_the_bound() -> None:
    """A pad of eight axes that all go around several times has 4^8 pieces: 20 MB for a result of 43 MB."""

    def body(x: Tensor) -> Tensor:
        for _ in range(6):
            x = pad(x, [1] * 8 + [5] * 8, "reflect")[0]
            x = ops.copy([x], kind="slice", starts=[2] * 8, ends=[5] * 8)[0]
        return x

    data = graph_of((3,) * 8, body, "u8")
    free, error, _ = peak(data)
    assert not error and free > 90 * MB
    most, error, _ = peak(data, 60 * MB)
    assert "planning needs more memory than linnet_plan_config.max_bytes allows" in error and most <= 60 * MB + BESIDE


@pytest.mark.parametrize("count", [40_000])
def test_a_node_with_very_many_results(count: int) -> None:
    def body(x: Tensor) -> Tensor:
        parts = ops.copy([x], kind="split", axis=0, shape=[1] * count, outputs=count)
        return ops.copy(list(parts)[::-1], kind="concat", axis=0)

    data = graph_of((count,), body)
    free, error, plan = peak(data)
    assert not error and free < 1500 * count
    most, error, _ = peak(data, 4 * MB)
    assert (
        "planning needs more memory than linnet_plan_config.max_bytes allows" in error
        and "which is the limit plus 32 MiB" in error
    )
    assert most <= 4 * MB + BESIDE < free
    most, error, _ = peak(data, plan["total"])
    assert not error and most <= plan["total"] + BESIDE
