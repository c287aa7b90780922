"""linnet-train gives the same bits as Python, resumes without a difference, keeps to its memory budget, and reports errors.
Data comes from .npz, .npy and idx files. Kills and failing disks are in test_checkpoint_faults.py."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn, ops
from linnet.data.shuffle import permutation
from linnet.training import signatures
from tests.native import SANITIZED, build

ROWS, BATCH = 220, 32
STEPS = ROWS // BATCH


def _wide(x: linnet.Tensor) -> linnet.Tensor:
    """Activations larger than the weights."""
    image = ops.reshape(x, [0, 1, 8, 8])
    for _ in range(3):
        image = nn.conv(image, 8, 3, padding=1)
        image = ops.tanh(image) * ops.sigmoid(image)  # worth recomputing
    return nn.max_pool(image, 4)


def mlp(
    path: Path,
    batch: int | str = "batch",
    rate: float = 1e-3,
    accumulate: bool = False,
    wide: bool = False,
    **extra: float,
) -> Path:
    """64 inputs, 5 classes, Adam; signatures infer, train, eval, and with accumulate also accumulate and apply."""
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", (batch, 8, 8)), graph.placeholder("t", (batch,), "i32")
    inputs = {"x": x, "t": t}
    logits = nn.dense(nn.dense(nn.flatten(_wide(x) if wide else x), 32, activation="relu"), 5)
    loss = linnet.softmax_cross_entropy(logits, t).mean()
    for name, value in extra.items():
        inputs[name] = graph.placeholder(name, ())
        loss = loss * inputs[name] / value
    graph.signature("infer", {"x": x}, {"logits": logits})
    hits = ops.reduce(logits, kind="argmax", axis=[1], keep_dims=False).equal(t.cast("i64")).cast("f32").mean()
    signatures(graph, loss, linnet.Adam(rate), inputs, {"accuracy": hits}, accumulate=accumulate)
    linnet.passes.run(graph).save(path)
    return path


def examples(rows: int = ROWS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Bytes [rows, 8, 8] and labels: five patterns with noise."""
    rng = np.random.default_rng(seed)
    patterns = np.random.default_rng(7).uniform(60, 190, (5, 8, 8))
    t = rng.integers(0, 5, rows)
    return (patterns[t] + rng.normal(0, 30, (rows, 8, 8))).clip(0, 255).astype(np.uint8), t.astype(np.int32)


