"""`--device` of `linnet run`, `linnet plan` and `linnet bench`, with the device of tests/ext/toy_device.c.
Libraries that are no device, and devices that refuse, are errors that say what to do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from tests.native import ROOT, build, compile_c

Cli = Callable[..., str]
NULL_DEVICE = "const void *linnet_extension_device(void); const void *linnet_extension_device(void) { return 0; }"


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build("release", "linnet")
    return compile_c(
        [ROOT / "tests" / "ext" / "toy_device.c"], tmp_path_factory.mktemp("toy") / "liblinnet_toy.so", "-shared", "-fPIC",
        f"-I{ROOT / 'runtime_c' / 'include'}",
    )  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """softmax(x @ w): the toy runs the product, the CPU the softmax."""
    path = tmp_path_factory.mktemp("model") / "model.lnt"
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 8))
    weight = np.random.default_rng(4).standard_normal((8, 8)).astype(np.float32)
    graph.signature("infer", {"x": x}, {"y": ops.softmax(x @ graph.constant(weight, "w"), axis=1)})
    graph.save(path)
    return path


@pytest.fixture
def cli(linnet_command: Callable[..., subprocess.CompletedProcess[str]]) -> Cli:
    """Runs `linnet ARGUMENTS`, checks its exit status, and returns what it prints."""

    def run_it(*arguments: object, status: int = 0) -> str:
        done = linnet_command(*arguments)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stderr if status else done.stdout

    return run_it


def test_a_plan_counts_the_steps_on_each_device(toy: Path, model: Path, cli: Cli) -> None:
    assert "1 step on toy, 1 step on cpu, 3 transfers" in cli("plan", model, "--device", toy)  # up, down, wait
    report = json.loads(cli("plan", model, "--device", toy, "--json"))
    assert report["steps_on"] == {"toy": 1, "cpu": 1} and report["transfers"] == 3 == report["plan"]["steps"] - 2
    assert report["memory"]["devices"] > 0
    alone = cli("plan", model)
    assert "toy" not in alone and "on cpu" not in alone
    why = json.loads(cli("plan", model, "--device", toy, "--why", "--json"))["why"]
    assert {choice["step"]["op"]: choice["step"]["device"] for choice in why}["matmul"] == "toy"


def test_a_run_with_a_device_agrees_with_the_cpu(toy: Path, model: Path, cli: Cli, tmp_path: Path) -> None:
    x = np.random.default_rng(5).standard_normal((4, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    for folder, options in (("cpu", []), ("toy", ["--device", toy])):
        cli("run", model, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / folder, *options)
    got, want = (np.load(tmp_path / folder / "y.npy") for folder in ("toy", "cpu"))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got.sum(axis=1), 1, rtol=1e-5)


def test_a_benchmark_says_where_each_step_runs(toy: Path, model: Path, cli: Cli) -> None:
    report = json.loads(cli("bench", model, "--seconds", 0.01, "--device", toy, "--json"))
    assert {op["op"]: op["device"] for op in report["ops"]}["matmul"] == "toy"
    assert report["memory"]["devices"] > 0


def test_a_library_in_the_current_folder(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(toy.parent)
    assert linnet.load_device(toy.name).name == "toy"


@pytest.mark.parametrize("command", [("run", "--random"), ("plan",), ("bench", "--seconds", 0.01)])
def test_what_is_no_device_is_an_error(command: tuple[object, ...], model: Path, cli: Cli, tmp_path: Path) -> None:
    name, *rest = command
    text = cli(name, model, *rest, "--device", tmp_path / "none.so", status=1)
    assert f"cannot load a device from '{tmp_path / 'none.so'}'" in text and "check the path" in text
    assert "expected a shared library for this machine" in text and "No such file" in text
    text = cli(name, model, *rest, "--device", model, status=1)  # a file of another kind
    assert f"cannot load a device from '{model}'" in text and "check the path" in text


def _compiled(text: str, path: Path) -> Path:
    source = path.with_suffix(".c")
    source.write_text(text)
    return compile_c([source], path, "-shared", "-fPIC")


def test_a_library_without_the_function_is_an_error(model: Path, cli: Cli, tmp_path: Path) -> None:
    library = _compiled("int other(void); int other(void) { return 0; }\n", tmp_path / "libother.so")
    text = cli("run", model, "--random", "--device", library, status=1)
    assert f"cannot load a device from '{library}'" in text and "linnet_device.h" in text
    assert "expected a library that exports linnet_extension_devices" in text
    assert "got a library without this function" in text


def test_a_device_that_refuses_is_an_error(model: Path, cli: Cli, tmp_path: Path) -> None:
    library = _compiled(NULL_DEVICE + "\n", tmp_path / "libnull.so")
    text = cli("plan", model, "--device", library, status=1)
    assert f"not_found: there is no device '{library}' on this machine" in text
    assert "expected a device with number 0" in text and "got a library with 0 devices" in text
    assert "the library finds no device: check that the hardware and its driver are installed" in text
