"""Layers against PyTorch's with the same weights: forward, and the gradients of the input and of every variable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn, ops
from linnet.facade import Graph
from linnet.ir.function import Tensor
from tests.with_torch import torch

Array = np.ndarray[Any, Any]
Named = dict[str, Any]


def some(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def check(
    build: Callable[[Tensor], Tensor],
    x: Array,
    reference: Callable[[Any], Any],
    pairs: Mapping[str, tuple[Any, Callable[[Array], Array]]],
    *,
    open_batch: bool = True,
    tolerance: float = 2e-5,
    integers: bool = False,
    updates: Callable[[Graph, Any], None] | None = None,
) -> None:
    """pairs: variable -> PyTorch's parameter, and how its array (or its gradient's) becomes the variable's."""
    graph = Graph()
    shape = ["batch", *x.shape[1:]] if open_batch else x.shape
    tensor = graph.placeholder("x", shape, linnet.ir.dtypes.dtype_of(x.dtype))
    y = build(tensor)
    assert set(pairs) == {v.name for v in graph.trainable_variables}
    for name, (parameter, form) in pairs.items():
        value = form(parameter.detach().numpy()).astype(np.float32)
        assert value.shape == graph.variables[name].value.shape, name
        graph.variables[name].value = np.ascontiguousarray(value)
    given = torch.from_numpy(x)
    if not integers:
        given.requires_grad_()
    wanted = reference(given)
    weights = some(*wanted.shape, seed=5)
    (wanted * torch.from_numpy(weights)).sum().backward()
    loss = (y * graph.placeholder("weights", ["batch", *weights.shape[1:]] if open_batch else weights.shape)).sum()
    variables = [graph.variables[name] for name in pairs]
    slopes = linnet.gradients(loss, variables if integers else [*variables, tensor])
    outputs = {"y": y, **{f"d{i}": g for i, g in enumerate(slopes)}}
    placeholders = {"x": tensor, "weights": graph.main.inputs[-1]}
    graph.signature("train", placeholders, outputs, updates=graph.side_updates_of([y]))
    session = linnet.Session(graph, "train", threads=1)
    found = session.run({"x": x, "weights": weights})
    np.testing.assert_allclose(found["y"], wanted.detach().numpy(), rtol=tolerance, atol=tolerance)
    expected = [form(parameter.grad.numpy()) for parameter, form in pairs.values()]
    if not integers:
        expected.append(given.grad.numpy())
    for name, i, value in zip([*pairs, "x"], range(len(expected)), expected, strict=False):
        scale = max(float(np.abs(value).max()), 0.05)  # values that are 0 except for rounding are compared absolutely
        np.testing.assert_allclose(found[f"d{i}"] / scale, value / scale, rtol=1e-4, atol=tolerance, err_msg=name)
    if updates is not None:
        updates(graph, session.variables)


def same(a: Array) -> Array:
    return a


def turned(a: Array) -> Array:
    return a.T


def torch_seeded(make: Callable[[], Any]) -> Any:
    torch.manual_seed(3)
    return make()


def test_dense() -> None:
    layer = torch_seeded(lambda: torch.nn.Linear(5, 7))
    pairs = {"dense/weight": (layer.weight, turned), "dense/bias": (layer.bias, same)}
    check(
        lambda x: nn.dense(x, 7, activation="gelu"), some(3, 4, 5), lambda x: torch.nn.functional.gelu(layer(x)), pairs
    )
    layer = torch_seeded(lambda: torch.nn.Linear(5, 7, bias=False))
    check(lambda x: nn.dense(x, 7, bias=False, name="d"), some(3, 5), layer, {"d/weight": (layer.weight, turned)})


