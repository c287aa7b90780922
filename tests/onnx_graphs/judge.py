"""Runs one random graph through linnet and ONNX Runtime: `make` builds it, `judge` compares the results of several plans.
A difference counts if it exceeds the effect of one last bit of the inputs. Graphs that ONNX Runtime refuses are ignored."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import linnet
from tests.onnx_graphs import control, movement, numeric, pointwise, quantized
from tests.onnx_graphs.builder import EPSILON, QUANTIZING, Array, Builder, Maker, Refused, Value, magnitude, session_of

FAMILIES = (pointwise, movement, numeric, control, quantized)
# Layers and the ops between them, all of which become integer ops in quantized graphs.
QUANTIZABLE: tuple[Maker, ...] = (
    numeric.conv, numeric.conv, numeric.pool, numeric.matmul, numeric.gemm, pointwise.unary, pointwise.with_attributes,
    movement.transpose, movement.concat, movement.reshape, movement.slices, movement.split,
)  # fmt: skip
Case = tuple[onnx.ModelProto, dict[str, Array], dict[str, Value]]


def make(source: random.Random, makers: Sequence[Maker] = (), only: str = "") -> Case | None:
    """Makes a random model, its inputs and the expected outputs; None if no graph was possible.

    makers: those of all families by default. only: the single element type of inputs.
    """
    builder = Builder(source, only=only)
    builder.grow(builder.integer(1, 15), makers)
    try:
        model, feeds, expected = builder.model()
    except Refused:
        return None
    try:
        onnx.checker.check_model(model, full_check=True)
        results = session_of(model).run(None, feeds)
    except Exception:  # ONNX Runtime or the checker refuses the graph, though it accepts every node alone
        return None
    for output, result in zip(model.graph.output, results, strict=True):
        value = expected[output.name]
        if difference(np.asarray(result), value):
            return None  # ONNX Runtime disagrees with itself
    return model, feeds, expected


def difference(found: Array, value: Value, quantized: bool = False) -> str:
    """Describes what is wrong with an output, or returns nothing."""
    wanted = value.array
    if found.dtype != wanted.dtype:
        return f"{found.dtype}, not {wanted.dtype}"
    if found.shape != wanted.shape:
        return f"shape {found.shape}, not {wanted.shape}"
    if wanted.dtype.kind != "f":
        wrong = found != wanted
        if quantized:
            wrong = np.abs(found.astype(np.int64) - wanted.astype(np.int64)) > 1
        return listing(found, wanted, np.asarray(wrong)) if np.any(wrong) else ""
    with np.errstate(all="ignore"):
        a, e = found.astype(np.float64), wanted.astype(np.float64)
        moved = np.max([np.abs(s.astype(np.float64) - e) for s in value.shaken], 0)
        moved = np.where(np.isfinite(moved), moved, 0.0)
        epsilon = EPSILON[str(wanted.dtype)]
        tolerance = 12 * moved + 4 * moved.mean() + 3 * epsilon * np.abs(e) + 0.1 * epsilon * magnitude(wanted)
        tolerance = tolerance + float(np.finfo(wanted.dtype).tiny)
        if wanted.dtype == np.float16:
            tolerance = tolerance + 1e-6
        good = (a == e) | (np.isnan(a) & np.isnan(e)) | (np.abs(a - e) <= tolerance)
        if magnitude(wanted) > 0.01 * float(
            np.finfo(wanted.dtype).max
        ):  # the result depends on what overflows first: inf, or inf - inf
            good |= ~np.isfinite(a) & ~np.isfinite(e)
    return "" if bool(np.all(good)) else listing(found, wanted, ~np.asarray(good))


def listing(found: Array, wanted: Array, wrong: Array) -> str:
    pairs = [f"{f!s} for {w!s}" for f, w in zip(found[wrong][:4], wanted[wrong][:4], strict=True)]
    return f"{int(wrong.sum())} of {wrong.size} elements, range {magnitude(wanted):.4g}: " + ", ".join(pairs)


def plans() -> list[dict[str, Any]]:
    # With this machine, small branches run side by side.
    forks = b"linnet-tuning 1 library 0.1.0 machine any threads 1\nmachine fork = 40\n"
    return [
        {"threads": 1}, {"threads": 2}, {"threads": 3, "tuning": forks}, {"reference": True}, {"isa_max": "scalar"},
    ]  # fmt: skip


def judge(case: Case, optimize: bool = True) -> tuple[str, str]:
    """("pass", ""), ("refused", reason), ("reference", text) if linnet and onnx.reference agree against ONNX Runtime,
    ("wrong", text) or ("error", text)."""
    model, feeds, expected = case
    uncertain = fed_by_quantizing(model)
    try:
        graph = linnet.from_onnx(model, optimize=optimize)
    except linnet.ConversionError as error:
        problem = error.problems[0]
        return ("refused" if problem.op else "error"), f"{problem.op}: {problem.reason}"
    except Exception as error:
        return "error", f"converting: {type(error).__name__}: {error}"
    for options in plans():
        try:
            session = linnet.Session(graph, **options)
            session.run(feeds)
            found = session.run(feeds)  # a second run: nothing of the first may be needed or in the way
        except Exception as error:
            return "error", f"{options}: {type(error).__name__}: {error}"
        if set(found) != set(expected):
            return "wrong", f"{options}: outputs {sorted(found)}, not {sorted(expected)}"
        for name, value in expected.items():
            text = difference(found[name], value, name in uncertain)
            if text and reference_agrees(case, found):
                return "reference", f"{options}: {name}: {text}"
            if text:
                return "wrong", f"{options}: {name}: {text}"
    return "pass", ""


def reference_agrees(case: Case, found: dict[str, Array]) -> bool:
    """Whether onnx.reference agrees with linnet, so that ONNX Runtime is the one that differs."""
    model, feeds, expected = case
    try:
        results = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # it has no implementation, or fails
        return False
    return all(
        not difference(found[output.name], against(expected[output.name], np.asarray(result)))
        for output, result in zip(model.graph.output, results, strict=True)
    )


def against(value: Value, result: Array) -> Value:
    """The reference's result with the tolerance of ONNX Runtime's, if they have the same shape."""
    shaken = [s if s.shape == result.shape else result for s in value.shaken]
    allowance = [
        result + (s - value.array) if s.shape == value.shape and s.dtype.kind == "f" else result for s in shaken
    ]
    return dataclasses.replace(
        value, array=result, shaken=allowance if value.shape == result.shape else [result, result]
    )


def fed_by_quantizing(model: onnx.ModelProto) -> set[str]:
    """Integers that may differ by a rounding tie."""
    return {o for n in model.graph.node if n.op_type in QUANTIZING for o in n.output}


__all__ = ["FAMILIES", "judge", "make"]
