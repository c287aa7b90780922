"""Records which functions each test executes: `make contexts` runs all tests in an instrumented copy of the tree and writes
tests/contexts.json.gz, from which `make check` chooses the tests of the functions that have changed."""

from __future__ import annotations

import collections
import cProfile
import ctypes
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.tree import ROOT

KEPT = ROOT / "tests" / "contexts.json.gz"
MOST = 16  # tests that are kept for a function: those that execute the fewest others
FROM_A_FILE = 3  # tests of one file among them
CFLAGS = "-fsanitize-coverage=func,inline-8bit-counters,pc-table -gline-tables-only -fno-inline -O1"


# ---- in a process that runs tests ------------------------------------------------------------------------------------


def _name(code: CodeType) -> str | None:
    """FILE:FUNCTION of a function of linnet; a function inside another one counts as the outer one."""
    path = Path(code.co_filename).resolve()
    if not path.is_relative_to(ROOT) or path.parts[len(ROOT.parts)] not in ("pyruntime", "converters"):
        return None
    return f"{path.relative_to(ROOT)}:{code.co_qualname.partition('.<locals>')[0]}"


class Recorder:
    """Writes one line of JSON per test: its name, its processor seconds, and the functions of Python and of C that it called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, dict[CodeType, "str | None"]()
        self.path = folder / f"tests-{os.getpid()}.jsonl"
        self.native = ctypes.CDLL(None)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        native = self.folder / f"native-{os.getpid()}"
        os.environ["LINNET_CONTEXTS"] = str(native)  # of the programs that the test starts
        profile, begun = cProfile.Profile(builtins=False, subcalls=False), os.times()
        profile.enable()
        yield
        profile.disable()
        ended = os.times()
        self.native.contexts_take(str(native).encode())
        called = {self._of(entry.code) for entry in profile.getstats()} - {None}  # type: ignore[attr-defined]
        places = sorted(set(native.read_text().splitlines())) if native.exists() else []
        native.unlink(missing_ok=True)
        seconds = sum(ended[:4]) - sum(begun[:4])
        with open(self.path, "a") as out:
            out.write(json.dumps([item.nodeid, round(seconds, 2), sorted(called), places]) + "\n")

    def _of(self, code: Any) -> str | None:
        if not isinstance(code, CodeType):
            return None
        if code not in self.names:
            self.names[code] = _name(code)
        return self.names[code]


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(os.environ["LINNET_CONTEXTS_FOLDER"])), "linnet-contexts")


# ---- the run ---------------------------------------------------------------------------------------------------------


def _symbols(places: Iterable[str], root: Path) -> dict[str, str]:
    """FILE:FUNCTION of each "LIBRARY OFFSET"."""
    libraries: dict[str, list[str]] = collections.defaultdict(list)
    for place in places:
        library, _, offset = place.rpartition(" ")
        libraries[library].append(offset)
    found = {}
    for library, offsets in libraries.items():
        if not Path(library).exists():  # a program of a test that has removed it
            continue
        words = ["addr2line", "-f", "-e", library, *(f"0x{offset}" for offset in offsets)]
        lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        for offset, function, place in zip(offsets, lines[::2], lines[1::2], strict=True):
            path = Path(place.rpartition(":")[0]).resolve()
            if path.is_relative_to(root):
                found[f"{library} {offset}"] = f"{path.relative_to(root)}:{function}"
    return found


def _kept(tests: dict[str, tuple[float, set[str]]]) -> dict[str, Any]:
    """For each function the tests that execute the fewest functions besides."""
    reached: dict[str, list[str]] = collections.defaultdict(list)
    for name in sorted(tests, key=lambda test: (len(tests[test][1]), tests[test][0], test)):
        for function in tests[name][1]:
            if len(reached[function]) < MOST:
                file = name.partition("::")[0]
                if sum(other.startswith(file + "::") for other in reached[function]) < FROM_A_FILE:
                    reached[function].append(name)
    names = sorted({name for chosen in reached.values() for name in chosen})
    number = {name: i for i, name in enumerate(names)}
    files: dict[str, dict[str, list[int]]] = collections.defaultdict(dict)
    for function in sorted(reached):
        file, _, inner = function.rpartition(":")
        files[file][inner] = [number[name] for name in reached[function]]
    return {"tests": names, "seconds": [tests[name][0] for name in names], "files": files}


def record(arguments: list[str]) -> None:
    """Runs the tests in a copy of the tree, whose C code Clang has instrumented, and writes KEPT."""
    copy = ROOT / "build-tests" / "contexts"
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(copy)], check=True)
    library = copy / "libcontexts.so"
    source = ROOT / "tests" / "ext" / "contexts.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
            "CC": "clang", "CFLAGS": CFLAGS, "LDFLAGS": f"{library} -Wl,-rpath,{copy}", "LINNET_WERROR": "OFF",
            "LD_PRELOAD": str(library), "LINNET_CONTEXTS_FOLDER": folder, "LINNET_CONTEXTS": os.devnull,
            "LINNET_SHARED_MODELS": str(ROOT.parent / "shared" / "models"),
        }  # fmt: skip
        subprocess.run([sys.executable, "-m", "tests.native", "release"], cwd=copy, env=environment, check=True)
        words = ["-q", "-n", str(os.cpu_count() or 2), "--dist", "worksteal", "-p", "tests.contexts"]
        # Sanitizers and compilers of other processors do not take the instrumentation, and run the same functions.
        words += [
            "-m",
            "not (more or soak)",
            "-k",
            "not address and not sanit and not fuzz",
            "--ignore=tests/test_cross.py",
        ]
        subprocess.run([sys.executable, "-m", "pytest", *words, *arguments], cwd=copy, env=environment, check=False)
        lines = [json.loads(line) for path in Path(folder).glob("*.jsonl") for line in path.read_text().splitlines()]
    symbols = _symbols({place for line in lines for place in line[3]}, copy)
    tests = {}
    for name, seconds, called, places in lines:
        native = {symbols[place] for place in places if place in symbols}
        tests[name] = (seconds, set(called) | native)
    data = json.dumps(_kept(tests), separators=(",", ":"), sort_keys=True).encode()
    KEPT.write_bytes(gzip.compress(data, 9, mtime=0))
    print(f"{KEPT.relative_to(ROOT)}: {len(tests)} tests, {KEPT.stat().st_size} bytes")


if __name__ == "__main__":
    record(sys.argv[1:])
