"""`linnet run`: what it prints, open batches, hints for photos, traces; the same rules and keys as in linnet-run."""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.ir.function import Tensor
from linnet.session.model import TensorSpec
from linnet.session.random_inputs import random_feeds
from linnet.session.usable_sizes import _combinations
from tests.graphs import bytes_of
from tests.test_tool_style import batched, tool
from tests.test_tools_media import echo

Command = Callable[..., subprocess.CompletedProcess[str]]


def test_batches_of_inputs_that_are_not_given(tmp_path: Path, linnet_command: Command) -> None:
    model = batched(tmp_path / "m.lnt", ("n", 3), ("n", 2))
    done = linnet_command("run", model, "--random", "--shape", "x0=5,3", "--json")
    assert done.returncode == 0, done.stderr
    assert [o["shape"] for o in json.loads(done.stdout)["outputs"]] == [[5, 3], [5, 2]]
    assert done.stderr == (
        "linnet: note: the batch size of input 'x1' is open, so it is taken as 5: [5, 2]; --shape x1=8,2 sets another\n"
    )
    np.save(tmp_path / "x.npy", np.zeros((4, 3), np.float32))
    done = linnet_command("run", model, "--random", "--input", f"x0={tmp_path / 'x.npy'}", "--json")
    assert [o["shape"] for o in json.loads(done.stdout)["outputs"]] == [[4, 3], [4, 2]]


@pytest.mark.parametrize(
    "command", [["run", "--random"], ["bench", "--seconds", "0.02"], ["tune", "--seconds", "0.02"]]
)
def test_hints_for_photos_are_usable(command: list[str], tmp_path: Path, linnet_command: Command) -> None:
    """An input that takes a photo as it is has no batch, and its first size is no batch either."""
    models = {echo(tmp_path): "x=480,640,3", batched(tmp_path / "m.lnt", ("n", 3, "h", "w")): "x0=1,3,224,224"}
    for model, usable in models.items():
        done = linnet_command(command[0], model, *command[1:])
        assert done.returncode == 1 and done.stderr.endswith(f"give all sizes, for example --shape {usable}\n"), (
            done.stderr
        )
        assert linnet_command(command[0], model, *command[1:], "--shape", usable).returncode == 0


@pytest.mark.parametrize(
    "command", [["run", "--random"], ["bench", "--seconds", "0.02"], ["tune", "--seconds", "0.02"]], ids=lambda c: c[0]
)
def test_too_large_a_batch_is_refused_before_inputs_are_made(command: list[str], tmp_path: Path) -> None:
    """A process that may have 4 GB of addresses asks for a terabyte: it says so at once, and does not try to fill it."""
    model = batched(tmp_path / "m.lnt", ("n", 1000))
    given = [sys.executable, "-m", "linnet", command[0], str(model), *command[1:], "--shape", "x0=250000000,1000"]
    limited = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # noqa: E731
    done = subprocess.run(given, capture_output=True, text=True, timeout=60, check=False, preexec_fn=limited)
    assert (
        done.returncode == 1 and "a run needs more memory than the machine has left; expected at most" in done.stderr
    ), done.stderr
    with pytest.raises(linnet.ResourceError, match="random inputs of these shapes need more memory"):
        random_feeds([TensorSpec("x", "f32", (None, 1000))], {"x": (10**12, 1000)})


class Rule:
    """A model whose inputs have these shapes and must meet a condition."""

    def __init__(self, *shapes: tuple[int | str | None, ...]) -> None:
        self.graph = linnet.Graph(seed=1)
        self.inputs = [self.graph.placeholder(f"x{i}", shape) for i, shape in enumerate(shapes)]

    def save(self, path: Path, y: Tensor) -> Path:
        names = {f"x{i}": x for i, x in enumerate(self.inputs)}
        self.graph.signature("infer", names, {"y": y})
        self.graph.save(path)
        return path


