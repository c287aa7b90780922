"""Quantization-aware training: fake quantization against PyTorch's, the integer model against the trained one, and accuracy
against post-training quantization where that is hard."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn, ops
from linnet._fetch import fetch_member
from linnet.quantization.aware import fake_quantize, fake_quantize_weights
from linnet.quantization.scheme import weight_clips
from tests import zoo


@functools.cache
def digits() -> tuple[np.ndarray, ...]:
    """8x8 digits of scikit-learn: x [n,1,8,8] in [0, 1], labels; 1,200 to train, 597 to test."""
    path = zoo.at_hand(lambda: fetch_member("scikit-learn", "*/datasets/data/digits.csv.gz", "1.7.2"))
    data = np.loadtxt(path, delimiter=",")
    x, y = (data[:, :64].reshape(-1, 1, 8, 8) / 16).astype(np.float32), data[:, 64].astype(np.int32)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order[:1200]], y[order[:1200]], x[order[1200:]], y[order[1200:]]


def network() -> linnet.Graph:
    """conv 3x3 - relu - conv 3x3 - relu - dense."""
    graph = linnet.Graph(seed=0)
    x = graph.placeholder("x", ("batch", 1, 8, 8))
    y = nn.relu(nn.conv(x, 16, 3, padding=1, name="c1"))
    y = nn.relu(nn.conv(y, 16, 3, stride=2, padding=1, name="c2"))
    logits = nn.dense(nn.flatten(y), 10, name="d")
    graph.signature("infer", {"x": x}, {"logits": logits})
    return graph


def train(
    graph: linnet.Graph, steps: int, rate: float, logits: linnet.Tensor, x: linnet.Tensor
) -> dict[str, np.ndarray]:
    """The variables after Adam on batches of 64."""
    t = graph.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(logits, t).mean()
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.Adam(rate).minimize(loss))
    model = linnet.Model(graph.to_bytes())
    store = linnet.Store(model)
    session = linnet.Session(model, "train", store=store)
    images, labels = digits()[:2]
    rng = np.random.default_rng(1)
    for _ in range(steps):
        batch = rng.choice(len(images), 64, replace=False)
        session.run({"x": images[batch], "t": labels[batch]})
    return store.as_dict()


def accuracy(graph: linnet.Graph) -> float:
    images, labels = digits()[2:]
    return float(np.mean(linnet.Session(graph).run({"x": images})["logits"].argmax(-1) == labels))


@pytest.mark.parametrize("low, high", [(-1.3, 2.1), (0.0, 4.0), (-3.0, 0.0), (0.5, 1.0)])
def test_fake_quantization_is_that_of_pytorch(low: float, high: float, torch: Any) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (500,))
    ends = [graph.variable(n, np.float32(v)) for n, v in (("low", low), ("high", high))]
    y = fake_quantize(x, *(v.tensor(x) for v in ends))
    graph.signature("g", {"x": x}, {"y": y, "dx": linnet.gradients((y * y).sum(), [x])[0]})
    value = np.random.default_rng(0).uniform(-4, 5, 500).astype(np.float32)
    result = linnet.Session(graph, "g").run({"x": value})
    low, high = min(low, 0), max(high, 0)
    scale = (high - low) / 255
    given = torch.from_numpy(value).requires_grad_()
    wanted = torch.fake_quantize_per_tensor_affine(given, scale, round(-128 - low / scale), -128, 127)
    (wanted * wanted).sum().backward()
    assert np.allclose(result["y"], wanted.detach().numpy(), atol=1e-5)
    edge = np.minimum(np.abs(value - low), np.abs(value - high)) < scale  # whether the last half step counts as inside
    assert np.allclose(result["dx"][~edge], given.grad.numpy()[~edge], atol=1e-4)


def test_weights_have_a_scale_per_channel_and_the_range_learns() -> None:
    graph = linnet.Graph()
    w = graph.variable(
        "w", np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32) * [[1], [10], [0.1], [0]]
    )
    w.value = w.value.astype(np.float32)
    y = fake_quantize_weights(w.tensor(), 0, bits=4)
    x = graph.placeholder("x", (6,))
    low, high = graph.variable("low", np.float32(-1)), graph.variable("high", np.float32(2))
    loss = fake_quantize(x, low.tensor(x), high.tensor(x)).sum()
    graph.signature(
        "g", {"x": x}, {"y": y, "dw": linnet.gradients(y.sum(), [w])[0]}
        | dict(zip(("dl", "dh"), linnet.gradients(loss, [low, high]), strict=True)),
    )  # fmt: skip
    result = linnet.Session(graph, "g").run({"x": np.float32([-5, -2, 0, 1, 3, 2.5])})
    scale = np.abs(w.value).max(1, keepdims=True) / 7
    scale[scale == 0] = 1
    assert np.allclose(result["y"], np.rint(w.value / scale) * scale, atol=1e-6)
    assert np.allclose(result["dw"], 1)
    assert (result["dl"], result["dh"]) == (2, 2)  # how many are outside on either side


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_clips_lower_the_error_of_weights(bits: int) -> None:
    w = np.random.default_rng(0).standard_normal((6, 200)).astype(np.float32)
    w[5] = 0
    limit = 2 ** (bits - 1) - 1

    def error(clip: np.ndarray) -> np.ndarray:
        scale = np.maximum(clip, 1e-9) / limit
        return np.square(np.clip(np.rint(w / scale), -limit, limit) * scale - w).sum(1)

    clip, peak = weight_clips(w, 0, bits), np.abs(w).max(1, keepdims=True)
    assert clip.shape == (6, 1) and clip[5] == 0 and (clip <= peak).all()
    assert (error(clip)[:5] < 0.9 * error(peak)[:5]).all()
    one = np.abs(weight_clips(w[:1] * np.float32([1e3]), None, bits)) / weight_clips(w[:1], None, bits)
    assert one.shape == (1, 1) and np.allclose(one, 1e3)  # the whole tensor, of any size


def test_the_range_of_weights_learns_and_weights_beyond_it_do_not() -> None:
    """The gradient of Esser et al. 2020: (rounded - w / scale) inside, and the largest integer outside."""
    graph = linnet.Graph()
    value = np.float32([[0.1, -0.32, 0.7], [4, -1.1, 0.25]])
    w, clip = graph.variable("w", value), graph.variable("clip", np.float32([[0.7], [-1.0]]))
    y = fake_quantize_weights(w.tensor(), 0, 4, clip.tensor())
    dw, dc = linnet.gradients((y * np.float32([[1, 2, 3], [4, 5, 6]])).sum(), [w, clip])
    graph.signature("g", {}, {"y": y, "dw": dw, "dc": dc})
    result = linnet.Session(graph, "g").run({})
    scale, given = np.float32([[0.7], [1.0]]) / 7, np.float32([[1, 2, 3], [4, 5, 6]])
    whole = np.clip(np.rint(value / scale), -7, 7)
    assert np.allclose(result["y"], whole * scale, atol=1e-6)
    inside = np.abs(value / scale) <= 7 + 1e-4
    assert np.allclose(result["dw"], inside * given)
    step = np.where(inside, whole - value / scale, whole)
    assert np.allclose(result["dc"], (step * given).sum(1, keepdims=True) / 7 * [[1], [-1]], atol=1e-5)


def test_weights_of_few_bits_are_averaged_and_become_the_integers_that_were_trained() -> None:
    """The averages follow Shamir and Zhang 2013. The integers and scales are those of the averages, bit for bit."""
    graph, images = network(), digits()[0]
    values = train(graph, 60, 0.01, *_ends(graph))
    aware = linnet.quantize_aware(graph, [{"x": images[:200]}], weight_bits=4, values=values)
    t = aware.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(aware.find("logits"), t).mean()
    aware.signature("train", {"x": aware.find("x"), "t": t}, {"loss": loss}, updates=linnet.Adam(0.02).minimize(loss))
    session = linnet.Session(aware, "train")
    expected: dict[str, np.ndarray] = {}
    for step in range(12):
        for name in ("c2/weight", "c2/weight/clip", "d/bias"):
            now = np.array(session.variables[name])
            expected[name] = expected.get(name, now) + 9 / (step + 9) * (now - expected.get(name, now))
        session.run({"x": images[64 * step :][:64], "t": digits()[1][64 * step :][:64]})
    trained = session.variables.as_dict()
    for name, value in expected.items():
        assert np.allclose(trained[f"{name}/average"], value, atol=1e-6), name
        assert not np.allclose(trained[name], value, atol=1e-3), name
    integers = linnet.quantize(aware, values=trained)
    found = {t.name: t for t in integers.functions[0].tensors()}
    for layer, axis in (("c1", 0), ("c2", 0), ("d", 1)):
        stored = found[f"{layer}/weight"]
        assert stored.quantization is not None and stored.quantization.axis == axis
        scale = trained[f"{layer}/weight/clip/average"] / np.float32(7)
        whole = np.clip(np.rint(trained[f"{layer}/weight/average"] / scale), -7, 7)
        assert np.array_equal(stored.data, whole) and np.array_equal(stored.quantization.scale, scale.reshape(-1))
    only = {name: value for name, value in trained.items() if not name.endswith("/average")}
    last = {t.name: t for t in linnet.quantize(aware, values=only).functions[0].tensors()}["c2/weight"]
    assert np.array_equal(
        last.data, np.clip(np.rint(trained["c2/weight"] / (trained["c2/weight/clip"] / np.float32(7))), -7, 7)
    )


@pytest.mark.parametrize("bits", [8, 4])
def test_what_is_trained_is_what_the_integers_compute(tmp_path: Path, bits: int) -> None:
    """Before and after training, the int8 model and the fake-quantized forward differ only by roundings at ties."""
    images = digits()[0]
    graph = network()
    values = train(graph, 60, 0.01, *_ends(graph))
    feeds = {"x": images[:200]}
    aware = linnet.quantize_aware(graph, [feeds], weight_bits=bits, values=values)
    clips = {"c1/weight/clip", "c2/weight/clip", "d/weight/clip"} if bits < 8 else set()
    assert {v.name for v in aware.trainable_variables} == clips | {
        "c1/weight", "c1/bias", "c2/weight", "c2/bias", "d/weight", "d/bias",
    }  # fmt: skip
    wanted = linnet.Session(linnet.quantize(graph, [feeds], values=values, effort="fast")).run(feeds)["logits"]
    if bits == 8:
        assert np.array_equal(linnet.Session(linnet.quantize(aware)).run(feeds)["logits"], wanted)  # the same bits
    trained = train(aware, 30, 0.002, aware.find("logits"), aware.find("x"))
    integers = linnet.quantize(aware, values=trained)
    assert any(t.dtype == "i8" for t in integers.functions[0].tensors())
    model = linnet.Model(aware.to_bytes())
    store = linnet.Store(model)
    for name, value in trained.items():
        store[name] = value
    simulated = linnet.Session(model, store=store).run({"x": digits()[2]})["logits"]
    found = linnet.Session(integers).run({"x": digits()[2]})["logits"]
    span = simulated.max() - simulated.min()
    assert np.abs(found - simulated).max() < span / 100 and np.mean(np.abs(found - simulated)) < span / 2000
    assert np.mean(found.argmax(-1) == simulated.argmax(-1)) > 0.995
    aware.save(tmp_path / "aware.lnt")  # the file stores it too
    again = linnet.quantize(linnet.Graph.load(tmp_path / "aware.lnt"), values=trained)
    assert np.array_equal(linnet.Session(again).run({"x": digits()[2]})["logits"], found)


def _ends(graph: linnet.Graph) -> tuple[linnet.Tensor, linnet.Tensor]:
    graph.main.outputs = [t for t in graph.main.tensors() if t.shape == ("batch", 10)][-1:]
    return graph.main.outputs[0], graph.find("x")


@pytest.mark.parametrize(
    "bits, outlier, ranges, gain",
    [
        (2, 1, "average", 0.3),
        (3, 1, "learned", 0.0),
        (8, 100, "average", 0.0),
    ],
)
def test_training_regains_what_quantization_after_training_loses(
    bits: int, outlier: float, ranges: str, gain: float
) -> None:
    """Weights of two and of three bits; one calibration image that is 100 times too bright."""
    graph = network()
    values = train(graph, 250, 0.01, *_ends(graph))
    feeds = [{"x": digits()[0][:256]}, {"x": digits()[0][:1] * outlier}]
    floats = accuracy(graph.freeze(values))
    after = accuracy(linnet.quantize(graph, feeds, weight_bits=bits, values=values))
    aware = linnet.quantize_aware(graph, feeds, weight_bits=bits, values=values, ranges=ranges, momentum=0.9)
    trained = train(aware, 200, 0.001, aware.find("logits"), aware.find("x"))
    during = accuracy(linnet.quantize(aware, values=trained))
    print(f"bits {bits}: float {floats:.3f}, after training {after:.3f}, aware of it {during:.3f}")
    assert floats > 0.95 and during > floats - (0.03 if bits == 2 else 0.015)
    assert during >= after + gain


def separable(x: linnet.Tensor, training: bool) -> linnet.Tensor:
    """conv - three times (depthwise conv - conv 1x1) - global average pooling - dense; batch norms and relus between."""
    y = nn.relu(nn.batch_norm(nn.conv(x, 8, 3, padding=1), training))
    for channels, stride in ((16, 1), (32, 2), (32, 1)):
        y = nn.relu(nn.batch_norm(nn.depthwise_conv(y, 3, padding=1, stride=stride), training))
        y = nn.relu(nn.batch_norm(nn.conv(y, channels, 1), training))
    return nn.dense(nn.flatten(nn.global_avg_pool(y)), 10)


@pytest.mark.more
def test_training_beats_quantizing_afterwards_after_as_many_steps() -> None:
    """From the same floats, 200 more steps in floats and `linnet.quantize`, or 200 quantization-aware steps, with the same
    batches and rates; for four bits and for eight. The mean over four seeds."""
    measured: dict[str, list[float]] = {}
    feeds = [{"x": digits()[0][:256]}]
    for seed in range(4):
        values: dict[str, np.ndarray] = {}
        for steps, rate in ((800, 0.005), (200, 0.001)):
            graph = linnet.Graph(seed=seed)
            x = graph.placeholder("x", ("batch", 1, 8, 8))
            with graph.scope("net"):
                logits = separable(x, True)
            with graph.scope("net", reuse=True):
                graph.signature("infer", {"x": x}, {"logits": separable(x, False)})
            for variable in graph.variables.values():
                variable.value = values.get(variable.name, variable.value)
            before, values = values, train(graph, steps, rate, logits, x)
        del graph.signatures["train"]
        measured.setdefault("float", []).append(accuracy(graph.freeze(values)))
        for bits in (4, 8):
            after = linnet.quantize(graph, feeds, weight_bits=bits, values=values)
            measured.setdefault(f"after {bits}", []).append(accuracy(after))
            aware = linnet.quantize_aware(graph, feeds, weight_bits=bits, values=before)
            trained = train(aware, 200, 0.001, aware.find("logits"), aware.find("x"))
            measured.setdefault(f"aware {bits}", []).append(accuracy(linnet.quantize(aware, values=trained)))
    mean = {name: float(np.mean(found)) for name, found in measured.items()}
    print({name: f"{mean[name]:.4f} {np.round(found, 3)}" for name, found in measured.items()})
    assert mean["aware 4"] > mean["after 4"] and mean["aware 4"] > mean["float"] - 0.015
    assert mean["aware 8"] > mean["after 8"] - 0.01


def test_bad_arguments() -> None:
    graph = network()
    feeds = [{"x": digits()[0][:8]}]
    with pytest.raises(linnet.UsageError, match="weight_bits"):
        linnet.quantize_aware(graph, feeds, weight_bits=1)
    with pytest.raises(linnet.UsageError, match="no calibration batch"):
        linnet.quantize_aware(graph, [])
    aware = linnet.quantize_aware(graph, feeds)
    with pytest.raises(linnet.UsageError, match="another dtype"):
        linnet.quantize(aware, dtype="i16")
    assert set(aware.signatures) == {"infer", "float"}


@pytest.mark.parametrize("momentum", [0.0, 0.75])
def test_ranges_follow_the_batches_and_cover_all_tensors_of_their_group(momentum: float) -> None:
    """The two operands of the concat and its result share one range: the least and the largest value of both."""
    graph = linnet.Graph(seed=0)
    x = graph.placeholder("x", (4, 3))
    w = np.eye(3, dtype=np.float32)
    right = ops.matmul(x, graph.constant(-10 * w))  # first, and the larger
    left = ops.matmul(x, graph.constant(w))
    last = np.arange(12, dtype=np.float32).reshape(6, 2)
    graph.signature("infer", {"x": x}, {"y": ops.matmul(ops.concat([right, left], 1), graph.constant(last))})
    first = {"x": np.float32([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, -1]])}
    aware = linnet.quantize_aware(graph, [first], momentum=momentum)
    loss = aware.main.outputs[0].mean()
    aware.signature("train", {"x": aware.find("x")}, {"loss": loss}, updates=linnet.SGD(0.0).minimize(loss))
    session = linnet.Session(aware, "train")
    ranges = {
        name: float(value) for name, value in session.variables.as_dict().items() if name.endswith(("/low", "/high"))
    }
    (group,) = {name.rsplit("/", 1)[0] for name, value in ranges.items() if value == 10.0}
    assert ranges[f"{group}/low"] == -10
    session.run({"x": first["x"] / 2})  # the range of x itself is that of `first`
    for end, start in (("low", -10), ("high", 10)):
        expected = momentum * start + (1 - momentum) * start / 2
        assert session.variables[f"{group}/{end}"] == pytest.approx(expected, rel=0.02)
