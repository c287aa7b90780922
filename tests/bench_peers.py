"""Compares speed with ONNX Runtime on three classifiers: a fresh process per engine and round, rounds interleaved.
`python -m tests.bench_peers [--json F] [--rounds N] [--nets mobilenet_v2,...]`; `--smoke` takes a second, for a test."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
DTYPES = ("f32", "f16", "i16", "i8")


# ---- the worker: one engine, one model, one process ---------------------------------------------------------------


def worker(engine: str, model: str, threads: int, seconds: float, inputs: str) -> None:
    """Prints one JSON line: median and minimum milliseconds of a run, and milliseconds to load and plan."""
    with np.load(inputs) as arrays:
        feeds = dict(arrays)
    start = time.perf_counter()
    extra: dict[str, Any] = {}
    run: Callable[[], object]
    if engine == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        peer = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        run = lambda: peer.run(None, feeds)  # noqa: E731
    else:
        import linnet

        session = linnet.Session(model, threads=threads)
        extra = {
            "plan_ms": session.plan_info["plan_ms"],
            "isa": session.plan_info["isa"],
            "bytes": session.memory["total"],
        }
        run = lambda: session.run(feeds)  # noqa: E731
    run()
    loaded = time.perf_counter()
    times: list[float] = []
    warm_until, end = loaded + seconds / 4, loaded + seconds * 5 / 4
    while len(times) < 3 or time.perf_counter() < end:
        before = time.perf_counter()
        run()
        after = time.perf_counter()
        if before >= warm_until:
            times.append(after - before)
    result = {
        "median_ms": 1e3 * statistics.median(times),
        "min_ms": 1e3 * min(times),
        "load_ms": 1e3 * (loaded - start),
        **extra,
    }
    print(json.dumps(result))


# ---- the measurement -----------------------------------------------------------------------------------------------


def _measure(engine: str, model: Path, threads: int, seconds: float, inputs: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "tests.bench_peers",
        "--worker",
        engine,
        str(model),
        str(threads),
        str(seconds),
        str(inputs),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{engine} on {model.name}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def prepare(net: str, folder: Path, dtypes: tuple[str, ...]) -> dict[str, Path]:
    """Makes the ONNX file, and the calibrated .lnt file of each dtype, in `folder`."""
    import linnet
    from tests import nets

    files = {"onnx": nets.NETS[net]()}
    graph = linnet.from_onnx(files["onnx"])
    calibration = [{"input": image[None]} for image in nets.images(8, 77)]
    for dtype in dtypes:
        files[dtype] = folder / f"{net}-{dtype}.lnt"
        (graph if dtype == "f32" else linnet.quantize(graph, calibration, dtype=dtype, effort="fast")).save(
            files[dtype]
        )
    return files


def measure_nets(names: list[str], rounds: int, seconds: float, threads: list[int]) -> list[dict[str, Any]]:
    """One row per net, dtype and thread count, each with ONNX Runtime's f32 time."""
    from tests import nets

    rows = []
    with tempfile.TemporaryDirectory(prefix="linnet-bench-") as temporary:
        folder = Path(temporary)
        np.savez(folder / "inputs.npz", **nets.inputs())
        for net in names:
            files = prepare(net, folder, DTYPES)
            for count in threads:
                results: dict[str, list[dict[str, Any]]] = defaultdict(list)
                for _ in range(rounds):
                    for kind, path in files.items():
                        engine = "onnxruntime" if kind == "onnx" else "linnet"
                        results[kind].append(_measure(engine, path, count, seconds, folder / "inputs.npz"))
                peer = statistics.median(r["median_ms"] for r in results["onnx"])
                for dtype in DTYPES:
                    own = statistics.median(r["median_ms"] for r in results[dtype])
                    rows.append({
                        "net": net, "dtype": dtype, "threads": count, "linnet_ms": own, "onnxruntime_f32_ms": peer,
                        "ratio": own / peer, "file_bytes": files[dtype].stat().st_size,
                        "memory_bytes": results[dtype][0]["bytes"], "isa": results[dtype][0]["isa"],
                        "plan_ms": statistics.median(r["plan_ms"] for r in results[dtype]),
                    })  # fmt: skip
    return rows


def native_program(name: str) -> Path:
    """Path of linnet-run or linnet-bench, from the installed package or from build/."""
    import importlib.resources

    for path in (
        importlib.resources.files("linnet") / "bin" / name,
        ROOT / "build" / name,
    ):
        if Path(str(path)).is_file():
            return Path(str(path))
    raise SystemExit(f"{name} is not built: run `make native`")


def cold_start(rounds: int) -> dict[str, float]:
    """Milliseconds from the start of linnet-run on MobileNetV2 f32 to its exit with the result written; files are cached."""
    from tests import nets

    program = native_program("linnet-run")
    with tempfile.TemporaryDirectory(prefix="linnet-cold-") as temporary:
        folder = Path(temporary)
        files = prepare("mobilenet_v2", folder, ("f32",))
        np.save(folder / "x.npy", nets.inputs()["input"])
        out = folder / "out"
        command = [str(program), str(files["f32"]), "--input", f"input={folder / 'x.npy'}", "--output-dir", str(out)]
        times = []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            times.append(1e3 * (time.perf_counter() - start))
    return {"cold_start_ms": statistics.median(times[1:]), "cold_start_min_ms": min(times[1:])}


