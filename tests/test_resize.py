"""Coordinates of resize: exact if sizes are given, and those of ONNX's reference if scales are given. The references are
fractions, ONNX's evaluator and LiteRT."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from onnx.reference import ReferenceEvaluator

import linnet
from linnet import Graph, ops

Array = np.ndarray
COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
NEAREST: dict[str, Callable[[F], int]] = {
    "round_prefer_floor": lambda p: math.ceil(p - F(1, 2)),
    "round_prefer_ceil": lambda p: math.floor(p + F(1, 2)),
    "floor": math.floor,
    "ceil": math.ceil,
}
# Ties and whole positions that f32 and f64 miss, and some others.
PAIRS = [(20, 6), (20, 26), (11, 26), (14, 8), (14, 2), (28, 4), (56, 8), (7, 49), (49, 7), (1, 5), (5, 1), (3, 3), (100, 30),
         (1000, 7), (7, 1000), (33, 11), (130, 91), (640, 416), (23, 41), (6, 20)]  # fmt: skip


def position(coordinates: str, o: int, n: int, out: int, scale: F | None = None) -> F:
    """ONNX's formulas in fractions. scale: the common scale of sizes that keep the aspect ratio."""
    resized = F(out) if scale is None else scale * n
    scale = F(out, n) if scale is None else scale
    half = F(2 * o + 1, 2) / scale - F(1, 2)
    if coordinates == "align_corners":
        return F(0) if resized == 1 else F(o * (n - 1)) / (resized - 1)
    if coordinates == "asymmetric":
        return o / scale
    if coordinates == "pytorch_half_pixel":
        return half if resized > 1 else F(0)
    if coordinates == "half_pixel_symmetric":
        return F(n, 2) * (1 - out / resized) + half
    return half


def picked(at: F, nearest: str, n: int) -> int:
    return min(max(NEAREST[nearest](at), 0), n - 1)


def row(n: int, dtype: str = "f32") -> Array:
    made = np.random.default_rng(n).permutation(n).astype({"f32": np.float32, "u8": np.uint8, "f64": np.float64}[dtype])
    return np.asarray(made)


DTYPES = {"float32": "f32", "uint8": "u8", "float64": "f64"}


def resized(x: Array, **attributes: Any) -> Array:
    graph = Graph()
    given = graph.placeholder("x", x.shape, dtype=DTYPES[x.dtype.name])
    graph.signature("infer", {"x": given}, {"y": ops.resize(given, **attributes)})
    return np.asarray(linnet.Session(graph).run({"x": x})["y"])


@pytest.mark.parametrize("nearest", NEAREST)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_nearest_of_sizes_is_exact(coordinates: str, nearest: str) -> None:
    for n, out in PAIRS:
        x = row(n, "u8" if n < 200 else "f32")
        want = x[[picked(position(coordinates, o, n, out), nearest, n) for o in range(out)]]
        got = resized(x, sizes=[out], mode="nearest", coordinates=coordinates, nearest=nearest)
        np.testing.assert_array_equal(got, want, f"{n} to {out}")


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_linear_of_sizes_is_exact(coordinates: str) -> None:
    """The weights are the fractions, rounded once to f32."""
    for n, out in PAIRS:
        x = row(n, "f64")
        at = [min(max(position(coordinates, o, n, out), F(0)), F(n - 1)) for o in range(out)]
        low = [math.floor(p) for p in at]
        part = [float(np.float32(p - b)) for p, b in zip(at, low, strict=True)]
        keep = [float(np.float32(1 - (p - b))) for p, b in zip(at, low, strict=True)]
        want = [x[b] * k + x[min(b + 1, n - 1)] * f for b, k, f in zip(low, keep, part, strict=True)]
        got = resized(x, sizes=[out], mode="linear", coordinates=coordinates)
        np.testing.assert_allclose(got, want, 1e-7, 1e-7, err_msg=f"{n} to {out}")


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_sizes_that_keep_the_aspect_ratio_are_exact(coordinates: str, policy: str) -> None:
    shapes = [
        ((20, 9), (6, 8)),
        ((14, 11), (8, 5)),
        ((7, 56), (30, 8)),
        ((10, 15), (3, 9)),
        ((3, 6), (1, 1)),
        ((25, 9), (10, 3)),
    ]
    for (shape, wanted), nearest in itertools.product(shapes, NEAREST):
        x = row(shape[0] * shape[1]).reshape(shape)
        ratios = [F(w, n) for w, n in zip(wanted, shape, strict=True)]
        scale = min(ratios) if policy == "not_larger" else max(ratios)
        sizes = [math.floor(scale * n + F(1, 2)) for n in shape]
        index = [
            [picked(position(coordinates, o, n, out, scale), nearest, n) for o in range(out)]
            for n, out in zip(shape, sizes, strict=True)
        ]
        got = resized(x, sizes=list(wanted), mode="nearest", coordinates=coordinates, nearest=nearest, aspect=policy)
        np.testing.assert_array_equal(got, x[np.ix_(*index)], f"{shape} to {wanted} {nearest}")


