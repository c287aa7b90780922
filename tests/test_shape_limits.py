"""Shape rules at their limits: the largest valid value is accepted, one more gives a clear error, and no size wraps around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from linnet.ir.function import Tensor

BIG = 1 << 48


def given(*shape: int, dtype: str = "f32") -> Tensor:
    return Graph().placeholder("x", shape, dtype)


def constant(x: Tensor, *shape: int) -> Tensor:
    return x.function.constant(np.zeros(shape, np.float32))


def copy(x: Tensor, kind: str, **attributes: Any) -> Tensor:
    return ops.copy([x], kind=kind, **attributes)[0]


def conv(channels: int, out: int, taken: int, group: int, **attributes: Any) -> Tensor:
    x = given(1, channels, 5, 5)
    return ops.conv(x, constant(x, out, taken, 3, 3), group=group, **attributes)


def product(a: tuple[int, ...], b: tuple[int, ...], bias: int | None = None, **flags: bool) -> Tensor:
    x = given(*a)
    return ops.matmul(x, constant(x, *b), None if bias is None else constant(x, bias), **flags)


def numbers(first: int, end: int, step: int) -> Tensor:
    function = Graph().function()
    return ops.range_(*(function.constant(np.array(v)) for v in (first, end, step)))


# Accepted cases with their shape, and refused ones with words of the error.
TAKEN: list[tuple[Callable[[], Tensor], tuple[int, ...]]] = [
    (lambda: copy(given(0, 3), "pad", pads=[BIG >> 6, 0, 0, 0]), (BIG >> 6, 3)),
    (lambda: copy(given(7), "reshape", shape=[-1]), (7,)),
    (lambda: copy(given(8), "reshape", shape=[2, -1]), (2, 4)),
    (lambda: copy(given(0, 4), "reshape", shape=[4, 0], allow_zero=True), (4, 0)),
    (lambda: copy(given(1), "tile", shape=[BIG >> 4]), (BIG >> 4,)),
    (lambda: copy(given(2, 3, 4), "transpose", perm=[2, 0, 1]), (4, 2, 3)),
    (lambda: copy(given(1, 8, 2, 2), "depth_to_space", block=2, axis=1), (1, 2, 4, 4)),
    (lambda: copy(given(1, 2, 4, 6), "space_to_depth", block=2, axis=1), (1, 8, 2, 3)),
    (lambda: conv(6, 4, 3, 2), (1, 4, 3, 3)),
    (lambda: ops.pool(given(1, 1, 3, 3), kind="max", kernel=[3, 3])[0], (1, 1, 1, 1)),
    (lambda: ops.pool(given(1, 1, 2, 2), kind="max", kernel=[3, 3], pads=[0, 0, 1, 1])[0], (1, 1, 1, 1)),
    (lambda: product((2, 4), (4, 5), 5), (2, 5)),
    (lambda: product((2, 4), (4, 5), 1), (2, 5)),
    (lambda: product((4, 2), (5, 4), transpose_a=True, transpose_b=True), (2, 5)),
    (lambda: product((3, 2, 4), (1, 4, 5)), (3, 2, 5)),
    (lambda: numbers(0, 5, 2), (3,)),
    (lambda: numbers(0, 5, 5), (1,)),
    (lambda: numbers(5, 0, -2), (3,)),
    (lambda: numbers(5, 5, 1), (0,)),
]
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: copy(given(0, 3), "pad", pads=[BIG + 1, 0, 0, 0]), "pad: pads or axes are wrong"),
    (lambda: copy(given(0, 3), "pad", pads=[0, 0, BIG + 1, 0]), "pad: pads or axes are wrong"),
    (lambda: copy(given(4, 3), "pad", pads=[(1 << 63) - 1, 0, 5, 0]), "pad: pads or axes are wrong"),
    (lambda: copy(given(4), "pad", pads=[-(1 << 62), -3]), "pad: pads or axes are wrong"),
    (lambda: copy(given(4), "pad", pads=[-2, -3]), "remove more than the whole dimension"),
    (lambda: copy(given(0), "pad", pads=[1, 0], pad_mode="edge"), "only constant padding"),
    (lambda: copy(given(3), "pad", pads=[-3, 5], pad_mode="wrap"), "only constant padding"),
    (lambda: copy(given(3), "pad", pads=[6, -4], pad_mode="reflect"), "only constant padding"),
    (lambda: copy(given(7), "reshape", shape=[2, -1]), "cannot infer the dimension"),
    (lambda: copy(given(7), "reshape", shape=[2, 3]), "different number of elements"),
    (lambda: copy(given(7), "reshape", shape=[2, 4]), "different number of elements"),
    (lambda: copy(given(0), "reshape", shape=[1 << 32, 1 << 32]), "too many elements"),
    (lambda: copy(given(4), "reshape", shape=[-1, -1]), "more than one -1"),
    (lambda: copy(given(4), "reshape", shape=[4, 0]), "has no input dimension to copy"),
    (lambda: copy(given(2), "tile", shape=[BIG]), "repeat is negative or too large"),
    (lambda: copy(given(4), "tile", shape=[1 << 62]), "repeat is negative or too large"),
    (lambda: copy(given(4), "tile", shape=[-1]), "repeat is negative or too large"),
    (lambda: copy(given(2, 3), "transpose", perm=[0, 0]), "not a permutation"),
    (lambda: copy(given(2, 3), "transpose", perm=[0, 2]), "not a permutation"),
    (lambda: copy(given(1, 6, 2, 2), "depth_to_space", block=2, axis=1), "does not divide"),
    (lambda: copy(given(1, 2, 5, 6), "space_to_depth", block=2, axis=1), "does not divide"),
    (lambda: ops.copy([given(7)], kind="split", axis=0, shape=[4, 4], outputs=2), "do not add up"),
    (lambda: ops.copy([given(7)], kind="split", axis=0, shape=[3, 3], outputs=2), "do not add up"),
    (
        lambda: ops.copy([given(7)], kind="split", axis=0, shape=[-1, 8], outputs=2),
        "a size is negative or too large|do not add up",
    ),
    (lambda: conv(6, 4, 3, 4), "group does not divide"),
    (lambda: conv(4, 6, 1, 4), "group does not divide"),
    (lambda: conv(6, 4, 4, 2), "does not match the channels"),
    (lambda: conv(6, 4, 3, 2, dilations=[3, 1]), "larger than the padded input"),
    (lambda: ops.pool(given(1, 1, 2, 2), kind="max", kernel=[3, 3]), "larger than the padded input"),
    (lambda: ops.pool(given(1, 1, 2, 2), kind="max", kernel=[3, 3], pads=[0, 0, 1, 0]), "larger than the padded input"),
    (lambda: product((2, 4), (3, 5)), "inner dimensions"),
    (lambda: product((2, 3), (4, 5)), "inner dimensions"),
    (lambda: product((2, 4), (4, 5), 4), "shape of bias does not match"),
    (lambda: product((2, 4), (4, 5), 6), "shape of bias does not match"),
    (lambda: product((3, 2, 4), (2, 4, 5)), "broadcast"),
    (lambda: numbers(0, 5, 0), "length is not finite"),
    (lambda: numbers(-(1 << 63), (1 << 63) - 1, 1), "length is not finite"),
]


@pytest.mark.parametrize("number", range(len(TAKEN)))
def test_what_just_fits_is_taken(number: int) -> None:
    make, shape = TAKEN[number]
    assert make().shape == shape


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_one_more_is_refused(number: int) -> None:
    make, words = REFUSED[number]
    with pytest.raises(linnet.Error, match=words):
        make()
