"""The facts about a machine that explain its times: processor, memory, temperature, clock, throttling. linnet-bench
(runtime_c/tools/system.c, system_state.c) reads the same files of Linux. A fact that the system does not report is None."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path("/")

# Names of the implementers and parts in ARM's main ID register.
PARTS = {
    (0x41, 0xB76): "ARM1176",
    (0x41, 0xC05): "Cortex-A5",
    (0x41, 0xC07): "Cortex-A7",
    (0x41, 0xC08): "Cortex-A8",
    (0x41, 0xC09): "Cortex-A9",
    (0x41, 0xC0E): "Cortex-A17",
    (0x41, 0xC0F): "Cortex-A15",
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD46): "Cortex-A510",
    (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD48): "Cortex-X2",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4B): "Cortex-A78C",
    (0x41, 0xD4D): "Cortex-A715",
    (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD80): "Cortex-A520",
    (0x41, 0xD81): "Cortex-A720",
    (0x41, 0xD82): "Cortex-X4",
    (0x51, 0x800): "Kryo 2xx Gold",
    (0x51, 0x801): "Kryo 2xx Silver",
    (0x51, 0x802): "Kryo 3xx Gold",
    (0x51, 0x803): "Kryo 3xx Silver",
    (0x51, 0x804): "Kryo 4xx Gold",
    (0x51, 0x805): "Kryo 4xx Silver",
    (0xC0, 0xAC3): "Ampere-1",
}


_HEX = re.compile(r"0x[0-9a-fA-F]+")


def machine(root: Path = ROOT) -> dict[str, Any]:
    """The facts that stay the same: name, cpu, cores that this process may use, bytes of memory, system."""
    name = _line(root / "proc/device-tree/model") or _field(root / "system/build.prop", "=", "ro.product.model")
    cores = _field(root / "proc/self/status", ":", "Cpus_allowed_list") or ""
    count = sum(int(b or a) - int(a) + 1 for a, b in re.findall(r"(\d+)(?:-(\d+))?", cores))
    about = platform.uname()
    return {
        "name": name,
        "cpu": _cpu(root),
        "cores": count or os.cpu_count() or 1,
        "ram": _kilobytes(root / "proc/meminfo", "MemTotal"),
        "system": f"{about.system} {about.release} {about.machine}",
    }


def state(root: Path = ROOT) -> dict[str, Any]:
    """The facts that change: the temperature of the processor, the current and the highest clock of each core, and
    throttling."""
    mhz = _clocks(root, "scaling_cur_freq") or [
        int(float(value) + 0.5)
        for key, value in _fields(root / "proc/cpuinfo", ":")
        if key == "cpu MHz" and re.fullmatch(r"\d+(\.\d+)?", value)
    ]
    bits = _line(root / "sys/devices/platform/soc/soc:firmware/get_throttled")
    return {
        "celsius": _hottest(root),
        "mhz": mhz,
        "mhz_most": _clocks(root, "cpuinfo_max_freq"),
        "throttled": _throttled(int(bits, 16)) if bits and re.fullmatch(r"(0x)?[0-9a-f]{1,5}", bits) else None,
    }


def peak_rss(root: Path = ROOT) -> int | None:
    """The largest number of bytes in memory (RSS) that the process has had so far."""
    return _kilobytes(root / "proc/self/status", "VmHWM")


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace").replace("\0", "")
    except OSError:
        return ""


def _line(path: Path) -> str | None:
    return _text(path).partition("\n")[0].rstrip() or None


def _fields(path: Path, separator: str) -> Iterator[tuple[str, str]]:
    for line in _text(path).splitlines():
        key, found, value = line.partition(separator)
        if found:
            yield key.strip(), value.strip()


def _field(path: Path, separator: str, key: str) -> str | None:
    return next((v for k, v in _fields(path, separator) if k == key and v), None)


def _kilobytes(path: Path, key: str) -> int | None:
    found = re.fullmatch(r"(\d+) kB", _field(path, ":", key) or "")
    return int(found[1]) * 1024 if found else None


def _cpu(root: Path) -> str | None:
    """The kinds of ARM cores, such as "Cortex-A72" or "4x Cortex-A55, 4x Cortex-A76". For other processors, the
    system's own text."""
    kinds, text = Counter[str](), None
    implementer: int | None = None
    for key, value in _fields(root / "proc/cpuinfo", ":"):
        if key in ("model name", "Hardware"):
            text = value or None
        elif key == "CPU implementer":
            implementer = int(value, 16) if _HEX.fullmatch(value) else None
        elif key == "CPU part" and _HEX.fullmatch(value) and implementer is not None:
            part = int(value, 16)
            kinds[PARTS.get((implementer, part), f"implementer 0x{implementer:02x} part 0x{part:03x}")] += 1
    if len(kinds) > 1:
        return ", ".join(f"{n}x {name}" for name, n in kinds.items())
    return next(iter(kinds), text)


