"""A message names a thing as the reader's interface does: a field in C, a keyword argument in Python, an option at a command
line."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.cli.main import _main, cli
from linnet.cli.words import command_line_words
from linnet.clib.names import python_names
from tests.graphs import bytes_of, feeds
from tests.native import build
from tests.texts.kept import all_texts

# Sources with texts that only programs in C read, because Python checks these things before it calls C. The authors of
# devices and user ops also write C.
FOR_C = (
    "net/",
    "sync/",
    "ops/cast.c",
    "ops/user.c",
    "plan/builder.c",
    "plan/device_library.c",
    "plan/graph/devices.c",
    "plan/config.c",
)


def test_python_reads_no_name_of_c() -> None:
    """Every text of the library that names a field or function of C has a translation."""
    found = [
        text
        for text in all_texts()
        if text.kind == "error" and text.path.startswith("runtime_c/") and "/tools/" not in text.path
        and text.what in ("hint", "expected", "got") and "linnet_" in text.text
        and not text.path.removeprefix("runtime_c/").startswith(FOR_C)
    ]  # fmt: skip
    assert len(found) > 10
    for text in found:
        assert "linnet_" not in python_names(text.text.replace("%s", "fetches")), text


def test_python_names_the_argument(tmp_path: Path) -> None:
    model = bytes_of("mlp")
    with pytest.raises(linnet.Error, match=r"no input, output, step or tensor named 'nosuch'; expected ") as failed:
        linnet.Session(model, fetches=["nosuch"]).run(feeds("mlp"))
    assert "linnet_" not in str(failed.value)
    with pytest.raises(linnet.Error, match=r"than max_bytes= allows; .*; raise max_bytes=, or") as failed:
        linnet.Session(model, max_bytes=100).run(feeds("mlp"))
    assert "linnet_" not in str(failed.value) and failed.value.hint.startswith("raise max_bytes=")


def test_commands_name_the_option(
    tmp_path: Path, linnet_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    model = tmp_path / "m.lnt"
    model.write_bytes(bytes_of("mlp"))
    done = linnet_command("run", model, "--random", "--fetch", "nosuch")
    assert done.returncode == 1 and "no input, output, step or tensor named 'nosuch'; expected " in done.stderr
    for name, value in feeds("mlp").items():
        np.save(tmp_path / f"{name}.npy", value)
    done = subprocess.run(
        [build("release", "linnet-run") / "linnet-run", model, "--random", "--fetch", "nosuch"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and "no tensor or step has this name from --fetch; " in done.stderr
    done = subprocess.run(
        [build("release", "linnet-train") / "linnet-train", "--memory", "100", "--data", "x.npz", model],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "linnet_" not in done.stderr


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", ("n", 3))
    graph.signature("infer", {"x": x}, {"y": linnet.nn.dense(x, 2)})
    graph.save(tmp_path / "m.lnt")
    linnet.Session(tmp_path / "m.lnt").variables.save(tmp_path / "saved.lnt")
    return tmp_path / "saved.lnt"


@pytest.mark.parametrize("timeout", [1e-7, 2e-7])
def test_the_time_of_a_run_differs_from_its_limit_in_the_error(timeout: float) -> None:
    """Also if both are less than a microsecond. Each product takes so long that the clock is read before the next."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (512, 512))
    graph.signature("infer", {"x": x}, {"y": ops.softmax((x @ x) @ x)})
    session = linnet.Session(graph.to_bytes())
    with pytest.raises(linnet.DeadlineExceeded) as failed:
        session.run({"x": np.ones((512, 512), np.float32)}, timeout=timeout)
    limit = float(failed.value.expected.removeprefix("at most ").removesuffix(" ms"))
    needed = float(failed.value.got.removesuffix(" ms so far"))
    assert limit == pytest.approx(1e3 * timeout, rel=0.01) and limit < needed < 10_000


CHECKPOINT = "saved.lnt is a checkpoint, not a model"


@pytest.mark.parametrize(
    "arguments",
    ["run --random", "plan", "bench", "tune", "quantize -o a.lnt --dtype f16", "pack -o a.lnt", "export a.onnx",
     "parameter-server",
     "finetune --data .", "simulate", "train --data x.npz -o a.lnt", "convert -o a.lnt --dtype f16"],
)  # fmt: skip
def test_a_checkpoint_is_no_model(arguments: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.chdir(checkpoint.parent)
    command, *rest = arguments.split()
    assert _main([command, checkpoint.name, *rest]) == 1
    said = capsys.readouterr().err
    digest = linnet.Model("m.lnt").metadata("digest")
    assert CHECKPOINT in said.replace("'", "") and f"the model with digest {digest}" in said, said
    assert "linnet run MODEL --checkpoint saved.lnt" in said


@pytest.mark.parametrize(
    "tool", ["linnet-run", "linnet-bench", "linnet-train --data x.npz --no-checkpoint", "linnet-parameter-server"]
)
def test_tools_tell_a_checkpoint_from_a_model(tool: str, checkpoint: Path) -> None:
    name, *rest = tool.split()
    np.savez(checkpoint.parent / "x.npz", x=np.zeros((2, 3), "f4"))
    done = subprocess.run(
        [build("release", name) / name, checkpoint.name, *rest],
        capture_output=True, text=True, check=False, timeout=60, cwd=checkpoint.parent,
    )  # fmt: skip
    assert done.returncode == 1 and CHECKPOINT in done.stderr and "--checkpoint" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        ("run", "give it in input_shapes={'x': (1, 3, 224, 224)}", "give it in --shape x=1,3,224,224"),
        ("bench", "try input_shapes={'x': (1, 2), 'y': (3,)}", "try --shape x=1,2 --shape y=3"),
        ("convert", "set the shapes with input_shapes", "set the shapes with --shape"),
        ("plan", "give bounds={'x': ((1, 8), ...)}", "give --input x=1..8,..."),
        ("convert", "or give trust_pickle=True if", "or give --trust-pickle if"),
        ("convert", "with --table-out (table_out=), or", "with --table-out, or"),
        ("quantize", "use dtype='f16', which", "use --dtype f16, which"),
        ("plan", "without strict_dims=", "without --strict-dims"),
        ("quantize", "input=x, or table and dtype", "input=x, or table and dtype"),  # a detail of --image, and words
        ("verify", "raise max_bytes=", "raise max_bytes="),  # an option that the command does not have
    ],
)
def test_arguments_become_options(command: str, text: str, expected: str) -> None:
    assert command_line_words(text, cli.commands[command]) == expected
    assert command_line_words(text, None) == text
