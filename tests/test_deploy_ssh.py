"""`linnet deploy` over ssh to an sshd on loopback, and over adb to a stand-in: what works, and how connections fail."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import linnet
from linnet.deploy import ssh
from linnet.deploy.address import target_of
from tests.deploy_targets import HERE, Place, Sshd, sshd, stand_in_adb
from tests.terminal import answered
from tests.test_deploy import error


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def server(place: Place) -> Iterator[Sshd]:
    with sshd(place) as running:
        yield running


def test_ssh(place: Place, server: Sshd) -> None:
    words = (place.folder / "mlp.lnt", *server.options, "--threads", 1, "--seconds", 0.02)
    done = place.deploy(server.target, *words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["target"] == server.target and found["machine"]["architecture"] == HERE
    assert found["verified"][0]["equal"] and found["results"][0]["threads"] == 1 and place.left() == []
    kept = place.deploy(server.target, *words, "--keep")
    assert kept.returncode == 0 and f"kept on {server.target}: {place.tmp}/linnet-deploy." in kept.stdout, kept.stderr
    assert len(list(place.tmp.iterdir())) == 1 and "ssh -o IdentitiesOnly=yes" in kept.stdout


@pytest.mark.more
def test_a_connection_lasts_while_a_model_is_prepared(
    place: Place, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PyTorch module can take longer than the time after which a connection without commands ends."""
    monkeypatch.setattr(ssh, "_IDLE", 4)
    for held in (True, False):
        target = target_of(server.target, server.options[1::2])
        with tempfile.TemporaryDirectory() as folder:
            target.scratch = Path(folder)
            target.connect()
            try:
                with target.held() if held else contextlib.nullcontext():
                    time.sleep(9)
                if held:
                    assert target.run("echo there").out == b"there\n"
                else:  # that is what the test is about
                    with pytest.raises(linnet.SyncError, match="was lost"):
                        target.run("echo there")
            finally:
                target.close()
    assert place.left() == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"UserKnownHostsFile": "/dev/null"}, "not_authenticated: the host key of '{}' is not known; got Host key verification"),
        ({"IdentityFile": "other"}, "not_authenticated: '{}' does not accept this user; got "),
        ({"Port": "1"}, "unreachable: '{}' refuses the connection; got "),
        ({"Hostname": "nosuch.invalid"}, "unreachable: the host '{}' is not known; got "),
        ({"ProxyCommand": "sleep 20", "ConnectTimeout": "1"}, "timed_out: '{}' does not answer; got "),
    ],
)  # fmt: skip
def test_connections_that_are_refused(options: dict[str, str], text: str, place: Place, server: Sshd) -> None:
    known = {"IdentityFile": "id", "UserKnownHostsFile": f"{server.folder}/known", **options}
    known["IdentityFile"] = f"{server.folder}/{known['IdentityFile']}"
    target = server.target if "Port" not in options else "127.0.0.1"
    message = error(place.deploy(target, place.folder / "mlp.lnt", *server.with_options(**known)))
    assert text.format(target) in message and place.left() == []
    if "UserKnownHostsFile" in options:
        assert "run `ssh -o" in message and "once and compare the fingerprint" in message


def test_a_host_key_that_has_changed(place: Place, server: Sshd) -> None:
    known = f"[127.0.0.1]:{server.port} {(server.folder / 'other.pub').read_text()}"
    (server.folder / "known").write_text(known)
    message = error(place.deploy(server.target, place.folder / "mlp.lnt", *server.options))
    assert "the host key of" in message and "has changed" in message and "ssh-keygen -R" in message


def test_ssh_that_is_not_installed(place: Place) -> None:
    place.env["PATH"] = str(place.bin)
    for name in ("sh", "mktemp", "df", "chmod", "rm", "mkdir"):
        (place.bin / name).symlink_to(next(p for d in ("/bin", "/usr/bin") if (p := Path(d, name)).exists()))
    for target, package in (("board", "openssh-client"), ("adb", "adb")):
        assert f"apt-get install {package}" in error(place.deploy(target, place.folder / "mlp.lnt"))


