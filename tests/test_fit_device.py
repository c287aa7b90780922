"""`fit` and `evaluate` on an OpenCL device: the CPU's losses, the same bits in a resumed run, the run's files, and the
options that all sessions of a run share."""
# Dear: PoCL compiles the programs of training steps.

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn
from linnet.ir.function import Tensor
from tests.opencl_device import opencl_device
from tests.py_device import PyDevice
from tests.small_nets import lenet
from tests.test_device_state import model as state_model

ALLOWED = 1e-4


class Places(linnet.Callback):
    """Remembers which devices run the steps of the training session and of the validation session."""

    def __init__(self) -> None:
        self.train: set[str] = set()
        self.validation: set[str] = set()

    def on_end(self, run: Any) -> None:
        self.train = {step.device for step in run.session.steps}
        if run.validate is not None:
            self.validation = {step.device for step in run.validate[0].steps}


def mobilenet_v2(x: Tensor) -> Tensor:
    """The whole MobileNetV2, for ten classes. Residual branches start at 0 (Goyal et al. 2017). Otherwise the network is so
    badly conditioned at the start that even two instruction sets of the CPU differ by 1e-3 after two steps."""

    def block(x: Tensor, out: int, kernel: int, stride: int = 1, groups: int = 1, start: float | None = None) -> Tensor:
        y = nn.conv(x, out, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
        if start is None:
            return linnet.ops.clip(nn.batch_norm(y, True), 0, 6)
        return nn.batch_norm(y, True, scale_start=partial(linnet.init.constant, value=start))

    x = block(x, 32, 3, 2)
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for factor, out, count, stride in rows:
        for i in range(count):
            width = int((x.shape or ())[1])  # type: ignore[arg-type]
            y = block(x, factor * width, 1) if factor > 1 else x
            y = block(y, factor * width, 3, stride if i == 0 else 1, factor * width)
            y = block(y, out, 1, start=0.0 if i else 1.0)
            x = x + y if i else y
    return nn.dense(nn.global_avg_pool(block(x, 1280, 1)), 10)


def graph_of(net: Any, shape: tuple[int, ...], rate: float, accumulate: bool = False) -> linnet.Graph:
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", ("batch", *shape)), graph.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(net(x), t).mean()
    linnet.training.signatures(graph, loss, linnet.Momentum(rate), {"x": x, "t": t}, accumulate=accumulate)
    return graph


def examples(shape: tuple[int, ...], count: int = 32) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.standard_normal((count, *shape), np.float32), "t": rng.integers(0, 10, count).astype(np.int32)}


def small(accumulate: bool = False) -> linnet.Graph:
    """A network whose programs compile quickly."""
    return graph_of(lambda x: nn.dense(nn.dense(x, 16, activation="tanh"), 10), (12,), 0.05, accumulate)


def compare(net: Any, shape: tuple[int, ...], rate: float, count: int, batch: int, epochs: int) -> None:
    graph, data, places = graph_of(net, shape, rate), examples(shape, count), Places()
    fixed: dict[str, Any] = {
        "batch_size": batch,
        "epochs": epochs,
        "validation": data,
        "log_every": 1,
        "progress": False,
    }
    want = linnet.fit(graph, data, **fixed)
    got = linnet.fit(graph, data, device="opencl", callbacks=[places], **fixed)
    assert len(want.steps) == epochs * count // batch
    np.testing.assert_allclose([s["loss"] for s in got.steps], [s["loss"] for s in want.steps], rtol=ALLOWED)
    np.testing.assert_allclose(got["val_loss"], want["val_loss"], rtol=ALLOWED)
    name = opencl_device().name
    assert name in places.train and name in places.validation
    whole = linnet.evaluate(got.model, data, store=got.store, batch_size=batch, device="opencl")
    assert whole["loss"] == got["val_loss"][-1], "the same session options and batches"


def test_lenet_has_the_losses_of_the_cpu() -> None:
    opencl_device()
    compare(lenet, (1, 28, 28), 0.01, 32, 8, 2)


