"""Counts and times of one version, as the statistics extension of the KServe v2 protocol reports them."""

from __future__ import annotations

import time
from typing import Any

from linnet.serve.lane import Done


class _Sum:
    """A number of events and their total time in nanoseconds."""

    __slots__ = ("count", "ns")

    def __init__(self) -> None:
        self.count = self.ns = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += ns

    def report(self) -> dict[str, int]:
        return {"count": self.count, "ns": self.ns}


class Stats:
    """Only the event loop's thread adds to it."""

    def __init__(self) -> None:
        self.success, self.fail, self.queue, self.run = _Sum(), _Sum(), _Sum(), _Sum()
        self.rows = self.runs = self.last_ms = 0
        self.batches: dict[int, _Sum] = {}

    def add(self, done: Done, rows: int, ns: int) -> None:
        """A request that was answered with its outputs after `ns` nanoseconds."""
        self.last_ms = int(time.time() * 1e3)
        self.success.add(ns)
        self.queue.add(done.queue_ns)
        self.run.add(done.run_ns)
        self.rows += rows
        if done.first:
            self.runs += 1
            self.batches.setdefault(done.batch, _Sum()).add(done.run_ns)

    def failed(self, ns: int) -> None:
        """A request that was refused after `ns` nanoseconds."""
        self.fail.add(ns)

    def report(self, name: str, version: str) -> dict[str, Any]:
        none = {"count": 0, "ns": 0}
        return {
            "name": name, "version": version, "last_inference": self.last_ms,
            "inference_count": self.rows, "execution_count": self.runs,
            "inference_stats": {
                "success": self.success.report(), "fail": self.fail.report(), "queue": self.queue.report(),
                "compute_input": none, "compute_infer": self.run.report(), "compute_output": none,
                "cache_hit": none, "cache_miss": none,
            },
            "batch_stats": [
                {"batch_size": size, "compute_input": none, "compute_infer": times.report(), "compute_output": none}
                for size, times in sorted(self.batches.items())
            ],
        }  # fmt: skip
