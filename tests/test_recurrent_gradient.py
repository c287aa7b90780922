"""Backpropagation through RNN, GRU and LSTM: the reference against finite differences in f64 and against PyTorch; the fast
kernels (forward with variable weights, and backward) against the reference at sizes around their tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from linnet.ir.function import Tensor

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
Arrays = dict[str, np.ndarray[Any, Any]]


def graph_of(kind: str, direction: str, arrays: Arrays, dtype: str, dynamic: bool = False, relu: bool = False) -> Graph:
    """`infer` gives a loss of all outputs, including gates and cells, and the gradient of every float operand."""
    graph = Graph()
    main = graph.function()
    feeds: dict[str, Tensor] = {}
    for name, array in arrays.items():
        shape: Any = array.shape
        if dynamic:
            shape = {"p": ("time", "batch", array.shape[-1]), "lengths": ("batch",)}.get(name, shape)
            shape = (shape[0], "batch", shape[2]) if name.startswith("initial") else shape
        feeds[name] = main.placeholder(name, "i32" if name == "lengths" else dtype, shape)
    outputs = ops.recurrent(
        feeds["p"], feeds["weights"], *(feeds.get(n) for n in ("initial_h", "initial_c", "lengths")), None,
        feeds.get("bias"), kind=kind, direction=direction, linear_before_reset=kind == "gru",
        activations=[2] * (2 if direction == "bidirectional" else 1) if relu else [], outputs=3,
    )  # fmt: skip
    loss: Tensor | None = None
    for i, y in enumerate(outputs[: 3 if kind == "lstm" else 2]):
        part = ops.reduce(ops.multiply(y, ops.scale(y, 0.5, 0.3 + i)), kind="sum", keep_dims=False)
        loss = part if loss is None else ops.add(loss, part)
    assert loss is not None
    wanted = {name: t for name, t in feeds.items() if name != "lengths"}
    main.outputs = [loss, *linnet.gradients(loss, list(wanted.values())), *outputs[:2]]
    names = ["loss", *wanted, "y", "y_h"]
    graph.signature("infer", main, list(feeds), [f"of {n}" for n in names])
    return graph


def arrays_of(
    kind: str, time: int, batch: int, hidden: int, directions: int, operands: str, seed: int = 0
) -> Arrays:  # fmt: skip
    rng, gates = np.random.default_rng(seed), GATES[kind] * hidden
    every = {
        "p": rng.normal(0, 0.7, (time, batch, directions * gates)),
        "weights": rng.normal(0, 0.9 / hidden**0.5, (directions, gates, hidden)),
        "initial_h": rng.normal(0, 0.5, (directions, batch, hidden)),
        "initial_c": rng.normal(0, 0.5, (directions, batch, hidden)),
        "lengths": rng.integers(0, time + 1, batch).astype(np.int32),
        "bias": rng.normal(0, 0.5, (directions, hidden)),
    }
    chosen = ["p", "weights", *operands.split(), *(["bias"] if kind == "gru" else [])]
    return {name: every[name] for name in every if name in chosen and (name != "initial_c" or kind == "lstm")}


def cast(arrays: Arrays, dtype: Any) -> Arrays:
    return {name: a if a.dtype == np.int32 else np.ascontiguousarray(a, dtype) for name, a in arrays.items()}


@pytest.mark.parametrize("operands", ["", "initial_h initial_c", "lengths", "initial_h initial_c lengths"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_reference_against_finite_differences(kind: str, direction: str, operands: str) -> None:
    arrays = cast(arrays_of(kind, 4, 3, 2, 1 + (direction == "bidirectional"), operands), np.float64)
    session = linnet.Session(graph_of(kind, direction, arrays, "f64", dynamic=operands == ""), reference=True)
    found = session.run(arrays)
    rng, step = np.random.default_rng(1), 1e-5
    for name, array in arrays.items():
        if name == "lengths":
            continue
        for flat in rng.permutation(array.size)[:6]:
            near = []
            for sign in (1, -1):
                moved = array.copy()
                moved.reshape(-1)[flat] += sign * step
                near.append(float(session.run({**arrays, name: moved}, ["of loss"])["of loss"]))
            got = found[f"of {name}"].reshape(-1)[flat]
            assert got == pytest.approx((near[0] - near[1]) / (2 * step), rel=2e-6, abs=2e-7), f"{name}[{flat}]"


# Sizes around the tiles of every set of micro-kernels: 4 x 8, 8 x 8, 6 x 16, 14 x 32.
SIZES = [
    (1, 1, 1),
    (3, 2, 7),
    (2, 13, 8),
    (5, 3, 9),
    (2, 5, 15),
    (3, 14, 17),
    (2, 15, 31),
    (2, 4, 32),
    (3, 7, 33),
    (2, 29, 67),
]


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_fast_kernels_against_the_reference(kind: str, size: tuple[int, int, int]) -> None:
    for direction, operands in (("forward", ""), ("bidirectional", "initial_h initial_c lengths")):
        arrays = cast(arrays_of(kind, *size, 1 + (direction == "bidirectional"), operands), np.float32)
        graph = graph_of(kind, direction, arrays, "f32", relu=kind == "rnn" and size[0] % 2 == 1)
        expected = linnet.Session(graph, reference=True).run(arrays)
        first: Arrays = {}
        for isa in linnet.isa_names():
            if isa == "scalar":
                continue
            for threads in (1, 3):
                session = linnet.Session(graph, isa_max=isa, threads=threads)
                kernels = {step.kernel for step in session.steps if step.op.startswith("recurrent")}
                assert not any("reference" in kernel for kernel in kernels), kernels
                found = session.run(arrays)
                for name, want in expected.items():
                    bound = 2e-5 * max(1.0, float(np.abs(want).max()))
                    np.testing.assert_allclose(found[name], want, rtol=2e-5, atol=bound, err_msg=f"{name} {isa}")
                if threads == 1:
                    first = found
                else:
                    assert all(np.array_equal(found[name], first[name]) for name in first), isa


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_against_pytorch(kind: str, torch: Any) -> None:
    time, batch, width, hidden = 6, 5, 7, 33
    torch.manual_seed(0)
    peer = getattr(torch.nn, kind.upper())(width, hidden, bidirectional=True)
    x = torch.randn(time, batch, width)
    (peer(x)[0] ** 2).sum().backward()
    order = {"rnn": [0], "gru": [1, 0, 2], "lstm": [0, 3, 1, 2]}[kind]  # order of PyTorch's gates in ONNX

    def gates(t: Any) -> np.ndarray[Any, Any]:
        blocks = np.split(t.detach().numpy(), len(order))
        return np.concatenate([blocks[i] for i in order])

    def values(what: str, gradient: bool = False) -> np.ndarray[Any, Any]:
        each = [getattr(peer, f"{what}_l0{end}") for end in ("", "_reverse")]
        return np.stack([gates(t.grad if gradient else t) for t in each])

    inputs = values("weight_ih")
    bias = np.concatenate([i + h if kind != "gru" else i + h * (np.arange(3 * hidden) < 2 * hidden)
                           for i, h in zip(values("bias_ih"), values("bias_hh"), strict=True)])  # fmt: skip
    graph = Graph()
    main = graph.function()
    variables = {
        "w": graph.variable("w", inputs.reshape(-1, width)),
        "r": graph.variable("r", values("weight_hh")),
        "b": graph.variable("b", bias.astype(np.float32)),
    }
    own = {name: main.read(v) for name, v in variables.items()}
    if kind == "gru":
        own["hidden_b"] = main.constant(values("bias_hh")[:, 2 * hidden :])
    p = ops.matmul(main.constant(x.numpy()), own["w"], own["b"], transpose_b=True)
    y = ops.recurrent(p, own["r"], bias=own.get("hidden_b"), kind=kind, direction="bidirectional",
                      linear_before_reset=kind == "gru")[0]  # fmt: skip
    loss = ops.reduce(ops.multiply(y, y), kind="sum", keep_dims=False)
    main.outputs = linnet.gradients(loss, list(own.values()))
    graph.signature("infer", main, outputs=list(own))
    found = linnet.Session(graph).run({})
    for name, want in {
        "w": values("weight_ih", True).reshape(-1, width),
        "r": values("weight_hh", True),
        "b": values("bias_ih", True).reshape(-1),
        "hidden_b": values("bias_hh", True)[:, 2 * hidden :],
    }.items():
        if name in own:
            np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5 * np.abs(want).max(), err_msg=name)


@pytest.mark.parametrize("operands", ["", "initial_h initial_c lengths"])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_second_derivatives_of_the_kernels(kind: str, operands: str) -> None:
    """A gradient penalty in f32, with first derivatives by the fast kernels, against central differences in f64."""
    exact = arrays_of(kind, 5, 3, 8, 2, operands)

    def session(dtype: str, reference: bool) -> linnet.Session:
        graph = graph_of(kind, "bidirectional", exact, dtype, dynamic=True)
        main = graph.functions[0]
        names = [n for n in exact if n != "lengths"]
        slopes = main.outputs[1 : 1 + len(names)]
        penalty = main.constant(np.zeros((), np.dtype(dtype.replace("f", "float"))))
        for g in slopes:
            penalty = ops.add(penalty, ops.reduce(ops.multiply(g, g), kind="sum", keep_dims=False))
        main.outputs = [penalty, *linnet.gradients(penalty, [t for t in main.inputs if t.name != "lengths"])]
        graph.signature("infer", main, list(exact), ["penalty", *names])
        return linnet.Session(graph, reference=reference)

    fast, exactly = session("f32", False), session("f64", True)
    found, arrays = fast.run(cast(exact, np.float32)), cast(exact, np.float64)
    assert any("recurrent_gradient" in s.kernel and "reference" not in s.kernel for s in fast.steps)
    rng = np.random.default_rng(1)
    for name, array in arrays.items():
        if name == "lengths":
            continue
        towards = rng.normal(size=array.shape)
        near = [
            float(exactly.run({**arrays, name: array + sign * 1e-5 * towards}, ["penalty"])["penalty"])
            for sign in (1, -1)
        ]
        got = float((found[name].astype(np.float64) * towards).sum())
        bound = 1e-4 * float(np.abs(found[name] * towards).sum())
        assert got == pytest.approx((near[0] - near[1]) / 2e-5, abs=bound), name


def test_a_length_out_of_range_is_named() -> None:
    arrays = cast(arrays_of("lstm", 3, 2, 8, 1, "lengths"), np.float32)
    arrays["lengths"] = np.array([1, 4], np.int32)
    with pytest.raises(linnet.Error, match="lengths"):
        linnet.Session(graph_of("lstm", "forward", arrays, "f32")).run(arrays)
