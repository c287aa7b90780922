"""`linnet parameter-server` and `linnet worker`: a job from the shell, with a key, also in rounds; and their error messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import linnet
from linnet import nn
from linnet.cli.main import cli
from tests.native import ROOT, build

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
WORKERS, STEPS, BATCH = 2, 12, 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model.lnt and data.npz: 128 points of two classes."""
    path = tmp_path_factory.mktemp("job")
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", ("batch", 6)), graph.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(nn.dense(nn.dense(x, 16, activation="tanh"), 2), t).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(1.0), {"x": x, "t": t}, local=linnet.SGD(0.5))
    graph.save(path / "model.lnt")
    rng = np.random.default_rng(0)
    points = rng.integers(0, 255, (128, 6)).astype(np.uint8)
    np.savez(path / "data.npz", x=points, t=(points[:, 0] > points[:, 1]).astype(np.int32))
    return path


def command(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "linnet", *map(str, arguments)], cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def serve(folder: Path, *arguments: object) -> tuple[subprocess.Popen[str], str]:
    process = command("parameter-server", folder / "model.lnt", *arguments)
    assert process.stdout and process.stderr
    return process, process.stdout.readline().strip() or process.stderr.read()


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def work(folder: Path, address: str, number: int, *arguments: object) -> subprocess.Popen[str]:
    return command(
        "worker", folder / "model.lnt", address, "--data", folder / "data.npz", "--scale", "x=1/255", "--batch", BATCH,
        "--steps", STEPS, "--number", number, "--workers", WORKERS, "--log", 4, "--json", *arguments,
    )  # fmt: skip


@pytest.mark.parametrize("extra", [(), ("--local-steps", 2), ("--compression", "i8"), ("--pull-compression", "bf16")])
def test_a_job_from_the_shell(folder: Path, extra: tuple[object, ...], started: list[subprocess.Popen[str]]) -> None:
    server, address = serve(folder, "--workers", WORKERS)
    workers = [work(folder, address, k, *extra) for k in range(WORKERS)]
    started += [server, *workers]
    for k, worker in enumerate(workers):
        out, err = worker.communicate(timeout=120)
        assert worker.returncode == 0, err
        records = [json.loads(line) for line in out.splitlines()]
        assert [r["step"] for r in records] == [4, 8, 12]
        assert {r["worker"] for r in records} == {k} and {r["outcome"] for r in records} == {"applied"}
        assert records[-1]["loss"] < records[0]["loss"] and records[0]["sent"] > 0
    server.send_signal(signal.SIGTERM)
    out, err = server.communicate(timeout=60)
    assert server.returncode == 0 and out.strip() == f"stopped after {STEPS} updates", err


