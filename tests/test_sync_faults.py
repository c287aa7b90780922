"""kill -9 of workers, of the server and of all, and cuts of the network between them, at random moments: every push counts
exactly once. Server and workers are the native programs, each side in its own network namespace."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.sync import Server, status
from tests.native import ROOT, build, compile_c, need, run

SIZE, WORKERS = 64, 2
FAULTS = ("worker", "server", "both", "network")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model.lnt, whose gradient is its input; and the programs."""
    made = tmp_path_factory.mktemp("faults")
    graph = linnet.Graph()
    x = graph.placeholder("x", (SIZE,))
    total = graph.variable("total", np.zeros(SIZE, np.float64))
    linnet.sync.signatures(graph, (total.tensor(x) * x.cast("f64")).sum(), linnet.SGD(1.0), {"x": x})
    graph.save(made / "model.lnt")
    where = build("release", "linnet_sync_static", "linnet_static", "linnet-parameter-server")
    libraries = [where / "liblinnet_sync.a", where / "liblinnet.a"]
    flags = (f"-I{ROOT / 'runtime_c' / 'include'}", "-O1", "-lm", "-lpthread", "-ldl")
    compile_c([ROOT / "tests" / "c" / "sync_adder.c", *libraries], made / "sync_adder", *flags)
    shutil.copy(where / "linnet-parameter-server", made)
    return made


def expected(steps: int) -> np.ndarray:
    """The exact value after this many steps from 0: minus the sum of the means of the workers' numbers."""
    step, number, i = np.ogrid[:steps, :WORKERS, :SIZE]
    return -((step * 31 + number * 17 + i) % 64).astype(np.float64).mean(1).sum(0)


class Cluster:
    """A server and workers as processes, with a network between them that can be cut."""

    def __init__(self, folder: Path, place: Path, wire: tuple[str, str] | None) -> None:
        self.folder, self.place, self.wire = folder, place, wire
        self.local = f"unix:{place}/socket"
        self.address = "10.77.0.1:4000" if wire else self.local
        self.server = self.serve()
        self.workers = [self.work(k) for k in range(WORKERS)]

    def start(self, side: int, *command: object) -> subprocess.Popen[str]:
        words = [str(word) for word in command]
        if self.wire:
            words = ["ip", "netns", "exec", self.wire[side], *words]
        return subprocess.Popen(words, cwd=self.place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def serve(self) -> subprocess.Popen[str]:
        listen = ["--listen", self.local] + (["--listen", self.address, "--insecure"] if self.wire else [])
        process = self.start(
            0, self.folder / "linnet-parameter-server", self.folder / "model.lnt", *listen, "--workers", WORKERS, "--folder",
            self.place / "state", "--heartbeat", "0.05", "--lease", "0.2", "--save-every", 50, "--threads", 1,
        )  # fmt: skip
        assert process.stdout and process.stderr
        assert process.stdout.readline().startswith("listening"), process.stderr.read()
        return process

    def work(self, number: int) -> subprocess.Popen[str]:
        return self.start(
            1, self.folder / "sync_adder", self.folder / "model.lnt", self.address, number, self.place / "end"
        )

    def kill(self, process: subprocess.Popen[str]) -> None:
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def break_something(self, fault: str, chance: random.Random) -> None:
        if fault == "network" and self.wire:
            run(["ip", "-n", self.wire[0], "link", "set", "wire0", "down"])
            time.sleep(chance.uniform(0.01, 0.6))
            run(["ip", "-n", self.wire[0], "link", "set", "wire0", "up"])
            return
        k = chance.randrange(WORKERS)
        if fault in ("worker", "both"):
            self.kill(self.workers[k])
        if fault in ("server", "both"):
            self.kill(self.server)
            self.server = self.serve()
        if fault in ("worker", "both"):
            self.workers[k] = self.work(k)

    def version(self) -> int:
        return int(status(self.local)["version"])

    def finish(self) -> int:
        """Lets them run a little longer and end; returns their steps."""
        end = self.version() + 300
        (self.place / "part").write_text(f"{end}\n")
        (self.place / "part").rename(self.place / "end")
        for worker in self.workers:
            _, text = worker.communicate(timeout=120)
            assert worker.returncode == 0, text
        self.server.send_signal(signal.SIGTERM)
        _, text = self.server.communicate(timeout=60)
        assert self.server.returncode == 0, text
        return end

    def close(self) -> None:
        for process in (self.server, *self.workers):
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture
def wire() -> Iterator[tuple[str, str]]:
    """Two network namespaces connected by a virtual cable."""
    need("ip")
    names = (f"linnet-s{os.getpid()}", f"linnet-w{os.getpid()}")
    if os.geteuid() or subprocess.run(["ip", "netns", "add", names[0]], check=False).returncode:
        pytest.skip("network namespaces need root, and a kernel that lets containers have them")
    try:
        run(["ip", "netns", "add", names[1]])
        run(
            [
                "ip",
                "link",
                "add",
                "wire0",
                "netns",
                names[0],
                "type",
                "veth",
                "peer",
                "name",
                "wire1",
                "netns",
                names[1],
            ]
        )
        for k, name in enumerate(names):
            run(["ip", "-n", name, "address", "add", f"10.77.0.{k + 1}/24", "dev", f"wire{k}"])
            run(["ip", "-n", name, "link", "set", f"wire{k}", "up"])
            run(["ip", "-n", name, "link", "set", "lo", "up"])
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def survive(cluster: Cluster, faults: tuple[str, ...], moments: int, seed: int) -> None:
    chance = random.Random(seed)
    counts = dict.fromkeys(faults, 0)
    try:
        before = 0
        for moment in range(moments):
            fault = faults[moment % len(faults)]
            time.sleep(chance.uniform(0.02, 0.25))
            cluster.break_something(fault, chance)
            counts[fault] += 1
            version = cluster.version()
            assert version >= before, "what was acknowledged is gone"
            before = version
        steps = cluster.finish()
        with Server(cluster.folder / "model.lnt", folder=cluster.place / "state") as again:
            assert again.status()["version"] == steps
            np.testing.assert_array_equal(again.store["total"], expected(steps))
        print(f"{counts}: {steps} steps, each push counted once")
    finally:
        cluster.close()


def test_processes_that_are_killed(folder: Path, tmp_path: Path) -> None:
    survive(Cluster(folder, tmp_path, None), FAULTS[:3], 9, 1)


def test_a_network_that_is_cut(folder: Path, tmp_path: Path, wire: tuple[str, str]) -> None:
    survive(Cluster(folder, tmp_path, wire), FAULTS, 8, 2)


@pytest.mark.soak
def test_two_hundred_faults(folder: Path, tmp_path: Path, wire: tuple[str, str]) -> None:
    survive(Cluster(folder, tmp_path, wire), FAULTS, int(os.environ.get("LINNET_FAULTS", "200")), 3)


def test_the_sum_tells_one_push(folder: Path) -> None:
    """A push that is lost or counted twice would show."""
    model = linnet.Model(folder / "model.lnt")
    assert re.fullmatch("[0-9a-f]{32}", model.metadata("digest") or "")
    for steps in (1, 50):
        whole = expected(steps)
        one = ((np.arange(SIZE) + 17) % 64) / WORKERS
        assert (whole + one != whole).any() and (whole - one != whole).any()
