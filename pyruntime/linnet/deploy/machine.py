"""Finds what processor a target has, and which tools it can run."""

from __future__ import annotations

import dataclasses
from typing import Final

from linnet.clib.errors import Error, SyncError
from linnet.deploy.target import Target

ARCHITECTURES: Final = ("aarch64", "armv7", "armv6", "riscv64", "x86_64")
_NAMES: Final = {
    "aarch64": "aarch64", "arm64": "aarch64", "armv8l": "armv7", "armv7l": "armv7", "armv6l": "armv6",
    "riscv64": "riscv64", "x86_64": "x86_64", "amd64": "x86_64",
}  # fmt: skip
# Without getconf (BusyBox), the fifth byte of the program that reads it says the same: 1 or 2 for 32 or 64 bits.
_SCRIPT: Final = r"""echo "machine=$(uname -m)"
echo "system=$(uname -s) $(uname -r)"
echo "bits=$(getconf LONG_BIT 2>/dev/null || od -An -tu1 -j4 -N1 /proc/self/exe 2>/dev/null)"
echo "board=$( (tr -d "\000" </proc/device-tree/model || getprop ro.product.model) 2>/dev/null)"
{ grep -qsw hypervisor /proc/cpuinfo || grep -qs dummy-virt /proc/device-tree/compatible; } && echo "virtual=yes"
head -n 60 /proc/cpuinfo 2>/dev/null
exit 0
"""


@dataclasses.dataclass(frozen=True)
class Machine:
    """architecture: the architecture of the tools that run there. cpu, board: names if the system tells them, else "".
    virtual: whether the system says that it is a virtual machine."""

    architecture: str
    machine: str
    bits: int
    system: str
    cpu: str
    board: str
    virtual: bool = False

    @property
    def words(self) -> str:
        return ", ".join(filter(None, (self.board, self.cpu, self.architecture, self.system)))


def machine_of(target: Target) -> Machine:
    """Asks the target for a description of its machine. Raises SyncError if the target does not answer. Raises Error if
    there are no tools for its processor."""
    done = target.run(_SCRIPT, timeout=30)
    values: dict[str, str] = {}
    cpu: dict[str, str] = {}
    for line in done.out.decode(errors="replace").splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and name in ("machine", "system", "bits", "board", "virtual"):
            values.setdefault(name, value.strip())
        elif ":" in line:
            key, _, value = line.partition(":")
            cpu.setdefault(key.strip(), value.strip())
    if not values.get("machine"):
        raise SyncError(
            f"{target.name} does not say what machine it is", code=604, expected="the answer of `uname -m`",
            got=done.last or f"exit status {done.status}", hint="check that the user there has a POSIX shell",
        )  # fmt: skip
    bits = {"32": 32, "1": 32, "64": 64, "2": 64}.get(values.get("bits", ""), 0)
    name = cpu.get("model name") or cpu.get("Hardware") or ""
    found = target.architecture or architecture(values["machine"], bits, cpu.get("Features"))
    if not found:
        raise Error(
            f"there are no tools for the processor of {target.name}", code=301, expected=" or ".join(ARCHITECTURES),
            got=values["machine"] + (f" with programs of {bits} bits" if bits else ""),
            hint="compile the runtime there, see docs/building.md",
        )  # fmt: skip
    if target.architecture:  # emulated: the system and the board are those of the host
        return Machine(found, values["machine"], bits, "", target.prefix[-1], "", "virtual" in values)
    about = values.get("system", ""), name, values.get("board", ""), "virtual" in values
    return Machine(found, values["machine"], bits, *about)


def architecture(machine: str, bits: int, features: str | None = None) -> str:
    """The architecture of the tools that fit the output of `uname -m`, or "". bits: 32 or 64 bits of the programs
    there, or 0 if unknown; a 64-bit kernel may have 32-bit programs. features: the processor's features in
    /proc/cpuinfo; an ARMv7 without NEON gets tools for ARMv6."""
    name = _NAMES.get(machine, "")
    if bits == 32:
        name = {"aarch64": "armv7", "armv7": "armv7", "armv6": "armv6"}.get(name, "")
    if name == "armv7" and features and not {"neon", "asimd"} & set(features.split()):
        name = "armv6"
    return name
