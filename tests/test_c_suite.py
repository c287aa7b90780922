"""Runs every C test program, plain and under AddressSanitizer and UBSan of both compilers, and threaded ones under TSan.
CMake builds each configuration once; a program with a non-zero exit status fails with its output."""
# Dear: each C test runs whole, and under sanitizers; only test_map and test_depthwise take more than 5 seconds.

from __future__ import annotations

import re
import subprocess

import pytest

from tests.native import ROOT, SANITIZED, SANITIZERS, build, c_test, c_tests, run


def _threaded() -> list[str]:
    """Programs that start threads, their own or the library's pool."""
    folder = ROOT / "tests" / "c"
    words = re.compile(r"pthread_create|ln_threads_init|\.threads = (?!1\b)\w")
    return [name for name in c_tests() if words.search((folder / f"{name}.c").read_text())]


def test_there_are_c_tests() -> None:
    assert len(c_tests()) >= 5
    # One of each way to start threads; ThreadSanitizer would see nothing else.
    assert {"test_plan", "test_shared_store", "test_threads", "test_user"} <= set(_threaded())


@pytest.mark.parametrize("name", c_tests())
def test_plain(name: str) -> None:
    run(c_test(build("release"), name, 12), cwd=ROOT, timeout=300)


@pytest.mark.parametrize("kind", SANITIZERS)
@pytest.mark.parametrize("name", c_tests())
def test_address_and_undefined(name: str, kind: str) -> None:
    rounds = 3 if kind == "address" else 1  # random cases; differences between compilers show in the first
    run(c_test(build(kind, *c_tests()), name, rounds), cwd=ROOT, timeout=300, env=SANITIZED)


@pytest.mark.more
@pytest.mark.parametrize("name", _threaded())
def test_threads(name: str) -> None:
    folder = build("thread", *_threaded())
    # setarch -R: gcc 12's TSan cannot place its shadow memory under the most random address layouts of newer kernels.
    run(["setarch", "-R", *c_test(folder, name, 2)], cwd=ROOT, timeout=300, env=SANITIZED)


def test_only_chooses_kernels() -> None:
    """As a developer of one kernel calls it; words that no kernel has are a failure."""
    program = str(build("release", "test_norm") / "test_norm")

    def comparisons(*words: str, status: int = 0) -> int:
        return int(re.findall(r"(\d+) comparisons", run([program, *words], status=status))[0])

    assert 0 < comparisons("--only", "f32") < comparisons()
    assert comparisons("--only", "f32,nonsense", status=1) == 0
    assert (
        "--only needs words" in subprocess.run([program, "--only"], capture_output=True, text=True, check=False).stderr
    )
