"""Parts around an update rule: one map per variable, clipping, weight decay, accumulation, loss scaling, names, errors, and
user-defined optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import clip, ops, training
from linnet.autodiff import gradients
from linnet.facade import Graph
from linnet.ir.function import Tensor

SHAPES = {"w": (5, 7), "b": (7,)}


def start() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def feeds(batch: int = 6, seed: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((batch, 5)).astype(np.float32), "t": rng.standard_normal((batch, 7)).astype(np.float32)
    }  # fmt: skip


def model(graph: Graph) -> tuple[dict[str, Tensor], Tensor]:
    """Inputs and loss of a layer with a nonlinearity."""
    inputs = {"x": graph.placeholder("x", ("batch", 5)), "t": graph.placeholder("t", ("batch", 7))}
    w, b = (graph.variable(name, value) for name, value in start().items())
    return inputs, ((ops.tanh(inputs["x"] @ w + b) - inputs["t"]) ** 2).mean()


def train(optimizer: linnet.Optimizer, steps: int = 5) -> Mapping[str, Any]:
    graph = Graph()
    inputs, loss = model(graph)
    graph.signature("train", inputs, {"loss": loss}, updates=optimizer.minimize(loss))
    session = linnet.Session(graph, "train")
    for step in range(steps):
        session.run(feeds(seed=step))
    return session.variables.as_dict()


OPTIMIZERS: dict[str, Callable[..., linnet.Optimizer]] = {
    "SGD": linnet.SGD, "Momentum": lambda **o: linnet.Momentum(nesterov=True, dampening=0.0, **o), "AdaGrad": linnet.AdaGrad,
    "AdaDelta": linnet.AdaDelta, "RMSProp": lambda **o: linnet.RMSProp(centered=True, momentum=0.9, **o),
    "Adam": lambda **o: linnet.Adam(amsgrad=True, **o), "AdamW": linnet.AdamW,
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_update_is_one_map(name: str) -> None:
    """With weight decay, a schedule, clipping and all slots, one step of the plan per variable reads and writes them."""
    graph = Graph()
    inputs, loss = model(graph)
    rate = linnet.schedules.cosine(0.1, 100)
    optimizer = OPTIMIZERS[name](learning_rate=rate, weight_decay=0.1, clip=clip.by_global_norm(1.0))
    updates = optimizer.minimize(loss)
    graph.signature("train", inputs, {"loss": loss}, updates=updates)
    function = graph.signatures["train"].function
    makers: dict[str, set[int]] = {}
    for node in function.nodes:
        if node.op == "assign" and node.inputs[0] is not None and node.inputs[0].variable is not None:
            value = node.inputs[1]
            assert value is not None and value.node is not None and value.node.op == "map"
            makers.setdefault(node.inputs[0].variable.name.split("/")[0], set()).add(id(value.node))
    assert {key: len(nodes) for key, nodes in makers.items() if key in SHAPES} == {"w": 1, "b": 1}
    session = linnet.Session(graph, "train")
    session.run(feeds())
    named = [step for step in session.steps if step.name.startswith(("w/", "b/"))]
    assert sorted(step.name.split("/")[0] for step in named) == ["b", "w"] and {step.op for step in named} == {"map"}


def test_an_optimizer_of_ones_own() -> None:
    class Lion(linnet.Optimizer):  # Chen et al. 2023
        slots = ("momentum",)

        def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
            (momentum,) = slots
            step = (0.9 * momentum + 0.1 * g).sign()
            return w - rate * step, 0.99 * momentum + 0.01 * g

    found = train(Lion(0.01), steps=20)
    graph = Graph()
    inputs, loss = model(graph)
    dw, db = gradients(loss, [graph.variables["w"], graph.variables["b"]])
    graph.signature("infer", inputs, {"w": dw, "b": db})
    session = linnet.Session(graph)
    momentum = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    for step in range(20):
        for name, g in session.run(feeds(seed=step)).items():
            session.variables[name] = session.variables[name] - np.float32(0.01) * np.sign(
                0.9 * momentum[name] + 0.1 * g
            )
            momentum[name] = 0.99 * momentum[name] + 0.01 * g
    for name in SHAPES:
        np.testing.assert_allclose(found[name], session.variables[name], rtol=1e-5, atol=1e-6)
    assert found["lion/step"] == 20 and "w/lion/momentum" in found


def test_a_rule_that_forgets_a_slot_is_told() -> None:
    class Forgetful(linnet.Optimizer):
        slots = ("m",)

        def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
            return w - rate * g

    with pytest.raises(linnet.UsageError, match=r"Forgetful.rule.*2: the variable and m, got 1"):
        train(Forgetful())


@pytest.mark.parametrize("kind", ["by_value", "by_norm", "by_global_norm"])
@pytest.mark.parametrize("limit", [0.05, 1e3])
def test_clipping_equals_pytorch(kind: str, limit: float, torch: Any) -> None:
    found = train(linnet.SGD(0.5, clip=getattr(clip, kind)(limit)))
    values = [torch.tensor(value, requires_grad=True) for value in start().values()]
    optimizer = torch.optim.SGD(values, 0.5)
    for step in range(5):
        optimizer.zero_grad()
        x, t = (torch.tensor(value) for value in feeds(seed=step).values())
        ((torch.tanh(x @ values[0] + values[1]) - t) ** 2).mean().backward()
        if kind == "by_value":
            torch.nn.utils.clip_grad_value_(values, limit)
        elif kind == "by_global_norm":
            torch.nn.utils.clip_grad_norm_(values, limit)
        else:
            for value in values:
                torch.nn.utils.clip_grad_norm_([value], limit)
        optimizer.step()
    for name, value in zip(SHAPES, values, strict=True):
        np.testing.assert_allclose(found[name], value.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_decay_of_some_variables_only() -> None:
    with_all = train(linnet.SGD(0.1, weight_decay=0.5))
    matrices = train(linnet.SGD(0.1, weight_decay=0.5, decay=lambda v: v.value.ndim > 1))
    none = train(linnet.SGD(0.1), steps=1)
    once = train(linnet.SGD(0.1, weight_decay=0.5, decay=lambda v: v.value.ndim > 1), steps=1)
    assert (once["b"] == none["b"]).all() and not np.allclose(with_all["b"], matrices["b"])
    np.testing.assert_allclose(once["w"], none["w"] - 0.05 * start()["w"], rtol=1e-5, atol=1e-6)


def test_accumulated_batches_are_one_large_batch() -> None:
    graph = Graph()
    inputs, loss = model(graph)
    training.signatures(graph, loss, linnet.Adam(0.05), inputs, accumulate=True)
    assert list(graph.signatures) == ["train", "eval", "accumulate", "apply"]
    model_ = linnet.Model(graph)
    whole, parts = linnet.Store(model_), linnet.Store(model_)
    sessions = {n: linnet.Session(model_, n, store=parts) for n in ("accumulate", "apply", "eval")}
    for step in range(4):
        batch = feeds(12, seed=step)
        linnet.Session(model_, "train", store=whole).run(batch)
        losses = [
            sessions["accumulate"].run({name: value[at : at + 4] for name, value in batch.items()})["loss"]
            for at in (0, 4, 8)
        ]
        assert np.mean(losses) == pytest.approx(sessions["eval"].run(batch)["loss"], rel=1e-5)
        sessions["apply"].run({})
        for name in ("w", "b", "w/adam/m", "b/adam/v"):
            np.testing.assert_allclose(parts[name], whole[name], rtol=1e-4, atol=1e-7)
    before = parts.as_dict()
    sessions["apply"].run({})  # with nothing accumulated
    assert all((parts[name] == value).all() for name, value in before.items())
    assert parts["accumulated/count"] == 0 and not parts["w/accumulated"].any()


def test_a_lazy_optimizer_does_not_accumulate() -> None:
    graph = Graph()
    ids = graph.placeholder("ids", (4,), "i64")
    loss = (ops.gather(graph.variable("e", np.ones((9, 2), np.float32)).tensor(), ids) ** 2).sum()
    with pytest.raises(linnet.UsageError, match=r"'e'.*lazy"):
        training.accumulation(loss, linnet.Adam(lazy=True))


def test_a_static_loss_scale_changes_nothing() -> None:
    scaled, plain = train(linnet.Adam(0.05, loss_scale=1024)), train(linnet.Adam(0.05))
    for name in SHAPES:
        np.testing.assert_allclose(scaled[name], plain[name], rtol=1e-5, atol=1e-6)


def test_a_scale_keeps_gradients_alive_in_16_bits() -> None:
    """A gradient of 1e-9 is 0 in f16, but is kept with loss scaling."""

    def weight(scale: float | None) -> float:
        graph = Graph()
        w = graph.variable("w", np.float16(0.0))
        loss = ((w.tensor() * 1.0).cast("f32") * 1e-9).sum()
        graph.signature("train", {}, {"loss": loss}, updates=linnet.SGD(1e9, loss_scale=scale).minimize(loss))
        session = linnet.Session(graph, "train")
        session.run({})
        return float(session.variables["w"])

    assert weight(None) == 0.0 and weight(65536.0) == pytest.approx(-1.0, rel=1e-2)


def test_a_dynamic_scale_skips_overflow_and_grows() -> None:
    """A step with a non-finite gradient only lowers the scale; two good steps raise it."""
    graph = Graph()
    x = graph.placeholder("x", ())
    w = graph.variable("w", np.float32(2.0))
    loss = w * x
    optimizer = linnet.Momentum(0.5, loss_scale=linnet.DynamicLossScale(8.0, interval=2, backoff=0.25))
    graph.signature("train", {"x": x}, {"loss": loss}, updates=optimizer.minimize(loss))
    session = linnet.Session(graph, "train")
    found = []
    for value in (1.0, np.inf, 1.0, 1.0, np.nan, 1.0):
        session.run({"x": np.float32(value)})
        names = ("w", "w/momentum/momentum", "loss_scale/scale", "momentum/step")
        found.append(tuple(float(session.variables[name]) for name in names))
    # w falls by 0.5 * (1, 1.9, 2.71, 3.439)
    expected = [
        (1.5, 1.0, 8.0, 1), (1.5, 1.0, 2.0, 1), (0.55, 1.9, 2.0, 2), (-0.805, 2.71, 4.0, 3), (-0.805, 2.71, 1.0, 3),
        (-2.5245, 3.439, 1.0, 4),
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_two_optimizers_in_one_graph_have_their_own_state() -> None:
    graph = Graph()
    inputs, loss = model(graph)
    w, b = graph.variables["w"], graph.variables["b"]
    both = {**linnet.Adam(0.1).minimize(loss, [w]), **linnet.Adam(0.01).minimize(loss, [b])}
    graph.signature("train", inputs, {"loss": loss}, updates=both)
    assert {"adam/step", "adam_2/step", "w/adam/m", "b/adam_2/m"} <= set(graph.variables)
    assert not any(v.trainable for name, v in graph.variables.items() if "adam" in name)
    session = linnet.Session(graph, "train")
    session.run(feeds())
    assert session.variables["adam/step"] == session.variables["adam_2/step"] == 1


def test_only_what_is_trainable_is_trained() -> None:
    graph = Graph()
    frozen, free = graph.variable("a", np.float32(1.0), trainable=False), graph.variable("b", np.float32(1.0))
    graph.variable("unused", np.float32(1.0))
    counter = graph.variable("counter", np.int64(0))
    loss = frozen * free * counter.cast("f32")
    assert [v.name for v in linnet.SGD().minimize(loss)] == ["sgd/step", "b"]
    assert [v.name for v in linnet.SGD().minimize(loss, [frozen])] == ["sgd_2/step", "a"]
    with pytest.raises(linnet.UsageError, match=r"no gradient of the loss.*from 'b'"):
        linnet.SGD().minimize((free > 0.0).cast("f32") * 2.0)
    with pytest.raises(linnet.UsageError, match="any trainable variable"):
        linnet.SGD().minimize(frozen * 1.0)
    with pytest.raises(linnet.UsageError, match=r"one number; expected shape \[\], got \[3\]"):
        linnet.SGD().minimize(graph.variable("v", np.zeros(3)) * 1.0)
    with pytest.raises(linnet.UsageError, match=r"'b'.*wrong shape; expected \[\], got \[2\]"):
        linnet.SGD().apply({free: graph.constant(np.zeros(2, np.float32))})
