"""Finds which class the name of a folder means: by the labels of a file or a model, by its number, or by the order of
the folders."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from linnet.clib.errors import UsageError

FILES = ("labels.txt", "labels.json", "classes.txt")
_SYNSET = re.compile(r"n\d{8}")


@dataclasses.dataclass(frozen=True)
class Labels:
    """The class of each folder, by the folder's name, and where the labels come from."""

    classes: dict[str, int]
    remark: str


def find_labels(root: Path, folders: Sequence[str], stored: Sequence[str], count: int | None, model: str) -> Labels:
    """stored: the labels of the model's metadata. count: the number of classes, None if the model does not say.

    Raises UsageError if a folder matches no label, if two folders mean the same class, or if the numbers do not agree.
    """
    file = next((root / name for name in FILES if (root / name).is_file()), None)
    names = _read(file) if file is not None else [[name] for name in stored]
    if names:
        where = f"labels from {file.name}" if file is not None else "labels from the model's metadata"
        if count is not None and len(names) != count:
            raise UsageError(
                "the number of labels differs from the model's number of classes", code=101, tensor=str(file or model),
                expected=f"{count} labels", got=f"{len(names)} labels",
                hint="a model with a class for the background needs a label for it too",
            )  # fmt: skip
        return Labels(_by_name(root, folders, names), where)
    if all(name.isdigit() for name in folders):
        for name in folders:
            if count is not None and int(name) >= count:
                raise UsageError(
                    f"the folder {name!r} stands for a class that the model does not have", code=101, tensor=str(root / name),
                    expected=f"0 to {count - 1}", got=name,
                )  # fmt: skip
        return Labels(_distinct(root, {name: int(name) for name in folders}), "sub-folders are numbers of classes")
    if count is not None and len(folders) != count:
        more = len(folders) > count
        raise UsageError(
            "there are more sub-folders than classes" if more else "cannot tell which class each sub-folder stands for",
            code=101, tensor=str(root), expected=f"{count} sub-folders, one for each output of {model}, or a file labels.txt",
            got=f"{len(folders)} sub-folders: {', '.join(folders[:4])}{', ...' if len(folders) > 4 else ''}",
            hint="write labels.txt into the folder, with the name of one class per line",
        )  # fmt: skip
    return Labels({name: i for i, name in enumerate(sorted(folders))}, "classes are the sub-folders in sorted order")


def _distinct(root: Path, classes: dict[str, int]) -> dict[str, int]:
    owners: dict[int, str] = {}
    for name, number in classes.items():
        if number in owners:
            raise UsageError(
                "two sub-folders stand for the same class", code=101, tensor=str(root),
                got=f"{owners[number]} and {name}: class {number}",
                hint="put their pictures into one folder",
            )  # fmt: skip
        owners[number] = name
    return classes


def _by_name(root: Path, folders: Sequence[str], names: Sequence[Sequence[str]]) -> dict[str, int]:
    exact: dict[str, int] = {}
    loose: dict[str, int] = {}
    for at, aliases in enumerate(names):
        for alias in aliases:
            exact.setdefault(alias, at)
            loose.setdefault(_plain(alias), at)
    found = {}
    for folder in folders:
        number: int | None = exact.get(folder, loose.get(_plain(folder)))
        if number is None and folder.isdigit() and int(folder) < len(names):
            number = int(folder)
        if number is None:
            near = difflib.get_close_matches(_plain(folder), loose, 3, 0.4)
            shown = [next(a for a in exact if _plain(a) == name) for name in near] or [
                aliases[0] for aliases in names[:3]
            ]
            raise UsageError(
                f"the folder {folder!r} matches no label", code=102, tensor=str(root / folder),
                expected=f"the name of a class, such as {', '.join(map(repr, shown))}, or a number below {len(names)}",
                got=folder,
            )  # fmt: skip
        found[folder] = number
    return _distinct(root, found)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name.strip().casefold())


def _read(file: Path) -> list[list[str]]:
    """For each class, the names that its folder may have."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix == ".json":
            return _from_json(json.loads(text))
    except (OSError, ValueError) as error:
        raise UsageError(
            "cannot read the labels", code=101, tensor=str(file), got=" ".join(str(error).split()),
            expected='one label per line, or JSON such as ["cat", "dog"] or {"0": "cat", "1": "dog"}',
        ) from None  # fmt: skip
    lines = text.splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    return [_aliases(line) for line in lines]


def _aliases(line: str) -> list[str]:
    """The names that a line of labels gives: the whole line, its parts between commas, and its WordNet number."""
    line = line.strip()
    first, _, rest = line.partition(" ")
    number = [first] if _SYNSET.fullmatch(first) else []
    words = rest if number and rest else line
    return [*number, line, *(part.strip() for part in words.split(",") if part.strip())]


def _from_json(content: Any) -> list[list[str]]:
    """Like `_read`, for JSON: ["cat", ...], {"0": "cat"}, {"0": ["n02123045", "cat"]} or {"cat": 0}. Raises
    ValueError."""
    if isinstance(content, list):
        rows: dict[int, Any] = dict(enumerate(content))
    elif isinstance(content, dict) and content and all(isinstance(v, int) for v in content.values()):
        rows = {number: name for name, number in content.items()}
    elif isinstance(content, dict):
        rows = {int(key): value for key, value in content.items()}
    else:
        raise ValueError(f"a {type(content).__name__}")
    if sorted(rows) != list(range(len(rows))):
        raise ValueError(f"the numbers of the classes are not 0 to {len(rows) - 1}")
    return [_names(rows[number]) for number in range(len(rows))]


def _names(value: Any) -> list[str]:
    parts: Iterable[Any] = value if isinstance(value, list) else [value]
    return [alias for part in parts for alias in _aliases(str(part))]
