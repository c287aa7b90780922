"""Four steps of every optimizer against its definition in NumPy, on gradients that are fed; no other library is needed.
The epsilons are large, so that their position in the formula matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.facade import Graph

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
START = RNG.standard_normal((3, 4))
GRADIENTS = [RNG.standard_normal((3, 4)) for _ in range(4)]


def sgd(rate: float) -> Iterator[Array]:
    w = START
    for g in GRADIENTS:
        yield (w := w - rate * g)


def momentum(rate: float, share: float, nesterov: bool = False, dampening: float = 0.0) -> Iterator[Array]:
    w, m = START, np.zeros_like(START)
    for i, g in enumerate(GRADIENTS):
        m = share * m + (1 - (dampening if i else 0)) * g
        yield (w := w - rate * (g + share * m if nesterov else m))


def adagrad(rate: float, epsilon: float, decay: float = 0.0, initial: float = 0.0) -> Iterator[Array]:
    w, s = START, np.full_like(START, initial)
    for i, g in enumerate(GRADIENTS):
        s = s + g * g
        yield (w := w - rate / (1 + i * decay) * g / (np.sqrt(s) + epsilon))


def adadelta(rate: float, rho: float, epsilon: float) -> Iterator[Array]:
    w, s, d = START, np.zeros_like(START), np.zeros_like(START)
    for g in GRADIENTS:
        s = rho * s + (1 - rho) * g * g
        step = np.sqrt(d + epsilon) / np.sqrt(s + epsilon) * g
        d = rho * d + (1 - rho) * step * step
        yield (w := w - rate * step)


def rmsprop(rate: float, alpha: float, epsilon: float, share: float = 0.0, centered: bool = False) -> Iterator[Array]:
    w, s, mean, m = START, np.zeros_like(START), np.zeros_like(START), np.zeros_like(START)
    for g in GRADIENTS:
        s, mean = alpha * s + (1 - alpha) * g * g, alpha * mean + (1 - alpha) * g
        m = share * m + g / (np.sqrt(s - mean * mean if centered else s) + epsilon)
        yield (w := w - rate * m)


def adam(
    rate: float, betas: tuple[float, float], epsilon: float, amsgrad: bool = False, decay: float = 0.0
) -> Iterator[Array]:
    w, m, v, top = START, np.zeros_like(START), np.zeros_like(START), np.zeros_like(START)
    for i, g in enumerate(GRADIENTS, 1):
        w = w * (1 - rate * decay)
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        top = np.maximum(top, v)
        root = np.sqrt((top if amsgrad else v) / (1 - betas[1] ** i))
        yield (w := w - rate * m / (1 - betas[0] ** i) / (root + epsilon))


def lars(rate: float, share: float, trust: float, epsilon: float, decay: float) -> Iterator[Array]:
    w, m = START, np.zeros_like(START)
    for g in GRADIENTS:
        long, steep = np.linalg.norm(w), np.linalg.norm(g)
        ratio = trust * long / (steep + decay * long + epsilon)
        m = share * m + rate * ratio * (g + decay * w)
        yield (w := w - m)


def lamb(rate: float, betas: tuple[float, float], epsilon: float, decay: float) -> Iterator[Array]:
    w, m, v = START, np.zeros_like(START), np.zeros_like(START)
    for i, g in enumerate(GRADIENTS, 1):
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        r = m / (1 - betas[0] ** i) / (np.sqrt(v / (1 - betas[1] ** i)) + epsilon) + decay * w
        yield (w := w - rate * np.linalg.norm(w) / np.linalg.norm(r) * r)


CASES: dict[str, tuple[Callable[[], linnet.Optimizer], Iterator[Array]]] = {
    "sgd": (lambda: linnet.SGD(0.3), sgd(0.3)),
    "momentum": (lambda: linnet.Momentum(0.3, 0.8), momentum(0.3, 0.8)),
    "nesterov": (lambda: linnet.Momentum(0.3, 0.8, nesterov=True), momentum(0.3, 0.8, True)),
    "dampening": (lambda: linnet.Momentum(0.3, 0.8, dampening=0.4), momentum(0.3, 0.8, dampening=0.4)),
    "adagrad": (lambda: linnet.AdaGrad(0.3, 0.2, rate_decay=0.5, initial=0.1), adagrad(0.3, 0.2, 0.5, 0.1)),
    "adadelta": (lambda: linnet.AdaDelta(0.3, 0.8, 0.2), adadelta(0.3, 0.8, 0.2)),
    "rmsprop": (lambda: linnet.RMSProp(0.3, 0.8, 0.2), rmsprop(0.3, 0.8, 0.2)),
    "rmsprop centered": (
        lambda: linnet.RMSProp(0.3, 0.8, 0.2, momentum=0.5, centered=True), rmsprop(0.3, 0.8, 0.2, 0.5, True)
    ),
    "adam": (lambda: linnet.Adam(0.3, (0.7, 0.8), 0.2), adam(0.3, (0.7, 0.8), 0.2)),
    "amsgrad": (lambda: linnet.Adam(0.3, (0.7, 0.3), 0.2, amsgrad=True), adam(0.3, (0.7, 0.3), 0.2, True)),
    "adamw": (lambda: linnet.AdamW(0.3, (0.7, 0.8), 0.2, weight_decay=0.4), adam(0.3, (0.7, 0.8), 0.2, decay=0.4)),
    "lars": (
        lambda: linnet.LARS(0.3, 0.8, trust=0.05, epsilon=0.2, weight_decay=0.4), lars(0.3, 0.8, 0.05, 0.2, 0.4)
    ),
    "lamb": (lambda: linnet.LAMB(0.3, (0.7, 0.8), 0.2, weight_decay=0.4), lamb(0.3, (0.7, 0.8), 0.2, 0.4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_the_definition(name: str) -> None:
    make, definition = CASES[name]
    graph = Graph()
    g = graph.placeholder("g", START.shape, "f64")
    loss = (graph.variable("w", START) * g).sum()  # its gradient is g
    graph.signature("train", {"g": g}, {"loss": loss}, updates=make().minimize(loss))
    session = linnet.Session(graph, "train")
    for given, expected in zip(GRADIENTS, definition, strict=True):
        session.run({"g": given})
        np.testing.assert_allclose(session.variables["w"], expected, rtol=1e-9, atol=1e-12)
