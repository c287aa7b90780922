"""The precision of a plan (linnet_plan_config.precision, docs/numerics.md): every step of a device and every user op sees it,
wherever it is planned; wrong values are refused; and a CPU without f16 arithmetic computes the same bits."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.clib.precision import PRECISIONS
from tests.capi import NULL, Chain, Failure, ffi, lib
from tests.native import ROOT, compile_c
from tests.py_device import PyDevice
from tests.test_tool_style import tool

X = np.random.default_rng(3).standard_normal((8, 64)).astype(np.float32)


def graph_in_segments() -> linnet.Graph:
    """A product with a map after it, the rows that are not 0, and a second product, whose size depends on data."""
    graph = linnet.Graph()
    w = (np.random.default_rng(4).standard_normal((64, 64)) / 8).astype(np.float32)
    x = graph.placeholder("x", (8, 64))
    first = ops.relu(x @ graph.constant(w, "w"))
    rows = ops.gather(first, ops.reshape(ops.nonzero(ops.relu(x.sum(1))), (-1,)), axis=0)
    graph.signature("infer", {"x": x}, {"y": ops.relu(rows @ graph.constant(w, "w2"))})
    return graph


class Watching(PyDevice):
    """Runs everything by linnet_step_evaluate, and notes which precision each function saw for each op."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[str, bool, int]]] = defaultdict(list)
        super().__init__(epilogues=1)
        self.on_run = self.evaluate

    def note(self, function: str, step: Any) -> None:
        result = ffi.new("linnet_device_tensor *", {"struct_size": ffi.sizeof("linnet_device_tensor")})
        op = ffi.string(lib().linnet_step_op(step)).decode()
        fused = lib().linnet_step_get_result(step, result) == 0
        self.seen[function].append((op, fused, lib().linnet_step_precision(step)))

    def _cost(self, step: Any) -> float:
        self.note("cost", step)
        return 0.0

    def _claim(self, steps: Any, count: int, claim: Any) -> int:
        for i in range(count):
            self.note("claim", steps[i])
        return 0

    def evaluate(self, work: Any) -> int:
        for s in range(work.count):
            step = work.steps[s]
            self.note("run", step)
            counts = lib().linnet_step_input_count(step), lib().linnet_step_output_count(step)
            spans = [work.inputs[s][i] for i in range(counts[0])], [work.outputs[s][i] for i in range(counts[1])]
            memory = [[ffi.from_buffer(self.at(x)) if x.buffer else NULL for x in side] for side in spans]
            inputs, outputs = ffi.new("void *[]", memory[0] or [NULL]), ffi.new("void *[]", memory[1])
            assert lib().linnet_step_evaluate(step, ffi.cast("void **", inputs), outputs, NULL) == 0
        return 0


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_device_sees_it_in_every_segment_and_under_maps(name: str) -> None:
    graph, device = graph_in_segments(), Watching()
    session = linnet.Session(graph, precision=name, devices=[device], threads=1)
    early = len(device.seen["cost"])
    found = session.run({"x": X})["y"]
    assert session.plan_info["segments"] == 2 and session.plan_info["precision"] == name
    assert len(device.seen["cost"]) > early > 0  # planned again in the run
    wanted = 0 if name == "direct" else PRECISIONS.index(name)  # devices know only permissions
    for function in ("cost", "claim", "run"):
        assert {precision for _, _, precision in device.seen[function]} == {wanted}, function
    assert [fused for op, fused, _ in device.seen["run"] if op == "matmul"] == [True, True]
    assert device.nothing_left() is False
    plain = linnet.Session(graph, devices=[Watching()], threads=1).run({"x": X})["y"]
    np.testing.assert_array_equal(found, plain)  # linnet_step_evaluate computes in f32 as ever
    np.testing.assert_allclose(found, linnet.Session(graph).run({"x": X})["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_the_cpu_computes_the_same_bits(dtype: str) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (8, 64))
    w = graph.constant((X[:, :16].T @ X).astype(np.float32), "w").cast(dtype)
    y = ops.softmax(ops.relu(x.cast(dtype)[:, :16] @ w), axis=1)
    graph.signature("infer", {"x": x}, {"y": y.cast("f32")})
    usual = linnet.Session(graph)
    expected = usual.run({"x": X})["y"]
    for name in PRECISIONS:
        for settings in ({}, {"reference": True}):
            session = linnet.Session(graph, precision=name, **settings)  # type: ignore[arg-type]
            found = session.run({"x": X})["y"]
            if not settings:
                np.testing.assert_array_equal(found, expected)
                assert [s.kernel for s in session.steps] == [s.kernel for s in usual.steps]
                assert session.memory["total"] == usual.memory["total"]
            else:
                np.testing.assert_array_equal(found, linnet.Session(graph, reference=True).run({"x": X})["y"])


def test_plans_of_different_precision_share_packed_weights() -> None:
    """No kernel packs by precision, so the second plan of the model packs nothing."""
    model = linnet.Model(graph_in_segments())
    sessions = [linnet.Session(model, threads=1)]
    sessions[0].run({"x": X})
    before = int(linnet.clib.library.library().linnet_model_bytes(model.pointer))
    sessions += [linnet.Session(model, precision=name, threads=1) for name in PRECISIONS[1:]]
    for session in sessions:
        session.run({"x": X})
    assert sessions[1].memory["packed_weights"] > 0
    assert int(linnet.clib.library.library().linnet_model_bytes(model.pointer)) == before


@pytest.fixture(scope="module")
def permitted(tmp_path_factory: pytest.TempPathFactory) -> linnet.UserOp:
    path = compile_c(
        [ROOT / "tests" / "ext" / "user_ops.c"], tmp_path_factory.mktemp("ops") / "libops.so", "-shared", "-fPIC",
        f"-I{ROOT / 'runtime_c' / 'include'}",
    )  # fmt: skip
    return next(op for op in linnet.load_user_ops(path) if op.name.endswith("permitted"))


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_user_op_sees_it_in_bodies_of_loops_and_in_later_segments(name: str, permitted: linnet.UserOp) -> None:
    graph = linnet.Graph()
    x, n = graph.placeholder("x", (4,)), graph.placeholder("n", (), "i64")
    looped = linnet.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + permitted(s[1])), (np.int64(0), x))[1]
    kept = ops.gather(x, ops.reshape(ops.nonzero(ops.relu(x)), (-1,)), axis=0)
    graph.signature("infer", {"x": x, "n": n}, {"looped": looped, "late": permitted(kept)})
    session = linnet.Session(graph, precision=name)
    found = session.run({"x": np.array([1, 0, 2, 3], np.float32), "n": np.int64(20)})
    each = 11 * PRECISIONS.index(name)
    np.testing.assert_array_equal(found["late"], np.full(3, each, np.float32))
    np.testing.assert_array_equal(found["looped"], np.array([1, 0, 2, 3], np.float32) + 20 * each)


