"""Small acts that say what they do: replaced signatures, converted values, limits in messages, closed streams."""
# Dear: a command is started six times as a process, because a test of closed streams and of interrupts needs one.

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import linnet
from linnet import preprocess
from linnet.cli import peaks
from linnet.cli.main import _main, cli
from linnet.clib.starting import command_of
from linnet.deploy.target import Done
from linnet.deploy.tool_runs import failure
from linnet.quantization.agreement import Agreement
from tests.graphs import bytes_of
from tests.test_compare import network
from tests.test_tool_style import tool

Command = Callable[..., Any]


def graph() -> linnet.Graph:
    made = linnet.Graph()
    x = made.placeholder("x", (1, 4))
    made.signature("infer", {"x": x}, {"y": linnet.ops.relu(x)})
    return made


def test_a_signature_that_is_replaced() -> None:
    made = linnet.Graph()
    x = made.placeholder("x", (1, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.signature("infer", {"x": x}, {"y": linnet.ops.relu(x)})
        made.signature("other", {"x": x}, {"y": linnet.ops.relu(x)})
    with pytest.warns(UserWarning, match="signature 'infer' was defined already") as seen:
        made.signature("infer", {"x": x}, {"y": linnet.ops.softmax(x)})
    assert seen[0].filename == __file__


def test_narrower_floats_are_widened(tmp_path: Path) -> None:
    """From f16 to f32 nothing is lost. Bytes are refused, because networks expect them scaled. linnet-run takes f64 too."""
    session = linnet.Session(graph())
    value = np.array([[0.5, -1.0, 2.0, 0.25]])
    expected = np.maximum(value, 0).astype(np.float32)
    for dtype in (np.float16, np.float32, np.float64):
        assert np.array_equal(session.run({"x": value.astype(dtype)})["y"], expected)
    with pytest.raises(linnet.UsageError, match="expected f32"):
        session.run({"x": np.ones((1, 4), np.uint8)})
    graph().save(tmp_path / "m.lnt")
    np.save(tmp_path / "x.npy", value)
    np.save(tmp_path / "large.npy", value * 1e300)
    done = tool("linnet-run", "m.lnt", "--input", "x.npy", "-o", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected)
    refused = tool("linnet-run", "m.lnt", "--input", "large.npy", cwd=tmp_path)
    assert refused.returncode and "f64" in refused.stderr


def test_messages_name_the_limits() -> None:
    with pytest.raises(linnet.UsageError, match=r"threads= is out of range; expected 0 .* to 1024, got 100000"):
        linnet.Session(graph(), threads=100000)
    for name, value, expected in (
        ("batch_size", 0, "1 or more"),
        ("prefetch", -1, "0 or more"),
        ("shard", (2, 2), "0 to"),
    ):
        with pytest.raises(linnet.UsageError, match=f"{name} has an invalid value; expected .*{expected}"):
            linnet.data.Loader({"x": np.zeros((4, 2), np.float32)}, **{name: value})
    folder: Any = type("Folder", (), {"target": type("Target", (), {"name": "pi"})()})()
    wrong = failure(folder, "linnet-run", Done(1, b"", b"linnet-run: error: wrong_shape: x"), "m.lnt")
    assert "wrong_shape" in str(wrong) and "shorter run" not in str(wrong)


def test_integers_are_compared_as_classes() -> None:
    """Class 7 is not nearer to class 8 than class 1 is, so only the share of equal ones is given."""
    found = Agreement()
    found.add(np.array([1, 5, 7]), np.array([1, 5, 8]))
    figures = found.figures()
    assert figures["equal"] == pytest.approx(2 / 3)
    assert {figures[name] for name in ("sqnr_db", "cosine", "largest", "top1")} == {None}
    floats = Agreement()
    floats.add(np.array([1.0, 2.0]), np.array([1.0, 2.5]))
    assert floats.figures()["equal"] is None and floats.figures()["sqnr_db"] is not None


def test_compare_says_the_memory_of_the_file(tmp_path: Path, linnet_command: Command) -> None:
    """The same bytes as a Session of the file, linnet plan and linnet bench."""
    for name in ("a.lnt", "b.lnt"):
        (tmp_path / name).write_bytes(bytes_of("mlp"))
    session = linnet.Session(tmp_path / "a.lnt", threads=1)
    feeds = {spec.name: np.zeros(spec.shape or (), np.float32) for spec in session.inputs}
    session.run(feeds)
    np.savez(tmp_path / "x.npz", **{name: value[None] for name, value in feeds.items()})
    done = linnet_command("compare", tmp_path / "a.lnt", tmp_path / "b.lnt", "--data", tmp_path / "x.npz", "--threads", "1",
                          "--seconds", "0.01", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {m["memory"] for m in json.loads(done.stdout)["models"]} == {session.memory["total"]}


def test_compare_says_which_models_have_picture_steps(tmp_path: Path, linnet_command: Command) -> None:
    """`--image` reads pictures for a model without these steps. The other model is measured with them."""
    network().save(tmp_path / "plain.lnt")
    preprocess.recipe(network(), "unit").save(tmp_path / "pictures.lnt")
    (tmp_path / "data").mkdir()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "data" / "0.png")
    more = ("--data", tmp_path / "data", "--image", "unit", "--seconds", "0.01", "--threads", "1")
    said = linnet_command("compare", tmp_path / "plain.lnt", tmp_path / "pictures.lnt", *more).stdout
    assert "ms with picture steps: pictures.lnt" in said, said
    said = linnet_command("compare", tmp_path / "pictures.lnt", tmp_path / "pictures.lnt", *more).stdout
    assert "picture steps" not in said and "Agreement" in said, said


def test_plan_says_a_precision_only_if_one_is_given(tmp_path: Path, linnet_command: Command) -> None:
    (tmp_path / "m.lnt").write_bytes(bytes_of("mlp"))
    assert "f32," not in linnet_command("plan", tmp_path / "m.lnt").stdout.splitlines()[1]
    assert "floats may use bf16" in linnet_command("plan", tmp_path / "m.lnt", "--precision", "bf16").stdout


def test_more_than_the_peak_is_explained(
    tmp_path: Path, linnet_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.lnt").write_bytes(bytes_of("mlp"))
    rates = dict.fromkeys(("f32_gflops", "i8_gops", "cache_gbs", "shared_gbs", "memory_gbs"), 1e9)
    words = ("bench", tmp_path / "m.lnt", "--seconds", "0.01", "--threads", "1")
    for share, said in ((1.0, False), (1e-15, True)):
        found = {name: rate * share for name, rate in rates.items()} | {"threads": 1, "isa": "any"}
        monkeypatch.setattr(peaks, "measured", lambda threads, isa, found=found: found)
        assert ("Winograd" in linnet_command(*words).stdout) == said


def trainable(folder: Path) -> None:
    """A model with one weight, and its data: bytes."""
    made = linnet.Graph()
    x, t = made.placeholder("x", (None, 4)), made.placeholder("t", (None, 1))
    w = made.variable("w", np.zeros((4, 1), np.float32))
    loss = linnet.ops.mean(linnet.losses.mse(linnet.ops.matmul(x, w), t))
    (dw,) = linnet.gradients(loss, [w])
    made.signature("train", {"x": x, "t": t}, {"loss": loss}, updates={w: w - 0.01 * dw})
    made.save(folder / "m.lnt")
    np.savez(folder / "d.npz", x=np.full((8, 4), 200, np.uint8), t=np.zeros((8, 1), np.float32))


def test_bytes_without_a_scale_are_noted(tmp_path: Path) -> None:
    trainable(tmp_path)
    words = ("linnet-train", "m.lnt", "--data", "d.npz", "--batch", "4", "--epochs", "1", "--no-checkpoint")
    done = tool(*words, cwd=tmp_path)
    assert done.returncode == 0 and "--scale x=1/255" in done.stderr, done.stderr
    done = tool(*words, "--scale", "x=1/255", cwd=tmp_path)
    assert done.returncode == 0 and "note" not in done.stderr, done.stderr
    small = tool(*words, "--memory", "10", cwd=tmp_path)
    assert "--memory: 10 bytes are not enough" in small.stderr, small.stderr


def test_closed_streams(tmp_path: Path) -> None:
    (tmp_path / "m.lnt").write_bytes(bytes_of("mlp"))
    inspect = f"{sys.executable} -m linnet inspect {tmp_path / 'm.lnt'}"
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        done = subprocess.run(
            ["sh", "-c", f"{inspect} {closed}"], check=False, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0 and "Error" not in done.stderr, done.stderr
        assert ("digest" in done.stdout) == (closed == "2>&-")


def test_an_interrupt_during_the_imports(tmp_path: Path) -> None:
    """One line for a command; other programs keep their traceback."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("raise KeyboardInterrupt\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    for words, expected in ((["-m", "linnet", "--version"], ""), (["-c", "import linnet"], "Traceback")):
        done = subprocess.run(
            [sys.executable, *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | {"PYTHONPATH": path},
        )
        assert done.returncode != 0 and ("Traceback" in done.stderr) == bool(expected)
        assert expected or done.stderr == "linnet: error: interrupted\n"


@pytest.mark.parametrize(
    ("words", "said"), [(("--directory", "runs"), True), (("--directory=runs",), True), ((), False)]
)
def test_interrupted_training_says_how_to_continue(
    words: tuple[str, ...], said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.commands["train"], "callback", interrupt)
    assert _main(["train", "m.lnt", "--data", "d.npz", *words]) == 130
    assert ("run the same command again to continue" in capsys.readouterr().err) == said


def test_frequent_checkpoints_print_few_lines(tmp_path: Path) -> None:
    """linnet-train saves every 5 steps, and says so at the steps that it reports and at the end."""
    trainable(tmp_path)
    words = (
        "linnet-train",
        "m.lnt",
        "--data",
        "d.npz",
        "--batch",
        "4",
        "--steps",
        "45",
        "--checkpoint",
        "c.ckpt",
        "--every",
        "5",
    )
    done = tool(*words, "--log", "20", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    saved = [line.split()[1] for line in done.stdout.splitlines() if "->" in line]
    assert saved == ["20", "40", "45"], done.stdout
    (tmp_path / "c.ckpt").unlink()
    done = tool(*words, "--log", "20", "--json", cwd=tmp_path)  # programs get an object for each
    assert sum('"checkpoint"' in line for line in done.stdout.splitlines()) == 9


def test_which_process_is_a_command() -> None:
    assert command_of(["-m", "linnet", "bench"]) == "linnet" and command_of(["/x/bin/linnet-run", "m"]) == "linnet-run"
    assert command_of(["script.py", "linnet"]) == "" and command_of(["-m", "pytest"]) == "" and command_of([]) == ""
