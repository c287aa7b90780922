"""Gradients on the OpenCL device compared with the CPU: each kernel with many attributes, and whole training steps, of which
no step falls back to the CPU."""
# Dear: PoCL compiles the programs of training steps.

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.optimizers.scaling import DynamicLossScale
from tests.opencl_cases import Cases, values
from tests.opencl_device import opencl_device
from tests.small_nets import NETS, compare_steps, training

NAMES = ("f32", "f16", "bf16")
FORMATS = ("f32", *(pytest.param(name, marks=pytest.mark.more) for name in NAMES[1:]))


def every_pair(*choices: Sequence[Any]) -> list[Any]:
    """All combinations of three choices. The first is in every run. Those that `make test-more` runs have each value of one
    choice together with each value of another, as far as the shortest choice has enough values; `make soak` runs the rest."""
    found = []
    for places in itertools.product(*(range(len(c)) for c in choices)):
        chosen = [c[i] for c, i in zip(choices, places, strict=True)]
        pairs = places[-1] == sum(places[:-1]) % len(choices[-1])
        marks = [] if not any(places) else [pytest.mark.more] if pairs else [pytest.mark.soak]
        found.append(pytest.param(*chosen, marks=marks, id="-".join(str(c) for c in chosen)))
    return found


def conv_shape(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int:
    return (size + sum(pads) - (kernel - 1) * dilation - 1) // stride + 1


# Images, channels, outputs, groups, then per axis the size, kernel, stride, dilation and pads.
Conv = tuple[int, int, int, int, list[tuple[int, int, int, int, tuple[int, int]]]]
CONVS: list[Conv] = [
    (1, 1, 1, 1, [(3, 3, 1, 1, (0, 0))]),
    (2, 3, 5, 1, [(17, 4, 2, 1, (1, 2))]),
    (2, 3, 17, 1, [(9, 3, 1, 1, (1, 1)), (7, 3, 1, 1, (1, 1))]),
    (3, 16, 8, 1, [(8, 1, 1, 1, (0, 0)), (8, 1, 1, 1, (0, 0))]),
    (2, 6, 6, 6, [(10, 3, 2, 1, (1, 1)), (11, 3, 2, 1, (1, 1))]),
    (2, 4, 12, 4, [(9, 5, 1, 1, (2, 2)), (9, 2, 3, 2, (0, 1))]),
    (5, 8, 6, 2, [(12, 3, 1, 2, (2, 2)), (5, 3, 1, 1, (0, 0))]),
    (2, 3, 4, 1, [(5, 3, 1, 1, (1, 1)), (6, 2, 2, 1, (0, 0)), (7, 3, 2, 2, (2, 1))]),
    (9, 5, 70, 1, [(13, 4, 1, 1, (1, 1)), (33, 5, 1, 1, (2, 2))]),
]


def add_conv(cases: Cases, case: Conv, dtype: str, last: bool) -> None:
    images, channels, outputs, groups, axes = case
    size, out = [a[0] for a in axes], [conv_shape(*a) for a in axes]
    x = [images, *size, channels] if last else [images, channels, *size]
    g = [images, *out, outputs] if last else [images, outputs, *out]
    kernel, strides, dilations = ([a[i] for a in axes] for i in (1, 2, 3))
    pads = [a[4][0] for a in axes] + [a[4][1] for a in axes]
    cases.add(values(dtype, *x), dtype, more=[values(dtype, *g)], kernel=kernel, strides=strides, dilations=dilations, pads=pads,
              group=groups, channel_axis=-1 if last else 1)  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "dtype", "order"),
    every_pair(["conv_gradient", "conv_gradient_local", "conv_gradient_group"], NAMES, ["first", "last"]),
)
def test_gradients_of_weights(kernel: str, order: str, dtype: str) -> None:
    cases = Cases("conv_gradient")
    for case in CONVS:
        add_conv(cases, case, dtype, order == "last")
    cases.check(f"kernel={kernel}", kernel=kernel)


