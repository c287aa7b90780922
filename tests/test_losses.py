"""Losses against PyTorch: values per example and gradients, with every option and with labels that are no class; sampled softmax
against its definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import losses, ops
from linnet.autodiff import gradients
from linnet.facade import Graph
from tests.with_torch import torch

F = torch.nn.functional

RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((6, 5)) * 3
LOGITS[0, :2] = 0.0
IMAGE = RNG.standard_normal((2, 4, 3, 3))
OTHER = RNG.standard_normal((6, 5))
LABELS = np.array([0, 4, 2, 2, 1, 3])
PIXELS = RNG.integers(0, 4, (2, 3, 3))
PROBABLE = np.abs(RNG.standard_normal((6, 5)))
PROBABLE /= PROBABLE.sum(-1, keepdims=True)
PROBABLE[1] = [0, 1, 0, 0, 0]
WEIGHTS = np.array([0.5, 2.0, 1.0, 0.1, 3.0])
SIGNS = np.sign(RNG.standard_normal((6, 5)))
ROWS = np.array([1.0, -1.0, 1.0, -1.0, -1.0, 1.0])

Case = tuple[Callable[..., Any], Callable[..., Any], list[Any]]
CASES: dict[str, Case] = {
    "cross_entropy": (losses.softmax_cross_entropy, lambda x, t: F.cross_entropy(x, t, reduction="none"), [LOGITS, LABELS]),
    "narrow_labels": (
        losses.softmax_cross_entropy, lambda x, t: F.cross_entropy(x, t.long(), reduction="none"),
        [LOGITS, LABELS.astype(np.int32)],
    ),
    "bytes": (
        losses.softmax_cross_entropy, lambda x, t: F.cross_entropy(x, t.long(), reduction="none"),
        [LOGITS, LABELS.astype(np.uint8)],
    ),
    "smoothing": (
        lambda x, t: losses.softmax_cross_entropy(x, t, label_smoothing=0.2),
        lambda x, t: F.cross_entropy(x, t, reduction="none", label_smoothing=0.2), [LOGITS, LABELS],
    ),
    "weights": (
        lambda x, t: losses.softmax_cross_entropy(x, t, weights=WEIGHTS),
        lambda x, t: F.cross_entropy(x, t, torch.tensor(WEIGHTS), reduction="none"), [LOGITS, LABELS],
    ),
    "everything": (
        lambda x, t: losses.softmax_cross_entropy(x, t, weights=WEIGHTS, label_smoothing=0.1, ignore_index=2),
        lambda x, t: F.cross_entropy(
            x, t, torch.tensor(WEIGHTS), reduction="none", label_smoothing=0.1, ignore_index=2
        ),
        [LOGITS, LABELS],
    ),
    "ignored": (
        lambda x, t: losses.softmax_cross_entropy(x, t, ignore_index=-100),
        lambda x, t: F.cross_entropy(x, t, reduction="none"), [LOGITS, np.array([0, -100, 2, -100, 1, 3])],
    ),
    "average": (
        lambda x, t: losses.average(
            losses.softmax_cross_entropy(x, t, weights=WEIGHTS, ignore_index=2), t, weights=WEIGHTS, ignore_index=2
        ),
        lambda x, t: F.cross_entropy(x, t, torch.tensor(WEIGHTS), ignore_index=2), [LOGITS, LABELS],
    ),
    "average_plain": (
        lambda x, t: losses.average(losses.softmax_cross_entropy(x, t, ignore_index=2), t, ignore_index=2),
        lambda x, t: F.cross_entropy(x, t, ignore_index=2), [LOGITS, LABELS],
    ),
    "dense": (losses.softmax_cross_entropy, lambda x, t: F.cross_entropy(x, t, reduction="none"), [LOGITS, PROBABLE]),
    "dense_options": (
        lambda x, t: losses.softmax_cross_entropy(x, t, weights=WEIGHTS, label_smoothing=0.3),
        lambda x, t: F.cross_entropy(x, t, torch.tensor(WEIGHTS), reduction="none", label_smoothing=0.3),
        [LOGITS, PROBABLE],
    ),
    "pixels": (
        lambda x, t: losses.softmax_cross_entropy(x, t, axis=1, label_smoothing=0.1, weights=WEIGHTS[:4]),
        lambda x, t: F.cross_entropy(x, t, torch.tensor(WEIGHTS[:4]), reduction="none", label_smoothing=0.1),
        [IMAGE, PIXELS],
    ),
    "nll": (losses.nll, lambda x, t: F.nll_loss(x, t, reduction="none"), [LOGITS, LABELS]),
    "unfused": (
        lambda x, t: -(t * ops.log(ops.softmax(x))).sum(-1), lambda x, t: F.cross_entropy(x, t, reduction="none"),
        [LOGITS, PROBABLE],
    ),
    "sigmoid": (
        losses.sigmoid_cross_entropy, lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"),
        [LOGITS, PROBABLE],
    ),
    "sigmoid_weight": (
        lambda x, t: losses.sigmoid_cross_entropy(x, t, positive_weight=WEIGHTS),
        lambda x, t: F.binary_cross_entropy_with_logits(
            x, t, reduction="none", pos_weight=torch.tensor(WEIGHTS).to(x.dtype)
        ),
        [LOGITS, PROBABLE],
    ),
    "mse": (losses.mse, lambda x, t: F.mse_loss(x, t, reduction="none"), [LOGITS, OTHER]),
    "mae": (losses.mae, lambda x, t: F.l1_loss(x, t, reduction="none"), [LOGITS, LOGITS * (SIGNS > 0)]),
    "huber": (lambda x, t: losses.huber(x, t, 0.7), lambda x, t: F.huber_loss(x, t, "none", 0.7), [LOGITS, OTHER]),
    "smooth_l1": (
        lambda x, t: losses.smooth_l1(x, t, 0.7), lambda x, t: F.smooth_l1_loss(x, t, reduction="none", beta=0.7),
        [LOGITS, OTHER],
    ),
    "smooth_l1_of_0": (
        lambda x, t: losses.smooth_l1(x, t, 0.0), lambda x, t: F.smooth_l1_loss(x, t, reduction="none", beta=0.0),
        [LOGITS, OTHER],
    ),
    "kl": (losses.kl_divergence, lambda x, t: F.kl_div(x, t, reduction="none"), [LOGITS[2:], PROBABLE[2:]]),
    "kl_log": (
        lambda x, t: losses.kl_divergence(x, t, log_target=True),
        lambda x, t: F.kl_div(x, t, reduction="none", log_target=True), [LOGITS, OTHER],
    ),
    "hinge": (losses.hinge, lambda x, t: torch.relu(1 - t * x), [LOGITS, SIGNS]),
    "hinge_squared": (
        lambda x, t: losses.hinge(x, t, 0.5, squared=True), lambda x, t: torch.relu(0.5 - t * x) ** 2, [LOGITS, SIGNS]
    ),
    "multi_margin": (losses.multi_margin, lambda x, t: F.multi_margin_loss(x, t, reduction="none"), [LOGITS, LABELS]),
    "multi_margin_squared": (
        lambda x, t: losses.multi_margin(x, t, 0.5, squared=True),
        lambda x, t: F.multi_margin_loss(x, t, p=2, margin=0.5, reduction="none"), [LOGITS, LABELS],
    ),
    "cosine": (losses.cosine, lambda x, y: 1 - F.cosine_similarity(x, y), [LOGITS, OTHER]),
    "cosine_embedding": (
        lambda x, y: losses.cosine_embedding(x, y, x.function.constant(ROWS), 0.1),
        lambda x, y: F.cosine_embedding_loss(x, y, torch.tensor(ROWS), 0.1, reduction="none"), [LOGITS, OTHER],
    ),
}  # fmt: skip


def compare(case: Case, dtype: Any, tolerance: float) -> None:
    """Compares values, and the gradients of their sum with a different weight for each."""
    build, reference, arrays = case
    arrays = [a.astype(dtype) if a.dtype.kind == "f" else a for a in arrays]
    graph = Graph()
    inputs = {
        f"x{i}": graph.placeholder(f"x{i}", a.shape, linnet.ir.dtypes.dtype_of(a.dtype)) for i, a in enumerate(arrays)
    }
    loss = build(*inputs.values())
    weights = np.random.default_rng(1).uniform(0.5, 1.5, loss.shape).astype(dtype)
    wanted = [t for t in inputs.values() if t.dtype.startswith("f")]
    slopes = gradients((loss * graph.constant(weights)).sum(), wanted)
    graph.signature("infer", inputs, {"loss": loss, **{f"g{i}": g for i, g in enumerate(slopes)}})
    found = linnet.Session(graph).run(dict(zip(inputs, arrays, strict=True)))
    tensors = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    expected = reference(*tensors)
    (expected * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(found["loss"], expected.detach().numpy(), rtol=tolerance, atol=tolerance)
    for i, tensor in enumerate(t for t in tensors if t.requires_grad):
        np.testing.assert_allclose(found[f"g{i}"], tensor.grad.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_equals_pytorch(name: str) -> None:
    compare(CASES[name], np.float64, 1e-8)


@pytest.mark.parametrize("name", ["cross_entropy", "smoothing", "nll", "sigmoid", "huber", "dense", "cosine"])
def test_equals_pytorch_in_f32(name: str) -> None:
    compare(CASES[name], np.float32, 2e-6)


def test_kl_of_a_target_with_zeros() -> None:
    """PyTorch gives the same value, but a gradient of NaN."""
    graph = Graph()
    q, t = graph.placeholder("q", (3,)), graph.placeholder("t", (3,))
    loss = losses.kl_divergence(q, t)
    slopes = gradients(loss.sum(), [q, t])
    graph.signature("infer", {"q": q, "t": t}, {"loss": loss, "q": slopes[0], "t": slopes[1]})
    found = linnet.Session(graph).run({"q": np.float32([-1, -2, -3]), "t": np.float32([0, 1, 0])})
    assert (
        found["loss"].tolist() == [0, 2, 0] and found["q"].tolist() == [0, -1, 0] and found["t"].tolist() == [0, 3, 0]
    )


def test_large_logits_stay_finite() -> None:
    x = np.array([[1e4, -1e4, 0.0]], np.float32)
    for case, other in ((losses.softmax_cross_entropy, np.array([1])), (losses.sigmoid_cross_entropy, x * 0 + 0.5)):
        graph = Graph()
        logits = graph.placeholder("x", (1, 3))
        target = graph.placeholder("t", other.shape, linnet.ir.dtypes.dtype_of(other.dtype))
        loss = case(logits, target)
        (slope,) = gradients(loss.sum(), [logits])
        graph.signature("infer", {"x": logits, "t": target}, {"loss": loss, "slope": slope})
        found = linnet.Session(graph).run({"x": x, "t": other})
        assert np.isfinite(found["loss"]).all() and np.isfinite(found["slope"]).all() and found["loss"].max() >= 5000


@pytest.mark.parametrize("label", [5, -1, 1 << 40])
def test_a_label_that_is_no_class_is_an_error_and_changes_nothing(label: int) -> None:
    graph = Graph()
    x, labels = graph.placeholder("x", ("batch", 3)), graph.placeholder("labels", ("batch",), "i64")
    w = graph.variable("w", np.ones((3, 5), np.float32))
    loss = linnet.softmax_cross_entropy(x @ w, labels).mean()
    graph.signature("train", {"x": x, "labels": labels}, {"loss": loss}, updates=linnet.Adam().minimize(loss))
    session = linnet.Session(graph, "train")
    good = {"x": np.ones((2, 3), np.float32), "labels": np.array([0, 4])}
    session.run(good)
    before = session.variables.as_dict()
    with pytest.raises(linnet.GraphError, match=rf"'labels/class'.*from 0 to 4, got {label};"):
        session.run({**good, "labels": np.array([0, label])})
    assert all((session.variables[name] == value).all() for name, value in before.items())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("blank", [0, 3])
def test_ctc_equals_pytorch(dtype: Any, blank: int) -> None:
    """Labels of several lengths: with repetitions, empty, one that just fits and one that does not."""
    rng = np.random.default_rng(2)
    logits = rng.standard_normal((9, 6, 4)).astype(dtype)
    classes = np.array([c for c in range(4) if c != blank])
    labels = classes[rng.integers(0, 3, (6, 5))]
    labels[1] = classes[[0, 0, 1, 1, 2]]  # needs 7 steps
    lengths, times = np.array([3, 5, 0, 1, 5, 4]), np.array([9, 7, 6, 1, 4, 8])
    weights = rng.uniform(0.5, 1.5, 6).astype(dtype)
    for zero in (False, True):
        t = torch.tensor(logits, requires_grad=True)
        expected = F.ctc_loss(
            torch.log_softmax(t, -1), torch.tensor(labels), torch.tensor(times), torch.tensor(lengths), blank=blank,
            reduction="none", zero_infinity=zero,
        )  # fmt: skip
        fits = torch.tensor(np.isfinite(expected.detach().numpy()))
        torch.where(fits, expected * torch.tensor(weights), 0.0).sum().backward()
        graph = Graph()
        kind = linnet.ir.dtypes.dtype_of(dtype)
        inputs = {
            "logits": graph.placeholder("logits", (None, None, 4), kind), "labels": graph.placeholder("labels", (None, 5), "i64"),
            "times": graph.placeholder("times", (None,), "i64"), "lengths": graph.placeholder("lengths", (None,), "i64"),
        }  # fmt: skip
        loss = losses.ctc(*inputs.values(), blank=blank, zero_infinity=zero)
        (slope,) = gradients((loss * graph.constant(weights)).sum(), [inputs["logits"]])
        graph.signature("infer", inputs, {"loss": loss, "slope": slope})
        found = linnet.Session(graph).run(dict(zip(inputs, (logits, labels, times, lengths), strict=True)))
        tolerance = 1e-9 if dtype is np.float64 else 1e-5
        np.testing.assert_allclose(found["loss"], expected.detach().numpy(), rtol=tolerance)
        grad = t.grad.numpy()
        grad[:, ~fits.numpy()] = 0  # where PyTorch gives NaN without zero_infinity
        np.testing.assert_allclose(found["slope"], grad, rtol=tolerance * 10, atol=tolerance)


def test_sampled_softmax_equals_its_definition() -> None:
    """Against PyTorch on the same samples, one of which is a label: the loss, and the gradients of all three operands."""
    rng = np.random.default_rng(3)
    classes, size, batch = 50, 4, 6
    weight, bias = rng.standard_normal((classes, size)), rng.standard_normal(classes)
    x, labels, drawn = rng.standard_normal((batch, size)), rng.integers(0, classes, batch), rng.integers(0, classes, 8)
    drawn[3] = labels[2]
    graph = Graph()
    w, b = graph.variable("w", weight), graph.variable("b", bias)
    given = {"x": graph.placeholder("x", x.shape, "f64"), "t": graph.placeholder("t", (batch,), "i64"),
             "s": graph.placeholder("s", (8,), "i64")}  # fmt: skip
    loss = losses.sampled_softmax(w, b, given["x"], given["t"], 8, candidates=given["s"])
    rows = gradients(loss.sum(), [w, b], sparse=True)
    assert all(isinstance(g, linnet.autodiff.SparseRows) and g.ids.shape == (batch + 8,) for g in rows)
    slopes = gradients(loss.sum(), [given["x"], w, b])
    graph.signature("infer", given, {"loss": loss, **{f"g{i}": g for i, g in enumerate(slopes)}})
    found = linnet.Session(graph).run({"x": x, "t": labels, "s": drawn})

    def log_expected(c: Any) -> Any:
        return np.log(8 * np.log((c + 2) / (c + 1)) / np.log(classes + 1))

    tx, tw, tb = (torch.tensor(value, requires_grad=True) for value in (x, weight, bias))
    own = (tx * tw[labels]).sum(-1) + tb[labels] - torch.tensor(log_expected(labels))
    others = tx @ tw[drawn].T + tb[drawn] - torch.tensor(log_expected(drawn))
    others = torch.where(torch.tensor(drawn[None] == labels[:, None]), -torch.inf, others)
    expected = torch.logsumexp(torch.cat([own[:, None], others], 1), 1) - own
    expected.sum().backward()
    np.testing.assert_allclose(found["loss"], expected.detach().numpy(), rtol=1e-6)
    for i, tensor in enumerate((tx, tw, tb)):
        np.testing.assert_allclose(found[f"g{i}"], tensor.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_candidates_are_log_uniform_and_new_each_step() -> None:
    graph = Graph(seed=3)
    like = graph.placeholder("x", ())
    drawn = losses.log_uniform_candidates(like, 20, 4000)
    graph.signature("train", {"x": like}, {"drawn": drawn}, updates=graph.side_updates_of([drawn]))
    session = linnet.Session(graph, "train")
    first, second = (session.run({"x": np.float32(0)})["drawn"] for _ in range(2))
    assert (first != second).any() and first.min() == 0 and first.max() == 19
    share = np.bincount(np.concatenate([first, second]), minlength=20) / 8000
    c = np.arange(20)
    wanted = np.log((c + 2) / (c + 1)) / np.log(21)
    assert np.abs(share - wanted).max() < 4 * np.sqrt(wanted.max() / 8000)


def test_sampled_softmax_trains_a_large_output_layer() -> None:
    """The full loss falls although each step uses at most 40 of 2,000 classes."""
    rng = np.random.default_rng(5)
    graph = Graph(seed=1)
    x, labels = graph.placeholder("x", (32, 8)), graph.placeholder("labels", (32,), "i64")
    w, b = graph.variable("w", np.zeros((2000, 8), np.float32)), graph.variable("b", np.zeros(2000, np.float32))
    loss = losses.sampled_softmax(w, b, x, labels, 40).mean()
    graph.signature("train", {"x": x, "labels": labels}, {"loss": loss}, updates=linnet.AdaGrad(0.5).minimize(loss))
    full = losses.softmax_cross_entropy(ops.matmul(x, w.tensor(), transpose_b=True) + b, labels).mean()
    graph.signature("eval", {"x": x, "labels": labels}, {"loss": full})
    model = linnet.Model(graph)
    store = linnet.Store(model)
    train, evaluate = (linnet.Session(model, name, store=store) for name in ("train", "eval"))
    centres = rng.standard_normal((10, 8)).astype(np.float32) * 2

    def batch() -> dict[str, Any]:
        which = rng.integers(0, 10, 32)
        return {"x": centres[which] + rng.standard_normal((32, 8)).astype(np.float32) * 0.1, "labels": which * 7}

    before = evaluate.run(batch())["loss"]
    for _ in range(200):
        train.run(batch())
    assert before == pytest.approx(np.log(2000), rel=1e-3) and evaluate.run(batch())["loss"] < 0.5


def test_variables_arrays_and_numbers_are_taken() -> None:
    graph = Graph()
    w = graph.variable("w", np.float32([[1, 2, 3], [3, 2, 1]]))
    results = {
        "number": losses.mse(w, 2.0), "array": losses.huber(w, np.zeros((2, 3))),
        "labels": linnet.softmax_cross_entropy(w, [2, 0]), "cosine": losses.cosine(w, [1, 2, 3]),
    }  # fmt: skip
    graph.signature("infer", {}, results)
    found = linnet.Session(graph).run({})
    assert found["number"].tolist() == [[1, 0, 1], [1, 0, 1]] and found["array"][0].tolist() == [0.5, 1.5, 2.5]
    assert found["labels"] == pytest.approx([0.40760595, 0.40760595]) and found["cosine"][0] == pytest.approx(
        0, abs=1e-6
    )


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((4, 1), "i32", r"integers of rank 1, got i32 \[4, 1\]"), ((4,), "f32", r"probabilities .*got f32 \[4\]"),
        ((4, 3), "bool", "probabilities"), ((5,), "i64", r"'t/class'.*\[5, 1\]"),
    ],
)  # fmt: skip
def test_labels_of_another_shape_are_refused(shape: tuple[int, ...], dtype: str, message: str) -> None:
    graph = Graph()
    with pytest.raises(linnet.Error, match=message):
        linnet.softmax_cross_entropy(graph.placeholder("x", (4, 3)), graph.placeholder("t", shape, dtype))
