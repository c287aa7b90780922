"""Processes that run steps and print their times: for engines that must not share a process. A worker gets numbers of steps
from its stdin and answers with the time of each step; it ends when its stdin closes."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Engine:
    """The processes of one engine for a case. `measure` runs a number of steps in all workers and returns every step's time in
    us."""

    def __init__(self, commands: Sequence[Sequence[str]], stack: ExitStack, env: dict[str, str]) -> None:
        self.workers = [stack.enter_context(started(command, env)) for command in commands]
        for worker in self.workers:
            line(worker)  # the process is ready

    def measure(self, steps: int) -> list[float]:
        for worker in self.workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{steps}\n".encode())
            worker.stdin.flush()
        return [float(word) for worker in self.workers for word in line(worker).split()]


@contextmanager
def started(command: Sequence[str], env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that exits when its stdin closes."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, **env}
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def line(process: subprocess.Popen[bytes], seconds: float = 300) -> str:
    """Reads the next line that a process prints. Raises SystemExit if the process ends or prints nothing in time."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(seconds):
            raise SystemExit(f"no answer within {seconds:g} s: {process.args!r}")
    text = process.stdout.readline().decode()
    if not text:
        raise SystemExit(f"a process of the benchmark has ended: {process.args!r}")
    return text


def answer_steps(step: Callable[[], object]) -> None:
    """Main loop of a worker: reports ready, then runs as many steps as each line of stdin says."""
    print("ready", flush=True)
    for text in sys.stdin:
        times = []
        for _ in range(int(text)):
            begin = time.perf_counter()
            step()
            times.append(1e6 * (time.perf_counter() - begin))
        print(*(f"{t:.1f}" for t in times), flush=True)
