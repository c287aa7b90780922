"""Models with user ops are trained, served, quantized and exported, from Python and from the command line. The op is the crop
of examples/user_op in a C library; Python gives it a gradient of linnet's own ops, so the files name only this op."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn, ops
from linnet.ir.dtypes import numpy_dtype
from linnet.sync.worker import Worker
from tests.native import ROOT, build, compile_c

BATCH, STEPS = 16, 6
MISSING = "needs user op com.example.crop"
Cli = Callable[..., subprocess.CompletedProcess[str]]


def _crop_gradient(inputs: Any, outputs: Any, gradients: Any, start: int, size: int) -> list[linnet.Tensor]:
    (x,), (g,) = inputs, gradients
    return [ops.pad(g, [(0, 0), (start, x.shape[-1] - start - size)])]


def _loss(graph: linnet.Graph, op: linnet.UserOp, dtype: str = "f32") -> tuple[dict[str, Any], Any, Any]:
    """Factors, then the crop, then a product: the gradient of the factors goes through the crop."""
    x, t = graph.placeholder("x", (BATCH, 6), dtype), graph.placeholder("t", (BATCH,), dtype)
    rng = np.random.default_rng(3)
    factors = graph.variable("factors", rng.uniform(0.5, 1.5, 6).astype(numpy_dtype(dtype)))
    weights = graph.variable("weights", rng.standard_normal((3, 1)).astype(numpy_dtype(dtype)))
    y = ops.reshape(ops.matmul(op(ops.tanh(x * factors), start=2, size=3), weights), [BATCH])
    return {"x": x, "t": t}, ((y - t) * (y - t)).mean(), y


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libcrop.so, train.lnt (infer, train, eval), job.lnt (for servers and workers), and data.npz."""
    path = tmp_path_factory.mktemp("trained")
    include = f"-I{ROOT / 'runtime_c' / 'include'}"
    compile_c([ROOT / "examples" / "user_op" / "crop.c"], path / "libcrop.so", "-shared", "-fPIC", include)
    (op,) = linnet.load_user_ops(path / "libcrop.so")
    op.gradient = _crop_gradient
    graph = linnet.Graph(seed=1)
    inputs, loss, y = _loss(graph, op)
    graph.signature("infer", {"x": inputs["x"]}, {"y": y})
    linnet.training.signatures(graph, loss, linnet.SGD(0.5), inputs)
    graph.save(path / "train.lnt")
    graph = linnet.Graph(seed=1)
    inputs, loss, _ = _loss(graph, op)
    linnet.sync.signatures(graph, loss, linnet.SGD(0.5), inputs)
    graph.save(path / "job.lnt")
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (BATCH * STEPS, 6)).astype(np.float32)
    np.savez(path / "data.npz", x=x, t=np.tanh(x[:, 3]).astype(np.float32))
    return path


