"""A script for `linnet launch` that trains LeNet-5 on devices: `device_job.py FOLDER MODE [DEVICE]`. MODE is servers, ring or
hand (a RingTrainer without fit). Each process writes its variables, and the devices that it used, to FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import linnet
from linnet.facade import Graph
from linnet.sync import Cluster, Strategy
from tests.small_nets import lenet

SHAPE, BATCH, STEPS, WORKERS = (1, 28, 28), 4, 5, 2


def build() -> Graph:
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", ("batch", *SHAPE)), graph.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(lenet(x), t).mean()
    linnet.sync.signatures(graph, loss, linnet.Momentum(0.01, 0.9), {"x": x, "t": t}, accumulate=True)
    return graph


def examples() -> dict[str, np.ndarray]:
    rng, count = np.random.default_rng(0), BATCH * STEPS * WORKERS
    return {"x": rng.standard_normal((count, *SHAPE), np.float32), "t": rng.integers(0, 10, count).astype(np.int32)}


class Devices(linnet.Callback):
    """Remembers which devices run the steps of the run's session."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.updates: set[str] = set()  # those that apply the mean of a ring

    def on_step(self, run: Any, metrics: Any) -> None:
        trainer = getattr(run, "_trainer", None)
        self.found = {step.device for step in (trainer._grad if trainer else run.session).steps}
        if trainer:
            self.updates = {step.device for step in trainer._update.steps}


def by_hand(cluster: Cluster, device: str | None) -> tuple[linnet.Store, set[str]]:
    """The batches of fit in the same order, which is that of the data."""
    data = examples()
    with linnet.sync.Ring(cluster.servers[0], cluster.rank, cluster.world_size) as ring:
        trainer = linnet.sync.RingTrainer(build(), ring, device=device or cluster.local_device or None)
        for k in range(STEPS):
            first = (k * WORKERS + cluster.rank) * BATCH
            trainer.step({name: rows[first : first + BATCH] for name, rows in data.items()}, weight=BATCH)
        return trainer.store, {step.device for step in trainer._grad.steps}


def main(folder: Path, mode: str, device: str | None = None) -> None:
    cluster, watch = linnet.sync.cluster(), Devices()
    if mode == "hand":
        store, found = by_hand(cluster, device)
    else:
        history = linnet.fit(
            build(), examples(), batch_size=BATCH, epochs=1, shuffle=False, cluster=cluster, device=device,
            strategy=Strategy("ring") if mode == "ring" else None, callbacks=[watch], progress=False,
        )  # fmt: skip
        store, found = history.store, watch.found
    if cluster.role == "server":
        return
    np.savez(
        folder / f"worker-{cluster.rank}.npz", **{name: store[name] for name in store if "accumulated" not in name}
    )
    (folder / f"worker-{cluster.rank}.json").write_text(json.dumps(sorted(found)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
