"""Predicts the distributed training of a model file before any run. It counts the bytes of gradients and parameters,
measures the step time, and derives the ratio of computation to transfer and the possible speed-up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from linnet.clib.errors import UsageError
from linnet.ir.user_op import UserOp
from linnet.sync.simulate.compute import Compute
from linnet.sync.simulate.setting import Hardware, Setting, Traffic

_GRADIENT = "gradient/"


@dataclasses.dataclass(frozen=True)
class Step:
    """One worker's step of a model file. signature: the signature that was measured, "grad" or "train". seconds: its
    median time on this machine. traffic: bytes that it transfers. variables: bytes of the trained variables, by
    name."""

    signature: str
    seconds: float
    traffic: Traffic
    variables: dict[str, int]

    def ratio(self, hardware: Hardware, traffic: Traffic | None = None) -> float:
        """Seconds of computation divided by the seconds in which this worker's port transfers gradients and then
        parameters. If it is above 1, computation dominates. traffic: replaces the step's traffic, for example with
        compression."""
        moved = traffic or self.traffic
        return self.seconds / ((moved.up + moved.down) / hardware.worker_rate)


def step_of(
    model: str | Path,
    *,
    signature: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    seconds: float = 1.0,
    user_ops: Iterable[UserOp] = (),
) -> Step:
    """Measures a step of the file `model` for about `seconds`, and counts the bytes that it would transfer.

    signature: default `grad` if the file has it (linnet.sync.signatures), else `train`. For `grad`, the outputs
    gradient/... are counted. Sparse gradients count with all rows that a batch looks up, which is an upper bound. For
    `train`, all trainable variables are counted. shapes: the shapes of inputs that the model leaves open; the first
    dimension of the first input is the number of examples. user_ops: the user ops that the file names. Raises
    UsageError if the file has neither signature. Raises FileError if it cannot be read.
    """
    from linnet.facade import Graph
    from linnet.session.bench import measure
    from linnet.session.options import SessionOptions
    from linnet.session.random_inputs import random_feeds
    from linnet.session.session import Session

    user_ops = list(user_ops)
    graph = Graph.load(Path(model), user_ops=user_ops)
    names = list(graph.signatures)
    chosen = signature or next((name for name in ("grad", "train") if name in names), None)
    if chosen is None or chosen not in names:
        raise UsageError(
            "the file has no signature for a training step",
            code=102,
            tensor=str(model),
            expected=signature or "a signature named grad or train",
            got=", ".join(names) or "none",
            hint="add it with linnet.sync.signatures or linnet.training.signatures",
        )
    options = SessionOptions(threads=threads)
    timed = measure(model, signature=chosen, seconds=seconds, input_shapes=shapes, user_ops=user_ops, options=options)
    session = Session(Path(model), chosen, threads=threads, user_ops=user_ops)
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
    """Fraction of the bytes on the server that has most of them, for this number of servers. Whole variables are
    assigned largest first, each to the server with the fewest bytes, as linnet.sync.shard does. Tables with sparse
    gradients may be split by rows and count as evenly spread."""
    loads = [0.0] * servers
    for size in sorted(step.variables.values(), reverse=True):
        loads[loads.index(min(loads))] += size
    total = sum(loads)
    return max(loads) / total if total and not step.traffic.rows else 1 / servers


def setting_of(step: Step, hardware: Hardware) -> Setting:
    """The setting of this step on this hardware."""
    traffic = dataclasses.replace(step.traffic, largest=spread_over(step, hardware.servers))
    return Setting(Compute(step.seconds), traffic, hardware)
