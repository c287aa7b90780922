"""Every op that takes an index accepts all indices in range, and refuses the first one on either side by name: in fast and in
reference kernels, at run time and as a constant. A refused training step changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import SGD, ops
from linnet.clib.errors import Error
from linnet.facade import Graph
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Tensor

N, COUNT = 5, 6  # number of rows to choose from, and number of indices
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """make(graph, indices): the op's result for COUNT indices (or one), where indices from low to high are valid.
    expected(indices): the same in NumPy; None if another test knows the values."""

    make: Callable[[Graph, Tensor], Tensor]
    low: int = -N
    high: int = N - 1
    shape: tuple[int, ...] = (COUNT,)
    expected: Callable[[Array], Array] | None = None
    dtypes: tuple[str, ...] = ("i32", "i64")
    words: str = "index"  # of the error message


def table(dtype: str, *rest: int) -> Array:
    """N rows with a different number in each place."""
    return np.arange(N * int(np.prod(rest))).reshape((N, *rest)).astype(numpy_dtype(dtype))


def updates(dtype: str, *rest: int) -> Array:
    return (100 + np.arange(COUNT * int(np.prod(rest)))).reshape((COUNT, *rest)).astype(numpy_dtype(dtype))


def take(dtype: str, *rest: int, axis: int = 0, from_end: bool = True) -> Case:
    x = np.moveaxis(table(dtype, *rest), 0, axis).copy()
    return Case(
        lambda g, i: ops.gather(g.constant(x, dtype), i, axis=axis, from_end=from_end),
        low=-N if from_end else 0,
        expected=lambda i: np.take(x, i, axis),
    )


def take_elements(dtype: str, from_end: bool = True) -> Case:
    x = table(dtype, 1)
    return Case(
        lambda g, i: ops.gather(
            g.constant(x, dtype), ops.expand_dims(i, 1), kind="elements", axis=0, from_end=from_end
        ),
        low=-N if from_end else 0,
        expected=lambda i: x[i],
    )


def take_nd(dtype: str, *rest: int) -> Case:
    x = table(dtype, *rest)
    return Case(
        lambda g, i: ops.gather(g.constant(x, dtype), ops.expand_dims(i, 1), kind="nd"), expected=lambda i: x[i]
    )


def take_pairs() -> Case:
    """The second of two indices."""
    x = np.arange(3 * N, dtype=np.float32).reshape(3, N)

    def make(g: Graph, i: Tensor) -> Tensor:
        column = ops.expand_dims(i, 1)
        return ops.gather(g.constant(x), ops.concat([column * 0 + 2, column], axis=1), kind="nd")

    return Case(make, expected=lambda i: x[2, i])


def put_elements(dtype: str, reduction: str, axis: int = 0) -> Case:
    def make(g: Graph, i: Tensor) -> Tensor:
        x, u = table(dtype, 1), updates(dtype, 1)
        x, u = (x, u) if axis == 0 else (x.T.copy(), u.T.copy())
        return ops.scatter(
            g.constant(x, dtype), ops.expand_dims(i, 1 - axis), g.constant(u, dtype),
            kind="elements", axis=axis, reduction=reduction,
        )  # fmt: skip

    return Case(make)


def put_nd(dtype: str, reduction: str, *rest: int) -> Case:
    def make(g: Graph, i: Tensor) -> Tensor:
        x, u = g.constant(table(dtype, *rest), dtype), g.constant(updates(dtype, *rest), dtype)
        return ops.scatter(x, ops.expand_dims(i, 1), u, kind="nd", reduction=reduction)

    return Case(make)


def regions() -> Case:
    pictures = np.broadcast_to(np.arange(N, dtype=np.float32)[:, None, None, None], (N, 2, 4, 4)).copy()
    boxes = np.tile(np.array([0, 0, 3, 3], np.float32), (COUNT, 1))
    return Case(
        lambda g, i: ops.roi_align(g.constant(pictures), g.constant(boxes), i, sampling_ratio=2),
        low=0,
        expected=lambda i: np.broadcast_to(i.astype(np.float32)[:, None, None, None], (len(i), 2, 1, 1)),
        dtypes=("i64",),
        words="batch index of a region",
    )


def lengths(dtype: str, hidden: int) -> Case:
    """f32 has a fast kernel; f64 has only the reference."""
    rng = np.random.default_rng(hidden)
    p = rng.standard_normal((N, COUNT, hidden)).astype(numpy_dtype(dtype))
    # Scaled, so that a state does not grow what the order of a sum changed in the state before it.
    weights = (rng.standard_normal((1, hidden, hidden)) / np.sqrt(hidden)).astype(numpy_dtype(dtype))
    return Case(
        lambda g, i: ops.recurrent(g.constant(p, dtype), g.constant(weights, dtype), lengths=i)[0],
        low=0,
        high=N,
        words="lengths",
    )


def running_sum() -> Case:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    return Case(
        lambda g, i: ops.cumsum(g.constant(x), i),
        low=-3,
        high=2,
        shape=(),
        expected=lambda i: np.cumsum(x, int(i)),
        words="axis",
    )


def largest() -> Case:
    x = table("f32", 3).T.copy()
    return Case(
        lambda g, i: ops.top_k(g.constant(x), ops.expand_dims(i, 0))[0],
        low=0,
        high=N,
        shape=(),
        expected=lambda i: np.sort(x)[:, ::-1][:, : int(i)],
        dtypes=("i64",),
        words="top_k: k is negative or larger",
    )


CASES = {
    **{f"take {d}": take(d) for d in ("f32", "i32", "f64", "f16", "u8", "bool")},
    **{f"take rows {d}": take(d, 3) for d in ("f32", "f64", "u8")},
    "take columns": take("f32", 3, axis=1),
    "take columns f16": take("f16", 3, axis=1),
    "take from the start": take("f32", from_end=False),
    "take rows from the start": take("f32", 3, from_end=False),
    "take elements": take_elements("f32"),
    "take elements f64": take_elements("f64"),
    "take elements from the start": take_elements("f32", from_end=False),
    "take nd": take_nd("f32"),
    "take nd rows": take_nd("i8", 2),
    "take pairs": take_pairs(),
    **{f"put elements {r}": put_elements("f32", r) for r in ("none", "add", "mul", "max", "min")},
    "put elements i64": put_elements("i64", "add"),
    "put elements along 1": put_elements("f32", "none", axis=1),
    **{f"put nd {r}": put_nd("f32", r) for r in ("none", "add", "max")},
    **{f"put nd rows {r}": put_nd("f32", r, 3) for r in ("none", "add", "mul")},
    "put nd u8": put_nd("u8", "none", 2),
    "regions": regions(),
    **{f"lengths {d} {h}": lengths(d, h) for d in ("f32", "f64") for h in (1, 19)},
    "running sum": running_sum(),
    "largest": largest(),
}


def at(case: Case, place: int, value: int, dtype: str) -> Array:
    """Valid indices, except for `value` in one place."""
    if case.shape == ():
        return np.array(value, numpy_dtype(dtype))
    found = np.linspace(max(case.low, 0), case.high, COUNT).astype(numpy_dtype(dtype))
    found[place] = value
    return found


def answers(case: Case, indices: Array, reference: bool, constant: bool) -> Array:
    graph = Graph()
    dtype = "i32" if indices.dtype == np.int32 else "i64"
    i = graph.constant(indices, dtype) if constant else graph.placeholder("i", case.shape, dtype)
    graph.signature("infer", {} if constant else {"i": i}, {"y": case.make(graph, i)})
    session = linnet.Session(graph, threads=1, reference=reference)
    return session.run({} if constant else {"i": indices})["y"]


@pytest.mark.parametrize("constant", [False, True], ids=["running", "constant"])
@pytest.mark.parametrize("name", CASES)
def test_all_in_range_and_nothing_beside(name: str, constant: bool) -> None:
    case = CASES[name]
    for dtype in case.dtypes:
        for place in (0, COUNT // 2, COUNT - 1) if case.shape else (0,):
            for value in (case.low, case.high):
                indices = at(case, place, value, dtype)
                fast, plain = (answers(case, indices, reference, constant) for reference in (False, True))
                np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-6)
                if case.expected is not None:
                    np.testing.assert_array_equal(plain, case.expected(indices))
            for value in (case.low - 1, case.high + 1, case.high + 1000):
                for reference in (False, True):
                    with pytest.raises(Error, match=case.words) as caught:
                        answers(case, at(case, place, value, dtype), reference, constant)
                    assert str(value) in str(caught.value), caught.value


def test_the_other_side_of_a_length_is_not_an_index() -> None:
    """The most negative i64 index does not wrap around."""
    for value in (-(1 << 63), (1 << 63) - 1):
        for name in ("take f32", "take rows f64", "take from the start", "put elements none", "put nd rows add"):
            with pytest.raises(Error, match="index"):
                answers(CASES[name], at(CASES[name], 2, value, "i64"), False, False)


def _labels(loss: Callable[[Tensor, Tensor], Tensor], label: int) -> None:
    graph = Graph()
    logits, labels = graph.placeholder("x", (4, N), "f32"), graph.placeholder("labels", (4,), "i64")
    graph.signature("infer", {"x": logits, "labels": labels}, {"y": loss(logits, labels)})
    x = np.zeros((4, N), np.float32)
    linnet.Session(graph).run({"x": x, "labels": np.array([0, 1, label, 2])})


@pytest.mark.parametrize(
    "loss",
    [
        linnet.losses.softmax_cross_entropy,
        linnet.losses.nll,
        lambda x, y: linnet.losses.softmax_cross_entropy(x, y, label_smoothing=0.1),
        lambda x, y: linnet.losses.softmax_cross_entropy(x, y, weights=np.ones(N, np.float32)),
    ],
    ids=["softmax", "nll", "smooth", "weights"],
)
def test_labels_are_from_0_to_the_last_class(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    _labels(loss, 0)
    _labels(loss, N - 1)
    for label in (-1, N):
        with pytest.raises(Error, match=rf"labels.*got {label}\b"):
            _labels(loss, label)


@pytest.mark.parametrize("value", [-N - 1, N])
def test_a_refused_step_changes_no_variable(value: int) -> None:
    """Updates may overwrite variables once all indices are known to be valid, and not one step earlier."""
    graph = Graph()
    ids = graph.placeholder("ids", (COUNT,), "i64")
    e, w = graph.variable("e", table("f32", 3)), graph.variable("w", np.ones(3, np.float32))
    rows = ops.gather(e.tensor(), ids)
    loss = (rows * w.tensor() * rows).sum()
    graph.signature("train", {"ids": ids}, {"loss": loss}, updates=SGD(0.1).minimize(loss))
    session = linnet.Session(graph, "train")
    session.run({"ids": np.array([-N, N - 1, 0, 1, 2, 3])})
    before = {name: session.variables[name].copy() for name in ("e", "w")}
    with pytest.raises(Error, match="index"):
        session.run({"ids": np.array([0, 1, 2, 3, 4, value])})
    for name, old in before.items():
        np.testing.assert_array_equal(session.variables[name], old, err_msg=name)


@pytest.mark.parametrize("rank", [1, 3])
def test_axes_are_from_minus_the_rank_to_the_rank(rank: int) -> None:
    """The valid axes of every op with an axis: no more, no less."""
    makes: list[Callable[[Tensor, int], Any]] = [
        lambda x, a: ops.softmax(x, axis=a),
        lambda x, a: ops.layer_norm(x, axis=a),
        lambda x, a: ops.reduce(x, axis=[a]),
        lambda x, a: ops.reduce(x, kind="argmax", axis=[a]),
        lambda x, a: ops.gather(x, x.function.constant(np.array([0])), axis=a),
        lambda x, a: ops.copy([x, x], kind="concat", axis=a),
        lambda x, a: ops.copy([x], kind="squeeze", axis=[a]),
        lambda x, a: ops.copy([x], kind="slice", starts=[0], ends=[1], axis=[a]),
        lambda x, a: ops.cumsum(x, x.function.constant(np.array(a))),
        lambda x, a: ops.top_k(x, x.function.constant(np.array([1])), axis=a),
    ]
    for make in makes:
        x = Graph().placeholder("x", (1,) * rank, "f32")
        for axis in (-rank, rank - 1):
            make(x, axis)
        for axis in (-rank - 1, rank):
            with pytest.raises(Error):
                make(x, axis)
