"""A session with on_loss goes on after a host is lost: it plans again without the host, or waits for it, and its outputs and
variables have the bits of a run that nothing disturbed."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.clib.errors import DeviceError
from linnet.session.host_loss import says_lost
from tests.remote_counts import counted
from tests.remote_host import Host, host
from tests.test_remote import same
from tests.test_remote_messages import feed, layers, placed

LEASE = ",lease=1"


def trained(hosts: int) -> linnet.Graph:
    """A training step by Adam, with one layer for each host."""
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", (16, 20)), graph.placeholder("t", (16,), "i32")
    y = x
    for i in range(hosts):
        with graph.device(f"/job:worker/task:{i}"):
            y = linnet.nn.dense(y, 32, activation="relu")
    with graph.device(f"/job:worker/task:{hosts - 1}"):
        loss = linnet.softmax_cross_entropy(linnet.nn.dense(y, 4), t).mean()
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.Adam(0.01).minimize(loss))
    return graph


def batch(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {"x": rng.standard_normal((16, 20)).astype(np.float32), "t": rng.integers(0, 4, 16).astype(np.int32)}


def undisturbed(graph: linnet.Graph, steps: int) -> dict[str, np.ndarray]:
    session = linnet.Session(graph, "train")
    for step in range(steps):
        session.run(batch(step))
    return session.variables.as_dict()


def kill(there: Host) -> None:
    there.process.kill()
    there.process.wait()


@pytest.mark.parametrize("how", ["kill", "pause", "cut"])
def test_a_run_goes_on_without_a_lost_host(how: str) -> None:
    graph = layers(3)
    expected = linnet.Session(graph).run(feed(0))
    with host() as one, host() as two, counted(two.address) as net:
        devices = [one.name + LEASE, net.name + LEASE]
        session = linnet.Session(
            graph, devices=devices, placement=placed(one.name, net.name, one.name), on_loss="replan"
        )
        assert same(session.run(feed(0)), expected)
        if how == "cut":
            net.cut = True
        else:
            kill(two) if how == "kill" else two.pause()
        with pytest.warns(UserWarning, match=f"{re.escape(net.name)} is lost.*run elsewhere now: .*layer1"):
            assert same(session.run(feed(0)), expected)
        places = {step.name: step.device for step in session.steps}
        assert one.name in places.values() and net.name not in places.values()
        assert same(session.run(feed(0)), expected)


@pytest.mark.parametrize("lost", [0, 1])
def test_training_goes_on_without_a_lost_host(lost: int) -> None:
    graph = trained(2)
    with host() as one, host() as two:
        cluster = {"worker": [one.name + LEASE, two.name + LEASE]}
        session = linnet.Session(graph, "train", cluster=cluster, on_loss="replan")
        for step in range(8):
            if step == 4:
                kill((one, two)[lost])
                with pytest.warns(UserWarning, match="is lost"):
                    session.run(batch(step))
            else:
                session.run(batch(step))
        assert same(session.variables.as_dict(), undisturbed(graph, 8))


def test_fit_goes_on_without_a_lost_host() -> None:
    graph = trained(2)
    steps = [batch(step) for step in range(6)]
    with host() as one, host() as two:

        class Kills(linnet.Callback):
            def on_step(self, run: linnet.Run, metrics: dict[str, float]) -> None:
                if run.step == 3:
                    kill(two)

        options = linnet.SessionOptions(cluster={"worker": [one.name, two.name]}, on_loss="replan")
        with pytest.warns(UserWarning, match="is lost"):
            history = linnet.fit(graph, lambda epoch: steps, epochs=1, options=options, callbacks=[Kills()])
    alone = linnet.fit(graph, lambda epoch: steps, epochs=1)
    assert same(history.store.as_dict(), alone.store.as_dict())


def test_a_run_waits_for_a_host_that_comes_back(tmp_path: Path) -> None:
    graph, listen = trained(1), f"unix:{tmp_path}/host"
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(host(listen))
        session = linnet.Session(graph, "train", cluster={"worker": [one.name + ",lease=60"]}, on_loss="retry")
        for step in range(3):
            session.run(batch(step))
        kill(one)
        again = threading.Timer(0.5, lambda: stack.enter_context(host(listen)))
        again.start()
        session.run(batch(3))
        again.join()
        assert {one.name} <= {step.device for step in session.steps}
        assert same(session.variables.as_dict(), undisturbed(graph, 4))


def test_a_host_that_does_not_come_back_ends_the_run() -> None:
    with host() as one:
        session = linnet.Session(
            layers(1), devices=[one.name + ",lease=0.5"], placement={"*": one.name}, on_loss="retry"
        )
        kill(one)
        with pytest.raises(linnet.DeviceError, match=re.escape(one.address)):
            session.run(feed(0))


def test_a_failure_that_is_no_loss_is_not_tried_again() -> None:
    graph = linnet.Graph()
    rows = graph.placeholder("rows", (8,), "i32")
    y = linnet.ops.gather(graph.constant(np.ones((10, 4), np.float32), "w"), rows)
    graph.signature("infer", {"rows": rows}, {"y": y})
    with host() as one:
        session = linnet.Session(graph, devices=[one.name], placement={"*": one.name}, on_loss="replan")
        with warnings.catch_warnings(), pytest.raises(linnet.DeviceError, match="an index in the data"):
            warnings.simplefilter("error")
            session.run({"rows": np.full(8, 99, np.int32)})
        session.run({"rows": np.zeros(8, np.int32)})
        assert one.name in {step.device for step in session.steps}


def test_wrong_options_are_refused() -> None:
    with pytest.raises(linnet.UsageError, match="fail, replan, retry"):
        linnet.Session(layers(1), on_loss="explode")
    graph = linnet.Graph()
    x = graph.placeholder("x", ("n", 4))
    graph.signature("infer", {"x": x}, {"y": linnet.ops.relu(x)})
    with host() as one, pytest.raises(linnet.UsageError, match="bounds"):
        linnet.Session(graph, devices=[one.name], on_loss="replan", bounds={"x": "1..4,4"})


@contextlib.contextmanager
def killed(victim: Host, after: float) -> Iterator[None]:
    timer = threading.Timer(after, victim.process.send_signal, [signal.SIGKILL])
    timer.start()
    try:
        yield
    finally:
        timer.join()
        victim.process.wait()


class Kept:
    """Hosts that keep variables in folders, and may be started again at the same addresses."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path, count: int) -> None:
        self._stack, self._folder = stack, folder
        self.hosts: list[Host] = []
        for i in range(count):
            (folder / str(i)).mkdir(parents=True)
            self.start(i)
        self.names = [each.name + ",lease=30,keep=on" for each in self.hosts]

    def session(self, graph: linnet.Graph) -> linnet.Session:
        return linnet.Session(graph, "train", cluster={"worker": self.names}, on_loss="retry")

    def start(self, i: int) -> None:
        here = self._folder / str(i)
        self.hosts[i : i + 1] = [self._stack.enter_context(host(f"unix:{here}/host", "--folder", str(here)))]


