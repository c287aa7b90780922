"""Training imported models: constants as variables, heads, freezing; compared with PyTorch and ONNX Runtime."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import pytest

import linnet
from tests.with_torch import MISSING, torch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the exporter's warnings about itself


def _module(seed: int = 0) -> torch.nn.Module:
    """A small network with batch norms with non-trivial statistics."""
    torch.manual_seed(seed)
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2)
            part.weight.data.uniform_(0.5, 1.5)
            part.bias.data.normal_(0, 0.3)
    return module.eval()


def _onnx(module: torch.nn.Module, *shape: int, folded: bool = False) -> onnx.ModelProto:
    file = io.BytesIO()
    mode = torch.onnx.TrainingMode.EVAL if folded else torch.onnx.TrainingMode.PRESERVE
    torch.onnx.export(
        module, torch.zeros(shape), file, dynamo=False, input_names=["x"], output_names=["logits"], training=mode,
        do_constant_folding=folded, dynamic_axes={"x": {0: "batch"}, "logits": {0: "batch"}},
    )  # fmt: skip
    return onnx.load_model_from_string(file.getvalue())


def _x(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_gradients_of_an_imported_network_are_those_of_pytorch() -> None:
    module = _module()
    graph = linnet.from_onnx(_onnx(module, 1, 3, 8, 8), trainable="*")
    names = [name for name, _ in module.named_parameters()]
    assert sorted(graph.variables) == sorted(names)  # every weight, under its own name; no statistics
    loss = (graph.find("logits") ** 2).mean()
    found = linnet.gradients(loss, [graph.variables[name] for name in names])
    graph.signature("grad", {"x": graph.find("x")}, {"loss": loss} | dict(zip(names, found, strict=True)))
    x = _x(4, 3, 8, 8)
    result = linnet.Session(graph, "grad").run({"x": x})
    wanted = (module(torch.from_numpy(x)) ** 2).mean()
    wanted.backward()
    assert np.isclose(result["loss"], wanted.item(), rtol=1e-5)
    for name, parameter in module.named_parameters():
        reference = parameter.grad.numpy()
        assert np.allclose(result[name], reference, rtol=1e-4, atol=1e-4 * np.abs(reference).max()), name


def test_the_trained_graph_infers_as_before_and_freezes_to_a_folded_one() -> None:
    module = _module()
    model = _onnx(module, 1, 3, 8, 8)
    graph = linnet.from_onnx(model, trainable="*")
    x = _x(2, 3, 8, 8)
    wanted = module(torch.from_numpy(x)).detach().numpy()
    assert np.allclose(linnet.Session(graph).run({"x": x})["logits"], wanted, atol=1e-5)
    weights = {name: value.value + np.float32(0.01) for name, value in graph.variables.items()}
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.01
    frozen = graph.freeze(weights)
    assert not frozen.variables and not any(n.op == "batch_norm" for f in frozen.functions for n in f.nodes)
    assert np.allclose(
        linnet.Session(frozen).run({"x": x})["logits"], module(torch.from_numpy(x)).detach().numpy(), atol=1e-4
    )
    assert len(frozen.functions[0].nodes) == len(linnet.from_onnx(model).functions[0].nodes)


def test_batch_norms_that_the_exporter_folded_train_as_weights_and_biases() -> None:
    graph = linnet.from_onnx(_onnx(_module(), 1, 3, 8, 8, folded=True), trainable="*")
    assert not any(n.op == "batch_norm" for n in graph.main.nodes)
    assert len(graph.variables) == 6  # of three layers


def test_patterns_choose_and_what_matches_nothing_is_an_error_with_near_names() -> None:
    model = _onnx(_module(), 1, 3, 8, 8)
    assert sorted(linnet.from_onnx(model, trainable=["8.*"]).variables) == ["8.bias", "8.weight"]
    assert sorted(linnet.from_onnx(model, trainable=["1.running_mean"]).variables) == ["1.running_mean"]
    with pytest.raises(linnet.UsageError, match="weigth") as raised:
        linnet.from_onnx(model, trainable=["8.weigth"])
    assert "8.weight" in raised.value.hint
    graph = linnet.from_onnx(model, trainable="8.*")
    with pytest.raises(linnet.UsageError, match=r"similar names: .*logits"):
        graph.find("logit")


def _step(graph: linnet.Graph, logits: linnet.Tensor) -> tuple[int, int]:
    """Steps and bytes of a training step of all the graph's variables."""
    variables = list(graph.variables.values())
    loss = (logits**2).mean()
    found = linnet.gradients(loss, variables)
    updates = {v: v - 0.1 * g for v, g in zip(variables, found, strict=True)}
    graph.signature("train", {"x": graph.find("x")}, {"loss": loss}, updates=updates)
    session = linnet.Session(graph, "train", input_shapes={"x": (8, 3, 32, 32)})
    session.run({"x": _x(8, 3, 32, 32)})
    info = session.plan_info
    return info["steps"], session.memory["activations"]