def import_time(rounds: int) -> float:
    """Median milliseconds of `import linnet` (including NumPy) in a fresh interpreter with cached bytecode."""
    times = []
    for _ in range(rounds + 1):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", "import linnet"],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        line = next(line for line in done.stderr.splitlines() if line.rstrip().endswith("| linnet"))
        times.append(int(line.split("|")[1]) / 1e3)
    return statistics.median(times[1:])


# ---- the report ----------------------------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """Processor, cores, operating system, versions."""
    import onnxruntime

    import linnet

    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    words = [word for i, word in enumerate(sys.argv) if i and "--json" not in (word, sys.argv[i - 1])]
    load = os.getloadavg()[0]
    busy = load > 1.5 * len(os.sched_getaffinity(0))
    model = re.search(r"model name\s*: (.*)", text)
    return {
        "processor": model.group(1).strip() if model else platform.machine(),
        "cores": f"{len(os.sched_getaffinity(0))} cores",
        "system": f"{platform.system()} {platform.machine()}",
        "isa": linnet.isa_names()[-1],
        "linnet": linnet.__version__,
        "onnxruntime": onnxruntime.__version__,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": " ".join(["python -m tests.bench_peers", *words]),
        "load": f" The machine was busy with other work (load {load:.0f}): the ratios are more reliable than the times."
        if busy
        else "",
    }


def show(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    about = report["machine"]
    title = f"{about['processor']}, {about['cores']}, {about['isa']}, {about['date']}"
    table = Table(
        title=title, caption=f"{about['command']}; ONNX Runtime {about['onnxruntime']}; medians, batch 1, 224x224"
    )
    for heading in ("network", "dtype"):
        table.add_column(heading)
    for heading in ("threads", "linnet, ms", "ONNX Runtime f32, ms", "ratio", "file, MB", "memory, MB", "plan, ms"):
        table.add_column(heading, justify="right")
    for row in report["nets"]:
        table.add_row(
            row["net"], row["dtype"], str(row["threads"]), f"{row['linnet_ms']:.2f}", f"{row['onnxruntime_f32_ms']:.2f}",
            f"{row['ratio']:.2f}", f"{row['file_bytes'] / 1e6:.1f}", f"{row['memory_bytes'] / 1e6:.1f}", f"{row['plan_ms']:.1f}",
        )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(table)
    for name in ("cold_start_ms", "cold_start_min_ms", "import_ms"):
        console.print(f"{name}: {report[name]:.1f}")


def as_markdown(report: dict[str, Any]) -> str:
    """The table of README.md."""
    about = report["machine"]
    title = ", ".join(f"{about[key]}" for key in ("processor", "cores", "isa", "date"))
    lines = [
        f"{title}. Batch 1, 224x224, compared with ONNX Runtime {about['onnxruntime']} at f32; medians of"
        " interleaved fresh processes: "
        f"`{about['command']}`.{about['load']}",
        "",
        "| network | dtype | threads | linnet, ms | ONNX Runtime f32, ms | ratio | file, MB | memory, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in report["nets"]:
        lines.append(
            f"| {row['net']} | {row['dtype']} | {row['threads']} | {row['linnet_ms']:.2f} | {row['onnxruntime_f32_ms']:.2f} "
            f"| {row['ratio']:.2f} | {row['file_bytes'] / 1e6:.1f} | {row['memory_bytes'] / 1e6:.1f} |"
        )
    plans = [row["plan_ms"] for row in report["nets"] if (row["net"], row["dtype"]) == ("mobilenet_v2", "f32")]
    planned = f"; planning takes {plans[0]:.1f} ms of it" if plans else ""
    cold = f"MobileNetV2 f32: {report['cold_start_ms']:.0f} ms from process start to the result on disk (`linnet-run`){planned}."
    lines += ["", f"{cold} `import linnet`: {report['import_ms']:.0f} ms."]
    return "\n".join(lines)


def update_readme(report: dict[str, Any]) -> None:
    """Writes the table between the two `figures` comments of README.md."""
    path = ROOT / "README.md"
    text = path.read_text()
    marks = ("<!-- figures: `python -m tests.bench_peers --readme` writes them -->", "<!-- end of figures -->")
    before, rest = text.split(marks[0])
    path.write_text(f"{before}{marks[0]}\n\n{as_markdown(report)}\n\n{marks[1]}{rest.split(marks[1])[1]}")


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        engine, model, threads, seconds, inputs = sys.argv[2:7]
        worker(engine, model, int(threads), float(seconds), inputs)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes per engine, net and thread count (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time to measure in each process (2)")
    parser.add_argument("--nets", default="mobilenet_v2,efficientnet_b0,resnet50")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--readme", action="store_true", help="also put the table into README.md")
    parser.add_argument("--smoke", action="store_true", help="one short round of MobileNetV2: does everything work?")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.seconds, options.nets, options.threads = 1, 0.2, "mobilenet_v2", "1"
    threads = [int(word) for word in options.threads.split(",")]
    report: dict[str, Any] = {
        "machine": machine(),
        "nets": measure_nets(options.nets.split(","), options.rounds, options.seconds, threads),
        **cold_start(3 * options.rounds),
        "import_ms": import_time(3 * options.rounds),
    }
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.readme:
        update_readme(report)


if __name__ == "__main__":
    main()
