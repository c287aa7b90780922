"""Layouts that a device describes (linnet_device.h, linnet_layout): orders of axes with blocks. NumPy says what bytes and
strides must be, and the device works on blocked memory by these alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.facade import Graph
from tests.capi import Chain, Failure, ffi, lib
from tests.py_device import PyDevice, tensor_of

TOKEN = 5


def blocked(x: np.ndarray, order: tuple[int, ...], axis: int, block: int) -> np.ndarray:
    """The memory of x: axes in this order, then the elements of a block of `axis`, padded with -1."""
    if block <= 1:
        return np.ascontiguousarray(x.transpose(order))
    pads = [(0, -n % block if d == axis else 0) for d, n in enumerate(x.shape)]
    x = np.pad(x, pads, constant_values=-1)
    x = x.reshape(*x.shape[:axis], x.shape[axis] // block, block, *x.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(x, axis + 1, -1).transpose(*order, x.ndim - 1))


class Blocked(PyDevice):
    """Keeps all values between its steps in one layout, and finds elements by the strides that the library gives."""

    def __init__(self, order: tuple[int, ...], axis: int, block: int) -> None:
        super().__init__({"map": 0.0})
        self.order, self.axis, self.block, self.seen = order, axis, block, 0

    def _propose(self, step: Any, output: int) -> int:
        return TOKEN

    def _accept(self, step: Any, i: int, layout: int) -> int:
        assert layout == TOKEN
        return 1

    def _describe(self, layout: int, rank: int, out: Any) -> int:
        assert layout == TOKEN and rank == len(self.order)
        for i, axis in enumerate(self.order):
            out.order[i] = axis
        out.block_axis, out.block = self.axis, self.block
        return 1

    def _places(self, tensor: Any) -> np.ndarray:
        """The offset in elements of each element, by the strides of the tensor."""
        shape, axes = tuple(tensor.shape[0 : tensor.rank]), tensor.axes
        places = np.zeros(shape, np.int64)
        for d in range(tensor.rank):
            i = np.arange(shape[d])
            if axes.block > 1 and d == axes.block_axis:
                along = i // axes.block * tensor.strides[d] + i % axes.block
            else:
                along = i * tensor.strides[d]
            places += along.reshape([-1 if k == d else 1 for k in range(tensor.rank)])
        return places

    def _check(self, tensor: Any) -> None:
        """Bytes, strides and axes are those of NumPy's array of this layout."""
        shape = tuple(tensor.shape[0 : tensor.rank])
        dense = tensor.layout == 0
        order, block = (tuple(range(len(shape))), 0) if dense else (self.order, self.block)
        memory = blocked(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), order, self.axis, block)
        assert tuple(tensor.axes.order[0 : tensor.rank]) == order and tensor.axes.block == block
        assert tensor.bytes == memory.nbytes
        places = self._places(tensor)
        np.testing.assert_array_equal(memory.ravel()[places.ravel()], np.arange(np.prod(shape)))
        self.seen += not dense

    def _download(self, queue: int, tensor: Any, to: Any, source: Any) -> int:
        self._check(tensor)
        value = np.frombuffer(self.at(source), np.float32)[self._places(tensor)]
        ffi.memmove(to, value.tobytes(), value.nbytes)
        return 0

    def compute(self, work: Any) -> int:
        for s in range(work.count):
            x, y = tensor_of(work.steps[s], 0), tensor_of(work.steps[s], 0, True)
            self._check(x)
            self._check(y)
            assert work.inputs[s][0].bytes == x.bytes and work.outputs[s][0].bytes == y.bytes
            value = np.frombuffer(self.at(work.inputs[s][0]), np.float32)[self._places(x)]
            out = np.full(y.bytes // 4, np.nan, np.float32)
            out[self._places(y)] = value + 1
            self.at(work.outputs[s][0])[:] = out.tobytes()
        return 0


def steps(shape: tuple[int, ...]) -> Graph:
    """x, then three times + 1. Each sum is an output, so each is a step of its own."""
    graph = Graph()
    x = y = graph.placeholder("x", shape)
    outs = {}
    for i in range(3):
        y = outs[f"y{i}"] = y + 1.0
    graph.signature("infer", {"x": x}, outs)
    return graph


BLOCKS = [
    ((0, 1, 2, 3), 1, 16, (2, 15, 3, 2)),
    ((0, 1, 2, 3), 1, 16, (2, 16, 3, 2)),
    ((0, 1, 2, 3), 1, 16, (2, 17, 3, 2)),
    ((0, 1, 2, 3), 1, 16, (1, 37, 1, 5)),
    ((1, 0, 2, 3), 0, 4, (7, 3, 2, 5)),
    ((0, 2, 3, 1), 3, 8, (2, 3, 5, 11)),
    ((0, 2, 3, 1), 0, 0, (2, 3, 5, 11)),
    ((2, 0, 1), 2, 1, (3, 4, 5)),
    ((0,), 0, 8, (13,)),
    ((1, 0), 1, 3, (1, 1)),
]


@pytest.mark.parametrize(("order", "axis", "block", "shape"), BLOCKS)
def test_bytes_and_strides_of_a_described_layout(
    order: tuple[int, ...], axis: int, block: int, shape: tuple[int, ...]
) -> None:
    device = Blocked(order, axis, block)
    graph = steps(shape)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    session = linnet.Session(graph, devices=[device])
    got = session.run({"x": x})
    for i in range(3):
        np.testing.assert_array_equal(got[f"y{i}"], linnet.Session(graph).run({"x": x})[f"y{i}"])
    assert device.seen >= 3 and device.count("layout_bytes") == 0


def test_every_order_of_three_axes() -> None:
    for order in itertools.permutations(range(3)):
        device = Blocked(order, 1, 4)
        x = np.arange(2 * 6 * 5, dtype=np.float32).reshape(2, 6, 5)
        np.testing.assert_array_equal(linnet.Session(steps(x.shape), devices=[device]).run({"x": x})["y2"], x + 3)


@pytest.mark.parametrize(
    ("order", "axis", "block"),
    [
        ((0, 0, 2), 0, 4),
        ((0, 1, 3), 0, 4),
        ((0, -1, 2), 0, 4),
        ((0, 1, 2), 3, 4),
        ((0, 1, 2), -1, 4),
        ((0, 1, 2), 0, -2),
    ],
)
def test_a_layout_that_is_none_is_an_error(order: tuple[int, ...], axis: int, block: int) -> None:
    device = Blocked(order, axis, block)
    with Chain(steps((2, 6, 5)).to_bytes()) as chain, pytest.raises(Failure) as failure:
        chain.make_plan(devices=device.pointers, device_count=1)
    assert failure.value.status == lib().LINNET_DEVICE_FAILED
    assert "device python failed to describe a layout" in str(failure.value) and "token 5" in str(failure.value)


class Undescribed(Blocked):
    """Describes nothing, and does not say the bytes either."""

    def _describe(self, layout: int, rank: int, out: Any) -> int:
        return 0


def test_a_private_layout_needs_its_bytes() -> None:
    device = Undescribed((0, 1, 2), 1, 4)
    with Chain(steps((2, 6, 5)).to_bytes()) as chain, pytest.raises(Failure, match="failed to describe a layout"):
        chain.make_plan(devices=device.pointers, device_count=1)