def reference(
    x: Array, scales: list[float] | None, sizes: list[int] | None, roi: list[float] | None, **attributes: Any
) -> Array:
    """ONNX's evaluator, in f64."""
    empty = nh.from_array(np.zeros(0, np.float32), "roi")
    inputs = ["x", "roi", "scales" if scales else "", "sizes" if sizes else ""]
    constants = [empty if roi is None else nh.from_array(np.array(roi, np.float64), "roi")]
    if scales:
        constants.append(nh.from_array(np.array(scales, np.float32), "scales"))
    if sizes:
        constants.append(nh.from_array(np.array(sizes, np.int64), "sizes"))
    node = h.make_node("Resize", inputs, ["y"], **attributes)
    graph = h.make_graph(
        [node], "g", [h.make_tensor_value_info("x", T.DOUBLE, x.shape)], [h.make_tensor_value_info("y", T.DOUBLE, None)],
        constants,
    )  # fmt: skip
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 19)], ir_version=9)
    return np.asarray(ReferenceEvaluator(model).run(None, {"x": x})[0])


@pytest.mark.parametrize("nearest", NEAREST)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_nearest_of_scales_is_that_of_the_reference(coordinates: str, nearest: str) -> None:
    for n, scale in itertools.product((3, 10, 21, 40), (0.3, 0.4, 1 / 3, 0.7, 1.3, 2.0, 2.5, 4.1)):
        if int(np.float32(scale) * np.float32(n)) != int(float(np.float32(scale)) * n):
            continue  # ONNX's shape inference multiplies in f32, its evaluator in f64
        x = row(n, "f64")
        want = reference(
            x, [scale], None, None, mode="nearest", coordinate_transformation_mode=coordinates, nearest_mode=nearest
        )
        got = resized(x, scales=[scale], mode="nearest", coordinates=coordinates, nearest=nearest)
        np.testing.assert_array_equal(got, want, f"{n} by {scale}")


