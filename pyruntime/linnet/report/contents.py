"""The content of a Report as plain data. linnet.report.report fills it, and pages and tables are made from it."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from linnet.clib.errors import Problem
from linnet.converters.outline import Outline
from linnet.facade import Graph
from linnet.report.concerns import Concern

if TYPE_CHECKING:
    from linnet.session.step import Step


@dataclasses.dataclass(frozen=True)
class OpenDim:
    """A dimension that the model leaves open. name: "" if it has none. where: the inputs and outputs that have it, as
    "input[axis]".
    assumed: the size used for the estimates, or None if there are no estimates."""

    name: str
    where: tuple[str, ...]
    assumed: int | None


@dataclasses.dataclass(frozen=True)
class DataDependent:
    """A node whose result shape or control flow depends on data. A segment of the plan ends at this node, and the next
    segment is planned at run time."""

    node: str
    op: str
    text: str


@dataclasses.dataclass(frozen=True)
class Dynamic:
    """dims: open dimensions. data_dependent: nodes that divide the plan into segments. loops: loops without a known
    limit."""

    dims: tuple[OpenDim, ...] = ()
    data_dependent: tuple[DataDependent, ...] = ()
    loops: tuple[DataDependent, ...] = ()


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of one plan. regions: as in linnet_plan_info. total: all bytes that are needed at run time. lower_bound:
    the most that activations need at one time in any memory layout. weights: constants of the file. complete: False if
    unsupported nodes are left out, or if a part is planned only at run time; `note` says which. All values are None if
    there is no plan."""

    inputs: dict[str, list[int]]
    regions: dict[str, int]
    total: int | None
    lower_bound: int | None
    weights: int
    complete: bool
    note: str


@dataclasses.dataclass(frozen=True)
class OpCount:
    """The steps of one runtime op. flops: number of operations; a multiply and an add count as two. macs: half of the
    flops of matmul, conv and recurrent ops, 0 for others. bytes: how many bytes the steps read and write."""

    op: str
    steps: int
    flops: int
    macs: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Place:
    """The steps that one kernel of one device runs. reference: whether it is a scalar kernel, because no faster one
    supports these operands."""

    device: str
    kernel: str
    op: str
    steps: int
    reference: bool


@dataclasses.dataclass(frozen=True)
class Timings:
    """Milliseconds of runs on random input, measured on this machine. If the model does not run on random input, the
    values are None and `note` says why. The times of steps are in `Contents.steps`."""

    median_ms: float | None
    min_ms: float | None
    runs: int
    threads: int
    isa: str
    note: str


@dataclasses.dataclass
class Contents:
    """The result of `linnet.check`. `str()` is the summary line."""

    model: str
    dtype: str
    nodes: int
    problems: list[Problem]
    concerns: list[Concern]
    dynamic: Dynamic
    memory: Memory
    operations: list[OpCount]
    placement: list[Place]
    outline: Outline
    timings: Timings | None = None
    steps: list[Step] = dataclasses.field(default_factory=list, repr=False)
    graph: Graph | None = dataclasses.field(default=None, repr=False)

    @property
    def converts(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        parts = ["converts: " + ("yes" if self.converts else "no")]
        counts = (len(self.problems), "problem"), (len(self.concerns), "concern"), (self.dynamic_parts, "dynamic part")
        parts += [f"{n} {word}{'s' if n != 1 else ''}" for n, word in counts if n]
        return ", ".join(parts)

    @property
    def dynamic_parts(self) -> int:
        return sum(map(len, (self.dynamic.dims, self.dynamic.data_dependent, self.dynamic.loops)))

    def as_dict(self) -> dict[str, Any]:
        """Plain data with the keys listed in docs/converting.md. Keys are only added, never removed."""
        places = [dataclasses.asdict(p) for p in self.placement]
        return {
            "model": self.model, "format": self.outline.format, "facts": self.outline.facts, "dtype": self.dtype,
            "converts": self.converts, "summary": str(self), "nodes": self.nodes,
            "problems": [dataclasses.asdict(p) for p in self.problems],
            "concerns": [dataclasses.asdict(c) for c in self.concerns],
            "dynamic": dataclasses.asdict(self.dynamic),
            "memory": dataclasses.asdict(self.memory),
            "operations": {
                "flops": sum(o.flops for o in self.operations), "macs": sum(o.macs for o in self.operations),
                "by_op": [dataclasses.asdict(o) for o in self.operations],
            },
            "timings": None if self.timings is None else self._timed(self.timings),
            "placement": {
                "steps": sum(p.steps for p in self.placement),
                "reference": sum(p.steps for p in self.placement if p.reference),
                "devices": dict(_sums((p.device, p.steps) for p in self.placement)),
                "kernels": places,
            },
        }  # fmt: skip

    def _timed(self, timings: Timings) -> dict[str, Any]:
        steps = [{"name": s.name, "op": s.op, "kernel": s.kernel, "ms": s.ms} for s in self.steps if s.runs]
        return dataclasses.asdict(timings) | {"steps": steps}

    def to_json(self) -> str:
        """`as_dict` as one JSON object."""
        return json.dumps(self.as_dict())


def is_reference(kernel: str) -> bool:
    """Whether a kernel is a scalar reference kernel, judged by its name."""
    return "reference" in kernel


def _sums(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for key, n in pairs:
        total[key] += n
    return total
