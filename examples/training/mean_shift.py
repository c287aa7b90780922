"""`python -m examples.training.mean_shift`: finds clusters only by broadcasting, on the runtime that trains networks.
Every point moves to the mean of all points, weighted by a Gaussian of the distance, until no point moves (Cheng 1995)."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import linnet
from linnet import ops

from . import plot


def build(points: np.ndarray, bandwidth: float) -> linnet.Graph:
    """One signature `train` {} -> moved: every run moves the variable `points` [N, D] once; `moved` is the largest distance."""
    graph = linnet.Graph()
    x = graph.variable("points", points)
    sample = graph.constant(points)
    apart = x[:, None] - sample[None]  # [N, N, D]
    weight = ops.exp((apart * apart).sum(2) * (-0.5 / bandwidth**2))
    shifted = (weight @ sample) / weight.sum(1, keep_dims=True)
    moved = abs(shifted - x).max()
    graph.signature("train", {}, {"moved": moved}, updates={x: shifted})
    return graph


def sample_points(clusters: int, each: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian clouds on a plane, with centres at least 2.4 apart: points f32 [clusters * each, 2], cloud of each i64."""
    centres: list[np.ndarray] = []
    while len(centres) < clusters:
        centre = rng.uniform(-5, 5, 2)
        if all(np.linalg.norm(centre - other) > 2.4 for other in centres):
            centres.append(centre)
    truth = np.repeat(np.arange(clusters), each)
    return (np.stack(centres)[truth] + 0.35 * rng.standard_normal((len(truth), 2))).astype(np.float32), truth


def label(points: np.ndarray, tolerance: float) -> np.ndarray:
    """Puts points nearer than `tolerance` into one cluster; returns the cluster number of each point."""
    centres: list[np.ndarray] = []
    labels = np.empty(len(points), np.int64)
    for i, point in enumerate(points):
        near = [k for k, centre in enumerate(centres) if np.linalg.norm(point - centre) < tolerance]
        if not near:
            centres.append(point)
        labels[i] = near[0] if near else len(centres) - 1
    return labels


def main() -> int:
    """Runs `python -m examples.training.mean_shift`."""
    parser = plot.options(__doc__, "mean_shift", clusters=6, each=100, steps=50)
    parser.add_argument("--device", help="where it runs: opencl, cuda, or another device (the CPU)")
    arguments = parser.parse_args()
    points, truth = sample_points(arguments.clusters, arguments.each, np.random.default_rng(arguments.seed))
    model = linnet.Model(build(points, bandwidth=0.6).to_bytes())
    store = linnet.Store(model)
    session = linnet.Session(
        model, "train", store=store, device=arguments.device
    )  # the only line that names the device
    moved: list[float] = []
    start = time.perf_counter()
    while len(moved) < arguments.steps and (not moved or moved[-1] > 1e-4):
        moved.append(float(session.run({})["moved"]))
    taken = time.perf_counter() - start
    found = label(store["points"], tolerance=0.3)
    pure = sum(np.bincount(truth[found == k]).max() for k in np.unique(found)) / len(truth)
    print(
        f"{len(points)} points: {found.max() + 1} clusters in {len(moved)} steps, {1e3 * taken / len(moved):.2f} ms each"
    )
    if arguments.device:
        print(f"{arguments.device} ran {_share(session)}")
    print(f"{100 * pure:.1f} % of the points are in the cluster of their cloud")
    _picture(arguments.out, points, found, moved)
    print(f"Picture: {arguments.out}")
    return 0


def _share(session: linnet.Session) -> str:
    """Which steps the device has run, in words: small ones may be faster on the CPU, which the costs decide."""
    info = session.plan_info
    memory = [device for device in session.device_memory if device.steps]
    nodes = sum(device.nodes for device in memory)
    return f"{nodes} nodes of the graph, the CPU {info['fallbacks']} steps"


def _picture(path: Path, points: np.ndarray, found: np.ndarray, moved: list[float]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.scatter(*points.T, c=found, s=8, cmap="tab10")
    left.set(title="points by cluster found", aspect="equal")
    right.semilogy(range(1, len(moved) + 1), moved)
    right.set(xlabel="step", ylabel="largest move", title="until nothing moves")
    right.grid(alpha=0.3)
    figure.savefig(path)


if __name__ == "__main__":
    raise SystemExit(main())
