"""The OpenCL device as a user meets it: names and options, a small net, the program cache, missing drivers, bad indices.
The other tests/test_opencl_*.py compare its kernels with the CPU's."""
# Dear: PoCL compiles the programs anew.

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import Graph, ops
from tests.opencl import need_opencl
from tests.opencl_device import opencl_device

Command = Callable[..., "subprocess.CompletedProcess[str]"]
RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3, 9, 11)).astype(np.float32)


def net() -> Graph:
    """A convolution with bias and relu, a mean, and a product: x f32 [2,3,9,11] to y f32 [2,5]."""
    rng = np.random.default_rng(1)
    graph = Graph()
    x = graph.placeholder("x", X.shape)
    kernel = graph.constant(rng.standard_normal((8, 3, 3, 3)).astype(np.float32), "kernel")
    bias = graph.constant(rng.standard_normal(8).astype(np.float32), "bias")
    hidden = ops.relu(ops.conv(x, kernel, bias, pads=[1, 1, 1, 1]))
    pooled = ops.mean(hidden, (2, 3))
    graph.signature(
        "infer", {"x": x}, {"y": pooled @ graph.constant(rng.standard_normal((8, 5)).astype(np.float32), "v")}
    )
    return graph


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("opencl") / "net.lnt"
    net().save(path)
    return path


def test_a_net_runs_on_the_device_and_agrees() -> None:
    opencl_device()
    session = linnet.Session(net(), device="opencl")
    assert {step.device for step in session.steps if step.op != "transfer"} == {"opencl"}
    assert session.plan_info["fallbacks"] == 0
    want = linnet.Session(net()).run({"x": X})["y"]
    for _ in range(2):
        np.testing.assert_allclose(session.run({"x": X})["y"], want, rtol=1e-5, atol=1e-5)


def test_sessions_share_programs_and_may_have_options() -> None:
    opencl_device()
    graph = net()
    first = linnet.Session(graph, device="opencl,f16=off")
    second = linnet.Session(graph, device="opencl:0,place=cost")
    np.testing.assert_allclose(first.run({"x": X})["y"], second.run({"x": X})["y"], rtol=1e-5, atol=1e-5)
    assert all(step.device == "cpu" for step in second.steps), "by its costs, so small a net is not worth a launch"


def test_wrong_options_and_numbers_are_refused_with_the_list() -> None:
    opencl_device()
    with pytest.raises(linnet.UsageError, match=r"no option 'speed=high'; it has f16=on\|off"):
        linnet.load_device("opencl,speed=high")
    with pytest.raises(linnet.Error, match="no device 'opencl:77'"):
        linnet.load_device("opencl:77")


def test_the_command_line(linnet_command: Command, model: Path, tmp_path: Path) -> None:
    need_opencl()
    rows = json.loads(linnet_command("devices", "--json").stdout)
    assert any(row["name"] == "opencl:0" and row["memory"] > 0 and row["driver"] for row in rows["devices"]), rows
    for name in ("bench", "plan"):
        more = ["--seconds", "0.01"] if name == "bench" else []
        done = linnet_command(name, model, "--device", "opencl", *more)
        assert done.returncode == 0, done.stderr
        assert "steps on opencl" in done.stdout, done.stdout
    done = linnet_command("run", model, "--random", "--device", "opencl")
    assert done.returncode == 0 and "y" in done.stdout, done.stderr


