"""What a benchmark says about the machine: processor, cores, system, ISA, date, versions, command, load. No names of hosts or
folders."""

from __future__ import annotations

import datetime
import os
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path


def machine(module: str = "tests.bench_peers", words: Sequence[str] | None = None) -> dict[str, str]:
    """Facts for the heading of a table. `words` are the command's arguments; by default this process's, without paths."""
    import onnxruntime

    import linnet

    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if words is None:
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
        "command": " ".join([f"python -m {module}", *words]),
        "load": f" The machine was busy with other work (load {load:.0f}): the ratios are more reliable than the times."
        if busy
        else "",
    }
