"""`replace_head` and `linnet finetune` on heads that are a 1x1 convolution, as in SqueezeNet and DenseNet. NumPy computes the
expected features."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet import ops
from tests.test_finetune import patterns

RNG = np.random.default_rng(0)
WEIGHTS = {
    "w1": RNG.standard_normal((8, 3, 3, 3)), "w2": RNG.standard_normal((10, 8, 1, 1)), "b2": RNG.standard_normal(10),
    "scale": RNG.standard_normal(8), "one": np.ones(8),
}  # fmt: skip
STEPS = {
    "conv": ("Conv", ["w2", "b2"], {}), "relu": ("Relu", [], {}), "pool": ("GlobalAveragePool", [], {}),
    "max": ("GlobalMaxPool", [], {}), "flat": ("Flatten", [], {}), "softmax": ("Softmax", [], {"axis": 1}),
    "norm": ("BatchNormalization", ["scale"] * 3 + ["one"], {}), "window": ("AveragePool", [], {"kernel_shape": [7, 7]}),
    "mean": ("ReduceMean", [], {"axes": [2, 3], "keepdims": 1}), "reshape": ("Reshape", ["shape"], {}),
    "dropout": ("Dropout", [], {}),
}  # fmt: skip


def network(steps: str, batch: str | int = "n") -> onnx.ModelProto:
    """A convolution and relu, and then the given steps, which end in 10 scores."""
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"], strides=[2, 2]), helper.make_node("Relu", ["a"], ["r"])]
    now = "r"
    words = steps.split()
    for i, word in enumerate(words):
        op, operands, attributes = STEPS[word]
        made = "y" if i + 1 == len(words) else f"t{i}"
        nodes.append(helper.make_node(op, [now, *operands], [made], **attributes))
        now = made
    values = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in WEIGHTS.items()]
    values.append(numpy_helper.from_array(np.int64([-1, 10]), "shape"))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 10])], values,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "steps",
    [
        "conv pool flat", "pool conv flat", "dropout conv relu pool flat softmax", "norm relu pool conv reshape softmax",
        "conv relu window flat", "mean conv relu flat", "conv max softmax flat", "conv pool reshape",
    ],
)  # fmt: skip
@pytest.mark.parametrize("batch", ["n", 2])
def test_heads_of_1x1_convolutions(steps: str, batch: str | int) -> None:
    graph = linnet.from_onnx(network(steps, batch))
    logits = linnet.replace_head(graph, 3)
    assert logits.shape == (batch, 3) and set(graph.variables) == {"head/weight", "head/bias"}
    x = RNG.standard_normal((2, 3, 16, 16)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2]
    before = np.maximum(np.einsum("bchwij,ocij->bohw", windows, WEIGHTS["w1"]), 0)
    if steps.startswith("norm"):
        s = WEIGHTS["scale"].reshape(-1, 1, 1)
        before = np.maximum((before - s) / np.sqrt(1 + 1e-5) * s + s, 0)
    features = before.mean((2, 3))
    found = linnet.Session(graph).run({"x": x})
    want = features @ graph.variables["head/weight"].value
    np.testing.assert_allclose(found["logits"], want, atol=1e-4)
    np.testing.assert_allclose(found["probabilities"], np.exp(want) / np.exp(want).sum(1, keepdims=True), atol=1e-4)


def test_a_grouped_convolution_is_no_head() -> None:
    """Each of its outputs depends on some of the channels only."""
    graph = linnet.Graph()
    x = graph.placeholder("x", ("n", 8, 4, 4))
    y = ops.conv(ops.relu(x), graph.constant(np.ones((8, 4, 1, 1), np.float32)), group=2)
    graph.signature("infer", {"x": x}, {"y": y.mean((2, 3))})
    with pytest.raises(linnet.GraphError, match="no last layer found"):
        linnet.replace_head(graph.freeze(), 3)


def test_finetune_of_a_head_that_is_a_convolution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from linnet.cli.main import _main

    data = patterns(tmp_path / "data", 4)
    for steps in ("conv relu pool flat", "norm relu pool conv flat"):
        onnx.save(network(steps), tmp_path / "m.onnx")
        arguments = [
            "finetune",
            str(tmp_path / "m.onnx"),
            "--data",
            str(data),
            "--head",
            "3",
            "--epochs",
            "2",
            "--json",
        ]
        assert _main([*arguments, "--pixels", "symmetric", "-o", str(tmp_path / "m.lnt")]) == 0
        assert json.loads(capsys.readouterr().out)["classes"] == ["across", "down", "noise"]
        assert linnet.Graph.load(tmp_path / "m.lnt").variables["head/weight"].value.shape == (8, 3)


def test_tensors_have_no_truth_value() -> None:
    graph = linnet.Graph()
    x, v = graph.placeholder("x", (1,)), graph.variable("v", np.ones(1, np.float32))
    for tensor in (x, v, x + 1, x > 0):
        with pytest.raises(linnet.UsageError, match=r"no truth value while the graph is being built; use linnet\.cond"):
            bool(tensor)
