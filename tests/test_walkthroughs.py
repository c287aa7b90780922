"""CONTRIBUTING.md says how to add an op, a kernel, a map opcode, ...: each is done as it says, in a copy of the tree.
tests/walkthroughs/*.toml hold the files that are written; the copy is built, and the checks of each file run there."""

from __future__ import annotations

import platform
import re
import sys
import tomllib
from typing import Any

import pytest

from tests.mutate import Copy
from tests.native import BUILDS, ROOT, need

FOLDER = ROOT / "tests" / "walkthroughs"
# In the order in which they are done: a kernel and a gradient are those of the new op.
ORDER = ("op", "kernel", "opcode", "rule", "gradient", "optimizer", "command", "message", "device")
MOST_PLACES = {"op": 3, "opcode": 3, "message": 6}  # files that somebody has to write


def load(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())


def section(title: str) -> str:
    """What CONTRIBUTING.md says under a heading."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"CONTRIBUTING.md has no '## {title}'"
    return found.group(1)


def test_every_file_is_a_walkthrough() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_contributing_names_the_places(name: str) -> None:
    """Each file that the walk-through touches is named in its section, and there are no more than it says."""
    walk = load(name)
    text = section(walk["title"])
    named = [word for word in re.findall(r"`([^`\s]+)`", text) if "/" in word]
    files = {place["file"] for place in walk.get("place", ())}
    unnamed = [file for file in files if not any(_matches(file, word) for word in named)]
    assert not unnamed, f"'{walk['title']}' does not name {unnamed}"
    assert len(files) == walk["places"] <= MOST_PLACES.get(name, 9), files
    assert f"tests/walkthroughs/{name}.toml" in text


def _matches(file: str, word: str) -> bool:
    """Whether the path is the word, with other capitals in it (NAME, ISA, ...), or below it."""
    pattern = re.sub(r"[A-Z]{2,}(?:_[A-Z]+)*", r"\\w+", re.escape(word)) if word != "CONTRIBUTING.md" else word
    return re.fullmatch(pattern, file) is not None or (word.endswith("/") and file.startswith(word))


@pytest.fixture(scope="module")
def copy() -> Copy:
    """The tree with everything added to it, its generated files written and its library built."""
    need("cmake", "cc", "flatc")
    folder = BUILDS / "walkthroughs"
    made = Copy(ROOT, folder, 2)
    made.refresh()
    for name in ORDER:
        for place in load(name).get("place", ()):
            _put(made, place)
        if code := load(name)["check"].get("code"):
            (folder / "tests" / f"test_walk_{name}.py").write_text(code)
    _succeeds(made, [sys.executable, "schema/generate.py"])
    assert made.build(["linnet", "linnet_sync"]) == ""
    _succeeds(made, [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--co", "tests/test_walk_op.py"])
    made.environment["PYTHONPATH"] = str(folder / "build" / "python")
    _succeeds(made, [sys.executable, "-m", "linnet.converters.coverage", "docs/ops.md"])
    return made


def _put(copy: Copy, place: dict[str, str]) -> None:
    """Writes a new file, or text into one that is there: in place of `old`, before or after a line, or at the end."""
    path = copy.folder / place["file"]
    text = place["text"] if "old" in place else place["text"].removeprefix("\n")
    for word, folder, pattern in (
        ("@NEXT_OP@", "schema/ops", "*.toml"),
        ("@NEXT_OPCODE@", "schema", "map_opcodes.toml"),
    ):
        if word in text:
            rows = [path.read_text() for path in (copy.folder / folder).glob(pattern)]
            ids = [
                int(n)
                for row in rows
                for n in re.findall(r"^id = (\d+)$", row.split("[[attributes]]")[0], re.MULTILINE)
            ]
            text = text.replace(word, str(max(ids) + 1))
    before = path.read_text() if path.exists() else ""
    anchor = place.get("old") or place.get("before") or place.get("after")
    if anchor is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        copy.write(place["file"], before + text)
        return
    assert before.count(anchor) == 1, f"{place['file']}: {anchor!r} occurs {before.count(anchor)} times"
    new = text if "old" in place else text + anchor if "before" in place else anchor + text
    copy.write(place["file"], before.replace(anchor, new))


def _succeeds(copy: Copy, command: list[str]) -> None:
    code, text = copy.run(command, 1800)
    assert code == 0, f"{' '.join(command)}\n{text[-4000:]}"


@pytest.mark.soak
@pytest.mark.parametrize("name", ORDER)
def test_the_walkthrough_works(copy: Copy, name: str) -> None:
    check = load(name)["check"]
    if load(name).get("machine", "") not in ("", platform.machine()):
        pytest.skip("kernels of another machine")
    own = [f"tests/test_walk_{name}.py"] if "code" in check else []
    for tests in [*own, *check.get("tests", ())]:
        words = tests.split(" ", 2)
        _succeeds(copy, [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *words])
