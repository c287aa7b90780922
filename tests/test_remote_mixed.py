"""One network over unlike machines: an emulated ARM board and this machine's OpenCL, within tolerance of the CPU alone; and
training steps over both."""

from __future__ import annotations

import platform

import numpy as np
import pytest

import linnet
from linnet import nn, ops
from tests.native import need
from tests.opencl_device import opencl_device
from tests.remote_host import host

SYSROOT = "/usr/aarch64-linux-gnu"
BOARD = ("qemu-aarch64", "-L", SYSROOT, "-cpu", "max")
pytestmark = pytest.mark.skipif(platform.machine() == "aarch64", reason="this machine needs no emulator for ARM")


def network(train: bool) -> linnet.Graph:
    """LeNet-5 on pictures of 14 x 14, whose layers are called near and far."""
    graph = linnet.Graph(seed=3)
    x, t = graph.placeholder("x", (4, 1, 14, 14)), graph.placeholder("t", (4,), "i32")
    with graph.scope("near"):
        y = nn.max_pool(nn.conv(x, 6, 5, padding="same", activation="relu"), 2)
        y = nn.max_pool(nn.conv(y, 16, 3, activation="relu"), 2)
    with graph.scope("far"):
        y = nn.dense(nn.dense(ops.reshape(y, (4, -1)), 32, activation="relu"), 10)
    if train:
        loss = linnet.softmax_cross_entropy(y, t).mean()
        graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.SGD(0.05).minimize(loss))
    else:
        graph.signature("infer", {"x": x}, {"y": nn.softmax(y)})
    return graph


@pytest.mark.parametrize("train", [False, True])
def test_a_board_and_opencl_agree_with_one_process(train: bool) -> None:
    need("qemu-aarch64")
    rng, signature = np.random.default_rng(1), "train" if train else "infer"
    feeds = {"x": rng.standard_normal((4, 1, 14, 14)).astype(np.float32), "t": rng.integers(0, 10, 4).astype(np.int32)}
    if not train:
        del feeds["t"]
    here = linnet.Session(network(train), signature, threads=1)
    with host("127.0.0.1:0", "--threads", "1", kind="aarch64", under=BOARD) as board:
        opencl = opencl_device()
        places, devices = {"near*": board.name, "*": opencl.name}, [linnet.load_device(board.name), opencl]
        there = linnet.Session(network(train), signature, threads=1, devices=devices, placement=places)
        assert {board.name, opencl.name} <= {step.device for step in there.steps if step.op != "transfer"}
        assert {info.hardware for info in linnet.devices(board.name)} == {"aarch64"}
        for _ in range(5 if train else 1):
            for name, value in here.run(feeds).items():
                np.testing.assert_allclose(there.run(feeds)[name], value, rtol=2e-4, atol=1e-6)