def python(code: str, **variables: str) -> str:
    """Runs Python code in another process and returns what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


RUN = """
import linnet, numpy as np
session = linnet.Session(PATH, device=DEVICE)
print(session.run({"x": np.ones((2, 3, 9, 11), np.float32)})["y"].sum())
"""


def test_programs_are_kept_in_the_users_folder_and_damaged_ones_are_compiled_again(model: Path, tmp_path: Path) -> None:
    need_opencl()
    code = f"PATH, DEVICE = {str(model)!r}, 'opencl'\n{RUN}"
    folder = tmp_path / "cache" / "linnet" / "programs"
    first = python(code, XDG_CACHE_HOME=str(tmp_path / "cache"), POCL_CACHE_DIR=str(tmp_path / "pocl"))
    files = sorted(folder.iterdir())
    assert len(files) >= 3 and folder.stat().st_mode & 0o077 == 0
    times = [file.stat().st_mtime_ns for file in files]
    assert python(code, XDG_CACHE_HOME=str(tmp_path / "cache")) == first
    assert [file.stat().st_mtime_ns for file in sorted(folder.iterdir())] == times, "nothing is compiled again"
    files[0].write_bytes(files[0].read_bytes()[:100])
    files[1].write_bytes(bytes(500))
    assert python(code, XDG_CACHE_HOME=str(tmp_path / "cache")) == first
    elsewhere = tmp_path / "elsewhere"
    assert python(code.replace("'opencl'", repr(f"opencl,cache={elsewhere}"))) == first
    assert len(list(elsewhere.iterdir())) == len(files)
    empty = tmp_path / "empty"
    assert python(code.replace("'opencl'", "'opencl,cache=off'"), XDG_CACHE_HOME=str(empty)) == first
    assert not (empty / "linnet").exists()


def test_constants_of_layers_are_no_part_of_a_program(tmp_path: Path) -> None:
    """Scales, zero points and factors are arguments: models that differ in these alone share all programs."""
    opencl_device()
    counts = []
    for factor in (0.3, 1.7):
        graph = Graph()
        x = graph.placeholder("x", X.shape)
        kernel = graph.constant(np.random.default_rng(1).standard_normal((8, 3, 1, 1)).astype(np.float32), "kernel")
        y = ops.sigmoid(ops.conv(x, kernel) * np.float32(factor) + np.float32(factor + 0.01))
        graph.signature("infer", {"x": x}, {"y": y * y})
        feeds = {"x": X * np.float32(factor) + np.float32(factor)}
        model = linnet.Model(linnet.quantize(graph, [feeds], dtype="i8", effort="fast"))
        session = linnet.Session(model, device=f"opencl,cache={tmp_path}")
        np.testing.assert_array_equal(session.run({"x": X})["y"], linnet.Session(model).run({"x": X})["y"])
        counts.append(len(list(tmp_path.iterdir())))
    assert counts[0] == counts[1] > 0


def test_without_opencl_everything_runs_on_the_cpu_and_a_gpu_is_refused_with_one_message(
    linnet_process: Command, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_OPENCL", "/nowhere/libOpenCL.so")
    done = linnet_process("devices")
    assert done.returncode == 0 and "LINNET_OPENCL names a library that cannot be opened" in " ".join(
        done.stdout.split()
    )
    assert linnet_process("run", model, "--random").returncode == 0
    done = linnet_process("run", model, "--random", "--device", "opencl")
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "/nowhere/libOpenCL.so" in done.stderr and "Traceback" not in done.stderr


def test_a_driver_without_devices_is_named(linnet_process: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    need_opencl()
    monkeypatch.setenv("OCL_ICD_VENDORS", "/nowhere/")
    done = linnet_process("devices")
    assert done.returncode == 0 and "no driver names a device" in " ".join(done.stdout.split()), done.stdout


def test_an_index_out_of_range_fails_the_run_and_the_session_goes_on() -> None:
    opencl_device()
    table = RNG.standard_normal((10, 4)).astype(np.float32)
    graph = Graph()
    index = graph.placeholder("i", (3,), dtype="i64")
    graph.signature("infer", {"i": index}, {"y": ops.gather(graph.constant(table, "table"), index)})
    session = linnet.Session(graph, device="opencl")
    good = np.array([0, -1, 7])
    np.testing.assert_array_equal(session.run({"i": good})["y"], table[good])
    for bad in (10, -11, 1 << 40):
        with pytest.raises(linnet.Error, match="out of range for an axis of size 10"):
            session.run({"i": np.array([1, bad, 2])})
        np.testing.assert_array_equal(session.run({"i": good})["y"], table[good])
