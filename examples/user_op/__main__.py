"""`python -m examples.user_op`: checks the gradient of a Python user op against finite differences, and trains through it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import linnet
from examples.user_op.sparsemax import SPARSEMAX, build, run


def slope_error() -> float:
    """The largest difference between the gradient and finite differences, in f64."""
    rng = np.random.default_rng(2)
    x, t = rng.standard_normal((4, 5)), run(rng.standard_normal((4, 3)))
    session = linnet.Session(build(5, 3, "f64"), "gradient")
    got, worst = session.run({"x": x, "t": t})["dx"], 0.0
    for i in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-6
        ends = [float(session.run({"x": x + sign * step, "t": t})["loss"]) for sign in (1, -1)]
        worst = max(worst, abs((ends[0] - ends[1]) / 2e-6 - got[i]))
    return worst


def train(steps: int) -> tuple[list[float], Path]:
    """Trains towards the results of a hidden model. Returns the losses, and the path of the file."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((256, 5)).astype(np.float32)
    feeds = {"x": x, "t": run(x @ rng.standard_normal((5, 3)).astype(np.float32))}
    graph = build(5, 3)
    session = linnet.Session(graph, "train")
    losses = [float(session.run(feeds)["loss"]) for _ in range(steps)]
    path = Path(tempfile.mkdtemp()) / "sparsemax.lnt"
    graph.save(path)
    return losses, path


def main() -> None:
    """Prints what the checks and the training found."""
    print(f"largest difference from finite differences: {slope_error():.1e}")
    losses, path = train(200)
    print(f"loss: {losses[0]:.4f} before, {losses[-1]:.6f} after {len(losses)} steps")
    y = linnet.Session(path, user_ops=[SPARSEMAX]).run({"x": np.eye(5, dtype=np.float32)})["y"]
    print(f"from the file: rows that sum to {y.sum(axis=1).min():.3f}, {np.mean(y == 0):.0%} of the results are 0")


if __name__ == "__main__":
    main()
