"""Measures the tests: applies each mutation of tests/mutations to a copy of the tree, builds it, runs the tests that should fail
and reports the score by part: `python -m tests.mutate [--only ID] [--jobs N] [--json]`."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutations import Mutation, load
from tests.native import BUILDS, ROOT
from tests.tree import LIBRARIES

# Possible verdicts. The score is the share of the first two, which count as noticed, among the first four.
KILLED, TIMED_OUT, SURVIVED, NOT_BUILT, NOT_APPLICABLE = (
    "killed",
    "timed out",
    "survived",
    "did not build",
    "not applicable",
)
NOTICED, COUNTED = (KILLED, TIMED_OUT), (KILLED, TIMED_OUT, SURVIVED, NOT_BUILT)
# Variables of an outer pytest run are removed: the copy has its own library, package and builds.
_FOREIGN = (
    "LINNET_LIBRARY",
    "LINNET_SOAK",
    "PYTHONPATH",
    "PYTEST_ADDOPTS",
    "PYTEST_CURRENT_TEST",
)


@dataclass(frozen=True)
class Result:
    mutation: Mutation
    verdict: str
    seconds: float
    note: str = ""


def _files(root: Path) -> list[str]:
    """Lists the files of the tree: those that git tracks or would add; without git, all but builds and caches."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        return [name for name in dict.fromkeys(listed.stdout.split("\0")) if name and (root / name).is_file()]
    found = []
    for folder, folders, files in os.walk(root):
        at = Path(folder).relative_to(root)
        folders[:] = [
            f
            for f in folders
            if f not in {".git", ".venv", "__pycache__"} and not (folder == str(root) and f.split("-")[0] == "build")
        ]
        found += [str(at / name) for name in files]
    return found


