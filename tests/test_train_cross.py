"""Training on 64-bit ARM under qemu with linnet-train: the same losses as on this machine to 1e-5, step by step.
As a Cortex-A53 and as `max`; either machine continues from the other's checkpoint."""
# Dear: an emulated processor trains.

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import nn
from linnet.training import signatures
from tests.native import ARM_CPUS, build, need, run
from tests.test_train_tool import examples, idx, lenet, mlp

STEPS = 24


def losses(command: list[str], arguments: list[str]) -> np.ndarray:
    trial = [] if "--checkpoint" in arguments else ["--no-checkpoint"]
    lines = map(json.loads, run([*command, *arguments, *trial], timeout=600).splitlines())
    return np.array([line["loss"] for line in lines if line["kind"] == "train"])


def here() -> list[str]:
    return [str(build("release", "linnet-train") / "linnet-train")]


def there(cpu: str) -> list[str]:
    need("qemu-aarch64", "aarch64-linux-gnu-gcc")
    program = build("aarch64", "linnet-train") / "linnet-train"
    return ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", cpu, str(program)]


@pytest.mark.more
@pytest.mark.parametrize("cpu", ARM_CPUS)
def test_lenet_trains_alike(cpu: str, tmp_path: Path) -> None:
    arguments = [*lenet(tmp_path), "--steps", str(STEPS), "--threads", "2"]
    expected, found = losses(here(), arguments), losses(there(cpu), arguments)
    assert len(expected) == STEPS and np.ptp(expected) > 0.01
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    print(f"{cpu}: largest difference {np.abs(found / expected - 1).max():.1e}")


def test_an_mlp_with_adam_trains_alike_and_goes_on_elsewhere(tmp_path: Path) -> None:
    images, labels = examples()
    mlp(tmp_path / "m.lnt")
    idx(tmp_path / "x", images)
    idx(tmp_path / "t", labels)
    arguments = [
        str(tmp_path / "m.lnt"), "--data", f"x={tmp_path}/x,t={tmp_path}/t", "--scale", "x=1/255", "--batch", "32",
        "--json", "--log", "1",
    ]  # fmt: skip
    expected = losses(here(), [*arguments, "--steps", str(2 * STEPS)])
    arm = there("cortex-a53")
    np.testing.assert_allclose(losses(arm, [*arguments, "--steps", str(2 * STEPS)]), expected, rtol=1e-5)
    path = tmp_path / "a"
    first = losses(arm, [*arguments, "--steps", str(STEPS), "--checkpoint", str(path)])
    assert linnet.load_checkpoint(path).metadata["step"] == str(STEPS)
    second = losses(here(), [*arguments, "--steps", str(2 * STEPS), "--checkpoint", str(path)])
    np.testing.assert_allclose(np.concatenate([first, second]), expected, rtol=1e-5)


def lstm(path: Path) -> list[str]:
    """A bidirectional LSTM that learns which half of a sequence has the larger sum; and its training arguments."""
    graph = linnet.Graph(seed=3)
    x, t = graph.placeholder("x", ("batch", 12, 5)), graph.placeholder("t", ("batch",), "i32")
    y, *_ = nn.lstm(x, 20, layers=2, bidirectional=True)
    logits = nn.dense(y.mean(1), 2)
    graph.signature("infer", {"x": x}, {"logits": logits})
    signatures(graph, linnet.softmax_cross_entropy(logits, t).mean(), linnet.Adam(0.01), {"x": x, "t": t})
    linnet.passes.run(graph).save(path / "lstm.lnt")
    rows = np.random.default_rng(0).normal(size=(192, 12, 5)).astype(np.float32)
    labels = (rows[:, :6].sum((1, 2)) > rows[:, 6:].sum((1, 2))).astype(np.int32)
    np.savez(path / "data.npz", x=rows, t=labels)
    return [str(path / "lstm.lnt"), "--data", str(path / "data.npz"), "--batch", "16", "--json", "--log", "1"]


@pytest.mark.parametrize("cpu", ARM_CPUS)
def test_an_lstm_trains_alike(cpu: str, tmp_path: Path) -> None:
    arguments = [*lstm(tmp_path), "--steps", "36", "--threads", "2"]
    expected, found = losses(here(), arguments), losses(there(cpu), arguments)
    assert len(expected) == 36 and expected[-12:].mean() < 0.9 * expected[:12].mean()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    print(f"{cpu}: largest difference {np.abs(found / expected - 1).max():.1e}")
