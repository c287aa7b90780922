"""Code that the two character-level language models share: the text as numbers, training, and a sample of text."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import linnet
from examples import datasets
from linnet._fetch import FetchError

from . import plot


@dataclass(frozen=True)
class Text:
    """ids i32 [N] of the characters; the last tenth is held out."""

    ids: np.ndarray
    characters: str

    @staticmethod
    def of(text: str) -> Text:
        """Makes a number of each different character."""
        characters, ids = np.unique(np.array(list(text)), return_inverse=True)
        return Text(ids.astype(np.int32), "".join(characters))

    def windows(
        self, count: int, length: int, rng: np.random.Generator, held_out: bool = False
    ) -> dict[str, np.ndarray]:
        """Draws `count` random passages: ids i32 [count, length], and `next`, the characters that follow them."""
        border = len(self.ids) * 9 // 10
        low, high = (border, len(self.ids)) if held_out else (0, border)
        starts = rng.integers(low, high - length - 1, count)
        rows = self.ids[starts[:, None] + np.arange(length + 1)]
        return {"ids": rows[:, :-1], "next": rows[:, 1:]}

    def decode(self, ids: np.ndarray) -> str:
        """Converts ids back to characters."""
        return "".join(self.characters[i] for i in ids)


def pick(logits: np.ndarray, temperature: float, rng: np.random.Generator) -> int:
    """Draws one character by softmax(logits / temperature)."""
    weights = np.exp((logits - logits.max()) / temperature)
    return int(rng.choice(len(weights), p=weights / weights.sum()))


def parser(doc: str | None, name: str, **integers: int) -> argparse.ArgumentParser:
    """Returns a parser with the options of both examples."""
    made = plot.options(doc, name, **integers)
    made.add_argument("--text", type=Path, help="a text file to learn from (default: Moby-Dick, fetched)")
    return made


def learn(
    name: str,
    arguments: argparse.Namespace,
    build: Callable[[int, int], linnet.Graph],
    write: Callable[[linnet.Model, linnet.Store, Text, np.random.Generator], str],
) -> int:
    """Trains, prints a sample and draws the curve. build(characters, seed) makes signatures `train` and `eval` of {ids, next} ->
    loss; write(...) returns a sample of text. Returns the exit status."""
    try:
        text = Text.of(datasets.novel(arguments.text))
    except (FetchError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    model = linnet.Model(build(len(text.characters), arguments.seed).to_bytes())
    store = linnet.Store(model)
    train, measure = (linnet.Session(model, which, store=store) for which in ("train", "eval"))
    rng = np.random.default_rng(arguments.seed)
    losses: list[float] = []
    held_out: list[tuple[int, float]] = []
    start = time.perf_counter()
    for step in range(1, arguments.steps + 1):
        losses.append(float(train.run(text.windows(arguments.batch, arguments.length, rng))["loss"]))
        if step % 100 == 0 or step == arguments.steps:
            passages = text.windows(arguments.batch, arguments.length, np.random.default_rng(1), held_out=True)
            held_out.append((step, float(measure.run(passages)["loss"])))
            print(f"step {step:5d}: loss {np.mean(losses[-100:]):.4f}, held out {held_out[-1][1]:.4f} nats a character")
    taken = time.perf_counter() - start
    per_second = arguments.steps * arguments.batch * arguments.length / taken
    print(f"{taken:.1f} s, {per_second:,.0f} characters a second. It writes:\n\n{write(model, store, text, rng)}\n")
    steps, values = zip(*held_out, strict=True)
    plot.draw(
        arguments.out, f"{name}: {len(text.characters)} characters of {len(text.ids):,}",
        {"nats per character": {"training": plot.smooth(losses), "held out": (steps, values)}},
    )  # fmt: skip
    print(f"Picture: {arguments.out}")
    return 0
