"""Compares inference during training on one store: alone, with the store's lock, and on a snapshot, in turn and several times.
`python -m tests.bench_snapshot` prints the latencies of single runs and the duration of a training step meanwhile."""

from __future__ import annotations

import threading
import time

import numpy as np

import linnet
from linnet import nn, ops

ROUNDS, SECONDS = 5, 2.0


def model() -> linnet.Model:
    """A 784-1024-1024-10 network trained with Adam: 7.4 MB of parameters, 22 MB of variables."""
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", ("batch", 784)), graph.placeholder("t", ("batch",), "i32")
    h = ops.relu(nn.dense(ops.relu(nn.dense(x, 1024)), 1024))
    logits = nn.dense(h, 10)
    loss = linnet.softmax_cross_entropy(logits, t).mean()
    graph.signature("infer", {"x": x}, {"y": logits})
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.Adam(1e-3).minimize(loss))
    return linnet.Model(graph.to_bytes())


def main() -> None:
    m, rng = model(), np.random.default_rng(1)
    store = linnet.Store(m)
    train = linnet.Session(m, "train", store=store, threads=1)
    locks = linnet.Session(m, store=store, threads=1)
    batch = {"x": rng.normal(size=(1024, 784)).astype(np.float32), "t": rng.integers(0, 10, 1024).astype(np.int32)}
    feeds = {"x": batch["x"][:16]}

    def alone() -> float:
        found = []
        for _ in range(12):
            began = time.perf_counter()
            train.run(batch)
            found.append(time.perf_counter() - began)
        return 1e3 * float(np.min(found))

    alone()
    bare = alone()
    reads = linnet.Session(m, store=store, threads=1, snapshot=True)
    copied = alone()
    print(f"a step alone: least {bare:.1f} ms, {copied:.1f} with its variables copied for snapshots at the end")
    over = threading.Event()
    steps: list[float] = []

    def training() -> None:
        while not over.is_set():
            began = time.perf_counter()
            train.run(batch)
            steps.append(time.perf_counter() - began)

    kinds = {
        "alone": locks,
        "alone, snapshot": reads,
        "beside training, lock": locks,
        "beside training, snapshot": reads,
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(ROUNDS):
        for kind, session in kinds.items():
            over.clear()
            steps.clear()
            thread = threading.Thread(target=training)
            if "training" in kind:
                thread.start()
            end = time.perf_counter() + SECONDS
            while (began := time.perf_counter()) < end:
                session.run(feeds)
                times[kind].append(time.perf_counter() - began)
                time.sleep(0.001)
            over.set()
            if "training" in kind:
                thread.join()
            took[kind] += steps
    for kind, found in times.items():
        median, p99, most = (1e3 * float(np.quantile(found, q)) for q in (0.5, 0.99, 1.0))
        step = f"; a step {1e3 * np.median(took[kind]):.1f} ms" if took[kind] else ""
        print(f"{kind:26} median {median:7.2f} ms, p99 {p99:7.2f}, most {most:7.2f} ({len(found)} runs{step})")
    print(
        f"snapshot {reads.memory['snapshot'] / 1e6:.1f} MB, kept by the store {reads.memory['committed'] / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
