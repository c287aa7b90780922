"""Parses sizes, rates and durations in the form used on the command line: 100MB, 10gbit, 250us.
Inside the simulator everything is in bytes, bytes per second and seconds."""

from __future__ import annotations

import re

from linnet.clib.errors import UsageError

_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z/]*)\s*", re.IGNORECASE)
_SIZES = {
    "": 1.0,
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
}
_TIMES = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0}
_BITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_RATES = {
    **{f"{prefix}bit{end}": scale / 8 for prefix, scale in _BITS.items() for end in ("", "/s")},
    **{f"{prefix}bps": scale / 8 for prefix, scale in _BITS.items()},
    **{f"{name}/s": scale for name, scale in _SIZES.items() if name},
}  # fmt: skip


def _parse(text: str, units: dict[str, float], what: str, example: str) -> float:
    found = _NUMBER.fullmatch(text)
    scale = None if found is None else units.get(found[2].lower())
    if found is None or scale is None:
        raise UsageError(f"{text!r} is not a valid {what}", code=101, expected=f"for example {example}", got=text)
    return float(found[1]) * scale


def size(text: str) -> float:
    """Parses bytes: "100MB" is 1e8, "256KiB" is 262144. Raises UsageError for other text."""
    return _parse(text, _SIZES, "size", "100MB, 64KiB or 4000000")


def seconds(text: str) -> float:
    """Parses seconds: "250us", "1.5ms", "2s" or "2"."""
    return _parse(text, _TIMES, "duration", "50us, 120ms or 2s")


def rate(text: str) -> float:
    """Parses bytes per second: "10gbit" is 1.25e9, "900MB/s" is 9e8."""
    found = _parse(text, _RATES, "data rate", "1gbit, 10gbit or 900MB/s")
    if found <= 0:
        raise UsageError("the data rate of a link must be above 0", code=101, got=text)
    return found


def duration_text(value: float) -> str:
    """A duration in a suitable unit: "1.93 s", "8.8 ms", "35 us"."""
    if value >= 1 or value == 0:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} us"


def size_text(value: float) -> str:
    """Bytes in a suitable unit: "1.2 GB"."""
    for scale, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value:.0f} B"
