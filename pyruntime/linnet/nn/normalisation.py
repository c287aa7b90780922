"""Batch, layer, group and instance normalisation. Batch normalisation keeps moving averages by side updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from linnet import init, ops
from linnet.errors import UsageError
from linnet.graph import Tensor
from linnet.mapping import pointwise
from linnet.nn._layer import Start, layer, rank_of, size_of, variable
from linnet.operators import Operators


def _ones(shape: Sequence[int], dtype: str = "f32") -> init.Initializer:
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

    training: with the statistics of this batch, which every training step mixes into the moving averages by
    `momentum` (the share of the new, as in PyTorch; Keras' momentum is 1 - this); otherwise with the moving averages.
    Not inside a branch or loop while training: UsageError.
    Variables `scale`, `bias`, and, not trainable, `mean` and `variance` (of the sample, n / (n - 1)), all [channels].
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
                "batch_norm cannot train inside a branch or loop: its moving averages would need a value of it", code=101,
                tensor=x.name, hint="put it outside, give training=False, or take layer_norm or group_norm",
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
    """n / (n - 1) of the n elements over axes: makes the variance of a batch that of the population it is drawn from."""
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

    rms: without the mean (Zhang and Sennrich 2019). Variables `scale` and `bias`, of the shape of those axes.
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
    """Normalises over the spatial axes and each group of channels (Wu and He 2018). Variables `scale`, `bias` [channels]."""
    with layer(x, "group_norm", name) as graph:
        rank_of(x, "group_norm", 3)
        channels = size_of(x, channel_axis, "group_norm")
        if groups < 0 or (groups and channels % groups):
            raise UsageError(
                "the channels cannot be split into these groups", code=104, tensor=x.name,
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
        name=name or x.function.graph.unique_scope("instance_norm"),
    )  # fmt: skip
