"""New values of variables stay on the device that computes them, and the store gets them when somebody reads it: the same
values as with a download in each step, and far fewer bytes."""
# Dear: PoCL compiles the programs of three optimizers.

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.session.device import Device
from tests.capi import ffi, lib
from tests.opencl_device import opencl_device
from tests.py_device import PyDevice
from tests.small_nets import training
from tests.test_device_mock import Mock, mock  # noqa: F401

pytestmark = pytest.mark.usefixtures("few_objects")

RNG = np.random.default_rng(5)
X = RNG.standard_normal((8, 16)).astype(np.float32)
W = RNG.standard_normal((16, 16)).astype(np.float32) / 4
STEPS = 4


def model() -> linnet.Model:
    """Signatures "train" (momentum: the variable and its slot) and "infer". The CPU computes the loss."""
    graph = linnet.Graph()
    x, w = graph.placeholder("x", (8, 16)), graph.variable("w", W)
    y = x @ w
    graph.signature("infer", {"x": x}, {"y": y})
    loss = (y * y).mean()
    (g,) = linnet.gradients(loss, [w])
    slot = graph.variable("slot", np.zeros_like(W))
    after = 0.5 * slot + g
    graph.signature("train", {"x": x}, {"loss": loss}, updates={slot: after, w: w - 0.25 * after})
    return linnet.Model(graph)


def device(**more: Any) -> PyDevice:
    return PyDevice({"matmul": 0.0, "map": 0.0, "add": 0.0, "mul": 0.0}, **more)


def expose(store: linnet.Store) -> None:
    """Asks for the variables' addresses: from then on each step downloads them."""
    for name in store:
        assert lib().linnet_store_data(store.pointer, name.encode(), lib().LINNET_READ, ffi.NULL)


def trained(steps: int = STEPS) -> dict[str, np.ndarray]:
    """The values after some steps, each of which downloads them."""
    m = model()
    store = linnet.Store(m)
    expose(store)
    d = device()
    session = linnet.Session(m, "train", devices=[d], store=store)
    for _ in range(steps):
        session.run({"x": X})
    assert d.count("download") == 3 * steps
    return store.as_dict()


class Trained:
    """A session that has made some steps, whose values no host has seen."""

    def __init__(self, steps: int = STEPS, device_: PyDevice | None = None) -> None:
        self.device = device_ or device()
        self.model = model()
        self.store = linnet.Store(self.model)
        self.session = linnet.Session(self.model, "train", devices=[self.device], store=self.store)
        for _ in range(steps):
            self.step()
        assert self.device.count("download") == steps, "what the CPU reads"

    def step(self) -> None:
        self.session.run({"x": X})

    def agrees(self, steps: int = STEPS) -> None:
        want = trained(steps)
        assert len(want) == 2
        for name, value in want.items():
            np.testing.assert_array_equal(self.store[name], value, name)

    def end(self) -> None:
        del self.session
        gc.collect()
        assert self.device.nothing_left() and not self.device.faults


def test_a_read_fetches_the_variable_once() -> None:
    t = Trained()
    t.agrees()
    t.agrees()
    assert t.device.count("download") == STEPS + 2
    uploads = t.device.count("upload")
    t.step()
    assert t.device.count("upload") == uploads + 1, "the batch alone"
    assert t.device.count("download") == STEPS + 3
    t.agrees(STEPS + 1)
    t.end()


def test_a_trace_counts_the_transfers_that_were_made() -> None:
    m = model()
    session = linnet.Session(m, "train", devices=[device()], store=linnet.Store(m), trace=True)
    for _ in range(STEPS):
        session.run({"x": X})
    moved = {(s.kernel, s.bytes, s.runs) for s in session.steps if s.kernel in ("upload", "download")}
    assert moved == {
        ("upload", X.nbytes, STEPS),
        ("download", X.nbytes, STEPS),
        ("upload", W.nbytes, 1),
        ("download", W.nbytes, 0),
    }


def test_a_checkpoint_has_the_values(tmp_path: Path) -> None:
    t = Trained()
    t.store.save(tmp_path / "c.lnt")
    other = linnet.Store(t.model)
    other.load(tmp_path / "c.lnt")
    for name, value in trained().items():
        np.testing.assert_array_equal(other[name], value, name)
    t.step()
    t.store.load(tmp_path / "c.lnt")  # in place of values that the device alone has
    downloads = t.device.count("download")
    t.agrees()
    assert t.device.count("download") == downloads
    t.step()
    t.agrees(STEPS + 1)
    t.end()


@pytest.mark.parametrize("where", ["cpu", "the device", "another device"])
def test_other_sessions_see_the_values(where: str) -> None:
    t = Trained()
    others = {"cpu": [], "the device": [t.device], "another device": [device(name="other")]}[where]
    infer = linnet.Session(t.model, "infer", devices=others, store=t.store)
    np.testing.assert_allclose(infer.run({"x": X})["y"], X @ trained()["w"], rtol=1e-4, atol=1e-5)
    train = linnet.Session(t.model, "train", devices=others, store=t.store)
    if where == "cpu":
        t.step()
        train.run({"x": X})
        for name, value in trained(STEPS + 2).items():
            np.testing.assert_allclose(t.store[name], value, rtol=1e-4, atol=1e-5)
    else:
        for _ in range(2):  # by turns: each has what the other one has computed
            t.step()
            train.run({"x": X})
        t.agrees(STEPS + 4)
    del infer, train
    t.end()


