"""Pointwise activations, softmax, and the table from which layers take an activation by its name."""

from __future__ import annotations

from collections.abc import Callable

from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.builder.ops import (
    elu,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softplus,
    softsign,
    tanh,
)
from linnet.clib.errors import UsageError
from linnet.ir.function import Operators, Tensor
from linnet.nn._layer import Start, layer, size_of, variable

Activation = str | Callable[[Tensor], Tensor] | None


def gelu_tanh(x: Operators) -> Tensor:
    """The tanh approximation of gelu (Hendrycks and Gimpel 2016)."""
    return gelu(x, approximate=True)


def softmax(x: Operators, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis. For a loss, use the cross-entropy of logits instead; it is numerically
    stable."""
    return ops.softmax(x, axis=axis)


def log_softmax(x: Operators, axis: int = -1) -> Tensor:
    """The logarithm of softmax, computed in a numerically stable way."""
    return ops.softmax(x, axis=axis, log=True)


def prelu(x: Operators, *, start: float | Start = 0.25, channel_axis: int = 1, name: str = "") -> Tensor:
    """leaky_relu with a learned slope per channel (He et al. 2015). Variable `slope` [channels]."""
    import numpy as np

    with layer(x, "prelu", name) as graph:
        channels = size_of(x, channel_axis, "prelu")
        first = np.full(channels, start) if isinstance(start, int | float) else start
        slope = variable(graph, "slope", [channels], first, x.dtype).tensor(x)
        rank = len(x.shape or ())
        wide = ops.reshape(slope, [-1 if i == channel_axis % rank else 1 for i in range(rank)])
        made = pointwise([x, wide], lambda v, s: (v > 0.0).select(v, v * s))
        assert isinstance(made, Tensor)
        return made


_BY_NAME: dict[str, Callable[[Operators], Tensor]] = {
    "elu": elu, "gelu": gelu, "gelu_tanh": gelu_tanh, "hard_sigmoid": hard_sigmoid, "hard_swish": hard_swish,
    "leaky_relu": leaky_relu, "log_softmax": log_softmax, "mish": mish, "relu": relu, "relu6": relu6, "selu": selu,
    "sigmoid": sigmoid, "silu": silu, "softmax": softmax, "softplus": softplus, "softsign": softsign, "tanh": tanh,
}  # fmt: skip


def activate(x: Operators, activation: Activation) -> Tensor:
    """Applies an activation given as a function or by its name in this file. None returns x unchanged."""
    if activation is None:
        return x.tensor()
    if not isinstance(activation, str):
        return activation(x.tensor())
    if activation not in _BY_NAME:
        raise UsageError("unknown activation", code=102, expected=" or ".join(_BY_NAME), got=repr(activation))
    return _BY_NAME[activation](x)
