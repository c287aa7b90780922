"""Integer products of int16 activations and int16 weights: the sums are those of NumPy in int64, and every plan gives the
same bits, for constant weights, for two activations, and for operands at the ends of the range."""

from __future__ import annotations

import numpy as np
import pytest

import linnet
from linnet.facade import Graph
from linnet.ir.dtypes import Quantization
from linnet.ir.function import emit
from linnet.passes.floats import to_floats
from linnet.passes.weights import to_main
from linnet.session.model import isa_names

X_SCALE, W_SCALE, Y_SCALE = 2e-4, 1e-4, 3e-3


def grid(scale: float, count: int = 1, axis: int | None = None) -> Quantization:
    steps = scale * (1 + np.arange(count) % 7 / 8)
    return Quantization(steps.astype(np.float32), np.zeros(count, np.int32), axis)


def integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """All of int16, with both ends."""
    made = rng.integers(-32768, 32768, shape).astype(np.int16)
    made.reshape(-1)[:: max(1, made.size // 5)] = -32768
    made.reshape(-1)[2 :: max(1, made.size // 3)] = 32767
    return made


def product(
    op: str, w: np.ndarray | None, x_shape: tuple[int, ...], count: int, output: str, **attributes: object
) -> Graph:
    """The op with weights w, or with two activations. The bias needs more than 32 bits."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "i16", x_shape)
    x.quantization = grid(X_SCALE)
    if w is None:
        b = main.placeholder("w", "i16", (x_shape[-1], count))
        b.quantization = grid(W_SCALE)
    else:
        axis = 0 if op == "conv" else 1
        b = main.constant(w, quantization=grid(W_SCALE, w.shape[axis], axis))
    bias = np.arange(count, dtype=np.int64) * 3_000_000_000 - 7_000_000_000
    y = emit(op, [x, b, main.constant(bias)], {**attributes, "output_dtype": output})[0]
    if output in ("i16", "i8"):
        y.quantization = grid(Y_SCALE if output == "i16" else Y_SCALE * 100)
    main.outputs.append(y)
    graph.signature("infer", {"x": x} | ({"w": b} if w is None else {}), {"y": y})
    return graph


def agree(graph: Graph, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """The result of the scalar reference. All instruction sets give it, on one and on two threads."""
    want = linnet.Session(graph, reference=True).run(feeds)["y"]
    for isa in isa_names():
        for threads in (1, 2):
            got = linnet.Session(graph, isa_max=isa, threads=threads).run(feeds)["y"]
            np.testing.assert_array_equal(got, want, f"{isa}, {threads} threads")
    return want


@pytest.mark.parametrize("requant", ["float_rne", "tflite", "tflite_single"])
@pytest.mark.parametrize("output", ["i16", "i8", "f32", "i64"])
@pytest.mark.parametrize("constant", [True, False])
def test_matmul(requant: str, output: str, constant: bool) -> None:
    rng = np.random.default_rng(1)
    for m, k, n in ((1, 1, 1), (5, 3, 7), (17, 65, 33), (3, 1100, 9), (1, 64, 65)):
        x, w = integers(rng, m, k), integers(rng, k, n)
        graph = product("matmul", w if constant else None, (m, k), n, output, requant=requant)
        got = agree(graph, {"x": x} if constant else {"x": x, "w": w})
        bias = np.arange(n, dtype=np.int64) * 3_000_000_000 - 7_000_000_000
        sums = x.astype(np.int64) @ w.astype(np.int64) + bias
        if output == "i64":
            np.testing.assert_array_equal(got, sums)
        elif output == "f32":
            scale = np.float32(X_SCALE) * grid(W_SCALE, n if constant else 1, None).scale
            np.testing.assert_allclose(got, sums * scale.astype(np.float64), rtol=3e-7)
        elif requant == "float_rne":
            step = (
                np.float64(X_SCALE)
                * grid(W_SCALE, n if constant else 1).scale
                / (Y_SCALE if output == "i16" else Y_SCALE * 100)
            )
            limits = np.iinfo(np.int16 if output == "i16" else np.int8)
            assert np.max(np.abs(got - np.clip(sums * step, limits.min, limits.max))) <= 0.51


@pytest.mark.parametrize("output", ["i16", "f32", "i64"])
@pytest.mark.parametrize(("op", "group"), [("conv", 1), ("conv", 2), ("conv", 10), ("conv_transpose", 1)])
def test_convolutions(op: str, group: int, output: str) -> None:
    rng = np.random.default_rng(2)
    for kernel, stride in ((1, 1), (3, 1), (3, 2)):
        x = integers(rng, 2, 10, 9, 7)
        w = integers(rng, 10, 10 // group, kernel, kernel)
        more = {"strides": [stride, stride], "pads": [kernel // 2] * 4, "group": group}
        got = agree(product(op, w, x.shape, 10, output, **more), {"x": x})
        if output == "i64" and kernel == 1 and op == "conv" and group == 1:
            sums = np.einsum("nchw,oc->nohw", x.astype(np.int64), w[:, :, 0, 0].astype(np.int64))
            bias = np.arange(10, dtype=np.int64) * 3_000_000_000 - 7_000_000_000
            np.testing.assert_array_equal(got, sums + bias.reshape(-1, 1, 1))


def test_saved_models_keep_their_weights(tmp_path: object) -> None:
    rng = np.random.default_rng(3)
    graph = product("matmul", integers(rng, 33, 8), (4, 33), 8, "i16")
    feeds = {"x": integers(rng, 4, 33)}
    path = f"{tmp_path}/m.lnt"
    graph.save(path)
    np.testing.assert_array_equal(linnet.Session(path).run(feeds)["y"], agree(graph, feeds))
    tensors = Graph.load(path).signatures["infer"].function.tensors()
    weights = [t for t in tensors if t.data is not None and t.dtype == "i16"]
    assert len(weights) == 1


def test_a_float_graph_computes_the_values_of_the_integers() -> None:
    """Weights of 16 bits become the floats that they represent."""
    rng = np.random.default_rng(4)
    w = rng.integers(-3000, 3000, (16, 8)).astype(np.int16)
    graph = product("matmul", w, (4, 16), 8, "f32")
    x = rng.integers(-3000, 3000, (4, 16)).astype(np.int16)
    want = linnet.Session(graph).run({"x": x})["y"]
    to_main(graph)
    to_floats(graph)
    graph.signature("float", {"x": graph.main.inputs[0]}, {"y": graph.main.outputs[0]})
    np.testing.assert_allclose(linnet.Session(graph, "float").run({"x": x})["y"], want, rtol=1e-5)


def test_weights_of_16_bits_train_in_place() -> None:
    rng = np.random.default_rng(5)
    w = rng.integers(-3000, 3000, (16, 8)).astype(np.int16)
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "i16", (4, 16))
    x.quantization = grid(X_SCALE)
    weights = main.constant(w, "w", quantization=grid(W_SCALE, 8, 1))
    bias = main.constant(np.arange(8, dtype=np.int64) * 3_000_000, "bias")
    y = emit("matmul", [x, weights, bias], {"output_dtype": "f32"})[0]
    graph.signature("infer", {"x": x}, {"y": y})
    linnet.integers.trainable(graph)
    assert graph.variables["w"].value.dtype == np.int16 and graph.variables["bias"].value.dtype == np.int64
    loss = (graph.main.outputs[0] * graph.main.outputs[0]).mean()
    updates = linnet.integers.updates(loss, linnet.SGD(0.01))
    graph.signature("train", {"x": graph.main.inputs[0]}, {"loss": loss}, updates=updates)
    model = linnet.Model(graph)
    store = linnet.Store(model)
    session = linnet.Session(model, "train", store=store)
    feeds = {"x": rng.integers(-30000, 30000, (4, 16)).astype(np.int16)}
    losses = [float(session.run(feeds)["loss"]) for _ in range(30)]
    assert losses[-1] < losses[0] / 2
    after = store.as_dict()
    assert after["w"].dtype == np.int16 and np.any(after["w"] != w)
