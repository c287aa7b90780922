"""The model of time as a user sees it: the rates of a machine in tuning files, `linnet tune --machine`, the modelled time of
steps and plans, and what a device is told of a step's work."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.machine import _products, processor_share
from linnet.session.planner import Planner
from tests.bench_costs import compare, rank_correlation
from tests.capi import ffi, lib
from tests.py_device import PyDevice, op_of

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="needs kernels with vectors")

HEADER = "linnet-tuning 1 library 0.1.0 machine any threads 1\n"
WIDEST = linnet.isa_names()[-1]


def network(groups: int = 1) -> linnet.Graph:
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, 16, 20, 20))
    w = graph.constant(np.ones((32, 16 // groups, 3, 3), np.float32))
    graph.signature("infer", {"x": x}, {"y": ops.exp(ops.conv(x, w, pads=[1] * 4, group=groups))})
    return graph


def planned(tuning: str | None = None, **options: object) -> Planner:
    planner = Planner(
        network(),
        threads=1,
        tuning=None if tuning is None else (HEADER + tuning).encode(),
        **options,  # type: ignore[arg-type]
    )
    planner.plan({})
    return planner


def time_of(planner: Planner, op: str) -> float:
    return sum(step.modelled_ms for step in planner.steps if step.op == op)


def test_a_plan_takes_as_long_as_its_steps() -> None:
    planner = planned()
    rounding = 1e-6 * (1 + len(planner.steps))  # times are whole nanoseconds
    steps_ms = sum(s.modelled_ms for s in planner.steps)
    assert planner.plan_info["modelled_ms"] == pytest.approx(steps_ms, abs=rounding)
    assert time_of(planner, "conv") > time_of(planner, "copy") > 0
    several = Planner(network(), threads=2)
    several.plan({})
    assert time_of(planner, "conv") / 2 < time_of(several, "conv") < time_of(planner, "conv")


def test_a_scatter_in_place_costs_what_it_writes() -> None:
    graph = linnet.Graph(seed=1)
    table, rows = graph.placeholder("table", (2000, 256)), graph.placeholder("rows", (4, 256))
    index = graph.placeholder("index", (4, 1), "i64")
    over = ops.scatter(
        ops.exp(table), index, rows, kind="nd", name="over"
    )  # nothing else needs the table's exponentials
    copied = ops.scatter(table, index, rows, kind="nd", name="copied")  # the caller's input stays as it is
    outputs = {"over": ops.sum(over), "copied": ops.sum(copied)}
    graph.signature("infer", {"table": table, "rows": rows, "index": index}, outputs)
    planner = Planner(graph, threads=1)
    planner.plan({})
    steps = {step.name: step for step in planner.steps}
    assert steps["over"].bytes == 4 * 8 + 2 * 4 * 256 * 4
    assert steps["copied"].bytes > 2 * 2000 * 256 * 4
    assert 50 * steps["over"].modelled_ms < steps["copied"].modelled_ms


@pytest.mark.parametrize("kind", ["f32", "map", "move"])
def test_rates_of_the_machine_decide_times(kind: str) -> None:
    op = {"f32": "conv", "map": "conv", "move": "copy"}[kind]
    slow, fast = (
        planned("".join(f"machine {isa} {kind} = {rate}\n" for isa in linnet.isa_names())) for rate in (0.01, 1000)
    )
    assert time_of(slow, op) > 20 * time_of(fast, op)


def test_a_kernel_of_slow_instructions_is_not_taken() -> None:
    widest = [s.kernel for s in planned().steps if s.op == "conv"]
    slow = "".join(f"machine {WIDEST} {kind} = 1e-3\n" for kind in ("f32", "map", "move"))
    assert all("__" in kernel for kernel in widest)
    assert all(
        not kernel.endswith(f"__{WIDEST}") for kernel in (s.kernel for s in planned(slow).steps if s.op == "conv")
    )


def test_steps_take_the_time_of_a_step() -> None:
    one, other = planned("machine step = 1000\n"), planned("machine step = 3000\n")
    assert other.plan_info["modelled_ms"] - one.plan_info["modelled_ms"] == pytest.approx(
        2e-3 * len(one.steps), rel=0.01
    )


@pytest.mark.parametrize(
    ("line", "got"),
    [("machine memory = 0", "0"), ("machine memory = fast", "fast"), ("machine memory = -3", "-3"),
     ("machine memory = inf", "inf"), ("machine memory = 1e30", "1e30"), ("machine momory = 3", "momory")],
)  # fmt: skip
def test_a_rate_that_is_none_is_refused(line: str, got: str) -> None:
    with pytest.raises(linnet.Error) as raised:
        planned(f"machine step = 100\n{line}\n")
    assert raised.value.code == 206
    assert "line 3" in str(raised.value) and got in str(raised.value)


def test_rates_of_other_processors_have_no_effect() -> None:
    assert planned("machine sve9 f32 = 3\n").plan_info["modelled_ms"] == planned().plan_info["modelled_ms"]


@pytest.mark.parametrize("dtype", ["f16", "i16", "i8"])
def test_each_rate_is_measured_in_its_dtype(dtype: str) -> None:
    """Even where integers are slower than floats, so that the quantizer would take floats."""
    convolutions = [n for n in _products(dtype).signatures["infer"].function.nodes if n.op == "conv"]
    assert [n.inputs[1].dtype for n in convolutions if n.inputs[1] is not None] == [dtype, dtype]


def test_the_command_measures_the_machine(
    tmp_path: Path, linnet_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path = tmp_path / "machine.tuning"
    done = linnet_command("tune", "--machine", "--seconds", "0.3", "-o", str(path), "--json")
    report = json.loads(done.stdout)
    rates = report["rates"]
    assert report["output"] == str(path) and report["isa"] == WIDEST
    assert {"step", "cache", "shared", "memory"} <= set(rates) and all(0 < r < 1e6 for r in rates.values())
    for kind in ("f32", "map", "move"):  # a set is at least as fast as the one that it extends
        found = [rates[f"{isa} {kind}"] for isa in linnet.isa_names() if f"{isa} {kind}" in rates]
        assert len(found) >= 2 and found == sorted(found)
    text = path.read_text()
    assert all(f"machine {name} = " in text for name in rates)
    session = linnet.Session(network(), tuning=path)
    session.run({"x": np.zeros((1, 16, 20, 20), np.float32)})
    table = linnet_command("tune", "--machine", "--seconds", "0.1", "-o", str(path)).stdout
    assert "f32 products" in table and WIDEST in table and f"wrote {path}" in table


def test_a_model_is_tuned_by_the_rates_of_the_machine(
    tmp_path: Path, linnet_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    network().save(tmp_path / "model.lnt")
    done = linnet_command("tune", "--machine", str(tmp_path / "model.lnt"), "--seconds", "0.2", "--threads", "1")
    text = (tmp_path / "model.tuning").read_text()
    assert "machine step = " in text and "wrote" in done.stdout
    Planner(network(), threads=1, tuning=text.encode()).plan({})


def test_something_must_be_tuned(linnet_command: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = linnet_command("tune")
    assert done.returncode == 2 and "MODEL, --machine, or both" in done.stderr


class Asking(PyDevice):
    """Keeps what it is told of each step, and takes none."""

    def __init__(self) -> None:
        super().__init__({})
        self.told: dict[str, tuple[float, float, float, float, float]] = {}

    def _cost(self, step: object) -> float:
        counts = ffi.new("linnet_step_counts *", {"struct_size": ffi.sizeof("linnet_step_counts")})
        assert lib().linnet_step_get_counts(step, counts) == 0
        self.told[op_of(step)] = (counts.macs, counts.operations, counts.read, counts.written, counts.cpu_ns)
        return -1.0


@pytest.mark.parametrize("groups", [1, 16])
def test_a_device_is_told_the_work_of_a_step(groups: int) -> None:
    """True multiply-accumulates: a depthwise convolution has a sixteenth of those of a full one."""
    device = Asking()
    session = linnet.Session(network(groups), threads=1, devices=[device])
    macs, _, read, written, cpu_ns = device.told["conv"]
    assert macs == 20 * 20 * 32 * (16 // groups) * 9
    assert written == 4 * 32 * 20 * 20 and read == 4 * (16 * 20 * 20 + 32 * (16 // groups) * 9)
    step = next(s for s in session.steps if s.op == "conv")
    assert 0.2e6 * step.modelled_ms < cpu_ns < 1.5e6 * step.modelled_ms  # the step has the fused exp, too
    assert device.told["map"][1] >= 10 * 32 * 20 * 20 and device.told["map"][0] == 0


def test_the_benchmark_compares_modelled_with_measured_times() -> None:
    found = compare(network(), {"x": np.zeros((1, 16, 20, 20), np.float32)}, 1, None, 0.05)
    assert 0 < found["modelled"] < 100 and found["measured"] > 0 and -1 <= found["order"] <= 1
    assert rank_correlation([1, 5, 9, 7], [10, 20, 40, 30]) == 1 and rank_correlation([1, 2, 3], [3, 2, 1]) == -1


def test_a_quota_of_a_control_group_lowers_the_rates(tmp_path: Path) -> None:
    groups, mount = tmp_path / "cgroup", tmp_path / "fs"
    inner = mount / "cpu" / "outer" / "inner"
    inner.mkdir(parents=True)
    groups.write_text("3:memory:/elsewhere\n2:cpu,cpuacct:/outer/inner\n")
    assert processor_share(str(tmp_path / "none"), str(mount)) == 1
    assert processor_share(str(groups), str(mount)) == 1  # no files
    for folder, quota in ((inner, -1), (inner.parent, 250_000)):
        (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert processor_share(str(groups), str(mount)) == 1  # two and a half processors
    (inner.parent / "cpu.cfs_quota_us").write_text("25000\n")
    assert processor_share(str(groups), str(mount)) == 0.25
    groups.write_text("0::/outer\n")
    (mount / "outer").mkdir()
    (mount / "outer" / "cpu.max").write_text("max 100000\n")
    assert processor_share(str(groups), str(mount)) == 1
    (mount / "outer" / "cpu.max").write_text("50000 100000\n")
    assert processor_share(str(groups), str(mount)) == 0.5