def test_what_is_frozen_is_never_differentiated() -> None:
    model = _onnx(_module(), 1, 3, 32, 32)
    costs = {}
    for patterns in ("*", "8.*"):
        graph = linnet.from_onnx(model, trainable=patterns)
        costs[patterns] = _step(graph, graph.find("logits"))
    assert costs["8.*"][0] < costs["*"][0] / 2, costs
    assert costs["8.*"][1] < costs["*"][1] * 0.8, costs


def test_a_new_head_has_its_own_classes_and_keeps_the_features() -> None:
    module = _module()
    graph = linnet.from_onnx(_onnx(module, 1, 3, 8, 8))
    logits = linnet.replace_head(graph, 3)
    assert sorted(graph.variables) == ["head/bias", "head/weight"]
    assert logits.shape == ("batch", 3) and graph.signatures["infer"].outputs == ["logits", "probabilities"]
    x = _x(2, 3, 8, 8)
    graph.signature("features", {"x": graph.find("x")}, {"features": graph.find("features")})
    wanted = module[:8](torch.from_numpy(x)).detach().numpy()
    assert np.allclose(linnet.Session(graph, "features").run({"x": x})["features"], wanted, atol=1e-5)
    outputs = linnet.Session(graph).run({"x": x})
    assert np.allclose(outputs["logits"], wanted @ graph.variables["head/weight"].value, atol=1e-5)
    assert np.allclose(outputs["probabilities"].sum(-1), 1)


def test_a_new_head_on_trained_features_drops_the_old_weights() -> None:
    graph = linnet.from_onnx(_onnx(_module(), 1, 3, 8, 8), trainable="*")
    linnet.replace_head(graph, 3)
    assert "8.weight" not in graph.variables and "3.weight" in graph.variables
    with pytest.raises(linnet.UsageError, match="at least two classes; expected 2 or more"):
        linnet.replace_head(graph, 1)


def test_from_torch_keeps_the_names_of_parameters(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason=MISSING)
    module = _module()
    graph = linnet.from_torch(module, torch.zeros(1, 3, 8, 8), trainable=["0.*", "8.*"])
    assert sorted(graph.variables) == ["0.bias", "0.weight", "8.bias", "8.weight"]
    graph.save(tmp_path / "m.lnt")
    x = _x(1, 3, 8, 8)
    result = linnet.Session(tmp_path / "m.lnt").run({"input": x})
    assert np.allclose(result["output"], module(torch.from_numpy(x)).detach().numpy(), atol=1e-5)


def _qdq(seed: int = 0) -> onnx.ModelProto:
    """conv (int8 weights per channel) -> relu -> conv, in QDQ form."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)
    nodes, constants = [], []

    def constant(name: str, value: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(value, name))
        return name

    def pair(name: str, scale: float, zero: int) -> str:
        s, z = constant(f"{name}_s", np.float32(scale)), constant(f"{name}_z", np.int8(zero))
        nodes.append(helper.make_node("QuantizeLinear", [name, s, z], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", s, z], [f"{name}_dq"]))
        return f"{name}_dq"

    x = pair("x", 0.03, 5)
    for i, channels in enumerate((3, 4)):
        w = constant(f"w{i}", rng.integers(-127, 128, (4, channels, 3, 3)).astype(np.int8))
        s = constant(f"w{i}_scale", rng.uniform(0.001, 0.004, 4).astype(np.float32))
        z = constant(f"w{i}_zero", np.zeros(4, np.int8))
        nodes.append(helper.make_node("DequantizeLinear", [w, s, z], [f"w{i}_dq"], axis=0))
        bias = constant(f"b{i}", rng.standard_normal(4).astype(np.float32))
        nodes.append(helper.make_node("Conv", [x, f"w{i}_dq", bias], [f"c{i}"]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        x = pair(f"r{i}", 0.02, -128)
    graph = helper.make_graph(
        nodes, "qdq", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, 4, 4, 4])], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_quantized_model_trains_as_floats() -> None:
    """Integer weights become float variables; saturation, which is the network's relu, remains."""
    model, x = _qdq(), _x(1, 3, 8, 8)
    graph = linnet.from_onnx(model, trainable="*")
    assert sorted(graph.variables) == ["b0", "b1", "w0", "w1"]
    assert all(v.value.dtype == np.float32 for v in graph.variables.values())
    assert not any(t.dtype in ("i8", "u8") for t in graph.main.tensors())
    wanted = linnet.Session(linnet.from_onnx(model)).run({"x": x})
    found = linnet.Session(graph).run({"x": x})
    (a,), (b,) = wanted.values(), found.values()
    assert np.abs(a - b).max() < 0.05 and a.max() > 1  # a few steps of 0.02
    gradient = linnet.gradients(graph.main.outputs[0].sum(), [graph.variables["w0"]])[0]
    graph.signature("grad", {"x": graph.find("x")}, {"g": gradient})
    assert np.abs(linnet.Session(graph, "grad").run({"x": x})["g"]).max() > 0