def idx(path: Path, array: np.ndarray) -> Path:
    code = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}[array.dtype.str[1:]]
    head = bytes([0, 0, code, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(head + array.astype(array.dtype.newbyteorder(">")).tobytes())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model.lnt, one.npz (f32 in 0..1 and labels), and images.idx, labels.idx of the same."""
    folder = tmp_path_factory.mktemp("train")
    mlp(folder / "model.lnt", accumulate=True)
    images, labels = examples()
    np.savez(folder / "one.npz", x=images.astype(np.float32) * np.float32(1 / 255), t=labels)
    idx(folder / "images.idx", images)
    idx(folder / "labels.idx", labels.astype(np.uint8))
    return folder


def train(cwd: Path, *arguments: object, kind: str = "release") -> subprocess.CompletedProcess[str]:
    command = [str(build(kind, "linnet-train") / "linnet-train"), *map(str, arguments)]
    if "--checkpoint" not in arguments and "--help" not in arguments:
        command.append("--no-checkpoint")
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **SANITIZED}
    )


def lines(done: subprocess.CompletedProcess[str], kind: str = "train") -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [line for line in map(json.loads, done.stdout.splitlines()) if line["kind"] == kind]


def losses(done: subprocess.CompletedProcess[str]) -> list[float]:
    return [float(np.float32(line["loss"])) for line in lines(done)]


def refused(done: subprocess.CompletedProcess[str], *words: str, status: int = 1) -> str:
    """Expects one line on standard error with all the words."""
    assert done.returncode == status, (done.returncode, done.stderr)
    assert done.stderr.startswith("linnet-train: error: ") and done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr, f"no '{word}' in: {done.stderr}"
    return done.stderr


USUAL = ("model.lnt", "--data", "one.npz", "--batch", BATCH, "--json", "--log", 1)


def in_python(folder: Path, epochs: int, seed: int) -> tuple[list[float], linnet.Store]:
    """The same training through Session.run."""
    model = linnet.Model(folder / "model.lnt")
    store = linnet.Store(model)
    session = linnet.Session(model, "train", store=store, threads=1)
    data = np.load(folder / "one.npz")
    found = []
    for epoch in range(epochs):
        order = permutation(ROWS, seed, epoch)
        for step in range(STEPS):
            rows = order[step * BATCH : (step + 1) * BATCH]
            found.append(float(session.run({"x": data["x"][rows], "t": data["t"][rows]})["loss"]))
    return found, store


def test_it_trains_as_python_does_to_the_bit(folder: Path, tmp_path: Path) -> None:
    """Losses and variables after three epochs: same examples, order and arithmetic; threads change nothing."""
    expected, store = in_python(folder, 3, 5)
    for threads in (1, 2):
        path = tmp_path / f"{threads}.ckpt"
        done = train(folder, *USUAL, "--epochs", 3, "--seed", 5, "--threads", threads, "--checkpoint", path)
        assert losses(done) == expected
        found = linnet.load_checkpoint(path)
        assert found.metadata == {"step": str(3 * STEPS), "seed": "5", "batch": str(BATCH), "examples": str(ROWS)}
        for name, value in found.variables.items():
            np.testing.assert_array_equal(value, store[name], err_msg=name)
    assert expected[-1] < 0.9 * expected[0]


def test_every_kind_of_file_gives_the_same_losses(folder: Path, tmp_path: Path) -> None:
    data = dict(np.load(folder / "one.npz"))
    expected = losses(train(folder, *USUAL))
    np.save(tmp_path / "x.npy", data["x"])
    np.save(tmp_path / "t64.npy", data["t"].astype(np.int64))
    np.save(tmp_path / "flat.npy", data["x"].reshape(ROWS, 64))
    np.save(tmp_path / "with,comma.npy", data["x"].reshape(ROWS, 1, 8, 8))
    idx(tmp_path / "x.idx", data["x"])  # big-endian floats
    idx(tmp_path / "t.idx", data["t"])
    np.savez(tmp_path / "more.npz", other=np.zeros(3), t=data["t"].astype(np.uint8), x=data["x"])
    start = ("model.lnt", "--batch", BATCH, "--json", "--log", 1)
    for files in (
        ["--data", f"x={tmp_path}/x.npy,t={tmp_path}/t64.npy"],
        ["--data", f"x={tmp_path}/flat.npy", "--data", f"t={tmp_path}/t.idx"],
        ["--data", f"x={tmp_path}/with,comma.npy,t={tmp_path}/t64.npy"],
        ["--data", f"x={tmp_path}/x.idx,t=labels.idx"],
        ["--data", tmp_path / "more.npz"],
        ["--data", "x=images.idx,t=labels.idx", "--scale", "x=1/255"],
    ):
        found = losses(train(folder, *start, *files))
        assert found == expected, files
    in_order = losses(train(folder, *USUAL, "--in-order"))
    assert in_order != expected and in_order == losses(train(folder, *USUAL, "--in-order", "--seed", 3))
    assert losses(train(folder, *USUAL, "--seed", 1)) != expected


def test_resuming_is_bit_identical(folder: Path, tmp_path: Path) -> None:
    """Stopped after any step, also within an epoch, and resumed: the same losses and variables."""
    steps = 2 * STEPS + 1
    whole = train(folder, *USUAL, "--steps", steps, "--seed", 3, "--checkpoint", tmp_path / "whole")
    expected, kept = losses(whole), linnet.load_checkpoint(tmp_path / "whole")
    for stop in (1, STEPS - 1, STEPS, STEPS + 2):
        path = tmp_path / str(stop)
        first = train(folder, *USUAL, "--steps", stop, "--seed", 3, "--checkpoint", path)
        second = train(folder, *USUAL, "--steps", steps, "--checkpoint", path)  # the seed is in the checkpoint
        assert losses(first) + losses(second) == expected
        found = linnet.load_checkpoint(path)
        assert found.metadata == kept.metadata
        assert all(np.array_equal(found.variables[name], kept.variables[name]) for name in kept.variables)
    again = train(folder, *USUAL, "--steps", steps, "--checkpoint", tmp_path / "whole")
    assert losses(again) == [] and lines(again, "start")[0]["step"] == steps
    fresh = train(folder, *USUAL, "--steps", 2, "--seed", 3, "--checkpoint", tmp_path / "whole", "--fresh")
    assert losses(fresh) == expected[:2]


def test_a_signal_stops_it_with_a_checkpoint(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    command = [str(build("release", "linnet-train") / "linnet-train"), *map(str, USUAL)]
    for number in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(
            [*command, "--steps", "2000000", "--checkpoint", str(path)],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as tool:  # fmt: skip
            assert tool.stdout is not None and tool.stderr is not None
            for _ in range(4):
                tool.stdout.readline()
            tool.send_signal(number)
            tool.stdout.read()
            message = tool.stderr.read()
        assert tool.returncode == 128 + number
        step = int(linnet.load_checkpoint(path).metadata["step"])
        assert f"after step {step}; the checkpoint holds that step" in message
    expected = losses(train(folder, *USUAL, "--steps", step + 2))
    assert losses(train(folder, *USUAL, "--steps", step + 2, "--checkpoint", path)) == expected[step:]


def test_checkpoints_and_evaluation_come_when_they_are_due(folder: Path, tmp_path: Path) -> None:
    images, labels = examples(50, seed=3)
    np.savez(tmp_path / "held.npz", x=images.astype(np.float32) / 255, t=labels)
    done = train(
        folder, *USUAL, "--epochs", 2, "--checkpoint", tmp_path / "a", "--every", 4, "--eval", tmp_path / "held.npz"
    )
    assert [line["step"] for line in lines(done, "checkpoint")] == [4, 8, 12]
    evaluated = lines(done, "eval")
    assert [line["step"] for line in evaluated] == [STEPS, 2 * STEPS]
    model = linnet.Model(folder / "model.lnt")
    store = linnet.Store(model)
    store.load(tmp_path / "a")
    expected = linnet.Session(model, "eval", store=store).run({"x": images.astype(np.float32) / 255, "t": labels})
    assert evaluated[-1]["examples"] == 50  # including the final batch of 18
    np.testing.assert_allclose(evaluated[-1]["loss"], expected["loss"], rtol=1e-5)
    np.testing.assert_allclose(evaluated[-1]["accuracy"], expected["accuracy"], rtol=1e-6)
    only = train(folder, *USUAL, "--steps", 0, "--eval", tmp_path / "held.npz", "--checkpoint", tmp_path / "a")
    assert lines(only, "eval")[0]["loss"] == evaluated[-1]["loss"] and losses(only) == []
    often = train(folder, *USUAL, "--steps", 5, "--eval", tmp_path / "held.npz", "--eval-every", 2)
    assert [line["step"] for line in lines(often, "eval")] == [2, 4, 5]


def test_the_last_few_and_the_best_checkpoints_stay(folder: Path, tmp_path: Path) -> None:
    images, labels = examples(50, seed=3)
    np.savez(tmp_path / "held.npz", x=images.astype(np.float32) / 255, t=labels)
    more = [
        "--checkpoint",
        tmp_path / "a",
        "--every",
        2,
        "--keep",
        3,
        "--eval",
        tmp_path / "held.npz",
        "--eval-every",
        3,
    ]
    (tmp_path / "a.notes").write_text("mine")
    done = train(folder, *USUAL, "--steps", 9, *more, "--best", "loss")
    names = {path.name for path in tmp_path.glob("a*")}
    assert names == {"a", "a.notes", "a.best", "a.6", "a.8", "a.9"}
    assert (tmp_path / "a").read_bytes() == (tmp_path / "a.9").read_bytes()
    evaluated = {line["step"]: line["loss"] for line in lines(done, "eval")}
    best = min(evaluated, key=lambda step: evaluated[step])
    assert linnet.load_checkpoint(tmp_path / "a.best").metadata["step"] == str(best)
    assert lines(done, "best")[-1]["step"] == best
    # An earlier best is known after an interruption: with max, the first loss stays the highest one.
    high = ["--checkpoint", tmp_path / "b", "--eval", tmp_path / "held.npz", "--eval-every", 3, "--best", "loss,max"]
    train(folder, *USUAL, "--steps", 6, *high)
    highest = float(linnet.load_checkpoint(tmp_path / "b.best").metadata["value"])
    done = train(folder, *USUAL, "--steps", 12, *high)
    again = linnet.load_checkpoint(tmp_path / "b.best").metadata
    assert float(again["value"]) == max(highest, *(line["loss"] for line in lines(done, "eval")))
    # The same value again is no better: the checkpoint of the first step with this value stays.
    still = [
        "--checkpoint",
        tmp_path / "c",
        "--eval",
        tmp_path / "held.npz",
        "--eval-every",
        1,
        "--best",
        "accuracy,max",
    ]
    done = train(folder, *USUAL, "--steps", 12, *still)
    records, repeated, most = [], 0, -1.0
    for line in lines(done, "eval"):
        repeated += line["accuracy"] == most
        if line["accuracy"] > most:
            most = line["accuracy"]
            records.append(line["step"])
    assert [line["step"] for line in lines(done, "best")] == records and repeated > 0, records
    refused(train(folder, *USUAL, *high[:-1], "mood"), "--best mood", "no scalar output of this name", status=2)
    refused(train(folder, *USUAL, "--keep", 2), "--keep needs --checkpoint", status=2)
    refused(train(folder, *USUAL, "--best", "loss"), "--best needs --checkpoint FILE and --eval FILE", status=2)


def test_a_checkpoint_that_cannot_be_written_is_refused_first(folder: Path, tmp_path: Path) -> None:
    done = train(folder, *USUAL, "--steps", 3, "--checkpoint", tmp_path / "absent" / "a")
    refused(done, "cannot write", "give a path in an existing folder")
    assert done.stdout == ""


def test_a_fixed_batch_and_numbers_as_inputs(folder: Path, tmp_path: Path) -> None:
    mlp(tmp_path / "fixed.lnt", batch=BATCH, rate=1e-3, factor=2.0)
    done = train(folder, tmp_path / "fixed.lnt", "--data", "one.npz", "--set", "factor=4/2", "--json", "--log", 1,
                 "--eval", "one.npz")  # fmt: skip
    np.testing.assert_allclose(losses(done), losses(train(folder, *USUAL)), rtol=1e-5)
    assert lines(done, "eval")[0]["examples"] == ROWS // BATCH * BATCH  # whole batches only
    other = train(folder, tmp_path / "fixed.lnt", "--data", "one.npz", "--batch", 16, "--set", "factor=2")
    refused(other, "is fixed at 32", status=2)
    refused(train(folder, tmp_path / "fixed.lnt", "--data", "one.npz"), "input 'factor'", "--set factor=NUMBER")


def test_trained_variables_are_used_by_linnet_run(folder: Path, tmp_path: Path) -> None:
    train(folder, *USUAL, "--epochs", 3, "--checkpoint", tmp_path / "a")
    x = np.load(folder / "one.npz")["x"][:3]
    np.save(tmp_path / "x.npy", x)
    tool = build("release", "linnet-run") / "linnet-run"
    command = [str(tool), str(folder / "model.lnt"), "--input", "x.npy", "--checkpoint", "a", "-o", "out"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    model = linnet.Model(folder / "model.lnt")
    store = linnet.Store(model)
    store.load(tmp_path / "a")
    expected = linnet.Session(model, store=store, threads=1).run({"x": x})["logits"]
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "logits.npy"), expected)
    words = [
        "run",
        str(folder / "model.lnt"),
        "--input",
        "x.npy",
        "--checkpoint",
        "a",
        "--threads",
        "1",
        "--output-dir",
        "py",
    ]
    subprocess.run([sys.executable, "-m", "linnet", *words], cwd=tmp_path, check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "py" / "logits.npy"), expected)


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_a_budget_is_met_by_recomputing_then_by_accumulation_or_refused(folder: Path, tmp_path: Path) -> None:
    """Recomputing changes no bit, and a step in parts equals the whole batch; training needs exactly the memory named in the
    refusal."""
    mlp(tmp_path / "wide.lnt", wide=True, accumulate=True)
    usual = (tmp_path / "wide.lnt", *USUAL[1:], "--threads", 1)
    whole = train(folder, *usual)
    full = lines(whole, "start")[0]
    assert full["part"] == BATCH and full["recomputed"] == 0
    none = train(folder, *usual, "--memory", 1000)
    need = int(re.search(r"training needs .*\((\d+) bytes\)", refused(none, "gradients accumulated over parts of"))[1])  # type: ignore[index]
    refused(train(folder, *usual, "--memory", need * 4 // 5), "is not enough")
    ways = []
    for budget in (need, *np.linspace(need, full["peak"], 7).astype(int)[1:-1].tolist(), full["peak"]):
        done = train(folder, *usual, "--memory", budget)
        start = lines(done, "start")[0]
        assert start["memory"] <= start["peak"] <= budget and BATCH % start["part"] == 0
        ways.append((start["part"], start["recomputed"]))
        if start["part"] == BATCH:
            assert losses(done) == losses(whole)
        else:
            np.testing.assert_allclose(losses(done), losses(whole), rtol=2e-5)
    print(f"{need} to {full['peak']} bytes: {ways}")
    assert ways[0][0] < BATCH and ways[-1] == (BATCH, 0)
    assert any(part == BATCH and recomputed for part, recomputed in ways)


def test_a_budget_without_accumulation_says_what_would_help(folder: Path, tmp_path: Path) -> None:
    mlp(tmp_path / "plain.lnt")
    done = train(folder, tmp_path / "plain.lnt", "--data", "one.npz", "--batch", BATCH, "--memory", "50kB")
    refused(done, "--memory: 0.05 MB is not enough", "smaller --batch", "'accumulate' and 'apply'")


LENET = """
import sys, linnet
from linnet import nn, ops
graph = linnet.Graph(seed=1)
x, t = graph.placeholder("x", ("batch", 1, 28, 28)), graph.placeholder("t", ("batch",), "i32")
y = nn.max_pool(nn.conv(x, 6, 5, padding=2, activation="relu"), 2)
y = nn.max_pool(nn.conv(y, 16, 5, activation="relu"), 2)
y = nn.dense(nn.dense(nn.dense(nn.flatten(y), 120, activation="relu"), 84, activation="relu"), 10)
loss = linnet.softmax_cross_entropy(y, t).mean()
graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.SGD(0.05).minimize(loss))
linnet.passes.run(graph).save(sys.argv[1])
"""


def lenet(path: Path, rows: int = 640) -> list[str]:
    """LeNet-5 and data like MNIST; and its training arguments."""
    subprocess.run([sys.executable, "-c", LENET, str(path / "lenet.lnt")], check=True, timeout=120)
    rng = np.random.default_rng(0)
    idx(path / "x.idx", rng.integers(0, 256, (rows, 28, 28)).astype(np.uint8))
    idx(path / "t.idx", rng.integers(0, 10, rows).astype(np.uint8))
    data = f"x={path}/x.idx,t={path}/t.idx"
    return [str(path / "lenet.lnt"), "--data", data, "--scale", "x=1/255", "--batch", "64", "--json", "--log", "1"]


def test_lenet_of_batch_64_stays_below_20_megabytes(tmp_path: Path) -> None:
    """Memory of the whole process: code, libraries, file, buffers. The 60,000 examples are not in memory (47 MB of file)."""
    command = [str(build("release", "linnet-train") / "linnet-train"), *lenet(tmp_path, 60_000), "--no-checkpoint"]
    with subprocess.Popen(
        [*command, "--steps", "1000000", "--threads", "2"], stdout=subprocess.PIPE, text=True
    ) as tool:
        assert tool.stdout is not None
        start = json.loads(tool.stdout.readline())
        for _ in range(30):
            assert json.loads(tool.stdout.readline())["kind"] == "train"
        status = Path(f"/proc/{tool.pid}/status").read_text()
        tool.kill()
    resident = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]
    print(f"LeNet-5, batch 64: {resident / 1e6:.1f} MB resident, {start['peak'] / 1e6:.2f} MB of it allocated")
    assert start["planned"] < resident < 20e6


# ---- what is wrong ---------------------------------------------------------------------------------------------------


def changed(folder: Path, path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **{**dict(np.load(folder / "one.npz")), **arrays})
    return path


@pytest.mark.parametrize("label", [5, 99, -1, -6, 2**31 - 1, -(2**31)])
def test_labels_out_of_range(label: int, folder: Path, tmp_path: Path) -> None:
    labels = np.load(folder / "one.npz")["t"].copy()
    labels[17] = label
    bad = changed(folder, tmp_path / "bad.npz", t=labels)
    kept = tmp_path / "kept"
    train(folder, *USUAL, "--steps", 1, "--checkpoint", kept)
    before = kept.read_bytes()
    order = permutation(ROWS, 0, 0).tolist().index(17) // BATCH + 1
    done = train(folder, "model.lnt", "--data", bad, "--batch", BATCH, "--checkpoint", kept, "--fresh")
    refused(
        done, f"step {order}: index_out_of_range", "'t'", str(label), "row 17 of the data" if label < 0 else "(row 17)"
    )
    assert kept.read_bytes() == before


def test_nan_stops_with_step_op_and_tensor_and_keeps_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    mlp(tmp_path / "wild.lnt", rate=1e30)
    kept = tmp_path / "kept"
    done = train(folder, tmp_path / "wild.lnt", "--data", "one.npz", "--batch", BATCH, "--log", 1, "--checkpoint", kept)
    text = refused(done, "no checkpoint was written", "smaller learning rate")
    assert re.search(r"step \d+: (the loss is (NaN|infinite)|variable '.*' holds NaN or infinity)", text)
    assert re.search(
        r"it first appears in step \d+: op \w+, tensor '.+': \d+ of its values are (NaN|infinite)", text
    ), text
    assert not kept.exists()


def test_nan_in_the_data_is_named_and_the_last_good_checkpoint_stays(folder: Path, tmp_path: Path) -> None:
    x = np.load(folder / "one.npz")["x"].copy()
    order = permutation(ROWS, 0, 0)
    x[order[4 * BATCH + 3], 2, 5] = np.nan  # in step 5
    bad = changed(folder, tmp_path / "bad.npz", x=x)
    done = train(folder, "model.lnt", "--data", bad, "--batch", BATCH, "--checkpoint", tmp_path / "a", "--every", 3)
    refused(done, "step 5: the loss is NaN", f"input 'x' holds NaN or infinity in row {order[4 * BATCH + 3]} of the data",
            "a still holds step 3", "correct the data")  # fmt: skip
    kept = linnet.load_checkpoint(tmp_path / "a")
    assert kept.metadata["step"] == "3" and all(np.isfinite(v).all() for v in kept.variables.values())


def test_infinity_that_the_loss_does_not_show_is_not_saved(tmp_path: Path) -> None:
    """The update overflows although the loss of that step is finite: such a checkpoint would replace the last good one."""
    graph = linnet.Graph()
    x = graph.placeholder("x", ("batch", 1))
    w = graph.variable("weight", np.float32([1]))
    graph.signature("train", {"x": x}, {"loss": (x * w).mean()}, updates={w: w * 1e30})
    graph.save(tmp_path / "m.lnt")
    np.savez(tmp_path / "d.npz", x=np.zeros((8, 1), np.float32))
    done = train(tmp_path, "m.lnt", "--data", "d.npz", "--batch", 2, "--checkpoint", "a", "--every", 1)
    refused(done, "step 2: variable 'weight' holds NaN or infinity", "a still holds step 1", "in step 2: op ")
    assert linnet.load_checkpoint(tmp_path / "a").variables["weight"] == np.float32(1e30)


def test_data_that_does_not_fit(folder: Path, tmp_path: Path) -> None:
    data = dict(np.load(folder / "one.npz"))
    start = ("model.lnt", "--batch", BATCH, "--data")
    np.save(tmp_path / "x.npy", data["x"])
    np.save(tmp_path / "t.npy", data["t"])
    for array, words in (
        (data["x"].astype(np.float64), ("expected f32 [?, 8, 8]", "got f64 [220, 8, 8]", "save the array as f32")),
        (data["x"].reshape(ROWS, 4, 16), ("expected f32 [?, 8, 8]", "got f32 [220, 4, 16]")),
        (data["x"][:, :7], ("expected f32 [?, 8, 8]", "got f32 [220, 7, 8]")),
        (np.float32(3), ("expected f32 [?, 8, 8]", "got f32 []")),
        (data["x"][:50], ("holds 50 examples of input 'x'", "220 of 't'")),
        (data["x"][:0], ("holds 0 examples",)),
        (np.asfortranarray(data["x"]), ("Fortran order",)),
    ):
        refused(train(folder, *start, changed(folder, tmp_path / "bad.npz", x=array)), *words)
    refused(
        train(folder, *start, changed(folder, tmp_path / "bad.npz", t=np.full(ROWS, 2**40))),
        "row ",
        "does not fit the dtype i32",
        "'t'",
    )
    np.savez(tmp_path / "half.npz", x=data["x"])
    refused(train(folder, *start, tmp_path / "half.npz"), "no array 't'; it has: x")
    np.savez_compressed(tmp_path / "small.npz", **data)
    refused(train(folder, *start, tmp_path / "small.npz"), "compressed", "numpy.savez")
    refused(train(folder, *start, f"x={tmp_path}/x.npy"), "input 't' (i32 [?]) was not given", "--data t=FILE")
    refused(train(folder, *start, f"x={tmp_path}/x.npy,y={tmp_path}/t.npy"), "no input 'y'")
    refused(train(folder, *start, f"x={tmp_path}/x.npy,t={tmp_path}/absent.npy"), "absent.npy: cannot open")
    refused(train(folder, *start, f"x={tmp_path}/x.npy,x={tmp_path}/x.npy"), "given twice", status=2)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-5])
    refused(train(folder, *start, f"x={tmp_path}/cut.npy,t={tmp_path}/t.npy"), "the file is truncated")
    (tmp_path / "cut.npz").write_bytes((folder / "one.npz").read_bytes()[:-300])
    refused(train(folder, *start, tmp_path / "cut.npz"), "cut.npz")
    (tmp_path / "x.gz").write_bytes(b"\x1f\x8b" + bytes(50))
    refused(train(folder, *start, f"x={tmp_path}/x.gz,t={tmp_path}/t.npy"), "gunzip")
    (tmp_path / "text").write_text("hello, this is no array")
    refused(train(folder, *start, f"x={tmp_path}/text,t={tmp_path}/t.npy"), "not a .npy, .npz or idx file")
    refused(
        train(folder, "model.lnt", "--batch", 300, "--data", "one.npz"), "220 examples, fewer than one batch of 300"
    )
    refused(train(folder, *start, "one.npz", "--scale", "x=1/255"), "holds f32, and only integers are scaled")


def test_models_that_cannot_be_trained(folder: Path, tmp_path: Path) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", ("batch", 8, 8))
    graph.signature("infer", {"x": x}, {"y": x + 1.0})
    graph.signature("odd", {"x": x}, {"error": x.mean()})
    graph.save(tmp_path / "m.lnt")
    refused(train(folder, tmp_path / "m.lnt", "--data", "one.npz", "--batch", 4), "no signature 'train'", "infer odd")
    odd = train(folder, tmp_path / "m.lnt", "--data", "one.npz", "--batch", 4, "--signature", "odd")
    refused(odd, "signature 'odd' has no scalar output 'loss'")
    refused(train(folder, "model.lnt", "--data", "one.npz"), "no fixed batch size; give --batch N", status=2)
    refused(train(folder, "absent.lnt", "--data", "one.npz", "--batch", 4), "absent.lnt")


def test_checkpoints_that_cannot_be_gone_on_from(folder: Path, tmp_path: Path) -> None:
    mlp(tmp_path / "other.lnt", rate=1e-4)
    path = tmp_path / "a"
    train(folder, *USUAL, "--steps", 3, "--checkpoint", path)
    before = path.read_bytes()
    other = train(folder, tmp_path / "other.lnt", "--data", "one.npz", "--batch", BATCH, "--checkpoint", path)
    text = refused(other, "other_model")
    digests = [linnet.Model(m).metadata("digest") or "?" for m in (folder / "model.lnt", tmp_path / "other.lnt")]
    assert all(digest in text for digest in digests)
    refused(train(folder, *USUAL, "--checkpoint", path, "--seed", 9), "seed 0", status=2)
    half = train(folder, "model.lnt", "--data", "one.npz", "--batch", 16, "--checkpoint", path)
    refused(half, "batches of 32 out of 220", "--fresh")
    assert path.read_bytes() == before
    linnet.Store(linnet.Model(folder / "model.lnt")).save(tmp_path / "python")
    refused(
        train(folder, *USUAL, "--checkpoint", tmp_path / "python"), "does not record step, seed, batch and examples"
    )
    path.write_bytes(before[:-70])
    refused(train(folder, *USUAL, "--checkpoint", path), "truncated")
    half_way = len(before) // 2
    path.write_bytes(before[:half_way] + b"\xff" * 8 + before[half_way + 8 :])
    refused(train(folder, *USUAL, "--checkpoint", path), "corrupt", "use an earlier checkpoint")
    refused(train(folder, *USUAL, "--checkpoint", tmp_path / "no" / "a"), "cannot write", "existing folder")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batch", "0"], ["--batch", "x"], ["--steps", "-1"], ["--steps"], ["--memory", "8 apples"], ["--memory", "0"],
        ["--scale", "x"], ["--scale", "nothing=2"], ["--set", "nothing=2"], ["--nonsense"], ["--epochs", "1", "--steps", "2"],
        ["--every", "3"], ["--eval-every", "3"], ["more.lnt"], ["--shape", "x=1,2"], ["--scale", "x=1/0"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage(arguments: list[str], folder: Path) -> None:
    assert "linnet-train --help" in refused(train(folder, *USUAL, *arguments), status=2)


def test_what_it_learns_is_saved_or_the_trial_is_wanted(folder: Path, tmp_path: Path) -> None:
    """Without a place for the result, nothing is trained, as with `linnet train`."""
    command = [str(build("release", "linnet-train") / "linnet-train"), *map(str, USUAL), "--steps", "1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    refused(done, "the result would not be saved; give --checkpoint FILE, or --no-checkpoint", status=2)
    assert not done.stdout
    both = train(folder, *USUAL, "--checkpoint", tmp_path / "a", "--no-checkpoint")
    refused(both, "give --checkpoint or --no-checkpoint, not both", status=2)
    before = sorted(path.name for path in folder.iterdir())
    assert len(losses(train(folder, *USUAL, "--steps", 2, "--no-checkpoint"))) == 2
    assert sorted(path.name for path in folder.iterdir()) == before


def test_help_and_nothing() -> None:
    assert "usage: linnet-train" in train(Path(), "--help").stdout
    refused(train(Path()), "no model given", status=2)
    refused(train(Path(), "m.lnt"), "no data given", status=2)


def test_a_full_disk_keeps_the_old_checkpoint(folder: Path, tmp_path: Path) -> None:
    """A file size limit simulates a full disk: the error says how much is needed, and the file is unchanged."""
    path = tmp_path / "a"
    train(folder, *USUAL, "--steps", 2, "--checkpoint", path)
    before = path.read_bytes()
    command = [str(build("release", "linnet-train") / "linnet-train"), *map(str, USUAL), "--checkpoint", str(path)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )  # fmt: skip
    refused(done, "write_failed", "larger than the system allows", "is unchanged")
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["a"]


# ---- sanitizers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["address", pytest.param("thread", marks=pytest.mark.more)])
def test_sanitized(kind: str, folder: Path, tmp_path: Path) -> None:
    """Training, evaluation, saving, resuming, accumulation, and the search for a NaN, each under the sanitizers."""
    start = time.monotonic()
    expected = losses(train(folder, *USUAL, "--threads", 3))
    usual = (*USUAL, "--threads", 3, "--checkpoint", tmp_path / "a", "--every", 2, "--eval", "one.npz")
    assert losses(train(folder, *usual, kind=kind)) == expected
    assert losses(train(folder, *usual, "--epochs", 2, kind=kind))
    files = ("--data", "x=images.idx,t=labels.idx", "--scale", "x=1/255")
    mlp(tmp_path / "wide.lnt", wide=True, accumulate=True)
    wide = (tmp_path / "wide.lnt", *files, "--batch", BATCH, "--json", "--threads", 2)
    whole = lines(train(folder, *wide), "start")[0]
    small = train(folder, *wide, "--memory", whole["peak"] * 72 // 100, kind=kind)
    assert lines(small, "start")[0]["part"] < BATCH
    mlp(tmp_path / "wild.lnt", rate=1e30)
    wild = train(folder, tmp_path / "wild.lnt", "--data", "one.npz", "--batch", BATCH, "--threads", 2, kind=kind)
    refused(wild, "it first appears in step")
    print(f"{kind}: {time.monotonic() - start:.1f} s")


def _damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Changes a few bytes, mostly in headers, or cuts off the end."""
    bad = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        ends = int(rng.choice([10, 128, 400, len(bad)]))
        at = int(rng.integers(0, min(ends, len(bad))))
        bad[at if rng.random() < 0.5 else len(bad) - 1 - at] = int(
            rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(256)])
        )
    return bytes(bad[: rng.integers(0, len(bad))] if rng.random() < 0.2 else bad)