FILTERS: list[dict[str, Any]] = [
    {"mode": "linear"}, {"mode": "cubic"}, {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    {"mode": "linear", "antialias": 1}, {"mode": "cubic", "antialias": 1},
    {"mode": "cubic", "antialias": 1, "exclude_outside": 1},
]  # fmt: skip


@pytest.mark.parametrize("how", range(len(FILTERS)))
@pytest.mark.parametrize("coordinates", [c for c in COORDINATES if c != "pytorch_half_pixel"])
def test_filters_are_those_of_the_reference(coordinates: str, how: int) -> None:
    """Weights of linnet are rounded to f32. The evaluator computes the cubic filter itself in f32."""
    near = 2e-5 if FILTERS[how]["mode"] == "cubic" else 1e-6
    given = FILTERS[how]
    own = {"cubic_coeff_a": "cubic_coefficient"}
    mine = {own.get(k, k): bool(v) if k in ("antialias", "exclude_outside") else v for k, v in given.items()}
    rng = np.random.default_rng(1)
    for shape, sizes, scales in (
        ((20, 14), [6, 8], None), ((9, 5), [31, 26], None), ((40, 33), None, [0.4, 0.7]), ((3, 8), None, [2.5, 1.3]),
        ((1, 3000), [1, 77], None), ((2, 7, 10), [2, 3, 26], None),
    ):  # fmt: skip
        x = rng.uniform(-1, 1, shape)
        want = reference(x, scales, sizes, None, coordinate_transformation_mode=coordinates, **given)
        call = {"sizes": sizes} if sizes else {"scales": scales}
        got = resized(x, coordinates=coordinates, **call, **mine)
        np.testing.assert_allclose(got, want, near, near, err_msg=f"{shape} {sizes or scales}")


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_cubic_of_sizes_is_exact(coordinates: str) -> None:
    """The filter of Keys (1981) in fractions."""

    def keys(d: F) -> F:
        a, d = F(-3, 4), abs(d)
        if d <= 1:
            return ((a + 2) * d - (a + 3)) * d * d + 1
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else F(0)

    for n, out in PAIRS:
        x, want = row(n, "f64"), []
        for o in range(out):
            at = position(coordinates, o, n, out)
            taps = range(math.floor(at) - 1, math.floor(at) + 3)
            want.append(sum(float(keys(at - i)) * x[min(max(i, 0), n - 1)] for i in taps))
        got = resized(x, sizes=[out], mode="cubic", coordinates=coordinates)
        np.testing.assert_allclose(got, want, 1e-6, 1e-6 * n, err_msg=f"{n} to {out}")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_regions_are_those_of_the_reference(mode: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (9, 12))
    for roi in ([0.25, 0.125, 0.75, 1.0], [-0.3, 0.1, 0.6, 1.2], [0.4, 0.9, 0.6, 0.2]):
        for sizes in ([5, 7], [20, 3], [1, 30]):
            want = reference(
                x,
                None,
                sizes,
                roi,
                mode=mode,
                coordinate_transformation_mode="tf_crop_and_resize",
                extrapolation_value=3.0,
            )
            graph = Graph()
            given = graph.placeholder("x", x.shape, dtype="f64")
            y = ops.resize(
                given, sizes=sizes, mode=mode, coordinates="tf_crop_and_resize", extrapolation_value=3.0,
                roi=graph.constant(np.array(roi)),
            )  # fmt: skip
            graph.signature("infer", {"x": given}, {"y": y})
            np.testing.assert_allclose(linnet.Session(graph).run({"x": x})["y"], want, 1e-6, 1e-6)


@pytest.mark.parametrize("reference_kernels", [False, True])
def test_every_layout_and_kernel_reads_the_same_pixels(reference_kernels: bool) -> None:
    """Rows and channels, between convolutions that choose the layout, and by the reference kernels."""
    graph = Graph()
    x = graph.placeholder("x", (1, 8, 20, 14))
    unit = graph.constant(np.eye(8, dtype=np.float32).reshape(8, 8, 1, 1))
    y = ops.conv(ops.resize(ops.conv(x, unit), axis=[2, 3], sizes=[6, 8], nearest="round_prefer_ceil"), unit)
    z = ops.resize(x, axis=[1, 3], sizes=[3, 8], nearest="round_prefer_ceil")
    graph.signature("infer", {"x": x}, {"y": y, "z": z})
    data = np.random.default_rng(0).permutation(8 * 20 * 14).astype(np.float32).reshape(1, 8, 20, 14)
    found = linnet.Session(graph, reference=reference_kernels).run({"x": data})

    def index(n: int, out: int) -> list[int]:
        return [picked(position("half_pixel", o, n, out), "round_prefer_ceil", n) for o in range(out)]

    np.testing.assert_array_equal(found["y"], data[:, :, index(20, 6)][..., index(14, 8)])
    np.testing.assert_array_equal(found["z"], data[:, index(8, 3)][..., index(14, 8)])


def test_the_gradient_goes_to_the_pixels_that_were_read() -> None:
    for n, out, aspect in ((20, 6, "stretch"), (56, 8, "stretch"), (20, 6, "not_larger")):
        graph = Graph()
        x = graph.placeholder("x", (n, 10))
        y = ops.resize(x, sizes=[out, 9], mode="nearest", nearest="round_prefer_ceil", aspect=aspect)
        (g,) = linnet.gradients(ops.sum(y), [x])
        graph.signature("infer", {"x": x}, {"g": g})
        got = linnet.Session(graph).run({"x": np.zeros((n, 10), np.float32)})["g"]
        scale = min(F(out, n), F(9, 10)) if aspect == "not_larger" else None
        counts = []
        for size, wanted in ((n, out), (10, 9)):
            length = wanted if scale is None else math.floor(scale * size + F(1, 2))
            read = [
                picked(position("half_pixel", o, size, length, scale), "round_prefer_ceil", size) for o in range(length)
            ]
            counts.append(np.bincount(read, minlength=size))
        np.testing.assert_array_equal(got, np.outer(*counts))
