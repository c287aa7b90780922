"""python -m tests.maps SEED COUNT [BUILD]: runs one program per graph with fuzz_map of that build (default: release), and prints
the operands and instructions of wrong ones."""

from __future__ import annotations

import pprint
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.maps.graphs import write
from tests.maps.programs import case_of, described
from tests.native import build


def main(first: int, count: int, kind: str = "release") -> int:
    driver, wrong = build(kind, "fuzz_map") / "fuzz_map", 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            path = Path(folder) / "case.lnt"
            write(path, [seed])
            done = subprocess.run([str(driver), str(path)], capture_output=True, text=True, check=False)
            if done.returncode:
                wrong += 1
                print(f"seed {seed}: {(done.stdout + done.stderr)[-2000:]}")
                pprint.pprint(described(case_of(seed)), width=120)
    print(f"{wrong} of {count} are wrong")
    return wrong > 0


sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
