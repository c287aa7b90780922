"""`linnet devices`, and `--device` of `linnet run`, `linnet plan`, `linnet bench` and the native tools, with the
device of tests/ext/toy_device.c. Libraries that are no device, and devices that refuse, are errors that say what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from tests.native import ROOT, build, compile_c, run

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


@pytest.mark.parametrize("command", [("plan",), ("run", "--random"), ("bench", "--seconds", "0.01")])
def test_the_memory_on_a_device_has_a_limit(command: tuple[str, ...], toy: Path, model: Path, cli: Cli) -> None:
    limited = (*command, model, "--device", toy, "--max-device-bytes")
    cli(*limited, 100_000)
    assert "at most 100 bytes" in cli(*limited, 100, status=1)


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


# ---- names of devices, and `linnet devices`


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with two devices and the option count=N."""
    return compile_c(
        [ROOT / "tests" / "ext" / "two_devices.c"], tmp_path_factory.mktemp("two") / "liblinnet_two.so", "-shared",
        "-fPIC", f"-I{ROOT / 'runtime_c' / 'include'}",
    )  # fmt: skip


def test_devices_lists_what_is_there_and_what_is_missing(toy: Path, two: Path, cli: Cli) -> None:
    text = cli("devices", toy)
    assert f"{toy}:0" in text.replace("\n", "") or "the processor that runs linnet" in text
    assert "opencl: " in text or "opencl:0" in text
    report = json.loads(cli("devices", "--json", toy, f"{two}:1,count=1"))["devices"]
    mine = [entry for entry in report if not entry["name"].startswith(("cuda", "opencl"))]
    assert [entry["name"] for entry in mine] == [f"{toy}:0", f"{two}:0,count=1", str(two)]
    assert mine[0] | {"name": ""} == {
        "name": "", "device": "toy", "hardware": "the processor that runs linnet", "driver": "toy 1.0", "kind": "cpu",
        "features": ["f32"], "memory": 0, "memory_free": 0, "missing": "",
    }  # fmt: skip
    assert mine[1]["device"] == "first" and mine[1]["kind"] == "other" and mine[1]["missing"] == ""
    assert mine[2]["device"] == "" and mine[2]["missing"] == "no driver is installed: install one"
    assert "no driver is installed: install one" in cli("devices", f"{two},count=0")


def test_devices_without_names_is_no_error(cli: Cli) -> None:
    assert "opencl" in cli("devices")
    assert all({"name", "missing"} <= set(entry) for entry in json.loads(cli("devices", "--json"))["devices"])


def test_a_device_that_was_asked_for_and_is_missing_is_one_error(two: Path, model: Path, cli: Cli) -> None:
    for text in (cli("devices", "nothing", status=1), cli("run", model, "--random", "--device", "nothing", status=1)):
        assert "cannot load a device from 'nothing'; expected a library liblinnet_nothing.so" in text
        assert text.count("\n") == 1 and "where the system searches libraries" in text
    text = cli("plan", model, "--device", f"{two},count=0", status=1)
    assert "no driver is installed: install one" in text and text.count("\n") == 1
    text = cli("bench", model, "--device", f"{two},size=1", status=1)
    assert "the only option is count=N" in text and text.count("\n") == 1


def test_the_benchmarks_say_how_many_steps_run_where(toy: Path, model: Path, cli: Cli) -> None:
    """In the same words: linnet bench, and linnet-bench, which opens the device itself."""
    words = "1 step on toy, 1 step on cpu, 3 transfers, 1 fallback\n"
    assert words in cli("bench", model, "--seconds", 0.01, "--device", toy)
    tool = build("release", "linnet-bench") / "linnet-bench"
    assert words in run([str(tool), str(model), "--seconds", "0.01", "--device", str(toy)])
    assert "fallback" not in run([str(tool), str(model), "--seconds", "0.01"])
    places = {"steps_on": {"toy": 1, "cpu": 1}, "transfers": 3, "fallbacks": 1}
    made = json.loads(run([str(tool), str(model), "--seconds", "0.01", "--device", str(toy), "--json"]))
    assert {key: made[key] for key in places} == places
    made = json.loads(cli("bench", model, "--seconds", 0.01, "--device", toy, "--json"))
    assert {key: made[key] for key in places} == places


