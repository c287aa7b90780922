"""The examples of one model over several machines: what they print is true, and their hosts end with them."""
# Dear: an emulated ARM processor runs half of a network; networks are trained until their loss has fallen.

from __future__ import annotations

import os
import platform
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from examples.machines import phone_and_pc
from tests.native import ROOT, build, need
from tests.test_remote_mixed import SYSROOT
from tests.test_training_examples import number
from tests.zoo import at_hand


def command(name: str, *arguments: object, **environment: str) -> str:
    """The output of an example."""
    words = [sys.executable, "-m", f"examples.machines.{name}", *map(str, arguments)]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert all(refused(address) for address in re.findall(r"remote:(127\.0\.0\.1:\d+)", done.stdout))
    return done.stdout


def refused(address: str) -> bool:
    """Whether nothing listens there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.network
@pytest.mark.parametrize("emulated", [True, False])
def test_a_phone_and_a_pc(emulated: bool, tmp_path: Path) -> None:
    at_hand(phone_and_pc.network)
    at_hand(phone_and_pc.sample_photo)
    picture, environment = tmp_path / "lanes.svg", {"LINNET_TARGETS": str(tmp_path)}
    if emulated:
        if platform.machine() == "aarch64":
            pytest.skip("this machine needs no emulator for ARM")
        need("qemu-aarch64")
        (tmp_path / "aarch64").mkdir()
        (tmp_path / "aarch64" / "linnet-host").symlink_to(build("aarch64", "linnet-host") / "linnet-host")
        environment["QEMU_LD_PREFIX"] = SYSROOT
    else:
        environment["PATH"] = str(tmp_path)  # where there is no emulator
    text = command("phone_and_pc", "--out", picture, **environment)
    assert ("emulated by qemu" in text) == emulated and ("takes its place" in text) == (not emulated)
    assert 0 < number(r"cross to this machine: ([\d.]+) %", text) < 10
    assert number(r"phone: \d+ nodes, (\d+) % of the work", text) >= 50
    difference = number(r"differ by ([\d.e+-]+) at most", text)
    assert difference < 0.02 if emulated else difference == 0
    assert len(set(re.findall(r"find[s]? (a face .*)\.\n", text))) == 1
    words = [element.text or "" for element in ElementTree.parse(picture).iter() if element.tag.endswith("text")]
    assert "this machine" in words and any(word.startswith("remote:") for word in words) and "921.6 kB" in words


def test_a_split_alexnet_has_the_bits_of_one_process() -> None:
    text = command("split_training", "--epochs", 2, "--digits", 480)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]
    assert losses[1] < 0.8 * losses[0]
    assert "have the bits of one process" in text
    assert number(r"([\d,]+) bytes travel between the two", text) > 500_000


def test_an_embedding_and_an_lstm_learn_words() -> None:
    text = command("embedding_and_lstm", "--steps", 60)
    assert number(r"step 60: loss ([\d.]+)", text) < number(r"would give a loss of ([\d.]+)", text) - 0.3
    assert (
        number(r"([\d,]+) bytes travel between the two", text) == 2 * 16 * 12 * 64 * 4
    )  # the rows, and their gradients


@pytest.mark.parametrize("number_", [signal.SIGINT, signal.SIGTERM])
def test_hosts_end_with_their_example(number_: signal.Signals) -> None:
    words = [sys.executable, "-m", "examples.machines.embedding_and_lstm", "--steps", "100000000"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        text = ""
        while "step 50:" not in text:
            text += (line := running.stdout.readline())
            assert line, running.stderr.read()
        running.send_signal(number_)
        errors = running.communicate(timeout=60)[1]
    assert running.returncode == (130 if number_ == signal.SIGINT else 143) and errors == ""
    addresses = re.findall(r"remote:(127\.0\.0\.1:\d+)", text)
    assert len(addresses) == 2 and all(map(refused, addresses))
