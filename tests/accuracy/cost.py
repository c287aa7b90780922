"""What a quantized network costs beside its f32: time of a run (measured and by the model of time), bytes of the file, and how
its products divide among the dtypes. One thread, because that is what peers are compared on."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import linnet
from linnet.quantization.computed import computed, shares
from tests.accuracy.entry import Feeds

_SECONDS = 0.6  # for which both networks run in turns
_LEAST, _MOST = 5, 200  # runs of each


def _bytes(graph: linnet.Graph) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.lnt"
        graph.save(path)
        return path.stat().st_size


def costs(graph: linnet.Graph, small: linnet.Graph, feeds: Feeds) -> dict[str, Any]:
    """time, modelled, bytes: the quantized network's figure over that of f32. products: {dtype: share}."""
    sessions = [linnet.Session(g, threads=1) for g in (graph, small)]
    taken: list[list[float]] = [[], []]
    for session in sessions:
        session.run(feeds)
    begin = time.perf_counter()
    while len(taken[0]) < _LEAST or (time.perf_counter() - begin < _SECONDS and len(taken[0]) < _MOST):
        for session, times in zip(sessions, taken, strict=True):
            started = time.perf_counter()
            session.run(feeds)
            times.append(time.perf_counter() - started)
    modelled = [session.plan_info["modelled_ms"] for session in sessions]
    return {
        "time": round(float(np.divide(*[statistics.median(times) for times in reversed(taken)])), 3),
        "modelled": round(modelled[1] / modelled[0], 3) if modelled[0] else None,
        "bytes": round(_bytes(small) / _bytes(graph), 3),
        "products": {dtype: round(share, 4) for dtype, share in shares(computed(small, sessions[1].steps)).items()},
    }  # fmt: skip
