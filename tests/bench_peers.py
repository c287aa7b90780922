"""Compares linnet with ONNX Runtime on three classifiers at all dtypes, for docs/benchmarks.md; tests.peers compares all peers.
`python -m tests.bench_peers [--json F] [--rounds N] [--nets mobilenet_v2,...]`; `--smoke` takes a second, for a test."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests import benchmark_page
from tests.peers import measure
from tests.peers.machine import machine
from tests.peers.measure import Case

ROOT = Path(__file__).resolve().parent.parent
DTYPES = ("f32", "f16", "i16", "i8")


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


def memory_of(path: Path, threads: int) -> tuple[int, float, str]:
    """Bytes of a session's plan, milliseconds to plan, and the ISA."""
    import linnet

    session = linnet.Session(path, threads=threads)
    return session.memory["total"], session.plan_info["plan_ms"], session.plan_info["isa"]


def measure_nets(names: list[str], rounds: int, seconds: float, threads: list[int]) -> list[dict[str, Any]]:
    """One row per net, dtype and thread count, each with ONNX Runtime's f32 time. Both run in this environment."""
    from tests import nets

    rows = []
    with tempfile.TemporaryDirectory(prefix="linnet-bench-") as temporary:
        folder = Path(temporary)
        np.save(folder / "input.npy", nets.inputs()["input"])
        files = {net: prepare(net, folder, DTYPES) for net in names}
        cases = [
            Case(
                f"{net} {kind}", "onnxruntime" if kind == "onnx" else "linnet", count, path, folder / "input.npy"
            )
            for net in names
            for count in threads
            for kind, path in files[net].items()
        ]  # fmt: skip
        measure.interleave(cases, rounds, seconds, busy=True)
        failed = [f"{case}: {case.error}" for case in cases if case.error]
        if failed:
            raise SystemExit("\n".join(failed))
        medians = {(case.network, case.threads): case.row()["median_ms"] for case in cases}
        for net in names:
            for count in threads:
                peer = medians[f"{net} onnx", count]
                for dtype in DTYPES:
                    own = medians[f"{net} {dtype}", count]
                    total, plan_ms, isa = memory_of(files[net][dtype], count)
                    rows.append({
                        "net": net, "dtype": dtype, "threads": count, "linnet_ms": own, "onnxruntime_f32_ms": peer,
                        "ratio": own / peer, "file_bytes": files[net][dtype].stat().st_size,
                        "memory_bytes": total, "isa": isa, "plan_ms": plan_ms,
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
    """The table of docs/benchmarks.md."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes per engine, net and thread count (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time to measure in each process (2)")
    parser.add_argument("--nets", default="mobilenet_v2,efficientnet_b0,resnet50")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--page", action="store_true", help="also put the table into docs/benchmarks.md")
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
    if options.page:
        benchmark_page.put("figures", as_markdown(report))


if __name__ == "__main__":
    main()
