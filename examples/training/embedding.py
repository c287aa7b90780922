"""`python -m examples.training.embedding`: vectors for words (Mikolov et al. 2013, continuous bag of words) of a novel.
Frequent words have their own rows, rare words share hashed rows. Gradients are sparse: a step costs only what it touches."""

from __future__ import annotations

import collections
import re
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import linnet
from examples import datasets
from linnet import init, ops
from linnet._fetch import FetchError

from . import plot

SIZE, SIDE, SAMPLES = 32, 3, 256


class Vocabulary:
    """Words by falling frequency; words that occur fewer than `least` times are hashed into `buckets` rows after them."""

    def __init__(self, words: Sequence[str], buckets: int, least: int = 5) -> None:
        counts = collections.Counter(words)
        self.frequent = [word for word, count in counts.most_common() if count >= least]
        self.buckets, self.rows = buckets, len(self.frequent) + buckets
        self._ids = {word: i for i, word in enumerate(self.frequent)}

    def __getitem__(self, word: str) -> int:
        return self._ids.get(word, len(self.frequent) + zlib.crc32(word.encode()) % self.buckets)


def build(rows: int, seed: int) -> linnet.Graph:
    """Signatures: `train` {around i32 [N, 6], word i32 [N]} -> loss; `infer` {word} -> its vectors [N, 32].

    Lazy Adam touches only the rows of the batch and of the sampled classes (losses.sampled_softmax).
    """
    graph = linnet.Graph(seed=seed)
    around = graph.placeholder("around", ("batch", 2 * SIDE), "i32")
    word = graph.placeholder("word", ("batch",), "i32")
    vectors = graph.variable("vectors", init.uniform((rows, SIZE), -0.5, 0.5))
    weight = graph.variable("weight", init.zeros((rows, SIZE)))
    bias = graph.variable("bias", init.zeros(rows))
    context = ops.gather(vectors.tensor(), around).mean(1)
    loss = linnet.losses.sampled_softmax(weight, bias, context, word, SAMPLES).mean()
    feeds = {"around": around, "word": word}
    graph.signature("train", feeds, {"loss": loss}, updates=linnet.Adam(5e-3, lazy=True).minimize(loss))
    graph.signature("infer", {"word": word}, {"vectors": ops.gather(vectors.tensor(), word)})
    return graph


def batch(ids: np.ndarray, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draws random positions in the text: the word there, and the three words on either side."""
    at = rng.integers(SIDE, len(ids) - SIDE, count)
    sides = np.r_[-SIDE:0, 1 : SIDE + 1]
    return {"around": ids[at[:, None] + sides], "word": ids[at]}


def neighbours(vectors: np.ndarray, words: Sequence[str], of: str, count: int = 6) -> list[str]:
    """Returns the words whose vectors have the most similar direction."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    near = np.argsort(-(unit @ unit[words.index(of)]))
    return [words[i] for i in near[1 : count + 1]]


def time_of_a_step(rows: int, ids: np.ndarray, count: int) -> float:
    """Returns the median milliseconds of 20 steps of a new model whose tables have this many rows."""
    session = linnet.Session(linnet.Model(build(rows, 0).to_bytes()), "train")
    rng, times = np.random.default_rng(0), []
    for _ in range(25):
        feeds = batch(ids % rows, count, rng)
        start = time.perf_counter()
        session.run(feeds)
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times[5:]))


def main() -> int:
    """Runs `python -m examples.training.embedding`."""
    parser = plot.options(__doc__, "embedding", steps=3000, batch=256, buckets=100_000)
    parser.add_argument("--text", type=Path, help="a text file to learn from (default: Moby-Dick, fetched)")
    arguments = parser.parse_args()
    try:
        words = re.findall(r"[a-z']+", datasets.novel(arguments.text).lower())
    except (FetchError, OSError) as error:
        print(f"embedding: {error}", file=sys.stderr)
        return 1
    known = Vocabulary(words, arguments.buckets)
    ids = np.array([known[word] for word in words], np.int32)
    own, share = len(known.frequent), 100 * float((ids >= len(known.frequent)).mean())
    print(
        f"{len(words):,} words: {own:,} with their own row, {share:.0f} % of the text hashed into {known.buckets:,} rows"
    )

    model = linnet.Model(build(known.rows, arguments.seed).to_bytes())
    store = linnet.Store(model)
    train, infer = (linnet.Session(model, name, store=store) for name in ("train", "infer"))
    rng = np.random.default_rng(arguments.seed)
    start = time.perf_counter()
    losses = [float(train.run(batch(ids, arguments.batch, rng))["loss"]) for _ in range(arguments.steps)]
    taken = time.perf_counter() - start
    each, last = 1e3 * taken / arguments.steps, np.mean(losses[-100:])
    print(f"{arguments.steps} steps in {taken:.1f} s, {each:.2f} ms each; loss {last:.3f}")
    vectors = infer.run({"word": np.arange(len(known.frequent), dtype=np.int32)})["vectors"]
    for word in ("whale", "captain", "ship", "he", "two", "said"):
        if word in known.frequent:
            print(f"{word:>8}: {', '.join(neighbours(vectors, known.frequent, word))}")
    sizes = [10_000, 30_000, 100_000, 300_000]
    times = [time_of_a_step(size, ids, arguments.batch) for size in sizes]
    print(
        "a step by rows of the tables: " + ", ".join(f"{n:,}: {ms:.2f} ms" for n, ms in zip(sizes, times, strict=True))
    )
    _picture(arguments.out, losses, sizes, times)
    print(f"Picture: {arguments.out}")
    return 0


def _picture(path: Path, losses: list[float], sizes: list[int], times: list[float]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(plot.smooth(losses, 50))
    left.set(xlabel="step", ylabel="sampled loss, nats")
    right.semilogx(sizes, times, marker="o")
    right.set(xlabel="rows of the tables", ylabel="ms per step", ylim=(0, 1.3 * max(times)))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path)


if __name__ == "__main__":
    raise SystemExit(main())
