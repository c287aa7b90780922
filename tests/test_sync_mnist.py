"""MNIST on four processes: the example gives the bits of one process, and its accuracy in each mode and compression. The table of
docs/distributed.md comes from the soak test here: `python -m tests.test_sync_mnist` prints it."""
# Dear: a network is trained by four processes.

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import linnet
from tests.native import ROOT
from tests.test_train_tool import idx

CASES: dict[str, list[str]] = {
    "synchronous": [], "backup 1": ["--backup", "1"], "2 groups": ["--groups", "2", "--rate", "0.02"],
    "asynchronous": ["--mode", "asynchronous", "--rate", "0.005"],
    "asynchronous, staleness 2": ["--mode", "asynchronous", "--staleness", "2", "--rate", "0.005"],
    "federated, 20 local steps": ["--mode", "federated", "--local-steps", "20"],
    "f16": ["--compression", "f16"],
    "bf16": ["--compression", "bf16"], "i8": ["--compression", "i8"], "topk:0.01": ["--compression", "topk:0.01"],
    "1bit": ["--compression", "1bit"],
    "pulls as f16": ["--pull-compression", "f16"], "pulls as bf16": ["--pull-compression", "bf16"],
}  # fmt: skip


def example(arguments: list[str], workers: int = 0, launch: list[str] | None = None) -> dict[str, Any]:
    """The last line of the example: accuracy, steps, bytes. workers: 0 for a single process."""
    command = (
        [sys.executable, "-m", "linnet", "launch", "-n", str(workers), *(launch or []), "-m"]
        if workers
        else [sys.executable, "-m"]
    )
    done = subprocess.run(
        [*command, "examples.training.distributed_mnist", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=900,
        check=False,
    )  # fmt: skip
    if done.returncode and "cannot fetch" in done.stderr + done.stdout:
        pytest.skip("MNIST is out of reach")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line[line.index("{") :] for line in done.stdout.splitlines() if "{" in line]
    return dict(json.loads(lines[-1]))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 600 + 200 blurred bars in ten positions, in the format of MNIST's files."""
    import numpy as np

    folder, rng = tmp_path_factory.mktemp("digits"), np.random.default_rng(0)
    for kind, count in (("train", 600), ("t10k", 200)):
        labels = rng.integers(0, 10, count)
        images = rng.integers(0, 60, (count, 28, 28))
        for image, label in zip(images, labels, strict=True):
            image[:, 2 * label + 3 : 2 * label + 6] += 150
        idx(folder / f"{kind}-images-idx3-ubyte", images.astype(np.uint8))
        idx(folder / f"{kind}-labels-idx1-ubyte", labels.astype(np.uint8))
    return folder


@pytest.mark.parametrize("launch", [[], ["--servers", "2"]], ids=["hosted", "servers"])
def test_four_processes_are_one(launch: list[str], digits: Path, tmp_path: Path) -> None:
    common = ["--data", str(digits), "--epochs", "3", "--accumulate", "4", "--save", str(tmp_path / "trained.lnt")]
    one = example(common)
    alone = linnet.Graph.load(tmp_path / "trained.lnt").variables
    four = example(common, 4, launch)
    assert (four["accuracy"], four["steps"], four["applied"]) == (one["accuracy"], 18, 18)
    found = linnet.Graph.load(tmp_path / "trained.lnt").variables
    for name in [n for n in alone if n.endswith(("weight", "bias"))]:
        assert (found[name].value == alone[name].value).all(), name
    assert one["accuracy"] > 90


def test_an_asynchronous_job_learns_by_eight_bits(digits: Path) -> None:
    found = example(
        ["--data", str(digits), "--epochs", "4", "--rate", "0.01", "--mode", "asynchronous", "--compression", "i8"], 2
    )
    assert found["accuracy"] > 90
    plain = example(["--data", str(digits), "--epochs", "4", "--rate", "0.01", "--mode", "asynchronous"], 2)
    assert found["bytes_sent"] < plain["bytes_sent"] / 3


def kill(launcher: int, role: str, rank: int) -> None:
    """Kills one process of a job with kill -9."""
    for place in Path("/proc").iterdir():
        try:
            words = (place / "environ").read_bytes().split(b"\0")
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == launcher and {f"LINNET_ROLE={role}".encode(), f"LINNET_RANK={rank}".encode()} <= set(words):
            os.kill(int(place.name), signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.parametrize("servers", [0, 2])
def test_processes_that_are_killed_change_nothing(servers: int, digits: Path, tmp_path: Path) -> None:
    """Processes are killed at random moments and restarted by `linnet launch`: the same bits as without kills.

    With two servers, or with workers of which one has the server. (If a worker dies between the answers of two servers,
    only one of them has the step; it then computes with two versions.)"""
    common = ["--data", str(digits), "--epochs", "150", "--accumulate", "4"]
    example([*common, "--save", str(tmp_path / "one.lnt")])
    command = [sys.executable, "-m", "linnet", "launch", "-n", "4", "--servers", str(servers), "--restarts", "50", "-m"]
    command += ["examples.training.distributed_mnist", *common, "--directory", str(tmp_path / "run")]
    job = subprocess.Popen([*command, "--save", str(tmp_path / "four.lnt")], cwd=ROOT)
    chance, kills = random.Random(0), 0
    while job.poll() is None and kills < 12:
        time.sleep(chance.uniform(1.0, 3.0))
        if not list((tmp_path / "run").glob("metrics.jsonl")):
            continue
        kill(
            job.pid, *chance.choice([("worker", 0), ("worker", 2), ("server", 0), ("server", 1)][: 4 if servers else 2])
        )
        kills += 1
    assert job.wait(300) == 0 and kills >= 3
    one, four = (linnet.Graph.load(tmp_path / f"{name}.lnt").variables for name in ("one", "four"))
    for name in [n for n in one if n.endswith(("weight", "bias"))]:
        assert (one[name].value == four[name].value).all(), name


def table(arguments: list[str]) -> Iterator[str]:
    """Markdown rows: accuracy and bytes per step of each case, a single process first."""
    one = example(["--accumulate", "4", *arguments])
    yield f"| one process, 4 batches a step | {one['accuracy']:.2f} % | {one['steps']:,} | | |"
    for name, options in CASES.items():
        found = example([*options, *arguments], 4)
        sent, came = (found[f"bytes_{way}"] / max(found["steps"], 1) / 1e3 for way in ("sent", "received"))
        yield f"| {name} | {found['accuracy']:.2f} % | {found['steps']:,} | {sent:.1f} kB | {came:.1f} kB |"


@pytest.mark.soak
@pytest.mark.network
@pytest.mark.parametrize("name", CASES)
def test_each_mode_reaches_the_accuracy_of_one_process(name: str) -> None:
    one, found = example(["--epochs", "3", "--accumulate", "4"]), example([*CASES[name], "--epochs", "3"], 4)
    print(f"{name}: {found} beside {one}")
    assert found["accuracy"] >= one["accuracy"] - (0.3 if name in ("i8", "topk:0.01", "f16", "bf16") else 0.5)


if __name__ == "__main__":
    for row in table(sys.argv[1:] or ["--epochs", "3"]):
        print(row, flush=True)