def _try_damaged(folder: Path, tmp_path: Path, count: int, seed: int) -> list[int]:
    """Exit statuses of training on damaged data, under AddressSanitizer; each failure is one line."""
    rng, statuses = np.random.default_rng(seed), []
    files = {"one.npz": "", "images.idx": "x=", "labels.idx": "t=", "x.npy": "x="}
    np.save(folder / "x.npy", np.load(folder / "one.npz")["x"])
    for i in range(count):
        name = list(files)[i % len(files)]
        (tmp_path / "bad").write_bytes(_damaged((folder / name).read_bytes(), rng))
        data = {"x": f"x={folder}/x.npy", "t": f"t={folder}/labels.idx"}
        arguments = ["--data", f"{files[name]}{tmp_path}/bad"]
        if files[name]:
            data[files[name][0]] = arguments[1]
            arguments = ["--data", f"{data['x']},{data['t']}"]
        scale = ["--scale", "x=1/255"] if name == "images.idx" else []
        done = train(
            folder, "model.lnt", *arguments, *scale, "--batch", BATCH, "--threads", 1, "--steps", 7, kind="address"
        )
        assert done.returncode in (0, 1, 2), f"seed {seed}, case {i}: {done.stderr[-3000:]}"
        if done.returncode:
            assert done.stderr.startswith("linnet-train: error: ") and done.stderr.count("\n") == 1, done.stderr
        statuses.append(done.returncode)
    return statuses


def test_damaged_data_never_crashes(folder: Path, tmp_path: Path) -> None:
    statuses = _try_damaged(folder, tmp_path, 80, 1)
    assert 20 < statuses.count(1) + statuses.count(2) < 80


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
def test_damaged_data_at_length(seed: int, folder: Path, tmp_path: Path) -> None:
    _try_damaged(folder, tmp_path, 1000, seed)


def test_every_budget_trains_or_refuses(folder: Path, tmp_path: Path) -> None:
    """40 budgets under AddressSanitizer: whichever allocation fails, nothing leaks, and the output is one line or a loss."""
    mlp(tmp_path / "wide.lnt", wide=True, accumulate=True)
    usual = (tmp_path / "wide.lnt", "--data", "one.npz", "--batch", BATCH, "--threads", 1, "--steps", 1)
    ends = set()
    for budget in np.geomspace(1, 2_000_000, 40).astype(int):
        done = train(folder, *usual, "--memory", budget, kind="address")
        assert done.returncode in (0, 1), done.stderr[-3000:]
        if done.returncode:
            refused(done, "not enough; training needs")
        ends.add(done.returncode)
    assert ends == {0, 1}
