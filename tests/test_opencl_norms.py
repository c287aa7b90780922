"""Reductions, norms, pools, resize, cumsum and top_k of the OpenCL device compared with the CPU: floats within 1e-5 of the range,
integers bit for bit. Sizes are arguments of a program, so many shapes take few programs; all cases of a test are one graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from linnet.ir.dtypes import Quantization
from tests.opencl_cases import Cases, values
from tests.opencl_device import opencl_device

pytestmark = pytest.mark.more  # 40 programs, which take half a minute to compile

REDUCE = ("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp", "argmax", "argmin")
RNG = np.random.default_rng(4)

# ---- reductions ------------------------------------------------------------------------------------------------------

SHAPES = [
    ((1,), [0]),
    ((63,), []),
    ((64, 3), [0]),
    ((3, 65), [1]),
    ((2, 5, 7), [1]),
    ((2, 3, 129), [-1]),
    ((2000,), [0]),
]


@pytest.mark.parametrize(
    ("options", "kinds"),
    [("", REDUCE), ("kernel=reduce_group", ("log_sum_exp", "argmin", "mean"))],
    ids=["items", "groups"],
)
def test_reductions_of_floats_agree(options: str, kinds: tuple[str, ...]) -> None:
    cases = Cases("reduce")
    for shape, axes in SHAPES:
        for kind in kinds:
            x = values("f32", *shape)
            if kind == "prod":
                x = np.clip(1 + 0.02 * x, 0.5, 1.5).astype(np.float32)
            if kind == "log_sum":
                x = np.abs(x) + np.float32(0.1)
            cases.add(x, "f32", kind=kind, axes=axes, keep_dims=len(shape) == 3)
    x = values("f32", 6, 70)
    x[0, 5] = x[1, 69] = x[2, 3] = x[2, 60] = np.nan
    x[3] = 1.0
    x[4, 7] = np.inf
    x[5] = -np.inf
    for kind in {"max", "min", "sum", "log_sum_exp", "argmax", "argmin"} & set(kinds):
        cases.add(x, "f32", kind=kind, axes=[1])
    cases.check(options)


@pytest.mark.parametrize(
    ("dtype", "kinds"),
    [
        ("i8", "sum mean max min l1 sum_square argmax argmin"),
        ("i64", "sum mean l1 sum_square l2"),
        ("u64", "sum max min"),
        ("bool", "sum"),
    ],
)
def test_reductions_of_integers_are_exact(dtype: str, kinds: str) -> None:
    cases = Cases("reduce")
    for kind in kinds.split():
        for x in (values(dtype, 3, 17, 2, most=2**62), values(dtype, 1, 1, 1)):
            cases.add(x, dtype, kind=kind, axes=[1], select_last_index=True)
    cases.check("kernel=reduce_group" if dtype == "i64" else "")


def test_lines_of_f64_agree() -> None:
    """Attention and exporters of PyTorch have softmax, sums and running sums of f64."""
    for op in ("softmax", "reduce", "cumsum"):
        cases = Cases(op)
        x = RNG.standard_normal((3, 70))
        if op == "softmax":
            x[1] = 700 * x[1]
            cases.add(x, "f64", axis=1)
            cases.add(x, "f64", axis=0, log=True)
        elif op == "cumsum":
            cases.add(x, "f64", np.array(1, np.int64), exclusive=True)
            cases.add(x, "f64", np.array(0, np.int64), product=True)
        else:
            for kind in ("sum", "mean", "l2", "max", "log_sum_exp", "argmax"):
                cases.add(x, "f64", kind=kind, axes=[1])
        cases.check()


def test_axes_of_reductions() -> None:
    """Several axes, none, all, given as a constant operand."""
    cases = Cases("reduce")
    x = values("f32", 2, 3, 4, 5, 2, 3)
    for axes in ([0, 2, 4], [1, 3, 5], [0, 1], [-1, -2], [], [0, 1, 2, 3, 4, 5], [2]):
        cases.add(x, "f32", kind="mean", axes=axes, keep_dims=False)
        if axes:
            cases.add(x, "f32", np.array(axes, np.int64), kind="sum", keep_dims=True)
    cases.add(x, "f32", kind="l2", axes=[], noop_with_empty_axes=True)
    cases.check()


def test_reductions_of_narrow_and_quantized_values_agree() -> None:
    cases = Cases("reduce")
    for dtype, kind in (("f16", "sum"), ("f16", "mean")):
        cases.add(values(dtype, 5, 33), dtype, kind=kind, axes=[1])
    for kind in ("sum", "mean", "l2", "log_sum", "l1"):
        q = Quantization(np.array([0.05], np.float32), np.array([3], np.int32))
        x = np.abs(values("i8", 4, 20) // 2) + 5
        cases.add(x.astype(np.int8), "i8", kind=kind, axes=[1], quantization=q, dtypes=("f32",))
    cases.check()


# ---- norms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", "kernel=softmax_group"], ids=["items", "groups"])
def test_softmax_agrees(options: str) -> None:
    cases = Cases("softmax")
    for shape, axis in (((1,), 0), ((3, 63), 1), ((64, 5), 0), ((2, 65, 3), 1), ((2, 3, 1001), -1), ((2, 3, 5, 7), -3)):
        cases.add(values("f32", *shape) * 9, "f32", axis=axis)
        cases.add(values("f32", *shape) * 9, "f32", axis=axis, log=True)
    if not options:
        cases.add(values("bf16", 3, 100), "bf16", axis=1)
    cases.check(options, 1e-5)


@pytest.mark.parametrize("options", ["", "kernel=norm_group"], ids=["items", "groups"])
def test_layer_norm_agrees(options: str) -> None:
    cases = Cases("layer_norm")
    for shape, axis in (((1, 1), -1), ((3, 63), 1), ((64,), 0), ((2, 65, 3), 1), ((2, 3, 1001), -1), ((5, 7, 8), -1)):
        x = values("f32", *shape) * 3 + 1
        lines = shape[axis:]
        cases.add(x, "f32", values("f32", *lines), values("f32", *lines), axis=axis, outputs=3, epsilon=1e-3)
        cases.add(x, "f32", values("f32", *lines), axis=axis, rms=True)
        cases.add(x, "f32", axis=axis)
    if not options:
        cases.add(values("f32", 2, 3, 4), "f32", values("f32", 4), values("f32", 1), axis=1)
    cases.check(options, 1e-5)


@pytest.mark.parametrize("options", ["", "kernel=norm_group"], ids=["items", "groups"])
def test_group_norm_agrees(options: str) -> None:
    cases = Cases("group_norm")
    for shape in ((1, 6, 3), (2, 6, 5, 7), (3, 12, 64), (1, 6, 3, 3, 11)):
        for groups in (0, 1, 3):
            for axis in (1, -1):
                x = np.moveaxis(values("f32", *shape), 1, axis)
                s, b = values("f32", shape[1]), values("f32", shape[1], 1)[:, 0]
                cases.add(np.ascontiguousarray(x) + 2, "f32", s, b, groups=groups, channel_axis=axis)
    cases.check(options, 1e-5)


def test_batch_norm_agrees() -> None:
    cases = Cases("batch_norm")
    for shape, axis in (((1, 3), 1), ((2, 5, 7), 1), ((3, 64, 2, 3), 1), ((2, 3, 4, 63), -1), ((65,), -1)):
        n = shape[axis] if len(shape) > 1 else 65
        rest = [values("f32", n, i)[:, 0].copy() for i in range(1, 4)]
        cases.add(
            values("f32", *shape), "f32", *rest, np.abs(values("f32", n, 9)[:, 0]), channel_axis=axis, epsilon=0.01
        )
    cases.check()


# ---- windows ---------------------------------------------------------------------------------------------------------

POOLS: list[dict[str, Any]] = [
    {"kernel": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    {"kernel": [3, 3], "strides": [2, 2], "ceil_mode": True, "pads": [1, 1, 1, 1], "count_include_pad": True},
    {"kernel": [2, 2], "dilations": [3, 2], "pads": [1, 1, 0, 1]},
    {"kernel": [4, 3], "strides": [3, 2], "auto_pad": "same_upper"},
    {"kernel": [3, 2], "strides": [1, 3], "auto_pad": "same_lower", "count_include_pad": True},
    {"kernel": [9, 7]},
    {"kernel": [1, 2], "strides": [3, 4], "auto_pad": "same_upper"},  # windows with gaps between them: no padding
]


def test_pools_of_floats_agree() -> None:
    cases = Cases("pool")
    for axis in (1, -1):
        for attributes in POOLS:
            x = values("f32", 2, 3, 9, 7) if axis == 1 else values("f32", 2, 9, 7, 3)
            for kind in ("max", "average"):
                cases.add(x, "f32", kind=kind, channel_axis=axis, **attributes)
            if axis == 1:
                for power in (1, 2, 3):
                    cases.add(x, "f32", kind="lp", p=power, channel_axis=axis, **attributes)
        cases.add(values("f32", 1, 5, 65) if axis == 1 else values("f32", 1, 65, 5), "f32", kind="average", kernel=[3],
                  strides=[2], channel_axis=axis)  # fmt: skip
    cases.add(
        values("f32", 2, 3, 4, 5, 7), "f32", kind="max", kernel=[2, 3, 2], strides=[1, 2, 3], pads=[1, 0, 1, 0, 1, 0]
    )
    cases.add(values("f32", 1, 1, 1), "f32", kind="max", kernel=[1])
    cases.check()


def test_pools_of_integers_are_exact() -> None:
    cases = Cases("pool")
    q = Quantization(np.array([0.1], np.float32), np.array([-7], np.int32))
    for attributes in POOLS:
        cases.add(values("i8", 2, 3, 9, 7), "i8", kind="average", quantization=q, **attributes)
        cases.add(values("u8", 2, 9, 7, 3), "u8", kind="max", channel_axis=-1, **attributes)
        cases.add(values("i16", 2, 9, 7, 3, most=40000), "i16", kind="average", channel_axis=-1, **attributes)
    cases.check()


def test_indices_of_pools() -> None:
    cases = Cases("pool")
    for order in (0, 1):
        for axis in (1, -1):
            x = values("f32", 2, 9, 7, 3) if axis == -1 else values("f32", 2, 3, 9, 7)
            for attributes in POOLS[:3]:
                cases.add(x, "f32", kind="max", outputs=2, storage_order=order, channel_axis=axis, **attributes)
    cases.check()


# ---- resampling ------------------------------------------------------------------------------------------------------

COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def test_resized_floats_agree() -> None:
    cases = Cases("resize")
    x = values("f32", 2, 3, 7, 5)
    for coordinates in COORDINATES:
        for sizes in ([13, 3], [7, 11], [1, 1]):
            for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
                cases.add(x, "f32", mode="nearest", nearest=nearest, coordinates=coordinates, sizes=sizes, axes=[2, 3])
            for mode in ("linear", "cubic"):
                cases.add(x, "f32", mode=mode, coordinates=coordinates, sizes=sizes, axes=[-2, -1])
        cases.add(
            x, "f32", None, np.array([3, 4, 13], np.int64), mode="linear", coordinates=coordinates, axes=[0, 1, 3]
        )
        cases.add(x, "f32", np.array([1, 1, 0.6, 2.3], np.float32), mode="cubic", coordinates=coordinates)
    for mode in ("linear", "cubic"):
        for flags in ({"exclude_outside": True}, {"antialias": True}, {"aspect": "not_larger"}):
            cases.add(x, "f32", mode=mode, sizes=[4, 9], axes=[2, 3], **flags)
        cases.add(values("f32", 1, 129), "f32", mode=mode, scales=[1.0, 0.37], antialias=True)
    cases.add(x, "f32", mode="cubic", sizes=[4, 9], axes=[3, 2], cubic_coefficient=-0.5)
    cases.add(values("f32", 3, 4, 5, 6, 2), "f32", mode="linear", sizes=[7, 3, 9], axes=[1, 2, 3])
    cases.check()


@pytest.mark.parametrize("aspect", ["stretch", "not_larger", "not_smaller"])
def test_resized_pixels_are_the_same(aspect: str) -> None:
    """Nearest pixels at ties, which coordinates in f32 miss, and one scale for sizes that keep the aspect ratio."""
    cases = Cases("resize")
    for shape, sizes in (
        ((1, 2, 20, 14), [6, 8]),
        ((1, 2, 11, 28), [26, 4]),
        ((1, 2, 56, 49), [8, 7]),
        ((1, 2, 7, 10), [30, 3]),
    ):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        for coordinates in COORDINATES:
            for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
                how = {"nearest": nearest, "coordinates": coordinates, "axes": [2, 3]}
                cases.add(x, "f32", mode="nearest", sizes=sizes, aspect=aspect, **how)
                if aspect == "stretch":
                    cases.add(x, "f32", mode="nearest", scales=[0.3, 1.7], **how)
        cases.add(x, "f32", mode="linear", sizes=sizes, aspect=aspect, axes=[2, 3])
    cases.check()


def test_resized_regions_agree() -> None:
    cases = Cases("resize")
    roi = np.array([0.2, -0.3, 0.9, 1.4], np.float32)
    for mode in ("nearest", "linear", "cubic"):
        cases.add(values("f32", 2, 7, 5, 3), "f32", None, np.array([9, 4], np.int64), roi, mode=mode, axes=[1, 2],
                  coordinates="tf_crop_and_resize", extrapolation_value=2.5)  # fmt: skip
        cases.add(values("f32", 2, 7, 5, 3), "f32", None, np.array([1, 4], np.int64), roi, mode=mode, axes=[1, 2],
                  coordinates="tf_crop_and_resize")  # fmt: skip
    cases.check()


def test_resized_integers_are_exact() -> None:
    cases = Cases("resize")
    for mode in ("nearest", "linear", "cubic"):
        cases.add(values("u8", 1, 9, 11, 3), "u8", mode=mode, sizes=[17, 6], axes=[1, 2])
        cases.add(values("i32", 1, 9, 11, 3, most=2**30), "i32", mode=mode, sizes=[17, 6], axes=[1, 2])
    cases.check()


# ---- lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", "kernel=cumsum_group"], ids=["items", "groups"])
def test_running_sums_agree(options: str) -> None:
    cases = Cases("cumsum")
    for shape, axis in (((1,), 0), ((3, 63), 1), ((64, 2), 0), ((2, 65, 3), 1), ((2, 1001), -1)):
        for exclusive in (False, True):
            for reverse in (False, True):
                at = np.array(axis, np.int64)
                cases.add(values("f32", *shape), "f32", at, exclusive=exclusive, reverse=reverse)
                if not options:
                    x = values("u32", *shape, most=2**32 - 1)
                    cases.add(x, "u32", at, exclusive=exclusive, reverse=reverse, product=True)
    cases.check(options)


def test_largest_elements_are_those_of_the_cpu() -> None:
    cases = Cases("top_k")
    x = values("f32", 3, 65, 2)
    x[0, 3] = x[1, 60] = np.nan
    x[2] = np.round(x[2])  # ties
    for k in (5, 8):
        for largest in (True, False):
            cases.add(x, "f32", np.array([k], np.int64), outputs=2, axis=1, largest=largest)
    cases.add(values("f32", 1, 7), "f32", np.array([7], np.int64), outputs=2)
    cases.add(values("f32", 5, 300), "f32", np.array([64], np.int64), outputs=2)
    cases.check()


def test_what_is_too_much_for_a_work_item_runs_on_the_cpu() -> None:
    cases = Cases("top_k")
    cases.add(values("f32", 2, 100), "f32", np.array([65], np.int64), outputs=2)
    cases.graph.signature("infer", cases.main)
    session = linnet.Session(cases.graph, devices=[opencl_device()])
    assert [(step.op, step.placed) for step in session.steps] == [("top_k", "cannot")]


def test_pads_with_a_constant_of_the_dtype() -> None:
    """Max pools and masks pad with minus infinity, which is an attribute, a double."""
    cases = Cases("copy")
    for dtype, numbers in (
        ("f16", (-np.inf, 1.5, -65504.0, 2.0**-24, 2.0**-14)),
        ("bf16", (-np.inf, -3.0)),
        ("f64", (0.1,)),
    ):
        for number in numbers:
            x = RNG.standard_normal((2, 3)) if dtype == "f64" else values(dtype, 2, 3)
            cases.add(x, dtype, kind="pad", pads=[0, 1, 2, 0], value=number)
    cases.check(tolerance=1e-30)
