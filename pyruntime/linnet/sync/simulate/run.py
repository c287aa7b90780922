"""Runs one simulation and summarizes it: step times, examples per second, dropped and stale gradients, utilization."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from linnet.clib.errors import UsageError
from linnet.sync.simulate.compute import Floats
from linnet.sync.simulate.engine import Engine, Trace
from linnet.sync.simulate.phases import ring_steps, tree_steps
from linnet.sync.simulate.setting import Setting


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a simulated cluster.

    step_seconds: time of each step, from one closing of its barrier to the next [steps].
    examples_per_second: total over all workers, counting only accepted gradients.
    speedup: relative to one worker that computes alone, without a server.
    efficiency: speedup / workers.
    dropped: fraction of the gradients that came too late.
    staleness: mean number of updates between pull and push.
    staleness_counts: how many accepted pushes had each staleness.
    busy: for the server with the most bytes, the three fractions of the time in which its input port, its thread and
        its output port were in use (not for ring and tree).
    bytes_per_step: total over all workers, sent and received.
    """

    setting: Setting
    step_seconds: Floats
    examples_per_second: float
    speedup: float
    dropped: float
    staleness: float
    staleness_counts: tuple[int, ...]
    busy: dict[str, float]
    bytes_per_step: float
    seed: int

    @property
    def efficiency(self) -> float:
        return self.speedup / self.setting.hardware.workers

    @property
    def median(self) -> float:
        """Median step time in seconds."""
        return float(np.median(self.step_seconds))

    @property
    def mean(self) -> float:
        """Mean step time in seconds."""
        return float(self.step_seconds.mean())

    def as_dict(self) -> dict[str, Any]:
        """The setting and every figure, for JSON. Times are in seconds."""
        quantiles = dict(
            zip(("p10", "median", "p90", "p99"), np.quantile(self.step_seconds, (0.1, 0.5, 0.9, 0.99)), strict=True)
        )
        return {
            "setting": dataclasses.asdict(self.setting),
            "seed": self.seed,
            "steps": len(self.step_seconds),
            "step_seconds": {"mean": self.mean, **{name: float(value) for name, value in quantiles.items()}},
            "examples_per_second": self.examples_per_second,
            "speedup": self.speedup,
            "efficiency": self.efficiency,
            "dropped": self.dropped,
            "staleness": {"mean": self.staleness, "counts": list(self.staleness_counts)},
            "busy": self.busy,
            "bytes_per_step": self.bytes_per_step,
        }

    def to_json(self) -> str:
        return json.dumps(self.as_dict())


def alone(setting: Setting) -> float:
    """Examples per second of one worker that computes alone, without the time for updates; nan if nothing is
    computed."""
    return setting.traffic.examples / setting.compute.mean if setting.compute.mean else float("nan")


def run(setting: Setting, *, steps: int = 200, warm: int | None = None, seed: int = 0) -> Result:
    """Simulates `steps` steps (of each barrier on average). Before them, `warm` steps are simulated that are not
    counted (default: a tenth of `steps`, at least 2).

    The same setting, steps and seed give a bit-identical result. Raises UsageError if the setting is not possible.
    """
    if steps < 1:
        raise UsageError("steps is out of range", code=101, expected="1 or more", got=str(steps))
    if warm is not None and warm < 0:
        raise UsageError("warm is out of range", code=101, expected="0 or more", got=str(warm))

    mode, hardware, traffic = setting.mode, setting.hardware, setting.traffic
    if mode.kind in ("ring", "tree"):
        if mode.kind == "ring" and traffic.rows:
            raise UsageError(
                "mode ring supports only dense parameters",
                code=101,
                hint="use synchronous, asynchronous or groups for tables",
            )
        if hardware.overlap:
            raise UsageError(f"mode {mode.kind} does not support overlap", code=101, hint="set overlap to 0")
        times = (ring_steps if mode.kind == "ring" else tree_steps)(setting, steps, seed)
        trace = Trace(
            times, float(times.sum()), steps * hardware.workers, 0, [steps * hardware.workers], 0, 0, 0, 0, {}, 0.0
        )
    else:
        trace = Engine(setting, seed).run(steps, max(2, steps // 10) if warm is None else warm)
    speed = trace.accepted * traffic.examples * mode.local_steps / trace.seconds
    counts = np.asarray(trace.staleness, np.float64)
    moved = traffic.down + traffic.up
    if mode.kind == "ring":
        moved = 4 * (hardware.workers - 1) / hardware.workers * traffic.push * traffic.push_ratio
    return Result(
        setting=setting,
        step_seconds=trace.step_seconds,
        examples_per_second=speed,
        speedup=speed / alone(setting),
        dropped=trace.dropped / max(trace.accepted + trace.dropped, 1),
        staleness=float((counts * np.arange(len(counts))).sum() / max(counts.sum(), 1)),
        staleness_counts=tuple(trace.staleness),
        busy=trace.busy,
        bytes_per_step=moved * hardware.workers,
        seed=seed,
    )


def sweep(
    setting: Setting, workers: Iterable[int], *, steps: int = 200, warm: int | None = None, seed: int = 0
) -> list[Result]:
    """Calls `run` for several numbers of workers."""
    settings = [
        dataclasses.replace(setting, hardware=dataclasses.replace(setting.hardware, workers=n)) for n in workers
    ]
    return [run(one, steps=steps, warm=warm, seed=seed) for one in settings]
