"""Three small tests that the runtime's structure supports training, data-dependent shapes and a second device.
Each would fail if its part of the runtime were only a facade."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import linnet
from linnet.facade import Graph
from linnet.ir.function import emit
from tests.graphs import data_dependent, pointwise
from tests.native import ROOT, compile_c


def _one_weight(rate: float) -> Graph:
    """`infer`: y = w * x. `train`: w -= rate * d/dw mean((w * x - t)^2), outputs the loss from before the step."""
    graph = Graph()
    weight = graph.variable("w", np.array([0.25], np.float32))
    infer = graph.function("infer")
    infer.outputs.append(pointwise("mul", infer.read(weight), infer.placeholder("x", "f32", (8,))))
    graph.signature("infer", infer, outputs=["y"])
    train = graph.function("train")
    x, target = train.placeholder("x", "f32", (8,)), train.placeholder("t", "f32", (8,))
    w = train.read(weight)
    miss = pointwise("sub", pointwise("mul", w, x), target)
    loss = emit("reduce", [pointwise("mul", miss, miss)], {"kind": "mean", "axes": [0], "keep_dims": False})[0]
    slope = emit("reduce", [pointwise("mul", miss, x)], {"kind": "mean", "axes": [0], "keep_dims": True})[0]
    new = emit("assign", [w, pointwise("sub", w, pointwise("mul", slope, 2.0 * rate))], {})[0]
    train.outputs += [loss, new]
    graph.signature("train", train, outputs=["loss", "new_w"])
    return graph


def test_a_signature_with_assign_trains_one_weight() -> None:
    rate, rng = 0.1, np.random.default_rng(11)
    x = rng.standard_normal(8).astype(np.float32)
    target = (np.float32(1.75) * x).astype(np.float32)
    model = linnet.Model(_one_weight(rate))
    store = linnet.Store(model)
    train = linnet.Session(model, "train", store=store)
    infer = linnet.Session(model, store=store)
    weight = np.float32(0.25)
    losses = []
    for _ in range(40):
        result = train.run({"x": x, "t": target})
        miss = weight * x - target
        np.testing.assert_allclose(result["loss"], np.mean(miss * miss), rtol=1e-5, atol=1e-7)
        weight = np.float32(weight - 2 * rate * np.mean(miss * x))
        np.testing.assert_allclose(result["new_w"], [weight], rtol=1e-5)
        np.testing.assert_allclose(store["w"], [weight], rtol=1e-5)
        losses.append(float(result["loss"]))
    assert losses[-1] < losses[0] / 1000
    assert losses == sorted(losses, reverse=True)
    # The other session of the same store uses the new weight; the file's initial value is unchanged.
    np.testing.assert_allclose(infer.run({"x": x})["y"], weight * x, rtol=1e-5)
    np.testing.assert_array_equal(linnet.Store(model)["w"], np.array([0.25], np.float32))


def test_fetching_only_the_loss_still_trains() -> None:
    """Fetches choose the returned outputs; a signature's assignments always happen."""
    session = linnet.Session(_one_weight(0.1), "train", fetches=["loss"])
    feeds = {"x": np.ones(8, np.float32), "t": np.zeros(8, np.float32)}
    first, second = session.run(feeds), session.run(feeds)
    assert set(first) == {"loss"} and second["loss"] < first["loss"]
    assert session.variables["w"] < np.float32(0.25)


def test_a_reshape_that_depends_on_data_runs() -> None:
    session = linnet.Session(data_dependent())
    assert session.plan_info["segments"] > 1
    for count in (4, 12, 2, 0, 8, 4):
        x = np.zeros(12, np.float32)
        x[np.random.default_rng(count).permutation(12)[:count]] = np.arange(1, count + 1)
        y = next(iter(session.run({"x": x.reshape(2, 6)}).values()))
        assert y.shape == (2, count // 2)
        np.testing.assert_array_equal(y, 10 * x[x != 0].reshape(2, -1))


def test_a_data_dependent_shape_that_does_not_fit_is_an_error() -> None:
    """Three values cannot be reshaped to two rows: an error record of the reshape, and the session works afterwards."""
    session = linnet.Session(data_dependent())
    with pytest.raises(linnet.GraphError):
        session.run({"x": np.array([[1, 2, 3, 0, 0, 0], [0] * 6], np.float32)})
    y = next(iter(session.run({"x": np.array([[1, 2, 0, 0, 0, 0], [0] * 6], np.float32)}).values()))
    np.testing.assert_array_equal(y, [[10], [20]])


def test_a_second_device_runs_half_of_a_graph(tmp_path: Path) -> None:
    """tests/ext/toy_device.c, built as a separate shared library, runs the steps it supports; the CPU runs the others."""
    path = compile_c(
        [ROOT / "tests" / "ext" / "toy_device.c"], tmp_path / "libtoy.so", "-shared", "-fPIC",
        f"-I{ROOT / 'runtime_c' / 'include'}",
    )  # fmt: skip
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (4, 8))
    weight = np.random.default_rng(4).standard_normal((8, 8)).astype(np.float32)
    hidden = pointwise("add", x, 1.0)
    product = emit("matmul", [hidden, main.constant(weight, "w")], {})[0]
    main.outputs.append(emit("softmax", [product], {"axis": -1}, name="y")[0])
    graph.signature("infer", main)
    feeds = {"x": np.random.default_rng(5).standard_normal((4, 8)).astype(np.float32)}
    device = linnet.load_device(path)
    session = linnet.Session(graph, devices=[device])
    devices = [step.device for step in session.steps]
    assert device.name in devices and "cpu" in devices, devices
    alone = linnet.Session(graph).run(feeds)
    for _ in range(2):
        for name, value in session.run(feeds).items():
            np.testing.assert_allclose(value, alone[name], rtol=1e-5, atol=1e-6)
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 8]) for name in "xy"]
    net = onnx.helper.make_graph([node], "net", info[:1], info[1:], [onnx.numpy_helper.from_array(weight, "w")])
    model = onnx.helper.make_model(net, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    placed = {place.op: place.device for place in linnet.check(model, devices=[device]).placement}
    assert placed["matmul"] == device.name
