"""Targets on this machine: the machine itself, and a CPU that qemu-user emulates."""

from __future__ import annotations

import shutil
from typing import Final

from linnet.clib.errors import UsageError
from linnet.deploy.target import Target, not_installed

_64, _32 = ("aarch64", "qemu-aarch64"), ("armv7", "qemu-arm")
CPUS: Final = {  # as qemu calls them: architecture of the tools, and the program that emulates it
    **dict.fromkeys(("cortex-a35", "cortex-a53", "cortex-a57", "cortex-a72", "cortex-a76", "neoverse-n1"), _64),
    **dict.fromkeys(("cortex-a7", "cortex-a8", "cortex-a9", "cortex-a15"), _32),
    **dict.fromkeys(("arm1176", "arm11mpcore"), ("armv6", "qemu-arm")),
    "rv64": ("riscv64", "qemu-riscv64"),
}


class Local(Target):
    """This machine."""

    kind = "local"
    own_tools = True

    def command(self, script: str) -> list[str]:
        return ["sh", "-c", script]

    def by_hand(self, script: str) -> str:
        return script


class Emulated(Local):
    """This machine, with tools for another CPU. Their results are those of that CPU, but their times are not."""

    kind = "emulate"
    own_tools = False

    def __init__(self, name: str, cpu: str) -> None:
        super().__init__(name)
        if cpu not in CPUS:
            raise UsageError(
                f"the CPU {cpu!r} is not known", code=102, tensor="emulate", expected="one of " + ", ".join(CPUS), got=cpu,
                hint="for example emulate:cortex-a72",
            )  # fmt: skip
        self.architecture, program = CPUS[cpu]
        self.prefix = (program, "-cpu", cpu)

    def connect(self) -> None:
        if shutil.which(self.prefix[0]) is None:
            raise not_installed(self.prefix[0])
