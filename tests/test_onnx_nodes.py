"""Runs ONNX's own node vectors through linnet.onnx_backend: counts passing cases; all others must report 'unsupported'.
`python -m tests.test_onnx_nodes --write` lists the others in docs/onnx_coverage.md. Without --write the script is a worker that
reads case numbers from stdin and prints verdicts, so that a crash affects one case."""
# Dear: all 1,847 node vectors of ONNX run in one test, which counts them.

from __future__ import annotations

import json
import os
import platform
import queue
import select
import subprocess
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

# Numbers of passing cases. A change that lowers them fails; a change that raises them must update them.
PLAIN_AT_LEAST = 1337
EXPANDED_AT_LEAST = 465
TWO_BF16_STEPS, TWO_F16_STEPS = 2.0**-6, 2.0**-9  # neighbouring values are at most 2^-7 and 2^-10 apart, relative
_RANDOM = (
    "random numbers: ONNX prescribes only their distribution, which tests/test_random.py checks; "
    "shape and type are compared here"
)
_F16 = "up to two f16 steps apart: the vector is rounded to f16 after every product and sum, linnet sums in f32"
# Where halves inside a program are kept in f32 (runtime_c/plan/passes/storage.c), linnet meets the usual tolerance.
_F16_CASES = () if platform.machine() in ("x86_64", "AMD64") else ("", "_expanded")
# case: the tolerances (rtol, atol) that it meets, and why it cannot meet its own
KNOWN: dict[str, tuple[float, float, str]] = {
    **{f"test_attention_4d_causal_fp16{suffix}": (TWO_F16_STEPS, 1e-7, _F16) for suffix in _F16_CASES},
    **{
        f"test_{name}": (0, np.inf, _RANDOM)
        for name in (
            *(f"bernoulli{kind}{suffix}" for kind in ("", "_double", "_seed") for suffix in ("", "_expanded")),
            *(f"training_dropout{kind}{mask}" for kind in ("", "_default") for mask in ("", "_mask")),
        )
    },
    **{
        f"test_dft_inverse{suffix}": (
            1e-3,
            2.5e-7,
            "the vector has rounding noise of 1.9e-7, but the true value and linnet's value are 0",
        )
        for suffix in ("", "_opset19")
    },
}
SECONDS_PER_CASE = 30
COVERAGE = Path(__file__).parents[1] / "docs" / "onnx_coverage.md"
WORKERS = 2


def cases() -> list[Any]:
    """The node cases that use only ai.onnx, in a fixed order."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy overflows while it makes the vectors
        found = load_model_tests(kind="node")
    return [c for c in found if all(o.domain in ("", "ai.onnx") for o in c.model.opset_import)]


def verdict(case: Any) -> tuple[str, str]:
    """("pass", ""), ("known", why), ("unsupported", text), ("wrong", text) or ("error", text)."""
    import linnet
    from linnet import onnx_backend

    try:
        prepared = None
        known = ""
        for inputs, expected in case.data_sets:
            prepared = prepared or onnx_backend.prepare(case.model)
            results = prepared.run(list(inputs))
            difference = compare(results, expected, case.rtol, case.atol)
            if difference and case.name in KNOWN:
                rtol, atol, known = KNOWN[case.name]
                difference = compare(results, expected, rtol, atol)
            if difference:
                return "wrong", difference
        if known:
            return "known", known
    except linnet.ConversionError as error:
        if all(p.op for p in error.problems):
            return "unsupported", str(error.problems[0])
        return "error", f"a problem names no op: {error}"
    except linnet.Error as error:
        if error.status == "unsupported" and error.op:
            return "unsupported", str(error)
        return "error", f"{type(error).__name__}: {error}"
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"
    return "pass", ""


def compare(results: Any, expected: Any, rtol: float, atol: float) -> str:
    """Describes a difference, or returns nothing: element type, shape, then values with the case's own tolerances."""
    if len(results) != len(expected):
        return f"{len(results)} outputs, not {len(expected)}"
    for index, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        if isinstance(wanted, list) or wanted is None:  # a sequence, or an empty optional
            if type(result) is not type(wanted):
                return f"output {index} is a {type(result).__name__}, not a {type(wanted).__name__}"
            if wanted and (inside := compare(result, wanted, rtol, atol)):
                return f"output {index}, a sequence: {inside}"
            continue
        wanted = np.asarray(numpy_helper.to_array(wanted) if isinstance(wanted, TensorProto) else wanted)
        if wanted.dtype.name == "bfloat16":
            if result.dtype != wanted.dtype:
                return f"output {index} is {result.dtype}, not bfloat16"
            if result.shape != wanted.shape:
                return f"output {index} has shape {result.shape}, not {wanted.shape}"
            if inside := compare(
                [result.astype(np.float32)], [wanted.astype(np.float32)], max(rtol, TWO_BF16_STEPS), atol
            ):
                return inside
            continue  # the tolerance is that of onnx's own runner
        if wanted.dtype == object and result.dtype == object:  # strings
            if result.tolist() != wanted.tolist():
                return f"output {index} is {result.tolist()}, not {wanted.tolist()}"
            continue
        if result.dtype != wanted.dtype:
            return f"output {index} is {result.dtype}, not {wanted.dtype}"
        if result.shape != wanted.shape:
            return f"output {index} has shape {result.shape}, not {wanted.shape}"
        try:
            np.testing.assert_allclose(result, wanted, rtol=rtol, atol=atol)
        except AssertionError as error:
            return f"output {index}: " + " ".join(str(error).split())[:300]
    return ""


