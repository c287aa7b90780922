"""`python -m tests.onnx_graphs FIRST LAST [FOLDER]` judges the graphs of these seeds, prints what does not pass, counts the rest.
Every seed runs in a child process that is replaced when it dies, so that a crash is one seed's."""

from __future__ import annotations

import json
import random
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path

SECONDS = 60


def work() -> None:
    import warnings

    from tests.onnx_graphs.judge import judge, make

    warnings.simplefilter("ignore")
    for line in sys.stdin:
        seed = int(line)
        case = make(random.Random(seed))
        if case is None:
            print(json.dumps(["none", "", []]), flush=True)
            continue
        ops = [n.op_type for n in case[0].graph.node]
        print(json.dumps([*judge(case, optimize=seed % 5 != 0), ops]), flush=True)


def main() -> None:
    first, last = int(sys.argv[1]), int(sys.argv[2])
    counts: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    child: subprocess.Popen[str] | None = None
    log = Path(sys.argv[3]).open("a") if len(sys.argv) > 3 else None
    for seed in range(first, last):
        if child is None:
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.onnx_graphs", "work"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(f"{seed}\n")
        child.stdin.flush()
        ready, _, _ = select.select([child.stdout], [], [], SECONDS)
        line = child.stdout.readline() if ready else ""
        if not line:
            kind, text, used = ("hang" if not ready else "crash"), "", []
            child.kill()
            child.wait()
            child = None
        else:
            kind, text, used = json.loads(line)
        counts[kind] += 1
        ops.update(set(used))
        if kind == "refused":
            reasons[text] += 1
        if kind not in ("pass", "none", "refused"):
            print(f"{seed} {kind}: {text}", file=log or sys.stdout, flush=True)
        elif kind == "refused" and reasons[text] == 1:
            print(f"{seed} {kind}: {text}", file=log or sys.stdout, flush=True)
    print(dict(counts), f"{len(ops)} ops", file=log or sys.stdout, flush=True)
    for text, count in reasons.most_common():
        print(f"  refused {count}: {text}", file=log or sys.stdout)


if __name__ == "__main__":
    work() if sys.argv[1:] == ["work"] else main()
