"""Checkpoints under faults: kill -9 at random moments, every file operation failing in turn, a full disk, interrupted and short
writes, damaged files under the sanitizers. Either the old or the new checkpoint remains, complete."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import linnet
from tests.capi import Allocator, Chain, check, ffi, lib, new_struct
from tests.graphs import bytes_of
from tests.native import ROOT, SANITIZED, build, compile_c, run
from tests.test_fuzz import _driver


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds model.lnt (400 KB in 20 variables), save_forever and faulty_files.so."""
    folder = tmp_path_factory.mktemp("faults")
    graph = linnet.Graph()
    x = graph.placeholder("x", (1,))
    for i in range(20):
        graph.variable(f"v{i}", np.zeros(5000 if i else 1, np.float32))
    graph.signature("infer", {"x": x}, {"y": x + 1.0})
    graph.save(folder / "model.lnt")
    library = build("release", "linnet_static") / "liblinnet.a"
    include = f"-I{ROOT / 'runtime_c' / 'include'}"
    source = ROOT / "tests" / "c" / "save_forever.c"
    compile_c([source, library], folder / "save_forever", include, "-O1", "-lm", "-lpthread")
    compile_c(
        [ROOT / "tests" / "ext" / "faulty_files.c"], folder / "faulty_files.so", "-shared", "-fPIC", "-O1", "-ldl"
    )
    return folder


def value_of(path: Path) -> int:
    """The number that all variables of the checkpoint hold. Raises FileError if it is incomplete."""
    found = linnet.load_checkpoint(path).variables
    assert len(found) == 20
    numbers = {float(n) for value in found.values() for n in np.unique(value)}
    assert len(numbers) == 1, f"variables of several checkpoints in one: {numbers}"
    return int(numbers.pop())


