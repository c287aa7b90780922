"""The native tools: linnet-run reads and writes NumPy's files, linnet-bench reports; wrong usage gives one line and a status.
Results are compared with the same file run in Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.facade import Graph
from linnet.ir.function import emit
from tests.graphs import bytes_of, feeds
from tests.native import build

FAILED, USAGE = 1, 2
Command = Callable[..., subprocess.CompletedProcess[str]]


def _tool(name: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(build("release", "linnet-run", "linnet-bench") / name), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def _model(folder: Path, name: str) -> Path:
    path = folder / f"{name}.lnt"
    path.write_bytes(bytes_of(name))
    return path


def _given(folder: Path, values: dict[str, np.ndarray]) -> list[str]:
    arguments = []
    for name, value in values.items():
        np.save(folder / f"in_{name}.npy", value)
        arguments += ["--input", f"{name}=in_{name}.npy"]
    return arguments


@pytest.mark.parametrize("name", ["mlp", "conv_net", "conv_net_i8", "gather", "dynamic", "data_dependent"])
def test_run_computes_what_python_computes(name: str, tmp_path: Path) -> None:
    """Also for open shapes in the file and for results whose shape depends on data."""
    model, values = _model(tmp_path, name), feeds(name)
    done = _tool(
        "linnet-run", model, *_given(tmp_path, values), "--output-dir", "results", "--threads", 1, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    expected = linnet.Session(str(model), threads=1).run(values)
    assert {path.name for path in (tmp_path / "results").iterdir()} == {f"{key}.npy" for key in expected}
    for key, value in expected.items():
        got = np.load(tmp_path / "results" / f"{key}.npy", allow_pickle=False)
        assert got.dtype == value.dtype and got.shape == value.shape
        np.testing.assert_array_equal(got, value)
        assert f"{key}: " in done.stdout


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=dtype).reshape(shape)
        for dtype in ("f4", "f2", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
        for shape in ((6,), (2, 3))
    ]
    + [np.array([True, False]), np.array(3.5, np.float32), np.zeros((0, 4), np.float32)],
    ids=lambda v: f"{v.dtype}{list(v.shape)}",
)
def test_every_npy_that_numpy_writes_comes_back(value: np.ndarray, tmp_path: Path) -> None:
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", linnet.ir.dtypes.dtype_of(value.dtype), value.shape)
    main.outputs.append(emit("copy", [x], {"kind": "identity"}, name="y")[0])
    graph.signature("infer", main, outputs=["the/output"])
    graph.save(tmp_path / "same.lnt")
    done = _tool("linnet-run", "same.lnt", *_given(tmp_path, {"x": value}), "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [path] = (tmp_path / "out").iterdir()
    assert path.name == "the_output.0.npy"  # a name that is not a valid file name
    got = np.load(path, allow_pickle=False)
    assert got.dtype == value.dtype and got.shape == value.shape
    np.testing.assert_array_equal(got, value)


def test_random_inputs_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    model, results = _model(tmp_path, "mlp"), []
    for seed in (1, 1, 2):
        done = _tool("linnet-run", model, "--random", "--seed", seed, "--output-dir", "out", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        results.append(np.load(tmp_path / "out" / "y.npy"))
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != results[2]).any()


@pytest.mark.parametrize(
    ("status", "words", "arguments"),
    [
        (USAGE, "no model", []),
        (USAGE, "unknown option '--fast'", ["mlp.lnt", "--fast"]),
        (USAGE, "--threads: expected a whole number from 1", ["mlp.lnt", "--threads", "0"]),
        (USAGE, "--threads: expected a whole number", ["mlp.lnt", "--threads", "2x"]),
        (USAGE, "--threads needs a value", ["mlp.lnt", "--threads"]),
        (USAGE, "NAME=FILE", ["mlp.lnt", "--input", "x="]),
        (FAILED, "absent: cannot open", ["mlp.lnt", "--input", "absent"]),
        (USAGE, "expected one model file", ["mlp.lnt", "other.lnt"]),
        (USAGE, "--input x is given twice", ["mlp.lnt", "--input", "x=x.npy", "--input", "x.npy"]),
        (USAGE, "the shape of 'x' is given twice", ["mlp.lnt", "--shape", "x=4,8", "--shape", "x=4,8"]),
        (USAGE, "--shape x", ["mlp.lnt", "--shape", "x=1,b"]),
        (FAILED, "not_found", ["absent.lnt"]),
        (FAILED, "bad_magic", ["words.npy"]),
        (FAILED, "no signature 'train'", ["mlp.lnt", "--signature", "train"]),
        (FAILED, "give --input x=FILE.npy, or --random", ["mlp.lnt"]),
        (FAILED, "has no input or tensor 'z'", ["mlp.lnt", "--input", "z=x.npy"]),
        (FAILED, "absent.npy: cannot open", ["mlp.lnt", "--input", "x=absent.npy"]),
        (FAILED, "words.npy: it is not a .npy file", ["mlp.lnt", "--input", "x=words.npy"]),
        (FAILED, "short.npy: the file size does not match the shape", ["mlp.lnt", "--input", "x=short.npy"]),
        (FAILED, "fortran.npy: the array is in Fortran order", ["mlp.lnt", "--input", "x=fortran.npy"]),
        (FAILED, "objects.npy: element type '|O' is not supported", ["mlp.lnt", "--input", "x=objects.npy"]),
        (FAILED, "expected f32 [4, 8], got f32 [2, 8]", ["mlp.lnt", "--input", "x=small.npy"]),
        (FAILED, "expected f32 [4, 8], got i32 [4, 8] in whole.npy; save", ["mlp.lnt", "--input", "x=whole.npy"]),
        (FAILED, "unknown_name", ["mlp.lnt", "--random", "--isa-max", "mmx"]),
        (FAILED, "--tuning absent.txt: cannot be read: No such file", ["mlp.lnt", "--tuning", "absent.txt"]),
        (FAILED, "--tuning mlp.lnt: is not a tuning file, because it is not text", ["mlp.lnt", "--tuning", "mlp.lnt"]),
        (FAILED, "line 1 of the tuning file is not the header", ["mlp.lnt", "--random", "--tuning", "wrong.txt"]),
        (FAILED, "cannot create the folder", ["mlp.lnt", "--random", "--output-dir", "absent/out"]),
    ],
)
def test_wrong_use_is_one_line_and_a_status(status: int, words: str, arguments: list[str], tmp_path: Path) -> None:
    _model(tmp_path, "mlp")
    (tmp_path / "wrong.txt").write_text("conv = conv_reference\n" * 5000)
    good = np.zeros((4, 8), np.float32)
    np.save(tmp_path / "x.npy", good)
    np.save(tmp_path / "small.npy", good[:2])
    np.save(tmp_path / "whole.npy", good.astype(np.int32))
    np.save(tmp_path / "fortran.npy", np.asfortranarray(good))
    np.save(tmp_path / "objects.npy", np.array([None, 1], object), allow_pickle=True)
    (tmp_path / "words.npy").write_text("twelve words\n")
    (tmp_path / "short.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-4])
    done = _tool("linnet-run", *arguments, cwd=tmp_path)
    assert done.returncode == status, (done.returncode, done.stderr)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("linnet-run: error: ") and words in lines[0], done.stderr
    assert len(lines) == 1 and lines[0].endswith("; see linnet-run --help") == (status == USAGE), done.stderr
    assert not done.stdout and not (tmp_path / "out").exists()


def test_bench_reports_what_python_reads(tmp_path: Path) -> None:
    model = _model(tmp_path, "conv_net")
    done = _tool("linnet-bench", model, "--seconds", 0.05, "--threads", 1, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["dtype"] == "f32" and report["threads"] == 1 and report["isa"] == linnet_isas()[-1]
    assert 0 < report["min_ms"] <= report["median_ms"] <= report["p95_ms"]
    parts = ("load_ms", "plan_ms", "session_ms", "first_run_ms")
    assert report["cold_start_ms"] == pytest.approx(sum(report[part] for part in parts), abs=1e-5)
    memory = report["memory"]
    regions = ("activations", "scratch", "packed_weights", "constants", "variables", "io", "bookkeeping")
    assert memory["total"] == sum(memory[region] for region in regions)
    assert memory["mapped"] == model.stat().st_size
    assert memory["lower_bound"] <= memory["activations"] and memory["naive"] > 0
    assert report["ops"] and all(op["kernel"] and op["ms"] >= 0 and op["device"] == "cpu" for op in report["ops"])
    assert sum(op["flops"] for op in report["ops"]) > 0
    plain = _tool("linnet-bench", model, "--seconds", 0.05, "--isa-max", "scalar", "--ops", cwd=tmp_path)
    assert plain.returncode == 0 and "scalar" in plain.stdout and "reference" in plain.stdout, plain.stderr


def linnet_isas() -> list[str]:
    """The ISA levels of this machine, as reported by the library."""
    from linnet.clib.ffi import ffi
    from tests.capi import lib

    names: list[str] = []
    while (name := lib().linnet_isa_name(len(names))) != ffi.NULL:
        names.append(bytes(ffi.string(name)).decode())
    return names


def test_bench_takes_shapes(tmp_path: Path) -> None:
    model = _model(tmp_path, "dynamic")
    done = _tool("linnet-bench", model, "--shape", "x=5,3", "--seconds", 0.02, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["median_ms"] > 0 and report["most"] == report["memory"]["total"]
    corner = _tool("linnet-bench", model, "--shape", "x=2..5,3", "--seconds", 0.02, "--json", cwd=tmp_path)
    assert json.loads(corner.stdout)["memory"] == report["memory"]
    done = _tool("linnet-bench", model, "--shape", "x=5..2,3", cwd=tmp_path)
    assert done.returncode == USAGE and "ranges such as 1..8" in done.stderr
    by_data = _tool("linnet-bench", _model(tmp_path, "data_dependent"), "--seconds", 0.02, cwd=tmp_path)
    assert "including later segments" in by_data.stdout, by_data.stdout


@pytest.mark.parametrize(("count", "shown"), [(10, 10), (16, 16), (17, 8)])
def test_all_values_of_small_outputs_are_printed(
    count: int, shown: int, tmp_path: Path, linnet_command: Command
) -> None:
    """Ten scores are ten numbers, from linnet-run and from linnet run."""
    graph = Graph()
    x = graph.placeholder("x", (1, count))
    graph.signature("infer", {"x": x}, {"y": x * 2.0})
    graph.save(tmp_path / "m.lnt")
    np.save(tmp_path / "x.npy", np.arange(count, dtype=np.float32)[None])
    values = " ".join(str(2 * i) for i in range(shown))
    done = _tool("linnet-run", "m.lnt", "x.npy", cwd=tmp_path)
    assert done.stdout.splitlines()[1:] == [f"  {values}" + (" ..." if shown < count else "")]
    lines = linnet_command("run", tmp_path / "m.lnt", tmp_path / "x.npy").stdout.splitlines()
    assert [line for line in lines if line.startswith("y")] == ([f"y: {values}"] if shown == count else []), lines
