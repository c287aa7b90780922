"""Optimizers against PyTorch: fifty steps of each, with every option, from the same start on the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.graph import Graph

torch = pytest.importorskip(
    "torch", reason="PyTorch is the reference: make test EXTRAS=torch, or pip install linnet[torch]"
)

STEPS = 50
SHAPES = {"w": (5, 7), "b": (7,)}


def start() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def problem(w: Any, b: Any, x: Any, t: Any, tanh: Callable[[Any], Any]) -> Any:
    """A loss that is not convex, in the operators that linnet and PyTorch share."""
    return ((tanh(x @ w + b) - t) ** 2).mean()


def batches() -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    return [
        {"x": rng.standard_normal((6, 5)).astype(np.float32), "t": rng.standard_normal((6, 7)).astype(np.float32)}
        for _ in range(STEPS)
    ]


def ours(optimizer: linnet.Optimizer) -> list[dict[str, Any]]:
    """The variables after each step."""
    graph = Graph()
    x, t = graph.placeholder("x", (6, 5)), graph.placeholder("t", (6, 7))
    variables = [graph.variable(name, value) for name, value in start().items()]
    loss = problem(*variables, x, t, linnet.ops.tanh)
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=optimizer.minimize(loss))
    session = linnet.Session(graph, "train")
    history = []
    for feeds in batches():
        session.run(feeds)
        history.append({name: session.variables[name] for name in SHAPES})
    return history


def theirs(make: Callable[[list[Any]], Any]) -> list[dict[str, Any]]:
    values = {name: torch.tensor(value, requires_grad=True) for name, value in start().items()}
    optimizer = make(list(values.values()))
    history = []
    for feeds in batches():
        optimizer.zero_grad()
        problem(*values.values(), torch.tensor(feeds["x"]), torch.tensor(feeds["t"]), torch.tanh).backward()
        optimizer.step()
        history.append({name: value.detach().numpy().copy() for name, value in values.items()})
    return history


def compare(found: list[dict[str, Any]], expected: list[dict[str, Any]], tolerance: float = 1e-5) -> None:
    for step, (a, b) in enumerate(zip(found, expected, strict=True)):
        for name in a:
            error = np.abs(a[name] - b[name]).max() / np.abs(b[name]).max()
            assert error < tolerance, f"step {step}, {name}: {error:.2e}"


CASES: dict[str, tuple[Callable[[], linnet.Optimizer], Callable[[Any], Any]]] = {
    "sgd": (lambda: linnet.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "sgd_decay": (lambda: linnet.SGD(0.1, weight_decay=0.2), lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.2)),
    "sgd_maximize": (
        lambda: linnet.SGD(0.01, maximize=True, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.01, maximize=True, weight_decay=0.1),
    ),
    "momentum": (lambda: linnet.Momentum(0.1, 0.8), lambda p: torch.optim.SGD(p, 0.1, momentum=0.8)),
    "momentum_dampened": (
        lambda: linnet.Momentum(0.1, 0.8, dampening=0.3, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, dampening=0.3, weight_decay=0.01),
    ),
    "nesterov": (
        lambda: linnet.Momentum(0.1, 0.8, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, nesterov=True),
    ),
    "adam": (lambda: linnet.Adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
    "adam_options": (
        lambda: linnet.Adam(0.02, (0.8, 0.95), 1e-4, weight_decay=0.1, maximize=True),
        lambda p: torch.optim.Adam(p, 0.02, (0.8, 0.95), 1e-4, weight_decay=0.1, maximize=True),
    ),
    "amsgrad": (lambda: linnet.Adam(0.05, amsgrad=True), lambda p: torch.optim.Adam(p, 0.05, amsgrad=True)),
    "adamw": (lambda: linnet.AdamW(0.02), lambda p: torch.optim.AdamW(p, 0.02)),
    "adamw_options": (
        lambda: linnet.AdamW(0.02, (0.7, 0.9), weight_decay=0.3, amsgrad=True),
        lambda p: torch.optim.AdamW(p, 0.02, (0.7, 0.9), weight_decay=0.3, amsgrad=True),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fifty_steps_equal_pytorch(name: str) -> None:
    mine, reference = CASES[name]
    compare(ours(mine()), theirs(reference))
