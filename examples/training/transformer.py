"""`python -m examples.training.transformer [--text FILE]`: a small transformer learns to write a novel by characters.
Two causal layers of four heads over passages of 64 characters, with normalization before each part (Xiong et al. 2020)."""

from __future__ import annotations

import functools

import numpy as np

import linnet
from linnet import nn

from . import text

LENGTH = 64


def build(characters: int, seed: int, size: int = 128, heads: int = 4, layers: int = 2) -> linnet.Graph:
    """Signatures: `train` and `eval` {ids, next i32 [batch, 64]} -> loss; `write` {ids [1, 64]} -> logits [64, characters]."""
    graph = linnet.Graph(seed=seed)

    def network(ids: linnet.Tensor) -> linnet.Tensor:
        x = nn.learned_positions(nn.embedding(ids, characters, size, start=small), LENGTH, start=small)
        for _ in range(layers):
            x = nn.transformer_encoder_layer(x, heads, 4 * size, causal=True, norm_first=True, activation="gelu")
        return nn.dense(nn.layer_norm(x), characters, name="logits")

    small = functools.partial(linnet.init.normal, deviation=0.02)
    ids = graph.placeholder("ids", ("batch", LENGTH), "i32")
    following = graph.placeholder("next", ("batch", LENGTH), "i32")
    with graph.scope("net"):
        loss = linnet.softmax_cross_entropy(network(ids), following).mean()
    feeds = {"ids": ids, "next": following}
    optimizer = linnet.AdamW(1e-3, clip=linnet.clip.by_global_norm(1.0))
    graph.signature("train", feeds, {"loss": loss}, updates=optimizer.minimize(loss))
    graph.signature("eval", feeds, {"loss": loss})
    passage = graph.placeholder("ids", (1, LENGTH), "i32")
    with graph.scope("net", reuse=True):
        graph.signature("write", {"ids": passage}, {"logits": network(passage)[0]})
    return graph


def write(model: linnet.Model, store: linnet.Store, known: text.Text, rng: np.random.Generator) -> str:
    """Returns 300 characters; each depends on the 63 before it."""
    session = linnet.Session(model, "write", store=store)
    written = [known.characters.index(" ")]
    for _ in range(300):
        seen = written[-LENGTH:]
        passage = np.int32([seen + [0] * (LENGTH - len(seen))])
        written.append(text.pick(session.run({"ids": passage})["logits"][len(seen) - 1], 0.7, rng))
    return known.decode(np.array(written[1:]))


def main() -> int:
    """Runs `python -m examples.training.transformer`."""
    arguments = text.parser(__doc__, "transformer", steps=1000, batch=32).parse_args()
    arguments.length = LENGTH
    return text.learn("transformer", arguments, build, write)


if __name__ == "__main__":
    raise SystemExit(main())
