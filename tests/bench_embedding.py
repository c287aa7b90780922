"""Compares a training step of an embedding with PyTorch's sparse one, in one process and in alternating steps. The time must not
depend on the number of rows in the table.
`python -m tests.bench_embedding [--rows 10000,100000,1000000] [--width 64] [--batch 256] [--threads 1] [--rounds N]`."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import linnet
from linnet import nn
from linnet.facade import Graph

Step = Callable[[dict[str, Any]], Any]
OPTIMIZERS: dict[str, tuple[Callable[[], linnet.Optimizer], Callable[[Any], Any]]] = {
    "SGD": (lambda: linnet.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "AdaGrad": (lambda: linnet.AdaGrad(0.1), lambda p: torch.optim.Adagrad(p, 0.1)),
    "Adam, lazy": (lambda: linnet.Adam(0.01, lazy=True), lambda p: torch.optim.SparseAdam(p, 0.01)),
}


def linnet_step(name: str, rows: int, width: int, batch: int, threads: int) -> Step:
    graph = Graph()
    ids, t = graph.placeholder("ids", (batch,), "i64"), graph.placeholder("t", (batch,))
    taken = nn.embedding(ids, rows, width, start=linnet.init.zeros)
    loss = ((taken.sum(-1) - t) ** 2).mean()
    graph.signature("train", {"ids": ids, "t": t}, {"loss": loss}, updates=OPTIMIZERS[name][0]().minimize(loss))
    return linnet.Session(graph, "train", threads=threads).run


def torch_step(name: str, rows: int, width: int, batch: int) -> Step:
    embedding = torch.nn.Embedding.from_pretrained(torch.zeros(rows, width), freeze=False, sparse=True)
    optimizer = OPTIMIZERS[name][1](list(embedding.parameters()))

    def step(feeds: dict[str, Any]) -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = ((embedding(torch.from_numpy(feeds["ids"])).sum(-1) - torch.from_numpy(feeds["t"])) ** 2).mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="10000,100000,1000000")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    rng = np.random.default_rng(0)
    for name in OPTIMIZERS:
        for rows in map(int, a.rows.split(",")):
            steps = {
                "linnet": linnet_step(name, rows, a.width, a.batch, a.threads),
                "torch": torch_step(name, rows, a.width, a.batch),
            }
            times: dict[str, list[float]] = {engine: [] for engine in steps}
            for _ in range(a.rounds):
                feeds = {"ids": rng.integers(0, rows, a.batch), "t": np.ones(a.batch, np.float32)}
                for engine, step in steps.items():
                    before = time.perf_counter()
                    step(feeds)
                    times[engine].append(time.perf_counter() - before)
            ms = {engine: 1e3 * statistics.median(found[5:]) for engine, found in times.items()}
            print(
                f"{name:11s} {rows:9,d} rows: linnet {ms['linnet']:7.3f} ms, PyTorch {ms['torch']:7.3f} ms,"
                f" ratio {ms['linnet'] / ms['torch']:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