def test_the_native_tools_take_devices(toy: Path, two: Path, model: Path, tmp_path: Path) -> None:
    tool = str(build("release", "linnet-run") / "linnet-run")
    traced = tmp_path / "trace.json"
    run([tool, str(model), "--random", "--device", str(toy), "--trace", str(traced)])
    assert '"toy"' in traced.read_text()
    done = subprocess.run(
        [tool, model, "--random", "--device", f"{two}:5"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert f"linnet-run: error: not_found: there is no device '{two}:5' on this machine" in done.stderr
    many = [word for _ in range(33) for word in ("--device", str(toy))]
    run([tool, str(model), "--random", *many], status=2)


def test_sessions_take_names(toy: Path, two: Path, model: Path) -> None:
    expected = linnet.Session(model).run({"x": np.ones((4, 8), np.float32)})["y"]
    loaded = linnet.load_device(f"{toy}:0")
    for given in (
        {"device": str(toy)}, {"device": f"{toy}:0"}, {"device": loaded}, {"devices": [str(toy)]},
        {"devices": [str(toy), loaded]},
    ):  # fmt: skip
        session = linnet.Session(model, **given)
        assert "toy" in [step.device for step in session.steps]
        np.testing.assert_allclose(session.run({"x": np.ones((4, 8), np.float32)})["y"], expected, rtol=1e-5)
    assert [step.device for step in linnet.Session(model, device=None).steps] == ["cpu", "cpu"]
    with pytest.raises(linnet.UsageError, match="both 'device' and 'devices' are given"):
        linnet.Session(model, device=str(toy), devices=[loaded])
    with pytest.raises(linnet.FileError, match=r"no device '.*:2' on this machine; expected a device with number 2"):
        linnet.Session(model, device=f"{two}:2")
    with pytest.raises(linnet.UsageError, match="the only option is count=N"):
        linnet.load_device(f"{two},speed=1")
    with pytest.raises(linnet.UsageError):
        linnet.Session(model, device=3)  # type: ignore[arg-type]


ONE_NAME = """
import sys, linnet
for name in sys.argv[2].split():
    getattr(linnet, name)
for call in (linnet.Session, linnet.check, lambda model, devices: linnet.SessionOptions(devices=devices)):
    try:
        call(sys.argv[1], devices="toy")
    except linnet.UsageError as error:
        print(error)
"""


@pytest.mark.parametrize("used_before", ["", "SessionOptions load_device"])
def test_one_name_is_no_list(model: Path, used_before: str) -> None:
    """The text does not depend on what was imported before."""
    arguments = [sys.executable, "-c", ONE_NAME, str(model), used_before]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == 3 * [
        "invalid_argument: 'devices' is one name; expected a list of devices, got 'toy'; give device= for one device, or "
        "devices=[...]"
    ]


def test_options_take_a_device_that_is_loaded_after_other_options_were_made(toy: Path) -> None:
    """The types of devices are known only then."""
    code = "import sys, linnet; linnet.SessionOptions(devices=['other']); device = linnet.load_device(sys.argv[1]); "
    code += "print(linnet.SessionOptions(devices=[device]).device_names)"
    done = subprocess.run([sys.executable, "-c", code, f"{toy}:0"], capture_output=True, text=True, check=False)
    assert done.stdout == "['toy']\n", done.stderr


def test_devices_of_a_library_in_python(toy: Path, two: Path) -> None:
    (info,) = linnet.devices(toy)
    assert (info.name, info.device, info.kind, info.features) == (f"{toy}:0", "toy", "cpu", ("f32",))
    assert linnet.load_device(info.name).name == "toy"
    assert [entry.device for entry in linnet.devices(f"{two}:1")] == ["first", "second"]
    only = linnet.devices(f"{two},count=0")
    assert [(entry.name, entry.missing) for entry in only] == [(str(two), "no driver is installed: install one")]
    with pytest.raises(linnet.FileError, match="liblinnet_nothing"):
        linnet.devices("nothing")
