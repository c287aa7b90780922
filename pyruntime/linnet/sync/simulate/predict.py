"""What a model file says of its distributed training, before any run: bytes of gradients and parameters, the measured time
of a step, and so the ratio of computing to transfer and the speed-up that it allows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from linnet.errors import UsageError
from linnet.sync.simulate.compute import Compute
from linnet.sync.simulate.setting import Hardware, Setting, Traffic

_GRADIENT = "gradient/"


@dataclasses.dataclass(frozen=True)
class Step:
    """One worker's step of a model file. signature: what was measured, "grad" or "train". seconds: its median time here.
    traffic: what it moves. variables: bytes of the trained variables, by name."""

    signature: str
    seconds: float
    traffic: Traffic
    variables: dict[str, int]

    def ratio(self, hardware: Hardware, traffic: Traffic | None = None) -> float:
        """Seconds of computing for each second in which this worker's port moves gradients and then parameters (`traffic`:
        where they are compressed): above 1 computing prevails."""
        moved = traffic or self.traffic
        return self.seconds / ((moved.up + moved.down) / hardware.worker_rate)


def step_of(
    model: str | Path,
    *,
    signature: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    seconds: float = 1.0,
) -> Step:
    """Measures a step of the file `model` for about `seconds`, and counts what it would move.

    signature: default `grad` where the file has it (linnet.sync.signatures), else `train`. Of `grad` the outputs
    gradient/... are counted, sparse ones by the rows that a batch looks up, so at most; of `train` all trainable variables.
    shapes: of inputs that the model leaves open; the first dimension of the first input is the number of examples.
    UsageError where the file has neither signature, FileError where it cannot be read.
    """
    from linnet.bench import measure, random_feeds
    from linnet.graph import Graph
    from linnet.session import Session

    graph = Graph.load(Path(model))
    names = list(graph.signatures)
    chosen = signature or next((name for name in ("grad", "train") if name in names), None)
    if chosen is None or chosen not in names:
        raise UsageError(
            "the file has no step of training", code=102, tensor=str(model), expected=signature or "a signature grad or train",
            got=", ".join(names) or "none", hint="write it with linnet.sync.signatures or linnet.training.signatures",
        )  # fmt: skip
    timed = measure(model, signature=chosen, threads=threads, seconds=seconds, input_shapes=shapes)
    session = Session(Path(model), chosen, threads=threads)
    feeds = random_feeds(session.inputs, dict(shapes or {}))
    examples = next((value.shape[0] for value in feeds.values() if value.ndim), 1)
    trained = {v.name: int(v.value.nbytes) for v in graph.trainable_variables}
    outputs = [spec.name for spec in session.outputs if spec.name.startswith(_GRADIENT)]
    if not outputs:
        total = float(sum(trained.values()))
        return Step(chosen, timed["median_ms"] / 1e3, Traffic(total, total, examples=examples), trained)
    found = session.run(feeds, outputs)
    dense = rows = bulk = 0.0
    sizes: dict[str, int] = {}
    for name in outputs:
        variable = name.removeprefix(_GRADIENT)
        if variable.endswith("/ids"):
            continue
        if variable.endswith("/rows") and f"{name.removesuffix('/rows')}/ids" in found:
            variable = variable.removesuffix("/rows")
            rows += len(found[name])
            bulk += found[name].nbytes
        else:
            dense += found[name].nbytes
        sizes[variable] = trained.get(variable, found[name].nbytes)
    table = float(sum(sizes.values()) - dense)
    traffic = Traffic(dense, dense, rows, bulk / rows if rows else 0.0, table, examples)
    return Step(chosen, timed["median_ms"] / 1e3, traffic, sizes)


def spread_over(step: Step, servers: int) -> float:
    """Share of the bytes on the fullest of `servers`: whole variables, largest first, each to the emptiest server, as
    linnet.sync.partition spreads them; tables of sparse gradients may be split by rows and count as even."""
    loads = [0.0] * servers
    for size in sorted(step.variables.values(), reverse=True):
        loads[loads.index(min(loads))] += size
    total = sum(loads)
    return max(loads) / total if total and not step.traffic.rows else 1 / servers


def setting_of(step: Step, hardware: Hardware) -> Setting:
    """The setting that this step makes on this hardware."""
    traffic = dataclasses.replace(step.traffic, largest=spread_over(step, hardware.servers))
    return Setting(Compute(step.seconds), traffic, hardware)
