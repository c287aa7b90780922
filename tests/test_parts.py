"""Builds without parts of the library: inference runs, what is left out is named with the option that brings it back.
tests/test_size.py measures the same builds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import linnet
from tests.native import ROOT, build, need, parts, run

# Every session runs by the kernels of the build and by its references; both must agree.
INFERENCE = """
import numpy as np
import linnet
from linnet import ops

graph = linnet.Graph(seed=1)
x = graph.placeholder("x", (2, 8, 9, 9))
w, v = graph.variable("w", linnet.init.glorot((8, 8, 3, 3))), graph.variable("v", linnet.init.glorot((8, 1, 3, 3)))
y = ops.conv(ops.conv(x, w), v, group=8)
y = ops.softmax(ops.pool(y * 0.5 + 1.0, kernel=[2, 2], kind="max")[0].sum(axis=[2, 3]), axis=1)
graph.signature("infer", {"x": x}, {"y": y})
feeds = {"x": np.random.default_rng(1).normal(size=(2, 8, 9, 9)).astype(np.float32)}
fast = linnet.Session(graph).run(feeds)["y"]
np.testing.assert_allclose(fast, linnet.Session(graph, reference=True).run(feeds)["y"], rtol=1e-4, atol=1e-6)
print(*linnet.isa_names())
"""

TRAINING = """
import numpy as np
import linnet
from linnet import ops
from linnet.autodiff import gradients

graph = linnet.Graph(seed=1)
x = graph.placeholder("x", (2, 3, 8, 8))
w = graph.variable("w", linnet.init.glorot((4, 3, 3, 3)))
loss = (ops.conv(x, w) * 2.0).sum()
(slope,) = gradients(loss, [w])
graph.signature("infer", {"x": x}, {"slope": slope})
for reference in (False, True):
    try:
        linnet.Session(graph, reference=reference).run({"x": np.ones((2, 3, 8, 8), np.float32)})
        print("ran")
    except linnet.Error as error:
        print(error)
"""

CHECKPOINTS = """
import linnet

graph = linnet.Graph(seed=1)
graph.signature("infer", {}, {"y": graph.variable("v", linnet.init.glorot((4, 3))) * 2.0})
store = linnet.Store(linnet.Model(graph.to_bytes()))
for act in (lambda: store.save("checkpoint.lnt"), lambda: store.load("checkpoint.lnt")):
    try:
        act()
        print("done")
    except linnet.Error as error:
        print(error)
"""

TUNING = """
from pathlib import Path
import linnet
from linnet.session.planner import Planner

graph = linnet.Graph(seed=1)
x = graph.placeholder("x", (4, 4))
graph.signature("infer", {"x": x}, {"y": x @ x})
Path("tuned.txt").write_text("linnet-tuning 1\\n")
planner = Planner(linnet.Model(graph))
planner.plan({})
for act in (lambda: planner.choices, lambda: linnet.Session(graph, tuning="tuned.txt")):
    try:
        act()
        print("done")
    except linnet.Error as error:
        print(error)
"""


DEVICES = """
import linnet
from tests.py_device import PyDevice

graph = linnet.Graph(seed=1)
x = graph.placeholder("x", (4, 4))
graph.signature("infer", {"x": x}, {"y": x @ x})
try:
    linnet.Session(graph, devices=[PyDevice({"matmul": 1.0})])
    print("done")
except linnet.Error as error:
    print(error)
"""

USER_OPS = """
import linnet

twice = linnet.UserOp("com.example.twice", lambda x: x + x, lambda x: (x.dtype, x.shape), inputs=1)
for act in (
    lambda: twice(linnet.Graph().placeholder("x", (4, 4))),
    lambda: linnet.Model("twice.lnt"),
    lambda: linnet.Model("twice.lnt", user_ops=[twice]),
):
    try:
        act()
        print("done")
    except linnet.Error as error:
        print(error)
