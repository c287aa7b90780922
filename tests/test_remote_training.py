"""Training of networks that are cut at random over two hosts and this process: ten steps have the bits of one process, unless
the cut lets another kernel compute a gradient."""

from __future__ import annotations

import random

import numpy as np
import pytest

import linnet
from tests.remote_host import host
from tests.small_nets import NETS, training
from tests.test_remote import nodes_of

# The gradient of a convolution's input has kernels that add in different orders, and their choice depends on the layouts around.
OTHER_KERNELS = ("google",)
FEW = {("lenet", 3), ("mobile", 2), ("lstm", 4)}  # in each run of the tests
CASES = [pytest.param(net, n, marks=() if (net, n) in FEW else pytest.mark.more) for net in NETS for n in (2, 3, 4)]


@pytest.mark.parametrize(("net", "pieces"), CASES)
def test_ten_steps_keep_their_bits(net: str, pieces: int) -> None:
    graph, feeds = training(net, linnet.Adam(0.01))
    rng = random.Random(f"{net} {pieces}")
    alone = linnet.Session(graph, "train", threads=1)
    names = nodes_of(alone)
    with host("127.0.0.1:0", "--threads", "1") as one, host("127.0.0.1:0", "--threads", "1") as two:
        borders = sorted(rng.sample(range(1, len(names)), pieces - 1))
        where = [one.name, two.name, "cpu", one.name][:pieces]
        placement = {name: where[sum(border <= i for border in borders)] for i, name in enumerate(names)}
        cut = linnet.Session(graph, "train", threads=1, devices=[one.name, two.name], placement=placement)
        losses = [[session.run(feeds)["loss"].tobytes() for _ in range(10)] for session in (alone, cut)]
        assert {one.name, two.name} <= {step.device for step in cut.steps}
        assert len(set(losses[0])) == 10
        for name in alone.variables:
            ours, theirs = np.asarray(cut.variables[name]), np.asarray(alone.variables[name])
            if net in OTHER_KERNELS:
                np.testing.assert_allclose(
                    ours, theirs, rtol=0, atol=1e-6 * max(float(np.abs(theirs).max()), 1), err_msg=name
                )
            else:
                assert ours.tobytes() == theirs.tobytes(), name
        assert losses[0] == losses[1] or net in OTHER_KERNELS
