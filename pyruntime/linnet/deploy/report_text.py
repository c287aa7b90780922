"""What `linnet report` prints on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linnet.deploy.outcome_text import bytes_of, change, number
from linnet.report.tables import count, table
from linnet.session.machine import machine_text

if TYPE_CHECKING:
    from rich.table import Table

Rows = Sequence[Mapping[str, Any]]


def machine_line(report: Mapping[str, Any]) -> str:
    """The machine, with a mark if it is emulated or virtual."""
    machine = report["machine"]
    mark = "emulated: " if report["target"] == "emulate" else "virtual machine: " if machine["virtual"] else ""
    return f"{mark}{machine_text(machine)}, {machine['isa']}"


def tables(rows: Rows, verified: Rows) -> list[Table]:
    """A table of the results and a table of the times, each only if there is something to show."""
    found = []
    if verified:
        made = table(
            "Results, compared with scalar kernels", "model", "dtype", "=same bits", ">worst difference", ">allowed"
        )
        for row in verified:
            worst = "-" if row["worst"] is None else f"{row['worst']:.2g}"
            made.add_row(row["model"], row["dtype"], "yes" if row["same_bits"] else "no", worst, f"{row['allowed']:g}")
        found.append(made)
    if rows:
        made = table(
            "Times",
            "model",
            "dtype",
            ">threads",
            ">median ms",
            ">p95 ms",
            ">plan memory",
            ">peak RSS",
            ">file",
            "=°C",
            "=MHz",
        )
        for row in rows:
            made.add_row(
                row["model"], row["dtype"], str(row["threads"]), number(row["median_ms"]), number(row["p95_ms"]),
                bytes_of(row["plan_bytes"]), bytes_of(row["peak_rss"]), bytes_of(row["file_bytes"]),
                change(row, "celsius"), change(row, "mhz"),
            )  # fmt: skip
        found.append(made)
    return found


def throttled(rows: Rows) -> list[str]:
    """If the machine was throttled during some rows, one line that says so."""
    texts = [text for row in rows if (text := row["after"]["throttled"] or row["before"]["throttled"])]
    if not texts:
        return []
    where = f"in {len(texts)} of {count(len(rows), 'measurement')}"
    return [
        f"the machine was throttled {where} ({texts[-1]}); check its power supply and its cooling, and measure again"
    ]
