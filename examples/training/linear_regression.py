"""`python -m examples.training.linear_regression`: f(X | W) = Y + e, where training minimizes |e|^2.
Points are drawn around a known plane; the result is compared with it and with NumPy's least squares."""

from __future__ import annotations

import numpy as np

import linnet

from . import plot


def build(features: int) -> linnet.Graph:
    """Signatures: `train` {x [N, F], y [N, 1]} -> loss; `infer` {x} -> f. Adam."""
    graph = linnet.Graph()
    x, y = graph.placeholder("x", ("batch", features)), graph.placeholder("y", ("batch", 1))
    w = graph.variable("w", linnet.init.zeros((features, 1)))
    b = graph.variable("b", linnet.init.zeros(1))
    f = x @ w + b
    error = f - y
    loss = (error**2).mean()
    graph.signature("infer", {"x": x}, {"f": f})
    graph.signature("train", {"x": x, "y": y}, {"loss": loss}, updates=linnet.Adam(0.1).minimize(loss))
    return graph


def main() -> int:
    """Runs `python -m examples.training.linear_regression`."""
    arguments = plot.options(__doc__, "linear_regression", features=3, points=500, steps=300).parse_args()
    rng = np.random.default_rng(arguments.seed)
    truth = rng.uniform(-3, 3, (arguments.features + 1, 1))
    x = rng.uniform(-1, 1, (arguments.points, arguments.features)).astype(np.float32)
    y = (x @ truth[:-1] + truth[-1] + 0.1 * rng.standard_normal((arguments.points, 1))).astype(np.float32)

    model = linnet.Model(build(arguments.features).to_bytes())
    store = linnet.Store(model)
    train = linnet.Session(model, "train", store=store)
    losses = [float(train.run({"x": x, "y": y})["loss"]) for _ in range(arguments.steps)]
    learnt = np.append(store["w"], store["b"])
    best = np.linalg.lstsq(np.hstack((x, np.ones_like(y))), y, rcond=None)[0].ravel()
    for name, numbers in (("drawn about", truth.ravel()), ("learnt", learnt), ("least squares", best)):
        print(f"{name:14s}" + "".join(f"{number:9.4f}" for number in numbers))
    print(f"error of the last step: {losses[-1]:.5f} (noise of 0.1 has 0.01)")
    plot.draw(arguments.out, "Linear regression", {"mean squared error": {"loss": losses}})
    print(f"Picture: {arguments.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
