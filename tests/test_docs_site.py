"""Links between Markdown pages and to their headings lead somewhere, every page of docs/ is reachable from the index, and the
site that `make docs` builds has an entry for every public name of Python and C."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.native import ROOT

FOLDERS = ("docs", "schema", "kernels_gpu", "examples")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")
_HEADING = re.compile(r"^#+ +(.*?) *#*$", re.MULTILINE)


def links(page: Path) -> list[tuple[str, str]]:
    """(path, anchor) of the links to other files. Links in code are none."""
    text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text()))
    found = (target for target in _LINK.findall(text) if "://" not in target and not target.startswith("mailto:"))
    return [(path, anchor) for path, _, anchor in (target.partition("#") for target in found)]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: dict[str, int] = {}
    out = set()
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text())):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = found[name] = found.get(name, -1) + 1
        out.add(f"{name}-{count}" if count else name)
    return out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{path} does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{path}#{anchor}: there is no such heading"


def test_a_wrong_anchor_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Two `words`, one\n\n## Again\n\n## Again\n\n```sh\n# no heading\n```\n\n[a](page.md#again-1) [b](#none)\n"
    )
    assert anchors(page) == {"two-words-one", "again", "again-1"}
    assert links(page) == [("page.md", "again-1"), ("", "none")]


def test_the_index_leads_to_every_page() -> None:
    """Straight, but for the pages of errors."""
    docs = ROOT / "docs"
    seen = {(docs / path).resolve() for path, _ in links(docs / "index.md")} | {docs / "index.md"}
    seen |= {(docs / "errors" / path).resolve() for path, _ in links(docs / "errors" / "index.md")}
    assert not {page for page in PAGES if page.is_relative_to(docs)} - seen


def test_each_goal_has_a_sentence_and_one_link() -> None:
    rows = re.findall(r"^\| (?!I want)(.*?) \| (.*?) \|$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)
    assert len(rows) >= 20
    assert all(goal and len(_LINK.findall(where)) == 1 for goal, where in rows)


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """(kind, name) of all entries of the site."""
    import sphinx  # noqa: F401  `make .venv/.docs-stamp` installs it

    out = tmp_path_factory.mktemp("site") / "docs"
    command = [sys.executable, str(ROOT / "docs" / "site" / "build.py"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    packed = (out / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {
        (kind, name) for name, kind in re.findall(r"^(\S+) (\S+) -?\d", zlib.decompress(packed).decode(), re.MULTILINE)
    }


@pytest.mark.more
def test_every_public_python_name_has_an_entry(inventory: set[tuple[str, str]]) -> None:
    sys.path.insert(0, str(ROOT / "docs" / "site"))
    import linnet
    from build import MODULES, public

    names = {name for kind, name in inventory if kind.startswith("py:")}
    assert {f"linnet.{name}" for name in linnet.__all__ if name in linnet._MODULES} <= names
    missing = [name for name in public("linnet") if not {f"linnet.{name}", f"linnet.optimizers.{name}"} & names]
    missing += [
        f"{module}.{name}"
        for module in MODULES
        for name in public(f"linnet.{module}")
        if not {f"linnet.{module}.{name}", f"linnet.{name}"} & names
    ]
    assert not missing


@pytest.mark.more
def test_every_declaration_of_the_headers_has_an_entry(inventory: set[tuple[str, str]]) -> None:
    names = {name for kind, name in inventory if kind.startswith("c:")}
    found = set()
    for header in sorted((ROOT / "runtime_c" / "include").glob("*.h")):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
        found |= set(re.findall(r"^(?:LINNET_API|static inline)\b[^;{(]*?\b(linnet_\w+)\(", text, re.MULTILINE))
        found |= set(re.findall(r"^(?:typedef )?(?:struct|enum) (linnet_\w+)", text, re.MULTILINE))
        found |= set(re.findall(r"^    (LINNET_[A-Z0-9_]+) *(?:=|,|$)", text, re.MULTILINE))
    assert len(found) > 300
    assert not found - names