def test_keys_of_tuning_files_name_it() -> None:
    """A kernel that needs less than f32 is a candidate only where the plan permits it. Integers have the key as before."""
    from linnet.session.planner import Planner

    def keys(**options: Any) -> list[str]:
        planner = Planner(graph_in_segments(), threads=1, **options)
        planner.plan({"x": (8, 64)})
        return [choice.key for choice in planner.choices]

    usual = keys()
    assert usual == keys(precision="f32") and not any("precision" in key for key in usual)
    assert keys(precision="tf32") == [
        f"{key} precision=tf32" if " f32[" in key.split(" >")[0] else key for key in usual
    ]


def test_wrong_values_are_refused() -> None:
    for wrong in (-1, 5, 1 << 30):
        with Chain(graph_in_segments().to_bytes()) as chain, pytest.raises(Failure) as failed:
            chain.make_plan(precision=wrong)
        assert failed.value.status == 101
        assert "linnet_plan_config.precision is out of range" in failed.value.text
        assert f"expected 0 (f32), 1 (f16), 2 (bf16), 3 (tf32) or 4 (direct), got {wrong}; use" in failed.value.text
    with pytest.raises(
        linnet.UsageError, match=r"unknown precision; expected f32, f16, bf16, tf32, direct, got 'f8'; leave"
    ):
        linnet.Session(graph_in_segments(), precision="f8")
    with pytest.raises(linnet.UsageError, match=r"unknown precision.*got 16"):
        linnet.Session(graph_in_segments(), precision=16)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("precision")
    graph_in_segments().save(path / "m.lnt")
    return path


def test_the_commands_take_it(folder: Path, linnet_command: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    model = folder / "m.lnt"
    done = linnet_command("plan", model, "--precision", "bf16")
    assert done.returncode == 0 and ", floats may use bf16, " in done.stdout
    assert json.loads(linnet_command("plan", model, "--json").stdout)["plan"]["precision"] == "f32"
    outputs = []
    for extra in ([], ["--precision", "f16"]):
        outputs.append(json.loads(linnet_command("run", model, "--random", "--json", *extra).stdout)["outputs"])
        assert linnet_command("bench", model, "--seconds", "0.01", *extra).returncode == 0
    assert outputs[0] == outputs[1]
    done = linnet_command("tune", model, "--precision", "f16", "--seconds", "0.1", "-o", folder / "m.tuning")
    assert done.returncode == 0, done.stderr
    done = linnet_command("run", model, "--random", "--precision", "f8")
    assert done.returncode == 2 and "'f8' is not one of 'f32', 'f16', 'bf16', 'tf32', 'direct'" in done.stderr


def test_the_native_tools_take_it(folder: Path) -> None:
    for name, more in (("linnet-run", ["--random"]), ("linnet-bench", ["--seconds", "0.01"])):
        assert "--precision NAME" in tool(name, "--help", cwd=folder).stdout
        assert tool(name, "m.lnt", "--precision", "tf32", *more, cwd=folder).returncode == 0
        refused = tool(name, "m.lnt", "--precision", "f8", *more, cwd=folder)
        assert (
            refused.returncode == 2
            and "--precision: expected f32, f16, bf16, tf32 or direct, got 'f8'" in refused.stderr
        )
