"""linnet.ray.Hosts without Ray: a stand-in runs actors in this process, and the hosts are real."""

from __future__ import annotations

import importlib
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.clib.errors import SyncError, UsageError
from tests.test_remote import on, same, small


class RayError(Exception):
    """Never raised: actors run in this process."""


class Method:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.remote = function


class Actor:
    """Calls a method at once."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self.made, name))


class Kind:
    """What ray.remote(class) gives."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def options(self, **options: Any) -> Kind:
        assert options["num_cpus"] == 0.5 and options["scheduling_strategy"][1] in (0, 1)
        return self

    def remote(self) -> Actor:
        return Actor(self._kind())


class Group:
    def __init__(self, bundles: list[dict[str, float]], strategy: str) -> None:
        self.bundles, self.strategy = bundles, strategy

    def wait(self, timeout: float) -> bool:
        return timeout > 0


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.SimpleNamespace]:
    """The stand-in, as linnet.ray sees it. `left` are the groups and actors that are not ended."""
    left: list[Any] = []
    fake = types.ModuleType("ray")

    def placement_group(bundles: list[dict[str, float]], strategy: str) -> Group:
        left.append(Group(bundles, strategy))
        return left[-1]  # type: ignore[no-any-return]

    def remote(kind: type) -> Kind:
        left.append("actor")
        return Kind(kind)

    fake.__dict__.update(
        is_initialized=lambda: True,
        nodes=lambda: [{"Alive": True}, {"Alive": False}],
        remote=remote,
        get=lambda value: value,
        kill=lambda actor: left.remove("actor"),
        exceptions=types.SimpleNamespace(RayError=RayError, RayTaskError=RayError),
        util=types.SimpleNamespace(
            get_node_ip_address=lambda: "127.0.0.1",
            placement_group=placement_group,
            remove_placement_group=left.remove,
            scheduling_strategies=types.SimpleNamespace(
                PlacementGroupSchedulingStrategy=lambda group, placement_group_bundle_index: (
                    group,
                    placement_group_bundle_index,
                )
            ),
        ),
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    names = ("linnet.ray", "linnet.sync.ray", "linnet.sync.ray_hosts")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield types.SimpleNamespace(hosts=importlib.import_module("linnet.ray").Hosts, left=left)
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("local", [None, False])
def test_hosts_run_parts_of_a_model(ray: types.SimpleNamespace, local: bool | None) -> None:
    feeds = {"x": np.ones((8, 64), np.float32)}
    with ray.hosts(2, options=("--threads", "1"), cpus=0.5, local=local) as hosts:
        one, two = hosts.names
        address, _, key = one.partition(",key=")
        assert address.startswith("remote:unix:" if local is None else "remote:127.0.0.1:") and one != two
        assert (Path(key).stat().st_mode & 0o777 == 0o600) if key else local is None
        assert ray.left[0].bundles == [{"CPU": 0.5}] * 2 and ray.left[0].strategy == "SPREAD"
        placement = {"matmul": address, "*": two.partition(",")[0]}
        session = linnet.Session(small(), threads=1, devices=hosts.names, placement=placement)
        assert same(session.run(feeds), linnet.Session(small(), threads=1).run(feeds))
        assert on(session, address) > 0
    assert ray.left == [] and not (key and Path(key).exists())
    with pytest.raises(linnet.Error):
        linnet.Session(small(32), devices=[address])


def test_what_is_wrong_with_hosts_is_said(ray: types.SimpleNamespace) -> None:
    for wrong in ({"count": 0}, {"placement": "NEAR"}):
        with pytest.raises(UsageError, match="SPREAD or PACK"):
            ray.hosts(**wrong)
    with pytest.raises(SyncError, match="did not start"):
        ray.hosts(1, options=("--thread", "1"), cpus=0.5)
    assert ray.left == []


def test_a_host_ends_with_its_actor(ray: types.SimpleNamespace) -> None:
    program = sys.modules["linnet.sync.ray_hosts"]._PROGRAM
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {program!r}, '--listen', '127.0.0.1:0'], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\nprint(child.pid, flush=True)\nsys.stdin.read()\n"
    )
    actor = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert actor.stdout is not None
    child = Path("/proc") / actor.stdout.readline().decode().strip()
    assert b"linnet-host" in (child / "cmdline").read_bytes()
    actor.kill()
    actor.communicate(timeout=60)
    for _ in range(500):
        if not child.exists() or "\nState:\tZ" in (child / "status").read_text():
            return
        subprocess.run(["sleep", "0.01"], check=True)
    raise AssertionError("the host is still there")
