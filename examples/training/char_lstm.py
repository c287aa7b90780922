"""`python -m examples.training.char_lstm [--text FILE]`: an LSTM learns to write a novel, character by character.
Training runs over passages of 64 characters; writing runs one character at a time and carries the state."""

from __future__ import annotations

import numpy as np

import linnet
from linnet import nn

from . import text

UNITS = 256


def build(characters: int, seed: int, units: int = UNITS) -> linnet.Graph:
    """Signatures: `train` and `eval` {ids, next i32 [batch, time]} -> loss; `write` {ids [1, 1], h, c [1, 1, units]} ->
    logits, h, c."""
    graph = linnet.Graph(seed=seed)

    def network(ids: linnet.Tensor, *state: linnet.Tensor) -> tuple[linnet.Tensor, ...]:
        x = nn.embedding(ids, characters, 64)
        y, h, c = nn.lstm(x, units, initial=(state[0], state[1]) if state else None)
        return nn.dense(y, characters, name="logits"), h, c

    ids = graph.placeholder("ids", ("batch", "time"), "i32")
    following = graph.placeholder("next", ("batch", "time"), "i32")
    with graph.scope("net"):
        logits, *_ = network(ids)
    loss = linnet.softmax_cross_entropy(logits, following).mean()
    feeds = {"ids": ids, "next": following}
    optimizer = linnet.Adam(3e-3, clip=linnet.clip.by_global_norm(1.0))
    graph.signature("train", feeds, {"loss": loss}, updates=optimizer.minimize(loss))
    graph.signature("eval", feeds, {"loss": loss})

    one = graph.placeholder("ids", (1, 1), "i32")
    h, c = graph.placeholder("h", (1, 1, units)), graph.placeholder("c", (1, 1, units))
    with graph.scope("net", reuse=True):
        logits, new_h, new_c = network(one, h, c)
    graph.signature("write", {"ids": one, "h": h, "c": c}, {"logits": logits[0, 0], "h": new_h, "c": new_c})
    return graph


def write(model: linnet.Model, store: linnet.Store, known: text.Text, rng: np.random.Generator) -> str:
    """Returns 300 characters, starting from the initial state."""
    session = linnet.Session(model, "write", store=store)
    state = {"h": np.zeros((1, 1, UNITS), np.float32), "c": np.zeros((1, 1, UNITS), np.float32)}
    written = [known.characters.index(" ")]
    for _ in range(300):
        found = session.run({"ids": np.int32([[written[-1]]]), **state})
        state = {"h": found["h"], "c": found["c"]}
        written.append(text.pick(found["logits"], 0.7, rng))
    return known.decode(np.array(written[1:]))


def main() -> int:
    """Runs `python -m examples.training.char_lstm`."""
    arguments = text.parser(__doc__, "char_lstm", steps=1000, batch=32, length=64).parse_args()
    return text.learn("char_lstm", arguments, build, write)


if __name__ == "__main__":
    raise SystemExit(main())