def kills(folder: Path, path: Path, count: int, seed: int) -> list[int]:
    """Kills the saver `count` times; returns the values found afterwards."""
    rng, seen = random.Random(seed), [0]
    for _ in range(count):
        with subprocess.Popen(
            [str(folder / "save_forever"), str(folder / "model.lnt"), str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as saver:
            assert saver.stdout is not None and saver.stderr is not None
            first = saver.stdout.readline()  # so that the kill hits the loop, not the start
            assert first, saver.stderr.read().decode()
            time.sleep(rng.uniform(0, 0.004))
            saver.kill()
            acknowledged = int((first + saver.stdout.read()).decode().split()[-1])
        value = value_of(path)
        # The last acknowledged save is there, or at most the one in progress.
        assert acknowledged <= value <= acknowledged + 1 and value > seen[-1]
        seen.append(value)
    return seen


def test_kill_at_any_moment_leaves_a_whole_checkpoint(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    seen = kills(folder, path, 220, 1)
    assert len(seen) == 221
    assert {p.name for p in tmp_path.iterdir()} <= {"a.ckpt", "a.ckpt.part"}
    run([str(folder / "save_forever"), str(folder / "model.lnt"), str(path), "1"])
    assert {p.name for p in tmp_path.iterdir()} == {"a.ckpt"}  # the next save reuses the file that a kill left


@pytest.mark.soak
def test_kill_at_length(folder: Path, tmp_path: Path) -> None:
    kills(folder, tmp_path / "a.ckpt", 5000, 2)


def save(folder: Path, path: Path, **env: object) -> subprocess.CompletedProcess[str]:
    command = [str(folder / "save_forever"), str(folder / "model.lnt"), str(path), "1"]
    preload = {"LD_PRELOAD": str(folder / "faulty_files.so"), **{key: str(value) for key, value in env.items()}}
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, **preload},
    )  # fmt: skip


def test_every_file_operation_may_fail(folder: Path, tmp_path: Path) -> None:
    """Fails the k-th file operation for every k: a clear error, the old checkpoint unchanged, no other file."""
    path, log = tmp_path / "a.ckpt", tmp_path.parent / f"{tmp_path.name}.log"
    assert save(folder, path).returncode == 0 and value_of(path) == 1
    assert save(folder, path, FAULT_LOG=log).returncode == 0 and value_of(path) == 2
    order = log.read_text()
    # Opened, truncated, written; synced before the rename; then the rename synced.
    assert re.fullmatch(r"otw+srd", order), order
    good = path.read_bytes()
    for k in range(len(order)):
        for number, words in ((errno.ENOSPC, "the disk or its quota is full"), (errno.EIO, "disk I/O error")):
            done = save(folder, path, FAULT_AT=k, FAULT_ERRNO=number)
            if order[k] == "d":  # the rename is done by then: old or new, never half
                assert done.returncode == 0 and value_of(path) == 3
                path.write_bytes(good)
                continue
            assert done.returncode == 1 and done.stderr.startswith("write_failed: "), (k, order[k], done.stderr)
            assert words in done.stderr and str(path) in done.stderr and "is unchanged" in done.stderr
            if number == errno.ENOSPC:
                assert f"{len(good)} bytes free" in done.stderr
            assert path.read_bytes() == good and [p.name for p in tmp_path.iterdir()] == ["a.ckpt"], (k, order[k])


def test_short_and_interrupted_writes(folder: Path, tmp_path: Path) -> None:
    assert save(folder, tmp_path / "a", FAULT_SHORT=1).returncode == 0
    assert save(folder, tmp_path / "b").returncode == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_full_disk(folder: Path, tmp_path: Path) -> None:
    """A real full disk: a file system of 600 KB holds one checkpoint of 400 KB but not a second one."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting a small file system needs root and unshare; run the tests as root in a container")
    script = """
        mount -t tmpfs -o size=600k tmpfs "$1" || exit 77
        "$2/save_forever" "$2/model.lnt" "$1/a" 1 && "$2/save_forever" "$2/model.lnt" "$1/a" 1
        echo "status $?"; ls "$1"; cp "$1/a" "$3"
    """
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), str(folder), str(folder / "kept")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if (done.returncode in (1, 77) and "mount" in done.stderr + done.stdout) or "unshare" in done.stderr:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}; run the container with CAP_SYS_ADMIN")
    assert done.stdout.split() == ["1", "status", "1", "a"], done.stdout + done.stderr
    assert "the disk or its quota is full" in done.stderr and "bytes free" in done.stderr
    assert value_of(folder / "kept") == 1


def test_any_allocation_may_fail(tmp_path: Path) -> None:
    """Fails the k-th allocation of a save and of a load, for every k: a clear out-of-memory error, old checkpoint and values
    unchanged."""
    path = str(tmp_path / "a").encode()
    counts = {}
    for call in ("save", "load"):
        k, failed = 0, True
        while failed:
            allocator = Allocator()
            with Chain(bytes_of("counter"), allocator).make_store() as chain:
                config = new_struct("linnet_checkpoint_config")
                count = lib().linnet_model_variable_count(chain.model)
                names = [ffi.new("char[]", name_of(chain, i)) for i in range(count)]
                list_ = ffi.new("char *[]", names)
                config.variables, config.variable_count = list_, count
                if not (tmp_path / "a").exists():
                    check(lib().linnet_store_save(chain.store, path, config, chain.error), chain.error)
                before = (tmp_path / "a").read_bytes()
                allocator.fail_at, live = allocator.calls + k, allocator.bytes
                if call == "save":
                    status = lib().linnet_store_save(chain.store, path, config, chain.error)
                else:
                    status = lib().linnet_store_load(chain.store, path, chain.error)
                failed = allocator.failed
                assert status == (401 if failed else 0) and allocator.bytes == live, f"{call}: allocation {k}"
                assert (tmp_path / "a").read_bytes() == before and len(list(tmp_path.iterdir())) == 1
            assert not allocator.live and not allocator.faults
            k += 1
        counts[call] = k - 1
    assert counts["save"] >= 1 and counts["load"] >= 3, counts


def name_of(chain: Chain, i: int) -> bytes:
    info = new_struct("linnet_tensor_info")
    check(lib().linnet_model_get_variable(chain.model, i, info), chain.error)
    return bytes(ffi.string(info.name))


def _fuzz(folder: Path, path: Path, driver: Path, count: int, seed: int) -> dict[str, int]:
    done = subprocess.run(
        [str(driver), str(folder / "model.lnt"), str(path), str(count), str(seed)], env={**os.environ, **SANITIZED},
        capture_output=True, text=True, check=False, timeout=3600, errors="replace",
    )  # fmt: skip
    assert done.returncode == 0, f"fuzz_checkpoint {count} {seed}:\n{(done.stdout + done.stderr)[-4000:]}"
    return {word: int(number) for word, number in re.findall(r" ([a-z_]+) (\d+)(?= |$)", done.stdout)}


@pytest.fixture(scope="module")
def fuzzer() -> Path:
    return _driver("fuzz_checkpoint", "address")


def _small(folder: Path) -> Path:
    """A checkpoint of a few variables of several types."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (1,))
    for i, dtype in enumerate(("f4", "i8", "f2", "u1", "?")):
        graph.variable(f"variable {i}", np.zeros((2, i, 3) if i else (), dtype))
    graph.signature("infer", {"x": x}, {"y": x + 1.0})
    graph.save(folder / "model.lnt")
    store = linnet.Store(linnet.Model(folder / "model.lnt"))
    store.save(folder / "small", list(store), {"step": 5, "seed": 7})
    return folder / "small"


def test_damaged_checkpoints(fuzzer: Path, tmp_path: Path) -> None:
    """8,000 random changes and truncations under AddressSanitizer and UBSan: a load takes everything or nothing."""
    found = _fuzz(tmp_path, _small(tmp_path), fuzzer, 8_000, 1)
    print(found)
    assert found["taken"] > 50 and found["corrupt"] > 2000 and found["other_model"] > 20 and found["truncated"] > 20


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 42))
def test_damaged_checkpoints_at_length(seed: int, fuzzer: Path, tmp_path: Path) -> None:
    _fuzz(tmp_path, _small(tmp_path), fuzzer, 100_000, seed)
