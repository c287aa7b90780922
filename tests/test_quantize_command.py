"""`linnet quantize`: what it writes and says, `linnet convert --dtype` as its short form, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
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
    assert max(len(line) for line in done.stdout.splitlines() if " -> " not in line) <= 80, done.stdout
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
    assert [(row["dtype"], row["why"]) for row in report["kept"]] == [
        ("f32", "--table says so"), ("f32", "what it reads or gives stays in floats"),  # the product, and the mean it reads
    ]  # fmt: skip


def test_without_samples(folder: Path, linnet_command: Command) -> None:
    """f16 needs none. Only the size is said then, and with a script its score."""
    done = linnet_command("quantize", folder / "net.onnx", "-o", folder / "f16.lnt", "--dtype", "f16")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1 and ": f16, " in done.stdout
    assert linnet.Graph.load(folder / "f16.lnt").metadata["dtype"] == "f16"
    more = ("--dtype", "f16", "--eval", f"{folder / 'data.py'}:accuracy", "--json")
    done = linnet_command("quantize", folder / "net.onnx", "-o", folder / "f16.lnt", *more)
    assert done.returncode == 0, done.stderr
    assert [m["accuracy"] for m in json.loads(done.stdout)["comparison"]["models"]] == [{"score": 1.0}] * 2


def test_the_comparison_is_of_one_network(folder: Path, linnet_command: Command) -> None:
    """The size counts the file with the tensors. Neither model has the picture steps, also if a script evaluates them, so
    memory and time are of the same network."""
    plain = onnx.load(folder / "net.onnx")
    for tensor in plain.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(plain, folder / "net.onnx", save_as_external_data=True, location="net.onnx.data", size_threshold=0)
    sizes = [(folder / name).stat().st_size for name in ("net.onnx", "net.onnx.data")]
    assert min(sizes) > 0
    script = f"{folder / 'data.py'}:accuracy"
    more = ("--calibration", folder / "pictures", "--image", "unit", "--eval", script, "--json")
    done = linnet_command("quantize", folder / "net.onnx", "-o", folder / "i8.lnt", "--threads", "1", *more)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    before, after = report["comparison"]["models"]
    assert before["bytes"] == sum(sizes) and after["bytes"] == (folder / "i8.lnt").stat().st_size
    assert before["accuracy"] == after["accuracy"] == {"score": 1.0}
    session = linnet.Session(linnet.load_graph(folder / "net.onnx"), threads=1)
    session.run({"x": np.zeros((1, 3, 8, 8), np.float32)})
    small = linnet.Session(folder / "i8.lnt", "raw", threads=1)
    small.run({"x": np.zeros((1, 3, 8, 8), np.float32)})
    assert before["memory"] == session.memory["total"]
    assert {step["layer"] for step in report["steps"]} <= {step.name for step in small.steps}
    assert not any(step["layer"].startswith("image/") for step in report["steps"])
    assert "raw" in linnet.Graph.load(folder / "i8.lnt").signatures  # the file itself has the picture steps


def test_layers_and_their_dtypes(tmp_path: Path, linnet_command: Command) -> None:
    """Layers without an integer form are named, with their share of the products."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 6, 8))
    rng = np.random.default_rng(0)
    y = linnet.ops.relu(linnet.ops.matmul(x, graph.constant(rng.standard_normal((8, 8)).astype("f4")), name="first"))
    y = linnet.nn.gru(y, 8, name="cell")[0]
    y = linnet.ops.softmax(linnet.ops.matmul(y, graph.constant(rng.standard_normal((8, 5)).astype("f4")), name="last"))
    graph.signature("infer", {"x": x}, {"y": y})
    graph.save(tmp_path / "net.lnt")
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((4, 1, 6, 8)).astype("f4"))
    more = ("--calibration", tmp_path / "x.npz", "--effort", "fast", "--threads", "1")
    done = linnet_command("quantize", tmp_path / "net.lnt", "-o", tmp_path / "i8.lnt", *more, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert sum(report["products"].values()) == pytest.approx(1) and {"i8", "f32"} <= set(report["products"])
    steps = {step["layer"]: step for step in report["steps"]}
    kept = {row["layer"]: row for row in report["kept"]}
    cell = next(name for name, step in steps.items() if step["op"] == "recurrent")
    share = steps[cell]["macs"] / sum(step["macs"] for step in report["steps"])
    assert kept[cell]["dtype"] == "f32" and share > 0.1
    floats = sum(step["macs"] for step in steps.values() if step["dtype"] == "f32")
    assert report["products"]["f32"] == pytest.approx(floats / sum(step["macs"] for step in steps.values()))
    assert any(step["op"] == "softmax" and step["layer"] in kept for step in steps.values())
    done = linnet_command("quantize", tmp_path / "net.lnt", "-o", tmp_path / "i8.lnt", *more)
    assert "Layers that do not compute in i8" in done.stdout and f"{share:.1%}" in done.stdout, done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if " -> " not in line) <= 80, done.stdout


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
