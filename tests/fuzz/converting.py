"""Converts, plans and runs damaged ONNX and TFLite files: expects an error record or a result, in bounded time and memory.
`python -m tests.fuzz.converting onnx|tflite FIRST LAST`; cases run in a child process that is replaced when it dies or hangs."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import select
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz import mutate_bytes, mutate_onnx, mutate_tflite

SECONDS = 10  # time limit of a case on an idle machine; more on a busy one
MEMORY = 1 << 30  # bytes that the child may map in addition to what it has before the first case
RUN_BYTES = 64 << 20  # max_bytes of sessions
CORPUS = 60


def onnx_corpus(folder: Path) -> None:
    """Small valid models of all op families (tests/onnx_graphs), as files."""
    from tests.onnx_graphs.judge import make

    warnings.simplefilter("ignore")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to("/etc/hostname")
    count, seed = 0, 0
    while count < CORPUS:
        case = make(random.Random(seed))
        seed += 1
        if case is not None and len(content := case[0].SerializeToString()) < 100_000:
            (folder / f"{count}.onnx").write_bytes(content)
            count += 1


def tflite_corpus() -> list[list[Any]]:
    """Graphs with one operator each, with state, and with branches."""
    from tests.test_tflite_ops import CASES
    from tests.tflite_models import G, O, T

    found = []
    for case in CASES:
        constants = {t.name for t in case.tensors if t.value is not None}
        inputs = [n for n in case.operator.inputs if n and n not in constants]
        found.append([G(case.tensors, [case.operator], inputs, case.operator.outputs)])
    branch = G([T("a", "f32", [3]), T("b", "f32", [3])], [O("EXP", ["a"], ["b"])], ["a"], ["b"])
    tensors = [T("c", "bool", []), T("x", "f32", [3]), T("y", "f32", [3])]
    operators = [O("IF", ["c", "x"], ["y"], {"then_subgraph": 1, "else_subgraph": 2})]
    variable = O("VAR_HANDLE", [], ["v"], {"shared_name": "total", "container": ""})
    state = [O("CALL_ONCE", [], [], {"subgraph": 1}), variable, O("READ_VARIABLE", ["v"], ["old"]),
             O("ADD", ["x", "old"], ["y"], {"activation": "none"}), O("ASSIGN_VARIABLE", ["v", "y"], [])]  # fmt: skip
    start = G([T("v", "resource"), T("ten", "f32", [2], value=np.float32([10, 10]))],
              [variable, O("ASSIGN_VARIABLE", ["v", "ten"], [])], [], [])  # fmt: skip
    ports = [T("x", "f32", [2]), T("v", "resource"), T("old", "f32", [2]), T("y", "f32", [2])]
    several = [[G(tensors, operators, ["c", "x"], ["y"]), branch, branch], [G(ports, state, ["x"], ["y"]), start]]
    return found + several * 20


def content(kind: str, seed: int, corpus: list[Any]) -> bytes:
    """Returns the file of a seed."""
    rng = random.Random(f"{kind} {seed}")
    base, other = rng.choice(corpus), rng.choice(corpus)
    if kind == "onnx":
        import onnx

        if rng.random() < 0.35:
            return mutate_bytes.mutated(base, rng, other)
        model = mutate_onnx.mutated(onnx.ModelProto.FromString(base), rng)
        made = bytes(model.SerializeToString())
        return mutate_bytes.mutated(made, rng, other) if rng.random() < 0.05 else made
    from tests.tflite_models import build

    if rng.random() < 0.5:
        return mutate_bytes.mutated(build(*base), rng, build(*other))
    return mutate_tflite.mutated(base, rng)


def verdict(kind: str, file: bytes, folder: Path) -> tuple[str, str]:
    """Returns (outcome, text), where the outcome is refused, plan, ran, or wrong."""
    import linnet

    stage = "converting"
    try:
        if kind == "onnx":
            path = folder / "case.onnx"
            path.write_bytes(file)
            graph = linnet.from_onnx(path)
        else:
            graph = linnet.from_tflite(file)
        stage = "writing"
        message = graph.to_bytes()
        stage = "running"
        session = linnet.Session(message, threads=1, max_bytes=RUN_BYTES)
        if (keep := os.environ.get("KEEP_LNT")) and len(message) < 50_000:
            Path(keep, f"{kind}_{random.getrandbits(48):x}.lnt").write_bytes(message)
        feeds = {}
        for spec in session.model.inputs():
            shape = tuple(2 if d is None else d for d in (spec.shape if spec.shape is not None else (2,)))
            if np.prod([float(d) for d in shape]) > 1e6:
                return "plan", ""
            from linnet.ir.dtypes import numpy_dtype

            dtype = numpy_dtype(spec.dtype)
            values = np.random.default_rng(0).normal(0, 2, shape)
            feeds[spec.name] = np.abs(values).astype(dtype) if dtype.kind == "u" else values.astype(dtype)
        session.run(feeds)
        return "ran", ""
    except linnet.ConversionError as error:
        if not error.problems or not all(p.reason and (p.op or p.node) for p in error.problems):
            return "wrong", f"{stage}: a problem without words: {error.problems}"
        return "refused", "ConversionError"
    except linnet.Error as error:
        if not error.what or "\n" in str(error):
            return "wrong", f"{stage}: a record without words: {error!r}"
        return "refused", f"{type(error).__name__} {stage}"
    except Exception as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        return (
            "wrong",
            f"{stage}: {type(error).__name__}: {str(error)[:150]} ({Path(place.filename).name}:{place.lineno})",
        )


def work(kind: str, folder: Path) -> None:
    """The child process: reads seeds line by line and writes verdicts."""
    import linnet

    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # no output of a library may get between the verdicts
    if kind == "onnx":
        corpus: list[Any] = [p.read_bytes() for p in sorted(folder.glob("[0-9]*.onnx"), key=lambda p: int(p.stem))]
        linnet.from_onnx(folder / "0.onnx")
    else:
        corpus = tflite_corpus()
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    for line in sys.stdin:
        answer = verdict(kind, content(kind, int(line), corpus), folder)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(json.dumps([*answer, peak]), file=out, flush=True)


def tried(kind: str, first: int, last: int) -> tuple[Counter[str], list[str]]:
    """Returns (the number of each outcome, and the peak memory in MB; what went wrong, by seed)."""
    counts: Counter[str] = Counter()
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if kind == "onnx":
            onnx_corpus(folder)
        child: Any = None
        for seed in range(first, last):
            if child is None:
                command = [sys.executable, "-m", "tests.fuzz.converting", "work", kind, name]
                child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
            child.stdin.write(b"%d\n" % seed)
            ready, _, _ = select.select([child.stdout], [], [], 60 if seed == first else 3 * SECONDS)
            line = child.stdout.readline() if ready else b""
            if not line:
                outcome, text = "crash" if ready else "hang", f"status {child.poll()}"
                child.kill()
                child.wait()
                child = None
            else:
                outcome, text, peak = json.loads(line)
                counts["MB"] = max(counts["MB"], peak)
            counts[outcome if outcome != "refused" else f"refused: {text}"] += 1
            if outcome in ("wrong", "crash", "hang"):
                lines.append(f"{kind} {seed} {outcome}: {text}")
                print(lines[-1], flush=True)
        if child is not None:
            child.stdin.close()
            child.wait()
    return counts, lines


if __name__ == "__main__":
    faulthandler.enable()
    if sys.argv[1] == "work":
        work(sys.argv[2], Path(sys.argv[3]))
    else:
        found, wrong = tried(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        print(dict(found))