@pytest.mark.more
@pytest.mark.parametrize(
    ("op", "dtype", "order"), every_pair(["conv", "conv_transpose"], ["f32", "f16"], ["first", "last"])
)
def test_products_through_local_memory(op: str, order: str, dtype: str) -> None:
    """conv_local, and conv_transpose_local, which is the gradient of a convolution's input."""
    cases, last = Cases(op), order == "last"
    for images, channels, outputs, groups, axes in CONVS:
        if op == "conv_transpose":
            axes = [(size, kernel, 1, dilation, pads) for size, kernel, _, dilation, pads in axes]
        size, kernel = [a[0] for a in axes], [a[1] for a in axes]
        x = [images, *size, channels] if last else [images, channels, *size]
        across = [channels, outputs // groups] if op == "conv_transpose" else [outputs, channels // groups]
        weights, bias = values(dtype, *across, *kernel), values(dtype, outputs)
        cases.add(values(dtype, *x), dtype, more=[weights, bias], strides=[a[2] for a in axes], group=groups,
                  dilations=[a[3] for a in axes], pads=[a[4][i] for i in (0, 1) for a in axes],
                  channel_axis=-1 if last else 1)  # fmt: skip
    cases.check(f"kernel={op}_local", kernel=f"{op}_local")


def test_gradients_of_weights_have_the_same_bits_in_each_run() -> None:
    cases = Cases("conv_gradient")
    add_conv(cases, CONVS[-1], "f32", last=False)
    session = cases.session("kernel=conv_gradient")
    first, again = (next(iter(session.run(cases.feeds).values())) for _ in range(2))
    np.testing.assert_array_equal(first, again)


POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 8, 8), {"kernel": [2, 2], "strides": [2, 2]}),
    ((2, 3, 9, 11), {"kernel": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((2, 3, 9, 11), {"kernel": [3, 2], "strides": [1, 1], "pads": [0, 1, 2, 0], "dilations": [1, 2]}),
    ((1, 2, 10, 7), {"kernel": [3, 3], "strides": [3, 2], "pads": [1, 0, 0, 1], "ceil_mode": True}),
    ((3, 4, 17), {"kernel": [5], "strides": [2], "pads": [2, 2]}),
    ((1, 2, 6, 5, 7), {"kernel": [2, 3, 2], "strides": [2, 1, 2], "pads": [0, 1, 1, 1, 1, 0]}),
    ((2, 3, 7, 7), {"kernel": [7, 7]}),
]


def pooled(shape: tuple[int, ...], attributes: dict[str, Any]) -> list[int]:
    """The spatial sizes of the pooled tensor."""
    n, out = len(shape) - 2, []
    pads, strides = attributes.get("pads", [0] * 2 * n), attributes.get("strides", [1] * n)
    for d in range(n):
        span = (
            shape[2 + d]
            + pads[d]
            + pads[n + d]
            - (attributes["kernel"][d] - 1) * attributes.get("dilations", [1] * n)[d]
            - 1
        )
        steps = span // strides[d]
        if attributes.get("ceil_mode") and span % strides[d] and (steps + 1) * strides[d] < shape[2 + d] + pads[d]:
            steps += 1
        out.append(steps + 1)
    return out


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("kind", ["max", "average"])
def test_gradients_of_pools(kind: str, dtype: str) -> None:
    cases = Cases("pool_gradient")
    for shape, attributes in POOLS:
        for axis in (1, -1):
            for include in (False, True) if kind == "average" else (False,):
                x, g = [*shape], [*shape[:2], *pooled(shape, attributes)]
                if axis == -1:
                    x, g = [[t[0], *t[2:], t[1]] for t in (x, g)]
                # Few distinct values: windows have several largest elements, of which the first gets the gradient.
                rough = np.round(values("f32", *x))
                x_values = rough if dtype == "f32" else values(dtype, *x)
                cases.add(x_values, dtype, more=[values(dtype, *g)], kind=kind, channel_axis=axis, count_include_pad=include,
                          **attributes)  # fmt: skip
    cases.check()


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("kind", ["statistics", "products"])
def test_moments(kind: str, dtype: str) -> None:
    cases = Cases("moments")
    for shape in ((2, 3, 4, 5), (1, 1, 1, 1), (33, 7), (2, 65, 9), (3, 2, 65, 41), (200, 5, 3)):
        for axis in (1, -1):
            x, channels = values("f32", *shape) + np.float32(2), shape[axis]
            x = x if dtype == "f32" else values(dtype, *shape)
            more = [values(dtype, *shape), values(dtype, channels)] if kind == "products" else []
            cases.add(x, dtype, more=more, outputs=2, kind=kind, channel_axis=axis)
    cases.check()


def _sequence(kind: str, dtype: str) -> Any:
    more = (kind, dtype) in {("rnn", "bf16"), ("gru", "f16")}
    marks = [] if (kind, dtype) == ("lstm", "f32") else [pytest.mark.more] if more else [pytest.mark.soak]
    return pytest.param(kind, dtype, marks=marks)


@pytest.mark.parametrize(("kind", "dtype"), [_sequence(k, d) for k in ("lstm", "rnn", "gru") for d in NAMES])
def test_gradients_of_sequences(kind: str, dtype: str) -> None:
    """The forward pass with what its gradient reads, and the gradient."""
    gates, forward, back = {"rnn": 1, "gru": 3, "lstm": 4}[kind], Cases("recurrent"), Cases("recurrent_gradient")
    for direction, time, batch, hidden in (("forward", 5, 3, 7), ("reverse", 4, 1, 65), ("bidirectional", 3, 2, 20)):
        both = 2 if direction == "bidirectional" else 1
        p, weights = values(dtype, time, batch, both * gates * hidden), values(dtype, both, gates * hidden, hidden)
        if dtype == "f32":
            weights = (weights / np.sqrt(hidden)).astype(np.float32)
        state, steps = values(dtype, both, batch, hidden), values(dtype, time, both, batch, hidden)
        lengths = np.arange(batch, dtype=np.int32) % 3 + time - 2
        linear: dict[str, Any] = {"linear_before_reset": True} if kind == "gru" else {}
        first = [weights, state, state if kind == "lstm" else None, lengths]
        forward.add(p, dtype, more=first, outputs=5, kind=kind, direction=direction, **linear)
        for given in (True, False):
            also = [
                p,
                steps,
                steps,
                state if given else None,
                state if given else None,
                lengths if given else None,
                steps,
            ]
            also += [state, state] if given else []
            back.add(weights, dtype, more=also, outputs=4, kind=kind, direction=direction)
    forward.check()
    back.check(tolerance={"f32": 1e-5, "f16": 1e-2, "bf16": 8e-2}[dtype])


# ---- training steps --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["lenet", "mobile", *(pytest.param(n, marks=pytest.mark.more) for n in NETS if n not in ("lenet", "mobile"))],
)
def test_training_steps_agree_and_none_falls_back(name: str) -> None:
    compare_steps(*training(name, linnet.Momentum(0.01)), opencl_device())


