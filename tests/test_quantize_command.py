"""`linnet quantize`: what it writes and says, `linnet convert --dtype` as its short form, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import linnet
from tests.test_cli import refused
from tests.test_compare import COLOURS, network

Command = Callable[..., Any]

SCRIPT = """
import numpy as np

def samples(inputs):
    rng = np.random.default_rng(0)
    for colour in np.eye(3, dtype=np.float32):
        yield {"x": np.broadcast_to(colour[None, :, None, None], (1, 3, 8, 8)) * rng.uniform(0.5, 1, (1, 1, 8, 8)).astype("f4")}

def accuracy(run):
    right = [run(s)["scores"].argmax() == i for i, s in enumerate(samples(None))]
    return sum(right) / 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The network for colours as ONNX, pictures with labels, and a script."""
    network().to_onnx(tmp_path / "net.onnx")
    rng = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(3):
            pixels = np.clip(np.array(colour) + rng.integers(-20, 20, (12, 12, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{i}.png")
    (tmp_path / "pictures" / "labels.txt").write_text("red\ngreen\nblue\n")
    (tmp_path / "data.py").write_text(SCRIPT)
    return tmp_path


def test_pictures(folder: Path, linnet_command: Command) -> None:
    table = folder / "table.txt"
    pictures = folder / "pictures"
    more = ("--calibration", pictures, "--eval", pictures, "--image", "unit", "--table-out", table, "--threads", "1")
    done = linnet_command("quantize", folder / "net.onnx", "-o", folder / "i8.lnt", *more)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines()[1:])) <= 80, done.stdout
    assert done.stdout.count("100.0%") >= 3 and "labels from labels.txt" in done.stdout and "SQNR dB" in done.stdout
    assert table.read_text().count(" i8 ") >= 2
    # Short form: the same bytes.
    same = ("--dtype", "i8", "--calibration", pictures, "--image", "unit")
    done = linnet_command("convert", folder / "net.onnx", "-o", folder / "same.lnt", *same)
    assert done.returncode == 0, done.stderr
    assert (folder / "i8.lnt").read_bytes() == (folder / "same.lnt").read_bytes()


def test_a_script_and_a_table(folder: Path, linnet_command: Command) -> None:
    script = folder / "data.py"
    product = next(node for node in linnet.load_graph(folder / "net.onnx").functions[0].nodes if node.op == "matmul")
    (folder / "table.txt").write_text(f"{product.name or product.outputs[0].name} f32\n")
    done = linnet_command(
        "quantize", folder / "net.onnx", "-o", folder / "i8.lnt", "--calibration", f"{script}:samples", "--samples", "2",
        "--eval", f"{script}:accuracy", "--table", folder / "table.txt", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    before, after = report["comparison"]["models"]
    assert (
        report["comparison"]["samples"] == 2 and report["bytes"] == (folder / "i8.lnt").stat().st_size == after["bytes"]
    )
    assert before["accuracy"] == {"score": 1.0} and before["dtype"] == "f32" and after["dtype"] == "i8"
    assert after["agreement"]["scores"]["sqnr_db"] > 20
    assert [(row["dtype"], row["why"]) for row in report["kept"]] == [("f32", "--table says so")]


def test_without_samples(folder: Path, linnet_command: Command) -> None:
    """f16 needs none. Only the size is said then, and with a script its score."""
    done = linnet_command("quantize", folder / "net.onnx", "-o", folder / "f16.lnt", "--dtype", "f16")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1 and ": f16, " in done.stdout
    assert linnet.Graph.load(folder / "f16.lnt").metadata["dtype"] == "f16"
    more = ("--dtype", "f16", "--eval", f"{folder / 'data.py'}:accuracy", "--json")
    done = linnet_command("quantize", folder / "net.onnx", "-o", folder / "f16.lnt", *more)
    assert done.returncode == 0, done.stderr
    assert [m["accuracy"] for m in json.loads(done.stdout)["comparison"]["models"]] == [{"score": 1.0}] * 2


def test_refused(folder: Path, linnet_command: Command) -> None:
    model, out = folder / "net.onnx", folder / "out.lnt"
    refused(linnet_command("quantize", model), "--output", status=2)
    refused(linnet_command("quantize", model, "-o", model), "same file", status=2)
    refused(linnet_command("quantize", model, "-o", out, "--dtype", "f32"), "quantizes nothing", status=2)
    refused(linnet_command("quantize", model, "-o", out), "needs calibration")
    refused(linnet_command("quantize", model, "-o", out, "--samples", "3"), "--samples has no effect", status=2)
    refused(linnet_command("convert", model, "-o", out, "--effort", "best"), "--effort has no effect", status=2)
    script = f"{folder / 'data.py'}:samples"
    more = ("--calibration", script, "--eval", folder / "none")
    refused(linnet_command("quantize", model, "-o", out, *more), "folder for evaluation does not exist")
    refused(
        linnet_command("quantize", model, "-o", out, "--calibration", f"{script}s"),
        "has no function 'sampless'",
        "samples",
    )
    assert not out.exists()
