"""Memory of training whole networks: the size of a step, and that a budget changes no bit of it.
The planner's own tests, over random graphs, are in test_updates.py."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest

import linnet
from tests.train_models import MODELS, graph_of, twin

pytestmark = pytest.mark.torch  # the networks have PyTorch's initial values

SMALL = {"lenet5": (8, 1, 28, 28), "resnet18": (4, 3, 64, 64), "mobilenet_v2": (4, 3, 64, 64), "transformer": (4, 16)}


def _feeds(session: linnet.Session) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        spec.name: rng.integers(0, 10, spec.shape)
        if spec.dtype.startswith("i")
        else rng.standard_normal(spec.shape, np.float32)
        for spec in session.inputs
    }


@pytest.mark.parametrize("name", SMALL)
def test_a_budget_changes_no_bit(name: str) -> None:
    """At the planner's minimum, and half way to it."""
    model = linnet.Model(graph_of(name, twin(name, SMALL[name]), SMALL[name]))
    usual = linnet.Session(model, "train", threads=2, store=linnet.Store(model))
    with pytest.raises(linnet.GraphError, match=r"more memory than .*max_bytes") as refused:
        linnet.Session(model, "train", threads=2, max_bytes=1)
    total, least = usual.memory["total"], int(refused.value.got.split()[0])
    assert "bytes or more" in refused.value.got and least <= total
    feeds = _feeds(usual)
    losses = [usual.run(feeds)["loss"] for _ in range(2)]
    for budget in ((total + least) // 2, least):
        session = linnet.Session(model, "train", threads=2, store=linnet.Store(model), max_bytes=budget)
        assert session.memory["total"] <= budget
        assert [session.run(feeds)["loss"] for _ in range(2)] == losses
        for variable in usual.variables:
            np.testing.assert_array_equal(session.variables[variable], usual.variables[variable], variable)


@pytest.mark.parametrize(
    ("name", "most", "least"),
    [("lenet5", 6, 6), ("mobilenet_v2", 480, 130), ("resnet18", 260, 150), ("alexnet", 350, 330)],
)
def test_what_a_step_takes(name: str, most: int, least: int) -> None:
    """In MB, at the benchmark's batch size (PyTorch's processes: LeNet-5 325, MobileNetV2 1,070); nothing is run."""
    graph = graph_of(name, twin(name))
    session = linnet.Session(graph, "train", threads=2)
    if platform.machine() == "x86_64" and "avx512" not in linnet.isa_names():
        # Lower tiles pack more: the largest variable of AlexNet, 151 MB (`as_is` in fast/gemm), 16 MB in ResNet-18.
        extra = {"alexnet": 152, "resnet18": 20}.get(name, 0)
        most, least = most + extra, least + extra
    assert session.memory["total"] < most * 1e6
    assert session.memory["gradients"] < session.memory["variables"]
    tight = linnet.Session(graph, "train", threads=2, max_bytes=int(least * 1e6))
    assert tight.memory["total"] < least * 1e6
    # Values are computed again only where the usual plan is too large; whether it is depends on the tiles of the processor.
    assert (tight.plan_info["recomputed"] > 0) == (session.memory["total"] >= least * 1e6)
    assert MODELS[name][1][0] == session.inputs[0].shape[0]  # type: ignore[index]
