"""The tables of `linnet top`. They show the reports of a job's servers (docs/protocol.md, REPORT), with rates computed
from two reports. This module only computes and draws; linnet.cli.top polls the servers."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

Report = Mapping[str, Any]
_SLOW = 2 / 3  # of the median speed; a slower worker is a straggler


@dataclasses.dataclass(frozen=True)
class Row:
    """A worker, combined over all servers of its job. Rates are per second between the last two reports; None: not
    known yet.

    state: "computing", "pushed" (waits for others at its barrier), "held" (too far ahead), "awaited" (all others have
    pushed), "lost" (a member without a connection), "left". slow: for a straggler, its speed divided by the median
    speed; else None. rival: the address of another process that wants the same number and is refused, or "".
    """

    worker: int
    name: str
    peer: str
    group: int
    step: int
    state: str
    steps_per_s: float | None
    examples_per_s: float | None
    share: int
    staleness: int
    late: int
    not_finite: int
    loss: float | None
    sent_per_s: float | None
    received_per_s: float | None
    silent_s: float
    slow: float | None
    rival: str = ""


def rows(reports: Sequence[Report], before: Sequence[Report] = ()) -> list[Row]:
    """The workers of a job from the reports of its servers, ordered by number. Steps come from the first report; bytes
    are summed over all servers. before: the previous reports of the same servers in the same order."""
    first = reports[0]
    speeds = {w["worker"]: w["examples_per_s"] for w in first["workers"] if w["member"] and w["examples_per_s"]}
    median = statistics.median(speeds.values()) if speeds else 0.0
    groups = {group["group"]: group for group in first["groups"]}
    seconds = _elapsed(first, before[0]) if before else None
    earlier = {w["worker"]: w for w in before[0]["workers"]} if seconds else {}
    found = []
    for w in sorted(first["workers"], key=lambda entry: int(entry["worker"])):
        number = w["worker"]
        old = earlier.get(number)
        speed = speeds.get(number)
        slow = speed / median if speed is not None and len(speeds) > 2 and speed < _SLOW * median else None
        counted = w["applied"] + w["late"] + w["not_finite"]
        rate = None
        if old is not None and seconds:
            rate = max(counted - old["applied"] - old["late"] - old["not_finite"], 0) / seconds
        found.append(
            Row(
                number, w["name"], w["peer"], w["group"], w["step"], _state(w, groups.get(w["group"])), rate, speed,
                w["examples"], w["staleness"], w["late"], w["not_finite"], w["loss"],
                _worker_rate(reports, before, number, "sent"), _worker_rate(reports, before, number, "received"),
                w["silent_s"] or 0.0, slow, _rival(reports, number),
            )
        )  # fmt: skip
    return found


_RECENT = 30.0  # seconds after which a process that was refused has given up


def _rival(reports: Sequence[Report], number: int) -> str:
    """The last process that a server has refused in favour of this worker, if it still tries."""
    entries = [w for report in reports for w in report["workers"] if w["worker"] == number]
    return next((str(w["rival"]) for w in entries if w.get("rivals") and (w["rival_s"] or 0.0) < _RECENT), "")


def _state(worker: Mapping[str, Any], group: Mapping[str, Any] | None) -> str:
    if not worker["member"]:
        return "left"
    if not worker["connected"]:
        return "lost"
    if worker["held"]:
        return "held"
    if worker["pushed"]:
        return "pushed"
    others = group["members"] - 1 if group is not None else 0
    return "awaited" if group is not None and others > 0 and group["pushed"] >= others else "computing"


def _elapsed(now: Report, then: Report) -> float | None:
    """Seconds between two reports of one server. None if the server was restarted in between."""
    if now["epoch"] != then["epoch"] or not now["uptime_s"] or now["uptime_s"] <= (then["uptime_s"] or 0):
        return None
    return float(now["uptime_s"] - then["uptime_s"])


def _rate(now: Report, then: Report | None, key: str) -> float | None:
    seconds = None if then is None else _elapsed(now, then)
    return None if then is None or seconds is None else float(max(now[key] - then[key], 0) / seconds)


def _worker_rate(reports: Sequence[Report], before: Sequence[Report], number: int, key: str) -> float | None:
    """Bytes per second on a worker's connections to all servers. None if one of them is unknown."""
    total = 0.0
    for i, now in enumerate(reports):
        then = before[i] if i < len(before) else None
        seconds = None if then is None else _elapsed(now, then)
        entries = [next((w for w in r["workers"] if w["worker"] == number), None) for r in (now, then) if r is not None]
        if seconds is None or len(entries) < 2 or entries[0] is None or entries[1] is None:
            return None
        total += max(entries[0][key] - entries[1][key], 0) / seconds
    return total


