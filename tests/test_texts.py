"""The list of error texts is whole enough to be read instead of the sources, and no text holds a phrase that is no English.
`python -m tests.texts` prints the list."""
# Dear: all sources are parsed once; the result is kept until one changes.

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.native import ROOT
from tests.texts import Text
from tests.texts.kept import all_texts
from tests.texts.style import faults

PAGES = ("README.md", "CONTRIBUTING.md", "schema/README.md")


@pytest.fixture
def texts() -> tuple[Text, ...]:
    return all_texts()


@pytest.mark.parametrize(
    ("folder", "kind", "least"),
    [
        ("runtime_c/", "error", 1000),
        ("runtime_c/", "help", 4),
        ("runtime_c/", "comment", 2000),
        ("pyruntime/", "error", 900),
        ("pyruntime/", "help", 120),
        ("pyruntime/", "comment", 1200),
        ("converters/", "error", 600),
        ("converters/", "comment", 600),
    ],
)
def test_all_kinds_are_found(texts: tuple[Text, ...], folder: str, kind: str, least: int) -> None:
    found = sum(t.path.startswith(folder) and t.kind == kind for t in texts)
    assert found >= least


# Names that error texts contain, one for each way to an error: they outlive a change of the words around them.
@pytest.mark.parametrize(
    ("folder", "part"),
    [
        ("runtime_c/", "`%s`"),  # a format of an error function
        ("runtime_c/", "linnet_sync_encoded_bound"),  # the same in liblinnet_sync
        ("runtime_c/", "heartbeat_ms"),  # an argument that a function of the file passes on
        ("runtime_c/tools/", "which it was saved from; linnet-run and linnet-train"),  # what a tool prints
        ("pyruntime/", "pip install 'linnet-runtime[ray]'"),  # an argument of an exception
        ("pyruntime/", "idx"),  # an argument of a function that makes an exception
        ("converters/", "{node.op_type}"),  # a placeholder
        ("converters/", "input_shapes"),  # a default
    ],
)
def test_known_texts_are_found(texts: tuple[Text, ...], folder: str, part: str) -> None:
    assert any(part in t.text for t in texts if t.kind == "error" and t.path.startswith(folder))


def _pages() -> Iterator[Text]:
    for path in [*(ROOT / page for page in PAGES), *sorted((ROOT / "docs").glob("*.md"))]:
        prose = re.sub("(?s)\n\\| instead of \\|.*?\n\n", "\n", path.read_text(encoding="utf-8"))  # the bad examples
        for number, line in enumerate(prose.split("\n\n"), 1):
            yield Text(path.relative_to(ROOT).as_posix(), number, "page", "paragraph", line)


def test_no_phrase_that_is_no_english(texts: tuple[Text, ...]) -> None:
    found = [f"{t.path}:{t.line}: {fault}" for t in (*texts, *_pages()) for fault in faults(t.text)]
    assert not found, "\n" + "\n".join(found)
