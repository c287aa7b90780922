"""`python -m examples.training.gan`: two networks against each other (Goodfellow et al. 2014), built only in Python.
The generator learns eight clouds on a ring from noise; both losses, both updates and the noise are in one graph."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import linnet
from linnet import nn, ops

from . import plot

MODES, RADIUS, WIDTH = 8, 2.0, 0.05


def generator(noise: linnet.Tensor) -> linnet.Tensor:
    """Noise [N, 8] -> points [N, 2]."""
    hidden = nn.dense(nn.dense(noise, 64, activation="relu", name="a"), 64, activation="relu", name="b")
    return nn.dense(hidden, 2, name="points")


def discriminator(points: linnet.Tensor) -> linnet.Tensor:
    """Points [N, 2] -> logits [N, 1] that they are real."""
    hidden = nn.dense(nn.dense(points, 64, activation="tanh", name="a"), 64, activation="tanh", name="b")
    return nn.dense(hidden, 1, name="logit")


def build(seed: int) -> linnet.Graph:
    """Signatures: `train_discriminator` {real [N, 2]} -> loss, `train_generator` {} -> loss, `infer` {noise} -> points.

    Each `train_...` updates only the variables of its own network; this makes the two minimizations a game.
    """
    graph = linnet.Graph(seed=seed)
    real = graph.placeholder("real", (256, 2))
    noise = graph.placeholder("noise", ("batch", 8))

    with graph.scope("generator"):
        made = generator(nn.random_normal(graph, (256, 8)))
    with graph.scope("generator", reuse=True):
        shown = generator(noise)
    with graph.scope("discriminator"):
        of_real = discriminator(real)
    with graph.scope("discriminator", reuse=True):
        of_made = discriminator(made)

    finds = (ops.softplus(-of_real) + ops.softplus(of_made)).mean()
    fools = ops.softplus(-of_made).mean()
    variables = graph.trainable_variables
    of = {part: [v for v in variables if v.name.startswith(part)] for part in ("generator", "discriminator")}
    for part, loss, inputs in (("discriminator", finds, {"real": real}), ("generator", fools, {})):
        updates = linnet.Adam(5e-4, betas=(0.5, 0.999)).minimize(loss, of[part])
        graph.signature(f"train_{part}", inputs, {"loss": loss}, updates=updates)
    graph.signature("infer", {"noise": noise}, {"points": shown})
    return graph


def ring(count: int, rng: np.random.Generator) -> np.ndarray:
    """Draws f32 [count, 2] from the eight clouds."""
    angle = 2 * np.pi * rng.integers(0, MODES, count) / MODES
    centre = RADIUS * np.stack((np.cos(angle), np.sin(angle)), 1)
    return (centre + WIDTH * rng.standard_normal((count, 2))).astype(np.float32)


def covered(points: np.ndarray) -> tuple[int, float]:
    """Returns the number of clouds with at least 2 % of the points, and the share of points within four widths of a centre."""
    angle = 2 * np.pi * np.arange(MODES) / MODES
    centres = RADIUS * np.stack((np.cos(angle), np.sin(angle)), 1)
    distance = np.linalg.norm(points[:, None] - centres, axis=2)
    near = distance.min(1) < 4 * WIDTH
    counts = np.bincount(distance.argmin(1)[near], minlength=MODES)
    return int((counts >= 0.02 * len(points)).sum()), float(near.mean())


def main() -> int:
    """Runs `python -m examples.training.gan`."""
    arguments = plot.options(__doc__, "gan", steps=6000).parse_args()
    model = linnet.Model(build(arguments.seed).to_bytes())
    store = linnet.Store(model)
    finder, forger, show = (
        linnet.Session(model, name, store=store) for name in ("train_discriminator", "train_generator", "infer")
    )
    rng = np.random.default_rng(arguments.seed)
    losses: dict[str, list[float]] = {"discriminator": [], "generator": []}
    start = time.perf_counter()
    for _ in range(arguments.steps):
        losses["discriminator"].append(float(finder.run({"real": ring(256, rng)})["loss"]))
        losses["generator"].append(float(forger.run({})["loss"]))
    taken = time.perf_counter() - start
    points = show.run({"noise": rng.standard_normal((2000, 8)).astype(np.float32)})["points"]
    modes, near = covered(points)
    print(
        f"{arguments.steps} steps of both in {taken:.1f} s: {modes} of {MODES} clouds, {100 * near:.0f} % of points in one"
    )
    _picture(arguments.out, points, ring(2000, rng), losses)
    print(f"Picture: {arguments.out}")
    return 0


def _picture(path: Path, points: np.ndarray, real: np.ndarray, losses: dict[str, list[float]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.scatter(*real.T, s=3, alpha=0.3, label="real")
    left.scatter(*points.T, s=3, alpha=0.5, label="made")
    left.set(title="points", aspect="equal")
    left.legend()
    for name, values in losses.items():
        right.plot(plot.smooth(values, 50), label=name)
    right.set(xlabel="step", title="losses")
    right.grid(alpha=0.3)
    right.legend()
    figure.savefig(path)


if __name__ == "__main__":
    raise SystemExit(main())
