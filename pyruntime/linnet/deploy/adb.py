"""A target that adb reaches: an Android device on USB or in the network."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from linnet.clib.errors import SyncError, UsageError
from linnet.deploy.target import Done, Target, not_installed, start


class Adb(Target):
    """The device with this serial number. The number may be "" if there is only one device."""

    kind = "adb"
    bases = ("/data/local/tmp",)

    def __init__(self, name: str, serial: str = "") -> None:
        super().__init__(name)
        self.serial = serial

    def connect(self) -> None:
        if shutil.which("adb") is None:
            raise not_installed("adb")
        done = self.wait(start(["adb", "devices"]), timeout=30)
        if done.status:
            raise SyncError("adb cannot list its devices", code=601, got=done.last, hint="run `adb devices`")
        rows = [line.split(None, 1) for line in done.out.decode(errors="replace").splitlines()[1:] if line.strip()]
        devices = {row[0]: row[1].split()[0] if len(row) > 1 else "?" for row in rows if row[0] != "*"}
        if not devices:
            raise SyncError(
                "adb finds no device", code=601, expected="a device with USB debugging on", got="an empty list",
                hint="connect it, switch on USB debugging in its developer options, and see `adb devices`",
            )  # fmt: skip
        if not self.serial:
            if len(devices) > 1:
                raise UsageError(
                    "adb finds several devices", code=101, expected="one device, or adb:SERIAL", got=", ".join(devices),
                    hint=f"for example adb:{next(iter(devices))}",
                )  # fmt: skip
            self.serial = next(iter(devices))
        if self.serial not in devices:
            raise SyncError(
                f"adb finds no device {self.serial!r}", code=601, expected="one of " + ", ".join(devices), got=self.serial,
                hint="check its cable, and see `adb devices`",
            )  # fmt: skip
        state = devices[self.serial]
        if state != "device":
            hint = "allow USB debugging on its screen" if state == "unauthorized" else "connect it again"
            code = 605 if state == "unauthorized" else 601
            raise SyncError(
                f"the device {self.serial!r} cannot be used", code=code, expected="the state device", got=f"the state {state}",
                hint=hint,
            )  # fmt: skip

    def _adb(self, *words: str) -> list[str]:
        return ["adb", "-s", self.serial, *words]

    def command(self, script: str) -> list[str]:
        return self._adb("shell", script)

    def by_hand(self, script: str) -> str:
        return shlex.join(self.command(script))

    def lost(self, done: Done) -> bool:
        return done.status != 0 and done.last.startswith(
            ("error: ", "adb: error: failed to get feature", "adb: device")
        )

    def send(self, data: bytes, path: str) -> Done:
        file = self.scratch / "sent"
        file.write_bytes(data)
        file.chmod(0o700)  # adb keeps it
        return self._moved("push", str(file), path, file)

    def fetch(self, path: str) -> Done:
        file = self.scratch / "fetched"
        done = self._moved("pull", path, str(file))
        if done.status == 0:
            done.out = file.read_bytes()
        file.unlink(missing_ok=True)
        return done

    def _moved(self, verb: str, source: str, target: str, sent: Path | None = None) -> Done:
        try:
            return self.wait(start(self._adb(verb, source, target)))
        finally:
            if sent is not None:
                sent.unlink(missing_ok=True)
