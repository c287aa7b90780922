"""Recurrent TFLite layers, float and hybrid, against LiteRT's reference kernels over several runs that keep the state: LSTM with
coupled gates, peepholes, projection, layer normalization and clipping, RNN, SVDF, and both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import linnet
from tests.tflite_models import G, O, T, build

litert = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="LiteRT is the reference: pip install ai-edge-litert (22 MB)"
)
BATCH, TIME, IN, CELLS, OUT = 2, 5, 6, 8, 4


class Made:
    """Tensors and the operands of one operator, in order; names are numbers."""

    def __init__(self, hybrid: bool = False) -> None:
        self.tensors: list[T] = []
        self.operands: list[str] = []
        self.rng = np.random.default_rng(11)
        self.hybrid = hybrid

    def add(self, name: str, tensor: T | None) -> None:
        if tensor is not None:
            tensor.name = name
            self.tensors.append(tensor)
        self.operands.append("" if tensor is None else name)

    def weight(self, shape: Sequence[int], there: bool = True) -> None:
        value, index = self.rng.uniform(-0.6, 0.6, shape), len(self.operands)
        if not there:
            self.add("", None)
        elif self.hybrid:
            scale = float(np.abs(value).max() / 127)
            stored = np.round(value / scale).astype(np.int8)
            self.add(f"w{index}", T("", "i8", shape, scale=scale, value=stored))
        else:
            self.vector(shape)

    def vector(self, shape: Sequence[int], there: bool = True) -> None:
        value = self.rng.uniform(-0.6, 0.6, shape).astype(np.float32)
        self.add(f"w{len(self.operands)}", T("", "f32", shape, value=value) if there else None)

    def state(self, shape: Sequence[int]) -> None:
        self.add(f"state{len(self.operands)}", T("", "f32", shape, variable=True))

    def lstm(self, coupled: bool, peephole: bool, projection: bool) -> int:
        """Adds the weights of one direction; returns the number of outputs."""
        out = OUT if projection else CELLS
        for columns in (IN, out):
            self.weight([CELLS, columns], not coupled)
            for _ in range(3):
                self.weight([CELLS, columns])
        self.weight([CELLS], peephole and not coupled)
        self.weight([CELLS], peephole)
        self.weight([CELLS], peephole)
        self.vector([CELLS], not coupled)
        for _ in range(3):
            self.vector([CELLS])
        self.weight([OUT, CELLS], projection)
        self.vector([OUT], projection)
        return out

    def model(self, op: str, inputs: Sequence[T], outputs: Sequence[T], options: dict[str, Any]) -> bytes:
        operator = O(op, self.operands, [t.name for t in outputs], options)
        return build(G([*inputs, *self.tensors, *outputs], [operator], [t.name for t in inputs], operator.outputs))


def compare(model: bytes, steps: int = 3, tolerance: float = 1e-4) -> None:
    """Runs both on the same random inputs; the results must vary."""
    made = litert.Interpreter(
        model_content=model, num_threads=1, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    made.allocate_tensors()
    graph = linnet.from_tflite(model)
    session, rng = linnet.Session(graph), np.random.default_rng(4)
    for step in range(steps):
        feeds = {}
        for detail in made.get_input_details():
            value = rng.standard_normal(detail["shape"]).astype(np.float32)
            if step == 1:
                value[:1] = 0  # a row of zeros is a special case in hybrid kernels
            feeds[detail["name"]] = value
            made.set_tensor(detail["index"], value)
        made.invoke()
        results = session.run(feeds)
        for detail in made.get_output_details():
            wanted, got = made.get_tensor(detail["index"]), results[detail["name"]]
            assert got.shape == wanted.shape
            span = float(wanted.max() - wanted.min())
            assert span > 0.05
            assert float(np.abs(got - wanted).max()) <= tolerance * span, f"step {step}"


CASES = {
    "plain": {}, "coupled": {"coupled": True}, "peephole": {"peephole": True},
    "coupled peephole": {"coupled": True, "peephole": True}, "projection": {"projection": True},
    "everything": {"peephole": True, "projection": True, "norm": True, "cell_clip": 0.4, "projection_clip": 0.3},
    "coupled norm": {"coupled": True, "norm": True}, "clipped cell": {"cell_clip": 0.3}, "relu": {"activation": "relu"},
}  # fmt: skip


def same_bits(model: bytes, rng: np.random.Generator, shape: Sequence[int], runs: int) -> set[int]:
    """Feeds x (i8) to linnet and to LiteRT's reference kernels, with state; returns the values of y."""
    made = litert.Interpreter(
        model_content=model, num_threads=1, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    made.allocate_tensors()
    session, seen = linnet.Session(linnet.from_tflite(model)), set[int]()
    for _ in range(runs):
        x = rng.integers(-128, 128, shape).astype(np.int8)
        made.set_tensor(made.get_input_details()[0]["index"], x)
        made.invoke()
        wanted = made.get_tensor(made.get_output_details()[0]["index"])
        np.testing.assert_array_equal(session.run({"x": x})["y"], wanted)
        seen.update(wanted.reshape(-1).tolist())
    return seen


@pytest.mark.parametrize("hybrid", ["float", "hybrid", "hybrid asymmetric"])
@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("op", ["LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"])
def test_lstm(op: str, name: str, hybrid: str) -> None:
    features: dict[str, Any] = dict(CASES[name])
    made = Made(hybrid != "float")
    made.operands.append("x")
    shape = {k: features.pop(k, False) for k in ("coupled", "peephole", "projection")}
    out = made.lstm(**shape)
    made.state([BATCH, out])
    made.state([BATCH, CELLS])
    if features.pop("norm", False):
        made.vector([CELLS], not shape["coupled"])
        for _ in range(3):
            made.vector([CELLS])
    options = {"activation": "tanh", "asymmetric": hybrid == "hybrid asymmetric", **features}
    steps = [BATCH, TIME]
    if op == "LSTM":
        steps = [BATCH]
    elif name == "peephole":
        steps, options["time_major"] = [TIME, BATCH], True
    compare(made.model(op, [T("x", "f32", [*steps, IN])], [T("y", "f32", [*steps, out])], options))


def test_the_basic_kernel() -> None:
    made = Made()
    made.operands.append("x")
    made.state([BATCH, CELLS])
    made.vector([4 * CELLS, IN + CELLS])
    made.vector([4 * CELLS])
    made.state([BATCH, CELLS])
    outputs = [
        T("y", "f32", [BATCH, CELLS]), T("c", "f32", [BATCH, CELLS]), T("j", "f32", [BATCH, IN + CELLS]),
        T("z", "f32", [BATCH, 4 * CELLS]),
    ]  # fmt: skip
    compare(made.model("LSTM", [T("x", "f32", [BATCH, IN])], outputs, {"kernel": 1, "activation": "tanh"}))


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("extra", ["none", "weighted", "backward"])
def test_bidirectional_lstm(extra: str, hybrid: bool) -> None:
    made = Made(hybrid)
    made.operands.append("x")
    out = made.lstm(False, True, False)
    made.lstm(False, True, False)
    for size in (out, CELLS, out, CELLS):
        made.state([1, size])
    inputs = [T("x", "f32", [1, TIME, IN])]
    made.operands.append("" if extra == "none" else "a")
    if extra != "none":
        inputs.append(T("a", "f32", [1, TIME, IN]))
    for _ in range(8):
        made.weight([CELLS, IN], extra == "weighted")
    merge = extra == "none"
    sizes = [2 * out] if merge else [out, out]
    outputs = [T(f"y{i}", "f32", [1, TIME, n]) for i, n in enumerate(sizes)]
    options = {"activation": "tanh", "merge": merge, "time_major": False}
    compare(made.model("BIDIRECTIONAL_SEQUENCE_LSTM", inputs, outputs, options))


@pytest.mark.parametrize("hybrid", ["float", "hybrid", "hybrid asymmetric"])
@pytest.mark.parametrize("op", ["RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"])
def test_rnn(op: str, hybrid: str) -> None:
    made = Made(hybrid != "float")
    made.operands.append("x")
    both = op.startswith("BI")
    for _ in range(2 if both else 1):
        made.weight([CELLS, IN])
        made.weight([CELLS, CELLS])
        made.vector([CELLS])
        made.state([BATCH, CELLS])
    if both:
        made.operands += ["", "", ""]
    options: dict[str, Any] = {"activation": "tanh", "asymmetric": hybrid == "hybrid asymmetric"}
    steps = [BATCH] if op == "RNN" else [BATCH, TIME]
    if op != "RNN":
        options["time_major"] = False
    outputs = [T(f"y{i}", "f32", [*steps, CELLS]) for i in range(2 if both else 1)]
    compare(made.model(op, [T("x", "f32", [*steps, IN])], outputs, options))


@pytest.mark.parametrize("hybrid", ["float", "hybrid", "hybrid asymmetric"])
def test_svdf(hybrid: str) -> None:
    made, memory, rank = Made(hybrid != "float"), 5, 2
    made.operands.append("x")
    made.weight([CELLS, IN])
    made.weight([CELLS, memory])
    made.vector([CELLS // rank])
    made.state([BATCH, CELLS * memory])
    options = {"rank": rank, "activation": "relu", "asymmetric": hybrid == "hybrid asymmetric"}
    outputs = [T("y", "f32", [BATCH, CELLS // rank])]
    compare(made.model("SVDF", [T("x", "f32", [BATCH, IN])], outputs, options), steps=8)


def test_svdf_of_integers() -> None:
    rng, memory, rank = np.random.default_rng(2), 5, 2
    tensors = [
        T("x", "i8", [BATCH, IN], 0.04, 3), T("f", "i8", [CELLS, IN], 0.01, value=rng.integers(-127, 128, (CELLS, IN), np.int8)),
        T("t", "i16", [CELLS, memory], 0.0002, value=rng.integers(-9000, 9000, (CELLS, memory)).astype(np.int16)),
        T("b", "i32", [4], 0.0002 * 0.0003, value=rng.integers(-9000, 9000, 4).astype(np.int32)),
        T("s", "i16", [BATCH, CELLS * memory], 0.0003, variable=True), T("y", "i8", [BATCH, 4], 0.07, -20),
    ]  # fmt: skip
    operator = O("SVDF", ["x", "f", "t", "b", "s"], ["y"], {"rank": rank, "activation": "relu"})
    model = build(G(tensors, [operator], ["x"], ["y"]))
    assert len(same_bits(model, rng, [BATCH, IN], 8)) > 10


@pytest.mark.parametrize("name", ["plain", "coupled", "peephole", "projection", "clipped", "clipped peephole"])
@pytest.mark.parametrize("op", ["LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"])
def test_integer_lstm_is_the_same_bit_by_bit(op: str, name: str) -> None:
    """Peepholes with a projection are omitted: LiteRT's kernel then reads only as many cells as there are outputs."""
    rng = np.random.default_rng(5)
    coupled, peephole = name in ("coupled", "clipped peephole"), name.endswith("peephole")
    projection, out = name in ("projection", "clipped"), OUT if name in ("projection", "clipped") else CELLS
    tensors: list[T] = []
    steps = [BATCH] if op == "LSTM" else [BATCH, TIME]
    input_scale, state_scale, state_zero = 0.02, 0.008, 5

    def weight(dtype: str, shape: Sequence[int], scale: float, there: bool = True) -> str:
        if not there:
            return ""
        kind, most = {"i8": (np.int8, 127), "i16": (np.int16, 20000), "i32": (np.int32, 3000)}[dtype]
        value = rng.integers(-most, most + 1, shape).astype(kind)
        tensors.append(T(f"w{len(tensors)}", dtype, shape, scale, value=value))
        return tensors[-1].name

    def gates(columns: int) -> list[str]:
        return [weight("i8", [CELLS, columns], rng.uniform(0.004, 0.02), g > 0 or not coupled) for g in range(4)]

    operands = ["x", *gates(IN), *gates(out)]
    operands += [weight("i16", [CELLS], 2e-5, peephole and (g > 0 or not coupled)) for g in range(3)]
    operands += [weight("i32", [CELLS], input_scale * 0.01, g > 0 or not coupled) for g in range(4)]
    operands += [weight("i8", [OUT, CELLS], 0.01, projection), weight("i32", [OUT], 0.0001, projection), "h", "c"]
    hidden = T("m4", "i8", [1], 0.007, -3) if projection else T("m4", "i8", [1], state_scale, state_zero)
    tensors += [
        T("x", "i8", [*steps, IN], input_scale, -7), T("h", "i8", [BATCH, out], state_scale, state_zero, variable=True),
        T("c", "i16", [BATCH, CELLS], 2.0**-12, variable=True), *(T(f"m{i}", "i16", [1], 2.0**-12) for i in range(4)),
        hidden, T("y", "i8", [*steps, out], state_scale, state_zero),
    ]  # fmt: skip
    options: dict[str, Any] = {"activation": "tanh"}
    if name.startswith("clipped"):
        options |= {"cell_clip": 0.5, "projection_clip": 0.4}
    operator = O(op, operands, ["y"], options, [f"m{i}" for i in range(5)])
    model = build(G(tensors, [operator], ["x"], ["y"]))
    assert len(same_bits(model, rng, [*steps, IN], 4)) > 12