def test_a_variable_that_is_written_goes_up_and_the_other_stays() -> None:
    t, want = Trained(), linnet.Store(model())
    w = (2 * W).astype(np.float32)
    uploads = t.device.count("upload")
    t.store["w"] = w
    np.testing.assert_array_equal(t.store["w"], w)
    assert t.device.count("download") == STEPS, "what is overwritten is not fetched"
    t.step()
    assert t.device.count("upload") == uploads + 2
    for name, value in trained().items():
        want[name] = w if name == "w" else value
    expose(want)
    other = linnet.Session(want.model, "train", devices=[device()], store=want)
    other.run({"x": X})
    for name in want:
        np.testing.assert_array_equal(t.store[name], want[name], name)
    t.end()


def test_snapshots_follow_the_values() -> None:
    t = Trained()
    infer = linnet.Session(t.model, "infer", store=t.store, snapshot=True)
    for steps in range(STEPS, STEPS + 3):
        np.testing.assert_allclose(infer.run({"x": X})["y"], X @ trained(steps)["w"], rtol=1e-4, atol=1e-5)
        t.step()
    t.agrees(STEPS + 3)
    del infer
    t.step()
    t.step()
    downloads = t.device.count("download")
    t.step()
    assert t.device.count("download") == downloads + 1, "no snapshot follows them any more"
    t.agrees(STEPS + 6)
    t.end()


def test_the_values_outlive_the_session() -> None:
    t = Trained()
    t.end()
    t.agrees()


def test_a_store_that_nobody_else_has_gets_nothing() -> None:
    d = device()
    session = linnet.Session(model(), "train", devices=[d])
    session.run({"x": X})
    pointer = session.variables.pointer
    assert pointer
    downloads = d.count("download")
    del session, pointer
    gc.collect()
    assert d.nothing_left() and d.count("download") <= downloads + 2


def test_an_address_has_the_values_from_then_on() -> None:
    t = Trained()
    shape = (16, 16)
    data = lib().linnet_store_data(t.store.pointer, b"w", lib().LINNET_READ, ffi.NULL)
    seen = np.frombuffer(ffi.buffer(data, W.nbytes), np.float32).reshape(shape)
    for steps in range(STEPS, STEPS + 3):
        np.testing.assert_array_equal(seen, trained(steps)["w"])
        t.step()
    t.agrees(STEPS + 3)
    t.end()


# ---- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["record", "wait", "upload", "download", "run"])
def test_a_failed_run_leaves_the_values(function: str) -> None:
    t = Trained()
    t.device.fail[function] = 7
    with pytest.raises(linnet.DeviceError):
        t.step()
    del t.device.fail[function]
    t.agrees()
    with pytest.raises(linnet.DeviceError):
        t.device.fail[function] = 7
        t.step()
    del t.device.fail[function]
    t.step()
    t.agrees(STEPS + 1)
    t.end()


def test_a_read_that_fails_can_be_repeated() -> None:
    t = Trained()
    for function in ("download", "record", "wait"):
        t.device.fail[function] = 7
        with pytest.raises(linnet.DeviceError, match="told to fail") as caught:
            t.store["w"]
        assert caught.value.tensor == "w"
        with pytest.raises(linnet.DeviceError):
            linnet.Session(t.model, "infer", store=t.store).run({"x": X})
        del t.device.fail[function]
    t.agrees()
    t.end()


def test_a_copy_that_fails_is_made_up_for() -> None:
    """The new values are not in the device's copies, so the store gets them in the same run."""
    t = Trained()
    t.device.fail["copy"] = 7
    t.step()
    assert t.device.count("download") == STEPS + 3
    del t.device.fail["copy"]
    t.agrees(STEPS + 1)
    assert t.device.count("download") == STEPS + 3
    t.step()
    t.agrees(STEPS + 2)
    t.end()


def test_values_that_are_lost_are_an_error_until_they_are_written() -> None:
    t = Trained()
    t.device.fail["download"] = 7
    del t.session
    gc.collect()
    assert t.device.nothing_left()
    for name in t.store:
        with pytest.raises(linnet.DeviceError, match="before the variable"):
            t.store[name]
    cpu = linnet.Session(t.model, "train", store=t.store)
    t.store["w"] = W
    np.testing.assert_array_equal(t.store["w"], W)
    with pytest.raises(linnet.DeviceError) as caught:
        cpu.run({"x": X})
    assert caught.value.tensor in t.store and caught.value.tensor != "w"
    for name in t.store:
        t.store[name] = np.zeros_like(trained(0)[name])
    cpu.run({"x": X})


