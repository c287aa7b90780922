"""What a quantized network costs beside its f32: time of a run (measured and by the model of time), bytes of the file, and how
its products divide among the dtypes. One thread, because that is what peers are compared on."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import linnet
from linnet.quantization.computed import computed, shares
from tests.accuracy import ort
from tests.accuracy.entry import Feeds

_SECONDS = 0.6  # for which both networks run in turns
_LEAST, _MOST = 5, 200  # runs of each


def _bytes(graph: linnet.Graph) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.lnt"
        graph.save(path)
        return path.stat().st_size


class Peak:
    """How far the memory of this process rises from here on."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again at what is held now
        self.begin = self._read("VmRSS")

    @staticmethod
    def _read(name: str) -> float:
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
        return int(line.split()[1]) / 1024

    def megabytes(self) -> float:
        """The highest so far, above what was held in the beginning."""
        return round(self._read("VmHWM") - self.begin, 1)


def _medians(calls: Sequence[Callable[[Feeds], object]], feeds: Feeds) -> list[float]:
    """The median time of each call in seconds; they run in turns, so that what disturbs one disturbs all."""
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call(feeds)
    begin = time.perf_counter()
    while len(taken[0]) < _LEAST or (time.perf_counter() - begin < _SECONDS and len(taken[0]) < _MOST):
        for call, times in zip(calls, taken, strict=True):
            started = time.perf_counter()
            call(feeds)
            times.append(time.perf_counter() - started)
    return [statistics.median(times) for times in taken]


def costs(graph: linnet.Graph, small: linnet.Graph, feeds: Feeds, peer: Path | None = None) -> dict[str, Any]:
    """time, modelled, bytes: the quantized network's figure over that of f32. products: {dtype: share}.
    peer: its time over that of this file in ONNX Runtime, if there is one."""
    sessions = [linnet.Session(g, threads=1) for g in (graph, small)]
    calls: list[Callable[[Feeds], object]] = [session.run for session in sessions]
    if peer is not None and peer.is_file():
        calls.append(ort.session(str(peer), threads=1))
    times = _medians(calls, feeds)
    modelled = [session.plan_info["modelled_ms"] for session in sessions]
    return {
        "time": round(times[1] / times[0], 3), "milliseconds": round(1e3 * times[1], 4),
        "peer": round(times[1] / times[2], 3) if len(times) > 2 else None,
        "modelled": round(modelled[1] / modelled[0], 3) if modelled[0] else None,
        "bytes": round(_bytes(small) / _bytes(graph), 3),
        "products": {dtype: round(share, 4) for dtype, share in shares(computed(small, sessions[1].steps)).items()},
    }  # fmt: skip
