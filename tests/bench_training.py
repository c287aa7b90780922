"""Compares a training step (SGD) with PyTorch's: a fresh process per engine and round, rounds interleaved.
`python -m tests.bench_training [--models lenet5,mlp] [--threads 1,2] [--rounds N] [--seconds S] [--json F]`;
`--profile lenet5` prints linnet's steps, slowest first."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ("torch", "torch_cl", "linnet")
USUAL = ("lenet5", "mlp", "mobilenet_v2", "alexnet", "lstm_lm", "transformer")


def resident() -> float:
    """Peak memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def saved(name: str, folder: Path) -> Path:
    """Makes the model's .lnt file in a separate process, so that PyTorch is not in linnet's memory."""
    path = folder / f"{name}.lnt"
    if not path.exists():
        code = f"from tests.train_models import *; graph_of({name!r}, twin({name!r})).save({str(path)!r})"
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    return path


def linnet_step(path: str, threads: int, trace: bool = False) -> tuple[Any, Callable[[], Any]]:
    import numpy as np

    import linnet

    session = linnet.Session(path, "train", threads=threads, trace=trace)
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for spec in session.inputs:
        integers = spec.dtype.startswith("i")
        feeds[spec.name] = rng.integers(0, 10, spec.shape) if integers else rng.standard_normal(spec.shape, np.float32)
    return session, lambda: session.run(feeds)


def torch_step(name: str, threads: int, channels_last: bool) -> Callable[[], Any]:
    import torch

    from tests.train_models import batch, twin

    torch.set_num_threads(threads)
    model, (x, t) = twin(name), batch(name)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), t)
        loss.backward()
        optimizer.step()
        return float(loss)

    return step


def worker(engine: str, name: str, path: str, threads: int, seconds: float) -> None:
    """Prints one JSON line."""
    found: dict[str, Any] = {}
    if engine == "linnet":
        session, step = linnet_step(path, threads)
        found["plan_bytes"] = session.memory["total"]
    else:
        step = torch_step(name, threads, engine == "torch_cl")
    step()
    start, times = time.perf_counter(), []
    while len(times) < 3 or time.perf_counter() < start + 1.25 * seconds:
        before = time.perf_counter()
        step()
        if before > start + 0.25 * seconds or len(times) < 3:
            times.append(time.perf_counter() - before)
    found |= {"ms": 1e3 * statistics.median(times), "min_ms": 1e3 * min(times), "rss_mb": resident()}
    print(json.dumps(found))


def measure(names: list[str], threads: list[int], rounds: int, seconds: float) -> list[dict[str, Any]]:
    folder = Path(os.environ.get("LINNET_BENCH_HOME", "build/training"))
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in names:
        path = saved(name, folder)
        for count in threads:
            found: dict[str, list[dict[str, Any]]] = defaultdict(list)
            for _ in range(rounds):
                for engine in ENGINES:
                    if engine == "torch_cl" and name in ("mlp", "lstm_lm", "transformer"):
                        continue
                    command = [
                        sys.executable,
                        "-m",
                        "tests.bench_training",
                        "--worker",
                        engine,
                        name,
                        str(path.resolve()),
                    ]
                    done = subprocess.run(
                        [*command, str(count), str(seconds)], cwd=ROOT, capture_output=True, text=True, check=False,
                        env={**os.environ, "OMP_NUM_THREADS": str(count)},
                    )  # fmt: skip
                    if done.returncode:
                        raise SystemExit(f"{engine} on {name}: {done.stderr.strip().splitlines()[-1]}")
                    found[engine].append(json.loads(done.stdout.splitlines()[-1]))
            row: dict[str, Any] = {"model": name, "threads": count}
            for engine, results in found.items():
                row[engine] = {key: statistics.median(r[key] for r in results) for key in results[0]}
            peer = min((row[e]["ms"] for e in row if e.startswith("torch")), default=0.0)
            row["ratio"] = row["linnet"]["ms"] / peer
            rows.append(row)
            print(
                f"{name:14s} {count} threads: linnet {row['linnet']['ms']:8.2f} ms, PyTorch {peer:8.2f} ms, ratio"
                f" {row['ratio']:.2f}; MB {row['linnet']['rss_mb']:.0f} (plan {row['linnet']['plan_bytes'] / 1e6:.0f})"
                f" against {row['torch']['rss_mb']:.0f}",
                flush=True,
            )
    return rows