def test_rounded_floats_are_the_integers() -> None:
    """With roundings kept, the float form gives the same results as the integers."""
    from linnet.passes.floats import to_floats
    from linnet.passes.weights import declare, to_main

    model, x = _qdq(), _x(1, 3, 8, 8)
    graph = linnet.from_onnx(model)
    (wanted,) = linnet.Session(graph).run({"x": x}).values()
    names = to_main(graph)
    to_floats(graph, rounding=True)
    declare(graph, *names)
    (found,) = linnet.Session(graph).run({"x": x}).values()
    assert (
        np.mean(found == wanted) > 0.98 and np.abs(found - wanted).max() <= 0.0201
    )  # one step where rounding is a tie


def test_stop_gradient_is_the_identity_without_a_derivative() -> None:
    from linnet.builder.straight_through import on_grid, stop_gradient

    graph = linnet.Graph()
    x = graph.placeholder("x", (4,))
    loss = (x * stop_gradient(x)).sum()
    graph.signature("grad", {"x": x}, {"g": linnet.gradients(loss, [x])[0], "y": loss})
    v = np.float32([1, 2, -3, 0.5])
    result = linnet.Session(graph, "grad").run({"x": v})
    assert np.array_equal(result["g"], v) and np.isclose(result["y"], (v * v).sum())
    scale = graph.variable("scale", np.float32(0.5))
    y = on_grid(x, scale.tensor(x), 1.0, -4, 3)
    dx, ds = linnet.gradients(y, [x, scale])
    graph.signature("grid", {"x": x}, {"y": y, "dx": dx, "ds": ds})
    v = np.float32([0.3, -0.26, 9, -9])
    result = linnet.Session(graph, "grid").run({"x": v})
    assert np.allclose(result["y"], [0.5, -0.5, 1.0, -2.5])
    assert np.array_equal(result["dx"], [1, 1, 0, 0])
    assert np.isclose(result["ds"], (1 - 0.6) + (-1 + 0.52) + 2 - 5)  # Esser et al. 2020, equation 3


def test_statistics_of_batch_norms_move_as_in_pytorch() -> None:
    module = _module()
    graph = linnet.from_onnx(_onnx(module, 1, 3, 8, 8), trainable="*")
    variables = linnet.passes.reestimate(graph, momentum=0.1)
    assert {v.name for v in variables} == {"1.running_mean", "1.running_var", "4.running_mean", "4.running_var"}
    assert not any(v.trainable for v in variables)
    model = linnet.Model(graph.to_bytes())
    store = linnet.Store(model)
    session = linnet.Session(model, "reestimate", store=store)
    module.train()
    for seed in range(3):
        x = 2 * _x(6, 3, 8, 8, seed=seed) + 1
        wanted = module(torch.from_numpy(x)).detach().numpy()
        assert np.allclose(session.run({"x": x})["logits"], wanted, atol=1e-4)
    for name, buffer in module.named_buffers():
        if name.split(".")[1].startswith("running"):
            assert np.allclose(store[name], buffer.numpy(), rtol=1e-4, atol=1e-5), name
    module.eval()
    x = _x(2, 3, 8, 8)
    found = linnet.Session(graph.freeze(store)).run({"x": x})["logits"]
    assert np.allclose(found, module(torch.from_numpy(x)).detach().numpy(), atol=1e-4)
    folded = linnet.from_onnx(_onnx(_module(), 1, 3, 8, 8, folded=True), trainable="*")
    with pytest.raises(linnet.UsageError, match="no batch norm"):
        linnet.passes.reestimate(folded)
