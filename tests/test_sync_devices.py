"""Workers of one machine on its devices: `linnet launch --device opencl:{rank}`. Two workers on two devices have the bits of two
workers on one device, and of one process that accumulates on one device."""
# Dear: PoCL compiles the programs of training steps, and jobs of several processes are started.

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.sync import Cluster, Server, Strategy
from tests import device_job
from tests.device_job import BATCH, WORKERS
from tests.native import ROOT
from tests.opencl_device import opencl_device

TWO = {**os.environ, "POCL_DEVICES": "pthread pthread", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
"""PoCL then shows the processor as two devices."""


@pytest.fixture(scope="module")
def two_devices() -> list[str]:
    """The names of two OpenCL devices."""
    opencl_device()
    script = "import linnet, json; print(json.dumps([d.device for d in linnet.devices('opencl') if not d.missing]))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=TWO, capture_output=True, text=True, timeout=60, check=True
    )
    found: list[str] = json.loads(done.stdout)
    if len(found) < 2:
        pytest.skip("missing: two OpenCL devices; PoCL shows them with POCL_DEVICES='pthread pthread'")
    return found[:2]


Result = tuple[dict[str, np.ndarray], list[str]]


def launched(folder: Path, *options: str, mode: str, arguments: tuple[str, ...] = ()) -> list[Result]:
    """Each worker's variables, and the devices that it used."""
    folder.mkdir()
    command = [
        sys.executable,
        "-m",
        "linnet",
        "launch",
        "-n",
        str(WORKERS),
        *options,
        str(ROOT / "tests" / "device_job.py"),
    ]
    done = subprocess.run(
        [*command, str(folder), mode, *arguments], env=TWO, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return [
        (dict(np.load(folder / f"worker-{k}.npz")), json.loads((folder / f"worker-{k}.json").read_text()))
        for k in range(WORKERS)
    ]


def same(found: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    """The parameters are equal bit for bit. Only the worker with the server has the optimizer's state."""
    names = [name for name in want if name.endswith(("/weight", "/bias"))]
    assert len(names) == 10
    for name in names:
        np.testing.assert_array_equal(found[name], want[name], name)


@pytest.mark.parametrize("mode", ["servers", "ring", "hand"])
def test_two_workers_on_two_devices_have_the_bits_of_one_device(
    mode: str, tmp_path: Path, two_devices: list[str]
) -> None:
    apart = launched(tmp_path / "apart", "--device", "opencl:{rank}", mode=mode)
    assert [set(devices) & set(two_devices) for _, devices in apart] == [{name} for name in two_devices]
    beside = launched(tmp_path / "beside", mode=mode, arguments=("opencl:0",))
    assert all(two_devices[0] in devices and two_devices[1] not in devices for _, devices in beside)
    for (found, _), (want, _) in zip(apart, beside, strict=True):
        same(found, want)
    same(apart[0][0], apart[1][0])


def test_they_have_the_bits_of_one_process(tmp_path: Path, two_devices: list[str]) -> None:
    apart = launched(tmp_path / "apart", "--servers", "1", mode="servers", arguments=("opencl:{local_rank}",))
    assert [set(devices) & set(two_devices) for _, devices in apart] == [{name} for name in two_devices]
    alone = linnet.fit(
        device_job.build(), device_job.examples(), batch_size=BATCH, epochs=1, shuffle=False, accumulate=WORKERS,
        device="opencl", progress=False,
    )  # fmt: skip
    same(apart[0][0], {name: alone.store[name] for name in alone.store if "accumulated" not in name})


def test_ranks_with_different_devices_have_the_same_bits(tmp_path: Path) -> None:
    """One rank computes gradients on the CPU, the other on a device. Both apply the mean on the CPU."""
    name, found = opencl_device().name, list[Any]([None, None])

    def work(rank: int) -> None:
        watch = device_job.Devices()
        place = Cluster(
            "worker", rank, WORKERS, (f"unix:{tmp_path}/0",), hosts_server=not rank, source="test",
            local_device="opencl" if rank else "",
        )  # fmt: skip
        history = linnet.fit(
            device_job.build(), device_job.examples(), batch_size=BATCH, epochs=1, cluster=place, strategy=Strategy("ring"),
            callbacks=[watch], progress=False,
        )  # fmt: skip
        found[rank] = history.store, watch.found, watch.updates

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    (cpu, none, updates), (gpu, some, same_updates) = found
    assert name not in none and name in some and updates == same_updates and name not in updates
    for key in cpu:
        assert cpu[key].tobytes() == gpu[key].tobytes(), key


def test_the_commands_worker_and_launch(tmp_path: Path, two_devices: list[str]) -> None:
    """`linnet worker` on each device, with {rank} in its arguments and with --device of the launcher."""
    device_job.build().save(tmp_path / "model.lnt")
    np.savez(tmp_path / "data.npz", **device_job.examples())
    stores = []
    for devices in (("opencl:{rank}",), ()):
        with Server(tmp_path / "model.lnt", workers=WORKERS) as server:
            command = [sys.executable, "-m", "linnet", "launch", "-n", str(WORKERS)]
            command += [*(() if devices else ("--device", "opencl:{local_rank}")), "-m", "linnet", "worker"]
            command += [
                str(tmp_path / "model.lnt"),
                server.address,
                "--data",
                str(tmp_path / "data.npz"),
                "--batch",
                str(BATCH),
            ]
            command += ["--steps", "3", "--workers", str(WORKERS), "--number", "{rank}", "--json", "--log", "3"]
            command += [word for device in devices for word in ("--device", device)]
            done = subprocess.run(command, env=TWO, capture_output=True, text=True, timeout=200, check=False)
            assert done.returncode == 0, done.stderr
            records = [json.loads(line.partition("] ")[2]) for line in done.stdout.splitlines()]
            assert sorted(record["worker"] for record in records) == [0, 1]
            stores.append(server.store.as_dict())
    same(*stores)
    wrong = [*command, "--device", "opencl:7"]
    done = subprocess.run(wrong, env=TWO, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "opencl:7" in done.stderr