def test_a_worker_goes_on_where_the_job_is(folder: Path, tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    """Half of the steps, then a stop of all processes, then the other half: the same as without a stop."""
    address = f"unix:{tmp_path}/s"
    stores = []
    for parts in ([6, 12], [12]):
        state = tmp_path / f"state{len(parts)}"
        for steps in parts:
            server, _ = serve(folder, "--workers", WORKERS, "--folder", state, "--listen", address)
            workers = [work(folder, address, k, "--steps", steps) for k in range(WORKERS)]
            started += [server, *workers]
            for worker in workers:
                _, err = worker.communicate(timeout=120)
                assert worker.returncode == 0, err
            server.send_signal(signal.SIGINT)
            assert server.communicate(timeout=60)[0].strip() == f"stopped after {steps} updates"
        with linnet.sync.Server(folder / "model.lnt", folder=state) as again:
            stores.append(again.store.as_dict())
    for name, value in stores[0].items():
        np.testing.assert_array_equal(value, stores[1][name], err_msg=name)


def test_with_a_key(folder: Path, tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    keys = [tmp_path / name for name in ("key", "other")]
    for number, key in enumerate(keys):
        key.write_text(bytes([number + 1] * 32).hex())
        key.chmod(0o600)
    server, address = serve(folder, "--key", keys[0])
    good = work(folder, address, 0, "--workers", 1, "--key", keys[0])
    started += [server, good]
    _, err = good.communicate(timeout=120)
    assert good.returncode == 0, err
    bad = work(folder, address, 0, "--workers", 1, "--key", keys[1], "--lost", "0.5")
    started.append(bad)
    _, err = bad.communicate(timeout=120)
    assert (
        bad.returncode == 1 and "Traceback" not in err and len(err.strip().splitlines()) == 1 and "linnet: error" in err
    )


def test_what_cannot_be_is_one_line(folder: Path, tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    def failing(process: subprocess.Popen[str]) -> str:
        started.append(process)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 1 and not out and len(err.strip().splitlines()) == 1, (out, err)
        return err

    assert "linnet: error" in failing(work(folder, f"unix:{tmp_path}/nobody", 0, "--lost", "0.2"))
    assert "insecure" in failing(command("parameter-server", folder / "model.lnt", "--listen", "*:0"))
    assert "unknown compression" in failing(work(folder, ":1", 0, "--compression", "zip"))
    assert "expected none, f16 or bf16" in failing(work(folder, ":1", 0, "--pull-compression", "i8"))
    assert "update" in failing(command("parameter-server", plain_file(tmp_path)))
    out, err = work(folder, ":1", WORKERS).communicate(timeout=60)
    assert not out and len(err.strip().splitlines()) == 1 and f"0 to {WORKERS - 1}" in err


def plain_file(folder: Path) -> Path:
    graph = linnet.Graph()
    x = graph.placeholder("x", (2,))
    graph.signature("infer", {"x": x}, {"y": x + x})
    graph.save(folder / "plain.lnt")
    return folder / "plain.lnt"


def test_ctrl_c_ends_a_worker_that_waits(folder: Path, started: list[subprocess.Popen[str]]) -> None:
    server, address = serve(folder, "--workers", WORKERS)
    started.append(server)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child that ignores it would continue to do so
    try:
        waiting = work(folder, address, 0)
    finally:
        signal.signal(signal.SIGINT, before)
    started.append(waiting)
    end = time.monotonic() + 30
    while not any(w["pushed"] for w in linnet.sync.status(address)["workers"]):
        assert time.monotonic() < end and waiting.poll() is None
        time.sleep(0.02)
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(10) in (130, -signal.SIGINT)
    assert "Traceback" not in waiting.communicate()[1]


@pytest.mark.parametrize(("old", "new"), [("split", "shard"), ("join", "merge")])
def test_an_old_command_says_the_new_one(old: str, new: str, tmp_path: Path) -> None:
    """It still does the work: the file that is missing is the new command's error. Help lists only the new name."""
    arguments: list[str] = {
        "split": ["-o", str(tmp_path)],
        "join": ["a.lnt=b", "-o", str(tmp_path / "c.lnt")],
    }[old]
    done = command(old, tmp_path / "none.lnt", *arguments).communicate(timeout=60)
    warned, failed = done[1].splitlines()
    assert warned == f"linnet: warning: `linnet {old}` is now `linnet {new}`"
    assert "not_found" in failed and "none.lnt" in failed
    listed = CliRunner().invoke(cli, ["--help"]).output
    assert f"  {new} " in listed and f"  {old} " not in listed


def test_the_old_program_says_the_new_one() -> None:
    old = build("release", "linnet-parameter-server") / "linnet-serve"
    done = subprocess.run([old, "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "linnet-serve: warning: this command is now linnet-parameter-server\n"
    assert done.stdout.startswith("linnet-parameter-server ")


def test_old_functions_say_the_new_ones() -> None:
    for old, new in (("partition", "shard"), ("join", "merge")):
        with pytest.warns(DeprecationWarning, match=f"linnet.sync.{old} is now linnet.sync.{new}"):
            assert getattr(linnet.sync, old) is getattr(linnet.sync, new)
