"""An LSTM language model and a transformer encoder against PyTorch's: every gradient, and the losses of ten steps."""

from __future__ import annotations

import numpy as np
import pytest

import linnet
from tests.train_models import SEQUENCES, as_linnet, batch, graph_of, twin
from tests.with_torch import torch

SHAPES = {"lstm_lm": (7, 5), "transformer": (3, 11)}


@pytest.mark.parametrize("name", SEQUENCES)
def test_gradients_and_ten_losses_are_those_of_pytorch(name: str) -> None:
    shape, rate = SHAPES[name], 0.1
    peer = twin(name, shape)
    session = linnet.Session(graph_of(name, peer, shape, rate, gradients=True), "train")
    optimizer = torch.optim.SGD(peer.parameters(), lr=rate)
    for step in range(10):
        x, t = batch(name, shape, seed=step)
        optimizer.zero_grad()
        wanted = torch.nn.functional.cross_entropy(peer(x), t)
        wanted.backward()
        found = session.run({"x": x.numpy(), "t": t.numpy()}, None if step == 0 else ["loss"])
        assert float(found["loss"]) == pytest.approx(wanted.item(), rel=1e-4), step
        for key, parameter in peer.named_parameters() if step == 0 else ():
            reference = as_linnet(key, parameter.grad.numpy())
            difference = np.abs(found[f"gradient of {key}"] - reference).max()
            assert difference <= 1e-4 * np.abs(reference).max(), (key, difference)
        optimizer.step()
    for key, parameter in peer.named_parameters():  # after ten steps the weights are also the same
        reference = as_linnet(key, parameter.detach().numpy())
        assert np.abs(session.variables[key] - reference).max() <= 1e-4 * np.abs(reference).max(), key


def test_the_gradient_of_cross_entropy_is_one_map() -> None:
    """The gradient uses no zeros, scatter and sum over the logits, and reuses the memory of the log-probabilities."""
    graph = linnet.Graph()
    x, t = graph.placeholder("x", ("batch", 1000)), graph.placeholder("t", ("batch",), "i64")
    (slope,) = linnet.gradients(linnet.softmax_cross_entropy(x, t).mean(), [x])
    graph.signature("infer", {"x": x, "t": t}, {"slope": slope})
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((64, 1000), np.float32), rng.integers(0, 1000, 64)
    session = linnet.Session(linnet.passes.run(graph))
    found = session.run({"x": logits, "t": labels})["slope"]
    own = torch.tensor(logits, requires_grad=True)
    torch.nn.functional.cross_entropy(own, torch.from_numpy(labels)).backward()
    np.testing.assert_allclose(found, own.grad.numpy(), rtol=1e-5, atol=1e-8)
    large = [step.op for step in session.steps if step.bytes >= logits.nbytes]
    assert large == ["softmax", "map"], large
