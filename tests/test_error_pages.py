"""docs/errors has one page per error code, `linnet explain` prints it, and each message on a page is one that linnet can give:
what it says, and its hint, are texts of the sources with values in their placeholders."""
# Dear: all sources are parsed once; the result is kept until one changes.

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.cli.main import cli
from linnet.clib.errors import STATUS, class_of
from tests.command import run_here
from tests.graphs import bytes_of
from tests.native import ROOT
from tests.test_errors_all import ALL_CODES
from tests.test_sync_errors import connection_lost
from tests.texts.kept import all_texts

FOLDER = ROOT / "docs" / "errors"
NAMES = sorted(STATUS.values())
_FENCE = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PLACEHOLDER = re.compile(r"%[-+0-9.*]*(?:ll|z|l)?[a-zA-Z]|\{[^{}]*\}")
_LEAST = 10  # letters that a text has besides its placeholders, to count


def messages(name: str) -> list[str]:
    return [" ".join(body.split()) for body in _FENCE.findall((FOLDER / f"{name}.md").read_text())]


@cache
def patterns() -> list[tuple[str, re.Pattern[str]]]:
    """All error texts, as patterns that their values fit, each with its longest part."""
    found = {text.text for text in all_texts() if text.kind == "error"}
    kept = [text for text in found if len(re.sub(r"[^A-Za-z]", "", _PLACEHOLDER.sub("", text))) >= _LEAST]
    split = [_PLACEHOLDER.split(" ".join(text.split())) for text in kept]
    return [(max(parts, key=len), re.compile(".*?".join(map(re.escape, parts)))) for parts in split]


def is_a_text(words: str) -> bool:
    return any(part in words and pattern.fullmatch(words) for part, pattern in patterns())


def unknown_parts(message: str) -> list[str]:
    """The parts of a message that no text of the sources gives. The parts after "expected" and "got" are values."""
    rest = message.partition(": ")[2]
    rest = re.sub(r"^cannot convert: \d+ problems?: (?:\w+ )?'[^']*': (?:\w+: '\w+': )?", "", rest)
    rest = re.sub(r" \(and \d+ more\)$", "", rest)
    starts = {rest, re.sub(r"^(?:node \d+ )?'[^']*': ", "", rest)}
    ends = [found.start() for found in re.finditer("; ", rest)]
    cut = [len(rest) - end for end in ends] + [0]
    what = any(is_a_text(start[: len(start) - length]) for start in starts for length in cut)
    parts = rest.split("; ")
    at = max((i for i, part in enumerate(parts) if part.startswith(("expected ", "got "))), default=0)
    hints = parts[at + 1 :]
    hint = not hints or any(is_a_text("; ".join(parts[i:])) or is_a_text(rest) for i in range(1, len(parts)))
    return ([] if what else ["what: " + rest]) + ([] if hint else ["hint: " + "; ".join(hints)])


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*NAMES, "index"}
    assert {name.lower(): number for name, number in ALL_CODES.items()} == {
        name: number for number, name in STATUS.items()
    }


def test_the_index_lists_every_code() -> None:
    rows = re.findall(r"^\| (\d+) \| \[(\w+)\]\((\w+)\.md\) \|", (FOLDER / "index.md").read_text(), re.MULTILINE)
    assert [(int(number), name) for number, name, _ in rows] == sorted(STATUS.items())
    assert all(name == page for _, name, page in rows)


@pytest.mark.parametrize(("number", "name"), STATUS.items(), ids=STATUS.values())
def test_a_page_says_what_a_program_sees(number: int, name: str) -> None:
    page = (FOLDER / f"{name}.md").read_text()
    assert page.startswith(f"# {name}\n")
    assert (
        f"| `LINNET_{name.upper()}`, {number} | `linnet.{class_of(number).__name__}` | `error: {name}: ...` |" in page
    )
    assert len(re.findall("^### ", page, re.MULTILINE)) == len(messages(name)) > 0


@pytest.mark.parametrize("name", NAMES)
def test_each_message_is_one_that_linnet_gives(name: str) -> None:
    for message in messages(name):
        assert message.startswith(f"{name}: "), message
        assert message in PROVOKERS or not unknown_parts(message), message


def _message(key: str) -> str:
    """The one message of the pages that contains these words."""
    (found,) = (message for name in NAMES for message in messages(name) if key in message)
    return found


def _linnet_file(folder: Path) -> None:
    (folder / "model.lnt").write_bytes(bytes_of("mlp"))
    linnet.from_onnx("model.lnt")


def _engine(folder: Path) -> None:
    (folder / "model.engine").write_bytes(b"ftrt" + bytes(50))
    linnet.load_graph("model.engine")


