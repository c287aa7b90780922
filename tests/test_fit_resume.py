"""A run that is interrupted, killed or split gives the same bits as one that is not."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import data, nn
from tests.fit_script import build, examples, run
from tests.native import ROOT
from tests.native import build as native_build

STEPS = 20


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 steps without interruption."""
    directory = tmp_path_factory.mktemp("straight") / "run"
    run(str(directory), STEPS, resume=False)
    return directory


def check(directory: Path, straight: Path, begun: int = 1) -> None:
    for name in ("checkpoint-00000020.lnt", "best.lnt", "metrics.jsonl"):
        assert (directory / name).read_bytes() == (straight / name).read_bytes(), name
    assert len(json.loads((directory / "manifest.json").read_text())["resumed"]) == begun


def test_twenty_steps_are_ten_and_ten_more(tmp_path: Path, straight: Path) -> None:
    first = run(str(tmp_path), 10, resume=False)
    assert first.step == 10 and len(first.records) == 2  # an epoch, and whatever follows the last step
    history = run(str(tmp_path), STEPS)
    check(tmp_path, straight)
    assert [r["step"] for r in history.steps] == list(range(1, 21))  # including those of the first part
    assert run(str(tmp_path), STEPS).step == STEPS  # nothing left to do
    check(tmp_path, straight, 2)


def test_every_place_and_any_number_of_threads(tmp_path: Path, straight: Path) -> None:
    for steps, threads in ((0, 1), (3, 2), (7, 1), (8, 2), (19, 1), (STEPS, 2)):  # 7: between two epochs
        run(str(tmp_path), steps, threads=threads)
    check(tmp_path, straight, 5)