@pytest.mark.more
def test_mobilenet_v2_has_the_losses_of_the_cpu() -> None:
    opencl_device()
    compare(mobilenet_v2, (3, 64, 64), 0.01, 16, 8, 2)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_resumed_run_has_the_same_bits(accumulate: int, tmp_path: Path) -> None:
    """Checkpoints have the values that are on the device."""
    device, data = opencl_device(), examples((12,))
    graph = small(accumulate > 1)
    fixed: dict[str, Any] = {"batch_size": 4, "validation": data, "device": "opencl", "progress": False, "log_every": 1}
    fixed |= {"accumulate": accumulate}

    def saver() -> dict[str, linnet.Saver]:
        return {"saver": linnet.Saver(every=3, best=("val_loss", "min"))}

    straight = linnet.fit(graph, data, steps=6, directory=tmp_path / "straight", **saver(), **fixed)
    linnet.fit(graph, data, steps=3, directory=tmp_path / "two", **saver(), **fixed)
    places = Places()
    linnet.fit(graph, data, steps=6, directory=tmp_path / "two", resume=True, callbacks=[places], **saver(), **fixed)
    assert device.name in places.train
    for name in ("checkpoint-00000003.lnt", "checkpoint-00000006.lnt", "metrics.jsonl"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name
    store = linnet.Store(straight.model)
    store.load(tmp_path / "straight" / "checkpoint-00000006.lnt")
    for name in store:
        np.testing.assert_array_equal(store[name], straight.store[name], name)
    manifest = json.loads((tmp_path / "two" / "manifest.json").read_text())
    assert manifest["machine"]["devices"] == [device.name]
    assert [note["devices"] for note in manifest["resumed"]] == [[device.name]]


def test_a_run_may_continue_on_another_device(tmp_path: Path) -> None:
    opencl_device()
    data = examples((12,))
    fixed: dict[str, Any] = {"batch_size": 8, "directory": tmp_path, "progress": False}
    linnet.fit(small(), data, epochs=1, device="opencl", **fixed)
    there = linnet.fit(small(), data, epochs=2, resume=True, **fixed)
    here = linnet.fit(small(), data, epochs=2, batch_size=8, progress=False)
    np.testing.assert_allclose(there["loss"], here["loss"], rtol=ALLOWED)
    assert json.loads((tmp_path / "manifest.json").read_text())["resumed"][0]["devices"] == []


def test_the_variables_stay_on_the_device_between_steps() -> None:
    """Each step downloads its loss. The host gets the variables once, when the run has ended."""
    device, steps = PyDevice({"matmul": 0.0, "map": 0.0, "add": 0.0, "mul": 0.0}), 6
    x = np.random.default_rng(0).standard_normal((8 * steps, 16)).astype(np.float32)
    options = linnet.SessionOptions(devices=[device])
    history = linnet.fit(state_model(), {"x": x}, batch_size=8, options=options, progress=False)
    assert history.step == steps
    alone = linnet.fit(state_model(), {"x": x}, batch_size=8, progress=False)
    for name in history.store:
        np.testing.assert_allclose(history.store[name], alone.store[name], rtol=1e-5, atol=1e-6)
    assert device.count("download") == steps + len(list(history.store))


def test_a_loss_that_is_not_finite_is_traced_to_its_op(tmp_path: Path) -> None:
    device, data = opencl_device(), examples((12,))
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", ("batch", 12))
    loss = linnet.ops.log(x @ graph.variable("w", linnet.init.glorot((12, 3)))).mean()
    graph.signature("train", {"x": x}, {"loss": loss}, updates=linnet.SGD(0.1).minimize(loss))
    with pytest.raises(linnet.TrainingError) as caught:
        linnet.fit(graph, {"x": data["x"]}, device=device, directory=tmp_path / "run", progress=False)
    assert "became nan in step 1" in str(caught.value) and "the first non-finite result" in str(caught.value)


def test_limits_of_memory_hold_for_the_sessions_of_a_run(tmp_path: Path) -> None:
    opencl_device()
    for options in (
        linnet.SessionOptions(max_bytes=1000),
        linnet.SessionOptions(device="opencl", max_device_bytes=100),
    ):
        with pytest.raises(linnet.GraphError) as caught:
            linnet.fit(small(), examples((12,)), options=options, directory=tmp_path / "run", progress=False)
        assert caught.value.code == 306
        assert not (tmp_path / "run").exists()


def test_an_option_is_given_once() -> None:
    for given in (
        {"threads": 1, "options": linnet.SessionOptions(threads=2)},
        {"device": "opencl", "options": linnet.SessionOptions(device="opencl:0")},
        {"device": "opencl", "options": linnet.SessionOptions(devices=["opencl:0"])},
    ):
        for call in (linnet.fit, linnet.evaluate):
            with pytest.raises(linnet.UsageError, match="are given"):
                call(small(), examples((12,)), **given)


def test_a_wrong_device_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(linnet.FileError, match="nowhere"):
        linnet.fit(small(), examples((12,)), device="nowhere", directory=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
