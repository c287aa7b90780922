"""Random TFLite operators and chains on quantized integers against LiteRT's reference kernels, bit for bit (docs/tflite.md).
The seeds are fixed; `make soak` runs many more."""

from __future__ import annotations

import numpy as np
import pytest

import linnet
from tests import tflite_random as drawing
from tests.test_tflite_ops import reference
from tests.tflite_models import G, O, T, build
from tests.tflite_random import Draw

SINGLE = [(op, dtype) for op, dtypes in drawing.DTYPES.items() for dtype in dtypes]


def outcome(r: Draw, outputs: list[drawing.T]) -> tuple[np.ndarray, np.ndarray]:
    """The results of linnet and LiteRT."""
    model, inputs = drawing.model(r, outputs)
    feeds = drawing.feeds(r, inputs)
    (wanted,) = reference(model, list(feeds.values()))
    (got,) = linnet.Session(linnet.from_tflite(model)).run(feeds).values()
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    return got.astype(np.float64), wanted.astype(np.float64)


def run_operators(op: str, dtype: str, seeds: range) -> None:
    flat, elements, apart = 0, 0, 0
    for seed in seeds:
        r = Draw([seed], dtype)
        got, wanted = outcome(r, drawing.OPS[op](r))
        difference = np.abs(got - wanted)
        where = f"seed {seed} of {op} {dtype}"
        if op in drawing.FLOATS:
            assert difference.max() <= (1 if op == "L2_NORMALIZATION" else 8), where
            apart, elements = apart + np.count_nonzero(difference), elements + got.size
        else:
            assert not difference.any(), f"{where}: {(difference > 0).mean():.2%} differ, at most by {difference.max()}"
        flat += wanted.size == 1 or wanted.min() == wanted.max()
    assert apart <= (0.1 if op == "L2_NORMALIZATION" else 5e-4) * elements
    assert flat <= 0.7 * len(seeds), "the results say too little"


@pytest.mark.parametrize(("op", "dtype"), SINGLE, ids=lambda v: v)
def test_random_operators_give_the_same_bits(op: str, dtype: str) -> None:
    run_operators(op, dtype, range(12))


def test_scales_of_a_fully_connected_layer_are_multiplied_in_f64() -> None:
    """With one scale for all weights. A product of scales in f32 is one quantum off for 1 of 7,000 sums of 16-bit activations."""
    rng = np.random.default_rng(0)
    for model in range(60):
        sx, sw = (float(np.float32(2.0 ** rng.uniform(-9, -5))) for _ in range(2))
        w = T("w", "i8", [40, 64], sw, 0, value=rng.integers(-127, 128, (40, 64)).astype(np.int8))
        y = T("y", "i16", [9, 40], float(np.float32(sx * sw * 700)), 0)
        operator = O("FULLY_CONNECTED", ["x", "w", ""], ["y"], {"activation": "none"})
        file = build(G([T("x", "i16", [9, 64], sx, 0), w, y], [operator], ["x"], ["y"]))
        x = rng.integers(-32768, 32768, (9, 64)).astype(np.int16)
        assert np.array_equal(linnet.Session(linnet.from_tflite(file)).run({"x": x})["y"], reference(file, [x])[0]), (
            model
        )


def run_chains(dtype: str, seeds: range) -> None:
    flat = 0
    for seed in seeds:
        r = Draw([seed, 7], dtype)
        got, wanted = outcome(r, drawing.chain(r))
        assert np.array_equal(got, wanted), f"seed {seed} of {dtype}: {[o.op for o in r.operators]}"
        flat += wanted.min() == wanted.max()
    assert flat <= 0.3 * len(seeds)


@pytest.mark.parametrize("dtype", drawing.ALL)
def test_random_chains_give_the_same_bits(dtype: str) -> None:
    run_chains(dtype, range(40))


@pytest.mark.soak
@pytest.mark.parametrize(("op", "dtype"), SINGLE, ids=lambda v: v)
def test_many_random_operators_give_the_same_bits(op: str, dtype: str) -> None:
    run_operators(op, dtype, range(1000, 1600))


@pytest.mark.soak
@pytest.mark.parametrize("dtype", drawing.ALL)
def test_many_random_chains_give_the_same_bits(dtype: str) -> None:
    run_chains(dtype, range(1000, 4000))
