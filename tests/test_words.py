"""One word for one thing: every tool, in Python and in C, spells modes, compressions and options alike."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

import linnet
from linnet.cli.main import cli
from linnet.sync import Compression, simulate
from linnet.sync.server import MODES as SERVER_MODES
from linnet.sync.strategy import MODES as STRATEGY_MODES
from tests.native import build, run
from tests.test_tool_style import TOOLS


def _commands(group: click.Group = cli, path: str = "linnet") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")


COMMANDS = dict(_commands())


@pytest.mark.parametrize("name", [*COMMANDS, *TOOLS])
def test_help_texts_have_one_word_for_one_thing(name: str) -> None:
    if name in COMMANDS:
        text = CliRunner().invoke(cli, [*name.split()[1:], "--help"], terminal_width=200).output
    else:
        text = run([str(build("release", *TOOLS) / name), "--help"])
    for word in ("sync", "async", "onebit", "one-bit", "--quorum", "--out"):
        found = re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])", text)
        assert found is None, f"{name}: {text[max(found.start() - 60, 0) : found.end() + 60]}"


def test_every_command_that_writes_a_file_of_results_has_o() -> None:
    writers = {
        name: c for name, c in COMMANDS.items() if any(o.startswith("--output") for p in c.params for o in p.opts)
    }
    assert len(writers) >= 7
    for name, command in writers.items():
        [option] = [p for p in command.params if any(o.startswith("--output") for o in p.opts)]
        assert "-o" in option.opts, name


def test_modes_and_compressions_are_the_same_words() -> None:
    assert set(SERVER_MODES) <= set(STRATEGY_MODES) and set(SERVER_MODES) <= set(simulate.setting.MODES)
    text = run([str(build("release", *TOOLS) / "linnet-parameter-server"), "--help"])
    assert "--mode MODE           synchronous (default), or asynchronous:" in text
    for name in ("none", "f16", "bf16", "i8", "topk:0.01", "1bit"):
        assert simulate.ratio(name) <= 1 and Compression.parse(name)
    for name in ("linnet parameter-server", "linnet simulate"):
        assert any("--backup" in p.opts for p in COMMANDS[name].params)
    assert "\n  --backup N " in text


def test_backup_workers_of_a_server() -> None:
    done = CliRunner().invoke(cli, ["parameter-server", "m.lnt", "--workers", "2", "--backup", "2"])
    assert done.exit_code == 2 and "2 must be less than --workers 2" in done.output + done.stderr


def test_the_version_has_one_form() -> None:
    assert CliRunner().invoke(cli, ["--version"]).output == f"linnet {linnet.__version__}\n"