def test_a_reason_that_is_cut_off_may_be_a_loss() -> None:
    """A long address leaves no room for the reason, in which a few letters make the difference."""
    for length in range(1, 120):
        reason = f"code 1: unix:/{'a' * length} closed the connection"[:95]
        assert says_lost(DeviceError("failed", got=reason)), reason
    assert not says_lost(DeviceError("failed", got="code 1: unix:/tmp/h has no memory for this step"))


def test_a_host_that_comes_back_has_its_variables(tmp_path: Path) -> None:
    """It is killed between two runs, so only its folder has the new values; no run downloads them."""
    graph = trained(2)
    with contextlib.ExitStack() as stack:
        kept = Kept(stack, tmp_path, 2)
        session = kept.session(graph)
        for step in range(9):
            session.run(batch(step))
            if step in (2, 5):
                kill(kept.hosts[step % 2])
                kept.start(step % 2)
        assert {name.partition(",")[0] for name in kept.names} <= {step.device for step in session.steps}
        assert same(session.variables.as_dict(), undisturbed(graph, 9))


@pytest.mark.parametrize("moment", ["before its new values are kept", "after that", "while a slot is written"])
def test_a_step_counts_once(tmp_path: Path, moment: str) -> None:
    """A host dies before or after it has kept the values of a step. Whether the step counts is decided by the client, which
    sends it again, and the host comes back with the values of the step before."""
    graph = trained(1)
    with contextlib.ExitStack() as stack:
        kept = Kept(stack, tmp_path, 1)
        session = kept.session(graph)
        for step in range(3):
            session.run(batch(step))
        files = sorted((tmp_path / "0").glob("*.kept"))
        assert files
        before = [path.read_bytes() for path in files]
        session.run(batch(3))
        kill(kept.hosts[0])
        for path, data in zip(files, before, strict=True):
            new = bytearray(path.read_bytes())
            slot = max(range(2), key=lambda i, new=new: int.from_bytes(new[16 * i : 16 * i + 8], "little"))
            assert int.from_bytes(new[16 * slot : 16 * slot + 8], "little") > max(
                int.from_bytes(data[16 * i : 16 * i + 8], "little") for i in range(2)
            )
            if moment == "while a slot is written":  # of step 4, which fails: it takes the place of step 2
                new[16 * (1 - slot) : 16 * (1 - slot) + 16] = bytes(16)
                at = 4096 + (len(new) - 4096) // 2 * (1 - slot)
                new[at : at + 64] = b"?" * 64
                path.write_bytes(new)
            elif moment == "after that":  # step 4 was kept, and then another host failed
                new[16 * (1 - slot) : 16 * (1 - slot) + 8] = (
                    int.from_bytes(new[16 * slot : 16 * slot + 8], "little") + 1
                ).to_bytes(8, "little")
                path.write_bytes(new)
        kept.start(0)
        session.run(batch(4))
        assert same(session.variables.as_dict(), undisturbed(graph, 5))


