"""Random numbers of a converted model. They depend on a seed, one stream per node, and a variable that counts the runs.
Inside a loop, the count is combined with the iteration, so that every iteration draws different numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from linnet.builder.mapping import pointwise
from linnet.ir.function import Function, Tensor, emit

if TYPE_CHECKING:
    from linnet.converters.onnx.importer import Importer

VARIABLE = "random_counter"  # i64 scalar; set it to repeat or continue a sequence of runs
GOLDEN = 2654435761  # 2^32 / the golden ratio: separates the counts of nested loops (Knuth, TAOCP 3, 6.4)


class Randomness:
    """The counter and streams of one conversion."""

    def __init__(self, importer: Importer) -> None:
        self.importer = importer
        self.counters: dict[Function, Tensor] = {}
        self.streams = 0

    def draw(self, kind: str, shape: Tensor, seed: int) -> Tensor:
        """Emits a `random` node; kinds uniform and normal give f32. shape: 1-D i64."""
        self.streams += 1
        function = self.importer.function
        attributes = {"kind": kind, "seed": seed, "stream": self.streams}
        operands: list[Tensor | None] = [self.counter(function), shape]
        if shape.data is not None and shape.data.size:
            operands.pop()
            attributes["shape"] = [int(d) for d in shape.data]
        return emit("random", operands, attributes, 1, function=function)[0]

    def counter(self, function: Function) -> Tensor:
        """An i64 scalar that is different in every run and iteration."""
        if function not in self.counters:
            body = self.importer.bodies.get(function)
            if body is None:
                made = function.read(self.importer.graph.variable(VARIABLE, np.int64(0)))
            else:
                made = body.capture(self.counter(body.outer))
                if body.iteration is not None:
                    made = pointwise(
                        [made, body.iteration], lambda outer, step: outer * GOLDEN + step + 1, function=function
                    )
            self.counters[function] = made
        return self.counters[function]

    def advance(self) -> None:
        """Called at the end of the model: increments the counter, so that the next run draws other numbers."""
        function = self.importer.function
        if function in self.counters:
            counter = self.counters[function]
            emit(
                "assign", [counter, pointwise([counter], lambda now: now + 1, function=function)], {}, function=function
            )
