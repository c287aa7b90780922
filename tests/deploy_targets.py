"""What the tests of `linnet deploy` deploy to and with: a folder of tools, an sshd on loopback, a stand-in for adb, and a look at
what a deployment has left."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import linnet
from tests.graphs import bytes_of
from tests.native import ROOT, build, need, run

TOOLS = ("linnet-bench", "linnet-run")
HERE = platform.machine()
DIGITS = ROOT / "examples" / "mnist_small"


def calibration(path: Path, count: int = 4) -> Path:
    """Batches of one digit each for mnist_small."""
    with np.load(DIGITS / "samples.npz") as samples:
        images = samples["images"][:count].astype(np.float32) / 255
    np.savez(path, input=images[:, None, None])
    return path


@functools.cache
def digits() -> bytes:
    return linnet.from_onnx(DIGITS / "mnist_small.onnx", input_shapes={"input": (1, 1, 28, 28)}).to_bytes()


class Place:
    """A folder of its own for one test: temporary folder, tools, programs in front of PATH, and a mark by which its processes
    are found."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, uuid.uuid4().hex
        self.tmp, self.bin, self.targets = folder / "t", folder / "bin", folder / "targets"
        for made in (self.tmp, self.bin, self.targets):
            made.mkdir()
        (folder / "mlp.lnt").write_bytes(bytes_of("mlp"))
        self.env = {
            **os.environ, "TMPDIR": str(self.tmp), "LINNET_TARGETS": str(self.targets), "LINNET_TEST_MARK": self.mark,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
        }  # fmt: skip
        self.own_tools()

    def slow(self) -> Path:
        """A model so slow that linnet-bench does not reach its limit of runs, and end, before a signal."""
        path = self.folder / "digits.lnt"
        path.write_bytes(digits())
        return path

    def own_tools(self) -> None:
        """The tools of this machine as those of its architecture."""
        for tool in TOOLS:
            self.tool(HERE, tool).symlink_to(build("release", *TOOLS) / tool)

    def arm_tools(self) -> None:
        need("qemu-aarch64")
        for tool in TOOLS:
            self.tool("aarch64", tool).symlink_to(build("deploy-aarch64", *TOOLS) / tool)

    def tool(self, arch: str, name: str) -> Path:
        """The path of a tool, which is absent now."""
        path = self.targets / arch / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        return path

    def replace(self, name: str, text: str) -> None:
        """Puts a shell script in the place of a tool; REAL is the tool."""
        script = self.tool(HERE, name)
        script.write_text("#!/bin/sh\n" + text.replace("REAL", str(build("release", *TOOLS) / name)))
        script.chmod(0o755)

    def program(self, name: str, text: str) -> None:
        """A shell script in front of PATH."""
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def start(self, *words: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "linnet", "deploy", *map(str, words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=self.env, start_new_session=True
        )

    def deploy(self, *words: object) -> subprocess.CompletedProcess[str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def left(self) -> list[str]:
        """Files and processes of deployments that are still there after a moment in which killed processes end."""
        end = time.monotonic() + 2
        while (found := self._left()) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def _left(self) -> list[str]:
        return [str(path) for path in self.tmp.glob("linnet-*")] + [
            f"{pid}: {words}" for pid, words in self.processes().items() if int(pid) != os.getpid()
        ]

    def processes(self) -> dict[str, str]:
        """Command lines of the processes that this place's commands started or that run in its temporary folder."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    marked = self.mark.encode() in (entry / "environ").read_bytes()
                    if marked or os.readlink(entry / "cwd").startswith(str(self.tmp)):
                        found[entry.name] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found


class Sshd:
    """An sshd on loopback with its own keys, for the current user. `options` are those that reach it. Sessions get the place's
    temporary folder and its programs."""

    def __init__(self, place: Place) -> None:
        need("sshd", "ssh", "ssh-keygen")
        self.folder = place.folder / "sshd"
        self.folder.mkdir(mode=0o700)
        for name in ("host", "id", "other"):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)])
        shutil.copy(self.folder / "id.pub", self.folder / "authorized_keys")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        (self.folder / "known").write_text(f"[127.0.0.1]:{self.port} {(self.folder / 'host.pub').read_text()}")
        (self.folder / "config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\nPidFile none\nStrictModes no\n"
            f"AuthorizedKeysFile {self.folder}/authorized_keys\nPasswordAuthentication no\nPermitRootLogin yes\nUsePAM no\n"
            f"Subsystem sftp internal-sftp -d {place.tmp}\n"  # the home folder of scp
            f'SetEnv TMPDIR={place.tmp} "PATH={place.env["PATH"]}"\n'
        )
        if os.geteuid() == 0:  # sshd of root wants its folder, which the system's service would make
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.target = f"127.0.0.1:{self.port}"
        self.options = self.with_options(IdentityFile=f"{self.folder}/id", UserKnownHostsFile=f"{self.folder}/known")
        program = shutil.which("sshd")
        assert program is not None
        self.log = open(self.folder / "log", "w")  # noqa: SIM115
        self.server = subprocess.Popen([program, "-D", "-e", "-f", str(self.folder / "config")], stderr=self.log)
        end = time.monotonic() + 20
        while "Server listening" not in (self.folder / "log").read_text():
            assert self.server.poll() is None and time.monotonic() < end, (self.folder / "log").read_text()
            time.sleep(0.05)

    def with_options(self, **options: str) -> list[str]:
        options = {"IdentitiesOnly": "yes", "GlobalKnownHostsFile": "none", **options}
        return [word for name, value in options.items() for word in ("--ssh-option", f"{name}={value}")]

    def drop(self) -> None:
        """Kills the processes of all connections, as a cut cable would."""
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    text = (entry / "stat").read_text()
                    name = re.search(r"\((.*)\)", text)
                    if name and name[1].startswith("sshd"):
                        parents[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
        dropped = {self.server.pid}
        for _ in range(4):
            dropped |= {pid for pid, parent in parents.items() if parent in dropped}
        for pid in dropped - {self.server.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self.drop()
        self.server.kill()
        self.server.wait()
        self.log.close()


@contextlib.contextmanager
def sshd(place: Place) -> Iterator[Sshd]:
    server = Sshd(place)
    try:
        yield server
    finally:
        server.close()


def stand_in_adb(place: Place, devices: str) -> Path:
    """A program that speaks adb's command line. Its device is a folder, in which /data/local/tmp is mapped to `device`."""
    folder = place.folder / "device"
    folder.mkdir(exist_ok=True)
    (place.folder / "devices").write_text(devices)
    place.program(
        "adb",
        f"""there() {{ printf '%s' "$1" | sed 's#/data/local/tmp#{folder}#g'; }}
if [ "$1" = devices ]; then echo "List of devices attached"; cat '{place.folder}/devices'; exit 0; fi
[ "$1" = -s ] && [ "$2" = A1 ] || {{ echo "error: device '$2' not found" >&2; exit 1; }}
shift 2
case $1 in
shell) exec sh -c "$(there "$2")" ;;
push) cp -p "$2" "$(there "$3")" && echo "$2: 1 file pushed" ;;
pull) cp "$(there "$2")" "$3" && echo "$2: 1 file pulled" ;;
*) echo "adb: unknown command $1" >&2; exit 1 ;;
esac""",
    )
    return folder
