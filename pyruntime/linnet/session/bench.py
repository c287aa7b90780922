"""Times a model: load, plan, first run, steady-state runs, and each op. Times cover linnet_run alone, without copies.
The native tool linnet-bench reports the same figures without Python."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from linnet.clib.errors import ResourceError, UsageError
from linnet.clib.library import library
from linnet.file.reader import read
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.graph import Graph, dtype_of_graph
from linnet.ir.user_op import UserOp
from linnet.session import machine
from linnet.session.device import Device
from linnet.session.model import Model, TensorSpec
from linnet.session.open_sizes import open_batches, usable_shapes
from linnet.session.session import Session

_LEAST_RUNS = 5
_TRACED_RUNS = 20


def measure(
    path: str | Path,
    *,
    signature: str = "infer",
    threads: int | None = None,
    isa_max: str | None = None,
    precision: str = "f32",
    seconds: float = 2.0,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    user_ops: Iterable[UserOp] = (),
    tuning: str | Path | None = None,
    devices: Sequence[str | Device] = (),
    max_device_bytes: int = 0,
) -> dict[str, Any]:
    """Times `signature` on random input for about `seconds`. Times are in milliseconds, sizes in bytes.

    Raises UsageError if an input has no fixed shape and input_shapes does not give one, and whatever Session raises.
    """
    shapes = dict(input_shapes or {})
    begin = time.perf_counter_ns()
    model = Model(path, user_ops=user_ops)
    loaded = time.perf_counter_ns()
    specs = model.inputs(signature)
    assumed = open_batches(model, signature, specs, shapes)
    shapes |= assumed
    options: dict[str, Any] = {"threads": threads, "isa_max": isa_max, "input_shapes": shapes, "tuning": tuning}
    options |= {"devices": devices, "precision": precision, "max_device_bytes": max_device_bytes}
    session = Session(model, signature, **options)  # rejects shapes for which there is too little memory
    feeds = random_feeds(specs, shapes, partial(usable_shapes, model, signature, shapes))
    begin_first = time.perf_counter_ns()
    session.run(feeds)
    first = time.perf_counter_ns() - begin_first
    before = machine.state()
    times = steady_times(session, seconds)
    after, peak = machine.state(), machine.peak_rss()
    traced = Session(model, signature, store=session.variables, trace=True, **options)
    for _ in range(min(_TRACED_RUNS, len(times))):
        traced.run(feeds)
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
        **(_places(traced) if devices else {}),
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
            }
            for s in traced.steps
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


def random_feeds(
    specs: Sequence[TensorSpec],
    shapes: Mapping[str, Any],
    usable: Callable[[], Mapping[str, Sequence[int]]] | None = None,
) -> dict[str, Any]:
    """Random input for timing: normally distributed floats, full-range quantized integers, and zeros for other integers
    (ids, lengths). usable: gives shapes that work, for the hint of an error (open_sizes.usable_shapes). Raises
    UsageError, and ResourceError before it makes inputs for which there is too little memory."""
    generator, feeds, known = np.random.default_rng(0), dict[str, Any](), dict[str, Sequence[int]]()
    for spec in specs:
        shape = shapes.get(spec.name, spec.shape)
        if shape is None or None in shape:
            raise UsageError(
                f"input {spec.name!r} has no fixed shape",
                code=304,
                tensor=spec.name,
                got="[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"
                if shape is not None
                else "any rank",
                hint="give all sizes" + (f", for example input_shapes={dict(usable())}" if usable is not None else ""),
            )
        known[spec.name] = shape
    need = sum(math.prod(known[spec.name]) * _bytes_while_made(spec) for spec in specs)
    available = int(library().linnet_memory_available())
    if need > available:
        raise ResourceError(
            "random inputs of these shapes need more memory than the machine has available", code=401,
            expected=f"at most {available} bytes", got=f"{need} bytes", hint="use smaller shapes, such as a smaller batch",
        )  # fmt: skip
    for spec in specs:
        shape, dtype = known[spec.name], numpy_dtype(spec.dtype)
        if spec.dtype == "bf16":
            bits = generator.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16
            feeds[spec.name] = bits.astype(np.uint16)
        elif dtype.kind == "f":
            feeds[spec.name] = generator.standard_normal(shape).astype(dtype)
        elif spec.scale is not None:
            limits = np.iinfo(dtype)
            feeds[spec.name] = generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        else:
            feeds[spec.name] = np.zeros(shape, dtype)
    return feeds


def _bytes_while_made(spec: TensorSpec) -> int:
    """Bytes per element of a random input, with the doubles from which a float is made."""
    size = numpy_dtype(spec.dtype).itemsize
    return size + 8 if spec.dtype == "bf16" or numpy_dtype(spec.dtype).kind == "f" else size
