"""Batch, layer, group and instance normalization. Batch normalization updates its moving averages in each training
step, by graph.side_update."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from linnet import init
from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import DTypeLike
from linnet.ir.function import Operators, Tensor
from linnet.ir.graph import graph_of
from linnet.nn._layer import Start, layer, rank_of, size_of, variable


def _ones(shape: Sequence[int], dtype: DTypeLike = "f32") -> init.Initializer:
    return init.constant(shape, 1.0, dtype)


def batch_norm(
    x: Operators,
    training: bool,
    *,
    momentum: float = 0.1,
    epsilon: float = 1e-5,
    scale: bool = True,
    bias: bool = True,
    channel_axis: int = 1,
    scale_start: Start = _ones,
    name: str = "",
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias per channel (Ioffe and Szegedy 2015).

    training: True uses the statistics of the batch, and every training step mixes them into the moving averages.
    `momentum` is the weight of the new statistics, as in PyTorch (Keras' momentum is 1 minus this weight). False uses
    the moving averages. Raises UsageError inside a branch or loop while training. Variables `scale` and `bias`, and the
    non-trainable `mean` and `variance` (sample variance, n / (n - 1)), all [channels].
    """
    with layer(x, "batch_norm", name) as graph:
        rank, channels = rank_of(x, "batch_norm", 2), size_of(x, channel_axis, "batch_norm")
        factor = variable(graph, "scale", [channels], scale_start, x.dtype).tensor(x) if scale else None
        offset = variable(graph, "bias", [channels], init.zeros, x.dtype).tensor(x) if bias else None
        mean = variable(graph, "mean", [channels], init.zeros, x.dtype, trainable=False)
        variance = variable(graph, "variance", [channels], _ones, x.dtype, trainable=False)
        factor = factor if factor is not None else x.function.constant(np.ones_like(mean.value))
        offset = offset if offset is not None else x.function.constant(np.zeros_like(mean.value))
        if not training:
            return ops.batch_norm(
                x, factor, offset, mean.tensor(x), variance.tensor(x), epsilon=epsilon, channel_axis=channel_axis
            )
        if graph.bodies:
            raise UsageError(
                "batch_norm cannot train inside a branch or loop because its moving averages could not be updated "
                "from there", code=101,
                tensor=x.name, hint="move it outside, pass training=False, or use layer_norm or group_norm",
            )  # fmt: skip
        axes = [i for i in range(rank) if i != channel_axis % rank]
        centre, spread = ops.moments(x, channel_axis=channel_axis)
        y = ops.batch_norm(x, factor, offset, centre, spread, epsilon=epsilon, channel_axis=channel_axis)
        graph.side_update(mean, _mix(centre, momentum), along=y)
        graph.side_update(variance, _mix(spread, momentum, _sample_factor(x, axes)), along=y)
        return y


def _mix(new: Tensor, share: float, factor: Tensor | float = 1.0) -> Callable[[Tensor], Tensor]:
    return lambda old: old * (1.0 - share) + new * factor * share


def _sample_factor(x: Operators, axes: Sequence[int]) -> Tensor | float:
    """n / (n - 1) for the n elements over axes. It turns the variance of a batch into an unbiased estimate."""
    sizes = [(x.shape or ())[a] for a in axes]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) == len(sizes):
        n = math.prod(known)
        return n / max(n - 1, 1)
    every = ops.gather(ops.shape(x), x.function.constant(np.asarray(axes, np.int64)))
    count = ops.cast(ops.reduce(every, kind="prod", keep_dims=False), dtype=x.dtype)
    made = pointwise([count], lambda n: n / (n - 1.0).max(1.0))
    assert isinstance(made, Tensor)
    return made


def layer_norm(
    x: Operators,
    axis: int = -1,
    *,
    epsilon: float = 1e-5,
    scale: bool = True,
    bias: bool = True,
    rms: bool = False,
    name: str = "",
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` to the last (Ba et al. 2016).

    rms: do not subtract the mean (Zhang and Sennrich 2019). Variables `scale` and `bias`, with the shape of those axes.
    """
    with layer(x, "layer_norm", name) as graph:
        rank = rank_of(x, "layer_norm", 1)
        shape = [size_of(x, i, "layer_norm") for i in range(axis % rank, rank)]
        factor = variable(graph, "scale", shape, _ones, x.dtype).tensor(x) if scale else None
        offset = variable(graph, "bias", shape, init.zeros, x.dtype).tensor(x) if bias else None
        return ops.layer_norm(x, factor, offset, axis=axis, epsilon=epsilon, rms=rms)[0]


def group_norm(
    x: Operators,
    groups: int,
    *,
    epsilon: float = 1e-5,
    scale: bool = True,
    bias: bool = True,
    channel_axis: int = 1,
    name: str = "",
) -> Tensor:
    """Normalizes over the spatial axes and each group of channels (Wu and He 2018). Variables `scale`, `bias` [channels]."""
    with layer(x, "group_norm", name) as graph:
        rank_of(x, "group_norm", 3)
        channels = size_of(x, channel_axis, "group_norm")
        if groups < 0 or (groups and channels % groups):
            raise UsageError(
                "the channels are not divisible by the number of groups", code=104, tensor=x.name,
                expected=f"a divisor of {channels}, or 0 for one group per channel", got=str(groups),
            )  # fmt: skip
        factor = variable(graph, "scale", [channels], _ones, x.dtype).tensor(x) if scale else None
        offset = variable(graph, "bias", [channels], init.zeros, x.dtype).tensor(x) if bias else None
        return ops.group_norm(x, factor, offset, groups=groups, epsilon=epsilon, channel_axis=channel_axis)


def instance_norm(
    x: Operators, *, epsilon: float = 1e-5, scale: bool = True, bias: bool = True, channel_axis: int = 1, name: str = ""
) -> Tensor:
    """group_norm with one group per channel (Ulyanov et al. 2016)."""
    return group_norm(
        x, 0, epsilon=epsilon, scale=scale, bias=bias, channel_axis=channel_axis,
        name=name or graph_of(x).unique_scope("instance_norm"),
    )  # fmt: skip