def _weights(folder: Path) -> None:
    (folder / "weights.safetensors").write_bytes((40).to_bytes(8, "little") + b'{"w":' + bytes(50))
    linnet.load_graph("weights.safetensors")


def _empty_file(folder: Path) -> None:
    (folder / "model.onnx").touch()
    linnet.from_onnx("model.onnx")


def _no_device(_: Path) -> None:
    linnet.load_device("a")


def _no_such_fetch(_: Path) -> None:
    linnet.Session(bytes_of("mlp"), fetches=["n"]).run({"x": np.zeros((4, 8), np.float32)})


def _open_shape() -> linnet.Graph:
    graph = linnet.Graph()
    x = graph.placeholder("x", (None, 4))
    graph.signature("infer", {"x": x}, {"y": x + 1})
    return graph


def _bytes_for_floats(_: Path) -> None:
    linnet.Session(_open_shape()).run({"x": np.zeros((1, 4), np.uint8)})


def _no_user_op(_: Path) -> None:
    op = linnet.UserOp("com.example.crop", lambda x: x, lambda x: (x.dtype, x.shape))
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 4))
    graph.signature("infer", {"x": x}, {"y": op(x)})
    linnet.Session(graph.to_bytes())


# Messages that are put together from words of several places.
PROVOKERS: dict[str, Callable[[Path], None]] = {
    _message("is already a linnet file"): _linnet_file,
    _message("is a TensorRT engine"): _engine,
    _message("weights but no graph"): _weights,
    _message("'model.onnx': is empty"): _empty_file,
    _message("cannot load a device"): _no_device,
    _message("step or tensor named 'n'"): _no_such_fetch,
    _message("NumPy float32), got u8"): _bytes_for_floats,
    _message("give the op in user_ops="): _no_user_op,
    _message("failed while receiving"): connection_lost,
}


@pytest.mark.parametrize("message", PROVOKERS)
def test_other_messages_are_provoked(message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(linnet.Error) as caught:
        PROVOKERS[message](tmp_path)
    found, said = (re.sub(r"\d+", "0", text) for text in (str(caught.value), message))  # ports differ
    assert found.startswith(said) if "load a device" in said else found == said  # the folders follow


@pytest.mark.parametrize("name", NAMES)
def test_what_a_page_names_exists(name: str) -> None:
    """Functions of C and of Python, commands and their options."""
    page = (FOLDER / f"{name}.md").read_text()
    code = re.findall(r"`([^`\n]+)`", _FENCE.sub("", page))
    folders = (ROOT / "pyruntime" / "linnet" / "cli", ROOT / "runtime_c" / "tools", ROOT / "runtime_c" / "include")
    sources = "".join(path.read_text() for folder in folders for path in sorted(folder.rglob("*.[ch]")))
    sources += "".join(path.read_text() for path in sorted(folders[0].glob("*.py")))
    for words in code:
        assert all(word in sources for word in re.findall(r"\blinnet_\w+|(?<=\s)--[a-z-]+|^--[a-z-]+", words)), words
        path = re.fullmatch(r"(?:linnet\.)?([A-Z]\w+\.\w+|(?<=linnet\.)[\w.]+?)(?:\(.*)?", words)
        if path and not words.endswith((".lnt", ".h", ".md", ".key")):
            assert attrgetter(path[1])(linnet), words
        command = re.match(r"linnet ([a-z-]+)", words)
        assert not command or command[1] in cli.commands, words


def test_an_invented_message_is_found() -> None:
    assert unknown_parts("wrong_shape: 'x': the moon is made of cheese; expected [1], got [2]")
    assert unknown_parts("not_found: 'x': there is no such file; ask somebody who knows")


def _explain(*words: str) -> subprocess.CompletedProcess[str]:
    return run_here("explain", *words)


@pytest.mark.parametrize("words", [("104",), ("LINNET_WRONG_SHAPE",), ("wrong_shape: 'x': the data", "size")])
def test_explain_takes_every_form_of_a_code(words: tuple[str, ...]) -> None:
    plain = _explain("wrong_shape")
    assert plain.returncode == 0 and "transpose(2, 0, 1)" in plain.stdout and "](" not in plain.stdout
    assert max(len(line.rstrip()) for line in plain.stdout.splitlines()) <= 100
    assert _explain(*words).stdout == plain.stdout


def test_explain_lists_all_codes_and_names_those_like_a_wrong_one() -> None:
    listed = _explain().stdout
    assert all(name in listed for name in NAMES)
    wrong = _explain("wrong_shap")
    assert wrong.returncode == 2 and "wrong_shape" in wrong.stderr and wrong.stderr.count("\n") == 1
