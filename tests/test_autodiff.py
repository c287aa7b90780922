"""Gradients against finite differences in f64 (scalar reference kernels) and against PyTorch: composition, broadcasting, points
without a derivative, and errors that name the node. Single ops and attributes: test_gradients.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet._generated.op_table import OPS
from linnet.autodiff import gradients
from linnet.autodiff.rules import RULES
from linnet.builder.generated import roi_align
from linnet.builder.mapping import pointwise
from linnet.facade import Graph
from linnet.ir.function import Tensor
from tests.gradient_cases import some

Build = Callable[..., Tensor]
Arrays = list[np.ndarray[Any, Any]]


def session(
    build: Build, arrays: Arrays, order: int = 1, dynamic: bool = False
) -> tuple[Callable[[Arrays], float], Arrays]:
    """The function of the arrays to differentiate, and its derivative at `arrays`, both from one graph.

    The scalar is sum(y * weights) with fixed random weights; for second order, the sum of squares of its gradients."""
    graph = Graph()
    main = graph.function()
    inputs = [main.placeholder(f"x{i}", "f64", [None] * a.ndim if dynamic else a.shape) for i, a in enumerate(arrays)]
    y = build(*inputs)
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    main.outputs = [y]
    graph.signature("infer", main)
    shape = next(iter(linnet.Session(graph, reference=True).run(feeds).values())).shape
    weights = main.constant(np.random.default_rng(5).uniform(0.5, 1.5, shape), "weights")
    loss = ops.reduce(ops.multiply(y, weights), kind="sum", keep_dims=False)
    slopes = gradients(loss, inputs)
    if order == 2:
        squares = [ops.reduce(ops.multiply(g, g), kind="sum", keep_dims=False) for g in slopes]
        loss = squares[0]
        for square in squares[1:]:
            loss = ops.add(loss, square)
        slopes = gradients(loss, inputs)
    main.outputs = [loss, *slopes]
    graph.signature("infer", main)
    runner = linnet.Session(graph, reference=True)
    names = [t.name for t in main.outputs]

    def value(at: Arrays) -> float:
        return float(runner.run({f"x{i}": a for i, a in enumerate(at)}, fetches=names[:1])[names[0]])

    found = runner.run(feeds)
    return value, [found[name] for name in names[1:]]


def check(build: Build, *arrays: Any, order: int = 1, dynamic: bool = False, probes: int = 6) -> None:
    """Compares with central differences at some elements of every array."""
    values = [np.array(a, np.float64) for a in arrays]
    function, found = session(build, values, order, dynamic)
    rng, step = np.random.default_rng(1), 1e-5
    for i, (array, gradient) in enumerate(zip(values, found, strict=True)):
        assert gradient.shape == array.shape and gradient.dtype == array.dtype
        for flat in rng.permutation(array.size)[:probes]:
            near = []
            for sign in (1, -1):
                moved = [a.copy() for a in values]
                moved[i].reshape(-1)[flat] += sign * step
                near.append(function(moved))
            expected = (near[0] - near[1]) / (2 * step)
            got = gradient.reshape(-1)[flat]
            assert got == pytest.approx(expected, rel=2e-6, abs=2e-7), f"input {i}, element {flat}"


def test_relu_and_relu6_are_flat_at_their_corners() -> None:
    """The gradient at points without a derivative equals PyTorch's."""
    _, found = session(ops.relu, [np.array([-1.0, 0.0, 2.0])])
    assert found[0][1] == 0 and found[0][0] == 0 and found[0][2] > 0
    _, found = session(lambda x: ops.clip(x, 0.0, 6.0), [np.array([0.0, 6.0, 3.0])])
    assert list(found[0][:2]) == [0, 0]


def test_pow_at_zero() -> None:
    _, found = session(lambda x, y: pointwise([x, y], lambda a, b: a**b), [np.array([0.0, 2.0]), np.array([2.0, 3.0])])
    assert np.isfinite(found[0]).all() and np.isfinite(found[1]).all() and found[1][0] == 0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (3, 4)),
        ((3, 4), (4,)),
        ((3, 4), (1, 4)),
        ((3, 1), (1, 4)),
        ((), (2, 3)),
        ((2, 1, 3), (4, 1)),
        ((1,), (5,)),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_broadcasting_sums_over_what_was_repeated(a: tuple[int, ...], b: tuple[int, ...], dynamic: bool) -> None:
    check(ops.multiply, some(*a), some(*b, seed=3), dynamic=dynamic, order=2)


def test_equal_maxima_share_the_gradient() -> None:
    _, found = session(lambda x: ops.reduce(x, kind="max", axis=[0]), [np.array([1.0, 3.0, 3.0])])
    assert found[0][0] == 0 and found[0][1] == found[0][2] > 0


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_casts_between_floats(dtype: str) -> None:
    graph = Graph()
    x = graph.placeholder("x", (3,))
    y = (x * 3.0).cast(dtype).cast("f32") * 0.5
    (slope,) = gradients(y.sum(), [x])
    assert slope.dtype == "f32" and isinstance(slope, Tensor)
    graph.signature("infer", {"x": x}, {"slope": slope})
    np.testing.assert_array_equal(linnet.Session(graph).run({"x": np.ones(3, np.float32)})["slope"], np.full(3, 1.5))