TITLES = {
    "lenet5": "LeNet-5, batch 64", "mlp": "MLP 784-512-512-10, batch 64", "mobilenet_v2": "MobileNetV2 224x224, batch 8",
    "alexnet": "AlexNet 227x227, batch 16", "lstm_lm": "LSTM-512 language model, 20 x 20",
    "transformer": "transformer encoder, 4 layers of 256, 16 x 64", "resnet18": "ResNet-18 224x224, batch 8",
}  # fmt: skip


def as_markdown(rows: list[dict[str, Any]]) -> str:
    """One line per model: milliseconds per thread count, the ratio to PyTorch, and memory."""
    by_model: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        by_model[row["model"]][row["threads"]] = row
    counts = sorted({row["threads"] for row in rows})
    heads = [f"{n} thread{'s' if n > 1 else ''}, ms" for n in counts]
    lines = [
        f"| a training step | {' | '.join(heads)} | time / PyTorch's time | resident MB | PyTorch, resident MB |",
        "|---|" + "---:|" * (len(counts) + 3),
    ]
    for name, found in by_model.items():
        times = " | ".join(f"{found[n]['linnet']['ms']:.3g}" for n in counts)
        ratios = ", ".join(f"{found[n]['ratio']:.2f}" for n in counts)
        last = found[counts[-1]]
        memory = f"{last['linnet']['rss_mb']:.0f} | {last['torch']['rss_mb']:.0f}"
        lines.append(f"| {TITLES.get(name, name)} | {times} | {ratios} | {memory} |")
    return "\n".join(lines)


def update_page(rows: list[dict[str, Any]], command: str) -> None:
    """Writes the table of docs/benchmarks.md."""
    import torch

    from tests import benchmark_page
    from tests.peers.machine import machine

    about = machine("tests.bench_training")
    title = ", ".join(about[key] for key in ("processor", "cores", "isa", "date"))
    note = (
        f"{title}. Plain SGD, f32, compared with PyTorch {torch.__version__.split('+')[0]} (the faster of its two layouts)."
        f" Medians of interleaved fresh processes; the memory includes Python: `{command}`.{about['load']}"
    )
    benchmark_page.put("training", f"{note}\n\n{as_markdown(rows)}")


def profile(name: str, threads: int, rows: int) -> None:
    folder = Path(os.environ.get("LINNET_BENCH_HOME", "build/training"))
    folder.mkdir(parents=True, exist_ok=True)
    session, step = linnet_step(str(saved(name, folder)), threads, trace=True)
    for _ in range(5):
        step()
    steps = sorted(session.steps, key=lambda s: -s.ms)
    total = sum(s.ms for s in steps)
    print(f"{name}, {threads} threads: {total:.2f} ms in {len(steps)} steps; memory {session.memory}")
    kinds: dict[str, float] = defaultdict(float)
    for s in steps:
        kinds[f"{s.op} {s.kernel}"] += s.ms
    for kind, ms in sorted(kinds.items(), key=lambda item: -item[1]):
        print(f"{ms:9.3f} ms {100 * ms / total:5.1f} %  {kind}")
    print()
    for s in steps[:rows]:
        rate = s.flops / max(s.ms, 1e-6) / 1e6
        print(
            f"{s.ms:9.3f} ms  {rate:7.1f} GFLOP/s  {s.bytes / 1e6:8.2f} MB  {s.op:10s} {s.kernel:38s} {s.layout:14s} {s.name}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--models", default=",".join(USUAL))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--profile", metavar="MODEL")
    parser.add_argument("--rows", type=int, default=40, help="of a profile")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true", help="also put the table into docs/benchmarks.md")
    a = parser.parse_args()
    threads = [int(n) for n in a.threads.split(",")]
    if a.worker:
        engine, name, path, count, seconds = a.worker
        worker(engine, name, path, int(count), float(seconds))
    elif a.profile:
        profile(a.profile, threads[0], a.rows)
    else:
        rows = measure(a.models.split(","), threads, a.rounds, a.seconds)
        if a.json:
            a.json.write_text(json.dumps(rows, indent=1))
        if a.page:
            update_page(rows, f"python -m tests.bench_training --page --rounds {a.rounds} --seconds {a.seconds:g}")


if __name__ == "__main__":
    main()