"""


def python(code: str, folder: Path, cwd: Path) -> str:
    """What a Python process prints that runs on the library of a build folder."""
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "LINNET_LIBRARY": str(folder / "liblinnet.so"), "PYTHONPATH": search}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.more
@pytest.mark.parametrize("name", ["baseline", "inference"])
def test_inference(name: str, tmp_path: Path) -> None:
    isas = python(INFERENCE, build(name, "linnet"), tmp_path).split()
    assert isas[0] == "scalar" and len(isas) > 1
    assert not {"avx512", "avx512vnni"} & set(isas)
    if name == "baseline":
        assert len(isas) == 2, isas


@pytest.mark.more
def test_everything_but_kernels_is_in_the_baseline(tmp_path: Path) -> None:
    assert python(TRAINING, build("baseline", "linnet"), tmp_path).split() == ["ran", "ran"]
    assert python(CHECKPOINTS, build("baseline", "linnet"), tmp_path).split() == ["done", "done"]


@pytest.mark.more
def test_training_that_is_left_out_is_named(tmp_path: Path) -> None:
    text = python(TRAINING, build("inference", "linnet"), tmp_path)
    assert text.count("conv_gradient") >= 2 and text.count("-DLINNET_TRAINING=ON") == 2, text
    assert "ran" not in text.split()


@pytest.mark.more
def test_checkpoints_that_are_left_out_are_named(tmp_path: Path) -> None:
    text = python(CHECKPOINTS, build("inference", "linnet"), tmp_path)
    assert "save is not in this build" in text and "load is not in this build" in text  # Store.save and Store.load
    assert text.count("-DLINNET_CHECKPOINTS=ON") == 2


@pytest.mark.more
def test_tuning_that_is_left_out_is_named(tmp_path: Path) -> None:
    text = python(TUNING, build("inference", "linnet"), tmp_path)
    assert text.count("-DLINNET_TUNING=ON") == 2 and "done" not in text.split(), text
    assert python(TUNING, build("everything", "linnet"), tmp_path).split() == ["done", "done"]


@pytest.mark.more
def test_devices_that_are_left_out_are_named(tmp_path: Path) -> None:
    text = python(DEVICES, build("inference", "linnet"), tmp_path)
    assert text.count("-DLINNET_DEVICES=ON") == 1 and "done" not in text.split(), text
    assert python(DEVICES, build("everything", "linnet"), tmp_path).split() == ["done"]


@pytest.mark.more
def test_user_ops_that_are_left_out_are_named(tmp_path: Path) -> None:
    """A node cannot be built, and a file that has one is refused with the op's name, registered or not."""
    twice = linnet.UserOp("com.example.twice", lambda x: x + x, lambda x: (x.dtype, x.shape), inputs=1)
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 4))
    graph.signature("infer", {"x": x}, {"y": twice(x)})
    graph.save(tmp_path / "twice.lnt")
    text = python(USER_OPS, build("inference", "linnet"), tmp_path)
    assert text.count("-DLINNET_USER_OPS=ON") == 3 and "done" not in text.split(), text
    assert "com.example.twice" in text
    lines = python(USER_OPS, build("everything", "linnet"), tmp_path).splitlines()
    assert lines[0] == lines[-1] == "done" and "not registered" in lines[1], lines


@pytest.mark.parametrize(
    "options, message",
    [
        (("-DLINNET_ISAS=avx9",), "LINNET_ISAS: avx9 is not known"),
        (("-DLINNET_CHECKPOINTS=OFF",), "set LINNET_SYNC=OFF too"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    need("cmake")
    done = subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(tmp_path), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and message in " ".join(done.stderr.split()), done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in parts() if name not in ("baseline", "inference")])
def test_every_part_alone(name: str, tmp_path: Path) -> None:
    folder = build(name, "linnet")
    assert "scalar" in python(INFERENCE, folder, tmp_path)
    ran = python(TRAINING, folder, tmp_path).split() == ["ran", "ran"]
    assert ran == ("-DLINNET_TRAINING=OFF" not in parts()[name])
    run(["cmake", "--build", str(folder)])  # the tools link
