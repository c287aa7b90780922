"""Optimizers against PyTorch: fifty steps of each, with every option, from the same start on the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from tests.with_torch import torch

STEPS = 50
SHAPES = {"w": (5, 7), "b": (7,)}


def start(dtype: Any) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in SHAPES.items()}


def problem(w: Any, b: Any, x: Any, t: Any, tanh: Callable[[Any], Any]) -> Any:
    """A non-convex loss, in operators that linnet and PyTorch share."""
    return ((tanh(x @ w + b) - t) ** 2).mean()


def batches(dtype: Any, same: bool = False) -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    made = [
        {"x": rng.standard_normal((6, 5)).astype(dtype), "t": rng.standard_normal((6, 7)).astype(dtype)}
        for _ in range(STEPS)
    ]
    return made[:1] * STEPS if same else made


def ours(optimizer: linnet.Optimizer, dtype: Any = np.float32, same: bool = False) -> list[dict[str, Any]]:
    """The variables after each step."""
    graph = Graph()
    kind = {np.float32: "f32", np.float64: "f64"}[dtype]
    x, t = graph.placeholder("x", (6, 5), kind), graph.placeholder("t", (6, 7), kind)
    variables = [graph.variable(name, value) for name, value in start(dtype).items()]
    loss = problem(*variables, x, t, linnet.ops.tanh)
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=optimizer.minimize(loss))
    session = linnet.Session(graph, "train")
    history = []
    for feeds in batches(dtype, same):
        session.run(feeds)
        history.append({name: session.variables[name] for name in SHAPES})
    return history


def theirs(make: Callable[[list[Any]], Any], dtype: Any = np.float32, same: bool = False) -> list[dict[str, Any]]:
    values = {name: torch.tensor(value, requires_grad=True) for name, value in start(dtype).items()}
    optimizer = make(list(values.values()))
    history = []
    for feeds in batches(dtype, same):

        def closure(feeds: Any = feeds) -> Any:
            optimizer.zero_grad()
            loss = problem(*values.values(), torch.tensor(feeds["x"]), torch.tensor(feeds["t"]), torch.tanh)
            loss.backward()
            return loss

        optimizer.step(closure)
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
    "adagrad": (lambda: linnet.AdaGrad(0.1), lambda p: torch.optim.Adagrad(p, 0.1)),
    "adagrad_options": (
        lambda: linnet.AdaGrad(0.1, 1e-3, rate_decay=0.1, initial=0.2, weight_decay=0.1),
        lambda p: torch.optim.Adagrad(p, 0.1, eps=1e-3, lr_decay=0.1, initial_accumulator_value=0.2, weight_decay=0.1),
    ),
    "adadelta": (linnet.AdaDelta, torch.optim.Adadelta),
    "adadelta_options": (
        lambda: linnet.AdaDelta(0.5, 0.8, 1e-4, weight_decay=0.1, maximize=True),
        lambda p: torch.optim.Adadelta(p, 0.5, 0.8, 1e-4, weight_decay=0.1, maximize=True),
    ),
    "rmsprop": (lambda: linnet.RMSProp(0.01), lambda p: torch.optim.RMSprop(p, 0.01)),
    "rmsprop_centered": (
        lambda: linnet.RMSProp(0.01, 0.9, 1e-4, centered=True, weight_decay=0.1),
        lambda p: torch.optim.RMSprop(p, 0.01, 0.9, 1e-4, centered=True, weight_decay=0.1),
    ),
    "rmsprop_momentum": (
        lambda: linnet.RMSProp(0.01, momentum=0.8),
        lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.8),
    ),
    "rmsprop_both": (
        lambda: linnet.RMSProp(0.01, 0.9, 1e-4, momentum=0.8, centered=True),
        lambda p: torch.optim.RMSprop(p, 0.01, 0.9, 1e-4, momentum=0.8, centered=True),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fifty_steps_equal_pytorch(name: str) -> None:
    mine, reference = CASES[name]
    compare(ours(mine()), theirs(reference))


@pytest.mark.parametrize("history", [1, 3, 60])
def test_lbfgs_equals_pytorch(history: int) -> None:
    """In f64, because the recursion amplifies rounding; one batch, as a quasi-Newton method needs."""
    found = ours(linnet.LBFGS(0.1, history), np.float64, same=True)
    expected = theirs(lambda p: torch.optim.LBFGS(p, 0.1, max_iter=1, history_size=history), np.float64, same=True)
    compare(found, expected)


def test_lbfgs_follows_rosenbrocks_valley() -> None:
    """Rosenbrock's function is minimal at (1, ..., 1); gradient descent does not get there in thousands of steps."""
    graph = Graph()
    x = graph.variable("x", np.array([-1.2, 1.0]))
    loss = (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()
    exact = linnet.LBFGS(0.5, tolerance=1e-9, tolerance_change=0.0)
    graph.signature("train", {}, {"loss": loss}, updates=exact.minimize(loss))
    session = linnet.Session(graph, "train")
    for _ in range(100):
        session.run({})
    assert np.allclose(session.variables["x"], 1.0, rtol=0, atol=1e-8)


def test_lbfgs_finds_the_minimum_of_a_logistic_regression() -> None:
    """The reference is the minimum found by Newton's method in NumPy. SciPy 1.17's fmin_l_bfgs_b gets there in 13 iterations,
    with line searches."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(60, 4)), np.ones(60)])
    signs = np.where(rows @ [1.0, -2.0, 0.5, 0.0, 0.0] + 0.3 * rng.normal(size=60) > 0, 1.0, -1.0)

    def newton(w: np.ndarray) -> np.ndarray:
        p = 1 / (1 + np.exp(signs * (rows @ w)))
        slope = -rows.T @ (signs * p) / 60 + 0.01 * w
        return w - np.linalg.solve((rows.T * (p * (1 - p))) @ rows / 60 + 0.01 * np.eye(5), slope)

    expected = np.zeros(5)
    for _ in range(20):
        expected = newton(expected)
    assert np.allclose(newton(expected), expected, rtol=0, atol=1e-14)

    graph = Graph()
    x, t = graph.placeholder("x", (60, 5), "f64"), graph.placeholder("t", (60,), "f64")
    w = graph.variable("w", np.zeros(5))
    loss = ops.softplus(-(x @ w) * t).mean() + 0.005 * (w * w).sum()
    exact = linnet.LBFGS(tolerance=1e-10, tolerance_change=0.0)
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=exact.minimize(loss))
    session = linnet.Session(graph, "train")
    for _ in range(20):
        session.run({"x": rows, "t": signs})
    assert np.allclose(session.variables["w"], expected, rtol=0, atol=1e-8)


def lars(w: Any, g: Any, m: Any, rate: float, decay: float, trust: float) -> tuple[Any, Any]:
    """You, Gitman and Ginsburg 2017, algorithm 1, with momentum; vectors get plain momentum."""
    if w.ndim > 1:
        size, slope = np.linalg.norm(w), np.linalg.norm(g)
        rate = rate * trust * size / (slope + decay * size)
        g = g + decay * w
    m = 0.9 * m + rate * g
    return w - m, m


def lamb(w: Any, g: Any, m: Any, v: Any, t: int, rate: float, decay: float) -> tuple[Any, Any, Any]:
    """You et al. 2020, algorithm 2, with phi the identity; vectors get Adam's step."""
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    r = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6)
    if w.ndim > 1:
        r = r + decay * w
        r = r * np.linalg.norm(w) / np.linalg.norm(r)
    return w - rate * r, m, v


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_layerwise_rates_equal_the_papers(name: str) -> None:
    optimizer = (
        linnet.LARS(2.0, trust=0.02, weight_decay=0.1) if name == "lars" else linnet.LAMB(0.05, weight_decay=0.1)
    )
    found = ours(optimizer, np.float64)
    values = start(np.float64)
    state = {key: [np.zeros_like(value)] * 2 for key, value in values.items()}
    expected = []
    for t, feeds in enumerate(batches(np.float64), 1):
        tensors = {key: torch.tensor(value, requires_grad=True) for key, value in values.items()}
        problem(*tensors.values(), torch.tensor(feeds["x"]), torch.tensor(feeds["t"]), torch.tanh).backward()
        for key, tensor in tensors.items():
            g = tensor.grad.numpy()
            if name == "lars":
                values[key], state[key][0] = lars(values[key], g, state[key][0], 2.0, 0.1, 0.02)
            else:
                values[key], *state[key] = lamb(values[key], g, *state[key], t, 0.05, 0.1)
        expected.append(dict(values))
    compare(found, expected)
