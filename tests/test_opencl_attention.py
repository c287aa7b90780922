"""The op `attention` on the OpenCL device: it agrees with the CPU for every operand and attribute, and its scores have no
memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import linnet
from linnet import nn, ops
from tests.opencl_device import opencl_device

Array = npt.NDArray[Any]
RNG = np.random.default_rng(5)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def graph_of(feeds: dict[str, Array], dtype: str = "f32", **attributes: Any) -> linnet.Graph:
    """One attention, whose floats have the dtype."""
    graph = linnet.Graph()
    fed = {name: graph.placeholder(name, x.shape, x.dtype) for name, x in feeds.items()}
    real = {name: x.cast(dtype) if feeds[name].dtype == np.float32 else x for name, x in fed.items()}
    graph.signature("infer", fed, {"y": ops.attention(**real, **attributes).cast("f32")})
    return graph


def compare(graph: linnet.Graph, feeds: dict[str, Array], tolerance: float = 1e-5) -> Array:
    """The device's result, which is the CPU's; each attention is one step of the device."""
    session = linnet.Session(graph, device=opencl_device())
    steps = [step for step in session.steps if step.op == "attention"]
    assert steps and all((step.device, step.kernel) == ("opencl", "attention") for step in steps), steps
    got, want = session.run(feeds)["y"], linnet.Session(graph).run(feeds)["y"]
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())
    return np.asarray(got)


def operands(batch: tuple[int, ...], m: int, n: int, depth: int, size: int, past: int = 0) -> dict[str, Array]:
    found = {"query": floats(*batch, m, depth), "key": floats(*batch, n, depth), "value": floats(*batch, n, size)}
    if past:
        found |= {"past_key": floats(*batch, past, depth), "past_value": floats(*batch, past, size)}
    return found


# Queries and keys around the blocks of 16, 32 and 64, and no multiples of them; more values than a group computes. PoCL takes 7
# seconds for each program, which depends on the numbers of rows and values of an item, on the operands and on the attributes.
SIZES = [
    (1, 1, 4, 4), (17, 70, 32, 32), *(pytest.param(s, marks=pytest.mark.more) for s in ((65, 129, 20, 48), (9, 40, 40, 260)))
]  # fmt: skip


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(size: tuple[int, int, int, int]) -> None:
    feeds = operands((2, 3), *size)
    compare(graph_of(feeds), feeds)


OPTIONS: list[Any] = [
    ("bool", {"causal": "end", "window": 40}),
    ("past and lengths", {"causal": "end"}),
    *(
        pytest.param(*one, marks=pytest.mark.more)
        for one in (
            ("floats", {"cap": 1.5}),
            ("lengths", {"scale": 0.3}),
            ("lengths", {"causal": "start"}),
            ("past", {"causal": "start", "window": 30, "cap": 2.0}),
            ("past and mask", {"causal": "end", "window": 30}),
        )
    ),
]


@pytest.mark.parametrize(("given", "attributes"), OPTIONS)
def test_operands(given: str, attributes: dict[str, Any]) -> None:
    m, n, past = 20, 70, 50 if "past" in given else 0
    feeds = operands((2, 3), m, n, 8, 12, past)
    if given == "bool":
        feeds["mask"] = RNG.random((m, n)) < 0.6
        feeds["mask"][3] = False  # a query that sees no key
    if "mask" in given or given == "floats":
        feeds["mask"] = np.where(RNG.random((2, 1, 1, n + past)) < 0.7, floats(2, 1, 1, n + past), -np.inf)
        feeds["mask"] = feeds["mask"].astype(np.float32)
    if "lengths" in given:
        feeds["lengths"] = np.array([13, past or n], np.int32)
    got = compare(graph_of(feeds, **attributes), feeds)
    if given == "bool":
        assert (got[:, :, 3] == 0).all()


def test_keys_that_are_shared_and_transposed() -> None:
    """Two heads of queries for each head of keys, whose elements lie one behind the other along the keys."""
    feeds = operands((2, 3), 17, 33, 8, 12)
    feeds["query"] = floats(2, 3, 2, 17, 8)
    feeds["key"] = np.ascontiguousarray(feeds["key"].swapaxes(-1, -2))[:, :, None]
    feeds["value"] = feeds["value"][:, :, None]
    compare(graph_of(feeds, key_transposed=True), feeds)


@pytest.mark.more
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves(dtype: str) -> None:
    feeds = operands((2, 3), 17, 70, 32, 32)
    compare(graph_of(feeds, dtype, causal="end"), feeds, 4e-3 if dtype == "f16" else 2e-2)


def test_a_length_out_of_range_fails_the_run() -> None:
    feeds = operands((2,), 3, 5, 4, 4) | {"lengths": np.array([2, 6], np.int32)}
    session = linnet.Session(graph_of(feeds), device=opencl_device())
    with pytest.raises(linnet.Error, match="the index 6 is out of range for an axis of size 6"):
        session.run(feeds)
    feeds["lengths"][1] = 5
    np.testing.assert_allclose(
        session.run(feeds)["y"], linnet.Session(graph_of(feeds)).run(feeds)["y"], rtol=0, atol=1e-5
    )


def test_scores_have_no_memory() -> None:
    feeds = operands((2,), 30, 900, 16, 32)
    assert (
        linnet.Session(graph_of(feeds), device=opencl_device()).memory["total"]
        < 2 * 30 * 900 * 4 + sum(x.nbytes for x in feeds.values()) * 2
    )


def test_a_transformer() -> None:
    """The attention of an encoder is one step of the device."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (2, 20, 64))
    graph.signature("infer", {"x": x}, {"y": nn.transformer_encoder_layer(x, 2, 96)})
    frozen = graph.freeze()
    assert [node.op for function in frozen.functions for node in function.nodes].count("attention") == 1
    compare(frozen, {"x": floats(2, 20, 64)})
