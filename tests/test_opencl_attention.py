"""Attention as one kernel on the OpenCL device: what is recognized, that it agrees with the CPU, and that its scores have no
memory. The option kernel=attention asks for it on a processor, where separate steps are faster."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet import nn, ops
from tests.opencl_device import opencl_device

OPTIONS = "kernel=attention"


def computed(fed: dict[str, Any]) -> dict[str, Any]:
    """Operands that the device has: an input that went up between two steps would part them."""
    return {name: ops.tanh(x) if x.dtype != "bool" else ops.logical_not(x) for name, x in fed.items()}


def attention(
    shape: tuple[int, int, int, int, int, int], dtype: str = "f32", mask: str = ""
) -> tuple[linnet.Graph, dict[str, np.ndarray]]:
    """shape: batch, heads, queries, keys, the size of a key and of a value."""
    batch, heads, m, n, size, values = shape
    graph, rng = linnet.Graph(), np.random.default_rng(shape)
    shapes = {"q": (batch, heads, m, size), "k": (batch, heads, n, size), "v": (batch, heads, n, values)}
    feeds: dict[str, np.ndarray] = {
        name: rng.standard_normal(s).astype(np.float16 if dtype == "f16" else np.float32) for name, s in shapes.items()
    }
    if mask == "bool":
        feeds["mask"] = rng.integers(0, 4, (batch, 1, m, n)) == 0  # inverted below
        feeds["mask"][0, 0, 0] = True  # a query that sees no key
    if mask == "floats":
        feeds["mask"] = np.where(rng.integers(0, 4, (batch, 1, 1, n)) > 0, 0, -2).astype(feeds["q"].dtype)
    fed = {name: graph.placeholder(name, x.shape, "bool" if x.dtype == bool else dtype) for name, x in feeds.items()}
    x = computed(fed)
    y = nn.scaled_dot_product_attention(x["q"], x["k"], x["v"], mask=x.get("mask"), causal=mask == "causal")
    graph.signature("infer", fed, {"y": y})
    return graph, feeds


def compare(
    graph: linnet.Graph, feeds: dict[str, np.ndarray], tolerance: float = 1e-5, whole: bool = True
) -> linnet.Session:
    """The device's session, whose results are those of the CPU. whole: the attention is one step."""
    session = linnet.Session(graph, device=opencl_device(OPTIONS))
    kernels = [step.kernel for step in session.steps if step.op != "transfer"]
    assert ("attention" in kernels) == whole and ("softmax" not in kernels or not whole), kernels
    got, want = session.run(feeds), linnet.Session(graph).run(feeds)
    for name, value in want.items():
        wide = value.astype(np.float64)
        np.testing.assert_allclose(got[name].astype(np.float64), wide, rtol=0, atol=tolerance * np.abs(wide).max())
    return session


# Queries and keys around the blocks of 16, 32 and 64, and no multiples of them. PoCL takes 7 seconds for each program, which
# depends on the number of rows of an item and of values.
SIZES = [(1, 1, 1, 1, 4, 4), (2, 3, 17, 70, 32, 32), (1, 2, 65, 129, 20, 48), (1, 1, 9, 200, 40, 256)]


@pytest.mark.parametrize("mask", ["", "causal", *(pytest.param(m, marks=pytest.mark.more) for m in ("bool", "floats"))])
def test_masks(mask: str) -> None:
    graph, feeds = attention(SIZES[1], mask=mask)
    compare(graph, feeds)


@pytest.mark.more
@pytest.mark.parametrize("shape", SIZES)
def test_sizes(shape: tuple[int, int, int, int, int, int]) -> None:
    graph, feeds = attention(shape)
    compare(graph, feeds)


@pytest.mark.more
@pytest.mark.parametrize("mask", ["", "causal", "bool", "floats"])
def test_f16(mask: str) -> None:
    graph, feeds = attention(SIZES[1], "f16", mask)
    compare(graph, feeds, 4e-3)


def test_scores_have_no_memory() -> None:
    graph, _ = attention((1, 2, 30, 900, 16, 32))
    whole = linnet.Session(graph, device=opencl_device(OPTIONS)).memory["total"]
    parts = linnet.Session(graph, device=opencl_device()).memory["total"]
    assert parts - whole >= 2 * 30 * 900 * 4


def test_an_encoder_layer() -> None:
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (2, 20, 64))
    graph.signature("infer", {"x": x}, {"y": nn.transformer_encoder_layer(x, 2, 96)})
    rng = np.random.default_rng(5)
    compare(graph.freeze(), {"x": rng.standard_normal((2, 20, 64)).astype(np.float32)})