def _hottest(root: Path) -> float | None:
    """The highest temperature among the sensors of the processor, or among all sensors if none is known to belong to
    it."""
    cpu, rest = list[float](), list[float]()
    for zone in (root / "sys/class/thermal").glob("thermal_zone*"):
        text = _line(zone / "temp") or ""
        value = int(text) if re.fullmatch(r"-?\d+", text) else 0
        # Phones list voltages and charges as sensors too, and a sensor that is off says 0 or -274.
        if 1000 < value < 150_000:
            kind = (_line(zone / "type") or "").lower()
            (cpu if "cpu" in kind or "soc" in kind else rest).append(round(value / 1000, 1))
    return max(cpu or rest, default=None)


def _clocks(root: Path, file: str) -> list[int | None]:
    values: list[int | None] = []
    while (core := root / f"sys/devices/system/cpu/cpu{len(values)}").exists():
        text = _line(core / "cpufreq" / file) or ""
        values.append((int(text) + 500) // 1000 if text.isdigit() and int(text) else None)
    return values if any(values) else []


def _throttled(bits: int) -> str:
    causes = ("under-voltage", "frequency capped", "throttled", "temperature limit")
    now, before = bits & 15, bits >> 16 & 15 & ~bits
    parts = (("now", now), ("since the start", before))
    return "; ".join(
        f"{word}: " + ", ".join(cause for i, cause in enumerate(causes) if b >> i & 1) for word, b in parts if b
    )


def state_text(state: dict[str, Any]) -> str:
    """One line, as linnet-bench prints it: "61.3 C, cores 0-3 at 1500 of 1800 MHz, not throttled"."""
    mhz: Sequence[int | None] = state["mhz"]
    most = [*state["mhz_most"], *[None] * len(mhz)]
    parts = ["unknown temperature" if state["celsius"] is None else f"{state['celsius']:.1f} C"]
    for top, cores in groupby(range(len(mhz)), lambda core: most[core]):
        group = list(cores)
        if known := [m for core in group if (m := mhz[core]) is not None]:
            low, high = min(known), max(known)
            names = f"cores {group[0]}-{group[-1]}" if len(group) > 1 else f"core {group[0]}"
            parts.append(f"{names} at {f'{low} to ' if low < high else ''}{high}{f' of {top}' if top else ''} MHz")
    if not mhz:
        parts.append("unknown clock")
    if state["throttled"] is not None:
        parts.append(state["throttled"] or "not throttled")
    return ", ".join(parts)


def machine_text(machine: dict[str, Any]) -> str:
    """One line, as linnet-bench prints it."""
    parts = [machine["name"], machine["cpu"] or "unknown processor"]
    parts += [f"{machine['cores']} core{'' if machine['cores'] == 1 else 's'}"]
    parts += [f"{machine['ram'] / 1e9:.1f} GB" if machine["ram"] is not None else None, machine["system"]]
    return ", ".join(part for part in parts if part)


def warnings(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Warnings for the terminal: the reasons why the times of this run are not reliable."""
    texts = []
    if after["throttled"]:
        texts.append(
            f"the machine was throttled ({after['throttled']}), so it can be faster than these times; check its power "
            "supply and its cooling"
        )
    first, last = (max((m for m in s["mhz"] if m), default=0) for s in (before, after))
    if 0 < last < 0.9 * first:
        texts.append(
            f"the clock of the fastest core fell from {first} to {last} MHz, so times differ within the run; check the "
            "cooling, or measure again when the machine is cool"
        )
    return texts