def test_ssh_asks_in_the_terminal(place: Place, server: Sshd) -> None:
    """With a terminal, an unknown host key is a question, and Ctrl-C there ends the command."""
    words = [str(place.folder / "mlp.lnt"), "--verify", "--json"]
    options = server.with_options(IdentityFile=f"{server.folder}/id", UserKnownHostsFile=f"{place.folder}/new")
    for answer, status in (("yes\r", 0), ("\x03", 130)):
        (place.folder / "new").unlink(missing_ok=True)
        command = [sys.executable, "-m", "linnet", "deploy", server.target, *words, *options]
        ended, seen = answered(command, place.env, "continue connecting", answer)
        log = (server.folder / "log").read_text()
        assert "continue connecting" in seen, f"no question; status {ended}: {seen}\nsshd: {log}"
        assert ended == status, seen
        assert ('"good": true' if status == 0 else "nothing is left on") in seen and place.left() == []


def test_a_connection_that_ends_in_the_middle(place: Place, server: Sshd) -> None:
    """The second measurement is under way when the server's processes die. The folder there goes without the host's help."""
    words = ("--bench", "--threads", "1,2", "--seconds", 2)
    process = place.start(server.target, place.slow(), *server.options, *words)
    assert process.stderr is not None
    while "2 threads: measuring" not in process.stderr.readline():
        assert process.poll() is None
    server.drop()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "connection_lost: the connection to" in err, err
    assert "median ms" in out and "linnet: warning: " in err and "rm -rf" in err and place.left() == []


@pytest.mark.more
def test_a_host_process_that_is_killed(place: Place, server: Sshd) -> None:
    process = place.start(server.target, place.slow(), *server.options, "--bench", "--seconds", 60)
    assert process.stderr is not None
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None
    assert place.left()
    process.kill()
    process.communicate(timeout=30)
    end = time.monotonic() + 30  # the shared connection ends by itself after 10 seconds without a command
    while (left := place.left()) and time.monotonic() < end:
        assert not any("linnet-bench" in line for line in left)
    assert left == []


# ---- adb


def test_adb(place: Place) -> None:
    device = stand_in_adb(place, "A1\tdevice\n")
    for target in ("adb", "adb:A1"):
        done = place.deploy(target, place.folder / "mlp.lnt", "--threads", 1, "--seconds", 0.02, "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["verified"][0]["equal"] and found["results"][0]["median_ms"] > 0
        assert list(device.iterdir()) == [] and place.left() == []
    done = place.deploy("adb", place.folder / "mlp.lnt", "--bench", "--seconds", 0.02, "--keep")
    [kept] = device.iterdir()
    assert f"adb -s A1 shell 'cd {kept} && ./linnet-bench f32.lnt'" in done.stdout


@pytest.mark.parametrize(
    ("target", "devices", "text"),
    [
        ("adb", "", "unreachable: adb finds no device; expected a device with USB debugging on"),
        ("adb", "A1\tdevice\nB2\tdevice\n", "expected one device, or adb:SERIAL, got A1, B2; for example adb:A1"),
        ("adb:B2", "A1\tdevice\n", "adb finds no device 'B2'; expected one of A1, got B2"),
        ("adb", "A1\tunauthorized\n", "got the state unauthorized; allow USB debugging on its screen"),
        ("adb", "A1\toffline\n", "got the state offline; connect it again"),
    ],
)  # fmt: skip
def test_devices_that_cannot_be_used(target: str, devices: str, text: str, place: Place) -> None:
    stand_in_adb(place, devices)
    assert text in error(place.deploy(target, place.folder / "mlp.lnt")) and place.left() == []


def test_a_device_that_goes_away(place: Place) -> None:
    stand_in_adb(place, "A1\tdevice\n")
    script = (place.bin / "adb").read_text()
    gone = 'case "$*" in *linnet-bench*json*) echo "error: device \'A1\' not found" >&2; exit 1;; esac\n'
    place.program("adb", gone + script)
    text = error(place.deploy("adb", place.folder / "mlp.lnt", "--bench"))
    assert "connection_lost: the connection to adb was lost; got error: device 'A1' not found" in text
    assert place.left() == []
