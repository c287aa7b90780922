"""Gradients: every rule against central finite differences in f64 (scalar reference kernels), first and second order,
broadcasting and dynamic shapes, errors that name the node; and against PyTorch."""

# ruff: noqa: B023 (what loops build is checked before the loop goes on)
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
from linnet.graph import Graph, Tensor
from linnet.mapping import pointwise

Build = Callable[..., Tensor]
Arrays = list[np.ndarray[Any, Any]]


def session(
    build: Build, arrays: Arrays, order: int = 1, dynamic: bool = False
) -> tuple[Callable[[Arrays], float], Arrays]:
    """The function of the arrays whose derivative is asked for, and that derivative at `arrays`, both from one graph.

    The scalar is sum(y * weights) with fixed random weights; of second order: the sum of squares of its gradients."""
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


def some(*shape: int, seed: int = 0, low: float = 0.3, high: float = 1.7) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed + sum(shape)).uniform(low, high, shape)


UNARY = [
    "neg", "abs", "sign", "reciprocal", "sqrt", "exp", "log", "log1p", "expm1", "tanh", "sigmoid", "erf", "floor", "ceil",
    "round", "trunc", "sin", "cos", "tan", "asinh", "sinh", "cosh", "atan",
]  # fmt: skip
BINARY = ["add", "sub", "mul", "div", "min", "max", "pow", "mod", "fmod", "atan2"]


@pytest.mark.parametrize("opcode", UNARY)
@pytest.mark.parametrize("order", [1, 2])
def test_unary_opcodes(opcode: str, order: int) -> None:
    check(lambda x: pointwise([x], lambda v: v.unary(opcode)), some(3, 4, high=1.4), order=order)


@pytest.mark.parametrize(
    ("opcode", "low", "high"), [("asin", -0.9, 0.9), ("acos", -0.9, 0.9), ("atanh", -0.9, 0.9), ("acosh", 1.2, 3)]
)
def test_unary_opcodes_of_small_domains(opcode: str, low: float, high: float) -> None:
    for order in (1, 2):
        check(lambda x: pointwise([x], lambda v: v.unary(opcode)), some(5, low=low, high=high), order=order)


@pytest.mark.parametrize("opcode", BINARY)
@pytest.mark.parametrize("order", [1, 2])
def test_binary_opcodes_with_broadcasting(opcode: str, order: int) -> None:
    check(
        lambda x, y: pointwise([x, y], lambda a, b: a.binary(opcode, b)),
        some(2, 3, 4),
        some(3, 1, seed=9),
        order=order,
        probes=4,
    )


def test_whole_programs() -> None:
    check(ops.gelu, some(3, 5, low=-2, high=2), order=2)
    check(ops.silu, some(3, 5, low=-2, high=2), order=2)
    check(lambda x: ops.clip(x, 0.5, 1.2), some(20))
    check(
        lambda x, y: ops.where(pointwise([x], lambda v: v > 1.0), ops.multiply(x, y), y), some(4, 5), some(5), order=2
    )
    check(lambda x: pointwise([x, x], lambda a, b: a * b * a), some(4), order=2)


def test_relu_and_relu6_are_flat_at_their_corners() -> None:
    """As PyTorch's."""
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


def copied(**attributes: Any) -> Build:
    return lambda *x: ops.copy(x, **attributes)[0]


def split_parts(x: Tensor) -> Tensor:
    parts = ops.copy([x], kind="split", axis=1, shape=[1, 2, 3], outputs=3)
    return ops.multiply(parts[0], parts[2])


