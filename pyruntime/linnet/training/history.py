"""What a run found: its metrics by step and record, where the best was, and the trained variables."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.errors import UsageError

if TYPE_CHECKING:
    from linnet.graph import Graph
    from linnet.model import Model, Store

METRICS = "metrics.jsonl"


@dataclasses.dataclass
class History:
    """The result of `fit`.

    records: one per epoch (or every `validate_every` steps): step, epoch, the means of the train outputs since the record
    before, and val_... of validation. steps: the metrics of every `log_every`-th step. store: the variables as they are
    now, to be shared with sessions of `model`. stopped: why training ended before its last step, or "". best: of
    Saver(best=...): {"metric", "value", "step"}; best_path: its checkpoint. traffic: in a job of many, bytes that this worker
    sent and received, and what became of its pushes: applied, late, not_finite.
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
    )  # remote tables, from the server here

    def __getitem__(self, name: str) -> list[float]:
        """The values of a metric, one per record that has it."""
        found = [record[name] for record in self.records if name in record]
        if not found:
            names = dict.fromkeys(name for record in self.records for name in record)
            raise UsageError(
                f"there is no metric {name!r}", code=102, tensor=name, expected=" or ".join(names) or "none"
            )
        return found

    @property
    def graph(self) -> Graph:
        """The graph with the trained values as its variables' first values: `history.graph.save("trained.lnt")` can be
        trained further, `history.graph.freeze().save("model.lnt")` only runs. UsageError when remote tables are not here."""
        from linnet.graph import Graph

        if self.source is None:
            assert self.model.path is not None
            self.source = Graph.load(self.model.path)
        made = self.source.copy()
        for name, variable in made.variables.items():
            if name not in self.store and name not in self.elsewhere:
                raise UsageError(
                    "the servers hold this variable, and none of them is here", code=102, tensor=name,
                    hint="put the servers' snapshots together: linnet.sync.join, or linnet join",
                )  # fmt: skip
            variable.value = self.store[name] if name in self.store else self.elsewhere[name]
        return made

    def load_best(self) -> None:
        """Gives the variables the values of the best record (Saver(best=...)). UsageError when there is none."""
        if self.best_path is None or not self.best_path.exists():
            raise UsageError(
                "there is no best checkpoint", code=101,
                hint="give fit a directory and Saver(best=('val_loss', 'min'))",
            )  # fmt: skip
        self.store.load(self.best_path)

    def plot(self, path: str | Path | None = None, names: list[str] | None = None) -> Any:
        """Curves of the metrics over steps by matplotlib (linnet[train]): the steps thin, records with dots; one picture
        per metric, with its val_... in it. Writes a file (.png, .svg, .pdf) when given a path; returns the figure."""
        if importlib.util.find_spec("matplotlib") is None:
            raise UsageError("there is no matplotlib to plot with", code=101, hint="pip install linnet[train]")
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
    """metrics.jsonl: one JSON object per line, of kind "step", "record", or "last": a record behind the last step of a run
    that stopped between two."""

    def __init__(self, path: Path | None, history: History) -> None:
        self.path, self.history = path, history

    def go_on(self, step: int) -> None:
        """Takes the lines up to `step` into the history and drops those behind it: what was written after the checkpoint
        will be written again. A half-written last line is one of these."""
        if self.path is None or not self.path.exists():
            return
        kept = []
        for line in self.path.read_text().splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            if row["step"] <= step and row["kind"] != "last":
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
