"""Custom ops of TFLite models: those for speech against LiteRT; those of MediaPipe, which LiteRT lacks, against loops over their
public definition, and one against the builtin op that it contains."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from flatbuffers import flexbuffers

import linnet
from tests.test_tflite_ops import reference
from tests.tflite_models import G, O, T, build


def run(model: bytes, **feeds: np.ndarray) -> list[np.ndarray]:
    return list(linnet.Session(linnet.from_tflite(model)).run(feeds).values())


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize(("window", "stride"), [(480, 160), (256, 256)])
def test_spectrogram(window: int, stride: int, squared: bool) -> None:
    custom = bytes(flexbuffers.Dumps({"window_size": window, "stride": stride, "magnitude_squared": squared}))
    size = 1 << (window - 1).bit_length()
    frames = 1 + (1600 - window) // stride
    tensors = [T("x", "f32", [1600, 2]), T("y", "f32", [2, frames, 1 + size // 2])]
    model = build(G(tensors, [O("CUSTOM:AudioSpectrogram", ["x"], ["y"], custom=custom)], ["x"], ["y"]))
    x = np.random.default_rng(1).standard_normal((1600, 2)).astype(np.float32)
    (wanted,), (got,) = reference(model, [x]), run(model, x=x)
    assert got.shape == wanted.shape
    assert float(np.abs(got - wanted).max()) <= 1e-5 * float(wanted.max())


@pytest.mark.parametrize(("low", "high"), [(20, 4000), (0, 8000)])
def test_mfcc(low: int, high: int) -> None:
    custom = bytes(flexbuffers.Dumps({
        "upper_frequency_limit": high, "lower_frequency_limit": low, "filterbank_channel_count": 40,
        "dct_coefficient_count": 13,
    }))  # fmt: skip
    rate = T("r", "i32", [1], value=np.int32([16000]))
    tensors = [T("x", "f32", [1, 5, 257]), rate, T("y", "f32", [1, 5, 13])]
    model = build(G(tensors, [O("CUSTOM:Mfcc", ["x", "r"], ["y"], custom=custom)], ["x"], ["y"]))
    x = np.random.default_rng(1).random((1, 5, 257)).astype(np.float32) ** 4
    (wanted,), (got,) = reference(model, [x]), run(model, x=x)
    assert got.shape == wanted.shape
    assert float(np.abs(got - wanted).max()) <= 1e-5 * float(np.abs(wanted).max())


@pytest.mark.parametrize(("padding", "stride", "kernel"), [(1, 2, 2), (1, 2, 3), (1, 1, 3), (2, 2, 3)])
def test_transposed_convolution_with_bias_is_the_builtin_op(padding: int, stride: int, kernel: int) -> None:
    rng = np.random.default_rng(3)
    w, b = rng.standard_normal((5, kernel, kernel, 3)).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    total = max(0, kernel - 5 % stride - 1) if padding == 1 else 0
    out = [
        1,
        *(stride * (n - 1) + kernel - (max(0, kernel - (n - 1) % stride - 1) if padding == 1 else 0) for n in (6, 4)),
        5,
    ]
    x, y = T("x", "f32", [1, 6, 4, 3]), T("y", "f32", out)
    weights = [T("w", "f32", w.shape, value=w), T("b", "f32", [5], value=b)]
    custom = struct.pack("<3i", padding, stride, stride)
    own = build(G([x, *weights, y], [O("CUSTOM:Convolution2DTransposeBias", ["x", "w", "b"], ["y"], custom=custom)],
                  ["x"], ["y"]))  # fmt: skip
    options = {"padding": padding - 1, "stride_w": stride, "stride_h": stride, "activation": "none"}
    builtin = build(G([x, *weights, T("s", "i32", [4], value=np.int32(out)), y],
                      [O("TRANSPOSE_CONV", ["s", "w", "x", "b"], ["y"], options)], ["x"], ["y"]))  # fmt: skip
    value = rng.standard_normal((1, 6, 4, 3)).astype(np.float32)
    (wanted,), (got,) = reference(builtin, [value]), run(own, x=value)
    assert total >= 0 and got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("padding", "stride", "kernel"), [(1, 2, 2), (1, 2, 3), (2, 1, 2)])
def test_pooling_with_positions(padding: int, stride: int, kernel: int) -> None:
    x = np.random.default_rng(5).standard_normal((2, 7, 6, 3)).astype(np.float32)
    out = [-(-n // stride) if padding == 1 else (n - kernel) // stride + 1 for n in (7, 6)]
    pad = [max((o - 1) * stride + kernel - n, 0) // 2 if padding == 1 else 0 for o, n in zip(out, (7, 6), strict=True)]
    values, places = np.zeros((2, *out, 3), np.float32), np.zeros((2, *out, 3), np.float32)
    for index in np.ndindex(*values.shape):
        b, oy, ox, c = index
        best = -np.inf
        for fy in range(kernel):
            for fx in range(kernel):
                iy, ix = oy * stride - pad[0] + fy, ox * stride - pad[1] + fx
                if 0 <= iy < 7 and 0 <= ix < 6 and x[b, iy, ix, c] > best:
                    best = values[index] = x[b, iy, ix, c]
                    places[index] = fy * kernel + fx + 0.1
    custom = struct.pack("<6i", padding, stride, stride, kernel, kernel, 0)
    tensors = [T("x", "f32", x.shape), T("y", "f32", values.shape), T("p", "f32", values.shape)]
    model = build(G(tensors, [O("CUSTOM:MaxPoolingWithArgmax2D", ["x"], ["y", "p"], custom=custom)], ["x"], ["y", "p"]))
    got = run(model, x=x)
    np.testing.assert_array_equal(got[0], values)
    np.testing.assert_allclose(got[1], places, rtol=1e-6)


def test_unpooling_puts_back_what_pooling_took() -> None:
    rng = np.random.default_rng(6)
    x, kernel = rng.standard_normal((2, 3, 4, 5)).astype(np.float32), 2
    places = rng.integers(0, 4, x.shape)
    wanted = np.zeros((2, 6, 8, 5), np.float32)
    for b, y, c, d in np.ndindex(*x.shape):
        at = places[b, y, c, d]
        wanted[b, y * 2 + at // kernel, c * 2 + at % kernel, d] = x[b, y, c, d]
    custom = struct.pack("<6i", 1, kernel, kernel, kernel, kernel, 0)
    tensors = [T("x", "f32", x.shape), T("p", "f32", x.shape), T("y", "f32", wanted.shape)]
    model = build(G(tensors, [O("CUSTOM:MaxUnpooling2D", ["x", "p"], ["y"], custom=custom)], ["x", "p"], ["y"]))
    np.testing.assert_array_equal(run(model, x=x, p=(places + 0.1).astype(np.float32))[0], wanted)


@pytest.mark.parametrize("width", [2, 3])
def test_landmarks_are_transformed(width: int) -> None:
    rng = np.random.default_rng(7)
    x, m = rng.standard_normal((1, 9, width)).astype(np.float32), rng.standard_normal((1, 4, 4)).astype(np.float32)
    wanted = x.copy()
    for i, point in enumerate(x[0]):
        wanted[0, i, :2] = [m[0, r, 0] * point[0] + m[0, r, 1] * point[1] + m[0, r, 3] for r in (0, 1)]
    tensors = [T("x", "f32", x.shape), T("m", "f32", m.shape), T("y", "f32", x.shape)]
    model = build(G(tensors, [O("CUSTOM:TransformLandmarks", ["x", "m"], ["y"])], ["x", "m"], ["y"]))
    np.testing.assert_allclose(run(model, x=x, m=m)[0], wanted, rtol=1e-5, atol=1e-6)


def test_a_region_is_cut_out() -> None:
    """Part of the region is outside the tensor."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((1, 12, 10, 3)).astype(np.float32)
    m = np.zeros((1, 4, 4), np.float32)
    m[0, 0], m[0, 1] = [0.9, -0.3, 0, 2.2], [0.3, 0.9, 0, -0.6]
    wanted = np.zeros((1, 8, 9, 3))
    for oy, ox in np.ndindex(8, 9):
        u, v = (m[0, r, 0] * (ox + 0.5) + m[0, r, 1] * (oy + 0.5) + m[0, r, 3] - 0.5 for r in (0, 1))
        if 0 <= u <= 9 and 0 <= v <= 11:
            for dy in (0, 1):
                for dx in (0, 1):
                    cy, cx = int(np.floor(v)) + dy, int(np.floor(u)) + dx
                    if cy < 12 and cx < 10:
                        wanted[0, oy, ox] += x[0, cy, cx] * (1 - abs(v - cy)) * (1 - abs(u - cx))
    custom = bytes(flexbuffers.Dumps({"output_height": 8, "output_width": 9}))
    tensors = [T("x", "f32", x.shape), T("m", "f32", m.shape), T("y", "f32", wanted.shape)]
    model = build(
        G(tensors, [O("CUSTOM:TransformTensorBilinear", ["x", "m"], ["y"], custom=custom)], ["x", "m"], ["y"])
    )
    got = run(model, x=x, m=m)[0]
    assert (wanted == 0).any() and (wanted != 0).any()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_the_matrix_of_a_region_around_landmarks() -> None:
    """The matrix as a product of its steps: to the centre of the region, scaled to the box, rotated, moved to the middle of
    the box."""
    rng = np.random.default_rng(9)
    x = (rng.random((1, 20, 3)) * 100).astype(np.float32)
    subset, wide, high, target = [3, 7, 11, 2, 19], 16, 12, 0.2
    custom = bytes(flexbuffers.Dumps({
        "left_rotation_idx": 4, "right_rotation_idx": 9, "output_height": high, "output_width": wide, "scale_x": 1.5,
        "scale_y": 1.25, "subset_idxs": subset, "target_rotation_radians": target,
    }))  # fmt: skip
    left, right, points = x[0, 4, :2], x[0, 9, :2], x[0, subset, :2].astype(np.float64)
    r = target - np.arctan2(right[1] - left[1], right[0] - left[0])

    def turn(angle: float) -> np.ndarray:
        return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    def whole(linear: np.ndarray, shift: np.ndarray) -> np.ndarray:
        made = np.eye(4)
        made[:2, :2], made[:2, 3] = linear, shift
        return made

    turned = points @ turn(r).T
    size, middle = turned.max(0) - turned.min(0), turn(-r) @ ((turned.max(0) + turned.min(0)) / 2)
    scale = np.diag([1.5 * size[0] / wide, 1.25 * size[1] / high])
    back = np.array([-wide / 2, -high / 2])
    zero, one = np.zeros(2), np.eye(2)
    wanted = whole(one, middle) @ whole(turn(-r), zero) @ whole(scale, zero) @ whole(one, back)
    tensors = [T("x", "f32", x.shape), T("y", "f32", [1, 4, 4])]
    model = build(G(tensors, [O("CUSTOM:Landmarks2TransformMatrix", ["x"], ["y"], custom=custom)], ["x"], ["y"]))
    np.testing.assert_allclose(run(model, x=x)[0][0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["Convolution2DTransposeBias", "MaxPoolingWithArgmax2D", "AudioSpectrogram", "Mfcc"])
def test_options_that_make_no_sense_are_problems(op: str) -> None:
    value = np.ones((2, 2, 2, 3), np.float32)
    tensors = [
        T("x", "f32", [1, 4, 4, 3]), T("w", "f32", value.shape, value=value), T("b", "f32", [2], value=value[0, 0, :, 0]),
        T("y", "f32", [1, 4, 4, 2]), T("z", "f32", [1, 4, 4, 2]),
    ]  # fmt: skip
    for custom in (b"\x01", b"\x09\x00\x00\x00" * 6, b"\xff" * 24):
        operator = O(f"CUSTOM:{op}", ["x", "w", "b"], ["y", "z"], custom=custom)
        with pytest.raises(linnet.ConversionError):
            linnet.from_tflite(build(G(tensors, [operator], ["x"], ["y"])))