def script(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.fit_script", str(directory), str(STEPS), *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_killed_without_warning(tmp_path: Path, straight: Path) -> None:
    assert script(tmp_path, "SIGKILL", "13").returncode == -9
    assert not (tmp_path / "checkpoint-00000013.lnt").exists()  # resumes after step 10
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "st')  # and a line was only partly written
    run(str(tmp_path), STEPS)
    check(tmp_path, straight)


@pytest.mark.soak
def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Kills the run twelve times, mostly during a write, because every step writes a checkpoint."""
    code = "import sys; from tests.fit_script import run; run(sys.argv[1], 600, every=1)"
    run(str(tmp_path / "straight"), 600, every=1, resume=False)
    rng = np.random.default_rng(0)
    for _ in range(12):
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "killed")], cwd=ROOT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=float(rng.uniform(0.6, 1.4)))
        process.kill()
        process.wait()
    run(str(tmp_path / "killed"), 600, every=1)
    for name in ("checkpoint-00000600.lnt", "best.lnt", "metrics.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name
    assert len(json.loads((tmp_path / "killed" / "manifest.json").read_text())["resumed"]) > 1


@pytest.mark.parametrize(("signal", "code"), [("SIGINT", -2), ("SIGTERM", -15)])
def test_interrupted(tmp_path: Path, straight: Path, signal: str, code: int) -> None:
    done = script(tmp_path, signal, "12")
    assert done.returncode == code, done.stderr
    assert (signal == "SIGINT") == done.stderr.endswith("KeyboardInterrupt\n")
    assert linnet.load_checkpoint(tmp_path / "checkpoint-00000012.lnt").metadata["step"] == "12"
    run(str(tmp_path), STEPS)
    check(tmp_path, straight)


def test_an_error_of_a_callback_or_the_data_saves_the_steps_so_far(tmp_path: Path, straight: Path) -> None:
    class Broken(linnet.Callback):
        def on_step(self, run: linnet.training.Run, metrics: Any) -> None:
            if run.step == 9:
                raise RuntimeError("disk of the callback")

    with pytest.raises(RuntimeError, match="disk"):
        run(str(tmp_path), STEPS, Broken())
    assert (tmp_path / "checkpoint-00000009.lnt").exists()
    run(str(tmp_path), STEPS)
    check(tmp_path, straight)


def test_a_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    def stream(epoch: int) -> Any:
        return data.Loader(data.Arrays(examples()), 8, seed=9).batches(epoch)

    for name, parts in (("a", (STEPS,)), ("b", (9, STEPS))):
        for steps in parts:
            linnet.fit(build, stream, steps=steps, directory=tmp_path / name, resume=True)
    a, b = (tmp_path / name / "checkpoint-00000020.lnt" for name in ("a", "b"))
    assert a.read_bytes() == b.read_bytes()


def test_the_native_trainer_goes_on_and_is_gone_on_from(tmp_path: Path) -> None:
    """Alternating epochs of linnet.fit and linnet-train equal the epochs of either: the same checkpoint, except for its
    metadata."""
    arrays = {**examples(50), "t": examples(50)["t"].astype(np.int32)}
    np.savez(tmp_path / "data.npz", **arrays)
    model = tmp_path / "model.lnt"
    build().save(model)
    loader = data.Loader(data.Arrays(arrays), 8, seed=11, drop_last=True)
    tool = native_build("release", "linnet-train") / "linnet-train"

    def python(epochs: int, start: Path | bool) -> Path:
        directory = tmp_path / f"python{epochs}{start is not False}"
        history = linnet.fit(model, loader, epochs=epochs, directory=directory, resume=start)
        return directory / f"checkpoint-{history.step:08d}.lnt"

    def native(epochs: int, start: Path) -> Path:
        path = tmp_path / f"native{epochs}.lnt"
        path.write_bytes(start.read_bytes())
        command = [
            tool,
            model,
            "--data",
            tmp_path / "data.npz",
            "--batch",
            "8",
            "--epochs",
            str(epochs),
            "--checkpoint",
            path,
        ]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return path

    last = python(3, native(2, python(1, False)))
    found, wanted = linnet.load_checkpoint(last), linnet.load_checkpoint(python(3, False))
    assert found.metadata["step"] == wanted.metadata["step"] == "18" and found.model == wanted.model
    for name, value in wanted.variables.items():
        np.testing.assert_array_equal(found.variables[name], value, err_msg=name)
    with pytest.raises(linnet.UsageError, match=r"another order of the data; expected .*'batch': 4.*'batch': 8"):
        path = native(2, python(1, True))
        linnet.fit(model, data.Loader(data.Arrays(arrays), 4, seed=11, drop_last=True), resume=path)


def accumulating() -> linnet.Graph:
    graph = linnet.Graph(seed=2)
    x, t = graph.placeholder("x", ("batch", 2, 5, 5)), graph.placeholder("t", ("batch",), "i32")
    y = nn.dense(nn.dense(nn.flatten(x), 8, activation="tanh"), 3)
    loss = linnet.softmax_cross_entropy(y, t).mean()
    linnet.training.signatures(graph, loss, linnet.Adam(0.02), {"x": x, "t": t}, accumulate=True)
    return graph


def test_accumulated_gradients_are_those_of_one_large_batch(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"epochs": 3, "shuffle": False, "log_every": 1}
    whole = linnet.fit(accumulating, examples(48), batch_size=16, **arguments)
    parts = linnet.fit(accumulating, examples(48), batch_size=4, accumulate=4, **arguments)
    assert whole.step == parts.step == 9 and len(parts.steps) == 9
    for row, wanted in zip(parts.steps, whole.steps, strict=True):
        assert row["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
    for name in ("dense/weight", "dense_1/bias"):
        np.testing.assert_allclose(parts.store[name], whole.store[name], rtol=1e-3, atol=1e-5)

    class Broken(linnet.data.Arrays):  # at the sixth batch, when two batches of the second step are accumulated
        def take(self, indices: Any) -> data.Batch:
            if 23 in indices:
                raise RuntimeError("broken")
            return super().take(indices)

    with pytest.raises(RuntimeError, match="broken"):
        linnet.fit(accumulating, Broken(examples(48)), batch_size=4, accumulate=4, directory=tmp_path, **arguments)
    found = linnet.fit(
        accumulating, examples(48), batch_size=4, accumulate=4, directory=tmp_path, resume=True, **arguments
    )
    for name, value in parts.store.as_dict().items():
        np.testing.assert_array_equal(found.store[name], value, err_msg=name)
    assert found["loss"] == parts["loss"] and found.steps == parts.steps
    with pytest.raises(linnet.UsageError, match="no signature 'apply' for training with accumulated gradients"):
        linnet.fit(build, examples(), accumulate=2)
    linked = accumulating()
    linked.variables["dense/weight"].value = np.full((50, 8), np.float32(np.inf))
    with pytest.raises(linnet.TrainingError, match=r"became nan in step 1 .*first non-finite result is that of op"):
        linnet.fit(linked, examples(48), accumulate=2)


def test_another_run_is_not_continued(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"steps": 4, "batch_size": 8, "directory": tmp_path}
    linnet.fit(build, examples(), **arguments)
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    for changed, words in (
        ({}, "already holds a run.*checkpoint-00000004.lnt.*resume=True"),
        (
            {"resume": True, "data": examples(40)},
            "cannot be resumed because these settings changed: data, examples; .*examples 52.*examples 40",
        ),
        ({"resume": True, "seed": 1}, "cannot be resumed because these settings changed: seed, data_seed"),
        ({"resume": True, "batch_size": 4}, "batch_size"),
    ):
        given = {"data": examples(), **arguments, **changed}
        with pytest.raises(linnet.UsageError, match=words):
            linnet.fit(build, **given)
    with pytest.raises(linnet.FileError, match="other_model"):
        linnet.fit(lambda: build(0.5), examples(), resume=True, **arguments)
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before
    elsewhere = {**arguments, "directory": tmp_path / "new", "seed": 1, "steps": 6}
    history = linnet.fit(build, examples(), resume=tmp_path / "checkpoint-00000004.lnt", **elsewhere)
    assert history.step == 6
    with pytest.raises(linnet.UsageError, match="resume needs a directory"):
        linnet.fit(build, examples(), resume=True)
