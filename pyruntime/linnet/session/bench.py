"""Times a model: load, plan, first run, steady-state runs, and each op. Times cover linnet_run alone, without copies.
The times of runs and ops are medians.
The native tool linnet-bench reports the same figures without Python."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from linnet.file.reader import read
from linnet.ir.graph import Graph, dtype_of_graph
from linnet.ir.user_op import UserOp
from linnet.session import machine
from linnet.session.model import Model
from linnet.session.open_sizes import open_batches
from linnet.session.options import SessionOptions
from linnet.session.random_inputs import random_feeds
from linnet.session.session import Session
from linnet.session.step_times import timed_steps
from linnet.session.usable_sizes import usable_shapes

_LEAST_RUNS = 5
_TRACED_RUNS = 20


def measure(
    path: str | Path,
    *,
    signature: str = "infer",
    seconds: float = 2.0,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    user_ops: Iterable[UserOp] = (),
    options: SessionOptions | None = None,
) -> dict[str, Any]:
    """Times `signature` on random input for about `seconds`. Times are in milliseconds, sizes in bytes.

    Raises UsageError if an input has no fixed shape and input_shapes does not give one. Also raises whatever Session
    raises.
    """
    shapes = dict(input_shapes or {})
    begin = time.perf_counter_ns()
    model = Model(path, user_ops=user_ops)
    loaded = time.perf_counter_ns()
    specs = model.inputs(signature)
    assumed = open_batches(model, signature, specs, shapes)
    shapes |= assumed
    chosen = (options or SessionOptions()).opened()
    # Rejects shapes for which there is too little memory.
    session = Session(model, signature, input_shapes=shapes, **chosen.fields)
    feeds = random_feeds(specs, shapes, partial(usable_shapes, model, signature, shapes))
    begin_first = time.perf_counter_ns()
    session.run(feeds)
    first = time.perf_counter_ns() - begin_first
    before = machine.state()
    times = steady_times(session, seconds)
    after, peak = machine.state(), machine.peak_rss()
    traced = Session(model, signature, store=session.variables, trace=True, input_shapes=shapes, **chosen.fields)
    steps = timed_steps(traced, lambda: traced.run(feeds), min(_TRACED_RUNS, len(times)))
    info, steady = session.plan_info, np.sort(np.array(times)) / 1e6
    return {
        "model": str(path),
        "signature": signature,
        "dtype": dtype_of_graph(read(Path(path), Graph)),
        "threads": info["threads"],
        "isa": info["isa"],
        "median_ms": float(np.median(steady)),
        "min_ms": float(steady[0]),
        "p95_ms": float(steady[min(len(steady) - 1, int(0.95 * len(steady)))]),
        "runs": len(times),
        "first_run_ms": first / 1e6,
        "load_ms": (loaded - begin) / 1e6,
        "plan_ms": info["plan_ms"],
        "inputs": [
            {"name": s.name, "dtype": s.dtype, "shape": list(feeds[s.name].shape), "assumed": s.name in assumed}
            for s in specs
        ],
        "memory": session.memory,
        "machine": machine.machine(),
        "before": before,
        "after": after,
        "peak_rss": peak,
        **(_places(traced) if chosen.devices else {}),
        "ops": [
            {
                "name": s.name,
                "op": s.op,
                "kernel": s.kernel,
                "layout": s.layout,
                "device": s.device,
                "fused": s.fused,
                "ms": s.ms,
                "device_ms": s.device_ms,
                "bytes": s.bytes,
                "flops": s.flops,
                **({"fork": s.fork, "branch": s.branch} if s.fork else {}),
            }
            for s in steps
        ],
    }


def _places(session: Session) -> dict[str, Any]:
    """How many steps run on each device and on the CPU, and how many fell back to the CPU."""
    steps = session.steps
    places = Counter(step.device for step in steps if step.op != "transfer")
    return {
        "steps_on": places,
        "transfers": len(steps) - places.total(),
        "fallbacks": session.plan_info["fallbacks"],
    }


def steady_times(session: Session, seconds: float) -> list[int]:
    """Runs the session's latest plan again for about `seconds`. Returns nanoseconds of each run, without copies."""
    planned, runner = session._current(), session._runner
    times: list[int] = []
    end = time.perf_counter_ns() + int(seconds * 1e9)
    while len(times) < _LEAST_RUNS or time.perf_counter_ns() < end:
        before = time.perf_counter_ns()
        code = runner.call(planned.session, runner.config(), planned.error)
        times.append(time.perf_counter_ns() - before)
        if code:
            raise runner.failure(planned.error)
    return times
