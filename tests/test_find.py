"""Graph.find: every step and tensor of a graph, whether it was built, loaded or imported, and what can be built on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import linnet
from linnet import nn
from linnet.file.names import steps_of

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def built(folder: Path) -> linnet.Graph:
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", ("batch", 6))
    hidden = linnet.ops.tanh(nn.dense(x, 5, name="first"))
    graph.signature("infer", {"x": x}, {"logits": nn.dense(hidden, 3, name="second")})
    return graph


def loaded(folder: Path) -> linnet.Graph:
    built(folder).save(folder / "model.lnt")
    return linnet.Graph.load(folder / "model.lnt")


def imported(folder: Path) -> linnet.Graph:
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal(shape).astype(np.float32) for shape in ((6, 5), (5, 3))]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["first"], name="multiply"), helper.make_node("Tanh", ["first"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "b"], ["logits"]),
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", d]) for n, d in (("x", 6), ("logits", 3))]
    made = [helper.make_tensor(n, TensorProto.FLOAT, w.shape, w.ravel()) for n, w in zip("ab", weights, strict=True)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], made)
    return linnet.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


ORIGINS = pytest.mark.parametrize("origin", [built, loaded, imported])


@ORIGINS
def test_every_step_is_found(origin: Callable[[Path], linnet.Graph], tmp_path: Path) -> None:
    graph = origin(tmp_path)
    before = graph.to_bytes()
    steps = [name for name in steps_of(before) if name]
    assert len(steps) >= 2
    for name in ("x", "logits", *steps):
        found = graph.find(name)
        assert name in ("logits", found.name) or found.node is not None
        assert found.function is graph.main or origin is built
    assert graph.to_bytes() == before, "a search changes no signature"
    with pytest.raises(linnet.UsageError, match=r"no tensor named 'logit'.*logits"):
        graph.find("logit")


@ORIGINS
def test_a_signature_of_what_was_found(origin: Callable[[Path], linnet.Graph], tmp_path: Path) -> None:
    graph = origin(tmp_path)
    (tanh,) = (
        step.name
        for step in linnet.Session(graph, input_shapes={"x": X.shape}, reference=True).steps
        if step.op == "map"
    )
    want = linnet.Session(graph).run({"x": X}, [tanh])[tanh]
    graph.signature("inside", {"x": graph.find("x")}, {"y": graph.find(tanh)})
    np.testing.assert_array_equal(linnet.Session(graph, "inside").run({"x": X})["y"], want)


@pytest.mark.parametrize("origin", [loaded, imported])
@pytest.mark.parametrize("early", [False, True], ids=["after", "before"])
def test_a_loss_on_what_was_found(origin: Callable[[Path], linnet.Graph], early: bool, tmp_path: Path) -> None:
    """Also if placeholders and nodes were made before the first search, one of them with a name of the file."""
    graph = origin(tmp_path)
    if not early:
        graph.find("logits")
    t = graph.placeholder("hidden", ("batch",), "i32")
    weight = (t.cast("f32") * 0.5).sum()
    loss = linnet.softmax_cross_entropy(graph.find("logits"), t).mean() + weight
    graph.signature("loss", {"x": graph.find("x"), "t": t}, {"loss": loss})
    labels = np.int32([0, 1, 2, 1])
    logits = linnet.Session(graph).run({"x": X})["logits"].astype(np.float64)
    each = np.log(np.exp(logits).sum(1)) - logits[range(4), labels]
    graph.save(tmp_path / "with_loss.lnt")
    found = linnet.Session(tmp_path / "with_loss.lnt", "loss").run({"x": X, "t": labels})["loss"]
    np.testing.assert_allclose(found, each.mean() + 2.0, rtol=1e-6)


def test_other_signatures_are_searched_too() -> None:
    graph = built(Path())
    graph.signature("double", {"z": graph.find("x")}, {"twice": graph.find("x") * 2.0})
    assert graph.find("twice").shape == graph.find("z").shape == ("batch", 6)


def test_updates_of_infer_are_not_copied(tmp_path: Path) -> None:
    """A loaded graph whose "infer" counts its runs: a signature of found tensors does not count."""
    graph = linnet.Graph()
    x, count = graph.placeholder("x", (2,)), graph.variable("count", np.int64(0))
    graph.signature("infer", {"x": x}, {"y": x * 2.0}, updates={count: count.tensor(x) + 1})
    graph.save(tmp_path / "counts.lnt")
    again = linnet.Graph.load(tmp_path / "counts.lnt")
    again.signature("other", {"x": again.find("x")}, {"y": again.find("y")})
    model = linnet.Model(again)
    store = linnet.Store(model)
    for signature in ("infer", "other", "infer"):
        linnet.Session(model, signature, store=store).run({"x": np.ones(2, np.float32)})
    assert store["count"] == 2
