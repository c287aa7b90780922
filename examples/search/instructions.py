"""Counts the instructions of a model's run on a processor that qemu emulates. A count is not a time, but it is the same on
every machine, so it can stand in for the time of a board that you do not have."""

from __future__ import annotations

import collections
import shutil
import subprocess
import tempfile
from pathlib import Path

from linnet.deploy.local import CPUS
from linnet.deploy.tools import find

_NEEDS = {"qemu-aarch64": "qemu-user", "cc": "gcc"}


class CountError(Exception):
    """A program is missing, or failed. The text says what to do."""


class Counter:
    """Counts on one kind of processor, a 64-bit ARM of `linnet deploy emulate:CPU`. Compiles the plugin of qemu once.

    Raises CountError if a program is missing, and linnet.FileError if there is no linnet-bench for the processor.
    """

    def __init__(self, cpu: str, folder: Path) -> None:
        architecture, self._qemu = CPUS[cpu]
        for program, package in _NEEDS.items():
            if shutil.which(program) is None:
                raise CountError(f"{program} is not installed; get it with: apt-get install {package}")
        if architecture != "aarch64":
            raise CountError(f"{cpu} is no 64-bit ARM processor; count.c knows the system calls of these only")
        self.cpu, self._plugin = cpu, folder / "count.so"
        self._bench = find(architecture, "linnet-bench")
        source = Path(__file__).with_name("count.c")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:  # another process may use the plugin
            made = Path(scratch, "count.so")
            _run(["cc", "-std=c11", "-O2", "-shared", "-fPIC", str(source), "-o", str(made)])
            made.replace(self._plugin)

    def count(self, model: bytes) -> int:
        """The instructions of one warm run with one thread. model: the content of a .lnt file without open sizes."""
        with tempfile.TemporaryDirectory() as scratch:
            path, out = Path(scratch, "model.lnt"), Path(scratch, "counts")
            path.write_bytes(model)
            words = [self._qemu, "-cpu", self.cpu, "-plugin", f"{self._plugin},out={out}", str(self._bench), str(path)]
            _run([*words, "--threads", "1", "--seconds", "0.01"])
            return warm_run([int(line) for line in out.read_text().split()])


def warm_run(counts: list[int]) -> int:
    """The count of a run among those between all looks at the clock. linnet-bench makes at least five runs that are alike;
    between two of them it executes little, and loading, planning and the first run are each made once."""
    often = [number for number, times in collections.Counter(counts).items() if times >= 3]
    if not often:
        raise CountError(f"no count repeats among {len(counts)}; does this linnet-bench measure runs one by one?")
    return max(often)


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise CountError(f"{words[0]} failed: {(done.stderr or done.stdout).strip()[-300:]}")