def work() -> None:
    """The worker's loop."""
    found = cases()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps output of libraries out of the verdicts
    seen = Counter[str]()  # a few vectors share a name
    names = []
    for case in found:
        seen[case.name] += 1
        names.append(case.name if seen[case.name] == 1 else f"{case.name} ({seen[case.name]})")
    opsets = [max(o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx")) for case in found]
    print(json.dumps(["ready", names, opsets]), file=out, flush=True)
    for line in sys.stdin:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print(json.dumps(verdict(found[int(line)])), file=out, flush=True)


class Worker:
    """A child process that judges one case at a time and is replaced when it dies or hangs."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            },  # the same linnet as in this process
        )
        _, names, opsets = self.answer(120)
        self.names: list[str] = names
        self.opsets: dict[str, int] = dict(zip(names, opsets, strict=True))

    def answer(self, seconds: float) -> Any:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready:
            self.close()
            return ["timeout", f"no answer in {seconds} s"]
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            return ["crash", f"the process ended with {code}"]
        return json.loads(line)

    def judge(self, index: int) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{index}\n")
        self.process.stdin.flush()
        return self.answer(SECONDS_PER_CASE)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def judge_all(only: list[str] | None = None, opsets: dict[str, int] | None = None) -> dict[str, tuple[str, str]]:
    """{case: verdict}, computed by a few workers. opsets: filled with {case: opset}."""
    results: dict[str, tuple[str, str]] = {}
    first = Worker()
    if opsets is not None:
        opsets.update(first.opsets)
    names = first.names
    pending: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index, name in enumerate(names):
        if only is None or any(part in name for part in only):
            pending.put(index)

    def serve(worker: Worker | None) -> None:
        worker = worker or Worker()
        while True:
            try:
                index = pending.get_nowait()
            except queue.Empty:
                break
            kind, text = worker.judge(index)
            results[names[index]] = (kind, text)
            if kind in ("crash", "timeout"):
                worker.close()
                worker = Worker()
        worker.close()

    threads = [threading.Thread(target=serve, args=(first if i == 0 else None,)) for i in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def release() -> str:
    """The version of the installed onnx without its last number, within which cases are the same."""
    return ".".join(onnx.__version__.split(".")[:2])


def page(results: dict[str, tuple[str, str]], opsets: dict[str, int]) -> str:
    """Text of docs/onnx_coverage.md: how many cases pass, and why each other one does not."""
    lines = [
        "<!-- generated by `python -m tests.test_onnx_nodes --write`; do not edit -->",
        "# ONNX's node cases",
        "",
        f"This page lists the cases of `onnx.backend.test` (kind `node`, onnx {release()}) that use only `ai.onnx`.",
        "They run through `linnet.onnx_backend`. *Known* cases differ from their vectors by no more than the reason below",
        "says. *Refused* cases are refused during conversion, with the node, the reason and what to do.",
        "",
        "| cases | all | pass | known | refused |",
        "|---|---|---|---|---|",
    ]
    for limit in (99, 26):
        for label, parts in (("plain", (False,)), ("`_expanded`", (True,)), ("together", (False, True))):
            kinds = [k for n, (k, _) in results.items() if ("_expanded" in n) in parts and opsets[n] <= limit]
            count = Counter(kinds)
            where = label if limit == 99 else f"{label}, opset 26 or below"
            row = [len(kinds), count["pass"], count["known"], len(kinds) - count["pass"] - count["known"]]
            lines.append(f"| {where} | " + " | ".join(map(str, row)) + " |")
    for title, wanted in (("Refused", False), ("Known differences", True)):
        lines += ["", f"## {title}", "", "| case | reason |", "|---|---|"]
        for name, (kind, text) in sorted(results.items()):
            if kind != "pass" and (kind == "known") == wanted:
                lines.append(f"| `{name}` | {text.split('; use one of f32')[0].replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def test_node_vectors(capsys: Any) -> None:
    opsets: dict[str, int] = {}
    results = judge_all(opsets=opsets)
    lines, failures, passed = [], [], {}
    for label, expanded in (("plain", False), ("expanded", True)):
        part = {name: result for name, result in results.items() if ("_expanded" in name) == expanded}
        kinds = Counter(kind for kind, _ in part.values())
        passed[label] = kinds["pass"]
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        lines.append(f"ONNX node vectors, {label}: {len(part)} cases: {counts}")
    for name, (kind, text) in sorted(results.items()):
        if kind not in ("pass", "known", "unsupported"):
            failures.append(f"{name}: {kind}: {text}")
        if kind == "pass" and name in KNOWN:
            failures.append(f"{name} passes now: take it off the list of known differences")
    with capsys.disabled():
        print("", *lines, sep="\n")
    assert not failures, "\n".join(failures)
    assert passed["plain"] >= PLAIN_AT_LEAST, lines
    assert passed["expanded"] >= EXPANDED_AT_LEAST, lines
    if f"of onnx {release()} " in COVERAGE.read_text():  # the page is for one release; linnet supports several
        assert COVERAGE.read_text() == page(results, opsets), "run: python -m tests.test_onnx_nodes --write"


def write() -> None:
    opsets: dict[str, int] = {}
    results = judge_all(opsets=opsets)
    COVERAGE.write_text(page(results, opsets))


if __name__ == "__main__":
    write() if "--write" in sys.argv else work()
