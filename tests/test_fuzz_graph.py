"""Graphs with mutated structure (tests/fuzz/mutate_graph.py: attributes, shapes, quantization, programs, subgraphs), planned
and run with hostile inputs, feeds, bound memory, snapshots, devices and user ops, under both compilers' sanitizers."""
# Dear: a thousand damaged graphs are planned and run by a sanitized program.

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fuzz.mutate_graph import write
from tests.native import ROOT, SANITIZED, SANITIZERS, build

COUNT = 1200
KINDS = ["address", "address-clang"]
# The driver itself counts allocations: its children end too often for leak detection.
QUIET = {**os.environ, **SANITIZED, "ASAN_OPTIONS": "detect_leaks=0:exitcode=99"}


def _exercise(kind: str, paths: list[Path], seed: int = 1, rounds: int = 1) -> dict[str, int]:
    """{outcome: count}. If there was a finding, fails and keeps the named files."""
    driver = str(build(kind, "fuzz_graph") / "fuzz_graph")

    def part(number: int) -> str:
        command = [driver, str(seed + number), str(rounds), *map(str, paths[number::2])]
        done = subprocess.run(command, env=QUIET, capture_output=True, text=True, check=False, errors="replace")
        if done.returncode or ", 0 failed, 0 slow," not in done.stdout:
            pytest.fail(f"{' '.join(command[:3])} ...\n{(done.stdout + done.stderr)[-6000:]}", pytrace=False)
        return done.stdout

    total: dict[str, int] = {}
    with ThreadPoolExecutor(2) as both:
        for text in both.map(part, range(2)):
            for number, word in re.findall(r"(\d+) (opened|planned|runs|loops|bound|fed|placed)", text):
                total[word] = total.get(word, 0) + int(number)
    return total


@pytest.fixture(scope="module")
def mutants(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write(tmp_path_factory.mktemp("mutants"), 0, COUNT)


@pytest.mark.parametrize("kind", SANITIZERS)
def test_changed_graphs(kind: str, mutants: list[Path]) -> None:
    counts = _exercise(kind, mutants)
    print(f"{kind}: {counts}")
    # Some must be refused and some accepted: planning and running are under test.
    assert counts["opened"] > COUNT // 2 and counts["planned"] > COUNT // 4 and counts["runs"] > COUNT // 4
    assert counts["bound"] > COUNT // 10 and counts["fed"] > COUNT // 10 and counts["placed"] > COUNT // 4


def test_every_function_is_called() -> None:
    """The driver calls every function of the headers that takes a model, a store, a plan or a session, or reads a step."""
    include, fuzz, ext = ROOT / "runtime_c" / "include", ROOT / "tests" / "fuzz", ROOT / "tests" / "ext"
    called = "".join(path.read_text() for path in [*fuzz.glob("exercise*.h"), ext / "mock_device.c"])
    headers = "".join((include / f"{name}.h").read_text() for name in ("linnet", "linnet_ext", "linnet_device"))
    functions = set(
        re.findall(r"LINNET_API [^;{]*?\b(linnet_(?:model|store|plan|session|run|step|body|map)\w*)\(", headers)
    )
    elsewhere = {  # and where
        "linnet_model_open",  # tests/test_fuzz.py: from memory
        "linnet_store_save", "linnet_store_load",  # tests/fuzz/fuzz_checkpoint.c
        "linnet_map_prelude",  # tests/test_map_source.py: takes text
    }  # fmt: skip
    functions = {name for name in functions if not name.endswith("_init_sized")}  # the inline initializers call them
    assert len(functions) > 60 and elsewhere < functions
    assert [name for name in sorted(functions - elsewhere) if not re.search(rf"\b{name}\(", called)] == []


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_changed_graphs_at_length(part: int, tmp_path: Path) -> None:
    first = 100_000 + 6000 * part
    _exercise(KINDS[part % 2], write(tmp_path, first, first + 6000), first, 2)
