"""Where the random numbers of a converted model come from: one seed, a stream per node, and a variable that counts the runs.
Inside a loop the count is mixed with the iteration, so that no two iterations draw the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from linnet.graph import Function, Tensor, emit
from linnet.mapping import pointwise

if TYPE_CHECKING:
    from linnet.converters.onnx.importer import Importer

VARIABLE = "random_counter"  # i64 scalar; set it to repeat, or to continue, a sequence of runs
GOLDEN = 2654435761  # 2^32 / the golden ratio: keeps the counts of nested loops apart (Knuth, TAOCP 3, 6.4)


class Randomness:
    """Counter and streams of one conversion."""

    def __init__(self, importer: Importer) -> None:
        self.importer = importer
        self.counters: dict[Function, Tensor] = {}
        self.streams = 0

    def draw(self, kind: str, shape: Tensor, seed: int) -> Tensor:
        """A `random` node: uniform and normal give f32. shape: 1-D i64."""
        self.streams += 1
        function = self.importer.function
        attributes = {"kind": kind, "seed": seed, "stream": self.streams}
        operands: list[Tensor | None] = [self.counter(function), shape]
        if shape.data is not None and shape.data.size:
            operands.pop()
            attributes["shape"] = [int(d) for d in shape.data]
        return emit("random", operands, attributes, 1, function=function)[0]

    def counter(self, function: Function) -> Tensor:
        """The i64 scalar that tells this run, and this iteration, from all others."""
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
        """At the end of the model: the next run draws other numbers."""
        function = self.importer.function
        if function in self.counters:
            counter = self.counters[function]
            emit(
                "assign", [counter, pointwise([counter], lambda now: now + 1, function=function)], {}, function=function
            )
