"""`make test-cuda`: what can be tested only with a GPU of NVIDIA: every op against the CPU, models, and memory errors by
compute-sanitizer. It needs this repository, NumPy and cffi; what else is missing is named and left out."""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def say(text: str) -> None:
    print(text, flush=True)


def python(*words: str, seconds: float, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "LINNET_CUDA_TESTS": "gpu", **environment}
    try:
        return subprocess.run(
            [sys.executable, *words], check=False, cwd=ROOT, capture_output=True, text=True, timeout=seconds, env=given
        )
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return subprocess.CompletedProcess(words, 124, text, f"took more than {seconds:.0f} seconds")


def check_op(op: str, cases: str, device: str) -> tuple[str, dict[str, Any]]:
    words = ["-m", "linnet", "check-device", device, "--ops", op, "--json", *(["--quick"] if cases == "quick" else [])]
    done = python(*words, *(["--all"] if cases == "all" else []), seconds=240)
    if not done.stdout.startswith("{"):
        said = f"exit status {done.returncode} {(done.stderr or done.stdout)[-400:]}"
        return op, {"ok": False, "summary": said, "failures": []}
    result: dict[str, Any] = json.loads(done.stdout)
    return op, result


def check_ops(cases: str, device: str) -> int:
    """All ops, several at a time, because most of the time is the compiler's."""
    from linnet.conformance.cases import all_cases

    ops = list(dict.fromkeys(case.op for case in all_cases()))
    failed = ran = 0
    with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) - 2)) as pool:
        for op, result in pool.map(lambda op: check_op(op, cases, device), ops):
            ran += sum(result.get("ops", {}).get(op, {}).get(status, 0) for status in ("agrees", "differs"))
            if not result["ok"]:
                failed += 1
                say(f"  {op}: {result['summary']}")
                for case in result["failures"][:3]:
                    say(f"    {json.dumps(case)[:600]}")
    say(f"check-device: {ran} cases of {len(ops)} ops ran, {failed} ops failed")
    return failed


def tests() -> int:
    """The tests of the CUDA device, with the real driver."""
    if importlib.util.find_spec("pytest") is None:
        say("pytest is missing: its tests were not run; pip install pytest")
        return 0
    names = [f"tests/test_cuda_{part}.py" for part in ("models", "training", "products")]
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not soak and not torch", *names, seconds=400)
    say("\n".join(done.stdout.splitlines()[-15:]) + done.stderr[-400:])
    return int(done.returncode not in (0, 5))


def sanitizer() -> int:
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        say("compute-sanitizer is missing: memory errors were not looked for (it is part of the CUDA toolkit)")
        return 0
    words = [tool, "--error-exitcode", "9", sys.executable, "-m", "tests.cuda.small_models"]
    try:
        done = subprocess.run(words, check=False, cwd=ROOT, capture_output=True, text=True, timeout=200)
    except subprocess.TimeoutExpired:
        say("compute-sanitizer took more than 200 seconds")
        return 1
    say("compute-sanitizer: " + "; ".join((done.stdout + done.stderr).splitlines()[-3:]))
    return int(done.returncode != 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="ops,tests,sanitizer")
    parser.add_argument("--cases", default="quick", choices=("quick", "usual", "all"))
    parser.add_argument("--device", default="cuda", help="another one only for the part ops, such as opencl")
    options = parser.parse_args()
    import linnet

    devices = linnet.devices(options.device)
    for device in devices:
        say(f"{device.name}: {device.hardware} {device.driver} {device.missing}")
    if not any(not device.missing for device in devices):
        return 1
    failed = 0
    for part in options.parts.split(","):
        start = time.perf_counter()
        failed += {"ops": lambda: check_ops(options.cases, options.device), "tests": tests, "sanitizer": sanitizer}[
            part
        ]()
        say(f"{part}: {time.perf_counter() - start:.0f} s")
    say("all passed" if failed == 0 else f"{failed} parts or ops failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
