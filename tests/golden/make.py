"""Made v1.lnt and v1.npz, a file of format version 1 that every later reader must load and run alike. Do not make them again.
A new format version gets a new file: `python -m tests.golden.make v2` writes both files into this folder."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import linnet
from linnet import ops
from linnet.builder.mapping import pointwise
from linnet.facade import Graph
from linnet.ir.dtypes import Quantization
from linnet.ir.function import Function, Tensor

Arrays = dict[str, np.ndarray]


def _branch(graph: Graph, name: str, factor: float, offset: float) -> Function:
    function = graph.function(name)
    value = function.placeholder("value", "f32", (1, 4))
    function.outputs = [ops.scale(value, factor, offset, name="result")]
    return function


def _weights(generator: np.random.Generator, *shape: int) -> np.ndarray:
    return (generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def graph() -> Graph:
    """A graph with two signatures over one variable: float and integer convolutions, pooling, normalization, an `if`, an
    update."""
    generator = np.random.default_rng(20261120)
    made = Graph()
    made.metadata = {"dtype": "f32", "license": "CC0-1.0", "purpose": "golden file of format version 1"}
    mean = made.variable("running_mean", np.linspace(-1, 1, 4, dtype=np.float32))
    positive, negative = _branch(made, "positive", 2.0, 1.0), _branch(made, "negative", -0.5, 0.0)

    infer = made.function("infer")
    infer.source = "Test:golden"
    x = infer.placeholder("x", "f32", (1, 3, 8, 8))
    weight, bias = (
        infer.constant(_weights(generator, 4, 3, 3, 3), "weight"),
        infer.constant(_weights(generator, 4), "bias"),
    )
    hidden = ops.relu(ops.conv(x, weight, bias, pads=[1] * 4, strides=[2, 2], name="conv"), name="relu")
    steps = ops.quantized(hidden, "i8", Quantization(np.float32([0.02]), np.int32([-128])), name="steps")
    integers = generator.integers(-127, 128, (4, 4, 1, 1)).astype(np.int8)
    scales = Quantization(np.float32([0.01, 0.008, 0.012, 0.009]), np.zeros(4, np.int32), 0)
    weight_i8 = infer.constant(integers, "weight_i8", quantization=scales)
    mixed = ops.conv(steps, weight_i8, output_dtype="f32", name="mixed")
    pooled = ops.pool(mixed, kind="max", kernel=[2, 2], strides=[2, 2], name="pooled")[0]
    flat = ops.mean(pooled, [2, 3], name="flat")
    centred = ops.subtract(flat, infer.read(mean), name="centred")
    projection = ops.matmul(centred, infer.constant(_weights(generator, 4, 4), "projection"), name="projected")
    normal = ops.layer_norm(projection, name="normal")[0]
    total = ops.reduce(centred, kind="sum", keep_dims=False, name="total")
    condition: Tensor = pointwise([total], lambda value: value > 0.0, "bool", name="condition")
    chosen = ops.if_(condition, [normal], then_function=positive, else_function=negative, outputs=1, name="chosen")[0]
    probabilities = ops.softmax(chosen, name="probabilities")
    picked = ops.gather(flat, infer.constant(np.array([3, -3], np.int64), "indices"), axis=1, name="picked")
    infer.outputs = [probabilities, ops.transpose(picked, [1, 0], name="turned"), steps]
    made.signature("infer", infer, ["x"], ["probabilities", "picked", "steps"])

    update = made.function("update")
    value = update.placeholder("value", "f32", (4,))
    before = update.read(mean)
    after = pointwise([before, value], lambda m, v: m * 0.875 + v * 0.125, name="after")
    update.outputs = [ops.assign(before, after, name="new_mean")]
    made.signature("update", update, ["value"], ["mean"])
    return made


def feeds() -> dict[str, Arrays]:
    """Inputs per signature."""
    generator = np.random.default_rng(7)
    return {
        "infer": {"x": generator.standard_normal((1, 3, 8, 8)).astype(np.float32)},
        "update": {"value": np.float32([4, -4, 2, 0.5])},
    }


def results(path: str | Path) -> Arrays:
    """The outputs of each signature, run in the order infer, update, infer. Names are "infer/probabilities", ..."""
    model, given, found = linnet.Model(path), feeds(), {}
    store = linnet.Store(model)
    for run, name in (("infer", "infer"), ("update", "update"), ("infer_after", "infer")):
        session = linnet.Session(model, name, store=store, threads=1)
        for output, value in session.run(given[name]).items():
            found[f"{run}/{output}"] = value
    found["variable/running_mean"] = store["running_mean"]
    return found


def main() -> None:
    path = Path(__file__).with_name(sys.argv[1] + ".lnt")
    if path.exists():
        sys.exit(f"{path.name} exists: a released file is never made again")
    graph().save(path)
    np.savez(path.with_suffix(".npz"), **results(path))


if __name__ == "__main__":
    main()
