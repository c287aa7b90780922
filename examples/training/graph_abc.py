"""`python -m examples.training.graph_abc`: a = (b + c) * (c + 2), a common first graph in introductions to TensorFlow.
The graph is built, run and differentiated; then c is learnt so that a gets the wanted value."""

from __future__ import annotations

import numpy as np

import linnet

from . import plot


def build() -> linnet.Graph:
    """Signatures: `infer` {b} -> a, d, e, and both derivatives of a; `train` {b, wanted} -> loss, which moves c."""
    graph = linnet.Graph()
    b, wanted = graph.placeholder("b", ()), graph.placeholder("wanted", ())
    c = graph.variable("c", np.float32(1))
    d = b + c
    e = c + 2
    a = d * e
    by_b, by_c = linnet.gradients(a, [b, c])
    graph.signature("infer", {"b": b}, {"a": a, "d": d, "e": e, "da/db": by_b, "da/dc": by_c})
    loss = (a - wanted) ** 2
    optimizer = linnet.SGD(0.001)
    graph.signature("train", {"b": b, "wanted": wanted}, {"loss": loss, "a": a}, updates=optimizer.minimize(loss))
    return graph


def main() -> int:
    """Runs `python -m examples.training.graph_abc`."""
    arguments = plot.options(__doc__, "graph_abc", steps=60).parse_args()
    model = linnet.Model(build().to_bytes())
    store = linnet.Store(model)
    infer, train = (linnet.Session(model, name, store=store) for name in ("infer", "train"))
    found = infer.run({"b": np.float32(2)})
    print("b = 2, c = 1: " + ", ".join(f"{name} = {float(value):g}" for name, value in found.items()))
    steps = [train.run({"b": np.float32(2), "wanted": np.float32(42)}) for _ in range(arguments.steps)]
    print(
        f"c learnt for a = 42: {float(store['c']):.4f}, which gives a = {float(infer.run({'b': np.float32(2)})['a']):.4f}"
    )
    plot.draw(
        arguments.out, "a = (b + c) * (c + 2): c is learnt",
        {"a": {"a": [float(s["a"]) for s in steps], "wanted": [42.0] * len(steps)}},
    )  # fmt: skip
    print(f"Picture: {arguments.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
