"""The rule of DFT: a product with the constant matrix of its roots of unity.
Real signals have one component, complex ones two, along the last axis."""

from __future__ import annotations

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.registry import rule
from linnet.graph import Tensor, numpy_dtype


def _dft(op: Operation, axis: int) -> Tensor:
    x = op.input(0)
    inverse, onesided = bool(op.attribute("inverse")), bool(op.attribute("onesided"))
    rank = rank_of(x, "input 0")
    axis += rank if axis < 0 else 0
    extent = x.shape[axis] if x.shape else None
    parts = x.shape[-1] if x.shape else None
    if not isinstance(extent, int) or parts not in (1, 2):
        raise op.unknown("the size of the transformed axis is not known")
    length = extent
    if op.optional(1) is not None:
        length = int(op.require_value(1, "the DFT length").reshape(-1)[0])
    if length < extent:
        x = op.slice(x, axis, 0, length)
    used = min(extent, length)
    real_out = inverse and onesided
    if real_out:  # the other half is the conjugate: every bin but the first (and the middle one) counts twice
        given = op.ints(1)
        length = given[0] if given else 2 * (extent - 1)
        used = min(extent, length // 2 + 1)
        x = op.slice(x, axis, 0, used) if used < extent else x
    bins = length // 2 + 1 if onesided and not inverse else length
    angle = 2 * np.pi / length * np.outer(np.arange(used), np.arange(bins))
    angle = angle if inverse else -angle
    cos, sin = np.cos(angle), np.sin(angle)
    if inverse:
        cos, sin = cos / length, sin / length
    if real_out:
        weight = np.full((used, 1), 2.0)
        weight[0] = 1
        if length % 2 == 0 and used == length // 2 + 1:
            weight[-1] = 1
        matrix = np.concatenate([cos * weight, -sin * weight], 0)
    elif parts == 1:
        matrix = np.concatenate([cos, sin], 1)
    else:
        matrix = np.block([[cos, sin], [-sin, cos]])
    outer = [i for i in range(rank) if i not in (axis, rank - 1)]
    x = op.transpose(x, [*outer, rank - 1, axis])  # [..., part, n]
    merge = op.concat(
        [op.shape_of(x, 0, rank - 2), op.constant(np.array([used * (1 if parts == 1 else 2)], np.int64))], 0
    )
    y = op.emit("matmul", [op.reshape(x, merge), op.constant(matrix.astype(numpy_dtype(op.input(0).dtype)))])
    results = 1 if real_out else 2
    split = op.concat([op.shape_of(y, 0, rank - 2), op.constant(np.array([results, bins], np.int64))], 0)
    y = op.reshape(y, split)
    back = [*outer, rank - 1, axis]
    return op.transpose(y, [back.index(i) for i in range(rank)])


@rule("DFT", since=17)
def dft_by_attribute(op: Operation) -> Tensor:
    return _dft(op, op.attribute("axis"))


@rule("DFT", since=20)
def dft(op: Operation) -> Tensor:
    axis = -2
    if op.optional(2) is not None:
        axis = int(op.require_value(2, "the axis").reshape(-1)[0])
    return _dft(op, axis)
