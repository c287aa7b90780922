"""Schedules against PyTorch's schedulers, step by step, and as the learning rate of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import schedules as s
from linnet.facade import Graph

STEPS = 60
CASES: dict[str, tuple[s.Schedule, Callable[[Any, Any], Any]]] = {
    "constant": (s.constant(0.5), lambda o, lr: lr.ConstantLR(o, 1.0)),
    "step": (s.step(0.5, 7, 0.3), lambda o, lr: lr.StepLR(o, 7, 0.3)),
    "multi_step": (s.multi_step(0.5, [5, 20, 21], 0.5), lambda o, lr: lr.MultiStepLR(o, [5, 20, 21], 0.5)),
    "exponential": (s.exponential(0.5, 0.93), lambda o, lr: lr.ExponentialLR(o, 0.93)),
    "linear": (s.linear(0.5, 17, 0.2, 0.9), lambda o, lr: lr.LinearLR(o, 0.2, 0.9, 17)),
    "polynomial": (s.polynomial(0.5, 40, 2.0), lambda o, lr: lr.PolynomialLR(o, 40, 2.0)),
    "cosine": (s.cosine(0.5, 25, 0.01), lambda o, lr: lr.CosineAnnealingLR(o, 25, 0.01)),
    "restarts": (s.cosine_restarts(0.5, 8, 1, 0.01), lambda o, lr: lr.CosineAnnealingWarmRestarts(o, 8, 1, 0.01)),
    "growing": (s.cosine_restarts(0.5, 5, 2), lambda o, lr: lr.CosineAnnealingWarmRestarts(o, 5, 2)),
    "one_cycle": (s.one_cycle(0.5, 60), lambda o, lr: lr.OneCycleLR(o, 0.5, 60, cycle_momentum=False)),
    "three_phases": (
        s.one_cycle(0.5, 60, rise=0.4, start=10.0, end=100.0, cosine=False, three_phases=True),
        lambda o, lr: lr.OneCycleLR(
            o, 0.5, 60, pct_start=0.4, anneal_strategy="linear", div_factor=10.0, final_div_factor=100.0,
            three_phase=True, cycle_momentum=False,
        ),
    ),
    "warm_up": (
        s.warm_up(s.cosine(0.5, 30), 10, 0.1),
        lambda o, lr: lr.SequentialLR(o, [lr.LinearLR(o, 0.1, 1.0, 10), lr.CosineAnnealingLR(o, 30)], [10]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rates_equal_pytorchs(name: str, torch: Any) -> None:
    mine, make = CASES[name]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.5)
    scheduler = make(optimizer, torch.optim.lr_scheduler)
    for n in range(STEPS):
        assert mine.at(n) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9, abs=1e-12), f"step {n}"
        optimizer.step()
        if n + 1 < STEPS:
            scheduler.step()


@pytest.mark.parametrize("rate", [CASES["warm_up"][0], lambda n: 0.5 / (n + 1.0)], ids=["schedule", "function"])
def test_a_graph_follows_its_schedule(rate: Any) -> None:
    graph = Graph()
    w = graph.variable("w", np.zeros(3))
    loss = w.sum()
    graph.signature("train", {}, {"loss": loss}, updates=linnet.SGD(rate).minimize(loss))
    session = linnet.Session(graph, "train")
    before = 0.0
    for n in range(40):
        session.run({})
        after = float(session.variables["w"][0])
        wanted = rate.at(n) if isinstance(rate, s.Schedule) else 0.5 / (n + 1)
        assert before - after == pytest.approx(wanted, rel=1e-9)
        before = after


def test_epochs_hold_a_rate() -> None:
    by_epoch = s.hold(s.exponential(1.0, 0.5), 10)
    assert [by_epoch.at(n) for n in (0, 9, 10, 19, 20)] == [1.0, 1.0, 0.5, 0.5, 0.25]


def test_a_tensor_or_variable_may_be_the_rate() -> None:
    graph = Graph()
    w, rate = graph.variable("w", np.zeros(2)), graph.variable("rate", np.float32(0.5), trainable=False)
    loss = w.sum()
    graph.signature("train", {}, {"loss": loss}, updates=linnet.SGD(rate).minimize(loss))
    session = linnet.Session(graph, "train")
    session.run({})
    session.variables["rate"] = np.float32(0.25)
    session.run({})
    assert session.variables["w"].tolist() == [-0.75, -0.75]


def _minimized(rate: Any) -> Any:
    graph = Graph()
    return linnet.SGD(graph.constant(rate)).minimize(graph.variable("w", np.float32(1.0)) * 1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: s.step(0.1, 0), "'every'.*1 or more, got 0"),
        (lambda: s.piecewise([0.1, 0.01], [5, 6]), "1 increasing steps, got \\[5, 6\\]"),
        (lambda: linnet.SGD(-1.0), "'learning_rate'.*0 or more, got -1.0"),
        (lambda: linnet.SGD("fast"), "learning rate has the wrong type"),
        (lambda: linnet.Adam(betas=(0.9,)), "two betas"),
        (lambda: _minimized(np.ones(2, np.float32)), r"one number; expected a float of shape \[\], got f32 \(2,\)"),
    ],
)
def test_bad_rates_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(linnet.UsageError, match=message):
        make()
