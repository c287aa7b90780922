"""Rules for activation functions. Each becomes part of a map and follows its ONNX definition. If the definition can
overflow (softplus, elu), an equivalent form without overflow is used."""

from __future__ import annotations

import math

from linnet.converters.onnx.operation import Operation
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.registry import rule
from linnet.ir.function import Tensor


@rule("Relu")
def relu(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda x: x.max(0))


@rule("LeakyRelu")
def leaky_relu(op: Operation) -> Tensor:
    alpha = op.attribute("alpha")
    return op.map([op.input(0)], lambda x: x.binary("lt", 0).select(x * alpha, x))


@rule("PRelu")
def prelu(op: Operation) -> Tensor:
    return op.map([op.input(0), op.input(1)], lambda x, slope: x.binary("lt", 0).select(x * slope, x))


@rule("ThresholdedRelu")
def thresholded_relu(op: Operation) -> Tensor:
    alpha = op.attribute("alpha")
    return op.map([op.input(0)], lambda x: x.binary("gt", alpha).select(x, 0))


@rule("Elu")
def elu(op: Operation) -> Tensor:
    alpha = op.attribute("alpha")
    return op.map([op.input(0)], lambda x: x.binary("lt", 0).select(x.unary("expm1") * alpha, x))


@rule("Celu")
def celu(op: Operation) -> Tensor:
    alpha = op.attribute("alpha")
    return op.map([op.input(0)], lambda x: x.max(0) + ((x / alpha).unary("expm1") * alpha).min(0))


@rule("Selu")
def selu(op: Operation) -> Tensor:
    alpha, gamma = op.attribute("alpha"), op.attribute("gamma")
    return op.map([op.input(0)], lambda x: x.binary("gt", 0).select(x, x.unary("expm1") * alpha) * gamma)


@rule("HardSigmoid")
def hard_sigmoid(op: Operation) -> Tensor:
    alpha, beta = op.attribute("alpha"), op.attribute("beta")
    return op.map([op.input(0)], lambda x: (x * alpha + beta).max(0).min(1))


@rule("HardSwish")
def hard_swish(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda x: x * (x * (1 / 6) + 0.5).max(0).min(1))


def softplus_of(x: Expr) -> Expr:
    """log(1 + exp(x)) without overflow."""
    return x.max(0) + (-x.unary("abs")).unary("exp").unary("log1p")


@rule("Softplus")
def softplus(op: Operation) -> Tensor:
    return op.map([op.input(0)], softplus_of)


@rule("Mish")
def mish(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda x: x * softplus_of(x).unary("tanh"))


@rule("Softsign")
def softsign(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda x: x / (x.unary("abs") + 1))


@rule("Swish")
def swish(op: Operation) -> Tensor:
    alpha = op.attribute("alpha")
    return op.map([op.input(0)], lambda x: x * (x if alpha == 1 else x * alpha).unary("sigmoid"))


@rule("Shrink")
def shrink(op: Operation) -> Tensor:
    bias, bound = op.attribute("bias"), op.attribute("lambd")

    def body(x: Expr) -> Expr:
        inner = x.binary("gt", bound).select(x - bias, x - x)
        return x.binary("lt", -bound).select(x + bias, inner)

    if op.input(0).dtype in ("f32", "f64", "f16", "bf16"):
        return op.map(
            [op.input(0)],
            lambda x: x.binary("lt", -bound).select(x + bias, x.binary("gt", bound).select(x - bias, 0)),
        )
    # Bounds may be fractional, so integers are computed as floats. An i64 cannot hold every u64 result.
    wide = op.input(0).dtype == "u64"
    return op.map([op.input(0)], lambda x: body(x.cast("f64")).cast("f64" if wide else x.kind))


@rule("Gelu")
def gelu(op: Operation) -> Tensor:
    if op.attribute("approximate") == "tanh":
        scale = math.sqrt(2 / math.pi)
        return op.map([op.input(0)], lambda x: x * 0.5 * (((x * x * x * 0.044715 + x) * scale).unary("tanh") + 1))
    return op.map([op.input(0)], lambda x: x * 0.5 * ((x * math.sqrt(0.5)).unary("erf") + 1))
