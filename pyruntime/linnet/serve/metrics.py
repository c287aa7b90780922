"""The server's metrics for Prometheus. What versions count is read when Prometheus asks; only the histogram is filled by each
request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from linnet.serve.repository import Repository

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The registry of one server."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self.statuses: dict[tuple[str, int], int] = {}  # (what was asked for, status): requests
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "linnet_request_seconds", "Time from a request's headers to its answer.", buckets=_SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self.registry.register(self)

    def count(self, what: str, status: int) -> None:
        """A request that was answered. what: a word for the route, because paths come from clients."""
        key = (what, status)
        self.statuses[key] = self.statuses.get(key, 0) + 1

    def collect(self) -> Iterator[Any]:
        """What prometheus_client calls."""
        requests = CounterMetricFamily(
            "linnet_requests", "Requests by route and HTTP status.", labels=["route", "status"]
        )
        for (what, status), count in sorted(self.statuses.items()):
            requests.add_metric([what, str(status)], count)
        yield requests
        labels = ["model", "version"]
        counters = {
            name: CounterMetricFamily(f"linnet_model_{name}", text, labels=labels)
            for name, text in (
                ("rows", "Rows (examples) that were computed."),
                ("runs", "Runs; one run may answer several requests."),
                ("failures", "Requests that were refused or failed."),
                ("queue_seconds", "Time that answered requests waited for their run."),
                ("run_seconds", "Time that answered requests' runs took."),
            )
        }
        gauges = {
            name: GaugeMetricFamily(f"linnet_model_{name}", text, labels=labels)
            for name, text in (
                ("ready", "1 if the version is loaded."),
                ("bytes", "The most memory that the loaded version takes."),
                ("waiting", "Requests that are not answered yet."),
            )
        }
        for one in self._repository.all():
            stats, loaded, which = one.stats, one.loaded, [one.name, one.version]
            counters["rows"].add_metric(which, stats.rows)
            counters["runs"].add_metric(which, stats.runs)
            counters["failures"].add_metric(which, stats.fail.count)
            counters["queue_seconds"].add_metric(which, stats.queue.ns / 1e9)
            counters["run_seconds"].add_metric(which, stats.run.ns / 1e9)
            gauges["ready"].add_metric(which, int(loaded is not None))
            gauges["bytes"].add_metric(which, 0 if loaded is None else loaded.bytes)
            gauges["waiting"].add_metric(which, 0 if loaded is None else loaded.busy)
        yield from (*counters.values(), *gauges.values())
        limit = GaugeMetricFamily("linnet_max_bytes", "Limit for the memory of all models; 0: no limit.")
        limit.add_metric([], self._repository.settings.max_bytes)
        yield limit

    def text(self) -> bytes:
        return bytes(generate_latest(self.registry))