@pytest.mark.parametrize(
    ("dimensions", "arguments", "twin"),
    [
        (1, {"stride": 2, "padding": 2}, {"stride": 2, "padding": 2}),
        (2, {"padding": 1}, {"padding": 1}),
        (2, {"groups": 2, "dilation": 2}, {"groups": 2, "dilation": 2}),
        (2, {"stride": (2, 1), "padding": (0, 1), "bias": False}, {"stride": (2, 1), "padding": (0, 1), "bias": False}),
        (2, {"padding": "same"}, {"padding": "same"}),
        (3, {"padding": "valid"}, {}),
    ],
)
def test_conv(dimensions: int, arguments: Named, twin: Named) -> None:
    kind = [torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d][dimensions - 1]
    layer = torch_seeded(lambda: kind(4, 6, 3, **twin))
    pairs = {"conv/weight": (layer.weight, same)}
    if layer.bias is not None:
        pairs["conv/bias"] = (layer.bias, same)
    x = some(2, 4, *[7, 8, 6][:dimensions])
    check(lambda t: nn.conv(t, 6, 3, **arguments), x, layer, pairs)


def test_channels_last_is_the_same_convolution() -> None:
    layer = torch_seeded(lambda: torch.nn.Conv2d(4, 6, 3, padding=1))

    def reference(x: Any) -> Any:
        return torch.nn.functional.max_pool2d(layer(x.permute(0, 3, 1, 2)), 2).permute(0, 2, 3, 1)

    def build(x: Tensor) -> Tensor:
        return nn.max_pool(nn.conv(x, 6, 3, padding="same", channel_axis=-1), 2, channel_axis=-1)

    check(build, some(2, 6, 8, 4), reference, {"conv/weight": (layer.weight, same), "conv/bias": (layer.bias, same)})


def test_depthwise_and_separable_conv() -> None:
    layer = torch_seeded(lambda: torch.nn.Conv2d(4, 8, 3, groups=4))
    pairs = {"depthwise_conv/weight": (layer.weight, same), "depthwise_conv/bias": (layer.bias, same)}
    check(lambda x: nn.depthwise_conv(x, 3, multiplier=2), some(2, 4, 7, 6), layer, pairs)
    deep = torch_seeded(lambda: torch.nn.Conv2d(4, 4, 3, groups=4, padding=1, stride=2, bias=False))
    point = torch_seeded(lambda: torch.nn.Conv2d(4, 5, 1))
    pairs = {
        "separable_conv/depthwise/weight": (deep.weight, same),
        "separable_conv/pointwise/weight": (point.weight, same),
        "separable_conv/pointwise/bias": (point.bias, same),
    }
    check(lambda x: nn.separable_conv(x, 5, 3, stride=2, padding=1), some(2, 4, 7, 7), lambda x: point(deep(x)), pairs)


