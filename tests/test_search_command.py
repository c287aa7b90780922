"""`linnet search`: a study.toml, its table, page and picture, several processes, and errors that name the key."""
# Dear: several processes share a study, and each of them imports Optuna.

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

import linnet
from linnet import search
from linnet.search import drawing, words

Command = Callable[..., "subprocess.CompletedProcess[str]"]

MODULE = """
import os, signal
import linnet
from linnet import nn

def net(trial):
    width, depth = trial.params["width"], trial.params["depth"]
    if depth == 3 and width < 40:
        raise linnet.GraphError("this net <b>cannot</b> be built", code=303)
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, 8))
    y = x
    for _ in range(depth):
        y = nn.dense(y, width, activation="relu")
    graph.signature("infer", {"x": x}, {"y": nn.dense(y, 3)})
    if trial.number == 6 and os.path.exists("interrupt"):
        os.kill(os.getpid(), signal.SIGINT)
    return graph, {"accuracy": 1 - 1 / (width * depth)}

def half(run):
    return {"accuracy": 0.5}
"""
STUDY = """
function = "NAME.py:net"
objectives = ["accuracy", "bytes"]
trials = 12
seed = 1
journal = "made.journal"

[limits]
bytes = 8_000

[space]
width = {low = 8, high = 64, step = 8}
depth = {low = 1, high = 3}
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study.toml in the working folder, whose functions are in a file beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(MODULE)
    (tmp_path / "study.toml").write_text(STUDY.replace("NAME", "nets"))
    return tmp_path / "study.toml"


def change(study: Path, *pairs: str) -> None:
    text = study.read_text()
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    study.write_text(text)


def test_a_study(study: Path, linnet_command: Command) -> None:
    done = linnet_command("search", study)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 12 and all(re.match(rf"trial {i} \(width \d+, depth \d\): ", x) for i, x in enumerate(lines))
    assert "accuracy (maximize), bytes (minimize); bytes at most 8.0 kB" in done.stdout
    found = search.load(search.read_study(study).settings)
    states = [row.state for row in found.rows]
    assert set(states) == {"complete", "infeasible", "failed"}, "the test must show each"
    for state in set(states):
        assert f"{states.count(state)} {state}" in done.stdout
    front, beyond, failed = re.split("Beyond a limit|Failed or pruned", done.stdout)
    first = {state: {r.number for r in found.rows if r.state == state} for state in set(states)}

    def numbers(text: str) -> set[int]:
        return {int(n) for n in re.findall(r"^│ +(\d+) │", text, re.MULTILINE)}

    assert numbers(front) <= {row.number for row in found.front} and numbers(front)
    assert numbers(beyond) == first["infeasible"] and numbers(failed) == first["failed"]
    assert "kB > 8.0 kB" in beyond and "this net <b>cannot</b> be built" in failed


def test_show_runs_nothing(study: Path, linnet_command: Command) -> None:
    done = linnet_command("search", study, "--show")
    assert done.returncode == 1 and "not_found" in done.stderr and "run the study first" in done.stderr
    ran = linnet_command("search", study, "--trials", 5)
    shown = linnet_command("search", study, "--show")
    assert ran.returncode == shown.returncode == 0 and shown.stderr == ""
    assert "5 trials: " in shown.stdout and "; 7 to come" in shown.stdout


def test_json(study: Path, linnet_command: Command) -> None:
    done = linnet_command("search", study, "--json")
    assert done.returncode == 0 and done.stderr == ""
    made = json.loads(done.stdout)
    assert made["study"] == str(study) and made["objectives"] == {"accuracy": "maximize", "bytes": "minimize"}
    assert len(made["trials"]) == 12 and made["front"]
    assert isinstance(made["trials"][made["front"][0]]["figures"]["bytes"], int)


def test_interrupted_and_continued(study: Path, linnet_process: Command, linnet_command: Command) -> None:
    (study.parent / "interrupt").touch()
    done = linnet_process("search", study)
    assert done.returncode == 128 + signal.SIGINT and done.stderr.endswith("run the same command again to continue\n")
    assert "7 trials: " in linnet_command("search", study, "--show").stdout
    (study.parent / "interrupt").unlink()
    rows = json.loads(linnet_command("search", study, "--json").stdout)["trials"]
    change(study, "made.journal", "other.journal")
    assert rows == json.loads(linnet_command("search", study, "--json").stdout)["trials"]


def test_workers_share_the_trials(study: Path, linnet_process: Command) -> None:
    done = linnet_process("search", study, "--workers", 3)
    assert done.returncode == 0, done.stderr
    assert sorted(int(n) for n in re.findall(r"^trial (\d+) ", done.stderr, re.MULTILINE)) == list(range(12))
    assert "12 trials: " in done.stdout


class Page(HTMLParser):
    """Collects the text, the tags, and every address that a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [
            v or "" for k, v in attrs if k in ("src", "href", "xlink:href") and not (v or "").startswith("#")
        ]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_page_and_picture(study: Path, linnet_command: Command) -> None:
    place = study.parent
    done = linnet_command("search", study, "--html", place / "a.html", "--picture", place / "a.png")
    assert done.returncode == 0, done.stderr
    with Image.open(place / "a.png") as picture:
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 10
    page = Page((place / "a.html").read_text())
    assert page.fetched == [] and "script" not in page.tags and page.tags.count("svg") == 1 and "b" not in page.tags
    text = "".join(page.texts)
    for expected in ("All trials", "Pareto front", "Beyond a limit", "this net <b>cannot</b> be built", "12 trials: "):
        assert expected in text
    again = linnet_command("search", study, "--show", "--html", place / "b.html", "--picture", place / "b.svg")
    assert again.returncode == 0 and (place / "b.html").read_bytes() == (place / "a.html").read_bytes()
    assert (place / "b.svg").read_text().startswith("<?xml")