@pytest.mark.more
@pytest.mark.parametrize(
    "optimizer", [pytest.param(linnet.SGD(0.01), marks=pytest.mark.soak), linnet.Adam(0.001)], ids=["sgd", "adam"]
)
@pytest.mark.parametrize(
    "name", [n if n in ("google", "lstm") else pytest.param(n, marks=pytest.mark.soak) for n in NETS]
)
def test_no_step_of_training_falls_back(name: str, optimizer: linnet.Optimizer) -> None:
    graph, _ = training(name, optimizer)
    session = linnet.Session(graph, "train", device=opencl_device())
    assert not [step.name for step in session.steps if step.placed == "cannot"]


def test_loss_scaling_skips_steps_that_overflow() -> None:
    """The check of the gradients, and the choice of each new value, run on the device; so do products of f16."""

    def run(**options: Any) -> tuple[list[tuple[float, int]], np.ndarray]:
        graph, rng = linnet.Graph(seed=1), np.random.default_rng(0)
        x, target = graph.placeholder("x", (4, 1, 12, 12), "f16"), graph.placeholder("t", (4,), "i32")
        y = linnet.nn.max_pool(linnet.nn.conv(x, 4, 3, activation="relu"), 2)
        logits = linnet.nn.dense(linnet.nn.flatten(y), 10).cast("f32")
        loss = linnet.softmax_cross_entropy(logits, target).mean()
        scale = DynamicLossScale(2.0**19, interval=3)
        graph.signature(
            "train", {"x": x, "t": target}, {"loss": loss}, updates=linnet.SGD(0.01, loss_scale=scale).minimize(loss)
        )
        session = linnet.Session(graph, "train", **options)
        assert not [step.name for step in session.steps if step.placed == "cannot"] or not options
        feeds = {"x": 8 * rng.standard_normal((4, 1, 12, 12)).astype(np.float16), "t": np.arange(4, dtype=np.int32)}
        scales = []
        for _ in range(12):
            session.run(feeds)
            scales.append(
                (float(session.variables["loss_scale/scale"]), int(session.variables["loss_scale/finite_steps"]))
            )
        return scales, np.array(session.variables["conv/weight"]).astype(np.float32)

    (got, weights), (want, expected) = run(device=opencl_device()), run()
    assert got == want
    assert got[0] == (2.0**18, 0) and max(steps for _, steps in got) == 2, "steps overflow at first, then some do not"
    np.testing.assert_allclose(weights, expected, rtol=0, atol=2e-3 * np.abs(expected).max())
