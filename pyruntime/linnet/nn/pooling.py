"""Pooling (maximum or average) over sliding windows, or over all spatial axes at once."""

from __future__ import annotations

from linnet.builder import ops
from linnet.ir.function import Operators, Tensor
from linnet.nn._layer import Padding, Sizes, padding_of, per_axis, rank_of


def max_pool(
    x: Operators,
    size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    channel_axis: int = 1,
) -> Tensor:
    """The maximum of each window of x [batch, channels, spatial...]. stride: default `size`. Padding is never the
    maximum."""
    count = rank_of(x, "max_pool", 3, 5) - 2
    return ops.pool(
        x, kind="max", kernel=per_axis(size, count, "size"), channel_axis=channel_axis,
        strides=per_axis(size if stride is None else stride, count, "stride"),
        dilations=per_axis(dilation, count, "dilation"), **padding_of(padding, count),
    )[0]  # fmt: skip


def avg_pool(
    x: Operators,
    size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    count_padding: bool = True,
    channel_axis: int = 1,
) -> Tensor:
    """The mean of each window. stride: default `size`. count_padding: whether explicit padding counts as elements (as
    in PyTorch). The padding of "same" never counts (as in TensorFlow)."""
    count = rank_of(x, "avg_pool", 3, 5) - 2
    return ops.pool(
        x, kind="average", kernel=per_axis(size, count, "size"), channel_axis=channel_axis,
        strides=per_axis(size if stride is None else stride, count, "stride"),
        count_include_pad=count_padding and not isinstance(padding, str), **padding_of(padding, count),
    )[0]  # fmt: skip


def _spatial(x: Operators, channel_axis: int, kind: str) -> list[int]:
    rank = rank_of(x, kind, 3)
    return [i for i in range(1, rank) if i != channel_axis % rank]


def global_avg_pool(x: Operators, *, channel_axis: int = 1, keep_dims: bool = False) -> Tensor:
    """The mean over all spatial axes: [batch, channels, spatial...] -> [batch, channels]."""
    return ops.reduce(x, kind="mean", axis=_spatial(x, channel_axis, "global_avg_pool"), keep_dims=keep_dims)


def global_max_pool(x: Operators, *, channel_axis: int = 1, keep_dims: bool = False) -> Tensor:
    """The maximum over all spatial axes: [batch, channels, spatial...] -> [batch, channels]."""
    return ops.reduce(x, kind="max", axis=_spatial(x, channel_axis, "global_max_pool"), keep_dims=keep_dims)
