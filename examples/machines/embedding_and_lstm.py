"""`python -m examples.machines.embedding_and_lstm`: the table of word vectors is on one host and the LSTM on another, and both
are trained. Only the rows of a batch and their gradients travel, never the table."""

from __future__ import annotations

import argparse
import collections
import re
import time
from pathlib import Path

import numpy as np

import linnet
from linnet import nn, ops

from . import hosts

BATCH, TIME, SIZE, UNITS = 16, 12, 64, 128
TEXTS = ("docs/*.md", "*.md")  # of this repository


def words_of(text: Path | None) -> list[str]:
    """The words of a file, or of linnet's own pages."""
    root = Path(__file__).parents[2]
    paths = [text] if text else sorted(path for pattern in TEXTS for path in root.glob(pattern))
    return re.findall(r"[a-z]+", " ".join(path.read_text(encoding="utf-8") for path in paths).lower())


def build(rows: int, classes: int, seed: int) -> linnet.Graph:
    """The signature `train` {word, next i32 [16, 12]} -> loss. rows: of the table of vectors. classes: the most frequent
    words and one for the rest, of which the LSTM predicts the next."""
    graph = linnet.Graph(seed=seed)
    word, following = (graph.placeholder(name, (BATCH, TIME), "i32") for name in ("word", "next"))
    with graph.device("/job:worker/task:0"):
        vectors = nn.embedding(word, rows, SIZE)
    with graph.device("/job:worker/task:1"):
        y, _, _ = nn.lstm(vectors, UNITS)
        scores = nn.dense(ops.reshape(y, (BATCH * TIME, UNITS)), classes, name="scores")
        loss = linnet.softmax_cross_entropy(scores, ops.reshape(following, (BATCH * TIME,))).mean()
    updates = linnet.Adam(3e-3, lazy=True).minimize(loss)
    graph.signature("train", {"word": word, "next": following}, {"loss": loss}, updates=updates)
    return graph


def main() -> int:
    """Runs `python -m examples.machines.embedding_and_lstm`."""
    parser = argparse.ArgumentParser(prog="python -m examples.machines.embedding_and_lstm", description=__doc__)
    parser.add_argument("--text", type=Path, help="a text file to learn from (default: linnet's own pages)")
    parser.add_argument("--steps", type=int, default=200, help="(%(default)s)")
    parser.add_argument("--classes", type=int, default=1000, help="number of words that are predicted (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and batches (%(default)s)")
    arguments = parser.parse_args()
    words = words_of(arguments.text)
    ids = {word: i for i, (word, _) in enumerate(collections.Counter(words).most_common())}
    text, classes = np.array([ids[word] for word in words], np.int32), min(arguments.classes, len(ids) + 1)
    graph, rng = build(len(ids), classes, arguments.seed), np.random.default_rng(arguments.seed)
    with hosts.several(2) as devices:
        session = linnet.Session(graph, "train", cluster={"worker": devices}, threads=1)
        print(f"{len(words):,} words of text, {len(ids):,} different ones.")
        print(f"Guessing at random would give a loss of {np.log(classes):.2f} nats a word.")
        for task, (device, what) in enumerate(zip(devices, ("the table", "the LSTM"), strict=True)):
            memory = next(each for each in session.device_memory if each.device == device)
            print(f"Task {task} is {device}, with {what}: {memory.total:,} bytes of memory.")
        losses, start = [], time.perf_counter()
        for step in range(1, arguments.steps + 1):
            rows = text[rng.integers(0, len(text) - TIME, BATCH)[:, None] + np.arange(TIME + 1)]
            feeds = {"word": rows[:, :-1], "next": np.minimum(rows[:, 1:], classes - 1)}
            losses.append(float(session.run(feeds)["loss"]))
            if step % 50 == 0 or step == arguments.steps:
                print(f"step {step}: loss {np.mean(losses[-50:]):.2f} nats a word", flush=True)
        taken = time.perf_counter() - start
        table = len(ids) * SIZE * 4
        print(
            f"{1e3 * taken / arguments.steps:.1f} ms a step. In each, {hosts.between(session):,} bytes travel between the two."
        )
        print(f"The table has {table:,} bytes, and Adam's state twice as many; they stay where they are.")
    return 0


if __name__ == "__main__":
    raise SystemExit(hosts.run(main))
