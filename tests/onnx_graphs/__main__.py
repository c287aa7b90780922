"""`python -m tests.onnx_graphs FIRST LAST`: judges the graphs of these seeds, prints those that do not pass, counts the rest.
Seeds run in a child process that is replaced when it dies, so that a crash (also of ONNX Runtime) affects one seed.
`python -m tests.onnx_graphs hypothesis COUNT [shrink]`: this many graphs chosen by hypothesis; the first failure is shrunk."""

from __future__ import annotations

import faulthandler
import json
import random
import select
import subprocess
import sys
import warnings
from collections import Counter
from typing import Any

SECONDS = 60


def work() -> None:
    """The child process: reads seeds from lines of stdin and prints verdicts."""
    from tests.onnx_graphs.judge import judge, make

    warnings.simplefilter("ignore")
    for line in sys.stdin:
        seed = int(line)
        case = make(random.Random(seed))
        print("made", flush=True)  # a crash after this point is linnet's fault
        if case is None:
            print(json.dumps(["none", "", []]), flush=True)
            continue
        ops = sorted({n.op_type for n in case[0].graph.node})
        print(json.dumps([*judge(case, optimize=seed % 5 != 0), ops]), flush=True)


def judged(first: int, last: int) -> tuple[Counter[str], Counter[str], list[str]]:
    """({verdict: count}, {op: number of graphs with it}, graphs that did not pass)."""
    counts: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    lines: list[str] = []
    child: Any = None
    for seed in range(first, last):
        if child is None:
            command = [sys.executable, "-m", "tests.onnx_graphs", "work"]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        child.stdin.write(b"%d\n" % seed)
        made, verdict = _line(child), ""
        if made:
            verdict = _line(child)
        if not verdict:
            kind, text, used = "crash" if made else "none", f"status {child.poll()}", []
            child.kill()
            child.wait()
            child = None
        else:
            kind, text, used = json.loads(verdict)
        counts[kind] += 1
        ops.update(used)
        if kind not in ("pass", "none"):
            lines.append(f"{seed} {kind}: {text}")
    if child is not None:
        child.stdin.close()
        child.wait()
    return counts, ops, lines


def _line(child: Any) -> str:
    ready, _, _ = select.select([child.stdout], [], [], SECONDS)
    return child.stdout.readline().decode() if ready else ""


def chosen(count: int, shrink: bool) -> None:
    """Runs hypothesis over the same generator. Shrinking a failure takes minutes."""
    import onnx
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    from tests.onnx_graphs.judge import judge, make

    warnings.simplefilter("ignore")

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
    )
    @given(st.randoms(use_true_random=False))
    def check(source: random.Random) -> None:
        case = make(source)
        if case is not None:
            kind, text = judge(case)
            assert kind in ACCEPTED, f"{kind}: {text}\n{onnx.printer.to_text(case[0])}"

    check()


ACCEPTED = ("pass", "refused", "reference")

if __name__ == "__main__":
    faulthandler.enable()
    if sys.argv[1] == "work":
        work()
    elif sys.argv[1] == "hypothesis":
        chosen(int(sys.argv[2]), "shrink" in sys.argv)
    else:
        counts, ops, lines = judged(int(sys.argv[1]), int(sys.argv[2]))
        print(*lines, f"{dict(counts)}, {len(ops)} ops", sep="\n")
