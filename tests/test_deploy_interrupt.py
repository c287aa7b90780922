"""`linnet deploy` that is interrupted at any moment leaves neither files nor processes, and says so."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from pathlib import Path

import pytest

from tests.deploy_targets import Place, sshd

MOMENTS = 20


def interrupt(place: Place, words: list[object], wait: float, number: int) -> None:
    """Sends a signal `wait` seconds after the first line of progress."""
    process = place.start(words[0], place.slow(), *words[1:], "--seconds", 5)
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first == f"connecting to {'this machine' if words[0] == 'local' else words[0]}\n"
    time.sleep(wait)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    name = "this machine" if words[0] == "local" else words[0]
    assert process.returncode == 130 and err.endswith(f"linnet: error: interrupted; nothing is left on {name}\n"), err
    assert err.count("linnet: error") == 1 and "Traceback" not in err and place.left() == [], wait


def moments(seed: int, last: float) -> list[float]:
    """Seconds after the first line, dense where folders and processes are made."""
    draw = random.Random(seed)
    return [last * draw.random() ** 2 for _ in range(MOMENTS)]


@pytest.mark.parametrize("moment", range(2))
def test_this_machine(moment: int, tmp_path: Path) -> None:
    interrupt(Place(tmp_path), ["local"], moments(1, 2.0)[moment], (signal.SIGINT, signal.SIGTERM)[moment % 2])


def test_an_emulated_cpu(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.arm_tools()
    interrupt(place, ["emulate:cortex-a72"], 1.5, signal.SIGINT)


def test_ssh(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with sshd(place) as server:
        interrupt(place, [server.target, *server.options], 3.0, signal.SIGINT)


@pytest.mark.soak
@pytest.mark.parametrize("moment", range(2, MOMENTS))
@pytest.mark.parametrize("target", ["local", "emulate:cortex-a72", "ssh"])
def test_many_moments(target: str, moment: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    number = (signal.SIGINT, signal.SIGTERM)[moment % 2]
    if target == "ssh":
        with sshd(place) as server:
            interrupt(place, [server.target, *server.options], moments(3, 4.0)[moment], number)
        return
    place.arm_tools()
    interrupt(place, [target], moments(2, 2.5)[moment], number)


def test_two_signals_are_as_good_as_one(tmp_path: Path) -> None:
    place = Place(tmp_path)
    process = place.start("local", place.slow(), "--bench", "--seconds", 30)
    assert process.stderr is not None
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None
    for _ in range(5):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err == "linnet: error: interrupted; nothing is left on this machine\n", err
    assert place.left() == []


def test_a_host_process_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves no time to clean up. The holders remove what was sent, and the private folder of the host."""
    place = Place(tmp_path)
    process = place.start("local", place.slow(), "--bench", "--seconds", 60)
    assert process.stderr is not None
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None
    end = time.monotonic() + 10
    while not any("linnet-bench" in words for words in place.processes().values()):
        assert time.monotonic() < end
    process.kill()
    process.communicate(timeout=30)
    assert place.left() == []


@pytest.mark.soak
@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("target", ["local", "ssh"])
def test_a_host_process_that_is_killed_at_any_moment(target: str, moment: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    with sshd(place) if target == "ssh" else contextlib.nullcontext() as server:
        words = ["local"] if server is None else [server.target, *server.options]
        process = place.start(words[0], place.slow(), *words[1:], "--seconds", 5)
        assert process.stderr is not None and process.stderr.readline().startswith("connecting to ")
        time.sleep(moments(4, 2.0 if server is None else 4.0)[moment])
        process.kill()
        process.communicate(timeout=30)
        end = time.monotonic() + 30  # a shared connection ends by itself after 10 seconds without a command
        while (left := place.left()) and time.monotonic() < end:
            assert not any("linnet-bench" in line for line in left)
        assert left == []


@pytest.mark.more
def test_a_removal_that_is_not_confirmed(tmp_path: Path) -> None:
    """Where rm fails, the message names the folder and the command that removes it."""
    place = Place(tmp_path)
    place.program("rm", f'[ ! -e {place.folder}/broken ] || exit 1\nexec /bin/rm "$@"')
    process = place.start("local", place.slow(), "--bench", "--seconds", 30)
    assert process.stderr is not None
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None
    (place.folder / "broken").touch()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=90)
    [folder] = [path for path in place.tmp.glob("linnet-deploy.*") if (path / "f32.lnt").exists()]
    text = f"linnet: error: interrupted; {folder} may be left on this machine; remove it with: rm -rf {folder}\n"
    assert process.returncode == 130 and err.endswith(text), err
    assert place.processes() == {}
