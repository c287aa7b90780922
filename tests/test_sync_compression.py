"""The encodings of gradients against NumPy references written from the description in compress.h: byte for byte, for any values;
error feedback; and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import linnet
from linnet.sync import Compression
from linnet.sync.compression import decode, encode

ALL = ("none", "f16", "bf16", "i8", "topk:0.1", "1bit")
f32 = np.float32


def _bf16(values: np.ndarray) -> np.ndarray:
    """u16: to nearest, half to even, by exact comparison of both neighbours in f64; finite values stay finite."""
    down = values.view(np.uint32) >> 16
    up = np.minimum(down + 1, (down & 0x8000) | 0x7F7F)

    def value(half: np.ndarray) -> np.ndarray:
        return (half.astype(np.uint32) << 16).view(f32).astype(np.float64)

    below, above = np.abs(values - value(down)), np.abs(value(up) - values)
    return np.where((below < above) | ((below == above) & (down % 2 == 0)), down, up).astype("<u2")


def _i8(values: np.ndarray) -> bytes:
    scales, codes = [], []
    for start in range(0, values.size, 256):
        block = values[start : start + 256]
        scale = f32(np.abs(block).max()) / f32(127)
        q = np.rint(block * (f32(1) / scale)) if scale > 2.0**-120 else np.zeros_like(block)
        scales.append(scale if scale > 2.0**-120 else f32(0))
        codes.append(np.clip(q, -127, 127).astype(np.int8))
    return np.array(scales, "<f4").tobytes() + b"".join(code.tobytes() for code in codes)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


def _topk(values: np.ndarray, fraction: float) -> bytes:
    if not values.size:
        return b"\0"
    k = max(1, int(fraction * values.size))
    kept = np.sort(np.argsort(-np.abs(values), kind="stable")[:k])
    gaps = np.diff(kept, prepend=-1) - 1
    return _varint(k) + b"".join(_varint(int(gap)) for gap in gaps) + _bf16(values[kept]).tobytes()


def _onebit(values: np.ndarray) -> tuple[np.ndarray, bytes]:
    """(pairs of means in f64, words of signs)"""
    pairs, words = [], b""
    for start in range(0, values.size, 1024):
        block = values[start : start + 1024]
        negative = np.signbit(block)
        means = [block[which].astype(np.float64).mean() if which.any() else 0.0 for which in (negative, ~negative)]
        pairs.append(means)
        width = math.ceil(block.size / 32)
        bits = np.zeros(width * 32, np.uint64)
        bits[: block.size] = negative
        words += (bits.reshape(32, width) << np.arange(32, dtype=np.uint64)[:, None]).sum(0).astype("<u4").tobytes()
    return np.array(pairs), words


_values = hnp.arrays(
    f32,
    st.integers(0, 2200),
    elements=st.floats(-1e4, 1e4, width=32),
    fill=st.sampled_from([0.0, -0.0, 1.0, -3.5, 1e-9]),
)


@settings(max_examples=60)
@given(_values)
def test_the_bytes_are_those_of_the_description(values: np.ndarray) -> None:
    assert encode(values, "none") == values.tobytes()
    assert encode(values, "f16") == values.astype(np.float16).tobytes()
    assert encode(values, "bf16") == _bf16(values).tobytes()
    assert encode(values, "i8") == _i8(values)
    assert encode(values, "topk:0.1") == _topk(values, 0.1)
    pairs, words = _onebit(values)
    got = encode(values, "1bit")
    assert got[8 * len(pairs) :] == words
    if values.size:
        means = np.frombuffer(got[: 8 * len(pairs)], "<f4").reshape(-1, 2)
        np.testing.assert_allclose(means, pairs, rtol=1e-5, atol=1e-30)  # sums of f32, in lanes


@settings(max_examples=60)
@given(_values, st.sampled_from(ALL), st.floats(0.125, 2))
def test_round_trips(values: np.ndarray, compression: str, weight: float) -> None:
    """message + residual = the input; the size is as stated; adding equals decoding, weighing and adding."""
    weight = float(f32(weight))
    residual = (values[::-1] * f32(0.01)).copy()
    total = values + residual
    message = encode(values, compression, residual)
    chosen = Compression.parse(compression)
    assert len(message) <= chosen.bound(values.size)
    assert compression.startswith("topk") or len(message) == chosen.bound(values.size)
    back = decode(message, values.shape, compression)
    np.testing.assert_allclose(
        back.astype(np.float64) + residual, total, rtol=1e-6, atol=1e-12 + 2e-7 * abs(total).max(initial=0)
    )
    start = np.linspace(-1, 1, values.size, dtype=f32)
    added = decode(message, values.size, compression, add_to=start.copy(), weight=weight)
    np.testing.assert_array_equal(added, start + f32(weight) * back)
    assert encode(values, "none", residual) == (values + (total - back)).tobytes() or compression != "none"


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 300), st.sampled_from(ALL))
def test_any_bytes_are_decoded_or_refused(data: bytes, count: int, compression: str) -> None:
    out = np.full(count, 7, f32)
    try:
        decode(data, count, compression, add_to=out, weight=0)
    except linnet.SyncError as error:
        assert (out == 7).all() and "malformed" in error.what


@pytest.mark.parametrize("compression", ALL[1:])
def test_nothing_is_lost_over_many_steps(compression: str) -> None:
    """With a residual the mean of the received values approaches the mean of the sent ones as 1 / steps; without one it does
    not."""
    random = np.random.default_rng(3)
    constant = random.normal(size=5000).astype(f32)
    residual, sums = np.zeros_like(constant), [np.zeros_like(constant), np.zeros_like(constant)]
    errors = []
    for step in range(1, 201):
        decode(encode(constant, compression, residual), 5000, compression, add_to=sums[0])
        decode(encode(constant, compression), 5000, compression, add_to=sums[1])
        if step in (50, 200):
            errors.append([float(np.abs(total / step - constant).mean()) for total in sums])
    assert errors[1][0] < errors[0][0] / 2.5 + 1e-6 and errors[1][0] < 0.02
    if compression in ("topk:0.1", "1bit"):
        assert errors[1][1] > 0.4


@pytest.mark.parametrize(
    ("text", "message"),
    [("gzip", "unknown compression"), ("topk:", "unknown compression"), ("topk:x", "unknown compression"),
     ("topk:0", r"\(0, 1\]"), ("topk:1.5", r"\(0, 1\]"), ("topk:nan", "unknown"), ("i8:3", "unknown"),
     ("", "unknown")],
)  # fmt: skip
def test_names(text: str, message: str) -> None:
    with pytest.raises(linnet.UsageError, match=message):
        Compression.parse(text)


def test_names_are_read_as_they_are_written() -> None:
    for text in ("none", "f16", "bf16", "i8", "topk:0.05", "1bit"):
        assert str(Compression.parse(text)) == text
        assert Compression.parse(Compression.parse(text)) == Compression.parse(text)
    assert Compression.parse("topk") == Compression("topk", 0.01)
    assert [Compression.parse(text).encoding for text in ALL] == [0, 1, 2, 3, 4, 5]  # as in docs/protocol.md


def test_wrong_arrays_are_refused() -> None:
    values = np.zeros(10, f32)
    with pytest.raises(linnet.UsageError, match="float32"):
        encode(values.astype(np.float64), "f16")
    with pytest.raises(linnet.UsageError, match="strided"):
        encode(np.zeros(20, f32)[::2], "f16")
    with pytest.raises(linnet.UsageError, match="shape"):
        encode(values, "f16", np.zeros(11, f32))
    with pytest.raises(linnet.UsageError, match="share memory"):
        encode(values, "f16", values)
    frozen = np.zeros(10, f32)
    frozen.flags.writeable = False
    with pytest.raises(linnet.UsageError, match="writable"):
        encode(values, "f16", frozen)
    with pytest.raises(linnet.UsageError, match="wrong shape"):
        decode(encode(values, "f16"), 10, "f16", add_to=np.zeros(9, f32))
    with pytest.raises(linnet.SyncError, match="expected 20 bytes of f16 for 10 values, got 18 bytes"):
        decode(bytes(18), 10, "f16")