@pytest.mark.parametrize(
    "arguments", [{"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2}, {"dilation": 2, "bias": False}]
)
def test_conv_transpose(arguments: Named) -> None:
    layer = torch_seeded(lambda: torch.nn.ConvTranspose2d(4, 6, 3, **arguments))
    pairs = {"conv_transpose/weight": (layer.weight, same)}
    if layer.bias is not None:
        pairs["conv_transpose/bias"] = (layer.bias, same)
    check(lambda t: nn.conv_transpose(t, 6, 3, **arguments), some(2, 4, 5, 6), layer, pairs)


def test_conv_transpose_same_multiplies_sizes() -> None:
    for size, stride in ((3, 2), (4, 2), (2, 3), (5, 1)):
        x = Graph().placeholder("x", ("batch", 2, 5, 6))
        assert nn.conv_transpose(x, 3, size, stride=stride, padding="same").shape == (
            "batch",
            3,
            5 * stride,
            6 * stride,
        )


def test_pooling() -> None:
    x, functional = some(2, 3, 7, 8), torch.nn.functional
    check(lambda t: nn.max_pool(t, 3, stride=2, padding=1), x, lambda t: functional.max_pool2d(t, 3, 2, 1), {})
    check(lambda t: nn.max_pool(t, (2, 1)), x, lambda t: functional.max_pool2d(t, (2, 1)), {})
    check(lambda t: nn.avg_pool(t, 3, padding=1), x, lambda t: functional.avg_pool2d(t, 3, padding=1), {})
    check(
        lambda t: nn.avg_pool(t, 2, padding=1, count_padding=False), x,
        lambda t: functional.avg_pool2d(t, 2, padding=1, count_include_pad=False), {},
    )  # fmt: skip
    check(nn.global_avg_pool, x, lambda t: t.mean((2, 3)), {})
    check(nn.global_max_pool, x, lambda t: t.amax((2, 3)), {})
    assert nn.avg_pool(Graph().placeholder("x", (1, 5, 7, 3)), 2, padding="same", channel_axis=-1).shape == (1, 3, 4, 3)


@pytest.mark.parametrize("channel_axis", [1, -1])
@pytest.mark.parametrize("open_batch", [True, False])
def test_batch_norm_trains_as_pytorch_and_keeps_its_averages(channel_axis: int, open_batch: bool) -> None:
    layer = torch_seeded(lambda: torch.nn.BatchNorm2d(3, momentum=0.2, eps=1e-4))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([0.5, 1.0, 2.0]))
        layer.bias.copy_(torch.tensor([0.1, -0.3, 0.0]))
    last = channel_axis == -1
    x = some(4, 5, 6, 3) * 2 + 1 if last else some(4, 3, 5, 6) * 2 + 1

    def reference(t: Any) -> Any:
        return layer(t.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) if last else layer(t)

    def averages(graph: Graph, store: linnet.Store) -> None:
        assert [v.name for v in graph.trainable_variables] == ["batch_norm/scale", "batch_norm/bias"]
        np.testing.assert_allclose(store["batch_norm/mean"], layer.running_mean.numpy(), rtol=1e-5)
        np.testing.assert_allclose(store["batch_norm/variance"], layer.running_var.numpy(), rtol=1e-5)

    pairs = {"batch_norm/scale": (layer.weight, same), "batch_norm/bias": (layer.bias, same)}
    check(
        lambda t: nn.batch_norm(t, True, momentum=0.2, epsilon=1e-4, channel_axis=channel_axis), x, reference, pairs,
        open_batch=open_batch, updates=averages,
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5)])
@pytest.mark.parametrize("open_batch", [True, False])
def test_batch_norm_of_features_trains_as_pytorch(shape: tuple[int, ...], open_batch: bool) -> None:
    layer = torch_seeded(lambda: torch.nn.BatchNorm1d(3))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([0.5, 1.0, 2.0]))

    def averages(graph: Graph, store: linnet.Store) -> None:
        np.testing.assert_allclose(store["batch_norm/mean"], layer.running_mean.numpy(), rtol=1e-5)
        np.testing.assert_allclose(store["batch_norm/variance"], layer.running_var.numpy(), rtol=1e-5)

    pairs = {"batch_norm/scale": (layer.weight, same), "batch_norm/bias": (layer.bias, same)}
    x = some(*shape) * 2 + 1
    check(lambda t: nn.batch_norm(t, True), x, layer, pairs, open_batch=open_batch, updates=averages)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_a_vector_is_refused(training: bool) -> None:
    graph = Graph()
    with pytest.raises(
        linnet.UsageError,
        match=r"'x': batch_norm does not support inputs of this rank; expected 2 to 8 dimensions, got \[3\]",
    ):
        nn.batch_norm(graph.placeholder("x", (3,)), training)
    assert not graph.variables


