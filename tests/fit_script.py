"""A small network that uses everything that makes runs differ (shuffling, augmentation, dropout, moving averages, Adam), run in a
process that may kill itself: `python -m tests.fit_script DIRECTORY STEPS [SIGNAL STEP]`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

import linnet
from linnet import data, nn

STEPS_PER_EPOCH = 7  # 52 examples in batches of 8, the last batch of 4


def build(rate: float = 0.02) -> linnet.Graph:
    """Inputs x [batch, 2, 5, 5] and t i32 [batch]; signatures train, eval, infer."""
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", ("batch", 2, 5, 5)), graph.placeholder("t", ("batch",), "i32")

    def network(training: bool) -> linnet.Tensor:
        y = nn.batch_norm(nn.conv(x, 4, 3), training)
        y = nn.dropout(nn.relu(y), 0.3, training)
        return nn.dense(nn.flatten(y), 3)

    with graph.scope("net"):
        loss = linnet.softmax_cross_entropy(network(True), t).mean()
    with graph.scope("net", reuse=True):
        logits = network(False)
    best = linnet.ops.reduce(logits, kind="argmax", axis=[1], keep_dims=False)
    hits = best.equal(t.cast("i64"))
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.Adam(rate).minimize(loss))
    outputs = {
        "loss": linnet.softmax_cross_entropy(logits, t).mean(), "accuracy": hits.cast("f32").mean(),
        "hits": hits.cast("i64").sum(),
    }  # fmt: skip
    graph.signature("eval", {"x": x, "t": t}, outputs)
    graph.signature("infer", {"x": x}, {"logits": logits})
    return graph


def examples(count: int = 52) -> dict[str, np.ndarray[Any, Any]]:
    """Images whose label is their brightest channel and half."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, 2, 5, 5)).astype(np.float32)
    t = rng.integers(0, 3, count)
    x[t == 1, 0] += 1
    x[t == 2, 1] += 1
    return {"x": x, "t": t}


class Killed(linnet.Callback):
    """Sends this process a signal after a given step."""

    def __init__(self, number: int, step: int) -> None:
        self.number, self.step = number, step

    def on_step(self, run: linnet.training.Run, metrics: Mapping[str, float]) -> None:
        if run.step == self.step:
            os.kill(os.getpid(), self.number)


def run(
    directory: str, steps: int, *callbacks: linnet.Callback, every: int = 5, resume: bool = True, **arguments: Any
) -> linnet.History:
    return linnet.fit(
        build, examples(), steps=steps, batch_size=8, augment=[data.flip("x"), data.shift("x", 1)],
        validation=examples(20), seed=3, directory=directory, resume=resume, log_every=1,
        saver=linnet.Saver(every=every, keep=2, best=("val_loss", "min")),
        callbacks=[linnet.EarlyStopping("val_loss", patience=50), *callbacks], **arguments,
    )  # fmt: skip


if __name__ == "__main__":
    killers = [Killed(signal.Signals[sys.argv[3]], int(sys.argv[4]))] if len(sys.argv) > 3 else []
    run(sys.argv[1], int(sys.argv[2]), *killers)
