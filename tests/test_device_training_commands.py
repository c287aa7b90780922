"""`linnet train`, `linnet finetune` and `linnet.training.finetune` on an OpenCL device: the CPU's results, and options that reach
the sessions."""
# Dear: PoCL compiles the programs of training steps.

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import linnet
from linnet import nn
from linnet.cli.main import _main
from linnet.session.session import Session
from linnet.training.finetune import finetune
from tests.native import build
from tests.opencl_device import opencl_device
from tests.test_fit_device import ALLOWED, examples, small


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The devices of the steps that each signature ran, collected while sessions run."""
    found: dict[str, set[str]] = {}
    usual = Session._plan

    def plan(self: Session, *arguments: Any, **options: Any) -> Any:
        made = usual(self, *arguments, **options)
        found.setdefault(self.signature, set()).update(device.name for device in self._options.devices)
        return made

    monkeypatch.setattr(Session, "_plan", plan)
    return found


def test_train(tmp_path: Path, used: dict[str, set[str]], capsys: pytest.CaptureFixture[str]) -> None:
    device = opencl_device()
    model, data, folder = tmp_path / "model.lnt", tmp_path / "data.npz", tmp_path / "run"
    small().save(model)
    np.savez(data, **examples((12,)))
    usual = ["train", str(model), "--data", str(data), "--eval", str(data), "--batch", "8", "--json"]
    assert _main([*usual, "-o", str(tmp_path / "cpu.lnt")]) == 0
    want = json.loads(capsys.readouterr().out)
    assert used == {"train": set(), "eval": set()}
    assert _main([*usual, "--directory", str(folder), "--device", "opencl", "--threads", "1"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert used == {"train": {device.name}, "eval": {device.name}}
    np.testing.assert_allclose([got["loss"], got["val_loss"]], [want["loss"], want["val_loss"]], rtol=ALLOWED)
    machine = json.loads((folder / "manifest.json").read_text())["machine"]
    assert machine["devices"] == [device.name] and machine["threads"] == 1
    for option in ("--max-bytes", "--max-device-bytes"):
        assert _main([*usual, "--directory", str(tmp_path / "none"), "--device", "opencl", option, "100"]) == 1
        assert option.removeprefix("--") in capsys.readouterr().err
    assert _main([*usual, "--directory", str(tmp_path / "none"), "--device", "opencl:99"]) == 1
    assert "opencl:99" in capsys.readouterr().err and not (tmp_path / "none").exists()


def pictures(root: Path) -> Path:
    """Two easy classes."""
    rng = np.random.default_rng(0)
    for name, shade in (("bright", 200), ("dark", 60)):
        (root / name).mkdir(parents=True)
        for i in range(8):
            pixels = np.clip(shade + rng.standard_normal((20, 20, 3)) * 20, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


def backbone(path: Path) -> Path:
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", ("batch", 3, 16, 16))
    y = nn.conv(x, 8, 3, stride=2, activation="relu", name="first")
    graph.signature("infer", {"x": x}, {"y": nn.dense(nn.global_avg_pool(y), 5)})
    graph.freeze().save(path)
    return path


@pytest.mark.parametrize("unfreeze", [(), ("*",)], ids=["head", "all"])
def test_finetune(unfreeze: tuple[str, ...], tmp_path: Path, used: dict[str, set[str]]) -> None:
    device, model, data = opencl_device(), backbone(tmp_path / "model.lnt"), pictures(tmp_path / "data")
    usual: dict[str, Any] = {"epochs": 3, "batch_size": 4, "validation": 0.25, "unfreeze": unfreeze, "progress": False}
    want = finetune(model, data, **usual)
    used.clear()
    got = finetune(model, data, device="opencl", directory=tmp_path / "run", **usual)
    own = {"train", "eval"} if unfreeze else {"train_head", "eval_head"}
    assert all(used[name] == {device.name} for name in ("features", *own))
    np.testing.assert_allclose(got.history["loss"], want.history["loss"], rtol=ALLOWED)
    assert got.accuracy == want.accuracy
    again = finetune(model, data, device="opencl", directory=tmp_path / "run", **usual)
    for name in again.history.store:
        np.testing.assert_array_equal(again.history.store[name], got.history.store[name], name)


def test_the_command_finetune(tmp_path: Path, used: dict[str, set[str]], capsys: pytest.CaptureFixture[str]) -> None:
    device, model, data = opencl_device(), backbone(tmp_path / "model.lnt"), pictures(tmp_path / "data")
    usual = ["finetune", str(model), "--data", str(data), "--epochs", "2", "--json", "-o", str(tmp_path / "out.lnt")]
    assert _main([*usual, "--device", "opencl"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == ["bright", "dark"]
    assert used["features"] == used["train_head"] == {device.name}
    assert _main([*usual, "--device", "nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_linnet_train(tmp_path: Path) -> None:
    opencl_device()
    tool, library = (build(kind, name) for kind, name in (("release", "linnet-train"), ("release", "linnet_opencl")))
    small().save(tmp_path / "model.lnt")
    np.savez(tmp_path / "data.npz", **examples((12,)))
    losses = []
    for device in ((), ("--device", str(library / "liblinnet_opencl.so"))):
        done = subprocess.run(
            [str(tool / "linnet-train"), str(tmp_path / "model.lnt"), "--data", str(tmp_path / "data.npz"), "--batch", "8",
             "--epochs", "2", "--log", "1", "--json", "--checkpoint", str(tmp_path / f"{len(device)}.ckpt"), *device],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        losses.append([row["loss"] for row in map(json.loads, done.stdout.splitlines()) if row["kind"] == "train"])
    assert len(losses[0]) == 8
    np.testing.assert_allclose(losses[1], losses[0], rtol=ALLOWED)
    stores = [linnet.load_checkpoint(tmp_path / name).variables for name in ("0.ckpt", "2.ckpt")]
    for name, value in stores[0].items():
        np.testing.assert_allclose(stores[1][name], value, rtol=1e-4, atol=1e-5)


def test_outputs_never_overwrite_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = backbone(tmp_path / "model.lnt"), pictures(tmp_path / "data")
    before = model.read_bytes()
    (tmp_path / "link.lnt").symlink_to(model)
    for output in (model, tmp_path / "link.lnt"):
        for command in (
            ["export", str(model), str(output)],
            ["finetune", str(model), "--data", str(data), "-o", str(output)],
            ["finetune", str(model), "--data", str(data), "-o", str(tmp_path / "o.lnt"), "--onnx", str(output)],
        ):
            assert _main(command) == 2
            assert "the output file is the same file as the input model" in capsys.readouterr().err
    assert model.read_bytes() == before