def test_a_value_that_is_not_kept_is_an_error_that_says_so(tmp_path: Path) -> None:
    graph = trained(1)
    with contextlib.ExitStack() as stack:
        kept = Kept(stack, tmp_path, 1)
        session = kept.session(graph)
        session.run(batch(0))
        kill(kept.hosts[0])
        for path in (tmp_path / "0").glob("*.kept"):
            path.unlink()
        kept.start(0)
        with pytest.raises(linnet.DeviceError, match=r"has not kept this value.*load a checkpoint"):
            session.run(batch(1))
    with host() as one, pytest.raises(linnet.FileError, match=r"it has no folder.*--folder"):
        linnet.Session(graph, "train", devices=[one.name + ",keep=on"])


@pytest.mark.soak
def test_hosts_that_keep_variables_may_die_at_any_moment(tmp_path: Path) -> None:
    """200 times, one of three hosts dies at some moment of the training and is started again."""
    graph, rng, steps = trained(3), random.Random(8), 0
    with contextlib.ExitStack() as stack:
        kept = Kept(stack, tmp_path, 3)
        session = kept.session(graph)
        for _ in range(200):
            victim = rng.randrange(3)
            back = threading.Timer(0.1, kept.start, [victim])
            with killed(kept.hosts[victim], rng.uniform(0, 0.03)):
                back.start()
                end = time.monotonic() + 0.15
                while time.monotonic() < end:
                    session.run(batch(steps))
                    steps += 1
            back.join()
        assert same(session.variables.as_dict(), undisturbed(graph, steps))


@pytest.mark.soak
def test_hosts_that_die_at_any_moment_leave_no_step_half_done(tmp_path: Path) -> None:
    """50 times, one of three hosts dies at some moment of the training; then it is started again, or left out."""
    graph, rng, steps, moved = trained(3), random.Random(7), 0, 0
    values: dict[str, np.ndarray] = {}
    for death in range(50):
        with contextlib.ExitStack() as stack:
            listens = [f"unix:{tmp_path}/{death}-{i}" for i in range(3)]
            hosts = [stack.enter_context(host(listen)) for listen in listens]
            session = linnet.Session(
                graph, "train", cluster={"worker": [each.name + ",lease=30" for each in hosts]},
                on_loss=rng.choice(("replan", "retry")),
            )  # fmt: skip
            for name, value in values.items():
                session.variables[name] = value
            victim = rng.randrange(3)
            back = threading.Timer(0.2, lambda k=listens[victim]: stack.enter_context(host(k)))
            with warnings.catch_warnings(record=True) as said, killed(hosts[victim], rng.uniform(0, 0.05)):
                warnings.simplefilter("always")
                back.start()
                end = time.monotonic() + 0.3
                while time.monotonic() < end:
                    session.run(batch(steps))
                    steps += 1
            back.join()
            values = session.variables.as_dict()
            session.close()
            moved += len(said)
    assert moved > 5  # the others came back in time
    assert same(values, undisturbed(graph, steps))
