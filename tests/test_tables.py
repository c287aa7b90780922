"""Tables of the command line: names of any length fit, stay different, and --json keeps them whole."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import linnet
from linnet.report.tables import shortened
from tests.native import build


def _long(folder: Path) -> tuple[Path, list[str]]:
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 8))
    names = [
        f"StatefulPartitionedCall/model_1/{'block/' * 30}{middle}/{'deep/' * 10}conv" for middle in ("left", "right")
    ]
    y = linnet.ops.softmax(x, name=names[0])
    graph.signature("infer", {"x": x}, {names[0]: y, names[1]: linnet.ops.softmax(y, name=names[1])})
    graph.save(folder / "long.lnt")
    return folder / "long.lnt", names


@pytest.mark.parametrize(
    "command",
    [["run", "--random"], ["inspect", "--all"], ["bench", "--seconds", "0.02"]],
    ids=lambda c: c[0],
)
def test_long_names_do_not_widen_tables(
    command: list[str], tmp_path: Path, linnet_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    model, names = _long(tmp_path)
    done = linnet_command(command[0], model, *command[1:])
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.split("\n") if line.startswith(("│", "┃"))]
    assert rows and max(map(len, rows)) <= 140 and "left" in done.stdout and "conv" in done.stdout, done.stdout
    whole = linnet_command(command[0], model, *command[1:], "--json").stdout
    assert json.loads(whole) and all(name in whole for name in names)


def test_linnet_bench_shortens_names(tmp_path: Path) -> None:
    model, names = _long(tmp_path)
    tool = build("release", "linnet-bench") / "linnet-bench"
    command = [tool, model, "--seconds", "0.02", "--ops"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert max(map(len, said.split("\n"))) <= 140 and "StatefulP" in said and "conv" in said
    whole = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert all(name in whole for name in names)


def test_shortened_names_stay_different() -> None:
    assert shortened(["abcdefghij", "short"], 7) == {"abcdefghij": "abc…hij", "short": "short"}
    similar = [f"{'a' * 30}{i}{'b' * 30}" for i in range(20)]
    for width in (12, 20, 40, 60):
        short = shortened(similar, width)
        assert len(set(short.values())) == 20 and max(map(len, short.values())) <= width
    ends = shortened(["model/first/conv_weight", "model/second/conv_weight"], 16)
    assert len(set(ends.values())) == 2 and all(name.endswith("weight") for name in ends.values())