def test_as_exporters_write_it() -> None:
    """MatMul by a transposed operand, Mul, Add, Softmax, MatMul."""
    nodes = [
        *(helper.make_node("Tanh", [name], [f"{name}_"]) for name in ("q", "k", "v", "mask")),
        helper.make_node("Transpose", ["k_"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q_", "kt"], ["s"]),
        helper.make_node("Mul", ["s", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "mask_"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v_"], ["y"]),
    ]
    shapes = {"q": [2, 4, 20, 32], "k": [2, 4, 50, 32], "v": [2, 4, 50, 24], "mask": [2, 1, 1, 50]}
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, 20, 24])
    factor = numpy_helper.from_array(np.float32(0.17), "factor")
    made = helper.make_model(
        helper.make_graph(nodes, "attention", infos, [result], [factor]), opset_imports=[helper.make_opsetid("", 17)]
    )
    rng = np.random.default_rng(6)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    compare(linnet.from_onnx(onnx.load_from_string(made.SerializeToString())), feeds)


def test_rows_that_are_masked_by_infinity() -> None:
    """Blocks of keys without a finite score, in front of others and alone: NaN where the CPU has NaN."""
    graph = linnet.Graph()
    q, k = graph.placeholder("q", (1, 20, 24)), graph.placeholder("k", (1, 130, 24))
    mask = graph.placeholder("mask", (20, 130))
    y = ops.matmul(ops.softmax(ops.matmul(q, k, transpose_b=True) + mask), k)
    graph.signature("infer", {"q": q, "k": k, "mask": mask}, {"y": y})
    rng = np.random.default_rng(7)
    feeds = {"q": rng.standard_normal((1, 20, 24)), "k": rng.standard_normal((1, 130, 24)), "mask": np.zeros((20, 130))}
    feeds["mask"][:, :70] = -np.inf
    feeds["mask"][3] = -np.inf
    feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
    got = linnet.Session(graph, device=opencl_device(OPTIONS)).run(feeds)["y"]
    want = linnet.Session(graph).run(feeds)["y"]
    assert np.isnan(want[0, 3]).all() and np.isfinite(np.delete(want, 3, 1)).all()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def variants() -> list[tuple[str, Any]]:
    """Graphs that look like attention and are none that the kernel may run."""

    def graph_of(build: Any) -> Any:
        def made() -> tuple[linnet.Graph, dict[str, np.ndarray]]:
            graph, rng = linnet.Graph(), np.random.default_rng(8)
            shapes = {"q": (2, 20, 8), "k": (2, 20, 8), "v": (2, 20, 12)}
            fed = {name: graph.placeholder(name, shape) for name, shape in shapes.items()}
            graph.signature("infer", fed, build(**computed(fed)))
            return graph, {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

        return made

    def product(q: Any, k: Any) -> Any:
        return ops.matmul(q, k, transpose_b=True)

    def weights_are_read(q: Any, k: Any, v: Any) -> dict[str, Any]:
        p = ops.softmax(product(q, k) * 0.3)
        return {"y": ops.matmul(p, v), "p": p}

    def scores_are_read(q: Any, k: Any, v: Any) -> dict[str, Any]:
        s = product(q, k)
        return {"y": ops.matmul(ops.softmax(s), v), "s": s.max()}

    def weights_twice(q: Any, k: Any, v: Any) -> dict[str, Any]:
        p = ops.softmax(product(q, k))
        return {"y": ops.matmul(p, v), "z": ops.matmul(p, k)}

    def another_axis(q: Any, k: Any, v: Any) -> dict[str, Any]:
        return {"y": ops.matmul(ops.softmax(product(q, k), axis=1), v)}

    def transposed(q: Any, k: Any, v: Any) -> dict[str, Any]:
        return {"y": ops.matmul(ops.softmax(product(q, k)), v, transpose_a=True)}

    def on_the_right(q: Any, k: Any, v: Any) -> dict[str, Any]:
        return {"y": ops.matmul(v, ops.softmax(product(q, k)), transpose_a=True)}

    made = (weights_are_read, scores_are_read, weights_twice, another_axis, transposed, on_the_right)
    return [(build.__name__, graph_of(build)) for build in made]


@pytest.mark.parametrize(("name", "made"), variants(), ids=[name for name, _ in variants()])
def test_what_is_no_attention_runs_as_steps(name: str, made: Any) -> None:
    graph, feeds = made()
    compare(graph, feeds, whole=False)


def test_operands_are_broadcast_and_transposed() -> None:
    """One key for all heads, and each operand transposed or not."""
    for tq, tk, tv in itertools.product((False, True), repeat=3):
        graph, rng = linnet.Graph(), np.random.default_rng(9)
        shapes = {"q": (2, 3, 18, 8), "k": (2, 1, 40, 8), "v": (40, 20)}
        for name, turned in (("q", tq), ("k", tk), ("v", tv)):
            if turned:
                shapes[name] = (*shapes[name][:-2], shapes[name][-1], shapes[name][-2])
        fed = {name: graph.placeholder(name, shape) for name, shape in shapes.items()}
        x = computed(fed)
        scores = ops.matmul(x["q"], x["k"], transpose_a=tq, transpose_b=not tk) * 0.25
        y = ops.matmul(ops.softmax(scores), x["v"], transpose_b=tv)
        graph.signature("infer", fed, {"y": y})
        compare(graph, {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()})
