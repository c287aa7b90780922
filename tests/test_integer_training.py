"""An int8 model trains further on the device: weights stay int8, the loss falls, and inference equals the integer model's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import linnet
from tests.native import build, run
from tests.test_quantize_aware import _ends, digits, network, train


def quantized(steps: int = 25) -> linnet.Graph:
    """An int8 network that is not fully trained."""
    graph = network()
    values = train(graph, steps, 0.003, *_ends(graph))
    return linnet.quantize(graph, [{"x": digits()[0][:256]}], values=values, effort="fast")


def prepared(path: Path, master: bool, optimizer: linnet.Optimizer) -> linnet.Graph:
    graph = linnet.integers.trainable(quantized())
    t = graph.placeholder("t", ("batch",), "i32")
    logits = graph.find("logits")
    loss = linnet.softmax_cross_entropy(logits, t).mean()
    updates = linnet.integers.updates(loss, optimizer, master=master)
    graph.signature("train", {"x": graph.find("x"), "t": t}, {"loss": loss}, updates=updates)
    graph.signature("float", {"x": graph.find("x")}, {"logits": logits})
    graph.save(path)
    return graph


@pytest.mark.parametrize("master", [False, True])
def test_int8_weights_train_in_place(tmp_path: Path, master: bool) -> None:
    """The file alone is enough for training: model, store and sessions of the C library, without a graph."""
    prepared(tmp_path / "m.lnt", master, linnet.Momentum(0.02, 0.9))
    model = linnet.Model(tmp_path / "m.lnt")
    store = linnet.Store(model)
    session, infer = (linnet.Session(model, name, store=store) for name in ("train", "infer"))
    images, labels, tests, wanted = digits()
    before = float(np.mean(infer.run({"x": tests})["logits"].argmax(-1) == wanted))
    first = store.as_dict()
    rng = np.random.default_rng(2)
    losses = []
    for _ in range(150):
        batch = rng.choice(len(images), 64, replace=False)
        losses.append(float(session.run({"x": images[batch], "t": labels[batch]})["loss"]))
    after = float(np.mean(infer.run({"x": tests})["logits"].argmax(-1) == wanted))
    print(
        f"master {master}: loss {np.mean(losses[:10]):.3f} -> {np.mean(losses[-10:]):.3f}, {before:.3f} -> {after:.3f}"
    )
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) / 3
    assert after > 0.95 > before + 0.03
    last = store.as_dict()
    weights = [name for name, value in last.items() if value.dtype == np.int8]
    assert len(weights) == 3 and all(np.any(first[name] != last[name]) for name in weights)
    assert ({f"{name}/master" for name in weights} <= set(last)) == master
    twin = linnet.Session(model, "float", store=store).run({"x": tests})["logits"]
    assert np.mean(twin.argmax(-1) == infer.run({"x": tests})["logits"].argmax(-1)) > 0.99  # one model in two forms


def test_stochastic_rounding_keeps_steps_that_are_smaller_than_a_quantum(tmp_path: Path) -> None:
    """The mean of many steps of a twentieth of a quantum is right; with rounding to nearest, weights would not move."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 64))
    w = graph.constant(np.random.default_rng(0).uniform(-1, 1, (64, 32)).astype(np.float32), "w")
    graph.signature("infer", {"x": x}, {"y": x @ w})
    integer = linnet.integers.trainable(linnet.quantize(graph, [{"x": np.ones((1, 64), np.float32)}]))
    variable = integer.variables["w"]
    assert variable.value.dtype == np.int8 and variable.quantization is not None
    scale = variable.quantization.scale  # per column; the gradient of the sum is x = 1 everywhere
    rate = float(np.median(scale)) / 20
    loss = integer.find("y").sum()
    integer.signature(
        "train", {"x": integer.find("x")}, {"loss": loss}, updates=linnet.integers.updates(loss, linnet.SGD(rate))
    )
    model = linnet.Model(integer.to_bytes())
    store = linnet.Store(model)
    session = linnet.Session(model, "train", store=store)
    start = store["w"].astype(float)
    for _ in range(40):
        session.run({"x": np.ones((1, 64), np.float32)})
    moved = (store["w"] - start) * scale
    free = start.min(0) > -120
    assert np.isclose(moved[:, free].mean(), -40 * rate, rtol=0.1)


def test_what_is_no_quantized_graph_is_refused() -> None:
    graph = network()
    with pytest.raises(linnet.UsageError, match="integer weight"):
        linnet.integers.trainable(graph)
    graph = linnet.integers.trainable(quantized(2), "c1*")
    assert {v.name for v in graph.variables.values()} == {"c1/weight", "c1/bias"}
    other = linnet.Graph()
    with pytest.raises(linnet.UsageError, match="no integer variables"):
        linnet.integers.updates(other.constant(np.float32(1)) * 2.0, linnet.SGD(0.1))


def test_the_native_tool_trains_integers(tmp_path: Path) -> None:
    """In C alone: linnet-train trains the file, and its checkpoint's int8 weights improve inference."""
    program = build("release", "linnet-train") / "linnet-train"
    prepared(tmp_path / "m.lnt", False, linnet.Momentum(0.02, 0.9))
    images, labels, tests, wanted = digits()
    np.savez(tmp_path / "data.npz", x=images, t=labels)
    command = [
        program,
        "m.lnt",
        "--data",
        "data.npz",
        "--batch",
        "60",
        "--epochs",
        "8",
        "--checkpoint",
        "m.ckpt",
        "--log",
        "1",
    ]
    run([str(word) for word in [*command, "--json"]], cwd=tmp_path)
    found = linnet.load_checkpoint(tmp_path / "m.ckpt").variables
    assert {value.dtype.name for name, value in found.items() if name.endswith("weight")} == {"int8"}
    model = linnet.Model(tmp_path / "m.lnt")
    store = linnet.Store(model)
    infer = linnet.Session(model, "infer", store=store)
    before = np.mean(infer.run({"x": tests})["logits"].argmax(-1) == wanted)
    store.load(tmp_path / "m.ckpt")
    after = np.mean(infer.run({"x": tests})["logits"].argmax(-1) == wanted)
    assert before < 0.9 and after > 0.95, (before, after)


def test_integer_weights_take_a_quarter_of_the_room(tmp_path: Path) -> None:
    """Compares variable bytes of the training file: int8 weights and the optimizer's state, against f32 weights and the same
    state."""
    graph = prepared(tmp_path / "m.lnt", False, linnet.SGD(0.02))
    stored = sum(v.value.nbytes for v in graph.variables.values())
    floats = sum(v.value.size * 4 for v in graph.variables.values())
    assert stored < floats / 3.5
    memory = linnet.Session(tmp_path / "m.lnt", "train", input_shapes={"x": (64, 1, 8, 8), "t": (64,)}).memory
    assert memory["variables"] < floats / 3