COPIES: dict[str, tuple[Build, list[tuple[int, ...]]]] = {
    "identity": (copied(), [(2, 3)]),
    "reshape": (copied(kind="reshape", shape=[4, -1]), [(2, 6)]),
    "transpose": (copied(kind="transpose", perm=[2, 0, 1]), [(2, 3, 4)]),
    "transpose_reversed": (copied(kind="transpose"), [(2, 3, 4)]),
    "concat": (copied(kind="concat", axis=-1), [(2, 3), (2, 1), (2, 2)]),
    "split": (split_parts, [(2, 6)]),
    "slice": (copied(kind="slice", starts=[1, -3], ends=[3, 100], axes=[0, 2], steps=[1, 1]), [(4, 2, 5)]),
    "slice_steps": (copied(kind="slice", starts=[0, -1], ends=[4, -100], axes=[0, 1], steps=[2, -2]), [(4, 5)]),
    "pad": (copied(kind="pad", pads=[1, 0, 0, 2]), [(2, 3)]),
    "pad_crop": (copied(kind="pad", pads=[-1, 2, 0, -1]), [(3, 4)]),
    "pad_axes": (copied(kind="pad", pads=[1, 2], axes=[1]), [(2, 3)]),
    "pad_reflect": (copied(kind="pad", pads=[0, 2, 0, 1], pad_mode="reflect"), [(2, 4)]),
    "pad_edge": (copied(kind="pad", pads=[1, 2, 0, 1], pad_mode="edge"), [(2, 4)]),
    "pad_wrap": (copied(kind="pad", pads=[0, 2, 0, 1], pad_mode="wrap"), [(2, 4)]),
    "expand": (copied(kind="expand", shape=[2, 3, 4]), [(3, 1)]),
    "tile": (copied(kind="tile", shape=[2, 1, 3]), [(2, 3, 2)]),
    "squeeze": (copied(kind="squeeze", axes=[1]), [(2, 1, 3)]),
    "unsqueeze": (copied(kind="unsqueeze", axes=[0, 2]), [(2, 3)]),
    "depth_to_space": (copied(kind="depth_to_space", block=2, axis=1), [(1, 8, 2, 3)]),
    "depth_to_space_crd": (copied(kind="depth_to_space", block=2, axis=1, depth_mode="crd"), [(1, 8, 2, 3)]),
    "depth_to_space_last": (copied(kind="depth_to_space", block=2, axis=-1), [(1, 2, 3, 8)]),
    "space_to_depth": (copied(kind="space_to_depth", block=2, axis=1), [(1, 2, 4, 6)]),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies(name: str) -> None:
    build, shapes = COPIES[name]
    arrays = [some(*s, seed=i) for i, s in enumerate(shapes)]
    check(build, *arrays)
    check(lambda *x: ops.multiply(y := build(*x), y), *arrays, order=2, probes=3)


@pytest.mark.parametrize("name", ["transpose", "concat", "split", "pad", "squeeze", "unsqueeze"])
def test_copies_of_dynamic_shapes(name: str) -> None:
    build, shapes = COPIES[name]
    check(build, *(some(*s, seed=i) for i, s in enumerate(shapes)), dynamic=True)


def test_a_slice_of_a_dynamic_axis() -> None:
    check(copied(kind="slice", starts=[1], ends=[3], axes=[0], steps=[1]), some(5, 2), dynamic=True)


@pytest.mark.parametrize(
    "kind", ["sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"]
)
@pytest.mark.parametrize("keep", [True, False])
def test_reductions(kind: str, keep: bool) -> None:
    for axes in ([], [1], [0, -1]):
        check(lambda x: ops.reduce(x, kind=kind, axes=axes, keep_dims=keep), some(2, 3, 4), probes=4)
    check(lambda x: ops.reduce(x, kind=kind, axes=[1], keep_dims=keep), some(2, 3), order=2, probes=3)
    check(lambda x: ops.reduce(x, kind=kind, axes=[1], keep_dims=keep), some(2, 3), dynamic=True, probes=3)


def test_products_with_zeros_and_equal_maxima() -> None:
    check(lambda x: ops.reduce(x, kind="prod", axes=[0, 1]), [[0.0, 2.0], [3.0, 4.0]])
    _, found = session(lambda x: ops.reduce(x, kind="max", axes=[0]), [np.array([1.0, 3.0, 3.0])])
    assert found[0][0] == 0 and found[0][1] == found[0][2] > 0


MATMULS = [
    ((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 2)), ((2, 3, 4), (2, 4, 2)),
    ((2, 1, 3, 4), (5, 4, 2)), ((3, 4), (2, 4, 2)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), MATMULS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], dynamic: bool) -> None:
    check(ops.matmul, some(*a), some(*b, seed=2), probes=4, dynamic=dynamic)
    check(ops.matmul, some(*a), some(*b, seed=2), probes=2, order=2, dynamic=dynamic)


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_matmul_transposed_with_bias(ta: bool, tb: bool, batch: tuple[int, ...]) -> None:
    a, b = (*batch, *((4, 3) if ta else (3, 4))), ((2, 4) if tb else (4, 2))
    check(lambda x, y, z: ops.matmul(x, y, z, transpose_a=ta, transpose_b=tb), some(*a), some(*b), some(2), probes=4)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("order", [1, 2])
def test_softmax(log: bool, axis: int, order: int) -> None:
    check(lambda x: ops.softmax(x, axis=axis, log=log), some(3, 4, 2), order=order, probes=4)


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("axis", [1, -1])
def test_layer_norm(rms: bool, axis: int) -> None:
    shape = (3, 4) if axis == 1 else (4,)
    check(
        lambda x, s, b: ops.layer_norm(x, s, b, axis=axis, rms=rms)[0],
        some(2, 3, 4),
        some(*shape),
        some(*shape, seed=4),
    )
    check(lambda x: ops.layer_norm(x, axis=axis, rms=rms)[0], some(2, 3, 4), order=2, probes=3)


