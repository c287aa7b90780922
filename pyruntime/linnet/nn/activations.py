"""Pointwise activations, softmax, and the table by which layers find one by its name."""

from __future__ import annotations

from collections.abc import Callable

from linnet import ops
from linnet.errors import UsageError
from linnet.graph import Tensor
from linnet.mapping import Expr, pointwise
from linnet.nn._layer import Start, layer, size_of, variable
from linnet.ops import gelu, relu, sigmoid, silu, tanh

Activation = str | Callable[[Tensor], Tensor] | None


def _map(x: Tensor, body: Callable[[Expr], Expr]) -> Tensor:
    made = pointwise([x], body, x.dtype)
    assert isinstance(made, Tensor)
    return made


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x where it is above 0, else slope * x (Maas et al. 2013)."""
    return _map(x, lambda v: (v > 0.0).select(v, v * slope))


def relu6(x: Tensor) -> Tensor:
    """min(max(x, 0), 6) (Krizhevsky 2010)."""
    return ops.clip(x, 0.0, 6.0)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where it is above 0, else alpha * (exp(x) - 1) (Clevert et al. 2015)."""
    return _map(x, lambda v: (v > 0.0).select(v, v.min(60.0).unary("expm1") * alpha))


def selu(x: Tensor) -> Tensor:
    """elu, scaled so that layers keep mean 0 and variance 1 (Klambauer et al. 2017)."""
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return _map(x, lambda v: (v > 0.0).select(v, v.min(60.0).unary("expm1") * alpha) * scale)


def gelu_tanh(x: Tensor) -> Tensor:
    """The approximation of gelu by tanh (Hendrycks and Gimpel 2016)."""
    return _map(x, lambda v: v * 0.5 * (((v + v * v * v * 0.044715) * 0.7978845608028654).unary("tanh") + 1.0))


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow."""

    def body(v: Expr) -> Expr:  # the limits keep what is not selected finite, and its gradient with it
        above = v + (-v.max(-60.0)).unary("exp").unary("log1p")
        return (v > 0.0).select(above, v.min(60.0).unary("exp").unary("log1p"))

    return _map(x, body)


def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return _map(x, lambda v: v / (abs(v) + 1.0))


def mish(x: Tensor) -> Tensor:
    """x * tanh(softplus(x)) (Misra 2019)."""
    return ops.multiply(x, ops.tanh(softplus(x)))


def hard_sigmoid(x: Tensor) -> Tensor:
    """min(max(x / 6 + 1 / 2, 0), 1) (Howard et al. 2019)."""
    return _map(x, lambda v: (v * (1.0 / 6.0) + 0.5).max(0.0).min(1.0))


def hard_swish(x: Tensor) -> Tensor:
    """x * hard_sigmoid(x) (Howard et al. 2019)."""
    return _map(x, lambda v: v * (v * (1.0 / 6.0) + 0.5).max(0.0).min(1.0))


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis. For a loss use the cross-entropy of logits, which is stable."""
    return ops.softmax(x, axis=axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of softmax, stable."""
    return ops.softmax(x, axis=axis, log=True)


def prelu(x: Tensor, *, start: float | Start = 0.25, channel_axis: int = 1, name: str = "") -> Tensor:
    """leaky_relu whose slope is learnt per channel (He et al. 2015). Variable `slope` [channels]."""
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


_BY_NAME: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": elu, "gelu": gelu, "gelu_tanh": gelu_tanh, "hard_sigmoid": hard_sigmoid, "hard_swish": hard_swish,
    "leaky_relu": leaky_relu, "log_softmax": log_softmax, "mish": mish, "relu": relu, "relu6": relu6, "selu": selu,
    "sigmoid": sigmoid, "silu": silu, "softmax": softmax, "softplus": softplus, "softsign": softsign, "tanh": tanh,
}  # fmt: skip


def activate(x: Tensor, activation: Activation) -> Tensor:
    """By a function, by the name of one of this file, or not at all."""
    if activation is None:
        return x
    if not isinstance(activation, str):
        return activation(x)
    if activation not in _BY_NAME:
        raise UsageError("unknown activation", code=102, expected=" or ".join(_BY_NAME), got=repr(activation))
    return _BY_NAME[activation](x)
