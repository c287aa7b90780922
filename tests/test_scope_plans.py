"""Plans of graphs with device scopes: with a cluster a scope is a constraint, and without one a hint. Hosts and devices
written in Python compute the same bits as one process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from tests import remote_host
from tests.native import build
from tests.opencl_device import opencl_device
from tests.py_device import PyDevice

X = np.random.default_rng(0).standard_normal((8, 16)).astype("f4")
ABLE = {"matmul": 1.0, "map": 1.0}


def two_parts(first: str, second: str) -> linnet.Graph:
    """x [8, 16] -> a matrix product in one place -> one in another -> y."""
    graph = linnet.Graph(seed=2)
    y = x = graph.placeholder("x", (8, 16))
    for i, where in enumerate((first, second)):
        with graph.device(where):
            w = graph.variable(f"w{i}", np.random.default_rng(i).standard_normal((16, 16)).astype("f4") / 4)
            y = ops.matmul(y, w, name=f"part{i}")
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def places(session: linnet.Session) -> dict[str, tuple[str, str]]:
    return {step.name: (step.device, step.placed) for step in session.steps if step.op not in ("transfer", "assign")}


def products(session: linnet.Session) -> list[str]:
    return [step.device for step in session.steps if step.op == "matmul"]


def test_a_cluster_maps_tasks_to_devices() -> None:
    a, b = PyDevice(ABLE, "a"), PyDevice(ABLE, "b")
    graph = two_parts("/job:worker/task:1", "/job:ps")
    session = linnet.Session(graph, cluster={"worker": ["cpu", a], "ps": [b]})
    assert places(session) == {"part0": ("a", "scope"), "part1": ("b", "scope")}
    np.testing.assert_allclose(session.run({"x": X})["y"], linnet.Session(graph).run({"x": X})["y"], atol=1e-5)
    # a task that is this machine, and its devices by kind
    session = linnet.Session(
        two_parts("/job:worker/task:0/device:b:0", "/job:worker/task:0/device:cpu:0"), devices=[b],
        cluster={"worker": ["cpu", a]},
    )  # fmt: skip
    assert places(session) == {"part0": ("b", "scope"), "part1": ("cpu", "scope")}
    # what a scope does not say, any task may fulfil; the first that can run the node gets it
    session = linnet.Session(two_parts("/job:worker", "/task:1"), cluster={"worker": [PyDevice({}, "no"), a]})
    assert products(session) == ["a", "a"]


def test_without_a_cluster_tasks_are_ignored_and_kinds_are_hints() -> None:
    a, b = PyDevice(ABLE, "a"), PyDevice({"matmul": 1e12}, "b")
    graph = two_parts("/job:worker/task:1/device:b:0", "/device:b:0")
    assert products(linnet.Session(graph)) == ["cpu", "cpu"]
    assert products(linnet.Session(graph, devices=[a, b])) == ["a", "b"]
    assert products(linnet.Session(two_parts("/device:b:1", "/device:cpu:0"), devices=[a])) == ["a", "cpu"]


def test_kinds_are_those_of_real_devices() -> None:
    opencl_device()
    graph = two_parts("/device:opencl:0", "/device:opencl")
    assert places(linnet.Session(graph, device="opencl")) == {
        "part0": ("opencl", "scope"),
        "part1": ("opencl", "scope"),
    }
    session = linnet.Session(graph, device="opencl", cluster={"worker": ["cpu"]})
    np.testing.assert_allclose(session.run({"x": X})["y"], linnet.Session(graph).run({"x": X})["y"], atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "/",
        "//",
        "x",
        "/job:",
        "/job:w/",
        "/task:-1",
        "/task:1234567890",
        "/device:",
        "/device::1",
        "/k:1",
        "/job:é" * 999,
    ],
)
def test_a_file_may_have_any_text_as_a_placement(text: str) -> None:
    graph = two_parts("", "")
    for node in graph.signatures["infer"].function.nodes:
        node.placement = text
    expected = linnet.Session(two_parts("", "")).run({"x": X})["y"]
    np.testing.assert_array_equal(linnet.Session(graph).run({"x": X})["y"], expected)
    with pytest.raises(linnet.UsageError, match="of 2 nodes cannot be met: no task or device fits it"):
        linnet.Session(graph, cluster={"w": ["cpu"]})


def test_placement_overrules_scopes() -> None:
    a = PyDevice(ABLE, "a")
    graph = two_parts("/job:worker/task:0", "/job:worker/task:9")
    session = linnet.Session(graph, cluster={"worker": [a]}, placement={"part1": "cpu"})
    assert places(session) == {"part0": ("a", "scope"), "part1": ("cpu", "hint")}


def test_a_scope_that_nothing_fits_is_an_error_that_names_nodes_and_tasks() -> None:
    a = PyDevice(ABLE, "a")
    with pytest.raises(linnet.UsageError) as failure:
        linnet.Session(two_parts("/job:worker/task:3", "/job:worker/task:3"), cluster={"worker": [a]})
    text = str(failure.value)
    assert "the device scope /job:worker/task:3 of 2 nodes cannot be met: no task or device fits it" in text
    assert "part0, part1" in text and "/job:worker/task:0, /device:cpu:0" in text
    for scope in ("/job:ps", "/device:opencl:0", "/device:cpu:1", "/job:worker/replica:1"):
        with pytest.raises(linnet.UsageError, match=f"scope {scope}"):
            linnet.Session(two_parts(scope, ""), cluster={"worker": [a]})
    # without devices, too
    with pytest.raises(linnet.UsageError, match="/job:worker/task:3 of 2 nodes"):
        linnet.Session(two_parts("/job:worker/task:3", "/job:worker/task:3"), cluster={"worker": ["cpu"]})


def test_a_node_that_its_device_cannot_run_is_an_error() -> None:
    with pytest.raises(linnet.GraphError) as failure:
        linnet.Session(two_parts("/job:worker/task:0", ""), cluster={"worker": [PyDevice({"map": 1.0}, "a")]})
    assert failure.value.op == "part0"
    text = str(failure.value)
    assert "of 1 node cannot be met: its device cannot run this; expected what a can run, got part0" in text


def trained(first: str, second: str) -> linnet.Graph:
    graph = linnet.Graph(seed=3)
    x, t = graph.placeholder("x", (8, 16)), graph.placeholder("t", (8,), "i32")
    with graph.device(first):
        hidden = linnet.nn.dense(x, 24, activation="relu")
    with graph.device(second):
        loss = linnet.softmax_cross_entropy(linnet.nn.dense(hidden, 4), t).mean()
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.Adam(0.01).minimize(loss))
    return graph


BATCH = {"x": X, "t": np.arange(8, dtype="i4") % 4}


def test_two_hosts_train_with_the_bits_of_one_process(tmp_path: Path) -> None:
    path = tmp_path / "net.lnt"
    trained("/job:worker/task:0", "/job:worker/task:1").save(path)
    here = linnet.Session(path, "train")
    assert {step.device for step in here.steps} == {"cpu"}
    losses = [here.run(BATCH)["loss"] for _ in range(5)]
    with remote_host.host() as one, remote_host.host() as two:
        toml = tmp_path / "cluster.toml"
        toml.write_text(f'[worker]\ntasks = ["{one.address}", "{two.address}"]\n')
        session = linnet.Session(path, "train", cluster=toml)
        assert [session.run(BATCH)["loss"] for _ in range(5)] == losses
        computing = [step for step in session.steps if step.op != "transfer"]
        steps = {name: step for step in computing for name in (step.name, *step.fused.split("+"))}
        for name, host in (("dense", one.name), ("dense_1", two.name)):
            for part in ("matmul", "weight/adam", "bias/adam"):
                assert (steps[f"{name}/{part}"].device, steps[f"{name}/{part}"].placed) == (host, "scope")
        for name in here.variables:
            np.testing.assert_array_equal(session.variables[name], here.variables[name])
        options = linnet.SessionOptions(cluster={"worker": [one.address, one.address]})
        both = linnet.Session(path, "train", **options.fields)
        assert [both.run(BATCH)["loss"] for _ in range(5)] == losses
        both.close()
        session.close()


def test_loops_stay_and_their_bodies_move() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (8, 16))
    w = graph.variable("w", np.eye(16, dtype="f4") / 2)

    def step(state: linnet.Tensor, _: Any) -> tuple[linnet.Tensor, linnet.Tensor]:
        return state @ w, state

    with graph.device("/job:worker/task:0"):
        last, _ = linnet.scan(step, x, graph.constant(np.zeros((60, 1), "f4")))
    graph.signature("infer", {"x": x}, {"y": last})
    device = PyDevice({"matmul": 1.0}, "a")
    session = linnet.Session(graph, cluster={"worker": [device]})
    np.testing.assert_array_equal(session.run({"x": X})["y"], linnet.Session(graph).run({"x": X})["y"])
    assert device.count("run") > 0


def test_a_cluster_is_read_from_a_file(tmp_path: Path) -> None:
    from linnet.session.cluster import _read

    path = tmp_path / "cluster.toml"
    path.write_text(
        'key = "pi.key"\n[worker]\ntasks = ["pi1:7700", "cpu", "pi2:7700,key=own.key"]\n'
        '[ps]\ntasks = ["pi3:7700"]\nkey = "ps.key"\n'
    )
    assert _read(path) == {
        "worker": [f"pi1:7700,key={tmp_path}/pi.key", "cpu", "pi2:7700,key=own.key"],
        "ps": [f"pi3:7700,key={tmp_path}/ps.key"],
    }
    for text in ("worker = 3", "[worker]\ntasks = [1]", "[worker]\ntasks = []\nother = 1", "[worker"):
        path.write_text(text)
        with pytest.raises(linnet.UsageError, match=r"cluster\.toml"):
            _read(path)
    with pytest.raises(linnet.UsageError, match="worker"):
        linnet.Session(two_parts("", ""), cluster={"worker": "pi1:7700"})
    with pytest.raises(linnet.UsageError, match="invalid part"):
        linnet.Session(two_parts("", ""), cluster={"wor-ker": ["cpu"]})


def test_commands_show_scopes_and_take_a_cluster(
    tmp_path: Path, linnet_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path, toml = tmp_path / "net.lnt", tmp_path / "cluster.toml"
    two_parts("/job:worker/task:0", "/job:ps/task:0").save(path)
    inspected = linnet_command("inspect", path, "--all").stdout
    assert "/job:worker/task:0" in inspected and "/job:ps/task:0" in inspected
    with remote_host.host() as one:
        toml.write_text(f'[worker]\ntasks = ["{one.address}"]\n[ps]\ntasks = ["cpu"]\n')
        planned = linnet_command("plan", path, "--cluster", toml, "--why").stdout
        assert f"placed  on {one.name}, by the graph's device scope" in planned
        assert linnet_command("run", path, "--cluster", toml, "--random").returncode == 0
        tool = build("release", "linnet-run") / "linnet-run"
        command = [tool, path, "--random", "--device", one.name, "--task", f"/job:worker/task:0={one.name}", "--task"]
        done = subprocess.run([*command, "/job:ps/task:0=cpu"], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        done = subprocess.run([*command, "/job:ps/task:0=toy"], check=False, capture_output=True, text=True)
        assert done.returncode != 0 and "a cluster names a device that is not in --device" in done.stderr
    toml.write_text('[worker]\ntasks = ["cpu"]\n')
    failed = linnet_command("run", path, "--cluster", toml, "--random")
    assert failed.returncode != 0
    assert "the device scope /job:ps/task:0 of 1 node cannot be met" in failed.stderr + failed.stdout
