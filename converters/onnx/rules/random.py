"""Rules for random ops. They use the counter-based op `random`: its numbers depend only on the seed and on the run, and are
the same on every machine. The numbers differ from those of ONNX Runtime, because ONNX defines only the distribution."""

from __future__ import annotations

import struct

import numpy as np

from linnet.converters.onnx.operation import Operation, dtype_name
from linnet.converters.onnx.program import FLOATS, REGISTER, Expr
from linnet.converters.onnx.registry import rule
from linnet.ir.function import Tensor


def seed_of(op: Operation, seed: float | None = None) -> int:
    """The bits of the f32 attribute `seed`; 0 if it is missing."""
    seed = op.attribute("seed") if seed is None else seed
    return 0 if seed is None else int(struct.unpack("<i", struct.pack("<f", seed))[0])


def drawn(op: Operation, kind: str, shape: Tensor, dtype: str) -> Tensor:
    """Draws numbers of the distribution that the node's attributes describe, as `dtype`."""
    if dtype not in FLOATS:
        raise op.unsupported(f"random numbers of type {dtype} are not supported", "use a float type")
    names = ("low", "high") if kind == "uniform" else ("mean", "scale")
    first, second = (float(op.attribute(name)) for name in names)
    factor = second - first if kind == "uniform" else second
    x = op.importer.randomness.draw(kind, shape, seed_of(op))
    if (factor, first) == (1.0, 0.0):
        return op.cast(x, dtype)
    return op.map([x], lambda x: x.cast(REGISTER[dtype]) * factor + first, dtype)


@rule("RandomUniform", "RandomNormal")
def random(op: Operation) -> Tensor:
    kind = "uniform" if op.node.op_type == "RandomUniform" else "normal"
    shape = op.constant(np.array(op.attribute("shape"), np.int64))
    return drawn(op, kind, shape, dtype_name(op.attribute("dtype"), "the result"))


@rule("RandomUniformLike", "RandomNormalLike")
def random_like(op: Operation) -> Tensor:
    x = op.input(0)
    kind = "uniform" if op.node.op_type == "RandomUniformLike" else "normal"
    dtype = dtype_name(op.attribute("dtype"), "the result") if op.has("dtype") else x.dtype
    return drawn(op, kind, op.shape_of(x), dtype)


@rule("Bernoulli")
def bernoulli(op: Operation) -> Tensor:
    """1 with the probability given by the input."""
    x = op.input(0)
    dtype = dtype_name(op.attribute("dtype"), "the result") if op.has("dtype") else x.dtype
    u = op.importer.randomness.draw("uniform", op.shape_of(x), seed_of(op))
    return op.map([x, u], lambda x, u: (u.cast(x.kind).binary("lt", x)).cast(REGISTER[dtype]), dtype)


@rule("Multinomial")
def multinomial(op: Operation) -> Tensor:
    """Inverts the cumulative distribution function: counts how many of its values are at or below a uniform random
    number. x: log-probabilities."""
    x = op.input(0)
    samples = int(op.attribute("sample_size"))
    dtype = dtype_name(op.attribute("dtype"), "the result")
    axis = op.constant(np.array([1], np.int64))
    steps = op.emit("cumsum", [op.emit("softmax", [op.cast(x, "f32")], axis=-1), axis])  # [batch, classes]
    total = op.slice(steps, 1, -1, 1 << 62)
    shape = op.concat([op.shape_of(x, 0, 1), op.constant(np.array([samples], np.int64))], 0)
    u = op.importer.randomness.draw("uniform", shape, seed_of(op))
    below = op.map(
        [op.unsqueeze(steps, [1]), op.unsqueeze(u, [2]), op.unsqueeze(total, [2])],
        lambda step, u, total: step.binary("le", u * total).cast("i32"),
        "i32",
    )
    index = op.reduce(below, "sum", [2], keep_dims=False)
    last = op.map([op.shape_of(x, 1, 2)], lambda n: n.cast("i32") - 1, "i32")
    return op.map([index, last], lambda i, n: i.binary("min", n).cast(REGISTER[dtype]), dtype)


@rule("Dropout", since=12)
def dropout(op: Operation) -> list[Tensor]:
    """Inputs: data, ratio, training_mode. While training, an element is kept with probability 1 - ratio, and is then
    divided by 1 - ratio."""
    x, mode = op.input(0), op.optional(2)
    op.ignore("seed")
    if mode is None or (mode.data is not None and not mode.data.reshape(-1)[0]):
        return [x, op.expand(op.constant(np.ones((), np.bool_)), op.shape_of(x))] if op.wants(1) else [x]
    ratio = op.optional(1)
    if ratio is None:
        ratio = op.constant(np.float32(0.5))
    u = op.importer.randomness.draw("uniform", op.shape_of(x), seed_of(op))
    mask = op.map(
        [u, op.cast(op.reshape(ratio, []), "f32"), op.reshape(mode, [])],
        lambda u, ratio, on: u.binary("ge", ratio).binary("or", on.binary("eq", 0)),
        "bool",
    )

    def body(x: Expr, kept: Expr, ratio: Expr, on: Expr) -> Expr:
        scaled = x / (1 - ratio.cast(x.kind))
        return on.binary("ne", 0).select(kept.binary("ne", 0).select(scaled, 0), x)

    y = op.map([x, mask, op.reshape(ratio, []), op.reshape(mode, [])], body)
    return [y, mask] if op.wants(1) else [y]