def test_batch_norm_infers_with_its_averages() -> None:
    graph = Graph()
    x = graph.placeholder("x", ("batch", 3))
    with graph.scope("net"):
        trained = nn.batch_norm(x, True)
    with graph.scope("net", reuse=True):
        inferred = nn.batch_norm(x, False)
    assert list(graph.variables) == [f"net/batch_norm/{n}" for n in ("scale", "bias", "mean", "variance")]
    graph.signature("train", {"x": x}, {"y": trained}, updates=graph.side_updates_of([trained]))
    graph.signature("infer", {"x": x}, {"y": inferred})
    assert graph.side_updates_of([inferred]) == {}
    model = linnet.Model(graph)
    store = linnet.Store(model)
    train, infer = (linnet.Session(model, name, store=store) for name in ("train", "infer"))
    layer, value = torch.nn.BatchNorm1d(3), some(8, 3)
    for _ in range(3):
        train.run({"x": value})
        layer(torch.from_numpy(value))
    layer.eval()
    np.testing.assert_allclose(
        infer.run({"x": value})["y"], layer(torch.from_numpy(value)).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_a_shared_batch_norm_updates_once_per_use() -> None:
    graph = Graph()
    a, b = graph.placeholder("a", (4, 3)), graph.placeholder("b", (6, 3))
    with graph.scope("net"):
        first = nn.batch_norm(a, True)
    with graph.scope("net", reuse=True):
        second = nn.batch_norm(b, True)
    loss = first.sum() + second.sum()
    graph.signature("train", {"a": a, "b": b}, {"loss": loss}, updates=graph.side_updates_of([loss]))
    session = linnet.Session(graph, "train")
    feeds = {"a": some(4, 3), "b": some(6, 3)}
    session.run(feeds)
    layer = torch.nn.BatchNorm1d(3)
    for value in feeds.values():
        layer(torch.from_numpy(value))
    np.testing.assert_allclose(
        session.variables["net/batch_norm/mean"], layer.running_mean.numpy(), rtol=1e-5, atol=1e-7
    )
    np.testing.assert_allclose(session.variables["net/batch_norm/variance"], layer.running_var.numpy(), rtol=1e-5)


def test_layer_and_group_norm() -> None:
    layer = torch_seeded(lambda: torch.nn.LayerNorm((3, 5)))
    pairs = {"layer_norm/scale": (layer.weight, same), "layer_norm/bias": (layer.bias, same)}
    check(lambda x: nn.layer_norm(x, -2), some(4, 3, 5), layer, pairs)
    rms = torch_seeded(lambda: torch.nn.RMSNorm(5, eps=1e-5))
    check(lambda x: nn.layer_norm(x, bias=False, rms=True), some(4, 5), rms, {"layer_norm/scale": (rms.weight, same)})
    group = torch_seeded(lambda: torch.nn.GroupNorm(2, 6))
    pairs = {"group_norm/scale": (group.weight, same), "group_norm/bias": (group.bias, same)}
    check(lambda x: nn.group_norm(x, 2), some(3, 6, 4, 5), group, pairs)
    instance = torch.nn.InstanceNorm2d(3)
    check(lambda x: nn.instance_norm(x, scale=False, bias=False), some(2, 3, 4, 5), instance, {})


def test_embedding() -> None:
    layer = torch_seeded(lambda: torch.nn.Embedding(11, 4))
    ids = np.random.default_rng(0).integers(0, 11, (3, 5)).astype(np.int32)
    check(
        lambda x: nn.embedding(x, 11, 4), ids, lambda x: layer(x.long()), {"embedding/weight": (layer.weight, same)},
        integers=True,
    )  # fmt: skip


def test_activations() -> None:
    functional, x = torch.nn.functional, np.linspace(-4, 4, 18, dtype=np.float32).reshape(2, 9) + np.float32(0.013)
    x[0, 0] = 0.0
    for name, reference in {
        "elu": functional.elu, "gelu": functional.gelu, "gelu_tanh": lambda t: functional.gelu(t, approximate="tanh"),
        "hard_sigmoid": functional.hardsigmoid, "hard_swish": functional.hardswish, "leaky_relu": functional.leaky_relu,
        "log_softmax": lambda t: functional.log_softmax(t, -1), "mish": functional.mish, "relu": functional.relu,
        "relu6": functional.relu6, "selu": functional.selu, "sigmoid": torch.sigmoid, "silu": functional.silu,
        "softmax": lambda t: functional.softmax(t, -1), "softplus": functional.softplus, "softsign": functional.softsign,
        "tanh": torch.tanh,
    }.items():  # fmt: skip
        check(lambda t, name=name: nn.activations.activate(t, name), x, reference, {})
    layer = torch.nn.PReLU(3)
    check(nn.prelu, some(2, 3, 4), layer, {"prelu/slope": (layer.weight, same)})
    extreme = np.array([[-1e4, -90.0, 0.0, 90.0, 1e4]], np.float32)
    check(nn.softplus, extreme, functional.softplus, {})
    with pytest.raises(linnet.UsageError, match=r"unknown activation.*relu.*got 'rely'"):
        nn.dense(Graph().placeholder("x", (1, 2)), 3, activation="rely")


def test_a_bad_layer_says_what_is_wrong() -> None:
    graph = Graph()
    x, open_ = graph.placeholder("x", ("batch", 4, 8, 8)), graph.placeholder("open", (2, None))
    for build, words in (
        (lambda: nn.dense(open_, 3), "the size of that axis is open"),
        (lambda: nn.dense(x, 0), "units of dense.*above 0, got 0"),
        (lambda: nn.conv(x, 6, 3, groups=4), "4 channels and 6 filters"),
        (lambda: nn.conv(x, 6, (3, 3, 3)), "size has 3 numbers.*expected 2 numbers or one"),
        (lambda: nn.conv(x, 6, 3, padding="SAME"), "unknown padding"),
        (lambda: nn.conv(open_, 6, 3), "3 to 5 dimensions"),
        (lambda: nn.dropout(x, 1.0, True), "0 <= rate < 1"),
        (lambda: nn.embedding(x, 3, 4), "expected i32 or i64, got f32"),
        (lambda: nn.dense(x.cast("i32"), 3), "needs a float input"),
        (lambda: nn.multi_head_attention(x[:, 0], heads=3), "divisor of 8, got 3 heads"),
        (lambda: nn.dense(x, 3, weight_start=np.zeros((8, 4))), r"expected f32 \[8, 3\], got float64 \[8, 4\]"),
        (lambda: nn.group_norm(x, 3), "a divisor of 4"),
        (lambda: nn.rnn(x[:, 0], 3, activation="gelu"), "tanh or relu"),
    ):  # fmt: skip
        with pytest.raises(linnet.UsageError, match=words):
            build()


def test_dropout_keeps_the_mean_and_is_resumed_by_its_counter() -> None:
    graph = Graph(seed=4)
    x = graph.placeholder("x", ("batch", 1000))
    y, other, inferred = nn.dropout(x, 0.25, True), nn.dropout(x, 0.25, True), nn.dropout(x, 0.25, False)
    assert inferred is x
    slope = linnet.gradients(y.sum(), [x])[0]
    outputs = {"y": y, "other": other, "slope": slope}
    graph.signature("train", {"x": x}, outputs, updates=graph.side_updates_of([y]))
    model, ones = linnet.Model(graph), np.ones((100, 1000), np.float32)
    session = linnet.Session(model, "train")
    first, second = session.run({"x": ones}), session.run({"x": ones})
    kept = first["y"] != 0
    assert abs(kept.mean() - 0.75) < 0.005 and set(np.unique(first["y"])) == {0.0, np.float32(4 / 3)}
    np.testing.assert_array_equal(first["slope"], first["y"])
    assert (first["y"] != first["other"]).mean() > 0.3 and (first["y"] != second["y"]).mean() > 0.3
    assert session.variables["random/counter"] == 2
    again = linnet.Session(model, "train")
    again.variables["random/counter"] = np.int64(1)
    np.testing.assert_array_equal(again.run({"x": ones})["y"], second["y"])
    reseeded = Graph(seed=5)
    x = reseeded.placeholder("x", (100, 1000))
    reseeded.signature("train", {"x": x}, {"y": nn.dropout(x, 0.25, True)})
    assert (linnet.Session(reseeded, "train").run({"x": ones})["y"] != first["y"]).mean() > 0.3


def test_noise() -> None:
    graph = Graph()
    x = graph.placeholder("x", ("batch", 500))
    outputs = {
        "u": nn.random_uniform(graph, (200, 500), -1.0, 3.0), "n": nn.random_normal(graph, ops.shape(x), 2.0, 0.5),
        "g": nn.gaussian_noise(x, 0.1, True),
    }  # fmt: skip
    graph.signature("train", {"x": x}, outputs)
    found = linnet.Session(graph, "train").run({"x": np.zeros((300, 500), np.float32)})
    assert found["u"].min() >= -1 and found["u"].max() < 3 and abs(found["u"].mean() - 1) < 0.02
    assert found["n"].shape == (300, 500) and abs(found["n"].mean() - 2) < 0.01 and abs(found["n"].std() - 0.5) < 0.01
    assert abs(found["g"].std() - 0.1) < 0.002


def test_layers_know_their_sizes_behind_dropout_and_noise_of_an_open_batch() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", ("batch", 1, 4, 6))
    for y in (nn.dropout(x, 0.5, True), nn.gaussian_noise(x, 0.1, True), nn.random_uniform(graph, linnet.ops.shape(x))):
        assert y.shape == ("batch", 1, 4, 6)
        assert nn.dense(nn.flatten(y), 3).shape == ("batch", 3)