@pytest.mark.parametrize("channel_axis", [1, -1])
def test_batch_and_group_norm(channel_axis: int) -> None:
    x = some(2, 4, 3, 3) if channel_axis == 1 else some(2, 3, 3, 4)
    four = [some(4, seed=i) for i in range(4)]
    check(lambda x, s, b, m, v: ops.batch_norm(x, s, b, m, v, channel_axis=channel_axis), x, *four)
    for groups in (0, 2):
        check(lambda x, s, b: ops.group_norm(x, s, b, groups=groups, channel_axis=channel_axis), x, *four[:2])


def test_gather_and_scatter() -> None:
    def indices(x: Tensor, values: Any) -> Tensor:
        return x.function.constant(np.array(values, np.int64))

    for axis in (0, 1, -1):
        check(lambda x: ops.gather(x, indices(x, [[1, 0], [-1, 1]]), axis=axis), some(3, 2, 4))
    check(lambda x: ops.gather(ops.multiply(x, x), indices(x, [1, 1, 0])), some(3, 2), order=2)
    check(lambda x: ops.gather(x, indices(x, [[0, 1, 1], [2, 2, 0]]), kind="elements", axis=1), some(2, 3))
    check(lambda x: ops.gather(x, indices(x, [[0, 1], [2, 0], [0, 1]]), kind="nd"), some(3, 2, 2))
    for reduction in ("none", "add"):
        check(lambda x, u: ops.scatter(x, indices(x, [[0, 2]]), u, axis=1, reduction=reduction), some(2, 3), some(1, 2))
        check(
            lambda x, u: ops.scatter(x, indices(x, [[1], [0]]), u, kind="nd", reduction=reduction),
            some(3, 2),
            some(2, 2),
        )


def test_cumsum_top_k_and_cast() -> None:
    for exclusive in (False, True):
        for reverse in (False, True):
            for product in (False, True):
                check(
                    lambda x: ops.cumsum(
                        x, x.function.constant(np.int64(1)), exclusive=exclusive, reverse=reverse, product=product
                    ),
                    some(2, 4), probes=4,
                )  # fmt: skip
    check(lambda x: ops.top_k(x, x.function.constant(np.array([2], np.int64)), axis=1)[0], some(3, 5))
    check(lambda x: ops.cast(ops.multiply(x, x), dtype="f64"), some(3, 5))


CONVS: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = {
    "plain": ({}, (2, 3, 5, 6), (4, 3, 3, 2)),
    "strided": ({"strides": [2, 3], "pads": [1, 0, 2, 1]}, (2, 2, 6, 7), (3, 2, 3, 2)),
    "dilated": ({"dilations": [2, 1], "pads": [1, 1, 1, 1], "strides": [1, 2]}, (1, 2, 7, 6), (2, 2, 2, 3)),
    "grouped": ({"group": 2, "strides": [2, 2]}, (2, 4, 6, 5), (6, 2, 3, 3)),
    "depthwise": ({"group": 4, "pads": [1, 1, 1, 1]}, (2, 4, 4, 5), (4, 1, 3, 3)),
    "same": ({"auto_pad": "same_upper", "strides": [2, 2]}, (1, 2, 5, 6), (3, 2, 3, 3)),
    "same_lower": ({"auto_pad": "same_lower"}, (1, 2, 5, 6), (3, 2, 2, 2)),
    "one_d": ({"strides": [2], "pads": [1, 1]}, (2, 3, 8), (2, 3, 3)),
    "three_d": ({"strides": [1, 2, 1]}, (1, 2, 3, 4, 3), (2, 2, 2, 2, 2)),
    "channels_last": ({"channel_axis": -1, "strides": [2, 1], "group": 2}, (2, 5, 4, 4), (2, 2, 2, 3)),
}


@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize("order", [1, 2])
def test_conv(name: str, order: int) -> None:
    attributes, x, w = CONVS[name]
    check(lambda x, w, b: ops.conv(x, w, b, **attributes), some(*x), some(*w), some(w[0]), order=order, probes=3)


