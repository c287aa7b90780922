"""Layer normalization that an exporter wrote as separate ops becomes one node, in both ways to write the variance, and gives the
same values; what only looks like it stays. The reference is ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet

RNG = np.random.default_rng(3)
Nodes = list[onnx.NodeProto]


def model(nodes: Nodes, shape: tuple[int, ...], **constants: np.ndarray) -> onnx.ModelProto:
    given = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(
        nodes, "norm", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], given,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def moments(
    axis: int, count: int, shape: tuple[int, ...], scaled: bool, limited: bool, changed: str = ""
) -> onnx.ModelProto:
    """mean(x^2) - mean(x)^2 as JAX writes it: sums times 1 / count. changed: one step that makes it another function."""
    make = helper.make_node
    outer = [*shape[:axis], *[1] * (len(shape) - axis)]
    axes = list(range(axis, len(shape))) if changed != "axes" else [axis - 1]
    nodes = [
        make("ReduceSum", ["x", "axes"], ["s"], keepdims=0),
        make("Mul", ["s", "share"], ["m"]),
        make("Mul", ["x", "x" if changed != "square" else "twice"], ["xx"]),
        make("ReduceSum", ["xx", "axes"], ["ss"], keepdims=0),
        make("Mul", ["ss", "share"], ["m2"]),
        make("Mul", ["m", "m"], ["mm"]),
        make("Sub", ["m2", "mm"], ["v"]),
        *([make("Max", ["zero", "v"], ["w"])] if limited else [make("Identity", ["v"], ["w"])]),
        make("Reshape", ["w", "outer"], ["vr"]),
        make("Add", ["vr", "epsilon"], ["ve"]),
        make("Sqrt", ["ve"], ["d"]),
        make("Reciprocal", ["d"], ["r"]),
        make("Reshape", ["m", "outer"], ["mr"]),
        make("Sub", ["x", "mr"], ["c"]),
        *([make("Mul", ["r", "scale"], ["f"])] if scaled else [make("Identity", ["r"], ["f"])]),
        make("Mul", ["c", "f"], ["n"]),
        make("Add", ["n", "bias"], ["y"]),
    ]
    if changed == "axes":
        outer = [d if i != axis - 1 else 1 for i, d in enumerate(shape)]
    inner = shape[axis:]
    share = 1 / count if changed != "share" else 0.9 / count
    return model(
        nodes, shape, axes=np.array(axes, np.int64), share=np.float32(share), zero=np.float32(0), epsilon=np.float32(1e-6),
        outer=np.array(outer, np.int64), scale=RNG.standard_normal((1, *inner)).astype(np.float32),
        bias=RNG.standard_normal(inner).astype(np.float32), twice=np.full(shape, 2, np.float32),
    )  # fmt: skip


def compared(made: onnx.ModelProto, shape: tuple[int, ...]) -> list[str]:
    """The ops of the graph, whose results are those of ONNX Runtime."""
    graph = linnet.from_onnx(made)
    x = (RNG.standard_normal(shape) * 3 + 1).astype(np.float32)
    want = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )[0]
    np.testing.assert_allclose(linnet.Session(graph).run({"x": x})["y"], want, rtol=2e-4, atol=2e-4)
    return [node.op for node in graph.signatures["infer"].function.nodes]


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((4, 32), 1), ((2, 5, 24), 2), ((3, 4, 6), 1)])
def test_moments_become_one_node(shape: tuple[int, ...], axis: int, scaled: bool, limited: bool) -> None:
    made = moments(axis, int(np.prod(shape[axis:])), shape, scaled, limited)
    assert compared(made, shape) == (["layer_norm"] if scaled else ["layer_norm", "map"])


@pytest.mark.parametrize("changed", ["square", "share"])
def test_other_functions_stay(changed: str) -> None:
    shape = (2, 5, 24)
    graph = linnet.from_onnx(moments(2, 24, shape, True, True, changed))
    assert "layer_norm" not in [node.op for node in graph.signatures["infer"].function.nodes]


def test_other_axes_stay() -> None:
    shape = (2, 24, 24)  # a mean over the middle axis, which would fit the last one by its size
    made = moments(2, 24, shape, False, True, "axes")
    assert "layer_norm" not in compared(made, shape)
