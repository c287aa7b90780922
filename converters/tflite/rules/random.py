"""Rules for RANDOM_UNIFORM, RANDOM_STANDARD_NORMAL and MULTINOMIAL by Philox4x32-10. As in TensorFlow, the first seed is its
key, the second its start. The first run draws TFLite's numbers. Later runs start elsewhere in the same sequence."""

from __future__ import annotations

import math
import zlib

import numpy as np

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor

STEP = -0x61C8864680B583EB  # 2^64 / golden ratio, odd: the starts of 2^64 runs are all different


def bits(op: Operation, count: Tensor) -> Tensor:
    """At least `count` (i64 [1]) numbers of 32 random bits, as i64 [4 * blocks]. Every run gets other numbers.

    LiteRT reads 32 bits of each seed. If both are zero, it chooses any seed. linnet then gives each such operator
    different numbers."""
    seed, start = ((int(op.option(name)) + (1 << 31)) % (1 << 32) - (1 << 31) for name in ("seed", "seed2"))
    importer, scope = op.importer, op.scope
    name = f"random/{scope.number}/{op.output().name}"
    if seed == start == 0:
        start = zlib.crc32(name.encode())
    if scope.state.kind == "first":
        counter = op.constant(np.int64(start))
    else:
        if name not in importer.graph.variables:
            importer.graph.variable(name, np.int64(start))
        counter = importer.read_variable(scope, name)
        importer.assign_variable(scope, name, op.map([counter], lambda v: v + v.lift(STEP)))
    size = op.map([count], lambda n: (n + 3) / 4 * 4)
    drawn = op.emit("random", [counter, size], kind="bits", seed=seed, stream=0)
    return op.cast(drawn, "i64")


def fraction(x: Expr) -> Expr:
    """f32 in [0, 1) from 23 bits (Uint32ToFloat)."""
    return (x & 0x7FFFFF).cast("f32") * 2.0**-23


def shaped(op: Operation, values: Tensor, count: Tensor, shape: Tensor) -> Tensor:
    """The first `count` values in the given shape."""
    return op.copy([op.copy([values, op.constant(np.zeros(1, np.int64)), count], kind="slice"), shape], kind="reshape")


@rule("RANDOM_UNIFORM")
def uniform(op: Operation) -> Tensor:
    shape = op.indices(0)
    count = op.reduce(shape, "prod", [0])
    return shaped(op, op.map([bits(op, count)], fraction, "f32"), count, shape)


@rule("RANDOM_STANDARD_NORMAL")
def normal(op: Operation) -> Tensor:
    """Turns pairs of uniform numbers into pairs of normal numbers (Box and Muller 1958)."""
    shape = op.indices(0)
    count = op.reduce(shape, "prod", [0])
    u, v = op.emit_all("copy", [op.reshape(bits(op, count), [-1, 2])], 2, kind="split", axis=1, shape=[1, 1])

    def radius(x: Expr) -> Expr:
        return (fraction(x).max(1e-7).log() * -2.0).sqrt()

    pair = [
        op.map([u, v], lambda a, b: (fraction(b) * float(np.float32(2 * math.pi))).sin() * radius(a), "f32"),
        op.map([u, v], lambda a, b: (fraction(b) * float(np.float32(2 * math.pi))).cos() * radius(a), "f32"),
    ]
    return shaped(op, op.reshape(op.copy(pair, kind="concat", axis=1), [-1]), count, shape)


@rule("MULTINOMIAL")
def multinomial(op: Operation) -> Tensor:
    """Operands: logarithms of weights [batch, classes], and the number of samples per row. A sample is the number of
    values of the cumulative distribution function that are at or below a uniform random number."""
    x, samples = op.input(0), op.reshape(op.indices(1), [1])
    batch = op.emit("shape", [x], start=0, end=1)
    most = op.reduce(x, "max", [1])
    weights = op.map([x, most], lambda v, m: (v.cast("f64") - m.cast("f64")).exp(), "f64")
    steps = op.emit("cumsum", [weights, op.constant(np.array(1, np.int64))])
    count = op.map([batch, samples], lambda b, s: b * s * 2)
    pair = op.copy([op.constant(np.array([2], np.int64))], kind="identity")
    drawn = shaped(op, bits(op, count), count, op.copy([batch, samples, pair], kind="concat", axis=0))
    high, low = op.emit_all("copy", [drawn], 2, kind="split", axis=2, shape=[1, 1])
    total = op.slice(steps, 1, -1, 1 << 62)
    wanted = op.map(
        [high, low, op.copy([total], kind="unsqueeze", axes=[2])],
        lambda a, b, t: ((a & 0xFFFFF) * (1 << 32) + b).cast("f64") * 2.0**-52 * t, "f64",
    )  # fmt: skip
    reached = op.map([op.copy([steps], kind="unsqueeze", axes=[1]), wanted], lambda s, w: (s <= w).cast("i32"), "i32")
    return op.cast(op.reduce(reached, "sum", [2], keep_dims=False), op.output().dtype)