class Stops(PyDevice):
    """Fails at the copies of one run and at all downloads after them."""

    broken = False

    def _copy(self, *arguments: Any) -> int:
        return 7 if self.broken else super()._copy(*arguments)

    def _wait(self, event: int) -> int:
        return 7 if self.broken and self.calls.count("copy") > 2 * STEPS else super()._wait(event)


def test_a_run_whose_values_are_lost_fails() -> None:
    t = Trained(device_=Stops({"matmul": 0.0, "map": 0.0}))
    t.device.broken = True  # type: ignore[attr-defined]
    with pytest.raises(linnet.DeviceError, match="new value"):
        t.step()
    t.device.broken = False  # type: ignore[attr-defined]
    with pytest.raises(linnet.DeviceError, match="before the variable"):
        t.store["w"]
    for name, value in trained(0).items():
        t.store[name] = value
    t.step()
    t.agrees(1)
    t.end()


@pytest.mark.parametrize("nth", range(1, 40, 6))
@pytest.mark.parametrize("name", ["WORK", "DOWNLOAD", "COPY", "UPLOAD", "RUN", "WAIT"])
def test_any_failure_of_a_queue(name: str, nth: int, mock: Mock) -> None:  # noqa: F811
    """One call fails in some step, or in a read, which is then made again. The values are those after the steps that
    have succeeded."""
    m = model()
    store = linnet.Store(m)
    session = linnet.Session(
        m, "train", devices=mock.reset(share=16, delay=5, fail=mock.callbacks.index(name)), store=store
    )
    mock.set(fail_at=nth)
    done, got = 0, {}
    for _ in range(6):
        try:
            session.run({"x": X})
            done += 1
        except linnet.DeviceError:
            assert mock["failed"] == 1
    for key in store:
        try:
            got[key] = store[key]
        except linnet.DeviceError:
            got[key] = store[key]
    for key, value in _alone(m, done).items():
        np.testing.assert_allclose(got[key], value, rtol=1e-4, atol=1e-5, err_msg=key)
    mock.set(fail_at=0)
    del session
    mock.nothing_left()


def _alone(m: linnet.Model, steps: int) -> dict[str, np.ndarray]:
    store = linnet.Store(m)
    session = linnet.Session(m, "train", store=store)
    for _ in range(steps):
        session.run({"x": X})
    return store.as_dict()


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_threads_read_while_a_session_trains(mock: Mock) -> None:  # noqa: F811
    """Each value that a thread sees is one after a whole number of steps."""
    m, steps = model(), 60
    store = linnet.Store(m)
    session = linnet.Session(m, "train", devices=mock.reset(share=16, delay=20), store=store)
    others = [linnet.Session(m, "infer", store=store)]
    want = [W]
    alone = linnet.Store(m)
    cpu = linnet.Session(m, "train", store=alone)
    for _ in range(steps):
        cpu.run({"x": X})
        want.append(alone["w"])
    stop, faults = threading.Event(), list[str]()

    def read() -> None:
        last = 0
        while not stop.is_set():
            w = store["w"]
            near = [k for k in range(last, steps + 1) if np.abs(w - want[k]).max() < 1e-5]
            if not near:
                faults.append(f"after step {last}")
                return
            last = near[0]

    def evaluate() -> None:
        while not stop.is_set():
            y = others[0].run({"x": X})["y"]
            if not any(np.allclose(y, X @ w, rtol=1e-3, atol=1e-4) for w in want):
                faults.append("infer")
                return

    threads = [threading.Thread(target=f) for f in (read, read, evaluate)]
    for thread in threads:
        thread.start()
    for _ in range(steps):
        session.run({"x": X})
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults
    np.testing.assert_allclose(store["w"], want[-1], rtol=1e-4, atol=1e-5)
    others.clear()
    del session
    mock.nothing_left()


# ---- OpenCL ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "optimizer", [linnet.SGD(0.01), linnet.Momentum(0.01), linnet.Adam(0.001)], ids=["sgd", "momentum", "adam"]
)
def test_ten_steps_of_a_network_have_the_same_bits(optimizer: linnet.Optimizer) -> None:
    graph, feeds = training("lenet", optimizer)
    m, results = linnet.Model(graph), []
    for exposed in (True, False):
        store = linnet.Store(m)
        if exposed:
            expose(store)
        devices: list[Device] = [opencl_device()]
        session = linnet.Session(m, "train", devices=devices, store=store, trace=True)
        losses = [float(session.run(feeds)["loss"]) for _ in range(10)]
        bytes_ = {
            kind: sum(s.bytes * s.runs for s in session.steps if s.kernel == kind) for kind in ("upload", "download")
        }
        results.append((losses, store.as_dict(), bytes_))
    (want, variables, moved), (got, kept, fewer) = results
    assert got == want
    for name, value in variables.items():
        np.testing.assert_array_equal(kept[name], value, name)
    assert fewer["download"] == 10 * 4 and moved["download"] > 10 * 246_000
    assert fewer["upload"] == moved["upload"] == 10 * 25_120 + sum(v.nbytes for v in variables.values())
