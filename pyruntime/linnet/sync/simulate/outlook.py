"""How linnet's design scales to thousands of workers, given linnet's costs (see Hardware's defaults) and 10 GbE, and
how servers, trees, rings, groups and compression change this. The tree is hypothetical: linnet has no aggregators
between workers and servers."""

from __future__ import annotations

import dataclasses

from linnet.sync.simulate.compute import Compute
from linnet.sync.simulate.published import Comparison, Series
from linnet.sync.simulate.run import run
from linnet.sync.simulate.setting import Hardware, Mode, Setting, Traffic, ratio

COUNTS = (1, 10, 100, 1000, 10000)
_DENSE = Traffic(1e8, 1e8)
_SPARSE = Traffic(1e6, 1e6, rows=500, row_bytes=512, table=1e11)
_COMPUTE = Compute(1.0, "lognormal:0.1")
_SMALL = {"f16": ratio("f16"), "i8": ratio("i8"), "1 %": ratio("topk:0.01")}


def _variants() -> list[tuple[str, Traffic, Mode, int, str]]:
    """For each variant: label, traffic, mode, number of workers per server (0: 16 servers in all), and how workers
    share a server's port."""
    halves = dataclasses.replace(_DENSE, push_ratio=_SMALL["i8"], pull_ratio=_SMALL["i8"])
    tops = dataclasses.replace(_DENSE, push_ratio=_SMALL["1 %"], pull_ratio=_SMALL["i8"])
    return [
        ("synchronous, 16 servers", _DENSE, Mode(), 0, "fair"),
        ("synchronous, a server for 8 workers", _DENSE, Mode(), 8, "fair"),
        ("the same, i8 both ways", halves, Mode(), 8, "fair"),
        ("the same, top 1 % up, i8 down", tops, Mode(), 8, "fair"),
        ("synchronous, a server for 8, in turn", _DENSE, Mode(), 8, "fifo"),
        ("asynchronous, a server for 8", _DENSE, Mode("asynchronous"), 8, "fair"),
        ("groups of 100, a server for 8", _DENSE, Mode("groups"), 8, "fair"),
        ("tree, 8 to an aggregator, 16 servers", _DENSE, Mode("tree", fan_in=8), 0, "fair"),
        ("ring", _DENSE, Mode("ring"), 0, "fair"),
    ]


def outlook(steps: int = 20, seed: int = 0) -> list[Comparison]:
    """Efficiency (speed-up / workers) with up to 10,000 workers, for a dense model of 100 MB with a step of 1 s, and
    for a sparse one."""
    dense = []
    for label, traffic, mode, per_server, sharing in _variants():
        found = []
        for n in COUNTS:
            hardware = Hardware(workers=n, servers=max(1, n // per_server) if per_server else 16, sharing=sharing)
            chosen = dataclasses.replace(mode, groups=max(1, n // 100)) if mode.kind == "groups" else mode
            found.append(run(Setting(_COMPUTE, traffic, hardware, chosen), steps=steps, seed=seed).efficiency * 100)
        dense.append(Series(label, COUNTS, tuple(found), (None,) * len(COUNTS)))
    sparse = []
    for label, mode, per_server in (
        ("synchronous, 16 servers", Mode(), 0), ("synchronous, a server for 32 workers", Mode(), 32),
        ("asynchronous, 16 servers", Mode("asynchronous"), 0),
    ):  # fmt: skip
        found = []
        for n in COUNTS:
            hardware = Hardware(workers=n, servers=max(1, n // per_server) if per_server else 16)
            found.append(run(Setting(_COMPUTE, _SPARSE, hardware, mode), steps=steps, seed=seed).efficiency * 100)
        sparse.append(Series(label, COUNTS, tuple(found), (None,) * len(COUNTS)))
    stated = ("linnet's costs as measured on loopback (Hardware's defaults)",)
    assumed = ("10 GbE everywhere, full bisection; 50 us one way; a step of 1 s with 10 % scatter (log-normal)",)
    return [
        Comparison(
            "outlook-dense",
            "linnet, dense, 100 MB",
            "",
            stated,
            assumed,
            "workers",
            "efficiency, %",
            tuple(dense),
            (True, False),
        ),
        Comparison(
            "outlook-sparse",
            "linnet, sparse, 500 rows of 512 bytes",
            "",
            stated,
            (*assumed, "also 1 MB of dense parameters"),
            "workers",
            "efficiency, %",
            tuple(sparse),
            (True, False),
        ),
    ]
