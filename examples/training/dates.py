"""`python -m examples.training.dates`: an encoder and a decoder with attention learn to write dates as YYYY-MM-DD, however people
write them. The picture shows which letters the decoder looks at for each digit (Bahdanau et al. 2015)."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import numpy as np

import linnet
from linnet import decoding, nn, ops

from . import plot

END, START = 0, 1
LONGEST, DIGITS = 30, 10  # letters of a date as people write it, and of YYYY-MM-DD
_MONTHS = [datetime.date(2000, month, 1).strftime("%B") for month in range(1, 13)]
_LETTERS = ["", "", *sorted({*"0123456789-/,. ", *"".join(_MONTHS), *"stndrhofDay"})]
_NUMBER = {letter: number for number, letter in enumerate(_LETTERS) if letter}


def written(day: datetime.date, rng: np.random.Generator) -> str:
    """A date as somebody might write it. With numbers only, the day comes first."""
    month = _MONTHS[day.month - 1]
    if rng.random() < 0.4 and len(month) > 3:
        month = month[:3] + "." * int(rng.integers(2))
    ordinal = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th") if day.day not in (11, 12, 13) else "th"
    forms = (
        f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}", f"{day.day}{ordinal} of {month} {day.year}",
        f"{month} {day.day}{ordinal}, {day.year}", f"{day.day}.{day.month}.{day.year}",
        f"{day.day:02}/{day.month:02}/{day.year}", f"{day.day}-{month}-{day.year % 100:02}",
    )  # fmt: skip
    return forms[int(rng.integers(len(forms)))]


def ids(text: str, length: int) -> np.ndarray:
    """i32 [length]: a number for each letter, then END."""
    return np.array([*(_NUMBER[letter] for letter in text), *[END] * (length - len(text))], np.int32)


def sample(count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random dates from 1930 to 2029: `source` i32 [count, 30], and `target` i32 [count, 11], which ends with END."""
    first = datetime.date(1930, 1, 1).toordinal()
    last = datetime.date(2029, 12, 31).toordinal()
    days = [datetime.date.fromordinal(int(n)) for n in rng.integers(first, last + 1, count)]
    source = np.stack([ids(written(day, rng), LONGEST) for day in days])
    return {"source": source, "target": np.stack([ids(day.isoformat(), DIGITS + 1) for day in days])}


def build(seed: int, size: int = 64) -> linnet.Graph:
    """Signatures: `train` {source, target} -> loss; `encode` {source} -> memory; `write` {memory, may, begun i32 [rows, length]}
    -> the logits of the next letter [rows, letters], and the weights of the attention [rows, length, 30]."""
    graph = linnet.Graph(seed=seed)

    def encoder(source: linnet.Tensor) -> linnet.Tensor:
        return nn.gru(nn.embedding(source, len(_LETTERS), 32, name="read"), size, bidirectional=True, name="encoder")[0]

    def decoder(begun: linnet.Tensor, memory: linnet.Tensor, may: linnet.Tensor) -> tuple[linnet.Tensor, linnet.Tensor]:
        state, _ = nn.gru(nn.embedding(begun, len(_LETTERS), 32, name="wrote"), 2 * size, name="decoder")
        seen, weights = nn.additive_attention(state, memory, size, mask=ops.expand_dims(may, 1))
        both = ops.concat([state, seen], -1)
        return nn.dense(nn.dense(both, 2 * size, activation="tanh", name="join"), len(_LETTERS), name="out"), weights

    source = graph.placeholder("source", ("batch", LONGEST), "i32")
    target = graph.placeholder("target", ("batch", DIGITS + 1), "i32")
    with graph.scope("net"):
        begun = ops.concat([target[:, :1] * 0 + START, target[:, :-1]], 1)
        logits, _ = decoder(begun, encoder(source), source > END)
    loss = linnet.softmax_cross_entropy(logits, target).mean()
    graph.signature(
        "train", {"source": source, "target": target}, {"loss": loss}, updates=linnet.Adam(3e-3).minimize(loss)
    )
    with graph.scope("net", reuse=True):
        graph.signature("encode", {"source": source}, {"memory": encoder(source)})
    memory = graph.placeholder("memory", ("rows", LONGEST, 2 * size))
    may = graph.placeholder("may", ("rows", LONGEST), "bool")
    begun = graph.placeholder("begun", ("rows", "length"), "i32")
    with graph.scope("net", reuse=True):
        logits, weights = decoder(begun, memory, may)
    graph.signature(
        "write", {"memory": memory, "may": may, "begun": begun}, {"logits": logits[:, -1], "weights": weights}
    )
    return graph


