"""What a graph costs: the time of a run by the planner's model of time (docs/tuning.md), the bytes of its file, and how its
products divide among the dtypes. The model can have the rates of another processor than this machine's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from linnet.clib.errors import UsageError
from linnet.quantization.computed import computed, shares

if TYPE_CHECKING:
    from linnet.facade import Graph
    from linnet.quantization.calibrate import Feeds

# Rates of processors with vectors of 128 bits, as in runtime_c/kernel/machine.c: products of f32, i8 and i16, operations of
# maps and single moves per ns; then bytes per ns in a core's cache, the shared cache and memory; then ns of a step and of a
# fork, and what a further thread adds.
PROCESSORS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "cortex-a53": ((3.5, 5, 3.5, 1.2, 0.3), (6, 5, 2.5, 250, 4000, 0.9)),
    "cortex-a72": ((6, 10, 6, 2.5, 0.6), (12, 8, 3.5, 150, 3000, 0.9)),
    "cortex-a76": ((26, 100, 48, 7, 1), (30, 20, 10, 80, 2000, 0.9)),
}
_RATES = ("f32", "i8", "i16", "map", "move")
_OTHERS = ("cache", "shared", "memory", "step", "fork", "thread")
_NARROW = "sse2"  # on x86: its kernels have vectors as wide as NEON's


class Cost(NamedTuple):
    """ms: modelled time of a run. bytes: of the file. layers: {step: ms}. products: {dtype: share of the
    multiply-accumulates}; empty if the plan shows no products, for example because all are in loops."""

    ms: float
    bytes: int
    layers: Mapping[str, float]
    products: Mapping[str, float]

    def share(self, dtype: str) -> float:
        """The share of products in a dtype; 1 if nothing is known. Recurrent layers with weights of 8 bits count as i8: their
        products are of integers."""
        return narrow(self.products, dtype) if self.products else 1.0


def narrow(products: Mapping[str, float], dtype: str = "i8") -> float:
    """The share of products in a dtype; see `Cost.share`."""
    names = {"i8": ("i8", "w8"), "i16": ("w16a16", "w8a16")}.get(dtype, (dtype,))
    return sum(products.get(name, 0.0) for name in names)


class Costs:
    """Plans graphs for the shapes of one sample. machine: a processor of `PROCESSORS`, or a tuning file with rates that
    `linnet tune --machine` measured there; None for this machine. Raises UsageError for an unknown name."""

    def __init__(self, sample: Feeds, machine: str | Path | None = None, threads: int | None = None) -> None:
        self.shapes = {name: np.shape(value) for name, value in sample.items()}
        self.options: dict[str, Any] = {"threads": threads or 1}
        if machine is not None and str(machine) in PROCESSORS:
            self.options |= _rates_of(str(machine))
        elif machine is not None:
            if not Path(machine).is_file():
                raise UsageError(
                    "the machine to quantize for is unknown", code=101, got=str(machine),
                    expected=f"{', '.join(PROCESSORS)}, or a tuning file",
                    hint="measure that machine's rates there: linnet tune --machine -o FILE",
                )  # fmt: skip
            self.options["tuning"] = Path(machine)

    def of(self, graph: Graph) -> Cost:
        """The cost of the signature `infer`."""
        from linnet.session.planner import Planner

        planner = Planner(graph, **self.options)
        planner.plan({spec.name: self.shapes[spec.name] for spec in planner.inputs if spec.name in self.shapes})
        layers: dict[str, float] = {}
        steps = planner.steps
        for step in steps:
            layers[step.name] = layers.get(step.name, 0.0) + step.modelled_ms
        return Cost(sum(layers.values()), len(planner.model.content), layers, shares(computed(graph, steps)))


def _rates_of(processor: str) -> dict[str, Any]:
    from linnet.session.model import isa_names

    rates, others = PROCESSORS[processor]
    rows = [name for name in isa_names() if name != "scalar"]
    lines = [f"machine {row} {rate} = {value}" for row in rows for rate, value in zip(_RATES, rates, strict=True)] + [
        f"machine {name} = {value}" for name, value in zip(_OTHERS, others, strict=True)
    ]
    made: dict[str, Any] = {"tuning": "\n".join(["linnet-tuning 1", *lines, ""]).encode()}
    return made | ({"isa_max": _NARROW} if _NARROW in rows else {})
