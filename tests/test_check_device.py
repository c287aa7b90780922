"""`linnet check-device` and linnet.check_device: the toy device agrees and refuses nearly all; deliberate faults of
tests/ext/faulty_device.c are found, named, and found again with --case; the quick list passes on OpenCL."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.conformance.case import Case, fed
from linnet.conformance.cases import all_cases, is_quick
from linnet.conformance.compare import compared
from tests.native import ROOT, build, compile_c
from tests.opencl_device import opencl_device

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def _device(name: str, folder: Path) -> Path:
    build("release", "linnet")
    return compile_c(
        [ROOT / "tests" / "ext" / f"{name}_device.c"], folder / f"liblinnet_{name}.so", "-shared", "-fPIC",
        f"-I{ROOT / 'runtime_c' / 'include'}", "-lm",
    )  # fmt: skip


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _device("toy", tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _device("faulty", tmp_path_factory.mktemp("faulty"))


# ---- the lists


def test_ids_are_unique_and_every_op_of_inference_has_cases() -> None:
    cases = all_cases()
    assert len({case.id for case in cases}) == len(cases)
    words = """map copy reduce matmul conv conv_transpose pool softmax layer_norm batch_norm group_norm gather scatter resize
        cast quantize dequantize cumsum top_k recurrent nms nonzero range random roi_align
        attention"""
    ops = set(words.split())
    for wanted in (cases, [case for case in cases if case.usual], [case for case in cases if is_quick(case)]):
        assert {case.op for case in wanted} == ops
    assert sum(map(is_quick, cases)) < sum(case.usual for case in cases) < len(cases)


# ---- comparing


def _compared(op: str, dtype: str, got: np.ndarray, want: np.ndarray, depth: int = 1) -> int:
    return compared(Case(op, dtype, (fed(dtype, 1),), depth=depth), dtype, got, want).wrong


def test_floats_agree_within_the_range_and_integers_exactly() -> None:
    want = np.array([100, 1, -3, 0], np.float32)
    assert _compared("matmul", "f32", want + np.float32(1.5e-3), want) == 0
    assert _compared("matmul", "f32", want + np.float32(3e-3), want) == 4
    assert _compared("matmul", "f32", want + np.float32(3e-3), want, depth=4096) == 0
    assert _compared("copy", "f32", np.nextafter(want, np.float32(9)), want) == 4
    assert _compared("copy", "i64", np.array([2**62 + 1]), np.array([2**62])) == 1
    assert _compared("copy", "bool", np.array([True]), np.array([False])) == 1
    half = np.array([1, 1000], np.float16)
    assert _compared("map", "f16", half + np.array([0.003, 3], np.float16), half) == 0
    assert _compared("map", "f16", half + np.array([0.1, 0], np.float16), half) == 1
    assert _compared("map", "f32", want[:3], want) == 1


def test_what_is_not_finite_must_be_at_the_same_places() -> None:
    want = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    assert _compared("map", "f32", want.copy(), want) == 0
    for i, value in ((0, 1), (1, -np.inf), (2, np.nan), (3, np.inf), (3, np.nan), (1, 3e38)):
        got = want.copy()
        got[i] = value
        found = compared(Case("map", "f32", ()), "f32", got, want)
        assert found.wrong == 1 and found.where == (i,)


# ---- devices


def test_the_toy_agrees_and_refuses_nearly_all(toy: Path) -> None:
    report = linnet.check_device(toy, ops=["matmul", "softmax", "nonzero"])
    assert report.ok and report.device == "toy"
    assert report.by_op()["softmax"].keys() == {"refused"}
    counts = report.by_op()["matmul"]
    assert counts["agrees"] > 20 and counts["refused"] > counts["agrees"] and counts["differs"] == counts["failed"] == 0
    assert ("softmax", "f32") in {(op, dtype) for op, dtype, _ in report.refusals}
    status = {finding.name: finding.status for finding in report.findings}
    assert list(status.values()) == ["passed", "passed", "passed", "skipped"], report.findings


def test_a_device_that_takes_nothing_is_no_failure(toy: Path, linnet_command: Command) -> None:
    done = linnet_command("check-device", toy, "--ops", "nms,range")
    assert done.returncode == 0, done.stderr
    assert "toy took none of the" in done.stdout and "nms.f32.0" in done.stdout


@pytest.mark.parametrize(
    ("fault", "dtype", "text"),
    [
        ("last", "f32", "1 result differs"),
        ("rounding", "i8", "results differ, most at ["),
        ("again", "f32", "a second run gives other bits"),
        ("call", "f32", "failed to run a step"),
    ],
)
def test_a_fault_is_found_and_found_again(
    faulty: Path, linnet_command: Command, fault: str, dtype: str, text: str
) -> None:
    name = f"{faulty},fault={fault}"
    done = linnet_command("check-device", name, "--ops", "matmul", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    failures = [case for case in found["failures"] if case["dtype"] == dtype]
    assert failures and all(text in case["why"] for case in failures) and not found["ok"]
    assert {case["op"] for case in found["failures"]} == {"matmul"}
    if fault in ("last", "rounding"):
        assert {case["dtype"] for case in found["failures"]} == {dtype}
    command = failures[0]["reproduce"]
    assert command == f"linnet check-device {name} --case {failures[0]['id']}"
    alone = linnet_command("check-device", name, "--case", failures[0]["id"])
    assert alone.returncode == 1 and text in alone.stdout and failures[0]["about"] in alone.stdout
    assert command in alone.stdout and "1 of 1 cases and 1 of them differ or fail" in alone.stdout


def test_a_refusal_names_the_nearest_case_that_is_taken(toy: Path) -> None:
    report = linnet.check_device(toy, ops=["matmul", "softmax", "nonzero"])
    why = {(result.dtype, result.about): result.why for result in report.results if result.status == "refused"}
    no = "its cost is negative; it takes"
    assert why["f32", "f32[1,1] f32[1,1] transpose_a=True transpose_b=False"] == f"{no} no case with transpose_a=True"
    assert why["f32", "f32[5] f32[5,7]"] == f"{no} no case with operand 0 of rank 1"
    assert all(text == f"{no} f32" for (dtype, about), text in why.items() if dtype == "i8" and about.startswith("i8["))
    assert {r.why for r in report.results if r.op == "softmax"} == {f"{no} no case of this op"}
    assert {r.why for r in report.results if r.op == "nonzero"} == {"its sizes depend on data, so no device is asked"}


def test_the_faulty_device_without_a_fault_agrees(faulty: Path) -> None:
    report = linnet.check_device(faulty, ops=["matmul"], cases="all")
    assert report.ok, report.failures
    assert {result.dtype for result in report.results if result.status == "agrees"} == {"f32", "i8"}


def test_wrong_arguments_are_refused(toy: Path, linnet_command: Command, tmp_path: Path) -> None:
    with pytest.raises(linnet.UsageError, match="no op of this name"):
        linnet.check_device(toy, ops=["matmull"])
    with pytest.raises(linnet.UsageError, match="no cases of this op"):
        linnet.check_device(toy, ops=["while"])
    with pytest.raises(linnet.UsageError, match="single name"):
        linnet.check_device(toy, ops="matmul")
    with pytest.raises(linnet.UsageError, match="no case with this id"):
        linnet.check_device(toy, case="matmul.f32.99999")
    with pytest.raises(linnet.UsageError, match="cases is not the name of a list"):
        linnet.check_device(toy, cases="some")
    with pytest.raises(linnet.UsageError, match="out of range"):
        linnet.check_device(toy, seconds=0)
    with pytest.raises(linnet.FileError):
        linnet.check_device(tmp_path / "none.so")
    done = linnet_command("check-device", toy, "--quick", "--all")
    assert done.returncode == 2 and "--quick and --all" in done.stderr


def test_cases_are_left_out_when_the_time_is_over(toy: Path) -> None:
    report = linnet.check_device(toy, ops=["matmul"], seconds=1e-9)
    assert not report.results and report.left_out > 100 and "left out" in report.summary


@pytest.mark.more
def test_opencl_agrees_with_the_cpu() -> None:
    opencl_device()
    report = linnet.check_device("opencl", cases="quick")
    assert report.ok, [(result.id, result.about, result.why) for result in report.failures] + report.findings
    assert report.count("agrees") > 400


def test_opencl_agrees_on_some_ops() -> None:
    opencl_device()
    report = linnet.check_device("opencl", ops=["softmax", "quantize", "cumsum"], cases="quick")
    assert report.ok, [(result.id, result.about, result.why) for result in report.failures] + report.findings
    assert report.count("refused") == 0
