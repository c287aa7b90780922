"""The sweep over ordinary layers (tests/slow_shapes.py): which of them the plan leaves to scalar references."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tests.slow_shapes import Found, planned, shapes, slow

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="needs kernels with vectors")

# Reductions of stored integers have no vector kernels, except for the largest and the smallest value. Neither have the
# kinds prod and log_sum_exp of floats.
KNOWN = {"reduce"}
FAST = ("max", "min")


def test_no_ordinary_layer_is_left_to_a_reference() -> None:
    left = set()
    for shape in shapes():
        for dtype in shape.dtypes:
            choice = planned(shape, dtype)[2]
            if any(c.chosen and c.reference for c in choice.candidates):
                left.add((shape.op, shape.name.partition(",")[0], dtype))
    unknown = {found for found in left if found[0] not in KNOWN or found[1] in FAST}
    assert not unknown, unknown
    assert ("reduce", "prod", "f32") in left and not any(kind == "sum" for _, kind, dtype in left if dtype == "f32")


def test_the_operations_of_a_depthwise_transposed_convolution_of_integers() -> None:
    (shape,) = [s for s in shapes() if s.op == "conv_transpose" and s.name.startswith("depthwise: 32x32")]
    for dtype in ("i8", "i16", "w16"):
        assert planned(shape, dtype)[2].step.flops == 2 * 32 * 32 * 32 * 9, dtype


def test_what_counts_as_slow() -> None:
    first, second, *_ = shapes()
    found = [Found(first, "f32", "fast", False, 10.0, 100.0), Found(second, "f32", "fast", False, 10.0, 100.0)]
    assert slow(found) == {}
    late = Found(first, "i8", "fast", False, 25.0, 40.0)
    scalar = Found(second, "i16", "reference", True, 100.0, 10.0)
    assert slow([*found, late, scalar]) == {
        (first.op, first.name, "i8"): "2.5 times the time of f32",
        (second.op, second.name, "i16"): "reference, 10.0 times the time of f32, 0.10 of the usual rate",
    }


def test_the_command_prints_what_it_found() -> None:
    words = ["-m", "tests.slow_shapes", "--op", "softmax", "--dtypes", "f32", "--seconds", "0", "--all"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    assert done.stdout.count("softmax") >= 4 and "GFLOP/s" in done.stdout
