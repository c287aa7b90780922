"""Statistics of what a product with constant weights reads: means and second moments of the rows that its weights multiply. From
them follow the noise that rounded weights cause, and so the best way to round (post-training rounding, bias correction)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.ir import traits
from linnet.ir.function import Node, Tensor
from linnet.quantization.scheme import RECURRENT

MOST = 1152  # columns of a row for which second moments are kept
_PICKED = 64  # rows of a batch, at least
Array = npt.NDArray[np.float32]


class Rows:
    """mean: the mean of the rows, f64 [groups, columns]. second: the mean of the rows' outer products, f64 [groups,
    columns, columns]; None if a row is too long or if no second moments are computed for the op. The columns of a row
    are in the order of `as_rows`."""

    def __init__(self, node: Node) -> None:
        self.node = node
        w = node.inputs[1]
        assert w is not None and w.data is not None
        self.shape = w.data.shape
        self.count = 0
        self.waiting: list[Array] = []
        self.mean: npt.NDArray[np.float64] | None = None
        self.second: npt.NDArray[np.float64] | None = None
        self.random = np.random.default_rng(len(self.shape) + math.prod(self.shape))

    def include(self, x: npt.NDArray[Any]) -> None:
        """Adds some rows of one batch of the node's input to the statistics."""
        rows = self._rows(x)
        if rows is None or not rows.shape[0]:
            return
        self.waiting.append(rows)
        if sum(len(part) for part in self.waiting) >= rows.shape[2]:  # a large product is faster than many small ones
            self.settle()

    def settle(self) -> None:
        """Adds the waiting rows to the means."""
        if not self.waiting:
            return
        rows = np.concatenate(self.waiting)
        self.waiting.clear()
        count, groups, columns = rows.shape
        if self.mean is None:
            self.mean = np.zeros((groups, columns))
            transposed = traits.output_axis(self.node.op) not in (0, None)
            if columns <= MOST and groups * columns * columns <= 1 << 23 and not transposed:
                self.second = np.zeros((groups, columns, columns))
        self.count += count
        share = count / self.count
        self.mean += share * (rows.mean(axis=0, dtype=np.float64) - self.mean)
        if self.second is not None:
            by_group = rows.transpose(1, 0, 2)
            self.second += share * (np.matmul(by_group.transpose(0, 2, 1), by_group) / np.float32(count) - self.second)

    def over(self, factors: npt.NDArray[np.float64]) -> Rows:
        """The statistics if each column were multiplied by a factor: f64 [groups, columns]."""
        made = Rows(self.node)
        made.count = self.count
        made.mean = None if self.mean is None else self.mean * factors
        made.second = None if self.second is None else self.second * factors[:, :, None] * factors[:, None, :]
        return made

    def _rows(self, x: npt.NDArray[Any]) -> Array | None:
        """f32 [rows, groups, columns]."""
        columns = self.shape[1] if traits.output_axis(self.node.op) == 0 else 0
        picked = max(_PICKED, min(256, columns // 4))
        if traits.output_axis(self.node.op) == 0:
            return _patches(np.asarray(x), self.shape, self.node, picked, self.random)
        if traits.output_axis(self.node.op) is not None:
            return _taps(np.asarray(x), self.shape, self.node, self.random)
        if self.node.op not in RECURRENT and (len(self.shape) != 2 or self.node.attributes.get("transpose_a", False)):
            return None
        x = np.asarray(x)
        if self.node.op in RECURRENT:  # states [time, directions, batch, hidden]
            rows = x.swapaxes(1, 2).reshape(-1, x.shape[1], x.shape[3])
        else:
            rows = x.reshape(-1, 1, x.shape[-1])
        chosen = self.random.integers(0, len(rows), picked) if len(rows) > picked else slice(None)
        picked_rows: Array = rows[chosen].astype(np.float32)
        return picked_rows


def read_by(node: Node) -> Tensor | None:
    """The tensor whose rows the weights of a node multiply: its input, or the states of a recurrent layer."""
    return node.outputs[0] if node.op in RECURRENT else node.inputs[0]


def as_rows(node: Node, w: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Weights as [groups, outputs of a group, columns]."""
    axis = traits.output_axis(node.op)
    groups = int(node.attributes.get("group", 1))
    if axis == 0:
        return w.reshape(groups, w.shape[0] // groups, -1)
    if axis is not None:  # transposed convolution: [inputs, outputs of a group, kernel...]
        kernel = math.prod(w.shape[2:])
        split = w.reshape(groups, w.shape[0] // groups, w.shape[1], kernel)
        rows: Array = split.transpose(0, 2, 1, 3).reshape(groups, w.shape[1], -1)
        return rows
    turned = w if node.attributes.get("transpose_b", False) else w.T
    return turned[None]


def from_rows(node: Node, rows: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The inverse of `as_rows`."""
    axis = traits.output_axis(node.op)
    groups = int(node.attributes.get("group", 1))
    if axis == 0:
        return rows.reshape(shape)
    if axis is not None:
        split = rows.reshape(groups, shape[1], shape[0] // groups, math.prod(shape[2:]))
        return np.ascontiguousarray(split.transpose(0, 2, 1, 3)).reshape(shape)
    return np.ascontiguousarray(rows[0] if node.attributes.get("transpose_b", False) else rows[0].T)


def _numbers(node: Node, name: str, count: int, default: int) -> list[int]:
    return [int(v) for v in node.attributes.get(name, ())] or [default] * count


def _patches(
    x: npt.NDArray[Any], shape: tuple[int, ...], node: Node, picked: int, random: np.random.Generator
) -> Array | None:
    """The values that the weights of a convolution multiply at some of its output positions; zeros in the padding."""
    x = np.moveaxis(x, int(node.attributes.get("channel_axis", 1)), 1)
    kernel, sizes = shape[2:], x.shape[2:]
    strides, dilations = _numbers(node, "strides", len(kernel), 1), _numbers(node, "dilations", len(kernel), 1)
    pads = _numbers(node, "pads", 2 * len(kernel), 0)
    auto = node.attributes.get("auto_pad", "explicit")
    out: list[int] = []
    for d, (k, size, stride, dilation) in enumerate(zip(kernel, sizes, strides, dilations, strict=True)):
        reach = (k - 1) * dilation + 1
        if auto in ("same_upper", "same_lower"):
            out.append(-(-size // stride))
            extra = max(0, (out[-1] - 1) * stride + reach - size)
            pads[d] = extra // 2 if auto == "same_upper" else extra - extra // 2
        else:
            if auto == "valid":
                pads[d] = pads[d + len(kernel)] = 0
            out.append((size + pads[d] + pads[d + len(kernel)] - reach) // stride + 1)
    total = x.shape[0] * math.prod(out)
    if total <= 0:
        return None
    chosen = random.integers(0, total, picked) if total > picked else np.arange(total)
    where = np.unravel_index(chosen, (x.shape[0], *out))
    index: list[Any] = [where[0].reshape(-1, *[1] * len(kernel)), slice(None)]
    inside = np.ones((len(chosen), *kernel), bool)
    for d, k in enumerate(kernel):
        at = where[1 + d][:, None] * strides[d] - pads[d] + np.arange(k) * dilations[d]
        view = [len(chosen)] + [k if e == d else 1 for e in range(len(kernel))]
        inside &= ((at >= 0) & (at < sizes[d])).reshape(view)
        index.append(np.clip(at, 0, sizes[d] - 1).reshape(view))
    taken = x[tuple(index)].astype(np.float32) * inside[..., None]  # [rows, kernel..., channels]
    rows = np.moveaxis(taken, -1, 1)
    groups = int(node.attributes.get("group", 1))
    return np.ascontiguousarray(rows).reshape(len(chosen), groups, -1)


def _taps(x: npt.NDArray[Any], shape: tuple[int, ...], node: Node, random: np.random.Generator) -> Array | None:
    """For a transposed convolution: the input at some positions, repeated for each tap. An output position gets only
    one of `stride` taps, so the rows are divided by the strides. So the means of the rows are right, but their second
    moments are not."""
    x = np.moveaxis(x, int(node.attributes.get("channel_axis", 1)), 1)
    kernel = shape[2:]
    flat = np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])
    chosen = random.integers(0, len(flat), _PICKED) if len(flat) > _PICKED else slice(None)
    share = np.float32(1 / math.prod(_numbers(node, "strides", len(kernel), 1)))
    taken = flat[chosen].astype(np.float32) * share
    groups, taps = int(node.attributes.get("group", 1)), math.prod(kernel)
    return np.repeat(taken, taps, axis=1).reshape(len(taken), groups, -1)
