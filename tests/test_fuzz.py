"""Damaged .lnt files: 100,000 random changes and truncations are opened, planned and run under AddressSanitizer and UBSan.
No crash, no hang, no leak, no error record without text. `make soak` tries a hundred times as many."""
# Dear: thousands of damaged files are opened by a sanitized program.

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.graphs import bytes_of
from tests.native import SANITIZED, SANITIZERS, build

SEEDS = (
    "mlp",
    "conv_net",
    "conv_net_i8",
    "counter",
    "branch",
    "loop",
    "recurrent",
    "gather",
    "data_dependent",
    "dynamic",
    "detector",
    "narrow",
)
TOTAL = 100_000


def _driver(name: str, kind: str) -> Path:
    """Builds tests/fuzz/NAME.c with the sanitized library."""
    return build(kind, name) / name


@pytest.fixture(scope="module")
def fuzzer() -> Path:
    return _driver("fuzz_model", "address")


def _fuzz(fuzzer: Path, name: str, count: int, seed: int, folder: Path) -> dict[str, int]:
    """{outcome: count}. Fails if the fuzzer fails, with the command that reproduces it."""
    path = folder / f"{name}.lnt"
    path.write_bytes(bytes_of(name))
    command = [str(fuzzer), str(path), str(count), str(seed)]
    done = subprocess.run(
        command,
        env={**os.environ, **SANITIZED},
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
        errors="replace",
    )
    if done.returncode != 0:
        text = f"fuzz_model {name}.lnt {count} {seed}: status {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}"
        pytest.fail(text, pytrace=False)
    return {word: int(number) for number, word in re.findall(r"(\d+) (opened|planned|runs)", done.stdout)} | {
        word: int(number) for word, number in re.findall(r" ([a-z_]+) (\d+)(?= |$)", done.stdout.split(";")[1])
    }


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_files(name: str, fuzzer: Path, tmp_path: Path) -> None:
    found = _fuzz(fuzzer, name, TOTAL // len(SEEDS), 1, tmp_path)
    print(f"{name}: {found}")
    # Some files must be refused and some accepted: if all are refused early, nothing after the checksum is tested.
    assert found["opened"] > TOTAL // len(SEEDS) // 50 and found["planned"] > 0 and found["runs"] > 0
    assert found.get("corrupt", 0) > TOTAL // len(SEEDS) // 50


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 22))
@pytest.mark.parametrize("name", SEEDS)
def test_damaged_files_at_length(name: str, seed: int, fuzzer: Path, tmp_path: Path) -> None:
    _fuzz(fuzzer, name, 5 * TOTAL // len(SEEDS), seed, tmp_path)


@pytest.mark.more
def test_damaged_files_under_clang(tmp_path: Path) -> None:
    """A tenth as many, with other seeds."""
    for name in SEEDS:
        _fuzz(_driver("fuzz_model", "address-clang"), name, TOTAL // len(SEEDS) // 10, 1000, tmp_path)


def _random_nodes(kind: str, seeds: range) -> None:
    driver = _driver("fuzz_op", kind)
    for seed in seeds:
        done = subprocess.run(
            [str(driver), "10000", str(seed)], env={**os.environ, **SANITIZED}, capture_output=True, text=True, check=False,
            timeout=3600, errors="replace",
        )  # fmt: skip
        assert done.returncode == 0, f"fuzz_op 10000 {seed}:\n{(done.stdout + done.stderr)[-4000:]}"


@pytest.mark.parametrize("kind", SANITIZERS)
def test_random_nodes(kind: str) -> None:
    """Random attributes, dtypes and shapes of every op through its shape rule and reference kernel."""
    _random_nodes(kind, range(1, 3))


@pytest.mark.soak
@pytest.mark.parametrize("kind", SANITIZERS)
def test_random_nodes_at_length(kind: str) -> None:
    _random_nodes(kind, range(3, 300))
