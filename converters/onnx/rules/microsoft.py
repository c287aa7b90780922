"""Rules for the float ops of domain com.microsoft that ONNX Runtime's optimizer writes.
Definitions: ONNX Runtime, docs/ContribOperators.md."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.registry import MICROSOFT, rule
from linnet.converters.onnx.rules.convolution import conv
from linnet.converters.onnx.rules.linear import gemm, product
from linnet.ir.function import Tensor


def activated(op: Operation, y: Tensor, name: str, numbers: list[float]) -> Tensor:
    """Applies an activation by its ONNX name, with its attributes as a list."""

    def number(index: int, default: float) -> float:
        return numbers[index] if index < len(numbers) else default

    bodies: dict[str, Any] = {
        "Relu": lambda x: x.max(0),
        "Tanh": lambda x: x.unary("tanh"),
        "Sigmoid": lambda x: x.unary("sigmoid"),
        "LeakyRelu": lambda x: x.binary("lt", 0).select(x * number(0, 0.01), x),
        "Clip": lambda x: x.max(number(0, -math.inf)).min(number(1, math.inf)),
        "HardSigmoid": lambda x: (x * number(0, 0.2) + number(1, 0.5)).max(0).min(1),
    }
    if name in ("", "Identity"):
        return y
    if name not in bodies:
        raise op.unsupported(f"activation {name!r} is not supported", f"use one of {', '.join(bodies)}")
    return op.map([y], bodies[name])


@rule("FusedConv", domain=MICROSOFT, like="Conv")
def fused_conv(op: Operation) -> Tensor:
    """Conv, then an optional sum with a fourth operand, then an activation."""
    y = conv(op)
    assert isinstance(y, Tensor)
    if (other := op.optional(3)) is not None:
        y = op.map([y, other], lambda v, w: v + w)
    return activated(op, y, op.attribute("activation", ""), op.attribute("activation_params", []))


@rule("FusedGemm", domain=MICROSOFT, like="Gemm")
def fused_gemm(op: Operation) -> Tensor:
    y = gemm(op)
    assert isinstance(y, Tensor)
    given = [n for n in ("activation_alpha", "activation_beta", "activation_gamma") if op.has(n)]
    return activated(op, y, op.attribute("activation", ""), [op.attribute(n) for n in given])


@rule("FusedMatMul", domain=MICROSOFT)
def fused_matmul(op: Operation) -> Tensor:
    """alpha * a @ b. Both are transposed before if the attributes say so: transBatch moves axis 0 to the second-last
    place, and trans swaps the last two axes."""
    operands, alpha = [op.input(0), op.input(1)], op.attribute("alpha", 1.0)
    for index, side in enumerate("AB"):
        x = operands[index]
        batch, plain = op.attribute(f"transBatch{side}", 0), op.attribute(f"trans{side}", 0)
        rank = rank_of(x, f"input {index}")
        if rank < 2:
            continue
        order = list(range(rank))
        if batch:
            order = [*order[1:-1], 0, order[-1]]
        if plain:
            order = [*order[:-2], order[-1], order[-2]]
        operands[index] = op.transpose(x, order)
    y = product(op, operands[0], operands[1])
    return y if alpha == 1 else op.map([y], lambda v: v * alpha)


def gelu(x: Expr) -> Expr:
    return x * 0.5 * ((x * math.sqrt(0.5)).unary("erf") + 1)


def fast_gelu(x: Expr) -> Expr:
    return x * 0.5 * (((x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)).unary("tanh") + 1)


@rule("Gelu", "BiasGelu", "FastGelu", domain=MICROSOFT)
def gelus(op: Operation) -> Tensor:
    """GELU of x, or of x plus the bias if there is one. It uses erf, or tanh for FastGelu."""
    body = fast_gelu if op.node.op_type == "FastGelu" else gelu
    if (bias := op.optional(1)) is not None:
        return op.map([op.input(0), bias], lambda x, b: body(x + b))
    return op.map([op.input(0)], body)


@rule("QuickGelu", domain=MICROSOFT)
def quick_gelu(op: Operation) -> Tensor:
    alpha = op.attribute("alpha", 1.702)
    return op.map([op.input(0)], lambda x: x * (x * alpha).unary("sigmoid"))


@rule("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(op: Operation) -> list[Tensor | None]:
    """The norm of input + skip (+ bias). The fourth output is this sum."""
    terms = [op.input(0), op.input(1), *([op.input(4)] if op.optional(4) is not None else [])]
    return _skip_norm(op, terms, [op.input(2), *([op.input(3)] if op.optional(3) is not None else [])], False)


@rule("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(op: Operation) -> list[Tensor | None]:
    terms = [op.input(0), op.input(1), *([op.input(3)] if op.optional(3) is not None else [])]
    return _skip_norm(op, terms, [op.input(2)], True)


def _skip_norm(op: Operation, terms: list[Tensor], parameters: list[Tensor], rms: bool) -> list[Tensor | None]:
    epsilon = op.attribute("epsilon", 1e-12)
    x = op.map(terms, lambda v, w, *rest: v + w + rest[0] if rest else v + w)
    if op.wants(1) or op.wants(2):
        raise op.unsupported("mean and deviation cannot be outputs", "remove these outputs if nothing uses them")
    y = op.emit("layer_norm", [x, *parameters], axis=-1, epsilon=epsilon, rms=rms)
    return [y, None, None, x][: max(len(op.node.output), 1)]


@rule("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(op: Operation) -> list[Tensor | None]:
    """Word, position and segment embeddings, summed and normalized. The second output counts the ones of the mask."""
    ids, segments, mask, positions = op.input(0), op.optional(1), op.optional(7), op.optional(8)
    epsilon = op.attribute("epsilon", 1e-12)
    op.ignore("mask_index_type")
    words = op.emit("gather", [op.input(2), ids], kind="take", axis=0)
    if positions is not None:
        places = op.emit("gather", [op.input(3), positions], kind="take", axis=0)
    else:
        length = op.shape_of(ids, 1, 2)
        first = [op.constant(np.zeros(1, np.int64)), length, op.constant(np.zeros(1, np.int64))]
        places = op.emit("copy", [op.input(3), *first], kind="slice")
    terms = [words, places]
    if segments is not None:
        terms.append(op.emit("gather", [op.input(4), segments], kind="take", axis=0))
    x = op.map(terms, lambda v, w, *rest: v + w + rest[0] if rest else v + w)
    y = op.emit("layer_norm", [x, op.input(5), op.input(6)], axis=-1, epsilon=epsilon)
    outputs: list[Tensor | None] = [y, None, x]
    if op.wants(1):
        if mask is not None:
            outputs[1] = op.reduce(mask, "sum", [1], keep_dims=False)
        else:
            rows = op.reduce(op.map([ids], lambda v: v * 0, "i32"), "sum", [1], keep_dims=False)
            outputs[1] = rows
    return outputs[: max(len(op.node.output), 1)]


@rule("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_norm(op: Operation) -> Tensor:
    """Root-mean-square norm. ONNX Runtime writes it into the main domain."""
    op.ignore("stash_type")
    epsilon, axis = op.attribute("epsilon", 1e-5), op.attribute("axis", -1)
    return op.emit("layer_norm", [op.input(0), op.input(1)], axis=axis, epsilon=epsilon, rms=True)