def view(
    reports: Sequence[Report], before: Sequence[Report] = (), trouble: Sequence[str] = (), limit: int | None = None,
    width: int | None = None,
) -> RenderableType:  # fmt: skip
    """The dashboard: a line about the job, a table of its servers, a table of its workers, and current problems
    (`trouble`). limit: maximum number of lines. If there are more servers and workers, only their number is shown;
    workers that delay others come first. width: characters of a line. The least important columns are left out until
    the tables fit."""
    from rich.console import Group
    from rich.text import Text

    def line(text: str, style: str = "") -> Text:
        return Text(text, style, no_wrap=True, overflow="ellipsis")

    parts: list[RenderableType] = []
    if reports:
        found = rows(reports, before)
        servers, workers = _shares(len(reports), len(found), None if limit is None else limit - len(trouble))
        shown = sorted(found, key=_concern)[:workers]
        parts.append(line(_headline(reports[0])))
        parts.append(_servers(reports[:servers], before, width))
        if servers < len(reports):
            parts.append(line(f"... and {len(reports) - servers:,} other servers"))
        parts.append(_workers(sorted(shown, key=lambda row: row.worker), width))
        if len(shown) < len(found):
            parts.append(line(_others(found, shown)))
    parts += [line(text, "red") for text in trouble]
    return Group(*parts)


_FRAME = 5  # lines of a table besides its rows: the title, the names of the columns, three borders


