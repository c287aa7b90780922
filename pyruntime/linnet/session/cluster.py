"""Clusters: which machines the tasks are that device scopes name (Graph.device, docs/machines.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.clib.errors import UsageError
from linnet.ir.device_spec import DeviceSpec
from linnet.session.device import Device, load_device

HERE = "cpu"  # the address of a task that is this machine


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster whose devices are open. tasks: for each task its device string, such as "/job:worker/task:0", and the name
    of its device, or HERE. devices: those of the tasks."""

    tasks: tuple[tuple[str, str], ...]
    devices: tuple[Device, ...]


def open_cluster(given: Mapping[str, Sequence[str | Device]] | str | Path | Cluster) -> Cluster:
    """Opens the machines of a cluster: {job: [address of each task]}, or the path of a cluster.toml. See
    SessionOptions.cluster. Raises UsageError, and the errors of load_device."""
    if isinstance(given, Cluster):
        return given
    if not isinstance(given, Mapping | str | Path):
        raise _malformed("a cluster is neither a dictionary nor the path of a file", "cluster", given)
    jobs = given if isinstance(given, Mapping) else _read(Path(given))
    opened: dict[str, Device] = {}
    tasks: list[tuple[str, str]] = []
    for job, addresses in jobs.items():
        listed = isinstance(addresses, Sequence) and not isinstance(addresses, str)
        if not listed or DeviceSpec.parse(f"/job:{job}").job != job:
            raise _malformed("a job of the cluster has no list of addresses", job, addresses)
        for i, address in enumerate(addresses):
            tasks.append((f"/job:{job}/task:{i}", _device_of(address, opened)))
    return Cluster(tuple(tasks), tuple({device.name: device for device in opened.values()}.values()))


def _device_of(address: str | Device, opened: dict[str, Device]) -> str:
    """The name of the device at an address, which is opened once for all tasks that have it."""
    if address == HERE:
        return HERE
    if not isinstance(address, str | Device):
        raise _malformed("an address of the cluster is no text", "cluster", address)
    if isinstance(address, Device):
        return opened.setdefault(address.name, address).name
    if address not in opened:
        opened[address] = load_device(address if address.startswith("remote:") else f"remote:{address}")
    return opened[address].name


def _malformed(what: str, where: object, got: object) -> UsageError:
    expected = 'as in {"worker": ["pi1:7700", "pi2:7700"]}'
    return UsageError(what, code=101, tensor=str(where), expected=expected, got=repr(got))


def _read(path: Path) -> dict[str, list[str]]:
    """The jobs of a cluster.toml. A table per job has `tasks`, its addresses. `key` in it, or at the top for all jobs, is the
    key that hosts were started with; its path is relative to the file's folder."""
    content = _toml(path)
    common = content.pop("key", None)
    jobs: dict[str, list[str]] = {}
    for job, table in content.items():
        known = isinstance(table, dict) and isinstance(table.get("tasks"), list) and not table.keys() - {"tasks", "key"}
        if not known or not all(isinstance(address, str) for address in table["tasks"]):
            raise UsageError(
                f"'{path}' does not describe a cluster", code=101, tensor=job, got=repr(table)[:80],
                expected='a table per job, with tasks = ["HOST:PORT", ...] and perhaps key = "FILE"',
            )  # fmt: skip
        key = table.get("key", common)
        option = "" if key is None else f",key={path.parent / key}"
        jobs[job] = [a if a == HERE or ",key=" in a else a + option for a in table["tasks"]]
    return jobs


def _toml(path: Path) -> dict[str, Any]:
    from importlib import import_module

    try:
        toml = import_module("tomllib")
    except ImportError:
        raise UsageError(
            "reading a cluster.toml needs Python 3.11", code=101, tensor=str(path),
            hint='give the cluster as a dictionary: cluster={"worker": ["HOST:PORT", ...]}',
        ) from None  # fmt: skip
    try:
        return dict(toml.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the cluster '{path}' cannot be read", code=101, tensor=str(path), got=str(error),
            expected="a TOML file (docs/machines.md)",
        ) from None  # fmt: skip
