"""How the tests run: what is left to `make test-more`, in which order, and within which time and memory.
tests/conftest.py loads it; tests/durations.json has the processor seconds of dear tests, written by `--write-durations`."""

from __future__ import annotations

import collections
import faulthandler
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

DURATIONS = Path(__file__).with_name("durations.json")
LONG = 0.5  # processor seconds from which a test is kept in the list
DEAR = 5.0  # processor seconds above which a test needs a reason: its file has a comment that begins with "# Dear:"
SECONDS = {"soak": 4000, "more": 900}  # a test's limit by its mark; others have the timeout of pyproject.toml


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--megabytes", type=int, default=6000, help="limit of a test and its child processes")
    parser.addoption(
        "--chosen", type=Path, help="a file with names of tests and test files, one a line; others do not run"
    )
    parser.addoption("--write-durations", action="store_true", help=f"write {DURATIONS.name} after the run")


def pytest_configure(config: pytest.Config) -> None:
    whole = config.getoption("--write-durations")
    if (whole or config.getoption("numprocesses", 0)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Clock(whole), "linnet-durations")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", 0):  # where tests run
        config.pluginmanager.register(_Meter(), "linnet-meter")
        config.pluginmanager.register(_Heap(), "linnet-heap")
        _Watch(config.getoption("--megabytes")).start()


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """A full collection of garbage, which some tests do for each of their steps, then leaves out the modules and tests."""
    _freeze()


@pytest.fixture(scope="module")
def few_objects() -> None:
    """For test files that collect garbage many times: the collector then looks at the objects of these tests alone."""
    _freeze()


class _Heap:
    """After every few test files, leaves what they have made out of later collections, as pytest_collection_finish does. In a
    process that had run thousands of tests, each full collection took 2.5 seconds."""

    FILES = 16

    def __init__(self) -> None:
        self.files = 0

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        if nextitem is not None and nextitem.path != item.path:
            self.files += 1
            if self.files % self.FILES == 0:
                _freeze()


def _spent() -> float:
    """Processor seconds of this process and of its children that have ended."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


class _Meter:
    """Adds to each report (of a setup, a call or a teardown) the processor seconds since the report before. A clock on the wall
    would count what else the machine does."""

    before = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self.before = _spent()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        outcome: Any = yield
        now = _spent()
        outcome.get_result().processor_seconds = now - self.before
        self.before = now


class _Clock:
    """Adds up the processor seconds of every test, with its fixtures and its child processes, and prints the dearest files."""

    def __init__(self, write: bool) -> None:
        self.write = write
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + getattr(report, "processor_seconds", 0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        files: dict[str, float] = collections.defaultdict(float)
        for name, seconds in self.seconds.items():
            files[name.partition("::")[0]] += seconds
        dearest = sorted(files.items(), key=lambda item: -item[1])[:12]
        words = ", ".join(f"{Path(name).stem} {seconds:.0f}" for name, seconds in dearest)
        terminalreporter.write_line(f"processor seconds of tests: {sum(files.values()):.0f}; most: {words}")

    def pytest_sessionfinish(self) -> None:
        if not self.write:
            return
        known = {name: seconds for name, seconds in _durations().items() if _is_there(name)}
        known |= {name: round(seconds, 1) for name, seconds in self.seconds.items()}
        kept = {name: seconds for name, seconds in sorted(known.items()) if seconds >= LONG}
        DURATIONS.write_text(json.dumps(kept, indent=0) + "\n")


def _is_there(name: str) -> bool:
    """Whether the function of a test is still in its file."""
    file, _, test = name.partition("::")
    path = DURATIONS.parent.parent / file
    return path.exists() and f"def {test.rpartition('::')[2].partition('[')[0]}(" in path.read_text()


def _durations() -> dict[str, float]:
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


def _needs_torch(item: pytest.Item) -> bool:
    """Whether a test takes PyTorch, alone or with its whole module."""
    module = getattr(item, "module", None)
    return "torch" in getattr(item, "fixturenames", ()) or isinstance(getattr(module, "torch", None), ModuleType)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--chosen"):
        chosen = set(config.getoption("--chosen").read_text().splitlines())
        items[:] = [item for item in items if {item.nodeid, item.nodeid.partition("::")[0]} & chosen]
    for item in items:
        if _needs_torch(item):
            item.add_marker(pytest.mark.torch)
        for mark, seconds in SECONDS.items():
            if item.get_closest_marker(mark) and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(seconds))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = ordered(items, _durations(), workers)


def ordered(items: list[Any], seconds: dict[str, float], workers: int) -> list[Any]:
    """The longest tests first, then the others, file by file. xdist gives each worker a part of the list, so each part begins
    with some of the long ones; a worker that has finished steals from the end of another's."""
    long = sorted((i for i in items if i.nodeid in seconds), key=lambda i: -seconds[i.nodeid])
    rest = [i for i in items if i.nodeid not in seconds]
    size = -(-len(items) // workers)
    found: list[Any] = []
    for worker in range(workers):
        mine = long[worker::workers]
        room = max(0, min(size, len(items) - len(found)) - len(mine))
        found += mine + rest[:room]
        rest = rest[room:]
    return found + rest


# ---- memory ----------------------------------------------------------------------------------------------------------


def _family(process: int) -> list[int]:
    """A process and all that it started."""
    found = [process]
    for one in found:  # grows meanwhile
        try:
            for thread in os.listdir(f"/proc/{one}/task"):
                found += map(int, Path(f"/proc/{one}/task/{thread}/children").read_text().split())
        except OSError:
            continue  # it has ended
    return found


def _resident(process: int) -> int:
    """Bytes; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


class _Watch(threading.Thread):
    """Fails the test whose process and children take too much memory, with the stacks of all threads, before the machine has none
    left. The children are killed; a test that does not return from C is ended with its process, and xdist starts another."""

    def __init__(self, megabytes: int) -> None:
        super().__init__(daemon=True, name="memory watch")
        self.megabytes = megabytes
        signal.signal(signal.SIGUSR1, self._fail)

    def _fail(self, _: int, __: FrameType | None) -> None:
        pytest.fail(f"the test and its child processes took more than {self.megabytes} MB; the stacks are above")

    def run(self) -> None:
        while True:
            time.sleep(0.3)
            if tracemalloc.is_tracing():
                continue  # a test counts what is allocated, and would count what this thread allocates
            family = _family(os.getpid())
            if sum(map(_resident, family)) <= self.megabytes << 20:
                continue
            print(f"\n{os.environ.get('PYTEST_CURRENT_TEST')}: more than {self.megabytes} MB", file=sys.__stderr__)
            faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
            for child in family[1:]:
                try:
                    os.kill(child, signal.SIGKILL)
                except OSError:
                    continue  # it has ended
            test = os.environ.get("PYTEST_CURRENT_TEST")
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(10)
            if os.environ.get("PYTEST_CURRENT_TEST") == test:
                os._exit(70)
