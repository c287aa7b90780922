"""The command line as a user sees it: its output, its files, and one line with exit status 1 (or 2) on failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.graphs import bytes_of

Command = Callable[..., subprocess.CompletedProcess[str]]
REGIONS = {"activations", "scratch", "packed_weights", "variables", "total"}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """x f32 [n,3,8,8] -> Conv, Relu, GlobalAveragePool, Flatten, Gemm -> y f32 [n,2]."""
    generator = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32) / 4, name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "v", "d"], ["y"], "gemm"),
    ]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [weight("w", 8, 3, 3, 3), weight("b", 8), weight("v", 8, 2), weight("d", 2)],
    )  # fmt: skip
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.lnt"
    path.write_bytes(bytes_of("mlp"))
    return path


def refused(done: subprocess.CompletedProcess[str], *words: str, status: int = 1) -> None:
    """Expects one line on stderr, the exit status, and no traceback."""
    assert done.returncode == status, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("linnet: error: "), done.stderr
    for word in words:
        assert word in lines[0], lines[0]


def test_convert_run_and_bench(net: Path, tmp_path: Path, linnet_command: Command) -> None:
    out = tmp_path / "net.lnt"
    done = linnet_command("convert", net, "-o", out, "--input", "x=1,3,8,8", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["bytes"] == out.stat().st_size and report["dtype"] == "f32" and report["problems"] == []
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    done = linnet_command("run", out, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    (output,) = json.loads(done.stdout)["outputs"]
    import onnxruntime

    expected = onnxruntime.InferenceSession(net).run(None, {"x": x})[0]
    np.testing.assert_allclose(np.load(output["file"]), expected, rtol=1e-4, atol=1e-5)
    done = linnet_command("bench", out, "--seconds", "0.1", "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    for key in (
        "model",
        "dtype",
        "threads",
        "isa",
        "median_ms",
        "min_ms",
        "p95_ms",
        "first_run_ms",
        "load_ms",
        "plan_ms",
    ):
        assert key in report, key
    assert report["memory"].keys() >= REGIONS
    assert report["dtype"] == "f32" and report["threads"] == 1
    assert 0 < report["min_ms"] <= report["median_ms"] <= report["p95_ms"]
    assert {"name", "kernel", "layout", "ms", "bytes", "flops"} <= report["ops"][0].keys()
    assert sum(op["flops"] for op in report["ops"]) >= 2 * 8 * 64 * 27
    done = linnet_command("bench", out, "--seconds", "0.05")
    assert done.returncode == 0 and report["ops"][0]["kernel"] in done.stdout and "median" in done.stdout


@pytest.mark.parametrize("dtype", ["f16", "i8", "i16"])
def test_convert_quantizes(net: Path, tmp_path: Path, linnet_command: Command, dtype: str) -> None:
    generator = np.random.default_rng(2)
    np.savez(tmp_path / "batches.npz", x=generator.standard_normal((4, 1, 3, 8, 8)).astype(np.float32))
    out = tmp_path / "net.lnt"
    done = linnet_command(
        "convert", net, "-o", out, "--dtype", dtype, "--calibration", tmp_path / "batches.npz", "--input", "x=1,3,8,8",
        "--table-out", tmp_path / "table.txt",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(linnet_command("inspect", out, "--json").stdout)
    assert report["metadata"]["dtype"] == dtype
    assert ("f16" if dtype == "f16" else "i8") in report["constants"]
    assert "conv" in (tmp_path / "table.txt").read_text()


def test_check_writes_nothing(net: Path, tmp_path: Path, linnet_command: Command) -> None:
    before = sorted(os.listdir(tmp_path))
    done = linnet_command("convert", net, "--check")
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path)) == before
    refused(linnet_command("convert", net), "-o", status=2)


def test_all_problems_of_a_model_at_once(tmp_path: Path, linnet_command: Command) -> None:
    nodes = [
        helper.make_node("Mystery", ["x"], ["a"], "first", domain="com.example"),
        helper.make_node("Relu", ["a"], ["b"], "between"),
        helper.make_node("Enigma", ["b"], ["y"], "second", domain="com.example"),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", info[:1], info[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    path = tmp_path / "odd.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())
    done = linnet_command("convert", path, "-o", tmp_path / "odd.lnt", "--json")
    assert done.returncode == 1
    assert done.stderr.startswith(f"linnet: error: cannot convert {path}: 2 problems\n"), done.stderr
    for word in ("Mystery", "first", "Enigma", "second"):
        assert word in done.stderr
    assert [problem["node"] for problem in json.loads(done.stdout)["problems"]] == ["first", "second"]
    assert not (tmp_path / "odd.lnt").exists()


def test_inspect(mlp: Path, linnet_command: Command) -> None:
    report = json.loads(linnet_command("inspect", mlp, "--json").stdout)
    assert report["bytes"] == mlp.stat().st_size
    (signature,) = report["signatures"]
    assert signature["inputs"][0]["name"] == "x" and signature["inputs"][0]["shape"] == [4, 8]
    assert report["ops"]["matmul"] == 2
    done = linnet_command("inspect", mlp, "--all")
    assert done.returncode == 0 and "matmul" in done.stdout and "max.f32" in done.stdout


def test_run_prints_a_table(mlp: Path, tmp_path: Path, linnet_command: Command) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 8), np.float32))
    done = linnet_command("run", mlp, "--input", f"x={tmp_path / 'x.npy'}")
    assert done.returncode == 0 and "[4,5]" in done.stdout


def test_help_names_every_command(linnet_command: Command) -> None:
    done = linnet_command("--help")
    assert done.returncode == 0
    for command in ("convert", "inspect", "run", "bench"):
        assert command in done.stdout
        assert linnet_command(command, "--help").returncode == 0


def test_failures_are_one_line(mlp: Path, net: Path, tmp_path: Path, linnet_command: Command) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 8), np.float32))
    np.save(tmp_path / "wrong.npy", np.zeros((4, 7), np.float32))
    np.save(tmp_path / "ints.npy", np.zeros((4, 8), np.int32))
    (tmp_path / "text.lnt").write_text(
        "this is no model, it is text that goes on for a while to fill a header of 64 bytes"
    )
    (tmp_path / "half.lnt").write_bytes(mlp.read_bytes()[:500])
    x = f"x={tmp_path / 'x.npy'}"
    refused(linnet_command("inspect", tmp_path / "none.lnt"), "not_found", "none.lnt")
    refused(linnet_command("bench", tmp_path / "none.lnt"), "none.lnt")
    refused(linnet_command("run", tmp_path / "text.lnt", "--input", x), "bad_magic")
    with (tmp_path / "huge.lnt").open("wb") as file:
        file.truncate(1 << 40)  # a hole: only the beginning can be read into memory
    for command in ("inspect", "verify", "run", "bench"):
        refused(linnet_command(command, tmp_path / "huge.lnt"), "bad_magic")
    refused(linnet_command("inspect", tmp_path / "half.lnt"), "truncated")
    refused(linnet_command("run", mlp), "missing_input", "'x'")
    refused(linnet_command("run", mlp, "--input", "x="), "NAME=VALUE", status=2)
    refused(linnet_command("run", mlp, "--input", x, "--input", x), "'x' is given more than once", status=2)
    refused(linnet_command("run", mlp, "--input", "absent"), "not_found", "cannot read 'absent'")
    refused(linnet_command("run", mlp, "--input", f"nothing={tmp_path / 'x.npy'}"), "unknown_name", "'nothing'")
    refused(linnet_command("run", mlp, "--input", f"x={tmp_path / 'wrong.npy'}"), "wrong_shape", "[4, 8]")
    refused(linnet_command("run", mlp, "--input", f"x={tmp_path / 'ints.npy'}"), "wrong_dtype", "i32")
    refused(linnet_command("run", mlp, "--input", f"x={tmp_path / 'none.npy'}"), "none.npy")
    refused(linnet_command("run", mlp, "--input", x, "--signature", "train"), "'train'")
    refused(linnet_command("run", mlp, "--input", x, "--isa-max", "mmx"), "mmx")
    refused(linnet_command("convert", tmp_path / "none.onnx", "-o", tmp_path / "o.lnt"), "none.onnx")
    refused(linnet_command("convert", mlp, "-o", tmp_path / "o.lnt"))
    refused(linnet_command("convert", net, "-o", tmp_path / "no" / "where.lnt"), "cannot write")
    refused(linnet_command("convert", net, "-o", tmp_path / "o.lnt", "--dtype", "i8"), "calibration")
    refused(linnet_command("convert", net, "-o", tmp_path / "o.lnt", "--input", "x=1,a"), "'x'", status=2)
    refused(linnet_command("convert", net, "-o", tmp_path / "o.lnt", "--dtype", "i4"), "i4", status=2)
    refused(linnet_command("convert", net), "-o model.lnt", status=2)
    refused(linnet_command("plan", mlp, "--input", "x=1..,8"), "both ends", status=2)
    refused(linnet_command("bench", mlp, "--fast"), "--fast", "see linnet bench --help", status=2)
    refused(linnet_command("convert", net, "--check", "-o", tmp_path / "o.lnt"), "writes no .lnt file", status=2)
    refused(
        linnet_command("convert", net, "-o", tmp_path / "o.lnt", "--calibration", tmp_path / "x.npy"), "add --dtype i8",
        status=2,
    )  # fmt: skip
    refused(linnet_command("frobnicate"), "frobnicate", status=2)
    assert not (tmp_path / "o.lnt").exists()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_an_open_batch_is_timed_as_one(net: Path, tmp_path: Path, linnet_command: Command) -> None:
    out = tmp_path / "net.lnt"
    assert linnet_command("convert", net, "-o", out).returncode == 0
    done = linnet_command("bench", out, "--seconds", "0.02", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["inputs"] == [
        {"name": "x", "dtype": "f32", "shape": [1, 3, 8, 8], "assumed": True}
    ]
    note = (
        "linnet: note: the batch size of input 'x' is open, so it is taken as 1: [1, 3, 8, 8]; "
        "--shape x=8,3,8,8 sets another\n"
    )
    assert done.stderr == note
    assert linnet_command("run", out, "--random").stderr == note
    assert linnet_command("tune", out, "--seconds", "0.05").stderr == note
    assert linnet_command("bench", out, "--input", "x=2,3,8,8", "--seconds", "0.02").returncode == 0


def test_other_formats_name_their_exporter(tmp_path: Path, linnet_command: Command) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"pb")
    (tmp_path / "empty").mkdir()
    for name in ("net.pt", "net.h5", "net.keras", "net.mlmodel"):
        (tmp_path / name).write_bytes(b"content")
    for name, words in {
        "saved": ("SavedModel", "TFLiteConverter"), "empty": ("folder",), "net.pt": ("linnet.from_torch",),
        "net.h5": ("Keras", "TFLiteConverter"), "net.keras": ("Keras",), "net.mlmodel": ("Core ML",),
    }.items():  # fmt: skip
        refused(linnet_command("convert", tmp_path / name, "-o", tmp_path / "o.lnt"), name, *words)
    refused(linnet_command("convert", "--check", tmp_path / "saved"), "SavedModel")
    assert not (tmp_path / "o.lnt").exists()


def test_run_writes_nothing_when_it_fails(mlp: Path, tmp_path: Path, linnet_command: Command) -> None:
    (tmp_path / "file").write_text("")
    np.save(tmp_path / "x.npy", np.zeros((4, 8), np.float32))
    done = linnet_command("run", mlp, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "file" / "sub")
    refused(done, "cannot create the folder")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["convert"], "Missing argument"),
        (["convert", "m.onnx", "-o", "a.lnt", "--dtype", "i4"], "'i4' is not one of"),
        (["run", "m.lnt", "--threads", "0"], "range"),
        (["nonsense"], "No such command"),
    ],
)
def test_a_command_line_that_cannot_be_read_gives_status_2(
    arguments: list[str], words: str, linnet_command: Command
) -> None:
    refused(linnet_command(*arguments), words, status=2)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("nothing.onnx", "a.lnt", "no such file"),
        (".", "a.lnt", "folder"),
        ("empty.onnx", "a.lnt", "is empty"),
        ("empty.tflite", "a.lnt", "TFL3"),
        ("mlp.lnt", "a.lnt", "already a linnet file"),
        ("renamed.onnx", "a.lnt", "already a linnet file"),
        ("keras.onnx", "a.lnt", "is a Keras file"),
        ("torch.bin", "a.lnt", "is a file with weights but no graph"),
        ("words.txt", "a.lnt", "give an .onnx or .tflite file"),
        ("/dev/null", "a.lnt", "is not a regular file"),
        ("net.onnx", "none/a.lnt", "No such file or directory"),
        ("net.onnx", ".", "Is a directory"),
        ("net.onnx", "/dev/full", "No space left"),
        ("net.onnx", "net.onnx", "the same file as the input model"),
    ],
)
def test_what_convert_cannot_read_or_write(
    source: str, target: str, words: str, net: Path, mlp: Path, tmp_path: Path, linnet_command: Command
) -> None:
    for name in ("empty.onnx", "empty.tflite"):
        (tmp_path / name).touch()
    (tmp_path / "renamed.onnx").write_bytes(mlp.read_bytes())
    (tmp_path / "keras.onnx").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64))
    (tmp_path / "torch.bin").write_bytes(b"PK\x03\x04" + bytes(64))
    (tmp_path / "words.txt").write_text("words")
    (tmp_path / "net.onnx").write_bytes(net.read_bytes())
    before = {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    refused(
        linnet_command("convert", tmp_path / source, "-o", tmp_path / target),
        words,
        status=2 if source == target else 1,
    )
    assert {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before  # no partial file, no lost file
    assert not Path("/dev/full").is_file()  # a device is written to, not replaced


def test_a_link_keeps_pointing_where_it_points(net: Path, tmp_path: Path, linnet_command: Command) -> None:
    link, target = tmp_path / "link.lnt", tmp_path / "target.lnt"
    link.symlink_to(target)
    assert linnet_command("convert", net, "-o", link).returncode == 0
    assert link.is_symlink() and target.read_bytes()[:6] == b"LINNET"


@pytest.mark.parametrize("command", [["inspect"], ["inspect", "--json"]])
def test_a_full_disk_behind_stdout_is_an_error(command: list[str], mlp: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "linnet", *command, str(mlp)], stdout=full, stderr=subprocess.PIPE, text=True,
            check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )  # fmt: skip
    refused(done, "No space left")


def test_run_on_random_values(net: Path, tmp_path: Path, linnet_command: Command) -> None:
    out = tmp_path / "net.lnt"
    assert linnet_command("convert", net, "-o", out).returncode == 0
    runs = [linnet_command("run", out, "--random", "--shape", "x=2,3,8,8").stdout for _ in range(2)]
    assert runs[0] == runs[1] and "[2,2]" in runs[0]
    refused(linnet_command("run", out, "--random", "--shape", "z=1"), "no input named 'z'")
    refused(linnet_command("run", out, "--shape", "x=2,3,8,8"), "add --random", status=2)


def test_missing_package_is_named(net: Path, tmp_path: Path) -> None:
    """A missing dependency gives one line, not a traceback."""
    script = (
        "import sys; sys.modules['onnx'] = None; from linnet.cli.main import _main; "
        f"sys.exit(_main(['convert', {str(net)!r}, '-o', {str(tmp_path / 'o.lnt')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    refused(done, "the package 'onnx' is not installed", "pip install onnx")
