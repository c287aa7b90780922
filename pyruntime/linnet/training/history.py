"""The result of a run: its metrics by step and record, its best record, and the trained variables."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.clib.errors import UsageError

if TYPE_CHECKING:
    from linnet.facade import Graph
    from linnet.session.model import Model, Store

METRICS = "metrics.jsonl"


@dataclasses.dataclass
class History:
    """The result of `fit`.

    records: one per epoch (or every `validate_every` steps): step, epoch, the means of the train outputs since the
        previous record, and val_... of the validation. In a job with several workers, `loss` is the mean over all
        workers. A server process makes one record per second.
    steps: the metrics of every `log_every`-th step.
    store: the variables with their current values. Sessions of `model` can share it.
    stopped: why training ended before its last step, or "".
    best: from Saver(best=...): {"metric", "value", "step"}.
    best_path: the checkpoint of the best record.
    traffic: in a job with several workers, the bytes that this worker sent and received, and how many of its pushes
        were applied, late or not_finite.
    """

    model: Model
    store: Store
    records: list[dict[str, float]] = dataclasses.field(default_factory=list)
    steps: list[dict[str, float]] = dataclasses.field(default_factory=list)
    step: int = 0
    epoch: int = 0
    stopped: str = ""
    best: dict[str, Any] | None = None
    best_path: Path | None = None
    directory: Path | None = None
    seconds: float = 0.0
    source: Graph | None = dataclasses.field(default=None, repr=False)
    traffic: dict[str, int] = dataclasses.field(default_factory=dict)
    elsewhere: dict[str, Any] = dataclasses.field(
        default_factory=dict, repr=False
    )  # remote tables, from a server in this process

    def __getitem__(self, name: str) -> list[float]:
        """The values of a metric, one for each record that contains it."""
        found = [record[name] for record in self.records if name in record]
        if not found:
            names = dict.fromkeys(name for record in self.records for name in record)
            raise UsageError(
                f"there is no metric named {name!r}", code=102, tensor=name, expected=" or ".join(names) or "none"
            )
        return found

    @property
    def graph(self) -> Graph:
        """The graph with the trained values as initial values of its variables. A file from
        `history.graph.save("trained.lnt")` can be trained further. One from `history.graph.freeze().save("model.lnt")`
        can only be run. Raises UsageError if remote tables are not in this process."""
        from linnet.facade import Graph

        if self.source is None:
            assert self.model.path is not None
            self.source = Graph.load(self.model.path, user_ops=self.model.user_ops)
        made = self.source.copy()
        for name, variable in made.variables.items():
            if name not in self.store and name not in self.elsewhere:
                raise UsageError(
                    "this variable is on the servers, and no server runs in this process", code=102, tensor=name,
                    hint="merge the servers' snapshots with linnet.sync.merge or linnet merge",
                )  # fmt: skip
            variable.value = self.store[name] if name in self.store else self.elsewhere[name]
        return made

    def load_best(self) -> None:
        """Sets the variables to their values at the best record (Saver(best=...)). Raises UsageError if there is
        none."""
        if self.best_path is None or not self.best_path.exists():
            raise UsageError(
                "there is no best checkpoint", code=101,
                hint="pass fit a directory and Saver(best=('val_loss', 'min'))",
            )  # fmt: skip
        self.store.load(self.best_path)

    def plot(self, path: str | Path | None = None, names: list[str] | None = None) -> Any:
        """Plots the metrics over steps with matplotlib (the extra `train`). There is one plot per metric, which also shows
        its val_... metric. Steps are thin lines; records are lines with dots. Writes a file (.png, .svg, .pdf) if a
        path is given. Returns the figure."""
        if importlib.util.find_spec("matplotlib") is None:
            raise UsageError(
                "the package matplotlib is not installed", code=101, hint="pip install 'linnet-runtime[train]'"
            )
        from matplotlib.figure import Figure

        known = dict.fromkeys(
            name for row in (*self.steps, *self.records) for name in row if name not in ("step", "epoch")
        )
        plain = [name for name in known if not (name.startswith("val_") and name[4:] in known)]
        chosen = plain if names is None else names
        figure = Figure(figsize=(5 * max(len(chosen), 1), 3.5), layout="constrained")
        for i, name in enumerate(chosen):
            axes = figure.add_subplot(1, len(chosen), i + 1, xlabel="step", title=name)
            for rows, key, style in (
                (self.steps, name, {"alpha": 0.35, "linewidth": 0.8}), (self.records, name, {"marker": "."}),
                (self.records, f"val_{name}", {"marker": ".", "linestyle": "--"}),
            ):  # fmt: skip
                points = [(row["step"], row[key]) for row in rows if key in row]
                if points:
                    label = "steps" if rows is self.steps else "validation" if key != name else "training"
                    axes.plot(*zip(*points, strict=True), label=label, **style)
            axes.legend()
        if path is not None:
            figure.savefig(str(path))
        return figure


class MetricsFile:
    """The file metrics.jsonl: one JSON object per line, of kind "step", "record" or "last". If a run stops between two
    records, the record after its final step is of kind "last"."""

    def __init__(self, path: Path | None, history: History) -> None:
        self.path, self.history = path, history

    def go_on(self, step: int) -> None:
        """Reads the lines up to `step` into the history and removes later lines, including a half-written last line.
        The resumed run writes them again."""
        if self.path is None or not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(errors="replace").splitlines():
            try:
                row = json.loads(line)
                over = row["step"] > step or row["kind"] not in ("step", "record")
            except (ValueError, TypeError, KeyError):  # half-written, or damaged
                continue
            if not over:
                kept.append(line)
                (self.history.steps if row.pop("kind") == "step" else self.history.records).append(row)
        part = self.path.with_suffix(".part")
        part.write_text("".join(f"{line}\n" for line in kept))
        part.replace(self.path)

    def add(self, kind: str, row: dict[str, float]) -> None:
        (self.history.steps if kind == "step" else self.history.records).append(row)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps({"kind": kind, **row}) + "\n")
