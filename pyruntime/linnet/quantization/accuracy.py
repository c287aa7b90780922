"""The option `--eval`: measures how well a model does its task, by a function of a Python file or on a folder of
labelled pictures. Higher is better."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import Error, FileError, UsageError
from linnet.preprocess._edit import io_key, labels_key, parse_io
from linnet.quantization.compared_models import Subject, shape_text
from linnet.quantization.labels import find_labels
from linnet.quantization.samples import PICTURES, picture_reader
from linnet.quantization.sources import Script, is_script

Array = npt.NDArray[Any]
Names = Mapping[str, str]


class Evaluation(Protocol):
    """The evaluation that `--eval` names. remarks: what a reader of the figures must know, for example where the labels
    come from."""

    remarks: list[str]

    def measure(self, subject: Subject, names: Names | None = None) -> dict[str, float]:
        """The figures of a model, by name. names: {name that a script uses: name of the output of this model}."""
        ...


def evaluation(
    source: str | Path, *, image: str | None = None, note: Callable[[str], object] = warnings.warn
) -> Evaluation | None:
    """The evaluation that a source names. None if the source is a folder without sub-folders, because its pictures have
    no labels. Then only agreement can be measured.

    source: FILE.py:FUNCTION. The function gets `run`, a function that maps feeds to {output: array}. It returns a number or
    {name: number}; higher is better.
    Or a folder with one sub-folder of pictures for each class: see `Pictures`. image: the recipe for models that do not
    take pictures themselves. note: called with a text that names the files that cannot be read. Raises UsageError.
    """
    if is_script(source):
        return ScriptEvaluation(Script(source, "evaluation"))
    root = Path(source)
    if not root.is_dir():
        what = (
            "the folder for evaluation does not exist"
            if not root.exists()
            else "the source for evaluation is not a folder"
        )
        raise UsageError(
            what,
            code=101,
            tensor=str(root),
            expected="a folder with a sub-folder of pictures for each class, or FILE.py:FUNCTION",
        )
    folders = [p for p in sorted(root.iterdir()) if p.is_dir() and not p.name.startswith(".")]
    return Pictures(root, folders, image, note) if folders else None


class ScriptEvaluation:
    """A function that is called with `run`."""

    def __init__(self, script: Script) -> None:
        self.script, self.remarks = script, list[str]()
        if script.parameters() != 1:
            raise script.wrong(
                "the function for evaluation must take one argument", "def FUNCTION(run): run(feeds) gives {output: array}",
                f"{script.parameters()} arguments",
            )  # fmt: skip

    def measure(self, subject: Subject, names: Names | None = None) -> dict[str, float]:
        def run(feeds: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
            found = subject.run(feeds)
            return found if names is None else {mine: found[theirs] for mine, theirs in names.items()}

        made = self.script.call(run)
        given = made if isinstance(made, Mapping) else {"score": made}
        found = {}
        for name, value in given.items():
            try:
                found[str(name)] = float(value)
            except (TypeError, ValueError):
                found[str(name)] = math.nan
            if not given or not math.isfinite(found[str(name)]):
                raise self.script.wrong(
                    "the function for evaluation must return a number, or {name: number}", "finite numbers, higher is better",
                    f"{name}: {value!r}"[:80] if isinstance(made, Mapping) else f"{type(made).__name__} {made!r}"[:80],
                )  # fmt: skip
        if not found:
            raise self.script.wrong(
                "the function for evaluation returns no number", "a number, or {name: number}", "{}"
            )
        return found


@dataclasses.dataclass
class Pictures:
    """A folder of labelled pictures. The name of each sub-folder is the name or the number of a class. The names of the
    classes are in the folder's labels.txt, labels.json or classes.txt, or in the model's metadata. Without names,
    sub-folders named by numbers are the classes with these numbers, and other sub-folders are the classes in sorted
    order. Measures top-1 accuracy and, if there are six classes or more, top-5 accuracy."""

    root: Path
    folders: Sequence[Path]
    image: str | None
    note: Callable[[str], object]
    remarks: list[str] = dataclasses.field(default_factory=list)
    noted: bool = False

    def measure(self, subject: Subject, names: Names | None = None) -> dict[str, float]:
        scores, count, stored = classifier(subject)
        labels = find_labels(self.root, [f.name for f in self.folders], stored, count, subject.name)
        if labels.remark not in self.remarks:
            self.remarks.append(labels.remark)
        read = picture_reader(subject.graph, None if subject.takes() == "image" else self.image)
        failed: list[tuple[Path, Error]] = []
        seen, first, fifth, most = 0, 0, 0, 0
        for folder in self.folders:
            wanted = labels.classes[folder.name]
            for file in sorted(
                p for p in folder.rglob("*") if p.suffix.lower() in PICTURES and not p.name.startswith(".")
            ):
                try:
                    feeds = read(file)
                except (UsageError, FileError) as error:
                    failed.append((file, error))
                    continue
                best = scores(subject.run(feeds))
                seen, first, fifth = seen + 1, first + (best[:1] == [wanted]), fifth + (wanted in best[:5])
                most = max(most, len(best))
        if not seen:
            raise UsageError(
                "no labelled picture can be read", code=101, tensor=str(self.root),
                expected=f"files of type {', '.join(PICTURES)}",
                got=f"{len(failed)} files, the first with: {failed[0][1]}" if failed else "sub-folders without pictures",
            )  # fmt: skip
        if failed and not self.noted:
            shown = ", ".join(str(file) for file, _ in failed[:5]) + (", ..." if len(failed) > 5 else "")
            self.note(f"{len(failed)} labelled pictures cannot be read and are left out: {shown}")
            self.noted = True
        text = f"{seen} labelled pictures of {self.root.name}"
        if text not in self.remarks:
            self.remarks.append(text)
        return {"top-1": first / seen} | ({"top-5": fifth / seen} if most >= 5 and (count is None or count > 5) else {})


Ranking = Callable[[Mapping[str, Array]], list[int]]


def classifier(subject: Subject) -> tuple[Ranking, int | None, list[str]]:
    """Returns a function that finds the best classes in a model's outputs, best first. Also returns the number of
    classes (None if the model outputs only the best ones), and the labels in the model's metadata. Raises UsageError if
    no output is a list of scores."""
    metadata = subject.graph.metadata
    for spec in subject.outputs:
        about = parse_io(metadata.get(io_key("infer", spec.name), ""))
        if about is not None and about[0] == "classes":
            stored = metadata.get(labels_key("infer", spec.name), "")
            names = stored.split("\n") if stored else []
            return _given(spec.name), len(names) or None, names
    found = []
    for spec in subject.outputs:
        sizes = None if spec.shape is None else spec.shape[1:] if len(spec.shape) > 1 else spec.shape
        wide = None if sizes is None else [d for d in sizes if d != 1]
        if (
            wide is not None
            and len(wide) == 1
            and wide[0] is not None
            and (spec.dtype[0] in "fb" or spec.scale is not None)
        ):
            found.append((spec.name, wide[0]))
    if not found:
        raise UsageError(
            "the model has no output with a score for each class", code=101, tensor=subject.name,
            expected="an output of the shape [1, classes]",
            got="; ".join(f"{s.name} {s.dtype} {shape_text(s.shape)}" for s in subject.outputs),
            hint="give --eval FILE.py:FUNCTION, which reads the outputs itself",
        )  # fmt: skip
    name, count = max(found, key=lambda entry: entry[1])
    stored = metadata.get(labels_key("infer", name), "")
    return _scored(name), count, stored.split("\n") if stored else []


def _given(name: str) -> Ranking:
    return lambda outputs: [int(i) for i in outputs[name].reshape(-1)]


def _scored(name: str) -> Ranking:
    def best(outputs: Mapping[str, Array]) -> list[int]:
        values = outputs[name].reshape(-1)
        kept = np.where(np.isnan(values), -np.inf, values)
        return [] if np.isnan(values).all() else [int(i) for i in np.argsort(-kept, kind="stable")[:5]]

    return best
