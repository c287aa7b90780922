"""What the five native tools have in common: --version, --help, one style of errors that say what to do, output as text
and JSON, traces. They write only the files that they are told to write."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.facade import Graph
from linnet.ir.function import emit
from tests.graphs import bytes_of
from tests.native import build

TOOLS = ("linnet-bench", "linnet-run", "linnet-parameter-server", "linnet-train", "linnet-host")
ALONE = {"linnet-host"}  # takes no model
FAILED, USAGE = 1, 2


def tool(name: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(build("release", *TOOLS) / name), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mlp.lnt").write_bytes(bytes_of("mlp"))
    return tmp_path


def batched(path: Path, *shapes: tuple[int | str | None, ...]) -> Path:
    """Inputs x0, x1, ... of open shapes, each passed on to an output y0, y1, ..."""
    graph = Graph()
    main = graph.function()
    for i, shape in enumerate(shapes):
        x = main.placeholder(f"x{i}", "f32", shape)
        main.outputs.append(emit("copy", [x], {"kind": "identity"}, name=f"y{i}")[0])
    graph.signature("infer", main)
    graph.save(path)
    return path


@pytest.mark.parametrize("name", TOOLS)
def test_help_and_version(name: str, tmp_path: Path) -> None:
    done = tool(name, "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{name} {linnet.__version__}\n", "")
    begin = f"usage: {name} " + ("[" if name in ALONE else "MODEL.lnt")
    for option in ("--help", "-h"):
        done = tool(name, option, cwd=tmp_path)
        assert done.returncode == 0 and done.stdout.startswith(begin) and not done.stderr
        assert max(map(len, done.stdout.splitlines())) <= 80
        for line in (
            "  --version             print the version",
            "  --help                print this text",
            "Exit status: 0 ",
        ):
            assert f"\n{line}" in done.stdout
    assert "\n  --json" in done.stdout


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("arguments", [[], ["m.lnt", "--quickly"], ["m.lnt", "other.lnt"], ["m.lnt", "--threads"]])
def test_wrong_usage(name: str, arguments: list[str], tmp_path: Path) -> None:
    if name in ALONE and not arguments:
        arguments = ["--listen"]
    done = tool(name, *arguments, cwd=tmp_path)
    assert done.returncode == USAGE and not done.stdout
    assert done.stderr.startswith(f"{name}: error: ") and done.stderr.endswith(f"; see {name} --help\n"), done.stderr
    assert done.stderr.count("\n") == 1


def test_words_of_the_server(tmp_path: Path) -> None:
    done = tool("linnet-parameter-server", "m.lnt", "--mode", "async", cwd=tmp_path)
    assert done.returncode == USAGE and "expected synchronous or asynchronous, got 'async'; see" in done.stderr


def test_a_run_prints_values_and_writes_nothing(folder: Path) -> None:
    before = sorted(folder.iterdir())
    done = tool("linnet-run", "mlp.lnt", "--random", cwd=folder)
    assert done.returncode == 0 and sorted(folder.iterdir()) == before, done.stderr
    told = json.loads(tool("linnet-run", "mlp.lnt", "--random", "--json", cwd=folder).stdout)
    assert told["model"] == "mlp.lnt" and told["signature"] == "infer" and told["found"] == {}
    [output] = told["outputs"]
    values = np.array(output["values"], np.float32)
    assert output["name"] == "y" and output["dtype"] == "f32" and output["file"] is None
    assert values.size == np.prod(output["shape"]) and output["max"] == pytest.approx(values.max())
    assert output["mean"] == pytest.approx(values.mean()) and output["min"] == pytest.approx(values.min())
    first, second = done.stdout.splitlines()
    assert first.startswith("y: f32 [4, 5], min ") and f"max {values.max():.6g}" in first
    assert second == "  " + " ".join(f"{v:.6g}" for v in values[:8]) + " ..."
    done = tool("linnet-run", "mlp.lnt", "--random", "--output-dir", "here", "--json", cwd=folder)
    np.testing.assert_array_equal(np.load(folder / json.loads(done.stdout)["outputs"][0]["file"]).reshape(-1), values)


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
def test_values_of_every_dtype(dtype: str, tmp_path: Path) -> None:
    value = np.array([0, 1, 3, 100], dtype)
    if value.dtype.kind in "iu":
        value[-1] = np.iinfo(value.dtype).max
        value[0] = np.iinfo(value.dtype).min
    elif value.dtype.kind == "f":
        value[:] = [np.finfo(value.dtype).smallest_subnormal, -1.1, np.nan, np.inf]
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", linnet.ir.dtypes.dtype_of(value.dtype), value.shape)
    main.outputs.append(emit("copy", [x], {"kind": "identity"}, name="y")[0])
    graph.signature("infer", main)
    graph.save(tmp_path / "m.lnt")
    np.save(tmp_path / "x.npy", value)
    [output] = json.loads(tool("linnet-run", "m.lnt", "--input", "x.npy", "--json", cwd=tmp_path).stdout)["outputs"]
    if value.dtype.kind == "f":
        assert output["values"][2:] == [None, None] and output["min"] is output["mean"] is output["max"] is None
        np.testing.assert_array_equal(np.array(output["values"][:2], dtype), value[:2])
    else:
        assert output["values"] == value.tolist() and output["max"] == pytest.approx(float(value.max()))


def test_fetch(folder: Path) -> None:
    session = linnet.Session(str(folder / "mlp.lnt"), threads=1)
    done = tool("linnet-run", "mlp.lnt", "--random", "--json", "--fetch", session.steps[0].name, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert [o["name"] for o in json.loads(done.stdout)["outputs"]] == [session.steps[0].name]
    whole = json.loads(tool("linnet-bench", "mlp.lnt", "--seconds", 0.01, "--json", cwd=folder).stdout)
    part = tool("linnet-bench", "mlp.lnt", "--seconds", 0.01, "--json", "--fetch", session.steps[0].name, cwd=folder)
    assert len(json.loads(part.stdout)["ops"]) < len(whole["ops"])
    done = tool("linnet-run", "mlp.lnt", "--random", "--fetch", "absent", cwd=folder)
    assert done.returncode == FAILED and "'absent'" in done.stderr
    done = tool("linnet-train", "mlp.lnt", "--data", "x.npz", "--fetch", "y", cwd=folder)
    assert done.returncode == USAGE and "--fetch is not for training" in done.stderr


def test_an_open_batch_is_one(tmp_path: Path) -> None:
    batched(tmp_path / "m.lnt", ("n", 3, 8, 8), ("n", 2))
    for name, more in (("linnet-run", ["--random"]), ("linnet-bench", ["--seconds", "0.01"])):
        done = tool(name, "m.lnt", *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        first, second = done.stderr.splitlines()
        assert first == (
            f"{name}: note: the batch size of input 'x0' is open, so it is taken as 1: f32 [1, 3, 8, 8]; "
            "--shape x0=8,3,8,8 sets another"
        )
        assert second.startswith(f"{name}: note: the batch size of input 'x1' ")
        done = tool(name, "m.lnt", *more, "--shape", "x0=5,3,8,8", cwd=tmp_path)  # the other input has the same batch
        assert done.returncode == 0 and "'x1' is open, so it is taken as 5: f32 [5, 2]" in done.stderr
        assert done.stderr.count("\n") == 1
    done = tool("linnet-bench", "m.lnt", "--seconds", 0.01, "--json", "--shape", "x0=2,3,8,8", cwd=tmp_path)
    assert [(i["shape"], i["assumed"]) for i in json.loads(done.stdout)["inputs"]] == [
        ([2, 3, 8, 8], False), ([2, 2], True)
    ]  # fmt: skip
    done = tool("linnet-run", "m.lnt", cwd=tmp_path)
    assert done.returncode == FAILED and "input 'x0' (f32 [?, 3, 8, 8]) was not given; give --input x0=" in done.stderr


@pytest.mark.parametrize(
    ("shape", "usable"),
    [
        (("n", 3, None, None), "1,3,224,224"), (("n", None, None, 3), "1,224,224,3"),
        (("n", None, None, None), "1,3,224,224"), ((None, "tokens"), "1,16"), ((None, "h", "w", 1), "1,224,224,1"),
    ],
)  # fmt: skip
def test_hints_are_usable_shapes(shape: tuple[int | str | None, ...], usable: str, tmp_path: Path) -> None:
    batched(tmp_path / "m.lnt", shape)
    for name, more in (("linnet-run", ["--random"]), ("linnet-bench", ["--seconds", "0.01"])):
        done = tool(name, "m.lnt", *more, cwd=tmp_path)
        assert done.returncode == FAILED and done.stderr.endswith(f"give all sizes, for example --shape x0={usable}\n")
        assert tool(name, "m.lnt", *more, "--shape", f"x0={usable}", cwd=tmp_path).returncode == 0


def test_a_trace_of_a_run(folder: Path) -> None:
    done = tool("linnet-run", "mlp.lnt", "--random", "--trace", "t.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    phases = {e["name"]: e for e in spans if e["tid"] == 0}
    assert {"load", "plan", "create the session", "run"} <= phases.keys()
    steps = [e for e in spans if e["tid"] == 1]
    session = linnet.Session(str(folder / "mlp.lnt"))
    assert [e["name"] for e in steps] == [step.name for step in session.steps]
    assert all(e["args"]["kernel"] and e["args"]["device"] == "cpu" for e in steps)
    run = phases["run"]
    times = [run["ts"], *(t for e in steps for t in (e["ts"], e["ts"] + e["dur"])), run["ts"] + run["dur"]]
    assert all(a <= b + 0.002 for a, b in itertools.pairwise(times)), times
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} == {"phases", "steps"}
    done = tool("linnet-run", "mlp.lnt", "--random", "--trace", "absent/t.json", cwd=folder)
    assert done.returncode == FAILED and "cannot create the file: No such file or directory; give" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["absent.lnt"], ["words.npy"], ["mlp.lnt", "--signature", "train"], ["mlp.lnt"], ["mlp.lnt", "--input", "z=x.npy"],
        ["mlp.lnt", "--input", "absent"], ["mlp.lnt", "--input", "words.npy"], ["mlp.lnt", "--input", "small.npy"],
        ["mlp.lnt", "--random", "--isa-max", "mmx"], ["mlp.lnt", "--tuning", "absent"],
        ["mlp.lnt", "--tuning", "mlp.lnt"], ["mlp.lnt", "--random", "-o", "absent/out"],
        ["mlp.lnt", "--user-ops", "absent.so"], ["mlp.lnt", "--random", "--checkpoint", "absent"],
    ],
)  # fmt: skip
def test_failures_say_what_to_do(arguments: list[str], folder: Path) -> None:
    (folder / "words.npy").write_text("twelve words\n")
    np.save(folder / "small.npy", np.zeros((2, 8), np.float32))
    done = tool("linnet-run", *arguments, cwd=folder)
    assert done.returncode == FAILED and done.stderr.startswith("linnet-run: error: ") and done.stderr.count("\n") == 1
    advice = {part.split()[0] for part in done.stderr.split("; ")[1:]}
    assert advice & {"give", "save", "choose", "convert", "use", "check", "`linnet"}, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["absent.lnt", "--data", "d.npz"], ["mlp.lnt", "--data", "d.npz"], ["mlp.lnt", "--data", "d.npz", "--signature", "infer"],
        ["t.lnt", "--data", "absent.npz"], ["t.lnt", "--data", "x=absent.npy"], ["t.lnt", "--data", "z=d.npz"],
        ["t.lnt", "--data", "bad.npz"], ["t.lnt", "--data", "x=words.npy"], ["t.lnt", "--data", "d.npz", "--memory", "1kB"],
    ],
)  # fmt: skip
def test_failures_of_training_say_what_to_do(arguments: list[str], folder: Path) -> None:
    (folder / "t.lnt").write_bytes(bytes_of("training"))
    (folder / "words.npy").write_text("twelve words\n")
    np.savez(folder / "d.npz", x=np.zeros((4, 8), np.float32))
    (folder / "bad.npz").write_bytes(b"PK")
    done = tool("linnet-train", *arguments, "--no-checkpoint", cwd=folder)
    assert done.returncode in (FAILED, USAGE) and done.stderr.startswith("linnet-train: error: "), done.stderr
    assert done.stderr.count("\n") == 1 and "; " in done.stderr, done.stderr
    assert re.search(r"; (`linnet|see|give|save|choose|convert|use|check|leave|join|raise)", done.stderr), done.stderr


@pytest.mark.parametrize("name", TOOLS)
def test_an_option_that_does_not_exist_is_called_unknown(name: str, folder: Path) -> None:
    """Not one that needs a value; a likely meaning is named."""
    for given, nearest in (("--bogus", ""), ("--thread", "--threads"), ("--jsno", "--json"), ("--isamax", "--isa-max")):
        if nearest and nearest not in tool(name, "--help", cwd=folder).stdout:
            continue
        for rest in ([], ["5"]):
            done = tool(name, "mlp.lnt", given, *rest, cwd=folder)
            said = f"unknown option '{given}'" + (f"; the nearest option is {nearest}" if nearest else "")
            assert done.returncode == 2 and done.stderr == f"{name}: error: {said}; see {name} --help\n"
