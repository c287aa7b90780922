"""Training steps of whole convolutional networks against PyTorch's: every gradient, then ten losses of plain SGD.
Both start with PyTorch's initial weights. Batch normalization is in training mode; its moving averages are compared too."""
# Dear: networks of full size are trained beside PyTorch.

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import linnet
from tests.train_models import batch, graph_of, twin
from tests.with_torch import torch

RATES = {"lenet5": 0.01, "resnet18": 2e-5, "mobilenet_v2": 1e-6}
"""Learning rates of SGD. With few samples per statistic, steps amplify rounding: with 0.01 the losses of MobileNetV2 in PyTorch's
f32 differ by 2.5 % from those in its f64 after one step, and those of ResNet-18 by 0.3 % after three. With these rates they
fall by 2 to 10 % in ten steps."""
Found = tuple[list[dict[str, Any]], dict[str, Any]]


def shape_of(name: str, batch: int, size: int) -> tuple[int, ...]:
    return (batch, 1, 28, 28) if name == "lenet5" else (batch, 3, size, size)


def made(name: str, shape: tuple[int, ...]) -> Any:
    peer = twin(name, shape)
    for layer in peer.layers:
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0  # each engine has its own random numbers
    return peer


def by_torch(name: str, peer: Any, x: Any, t: Any, steps: int) -> Found:
    """Losses and gradients of every step, and the moving averages at the end."""
    peer, found = copy.deepcopy(peer), []
    optimizer = torch.optim.SGD(peer.parameters(), lr=RATES[name])
    x = x.to(next(peer.parameters()).dtype)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(peer(x), t)
        loss.backward()
        found.append({"loss": float(loss.detach()), **{k: p.grad.numpy().copy() for k, p in peer.named_parameters()}})
        optimizer.step()
    return found, {k: v.numpy() for k, v in peer.named_buffers() if "running" in k}


def by_linnet(name: str, peer: Any, x: Any, t: Any, steps: int) -> Found:
    x = x.to(next(peer.parameters()).dtype)
    graph = graph_of(name, peer, tuple(x.shape), rate=RATES[name], gradients=True)
    session = linnet.Session(graph, "train", threads=2)
    found = []
    for _ in range(steps):
        values = session.run({"x": x.numpy(), "t": t.numpy()})
        found.append({key.removeprefix("gradient of "): value for key, value in values.items()})
    return found, {k: session.variables[k] for k, _ in peer.named_buffers() if "running" in k}


def errors(got: dict[str, Any], expected: dict[str, Any]) -> dict[str, float]:
    """Per tensor: the norm of the difference, relative to the tensor's. Some gradients are zero except for rounding (of a bias
    before a batch normalization): norms below a thousandth of the norm of all gradients count as that."""
    lengths = {key: float(np.linalg.norm(np.asarray(value, np.float64))) for key, value in expected.items()}
    least = 1e-3 * float(np.linalg.norm([v for key, v in lengths.items() if key != "loss"]))
    return {
        key: float(np.linalg.norm(np.asarray(got[key], np.float64) - np.asarray(value, np.float64)))
        / max(lengths[key], 0.0 if key == "loss" else least)
        for key, value in expected.items()
    }


def test_f64() -> None:
    """MobileNetV2 in f64, where rounding decides nothing: in f32, values next to the corners of relu6 fall on either side, and
    its gradients are no closer to PyTorch's f32 than these are to its f64, about 1e-3."""
    name, shape = "mobilenet_v2", (4, 3, 64, 64)
    peer, (x, t) = made(name, shape).double(), batch(name, shape)
    (got, averages), (expected, means) = by_linnet(name, peer, x, t, 3), by_torch(name, peer, x, t, 3)
    for step in range(3):
        assert max(errors(got[step], expected[step]).values()) < 1e-9, step
    assert all(np.allclose(averages[key], value, rtol=1e-8) for key, value in means.items())


@pytest.mark.parametrize("name", RATES)
def test_gradients_and_ten_losses(name: str) -> None:
    # ResNet-18's pictures are larger: in those of 64 x 64 one value is so near the corner of its relu that rounding decides on
    # which side it falls, and all gradients before it differ by 0.4 %. PyTorch's f64 says so, too.
    shape = shape_of(name, 8, 72 if name == "resnet18" else 64)
    peer, (x, t) = made(name, shape), batch(name, shape)
    got, averages = by_linnet(name, peer, x, t, 10)
    expected, means = by_torch(name, peer, x, t, 10)
    found = errors(got[0], expected[0])
    if name == "mobilenet_v2":
        exact, _ = by_torch(name, peer.double(), x, t, 1)
        own, its = (list(errors(one[0], exact[0]).values()) for one in (got, expected))
        assert np.median(own) < 2 * np.median(its) + 1e-4 and max(own) < 3 * max(its)
    elif max(found.values()) >= 1e-4:  # the sums of other processors may bring rounding back: f64 tells it from a fault
        wide = made(name, shape).double()
        (own, _), (its, _) = by_linnet(name, wide, x, t, 1), by_torch(name, wide, x, t, 1)
        assert max(errors(own[0], its[0]).values()) < 1e-9
        assert max(found.values()) < 1e-2, max(found, key=lambda key: found[key])
    for step in range(10):
        assert got[step]["loss"] == pytest.approx(expected[step]["loss"], rel=1e-4), f"step {step}"
    assert all(np.allclose(averages[key], value, rtol=1e-3, atol=1e-4) for key, value in means.items())
