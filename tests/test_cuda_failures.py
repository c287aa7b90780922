"""The whole life of a session on liblinnet_cuda, from the search for devices to the end, where one call of CUDA's driver fails:
each call in turn, with two codes. An error or a run that works comes out of it, nothing leaks, and the next session works."""
# Dear: every call of the driver fails once.

from __future__ import annotations

import ctypes
import gc
import itertools
import re

import numpy as np
import pytest

import linnet
from tests.cuda_device import cuda_device
from tests.cuda_rig import NVRTC, Standin, need_standins, standin

pytestmark = pytest.mark.usefixtures("few_objects")

RNG = np.random.default_rng(11)
W = RNG.standard_normal((24, 24)).astype(np.float32)
X = RNG.standard_normal((5, 24)).astype(np.float32)
ROWS = np.array([0, 2, 4], np.int64)
numbers = itertools.count()


def graph_of() -> linnet.Graph:
    """Products, a softmax, and a gather, which checks its indices after each run."""
    graph = linnet.Graph()
    x, rows = graph.placeholder("x", (5, 24)), graph.placeholder("rows", (3,), "i64")
    y = linnet.ops.softmax(linnet.ops.tanh(x @ graph.constant(W)))
    graph.signature("infer", {"x": x, "rows": rows}, {"y": linnet.ops.gather(y, rows)})
    return graph


def want() -> np.ndarray:
    y = np.exp(np.tanh(X @ W))
    return np.asarray((y / y.sum(-1, keepdims=True))[ROWS])


def check(result: np.ndarray) -> None:
    np.testing.assert_allclose(result, want(), rtol=1e-5, atol=1e-6)


def life(model: linnet.Model) -> None:
    """Runs often enough for a graph, with arrays of the host and of the device, and with a wait that has a limit."""
    device = cuda_device(f"kernel=none{next(numbers)}")  # another text of options is another search for devices
    traced = linnet.Session(model, device=device, trace=True)
    for _ in range(2):
        check(traced.run({"x": X, "rows": ROWS})["y"])
    assert len(traced.steps) >= 3
    session = linnet.Session(model, device=device)
    for _ in range(3):
        check(session.run({"x": X, "rows": ROWS})["y"])
    x = linnet.DeviceArray(device, X.shape)
    rows = session.empty("rows")
    rows[:] = ROWS
    binding = session.bind({"x": x, "rows": rows})
    x.write(X)
    for _ in range(2):
        binding.submit()
    check(binding.wait(timeout=10)["y"])


def tidy(held: Standin, before: int) -> list[str]:
    """What the driver has to complain about."""
    gc.collect()
    after, text = held.report()
    out = held.violations()
    if after > before:
        out.append(f"{after - before} objects leaked: {text}")
    if held.library.standin_contexts() != 0:
        out.append("a context is still current")
    held.forget()
    return out


def test_without_a_failure() -> None:
    need_standins()
    held, model = standin(), linnet.Model(graph_of())
    held.forget()
    before = held.report()[0]
    life(model)
    assert not tidy(held, before)


@pytest.mark.parametrize("code", [2, 999])
def test_every_call_fails_once(code: int) -> None:
    need_standins()
    held, model = standin(), linnet.Model(graph_of())
    life(model)
    problems, failed, errors = [], [], set()
    for k in itertools.count(1):
        gc.collect()
        held.forget()
        before = held.report()[0]
        held.fail_at(k, code)
        try:
            life(model)
        except linnet.Error as error:
            errors.add(re.sub(r"\d+", "N", str(error)))
        except AssertionError as error:
            problems.append(f"{held.failed()}, call {k}: a wrong result: {error}")
        name = held.failed()
        held.fail_at(0, 0)
        wrong = tidy(held, before)
        # Without a context the driver cannot be told that something ends.
        if name == "cuCtxPushCurrent":
            wrong = [text for text in wrong if "leaked" not in text]
        problems += [f"{name}, call {k}: {text}" for text in wrong]
        if not name:
            break
        failed.append(name)
        if k % 25 == 0:
            before = held.report()[0]
            life(model)
            problems += tidy(held, before)
    assert not problems, "\n".join(problems)
    assert len(set(failed)) > 25 and len(errors) > 3
    assert all("internal" not in error for error in errors), errors


def test_every_call_of_the_compiler_fails_once() -> None:
    need_standins()
    held, model, compiler = standin(), linnet.Model(graph_of()), ctypes.CDLL(str(NVRTC))
    compiler.standin_nvrtc_fail_at.argtypes = [ctypes.c_longlong, ctypes.c_int]
    compiler.standin_nvrtc_calls.restype = ctypes.c_longlong
    life(model)
    held.forget()
    errors, calls = set(), compiler.standin_nvrtc_calls()
    life(model)
    for k in range(1, compiler.standin_nvrtc_calls() - calls + 1):
        before = held.report()[0]
        compiler.standin_nvrtc_fail_at(k, 6)
        try:
            life(model)
        except linnet.Error as error:
            errors.add(re.sub(r"\d+", "N", str(error)))
        compiler.standin_nvrtc_fail_at(0, 0)
        assert not tidy(held, before), k
        # A program whose end has failed is left.
        assert compiler.standin_nvrtc_programs() <= k, k
    life(model)
    assert not tidy(held, before)
    assert any("NVRTC" in error for error in errors), errors