class Copy:
    """A copy of the tree with its own builds, kept between calls, so that only changes are copied and built again."""

    def __init__(self, root: Path, folder: Path, jobs: int) -> None:
        self.root, self.folder, self.jobs = root, folder, jobs
        self.build_folder = folder / "build"
        self.clock = time.time()
        self.environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        self.environment["LINNET_WERROR"] = "OFF"

    def refresh(self) -> None:
        """Makes the copy equal to the tree."""
        wanted = set(_files(self.root))
        for name in wanted:
            text = (self.root / name).read_bytes()
            to = self.folder / name
            if not to.exists() or to.read_bytes() != text:
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(text)
                shutil.copymode(self.root / name, to)
        for name in set(_files_below(self.folder)) - wanted:
            (self.folder / name).unlink()

    def write(self, name: str, text: str) -> None:
        """Writes a source file with a new modification time. Python uses whole seconds and the length to decide whether its
        cache is stale."""
        path = self.folder / name
        path.write_text(text)
        if path.suffix == ".py":
            self.clock = max(self.clock + 2, time.time())
            os.utime(path, (self.clock, self.clock))

    def build(self, targets: Iterable[str]) -> str:
        """Builds the targets. Returns an error text, or nothing."""
        if not (self.folder / "CMakeLists.txt").exists():
            return ""
        if not (self.build_folder / "CMakeCache.txt").exists():
            generator = ["-G", "Ninja"] if shutil.which("ninja") else []
            # Link-time optimization doubles the time of each build. A mutant may leave a variable unused.
            options = ["-DCMAKE_BUILD_TYPE=Release", "-DLINNET_LTO=OFF"]
            configure = ["cmake", "-S", str(self.folder), "-B", str(self.build_folder), *generator, *options]
            code, text = self.run(configure, 300)
            if code:
                return text
        names = [word for target in dict.fromkeys(targets) for word in ("--target", target)]
        code, text = self.run(["cmake", "--build", str(self.build_folder), "-j", str(self.jobs), *names], 1800)
        return text if code else ""

    def program(self, name: str) -> list[str]:
        """Runs a C test program. Programs with random cases run the number of rounds that `make test` uses."""
        source = self.folder / "tests" / "c" / f"{name}.c"
        repeats = source.exists() and "argc > 1 ? atoi(argv[1])" in source.read_text()
        return [str(self.build_folder / name), *(["12"] if repeats else [])]

    def run(self, command: Sequence[str], limit: float) -> tuple[int | None, str]:
        """Runs a command and returns exit status and output, or None if it exceeded `limit` seconds and was killed."""
        # With ccache, __FILE__ in a C test is relative to the build folder.
        place = self.folder if command[0] in (sys.executable, "cmake") else self.build_folder
        with tempfile.TemporaryFile("w+", errors="replace") as out:
            process = subprocess.Popen(
                command, cwd=place, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a test that died may leave servers running
            process.wait()
            out.seek(0)
            return code, out.read()


def _files_below(folder: Path) -> list[str]:
    found = []
    for at, folders, files in os.walk(folder):
        folders[:] = [
            f
            for f in folders
            if f not in {"__pycache__", ".pytest_cache", ".hypothesis"}
            and not (at == str(folder) and f in {"build", "build-tests"})
        ]
        found += [str((Path(at) / name).relative_to(folder)) for name in files]
    return found


def targets_of(mutations: Iterable[Mutation]) -> list[str]:
    """The CMake targets that the tests of these mutations need: C test programs, and the libraries if Python tests run."""
    found: dict[str, None] = {}
    for mutation in mutations:
        for test in mutation.tests:
            names = [test[2:]] if test.startswith("c:") else LIBRARIES
            found.update(dict.fromkeys(names))
    return list(found)


def pytest_command(tests: Iterable[str], *options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *options, *tests]


def check_tests(copy: Copy, mutations: Sequence[Mutation]) -> tuple[dict[str, str], set[str]]:
    """Runs every named test on the unchanged tree. Returns failing tests, which cannot judge, and skipped tests."""
    wrong: dict[str, str] = {}
    skipped: set[str] = set()
    names = dict.fromkeys(test for mutation in mutations for test in mutation.tests)
    for name in names:
        if name.startswith("c:"):
            code, text = copy.run(copy.program(name[2:]), 300)
            if code != 0:
                wrong[name] = text[-2000:]
    nodes = [name for name in names if not name.startswith("c:")]
    for _ in range(2):  # a test that waits may fail on a busy machine: failures count if they occur twice
        failed, left_out = _run_nodes(copy, nodes) if nodes else ({}, set())
        skipped |= left_out
        nodes = list(failed)
    return wrong | failed, skipped


def _run_nodes(copy: Copy, nodes: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """Runs tests of pytest. Returns those that fail or do not exist, with the output, and those that are skipped."""
    wrong: dict[str, str] = {}
    skipped: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [word for word in pytest_command(nodes, f"--junitxml={report}") if word != "-x"]
        _, text = copy.run(command, 3600)
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    for name in nodes:
        file, _, test = name.partition("::")
        own = [
            c for c in cases if c.get("classname") == file[:-3].replace("/", ".") and _is_of(c.get("name", ""), test)
        ]
        states = Counter(child.tag for case in own for child in case if child.tag in {"failure", "error", "skipped"})
        if not own or states["failure"] or states["error"]:
            wrong[name] = text[-3000:]
        elif states["skipped"] == len(own):
            skipped.add(name)
    return wrong, skipped


def _is_of(case: str, test: str) -> bool:
    return not test or case == test or ("[" not in test and case.startswith(test + "["))


def judge(copy: Copy, mutation: Mutation, limit: float) -> Result:
    """Applies one mutation to the copy, runs its tests and reverts it."""
    start = time.monotonic()
    path = copy.folder / mutation.file
    original = path.read_text()
    if original.count(mutation.old) != 1:
        return Result(mutation, NOT_APPLICABLE, 0, f"its old text occurs {original.count(mutation.old)} times")
    try:
        copy.write(mutation.file, original.replace(mutation.old, mutation.new))
        verdict, note = _verdict(copy, mutation, limit)
    finally:
        copy.write(mutation.file, original)
    return Result(mutation, verdict, time.monotonic() - start, note)


def _verdict(copy: Copy, mutation: Mutation, limit: float) -> tuple[str, str]:
    if mutation.file.endswith(".py"):
        try:
            compile((copy.folder / mutation.file).read_text(), mutation.file, "exec")
        except SyntaxError as e:
            return NOT_BUILT, str(e)
    if problem := copy.build(targets_of([mutation])):
        return NOT_BUILT, problem[-2000:]
    programs = [test for test in mutation.tests if test.startswith("c:")]  # cheap tests first
    nodes = [test for test in mutation.tests if not test.startswith("c:")]
    commands = [copy.program(test[2:]) for test in programs]
    if nodes:
        commands.append(pytest_command(nodes))
    for command in commands:
        code, text = copy.run(command, limit)
        if code is None:
            return TIMED_OUT, f"{command[0]}: more than {limit:.0f} s"
        if code != 0:
            return KILLED, text[-2000:]
    return SURVIVED, ""


def _missing(mutation: Mutation) -> list[str]:
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        words = set()
    return [need for need in mutation.needs if need not in words]


def score(
    mutations: Sequence[Mutation], *, jobs: int = 1, limit: float = 150, root: Path = ROOT, folder: Path | None = None
) -> list[Result]:
    """Returns the verdict on each mutation, in order. Prints progress to standard error, one line per mutation."""
    folder = folder or BUILDS / "mutants"
    with contextlib.ExitStack() as held:
        copies = [Copy(root, at, max(1, (os.cpu_count() or 2) // jobs)) for at in _own_folders(folder, jobs, held)]
        return _score(mutations, copies, limit)


def _own_folders(folder: Path, count: int, held: contextlib.ExitStack) -> list[Path]:
    """Folders for copies that no other run is using."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Path] = []
    for i in range(count + 64):
        lock = held.enter_context((folder / f"{i}.lock").open("w"))
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.append(folder / str(i))
        if len(found) == count:
            break
    return found


def _score(mutations: Sequence[Mutation], copies: Sequence[Copy], limit: float) -> list[Result]:
    results = [Result(m, NOT_APPLICABLE, 0, f"the processor lacks {', '.join(_missing(m))}") for m in mutations]
    possible = [m for m in mutations if not _missing(m)]
    for copy in copies:
        copy.refresh()
        if problem := copy.build(targets_of(possible)):
            raise SystemExit(f"the tree itself does not build:\n{problem[-4000:]}")
    wrong, skipped = check_tests(copies[0], possible)
    if wrong:
        names = "".join(f"\n{name}\n{text}" for name, text in wrong.items())
        raise SystemExit(f"without a mutation, these tests already fail or do not exist:{names}")
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for i, mutation in enumerate(mutations):
        if set(mutation.tests) <= skipped:
            results[i] = Result(mutation, NOT_APPLICABLE, 0, "its tests are skipped on this machine")
        elif not _missing(mutation):
            waiting.put(i)

    def work(copy: Copy) -> None:
        while True:
            try:
                i = waiting.get_nowait()
            except queue.Empty:
                return
            results[i] = judge(copy, mutations[i], limit)
            line = f"{mutations[i].part:10} {mutations[i].id:44} {results[i].verdict:14} {results[i].seconds:5.1f} s"
            print(line, file=sys.stderr, flush=True)

    threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def share(results: Iterable[Result]) -> tuple[int, int]:
    """Number of noticed mutations, and number of those that count."""
    verdicts = [result.verdict for result in results]
    return sum(v in NOTICED for v in verdicts), sum(v in COUNTED for v in verdicts)


def table(results: Sequence[Result]) -> str:
    verdicts = (KILLED, TIMED_OUT, SURVIVED, NOT_BUILT, NOT_APPLICABLE)
    lines = [f"{'part':12}" + "".join(f"{verdict:>16}" for verdict in verdicts) + f"{'score':>9}{'seconds':>9}"]
    parts = list(dict.fromkeys(result.mutation.part for result in results))
    for part in [*parts, "all"]:
        own = [result for result in results if part in (result.mutation.part, "all")]
        counts = Counter(result.verdict for result in own)
        noticed, counted = share(own)
        percent = f"{100 * noticed / counted:.1f} %" if counted else "-"
        seconds = sum(result.seconds for result in own)
        lines.append(f"{part:12}" + "".join(f"{counts[v]:>16}" for v in verdicts) + f"{percent:>9}{seconds:>9.0f}")
    for result in results:
        if result.verdict not in NOTICED:
            note = result.note.strip().splitlines()[-1:] or [result.mutation.why]
            lines.append(f"{result.verdict}: {result.mutation.id} ({result.mutation.file}): {note[0]}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="ID", help="an id, its beginning with *, or a part"
    )
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree that work side by side")
    parser.add_argument("--limit", type=float, default=150, help="seconds for the tests of one mutation")
    parser.add_argument("--json", action="store_true", help="the verdicts as JSON instead of the table")
    parser.add_argument("--verbose", action="store_true", help="show what the tests said of each mutation")
    arguments = parser.parse_args()

    def asked(m: Mutation) -> bool:
        return any(o in (m.id, m.part) or (o.endswith("*") and m.id.startswith(o[:-1])) for o in arguments.only)

    mutations = [m for m in load() if not arguments.only or asked(m)]
    if not mutations:
        parser.error("no mutation has this id")
    results = score(mutations, jobs=arguments.jobs, limit=arguments.limit)
    if arguments.verbose:
        for result in results:
            print(f"== {result.mutation.id}: {result.verdict}\n{result.note}", file=sys.stderr)
    if arguments.json:
        rows = [
            {"id": r.mutation.id, "part": r.mutation.part, "verdict": r.verdict, "seconds": round(r.seconds, 1)}
            for r in results
        ]
        noticed, counted = share(results)
        print(json.dumps({"noticed": noticed, "counted": counted, "mutations": rows}, indent=1))
    else:
        print(table(results))
    noticed, counted = share(results)
    return 0 if noticed == counted else 1


if __name__ == "__main__":
    sys.exit(main())