def affine() -> tuple[Graph, Tensor, Tensor]:
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (2, 3))
    return graph, x, ops.mean(ops.relu(x, name="relu"))


def test_what_the_loss_does_not_depend_on_has_gradient_zero() -> None:
    graph, x, loss = affine()
    other = x.function.placeholder("other", "f32", (2,))
    x.function.outputs = gradients(loss, [other, graph.variable("v", np.ones(3, np.float32))])
    graph.signature("infer", x.function)
    found = linnet.Session(graph).run({})
    assert [list(v) for v in found.values()] == [[0, 0], [0, 0, 0]]


def test_a_variable_counts_every_read() -> None:
    graph = Graph()
    main = graph.function()
    v = graph.variable("v", np.array([3.0], np.float32))
    loss = ops.reduce(ops.multiply(main.read(v), main.read(v)), kind="sum")
    main.outputs = gradients(loss, [v])
    graph.signature("infer", main, [], ["slope"])
    assert linnet.Session(graph).run({})["slope"] == [6.0]


def test_only_the_path_is_differentiated() -> None:
    """Frozen variables cost nothing: no gradient of w0, none of x."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (2, 3))
    hidden = ops.matmul(x, main.read(graph.variable("w0", np.ones((3, 3), np.float32))))
    head = graph.variable("w1", np.ones((3, 1), np.float32))
    loss = ops.mean(ops.matmul(hidden, main.read(head)))
    before = len(main.nodes)
    gradients(loss, [head])
    assert [n.op for n in main.nodes[before:]].count("matmul") == 1


def test_errors_name_node_op_and_reason() -> None:
    graph, x, _ = affine()
    image, box = ops.reshape(x, [1, 1, 2, 3]), x.function.constant(np.float32([[0, 0, 2, 1]]))
    pooled = roi_align(image, box, x.function.constant(np.zeros(1, np.int64)), name="regions")
    with pytest.raises(linnet.GraphError, match=r"'regions': .*roi_align cannot be differentiated.*fixed boxes"):
        gradients(pooled, [x])
    before = len(x.function.nodes)
    with pytest.raises(linnet.GraphError):
        gradients(ops.multiply(pooled, pooled), [x])
    assert len(x.function.nodes) == before + 1  # only the product, nothing of the gradient
    numbers = ops.cast(x, dtype="i32")
    with pytest.raises(linnet.UsageError, match=r"only float tensors.*i32"):
        gradients(numbers, [x])
    elsewhere = graph.function("other").placeholder("y", "f32", ())
    with pytest.raises(linnet.UsageError, match=r"'y'.*function 'other'"):
        gradients(ops.mean(x), [elsewhere])


def test_the_op_table_and_the_rules_agree() -> None:
    """Ops whose row says "none" (and why) have no rule; all others have one."""
    assert set(RULES) == {name for name, row in OPS.items() if not row["gradient"].startswith("none")}
    assert all(len(row["gradient"]) > len("none: ") for row in OPS.values())


def test_gradients_equal_pytorch_on_a_small_lenet(torch: Any) -> None:
    rng = np.random.default_rng(0)
    shapes = {"c1": (4, 1, 5, 5), "b1": (4,), "c2": (6, 4, 3, 3), "b2": (6,), "w": (6 * 5 * 5, 10), "b": (10,)}
    values = {name: (rng.standard_normal(s) * 0.2).astype(np.float32) for name, s in shapes.items()}
    image = rng.standard_normal((3, 1, 28, 28)).astype(np.float32)
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (None, 1, 28, 28))
    v = {name: graph.variable(name, value) for name, value in values.items()}
    r = {name: main.read(variable) for name, variable in v.items()}
    h = ops.pool(ops.relu(ops.conv(x, r["c1"], r["b1"])), kernel=[2, 2], strides=[2, 2])[0]
    h = ops.pool(ops.relu(ops.conv(h, r["c2"], r["b2"])), kernel=[2, 2], strides=[2, 2])[0]
    y = ops.softmax(ops.add(ops.matmul(ops.reshape(h, [-1, 150]), r["w"]), r["b"]), log=True)
    loss = ops.scale(ops.mean(ops.gather(y, main.constant(np.array([3], np.int64)), axis=1)), -1.0)
    main.outputs = [loss, *gradients(loss, list(v.values()))]
    graph.signature("infer", main, [], ["loss", *v])
    found = linnet.Session(graph).run({"x": image})
    t = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    f = torch.nn.functional
    h = f.max_pool2d(f.relu(f.conv2d(torch.tensor(image), t["c1"], t["b1"])), 2)
    h = f.max_pool2d(f.relu(f.conv2d(h, t["c2"], t["b2"])), 2)
    expected = f.cross_entropy(h.reshape(-1, 150) @ t["w"] + t["b"], torch.tensor([3, 3, 3]))
    expected.backward()
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-5)
    for name, tensor in t.items():
        np.testing.assert_allclose(found[name], tensor.grad.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)
