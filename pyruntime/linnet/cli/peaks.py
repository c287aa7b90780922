"""The highest rates of the machine (peaks), as `linnet-bench --peaks` measures them, and the share of them that each step
of a model reaches. A step has a share for its products and one for its bytes; the larger one shows what limits the step."""

from __future__ import annotations

import importlib.resources
import json
import subprocess
from collections.abc import Mapping
from typing import Any, Final

_TIMEOUT_S: Final = 60
_OWN_CACHE: Final = (
    512 << 10
)  # bytes that the cache of one core holds, and bytes that the cache shared by all cores holds
_SHARED_CACHE: Final = 24 << 20


def measured(threads: int, isa: str) -> dict[str, Any] | None:
    """The rates of this many threads with the instruction set of a plan, in 1e9 operations or bytes per second. A rate
    that this build cannot measure is None. Returns None if the installation has no native tools, or if they fail."""
    tool = importlib.resources.files("linnet") / "bin" / "linnet-bench"
    words = [str(tool), "--peaks", "--json", "--threads", str(threads), "--isa-max", isa]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return found


def shares(op: Mapping[str, Any], ms: float, peaks: Mapping[str, Any] | None) -> dict[str, Any]:
    """Figures of a step of `linnet.session.bench.measure`: GFLOP/s, GB/s, the larger of their two shares of the peaks
    (0 to 1), and the name of that peak ("f32", "i8", "cache", "shared", "memory").

    A multiply-accumulate counts as two operations. Bytes are compared with the rate of copies of this size. The share
    is None for a step on a device, or if there are no peaks. It exceeds 1 if a kernel needs fewer products than the
    count of its op says (Winograd)."""
    seconds = ms / 1e3
    rates = {"gflops": op["flops"] / seconds / 1e9, "gbs": op["bytes"] / seconds / 1e9} if ms else dict.fromkeys(
        ("gflops", "gbs"), 0.0
    )  # fmt: skip
    if peaks is None or op["device"] != "cpu" or op["kernel"] == "wait":
        return {**rates, "peak_share": None, "peak_of": None}
    products = "i8" if "_int" in op["kernel"] else "f32"
    place = "memory" if op["bytes"] > _SHARED_CACHE else "shared"
    if op["bytes"] <= _OWN_CACHE * peaks["threads"]:
        place = "cache"
    most = {products: peaks["i8_gops" if products == "i8" else "f32_gflops"], place: peaks[f"{place}_gbs"]}
    parts = {
        products: rates["gflops"] / (most[products] or float("inf")),
        place: rates["gbs"] / (most[place] or float("inf")),
    }
    of = max(parts, key=lambda name: parts[name])
    return {**rates, "peak_share": parts[of], "peak_of": of}