TRANSPOSED: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = {
    "plain": ({}, (2, 3, 4, 3), (3, 2, 2, 3)),
    "strided": ({"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]}, (1, 2, 3, 3), (2, 3, 3, 3)),
    "grouped": ({"group": 2, "strides": [2, 2]}, (1, 4, 3, 3), (4, 2, 2, 2)),
    "one_d": ({"strides": [2], "dilations": [2]}, (2, 2, 4), (2, 3, 2)),
    "channels_last": ({"channel_axis": -1, "strides": [2, 2]}, (1, 3, 3, 2), (2, 3, 2, 2)),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_conv_transpose(name: str) -> None:
    attributes, x, w = TRANSPOSED[name]
    out = w[1] * attributes.get("group", 1)
    check(lambda x, w, b: ops.conv_transpose(x, w, b, **attributes), some(*x), some(*w), some(out), probes=4)


@pytest.mark.parametrize("channel_axis", [1, -1])
@pytest.mark.parametrize("second", [0, 1])
def test_moments(channel_axis: int, second: int) -> None:
    shape = (2, 3, 4, 2)
    channels = shape[channel_axis]
    check(lambda x: ops.moments(x, channel_axis=channel_axis)[second], some(*shape), order=2, probes=3)
    check(
        lambda x, g, m: ops.moments(x, g, m, kind="products", channel_axis=channel_axis)[second],
        some(*shape), some(*shape, seed=1), some(channels), order=2, probes=3,
    )  # fmt: skip


def test_batch_norm_in_training() -> None:
    def build(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        return ops.relu(ops.batch_norm(x, scale, bias, *ops.moments(x)))

    check(build, some(3, 2, 2, 3), some(2), some(2, seed=1) - 0.5, order=1)
    check(build, some(3, 2, 2, 3), some(2), some(2, seed=1), order=2, probes=3)


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel": [2, 2], "strides": [2, 2]},
        {"kernel": [3, 2], "strides": [1, 2], "pads": [1, 0, 1, 1]},
        {"kernel": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": True},
        {"kernel": [2, 2], "strides": [2, 2], "channel_axis": -1},
        {"kernel": [3, 3], "strides": [2, 2], "auto_pad": "same_upper"},
    ],
)
def test_pool(kind: str, attributes: dict[str, Any]) -> None:
    if kind == "max":
        attributes = {k: v for k, v in attributes.items() if k != "count_include_pad"}
    shape = (2, 5, 4, 3) if "channel_axis" in attributes else (2, 3, 5, 4)
    check(lambda x: ops.pool(x, kind=kind, **attributes)[0], some(*shape))
    check(lambda x: ops.pool(ops.multiply(x, x), kind=kind, **attributes)[0], some(*shape), order=2, probes=3)


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 1.5]},
        {"mode": "linear", "axes": [2, 3], "sizes": [7, 3]},
        {"mode": "linear", "axes": [3], "scales": [0.6], "antialias": True},
        {"mode": "cubic", "axes": [-1, 2], "sizes": [9, 8], "coordinates": "align_corners"},
        {"mode": "cubic", "axes": [2], "sizes": [9], "exclude_outside": True, "coordinates": "asymmetric"},
    ],
)
def test_resize(attributes: dict[str, Any]) -> None:
    check(lambda x: ops.resize(x, **attributes), some(1, 2, 4, 5), probes=10)
    check(lambda x: ops.resize(ops.multiply(x, x), **attributes), some(1, 2, 4, 5), order=2, probes=3)


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
    """What is frozen costs nothing: no gradient of w0, none of x."""
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
    pooled = ops.pool(ops.reshape(x, [1, 1, 2, 3]), kind="lp", kernel=[2, 2], name="power")[0]
    with pytest.raises(linnet.GraphError, match=r"'power': .*pool cannot be differentiated.*kind lp"):
        gradients(pooled, [x])
    before = len(x.function.nodes)
    with pytest.raises(linnet.GraphError):
        gradients(ops.multiply(pooled, pooled), [x])
    assert len(x.function.nodes) == before + 1  # the product; nothing of the gradient stays
    numbers = ops.cast(x, dtype="i32")
    with pytest.raises(linnet.UsageError, match=r"only floats.*i32"):
        gradients(numbers, [x])
    elsewhere = graph.function("other").placeholder("y", "f32", ())
    with pytest.raises(linnet.UsageError, match=r"'y'.*function 'other'"):
        gradients(ops.mean(x), [elsewhere])


def test_the_op_table_and_the_rules_agree() -> None:
    """Ops whose row says "none" have no rule; the others have one, but for those listed here, which issue 4 still needs."""
    differentiable = {name for name, row in OPS.items() if not row["gradient"].startswith("none")}
    assert differentiable - set(RULES) == {"dequantize", "quantize"}
    assert set(RULES) <= differentiable


def test_gradients_equal_pytorch_on_a_small_lenet() -> None:
    torch = pytest.importorskip(
        "torch", reason="PyTorch is the reference: make test EXTRAS=torch, or pip install linnet[torch]"
    )
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
