"""One process trains with a checkpoint or in a directory; a second one is refused, and the error names the first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.training import directory_lock, finetune_directory
from tests.fit_script import build, examples

from tests.native import ROOT, build as build_native  # isort: skip
from tests.test_train_tool import examples as digits
from tests.test_train_tool import mlp


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command linnet-train with a model and data."""
    folder = tmp_path_factory.mktemp("tool")
    x, t = digits()
    np.savez(folder / "data.npz", x=x, t=t)
    program = build_native("release", "linnet-train") / "linnet-train"
    return [
        str(program),
        str(mlp(folder / "model.lnt")),
        "--data",
        str(folder / "data.npz"),
        "--scale",
        "x=1/255",
        "--batch",
        "32",
        "--log",
        "1",
    ]


Started = Callable[[list[str]], subprocess.Popen[str]]


@pytest.fixture
def started() -> Any:
    """Starts a process, and returns when it has printed a line about its first step."""
    running: list[subprocess.Popen[str]] = []

    def start(command: list[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if line.startswith(("step", "epoch")):
                return process
        raise AssertionError(process.stderr.read())

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_linnet_train(tool: list[str], started: Started, tmp_path: Path) -> None:
    path, lock = tmp_path / "a.ckpt", tmp_path / "a.ckpt.lock"
    checkpoint, endless = ["--checkpoint", str(path)], ["--steps", "100000000"]
    first = started([*tool, *checkpoint, *endless])
    for extra in ([], ["--fresh"]):
        second = subprocess.run([*tool, *checkpoint, *extra], capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 1 and f"another linnet-train that runs, process {first.pid}; end" in second.stderr
    other = subprocess.run(
        [*tool, "--checkpoint", str(tmp_path / "b.ckpt")], capture_output=True, text=True, timeout=60, check=False
    )
    assert other.returncode == 0, other.stderr
    assert lock.read_text() == f"{first.pid}\n"
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.ckpt", "b.ckpt"}
    killed = started([*tool, *checkpoint, *endless])
    killed.kill()
    killed.communicate()
    assert lock.exists(), "nobody can remove the file of a process that was killed"
    step = int(linnet.load_checkpoint(path).metadata["step"])
    again = subprocess.run(
        [*tool, *checkpoint, "--steps", str(step + 2)], capture_output=True, text=True, timeout=60, check=False
    )
    assert again.returncode == 0 and not lock.exists(), again.stderr


RUN = """
import sys, linnet
from tests.fit_script import build, examples
class Tell(linnet.Callback):
    def on_step(self, run, metrics):
        if run.step == 1:
            print("step 1", flush=True)
linnet.fit(build, examples(), steps=100_000_000, batch_size=8, directory=sys.argv[1], resume=True, callbacks=[Tell()])
"""


def test_fit(started: Started, tmp_path: Path) -> None:
    place = tmp_path / "run"
    fixed: dict[str, Any] = {"batch_size": 8, "directory": place, "resume": True, "progress": False}
    first = started([sys.executable, "-c", RUN, str(place)])
    before = (place / "manifest.json").read_bytes()
    with pytest.raises(
        linnet.UsageError, match=rf"another process trains in '.*run'.*got process {first.pid}; end that"
    ):
        linnet.fit(build, examples(), steps=3, **fixed)
    assert (place / "manifest.json").read_bytes() == before
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert (place / "lock").read_text() == f"{first.pid}\n"
    step = int(sorted(place.glob("checkpoint-*.lnt"))[-1].stem[11:]) if any(place.glob("checkpoint-*.lnt")) else 0
    assert linnet.fit(build, examples(), steps=step + 2, **fixed).step == step + 2
    assert not (place / "lock").exists()


def test_another_thread_is_refused_and_the_same_one_is_not(tmp_path: Path) -> None:
    found: list[str] = []

    def other() -> None:
        try:
            with directory_lock.locked(tmp_path):
                found.append("locked")
        except linnet.UsageError as error:
            found.append(str(error))

    def run() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    with directory_lock.locked(tmp_path), directory_lock.locked(tmp_path):
        run()
    run()
    assert f"got process {os.getpid()}" in found[0] and found[1:] == ["locked"]
    assert not list(tmp_path.iterdir())


def test_finetune_holds_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first feature to the end."""
    kept = finetune_directory.Directory(tmp_path, build(), {"seed": 1})
    with kept.held():
        again = finetune_directory.Directory(tmp_path, build(), {"seed": 1})
        file = os.open(tmp_path / directory_lock.NAME, os.O_RDWR)
        monkeypatch.setattr(directory_lock, "_held", {})
        with pytest.raises(linnet.UsageError, match="another process trains in"), again.held():
            pass
        monkeypatch.undo()
        os.close(file)
    assert {entry.name for entry in tmp_path.iterdir()} == {finetune_directory.SETTINGS}


def test_a_first_step_that_fails_leaves_nothing(tmp_path: Path) -> None:
    bad = examples()
    bad["t"][:] = 9
    with pytest.raises(linnet.GraphError):
        linnet.fit(build, bad, directory=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