def _data(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    return dict(np.load(folder / "data.npz"))


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def _start(started: list[subprocess.Popen[str]], *command: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    process = subprocess.Popen(
        list(map(str, command)), cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    started.append(process)
    return process


# ---- gradients and training in Python -----------------------------------------------------------------------------------


def test_a_step_agrees_with_finite_differences() -> None:
    """The op is a Python one in f64. Each factor changes by the learning rate times the slope of the loss."""
    op = linnet.UserOp(
        "com.example.crop",
        lambda x, start, size: x[:, start : start + size],
        lambda x, start, size: (x.dtype, (*x.shape[:-1], size)),
        gradient=_crop_gradient,
    )
    graph = linnet.Graph(seed=1)
    inputs, loss, _ = _loss(graph, op, "f64")
    linnet.training.signatures(graph, loss, linnet.SGD(1.0), inputs)
    rng = np.random.default_rng(5)
    feeds = {"x": rng.uniform(-1, 1, (BATCH, 6)), "t": rng.uniform(-1, 1, BATCH)}

    def measured() -> float:
        return float(linnet.Session(graph, "eval").run(feeds)["loss"])

    slopes = {}
    for name, variable in graph.variables.items():
        if name not in ("factors", "weights"):
            continue
        flat, at = variable.value.reshape(-1), np.zeros(variable.value.size)
        for i in range(flat.size):
            kept, values = flat[i], []
            for change in (1e-6, -1e-6):
                flat[i] = kept + change
                values.append(measured())
            flat[i], at[i] = kept, (values[0] - values[1]) / 2e-6
        slopes[name] = at.reshape(variable.value.shape)
    session = linnet.Session(graph, "train")
    session.run(feeds)
    assert np.abs(slopes["factors"][2:5]).min() > 1e-4 and not slopes["factors"][:2].any()
    for name, slope in slopes.items():
        moved = graph.variables[name].value - session.variables[name]
        np.testing.assert_allclose(moved, slope, rtol=1e-6, atol=1e-9)


def test_fit_from_a_file_returns_a_graph_that_knows_its_ops(folder: Path, tmp_path: Path) -> None:
    user_ops = linnet.load_user_ops(folder / "libcrop.so")
    model = linnet.Model(folder / "train.lnt", user_ops=user_ops)
    history = linnet.fit(model, _data(folder), batch_size=BATCH, epochs=4, progress=False)
    assert history["loss"][-1] < 0.7 * history["loss"][0]
    frozen = history.graph.freeze()
    frozen.save(tmp_path / "frozen.lnt")
    x = _data(folder)["x"][:BATCH]
    got = linnet.Session(tmp_path / "frozen.lnt", user_ops=user_ops).run({"x": x})["y"]
    w, f = (history.graph.variables[name].value for name in ("weights", "factors"))
    np.testing.assert_allclose(got, (np.tanh(x * f)[:, 2:5] @ w)[:, 0], rtol=1e-5, atol=1e-6)


# ---- training on the command line ---------------------------------------------------------------------------------------


def test_train_commands_take_user_ops(folder: Path, tmp_path: Path, linnet_command: Cli) -> None:
    """`linnet train` and linnet-train give the same bits."""
    options = ["--data", str(folder / "data.npz"), "--batch", str(BATCH), "--steps", str(STEPS)]
    tool = str(build("release", "linnet-train") / "linnet-train")
    user_ops = ["--user-ops", str(folder / "libcrop.so")]
    out = tmp_path / "out.lnt"
    missing = linnet_command("train", folder / "train.lnt", *options, "-o", out)
    assert missing.returncode == 1 and MISSING in missing.stderr and not out.exists()
    done = linnet_command("train", folder / "train.lnt", *options, "-o", out, "--json", *user_ops)
    assert done.returncode == 0, done.stderr
    checkpoint = tmp_path / "tool.lnt"
    plain = [tool, str(folder / "train.lnt"), *options, "--checkpoint", str(checkpoint)]
    failed = subprocess.run(plain, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert failed.returncode == 1 and MISSING in failed.stderr
    ran = subprocess.run([*plain, *user_ops], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    trained = linnet.Graph.load(out, user_ops=linnet.load_user_ops(folder / "libcrop.so")).variables
    saved = linnet.load_checkpoint(checkpoint).variables
    start = linnet.Graph.load(folder / "train.lnt").variables
    for name in ("factors", "weights"):
        assert (trained[name].value == saved[name]).all() and (saved[name] != start[name].value).any()


@pytest.mark.parametrize("native", [False, True])
def test_a_job_of_a_server_and_a_worker(folder: Path, native: bool, started: list[subprocess.Popen[str]]) -> None:
    linnet_python = [sys.executable, "-m", "linnet"]
    tool = (
        [build("release", "linnet-parameter-server") / "linnet-parameter-server"]
        if native
        else [*linnet_python, "parameter-server"]
    )
    listen = ["--listen", "127.0.0.1:0"]
    refused = _start(started, *tool, folder / "job.lnt", *listen)
    assert MISSING in refused.communicate(timeout=60)[1] and refused.returncode == 1
    server = _start(started, *tool, folder / "job.lnt", *listen, "--user-ops", folder / "libcrop.so")
    assert server.stdout
    address = server.stdout.readline().removeprefix("listening ").strip()
    job = [folder / "job.lnt", address, "--data", folder / "data.npz", "--batch", BATCH, "--steps", STEPS, "--log", 1]
    alone = _start(started, *linnet_python, "worker", *job)
    assert MISSING in alone.communicate(timeout=60)[1] and alone.returncode == 1
    worker = _start(started, *linnet_python, "worker", *job, "--json", "--user-ops", folder / "libcrop.so")
    out, err = worker.communicate(timeout=120)
    assert worker.returncode == 0, err
    records = [json.loads(line) for line in out.splitlines()]
    assert [r["step"] for r in records] == list(range(1, STEPS + 1)) and {r["outcome"] for r in records} == {"applied"}
    assert records[-1]["loss"] < records[0]["loss"]
    server.send_signal(signal.SIGTERM)
    assert server.communicate(timeout=60)[1] == "" and server.returncode == 0


SCRIPT = """
import json, sys
import numpy as np
import linnet
cluster = linnet.sync.cluster()
model = linnet.Model(sys.argv[1] + "/job.lnt", user_ops=linnet.load_user_ops(sys.argv[1] + "/libcrop.so"))
data = dict(np.load(sys.argv[1] + "/data.npz"))
history = linnet.fit(model, data, batch_size=BATCH, epochs=3, progress=False, cluster=cluster)
if cluster.is_chief:
    print(json.dumps([float(history["loss"][0]), float(history["loss"][-1])]), flush=True)
"""


@pytest.mark.parametrize("servers", [0, 2])
def test_launched_workers_load_the_ops(folder: Path, servers: int, tmp_path: Path, linnet_process: Cli) -> None:
    """With 2 servers, each serves a part of the file."""
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.replace("BATCH", str(BATCH)))
    done = linnet_process("launch", "-n", 2, "--servers", servers, script, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    first, last = json.loads(line.removeprefix("[worker 0] "))
    assert last < first


def test_split_and_join_need_no_user_ops(folder: Path, tmp_path: Path, linnet_command: Cli) -> None:
    done = linnet_command("shard", folder / "job.lnt", "--servers", 2, "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    user_ops = linnet.load_user_ops(folder / "libcrop.so")
    states = [tmp_path / f"state-{k}" for k in range(2)]
    files = [tmp_path / f"server-{k}.lnt" for k in range(2)]
    servers = [linnet.sync.Server(f, folder=s) for f, s in zip(files, states, strict=True)]
    for server in servers:
        server.start(1)
    data = {name: value[:BATCH] for name, value in _data(folder).items()}
    with Worker(linnet.Model(tmp_path / "worker.lnt", user_ops=user_ops), [s.addresses[0] for s in servers]) as worker:
        worker.step(data)
    snapshots = []
    for file, state, server in zip(files, states, servers, strict=True):
        server.wait(30)
        server.close()
        (snapshot,) = state.glob("snapshot*")
        snapshots.append(f"{file}={snapshot}")
    done = linnet_command("merge", folder / "job.lnt", *snapshots, "-o", tmp_path / "whole.lnt")
    assert done.returncode == 0, done.stderr
    before, after = (linnet.Graph.load(path).variables for path in (folder / "job.lnt", tmp_path / "whole.lnt"))
    assert all((before[name].value != after[name].value).any() for name in ("factors", "weights"))


def test_simulate_measures_a_model_with_user_ops(folder: Path, linnet_command: Cli) -> None:
    command = ["simulate", folder / "job.lnt", "--workers", "2", "--steps", 5, "--json"]
    assert MISSING in linnet_command(*command).stderr
    done = linnet_command(*command, "--user-ops", folder / "libcrop.so")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"]["signature"] == "grad"


OPS = """
import linnet
from linnet import nn, ops
LEAKY = linnet.UserOp(
    "com.example.leaky", lambda x: x.clip(0) + x.clip(None, 0) / 8, lambda x: (x.dtype, x.shape),
    gradient=lambda inputs, outputs, gradients: [gradients[0] * ((inputs[0] > 0).cast("f32") * 0.875 + 0.125)],
)
"""


def test_finetune_takes_user_ops(tmp_path: Path, linnet_command: Cli) -> None:
    """All weights are trained, so gradients go through the op."""
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: pip install 'linnet-runtime[image]'")
    rng = np.random.default_rng(0)
    for name in ("bright", "dark"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(8):
            pixels = rng.integers(150, 255, (8, 8, 3)) if name == "bright" else rng.integers(0, 100, (8, 8, 3))
            image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "data" / name / f"{i}.png")
    (tmp_path / "my_ops.py").write_text(OPS)
    leaky = runpy.run_path(str(tmp_path / "my_ops.py"))["LEAKY"]
    graph = linnet.Graph(seed=2)
    x = graph.placeholder("x", ("batch", 3, 8, 8))
    features = nn.flatten(nn.max_pool(leaky(nn.conv(x, 4, 3, padding=1)), 4))
    graph.signature("infer", {"x": x}, {"y": nn.dense(features, 3)})
    graph.freeze().save(tmp_path / "m.lnt")
    command = ["finetune", tmp_path / "m.lnt", "--data", tmp_path / "data", "--epochs", 5, "--lr", 0.01, "--unfreeze", "*",
               "--pixels", "symmetric", "-o", tmp_path / "out.lnt", "--json"]  # fmt: skip
    assert "user op com.example.leaky was not given" in linnet_command(*command).stderr
    done = linnet_command(*command, "--user-ops", tmp_path / "my_ops.py")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["loss"][-1] < report["loss"][0]
    assert any(name.startswith("conv") for name in linnet.Graph.load(tmp_path / "out.lnt", user_ops=[leaky]).variables)
