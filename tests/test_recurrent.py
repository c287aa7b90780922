"""RNN, GRU and LSTM against ONNX Runtime: every attribute, lengths, initial states, layouts.
Fast kernels and the reference are compared with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import linnet

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
PER_DIRECTION = {"RNN": 1, "GRU": 2, "LSTM": 3}
PARAMETRIC = ["LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus", "Affine"]


def peer(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def case(
    kind: str, rng: np.random.Generator, hidden: int, layout: int, optional: set[str], **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model of one node with constant weights, and feeds for it."""
    time, batch, width = 7, 3, 5
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = GATES[kind] * hidden
    constants: dict[str, Any] = {
        "W": rng.normal(0, 0.6, (directions, gates, width)),
        "R": rng.normal(0, 0.8 / hidden**0.5, (directions, gates, hidden)),
        "B": rng.normal(0, 0.4, (directions, 2 * gates)),
        "P": rng.normal(0, 0.4, (directions, 3 * hidden)),
    }
    state = rng.normal(0, 0.5, (directions, batch, hidden))
    x = rng.normal(0, 1, (time, batch, width))
    feeds: dict[str, Any] = {"X": x, "initial_h": state, "initial_c": state[::-1] * 0.7}
    if layout:
        feeds = {name: np.swapaxes(v, 0, 1) for name, v in feeds.items()}
    feeds["sequence_lens"] = np.array([4, 7, 1], np.int32)
    operands = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"][: 8 if kind == "LSTM" else 6]
    operands = [name if name in {"X", "W", "R"} | optional else "" for name in operands]
    cast = {n: np.ascontiguousarray(v, v.dtype if v.dtype == np.int32 else np.float32) for n, v in feeds.items()}
    cast = {name: value for name, value in cast.items() if name in operands}
    outputs = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(kind, operands, outputs, hidden_size=hidden, layout=layout, **attributes)
    types = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in cast.items()}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, types[n], v.shape) for n, v in cast.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [onnx.numpy_helper.from_array(v.astype(np.float32), n) for n, v in constants.items() if n in operands],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), cast


def agree(model: onnx.ModelProto, feeds: dict[str, Any], tolerance: float = 2e-5, **options: Any) -> None:
    expected = peer(model, feeds)
    for settings in ({}, {"reference": True}, {"isa_max": "sse2"}):
        if settings.get("isa_max") not in (None, *linnet.isa_names()):
            continue
        session = linnet.Session(linnet.from_onnx(model, **options), **settings)
        results = session.run(feeds)
        for info, want in zip(model.graph.output, expected, strict=True):
            got = results[info.name]
            assert got.shape == want.shape, info.name
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=f"{info.name} {settings}")


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_directions_and_operands(kind: str, direction: str) -> None:
    rng = np.random.default_rng(3)
    operands = ["B", "sequence_lens", "initial_h", "initial_c", "P"]
    for chosen in (set(), {"B"}, {"sequence_lens"}, {"initial_h", "P"}, {"B", "initial_c"}, set(operands)):
        model, feeds = case(kind, rng, 6, 0, chosen, direction=direction)
        agree(model, feeds)


@pytest.mark.parametrize("hidden", [1, 16, 33, 70])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_widths_and_clip(kind: str, hidden: int) -> None:
    rng = np.random.default_rng(hidden)
    extra: dict[str, Any] = {"linear_before_reset": 1} if kind == "GRU" else {}
    model, feeds = case(kind, rng, hidden, 0, {"B", "initial_h"}, clip=0.4, direction="bidirectional", **extra)
    agree(model, feeds)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_activations(kind: str) -> None:
    rng = np.random.default_rng(5)
    n = 2 * PER_DIRECTION[kind]
    for start in range(0, len(PARAMETRIC), 2):
        names = [["Relu", *PARAMETRIC][(start + i) % 9] for i in range(n)]
        plain = ("Relu", "Softsign", "Softplus")
        lists = {
            "activation_alpha": [round(0.2 + 0.1 * i, 2) for i, name in enumerate(names) if name not in plain],
            "activation_beta": [0.3 for name in names if name in ("ScaledTanh", "HardSigmoid", "Affine")],
        }
        given = {key: values for key, values in lists.items() if values}
        model, feeds = case(kind, rng, 4, 0, {"B"}, direction="bidirectional", clip=1.0, activations=names, **given)
        agree(model, feeds, 1e-4)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_blocks_of_units(kind: str, direction: str) -> None:
    """With more threads than rows, a step is computed in blocks of units. Its results have the same bits."""
    rng = np.random.default_rng(9)
    extra: dict[str, Any] = {"linear_before_reset": 1} if kind == "GRU" else {}
    for hidden, chosen in ((150, {"B", "sequence_lens", "initial_h", "initial_c", "P"}), (129, {"initial_h"})):
        model, feeds = case(kind, rng, hidden, 0, chosen, direction=direction, **extra)
        graph = linnet.from_onnx(model)
        for isa in linnet.isa_names():
            expected = linnet.Session(graph, isa_max=isa, threads=1).run(feeds)
            got = linnet.Session(graph, isa_max=isa, threads=8).run(feeds)
            for name, value in expected.items():
                np.testing.assert_array_equal(got[name].view(np.uint32), value.view(np.uint32), err_msg=name)