def _constrained(folder: Path) -> dict[Path, str]:
    """Models of open shapes, and the hint that works."""
    tall, parts, two = Rule((None, 3, None, None)), Rule((None, None)), Rule(("n", "t"), (2, "n"))
    pooled = tall.inputs[0].mean(3)  # [n, 3, height]
    weights = tall.graph.constant(np.ones((48, 2), np.float32))
    return {
        tall.save(folder / "tall.lnt", pooled @ weights): "--shape x0=1,3,48,224",
        parts.save(folder / "parts.lnt", parts.inputs[0].reshape((-1, 80))): "--shape x0=1,80",
        two.save(folder / "two.lnt", two.inputs[0].sum() + two.inputs[1].sum()): "--shape x0=1,16 --shape x1=2,1",
    }


def test_hints_are_shapes_that_work(tmp_path: Path, linnet_command: Command) -> None:
    """The hint lists all inputs, and the sizes fit the graph: `linnet run` and linnet-run find the same ones."""
    for model, usable in _constrained(tmp_path).items():
        for done in (linnet_command("run", model, "--random"), tool("linnet-run", model, "--random", cwd=tmp_path)):
            assert done.returncode == 1 and done.stderr.endswith(f"give all sizes, for example {usable}\n"), done.stderr
        for command in ("run", "bench"):
            rest = ["--random"] if command == "run" else ["--seconds", "0.02"]
            assert linnet_command(command, model, *rest, *usable.split()).returncode == 0
        assert tool("linnet-run", model, "--random", *usable.split(), cwd=tmp_path).returncode == 0


def test_sizes_are_tried_in_the_order_of_how_usual_they_are() -> None:
    assert list(_combinations([2, 3])) == [[0, 0], [0, 1], [1, 0], [0, 2], [1, 1], [1, 2]]
    assert list(_combinations([])) == [[]]


def test_a_trace_of_one_process(tmp_path: Path, linnet_command: Command) -> None:
    (tmp_path / "m.lnt").write_bytes(bytes_of("mlp"))
    for extra in ([], ["--fetch", "y"]):
        done = linnet_command("run", tmp_path / "m.lnt", "--random", "--trace", tmp_path / "t.json", *extra)
        assert done.returncode == 0, done.stderr
        events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        spans = [e for e in events if e["ph"] == "X"]
        phases = {e["name"]: e for e in spans if e["tid"] == 0}
        assert list(phases) == ["load", "read inputs", "plan", "random inputs", "run"]
        steps = [e for e in spans if e["tid"] == 1]
        assert [e["name"] for e in steps] == [s.name for s in linnet.Session(str(tmp_path / "m.lnt")).steps]
        assert all(e["args"]["kernel"] and e["args"]["device"] == "cpu" for e in steps)
        run = phases["run"]
        times = [run["ts"], *(t for e in steps for t in (e["ts"], e["ts"] + e["dur"])), run["ts"] + run["dur"]]
        assert all(a <= b + 0.002 for a, b in itertools.pairwise(times)), times
    assert linnet_command("run", tmp_path / "m.lnt", "--random", "--trace", tmp_path / "no" / "t.json").returncode == 1


def test_json_has_the_keys_of_the_native_tool(tmp_path: Path, linnet_command: Command) -> None:
    (tmp_path / "m.lnt").write_bytes(bytes_of("mlp"))
    np.save(tmp_path / "x.npy", np.full((4, 8), np.nan, np.float32))
    for feed in (["--random"], ["--input", tmp_path / "x.npy"]):
        here = json.loads(linnet_command("run", tmp_path / "m.lnt", *feed, "--json").stdout)
        there = json.loads(tool("linnet-run", "m.lnt", *feed, "--json", cwd=tmp_path).stdout)
        assert here.keys() == there.keys() and here["outputs"][0].keys() == there["outputs"][0].keys()
        assert [(o["name"], o["dtype"], o["shape"]) for o in here["outputs"]] == [
            (o["name"], o["dtype"], o["shape"]) for o in there["outputs"]
        ]
    assert here["outputs"] == there["outputs"] and here["outputs"][0]["max"] is None