def _shares(servers: int, workers: int, lines: int | None) -> tuple[int, int]:
    """How many servers and workers fit into this many lines, together with the headline and a line for those left
    out."""
    if lines is None:
        return servers, workers
    room = lines - 1 - 2 * _FRAME
    if servers + workers > room:
        most = max(room // 3, 1)
        if servers > most:
            servers = max(most - 1, 1)
            room -= 1
        if servers + workers > room:
            workers = max(room - servers - 1, 1)
    return servers, workers


def _fitted(
    title: str, columns: Sequence[tuple[str, int]], cells: Sequence[Sequence[str]], styles: Sequence[str | None],
    width: int | None,
) -> RenderableType:  # fmt: skip
    """A table with one line per row. columns: name and rank; columns of the highest rank are left out first."""
    from linnet.report.tables import table

    shown = list(range(len(columns)))
    widths = [max(len(columns[i][0].lstrip(">")), *(len(row[i]) for row in cells), 1) for i in shown]
    while width is not None and sum(widths[i] + 3 for i in shown) + 1 > width and len(shown) > 1:
        shown.remove(max(shown, key=lambda i: (columns[i][1], i)))
    made = table(title, *(columns[i][0] for i in shown))
    for column in made.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    for row, style in zip(cells, styles, strict=True):
        made.add_row(*(row[i] for i in shown), style=style)
    return made


_ORDER = ("lost", "awaited", "held", "computing", "pushed", "left")


def _concern(row: Row) -> tuple[int, float, int]:
    """Sort key: how much a worker delays others."""
    return _ORDER.index(row.state) if not row.rival else 0, row.slow if row.slow is not None else 1.0, row.worker


def _others(found: Sequence[Row], shown: Sequence[Row]) -> str:
    seen = {row.worker for row in shown}
    rest = [row for row in found if row.worker not in seen]
    states = [(sum(row.state == state for row in rest), state) for state in _ORDER]
    return f"... and {len(rest):,} others: " + ", ".join(f"{count:,} {state}" for count, state in states if count)


def _headline(report: Report) -> str:
    rule = report["mode"]
    if report["quorum"]:
        rule += f", {report['quorum']} of {report['workers_wanted']} complete a step"
    if report["mode"] == "asynchronous":
        rule += ", staleness unbounded" if report["bound"] < 0 else f", staleness at most {report['bound']}"
    wanted = "" if report["elastic"] else f" of {report['workers_wanted']}"
    return f"job {report['job'][:12]}  {rule}  {report['members']}{wanted} workers  up {_time(report['uptime_s'])}"


def _servers(reports: Sequence[Report], before: Sequence[Report], width: int | None) -> RenderableType:
    from linnet.report.tables import size

    columns = (
        ("shard", 0), (">updates", 0), (">updates/s", 1), (">update ms", 2), (">in/s", 1), (">out/s", 1), (">late", 3),
        (">not finite", 5), (">refused", 6), (">memory", 4), (">saved + journal", 7), (">epoch", 8),
    )  # fmt: skip
    cells = []
    for i, report in enumerate(reports):
        then = before[i] if i < len(before) else None
        busy = _rate(report, then, "update_s")
        updates = _rate(report, then, "version")
        cells.append(
            (
                f"{report['shard']}/{report['shards']}", f"{report['version']:,}", _number(updates),
                _number(1e3 * busy / updates if busy is not None and updates else None),
                _bytes(_rate(report, then, "received")), _bytes(_rate(report, then, "sent")), str(report["late"]),
                str(report["not_finite"]), str(report["refused"]), f"{size(report['bytes'])} of {size(report['max_bytes'])}",
                f"{report['saved_version']:,} + {report['journal']:,}", str(report["epoch"]),
            )
        )  # fmt: skip
    return _fitted("Servers", columns, cells, [None] * len(cells), width)


_NAME = 20  # characters of a worker's name


def _workers(found: Sequence[Row], width: int | None) -> RenderableType:
    columns: tuple[tuple[str, int], ...] = (
        (">#", 0), ("name", 4), ("peer", 9), (">group", 5), (">step", 0), ("state", 0), (">steps/s", 1), (">examples/s", 2),
        (">share", 8), (">stale", 6), (">late", 5), (">loss", 3), (">in/s", 7), (">out/s", 7),
    )  # fmt: skip
    if len({row.group for row in found}) < 2:
        columns = tuple(column for column in columns if column[0] != ">group")
    colours = {"lost": "red", "left": "dim", "awaited": "yellow", "held": "cyan"}
    cells, styles = [], []
    for row in found:
        state = row.state + (f" {row.silent_s:.0f} s" if row.state == "lost" else "")
        if row.slow is not None:
            state += f", slow ({row.slow:.2f}x)"
        if row.rival:
            state += f"; {row.rival} waits for this number"
        cell = {
            ">#": str(row.worker), "peer": row.peer, ">group": str(row.group), ">step": f"{row.step:,}", "state": state,
            "name": row.name if len(row.name) <= _NAME else row.name[: _NAME - 1] + "…",
            ">steps/s": _number(row.steps_per_s), ">examples/s": _number(row.examples_per_s),
            ">share": str(row.share or ""), ">stale": str(row.staleness),
            ">late": str(row.late) + (f" + {row.not_finite} not finite" if row.not_finite else ""),
            ">loss": "" if row.loss is None else f"{row.loss:.4g}", ">in/s": _bytes(row.received_per_s),
            ">out/s": _bytes(row.sent_per_s),
        }  # fmt: skip
        cells.append([cell[name] for name, _ in columns])
        styles.append(
            "yellow" if (row.slow is not None or row.rival) and row.state not in colours else colours.get(row.state)
        )
    return _fitted("Workers", columns, cells, styles, width)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bytes(value: float | None) -> str:
    from linnet.report.tables import size

    return "" if value is None else size(round(value))


def _time(seconds: float | None) -> str:
    whole = round(seconds or 0)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