def test_pictures_of_one_and_of_three_objectives(study: Path, linnet_command: Command) -> None:
    for i, objectives in enumerate(('["accuracy"]', '["accuracy", "bytes", "macs"]', '["bytes"]')):
        change(
            study,
            study.read_text().splitlines()[2],
            f"objectives = {objectives}",
            "journal = ",
            f'name = "{i}"\njournal = ',
        )
        done = linnet_command("search", study, "--picture", study.parent / f"{i}.png")
        assert done.returncode == 0, done.stderr
        change(study, f'name = "{i}"\n', "")
        with Image.open(study.parent / f"{i}.png") as picture:
            assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 10
        assert ("The best of " in done.stdout) == (i != 1)


def test_a_picture_of_no_feasible_trial(tmp_path: Path) -> None:
    for objectives in (["accuracy"], ["accuracy", "loss"]):
        settings = search.Settings(objectives, limits={"loss": -1}, trials=2)
        found = search.run(lambda trial: {"accuracy": 1, "loss": 0}, settings)
        drawing.write_picture(found, tmp_path / "a.png")
        assert (tmp_path / "a.png").stat().st_size > 1000 and [t.title for t in words.tables(found)] == [
            "Beyond a limit"
        ]


def test_quantized_and_evaluated(study: Path, linnet_command: Command) -> None:
    change(study, "seed = 1", 'seed = 1\ndtype = "i8"\nevaluate = "nets.py:half"', "trials = 12", "trials = 2")
    done = linnet_command("search", study, "--json")
    assert done.returncode == 0, done.stderr
    assert [row["figures"]["accuracy"] for row in json.loads(done.stdout)["trials"]] == [0.5, 0.5]


def test_a_function_of_a_module(study: Path, linnet_command: Command) -> None:
    (study.parent / "nets_of_this_test.py").write_text(MODULE)
    change(study, "nets.py:net", "nets_of_this_test:net", "trials = 12", "trials = 2")
    assert linnet_command("search", study).returncode == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("trials = 12", "trails = 12", r"key 'trails' in '.*study.toml' is wrong; expected trials, .*got an unknown"),
        ("trials = 12", 'trials = "12"', r"key 'trials' in '.*study.toml' is wrong; expected an integer, got '12'"),
        ("trials = 12", "trials = true", "key 'trials' .* got True"),
        ("trials = 12", "trials = 0", "'trials' of a search is wrong, in '.*study.toml'; expected an integer of at least 1"),
        ("trials = 12", "trials = ", "the study is not a TOML file"),
        ('function = "nets.py:net"', "", "key 'function' .* expected a text such as 'digits:classifier'.* got nothing"),
        ("nets.py:net", "nets.py:nett", "no function 'nett'"),
        ("nets.py:net", "nothing.py:net", "the script for the key function of .*study.toml does not exist"),
        ("nets.py:net", "no_such_module:net", "key 'function' .* expected a module no_such_module that can be imported"),
        ("nets.py:net", "json:net", "key 'function' .* expected a function of the module json, got net"),
        ("nets.py:net", "net", "key 'function' .* got 'net'"),
        ('["accuracy", "bytes"]', '["score"]', "direction of the objective 'score' is not known, in '.*study.toml'"),
        ("depth = {low = 1, high = 3}", "depth = 3", r"key 'space.depth' .* expected a table such as"),
        ("depth = {low = 1, high = 3}", "depth = {low = 3, high = 1}", "'depth' of the space is wrong, in '.*study.toml'"),
        ("bytes = 8_000", 'bytes = "8 kB"', "expected a finite number for bytes, got '8 kB'"),
    ],
)  # fmt: skip
def test_bad_studies(study: Path, linnet_command: Command, old: str, new: str, message: str) -> None:
    change(study, old, new)
    done = linnet_command("search", study)
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert re.search(message, done.stderr), done.stderr


def test_bad_command_lines(study: Path, linnet_command: Command) -> None:
    for arguments, message in (
        (["none.toml"], "'none.toml': the study cannot be read"),
        ([study, "--html", "a.txt"], "the name of the page has an unknown ending; expected .html or .htm, got .txt"),
        (
            [study, "--picture", "a"],
            "the name of the picture has an unknown ending; expected .png or .svg or .pdf, got none",
        ),
        ([study, "--picture", "none/a.png"], "the picture cannot be written; got no such folder"),
    ):
        done = linnet_command("search", *arguments)
        assert done.returncode == 1 and message in done.stderr, done.stderr
    assert not (study.parent / "made.journal").exists(), "files are checked before the first trial"


def test_without_optuna(study: Path, linnet_process: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    (study.parent / "optuna.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", f"{study.parent}:{linnet.__path__[0]}/..")
    done = linnet_process("search", study)
    assert done.returncode == 1 and "pip install 'linnet-runtime[search]'" in done.stderr
    assert linnet_process("search", "--help").returncode == 0
