"""`python -m examples.evaluation.step_times`: milliseconds of a training step of AlexNet, OverFeat, OxfordNet and GoogLeNet by
linnet and by PyTorch in one run, as in table 1 of the TensorFlow paper (OSDI 2016) and in Chintala's convnet-benchmarks."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from . import processes, result, steps
from .networks import NETWORKS
from .result import MEASURED, Figure, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Milliseconds of a step in table 1 of the paper, on one Titan X.
TABLE = {
    "AlexNet": {"Caffe": 324, "Neon": 87, "Torch": 81, "TensorFlow": 81},
    "OverFeat": {"Caffe": 823, "Neon": 211, "Torch": 268, "TensorFlow": 279},
    "OxfordNet": {"Caffe": 1068, "Neon": 320, "Torch": 529, "TensorFlow": 540},
    "GoogLeNet": {"Caffe": 1935, "Neon": 270, "Torch": 470, "TensorFlow": 445},
}
ROUNDS = 3
QUICK_SIDE = 64  # height and width of an image with --quick
MISSING = "PyTorch is not installed, so only linnet is measured: pip install 'linnet-runtime[torch]'."


def measured(work: steps.Work, quick: bool) -> dict[str, float]:
    """{engine: the median over rounds of the median step in ms}. Each engine has a process of its own, and they take turns."""
    found: dict[str, list[float]] = {engine: [] for engine in steps.engines()}
    with ExitStack() as stack:
        running = {}
        for engine in found:
            words = map(str, dataclasses.astuple(work))
            command = [sys.executable, "-m", "examples.evaluation.steps", engine, *words]
            running[engine] = processes.Engine([command], stack, {"OMP_NUM_THREADS": str(work.threads)})
            running[engine].measure(1)
        for _ in range(1 if quick else ROUNDS):
            for engine, times in found.items():
                times.append(statistics.median(running[engine].measure(1 if quick else 2)) / 1e3)
    return {engine: statistics.median(times) for engine, times in found.items()}


def evaluate(options: result.Options) -> Result:
    """Measures the networks one after the other."""
    names = ["GoogLeNet"] if options.quick else list(NETWORKS)
    threads, device = options.given.threads or result.cores(), options.given.device
    figures, ratios = list[Figure](), dict[str, float]()
    batches = {}
    for name in names:
        usual = NETWORKS[name][2]
        batch = batches[name] = options.given.batch or (1 if options.quick else usual if device != "cpu" else 16)
        side = QUICK_SIDE if options.quick else NETWORKS[name][1]
        found = measured(steps.Work(name, batch, side, threads, device, options.seed), options.quick)
        print(
            f"{name}, batch {batch}: " + ", ".join(f"{engine} {ms:.0f} ms" for engine, ms in found.items()), flush=True
        )
        peers = [ms for engine, ms in found.items() if engine != "linnet"]
        source = ", ".join(f"{engine} {ms}" for engine, ms in TABLE[name].items()) + f" ms (batch {usual})"
        figures.append(Figure(f"{name}, linnet", found["linnet"], "ms", MEASURED, source))
        if peers:
            figures.append(Figure(f"{name}, PyTorch", min(peers), "ms", MEASURED))
            ratios[name] = found["linnet"] / min(peers)
            figures.append(Figure(f"{name}, linnet / PyTorch", ratios[name], "ratio", MEASURED))
    words = ", ".join(f"{ratio:.2f} for {name}" for name, ratio in ratios.items())
    sizes = ", ".join(f"{batch} for {name}" for name, batch in batches.items())
    return Result(
        "step_times",
        "A training step of four convolutional networks",
        f"Forward, backward and SGD in f32 on {'one device, ' + device if device != 'cpu' else f'{threads} threads'}. The "
        f"batch is {sizes}. Networks have no LRN and no auxiliary classifiers. PyTorch's figure is the faster one of its two "
        "layouts.",
        "Abadi et al., TensorFlow, OSDI 2016, table 1: one Titan X, batches as in convnet-benchmarks",
        tuple(figures),
        f"linnet's step takes PyTorch's time multiplied by {words} (measured; nothing is simulated)."
        if ratios
        else f"{MISSING} A step takes {figures[0].value:.0f} ms or more (measured; nothing is simulated).",
    )


def draw(found: Result, canvas: Canvas) -> None:
    """Bars for each network: linnet and PyTorch here on the left, the paper's table on the right."""
    left, right = canvas.subplots(1, 2)
    values = {figure.name: figure.value for figure in found.figures}
    names = [name for name in NETWORKS if f"{name}, linnet" in values]
    here = {e: [values.get(f"{name}, {e}", 0.0) for name in names] for e in ("linnet", "PyTorch")}
    table = {engine: [float(TABLE[name][engine]) for name in names] for engine in TABLE["AlexNet"]}
    for axes, groups, title in ((left, here, "this machine, measured"), (right, table, "OSDI 2016, one Titan X")):
        shown = {engine: times for engine, times in groups.items() if any(times)}
        width = 0.8 / len(shown)
        for number, (engine, times) in enumerate(shown.items()):
            at = [i + (number - (len(shown) - 1) / 2) * width for i in range(len(names))]
            bars = axes.bar(at, times, width, label=engine)
            axes.bar_label(bars, [result.short(ms) for ms in times], fontsize=7)
        axes.set(title=title, ylabel="step, ms", xticks=range(len(names)), xticklabels=names)
        axes.margins(y=0.3)
        axes.legend(fontsize=8)


def main(words: Sequence[str] | None = None) -> Result:
    """Runs `python -m examples.evaluation.step_times`."""
    made = result.parser("step_times", __doc__)
    made.add_argument(
        "--batch", type=int, help="images of a step (default: 16 on the CPU, that of convnet-benchmarks on a device)"
    )
    made.add_argument("--threads", type=int, help="threads of both engines (default: one per core)")
    made.add_argument("--device", default="cpu", help='the device of both engines, for example "cuda" (%(default)s)')
    return result.command(made, evaluate, draw, words)


if __name__ == "__main__":
    main()