class Writer:
    """Writes dates with a trained model."""

    def __init__(self, model: linnet.Model, store: linnet.Store) -> None:
        self._encode = linnet.Session(model, "encode", store=store)
        self._write = linnet.Session(model, "write", store=store)
        self.weights = np.zeros((0, LONGEST), np.float32)  # of the attention, in the last step

    def write(self, text: str, beams: int = 1) -> str:
        """The date as the model writes it."""
        source = ids(text, LONGEST)[None]
        memory = self._encode.run({"source": source})["memory"]

        def step(begun: np.ndarray) -> np.ndarray:
            rows = len(begun)
            feeds = {"memory": memory.repeat(rows, 0), "may": (source > END).repeat(rows, 0), "begun": begun}
            outputs = self._write.run(feeds)
            self.weights = outputs["weights"][0]
            return outputs["logits"]

        found = decoding.beam_search(step, START, END, DIGITS + 1, beams=beams)[0]
        return "".join(_LETTERS[i] for i in found.ids)


def share(writer: Writer, count: int, beams: int, rng: np.random.Generator) -> float:
    """The share of dates that are written without a fault."""
    asked = sample(count, rng)
    texts = ["".join(_LETTERS[i] for i in row) for row in asked["source"]]
    right = ["".join(_LETTERS[i] for i in row) for row in asked["target"]]
    return float(np.mean([writer.write(text, beams) == date for text, date in zip(texts, right, strict=True)]))


def main() -> int:
    """Runs `python -m examples.training.dates`."""
    arguments = plot.options(__doc__, "dates", steps=500, batch=64, check=200).parse_args()
    model = linnet.Model(build(arguments.seed).to_bytes())
    store = linnet.Store(model)
    train, rng = linnet.Session(model, "train", store=store), np.random.default_rng(arguments.seed)
    losses, start = list[float](), time.perf_counter()
    for step in range(1, arguments.steps + 1):
        losses.append(float(train.run(sample(arguments.batch, rng))["loss"]))
        if step % 200 == 0 or step == arguments.steps:
            print(f"step {step:5d}: loss {np.mean(losses[-100:]):.4f} nats a letter")
    print(f"{time.perf_counter() - start:.1f} s")
    writer = Writer(model, store)
    for beams, name in ((1, "greedy"), (4, "4 beams")):
        found = share(writer, arguments.check, beams, np.random.default_rng(1))
        print(f"{100 * found:.1f} % of {arguments.check} new dates are right ({name})")
    text = "3rd of March 1987"
    print(f"{text} -> {writer.write(text)}")
    _picture(arguments.out, losses, text, writer)
    print(f"Picture: {arguments.out}")
    return 0


def _picture(path: Path, losses: list[float], text: str, writer: Writer) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogy(plot.smooth(losses))
    left.set(xlabel="step", ylabel="nats a letter", title="training")
    left.grid(alpha=0.3)
    date = writer.write(text)
    right.imshow(writer.weights[: len(date), : len(text)], cmap="Blues", aspect="auto")
    right.set_xticks(range(len(text)), list(text))
    right.set_yticks(range(len(date)), list(date))
    right.set(title="what the decoder looks at", xlabel="read", ylabel="written")
    figure.savefig(path)


if __name__ == "__main__":
    raise SystemExit(main())
