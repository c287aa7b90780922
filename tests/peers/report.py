"""The figures of `python -m tests.peers` as JSON, as the section of docs/benchmarks.md, and as bars (SVG).
A report is what `collected` gives and docs/peers.json holds; each row is one engine, network and thread count."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.peers import load, measure
from tests.peers.machine import machine

ROOT = Path(__file__).resolve().parent.parent.parent
JSON = ROOT / "docs" / "peers.json"
SVG = ROOT / "docs" / "peers.svg"
README = ROOT / "README.md"
_KEYS = ("processor", "cores", "system", "isa", "date", "command")

Report = Mapping[str, Any]
Row = Mapping[str, Any]


def collected(
    cases: Sequence[measure.Case],
    engines: Mapping[str, Mapping[str, Any]],
    rounds: int,
    seconds: float,
    isa_max: str | None,
) -> dict[str, Any]:
    """The report of measured cases."""
    about = machine("tests.peers")
    rows = [case.row() for case in cases]
    shares = [found["share"] for case in cases for found in case.rounds if load.disturbed(found)]
    return {
        "machine": {key: about[key] for key in _KEYS},
        "engines": engines,
        "rounds": rounds,
        "seconds": seconds,
        "isa_max": isa_max,
        "disturbed_share": min(shares, default=None),
        "rows": rows,
    }


def dumped(report: Report) -> str:
    """JSON with one row on a line, so that a change of one figure is a change of one line."""
    head = json.dumps({key: value for key, value in report.items() if key != "rows"}, indent=1, sort_keys=True)
    rows = ",\n".join(f"  {json.dumps(row, sort_keys=True)}" for row in report["rows"])
    return f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'


def read() -> Report | None:
    """The committed report; None if there is none yet."""
    if not JSON.is_file():
        return None
    found: Report = json.loads(JSON.read_text())
    return found


def names(report: Report, key: str) -> list[Any]:
    """The networks, engines or thread counts of a report, in their order."""
    return list(dict.fromkeys(row[key] for row in report["rows"]))


def ratio(report: Report, network: str, threads: int) -> tuple[float, str] | None:
    """linnet's minimum divided by that of the fastest peer, and the peer's name; None if either has no figures."""
    times = {
        row["engine"]: row["min_ms"]
        for row in report["rows"]
        if (row["network"], row["threads"]) == (network, threads) and "error" not in row
    }
    own = times.pop("linnet", None)
    if own is None or not times:
        return None
    best = min(times, key=lambda engine: times[engine])
    return own / times[best], best


def mean_ratio(report: Report, threads: int, int8: bool) -> float | None:
    """The geometric mean over the networks at f32 or at int8; None if there are none."""
    found = [
        ratio(report, network, threads) for network in names(report, "network") if network.endswith("_int8") == int8
    ]
    logs = [math.log(entry[0]) for entry in found if entry]
    return math.exp(sum(logs) / len(logs)) if logs else None


# ---- the table of README.md -------------------------------------------------------------------------------------------

MARKS = ("<!-- peers: `make bench-peers` writes it -->", "<!-- end of peers -->")


def summary(report: Report) -> str:
    """The table of README.md: linnet's time, and that of the fastest peer, for each network and number of threads."""
    about, counts = report["machine"], names(report, "threads")
    cells = [f"linnet, {_threads(n)} | fastest other | ratio" for n in counts]
    lines = [f"| milliseconds a run | {' | '.join(cells)} |", "|---|" + "---:|---|---:|" * len(counts)]
    for network in names(report, "network"):
        row = [network]
        for count in counts:
            found = ratio(report, network, count)
            if found is None:
                row += ["-", "-", "-"]
                continue
            own = next(r["min_ms"] for r in report["rows"] if _is(r, network, count, "linnet"))
            row += [_rounded(own), f"{_rounded(own / found[0])} {found[1]}", f"{found[0]:.2f}"]
        lines.append(f"| {' | '.join(row)} |")
    means = []
    for count in counts:
        both = [mean_ratio(report, count, int8) for int8 in (False, True)]
        means.append(" / ".join(f"{mean:.2f}" for mean in both if mean is not None))
    lines.append("| geometric mean, f32 / int8 | " + " | ".join(f"| | **{mean}**" for mean in means) + " |")
    where = ", ".join(about[key] for key in ("processor", "cores", "isa", "date"))
    return "\n".join(
        [f"{where}, batch 1, minima of {report['rounds']} processes. Less than 1: linnet is faster.", "", *lines]
    )


def _is(row: Row, network: str, threads: int, engine: str) -> bool:
    return (row["network"], row["threads"], row["engine"]) == (network, threads, engine)


def _rounded(ms: float) -> str:
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


def in_readme(text: str, report: Report) -> str:
    """The text of README.md with the table of this report."""
    before, rest = text.split(MARKS[0])
    return f"{before}{MARKS[0]}\n\n{summary(report)}\n\n{MARKS[1]}{rest.split(MARKS[1])[1]}"


# ---- the section of the page ---------------------------------------------------------------------------------------


def section(report: Report) -> str:
    """The section "Beside other runtimes" of docs/benchmarks.md."""
    about, counts = report["machine"], names(report, "threads")
    share = report["disturbed_share"]
    lines = [
        "## Beside other runtimes", "",
        ", ".join(about[key] for key in ("processor", "cores", "system", "isa", "date")) + f": `{about['command']}`.", "",
        f"Each figure is from {report['rounds']} fresh processes of {report['seconds']:g} seconds; engines take turns. The time",
        "covers setting the input, a run, and getting the output, at batch 1. The networks have random weights.",
        *(["Engines are kept to " + report["isa_max"] + "."] if report["isa_max"] else []),
        *(["**The machine was busy** with other work: a process got as little as "
           f"{share:.2f} of the processor time that it asked for."] if share is not None else []),
        "", "![Times relative to linnet's](peers.svg)", "",
    ]  # fmt: skip
    for count in counts:
        lines += [f"### Ratios, {_threads(count)}", "", "linnet's minimum divided by that of the fastest peer.", ""]
        lines += [*_ratios(report, count), ""]
    for count in counts:
        lines += [f"### Times, {_threads(count)}", "", "Milliseconds: minimum / median / 95th percentile.", ""]
        lines += [*_table(report, count, _times), ""]
    first = counts[0]
    lines += [f"### Load, cold start, memory, {_threads(first)}", ""]
    lines += [
        "Milliseconds to import the engine and load the file / from the start of a Python process to the first result, and"
    ]
    lines += ["peak resident MB above Python with NumPy.", "", *_table(report, first, _costs), ""]
    lines += [f"### Differences, {_threads(first)}", ""]
    lines += ["The largest difference from ONNX Runtime's results at f32, as a fraction of their range.", ""]
    lines += [*_table(report, first, _difference), "", *_engines(report), *_failures(report)]
    return "\n".join(lines)


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def _ratios(report: Report, threads: int) -> list[str]:
    lines = ["| network | ratio | fastest peer |", "|---|---|---|"]
    for network in names(report, "network"):
        found = ratio(report, network, threads)
        lines.append(f"| {network} | {found[0]:.2f} | {found[1]} |" if found else f"| {network} | - | - |")
    for int8 in (False, True):
        mean = mean_ratio(report, threads, int8)
        if mean is not None:
            lines.append(f"| **geometric mean, {'int8' if int8 else 'f32'}** | **{mean:.2f}** | |")
    return lines


def _table(report: Report, threads: int, cell: Any) -> list[str]:
    engines = names(report, "engine")
    rows = {(row["network"], row["engine"]): row for row in report["rows"] if row["threads"] == threads}
    lines = [f"| network | {' | '.join(engines)} |", "|" + "---|" * (len(engines) + 1)]
    for network in names(report, "network"):
        given = {engine: rows.get((network, engine), {"error": ""}) for engine in engines}
        measured = [row["min_ms"] for row in given.values() if "error" not in row]
        cells = ["fails" if "error" in row else cell(row, min(measured)) for row in given.values()]
        lines.append(f"| {network} | {' | '.join(cells)} |")
    return lines


def _times(row: Row, best: float) -> str:
    text = f"{row['min_ms']:.2f} / {row['median_ms']:.2f} / {row['p95_ms']:.2f}"
    return f"**{text}**" if row["min_ms"] == best else text


def _costs(row: Row, _best: float) -> str:
    return f"{row['load_ms']:.0f} / {row['cold_ms']:.0f}, {row['peak_mb']:.0f}"


def _difference(row: Row, _best: float) -> str:
    return f"{row['difference'] / row['range']:.1e}" if row.get("range") else "-"


def _engines(report: Report) -> list[str]:
    lines = ["### Engines", "", "| engine | version | installed in, s | environment, MB |", "|---|---|---|---|"]
    for engine in names(report, "engine"):
        facts = report["engines"][engine]
        seconds, size = facts.get("seconds"), facts.get("megabytes")
        version = facts.get("version", "cannot be installed")
        lines.append(f"| {engine} | {version} | {'-' if seconds is None else f'{seconds:.0f}'} | {size or '-'} |")
    return [*lines, ""]


def _failures(report: Report) -> list[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for row in report["rows"]:
        if "error" in row:
            networks = found.setdefault((row["engine"], row["error"]), [])
            if row["network"] not in networks:
                networks.append(row["network"])
    if not found:
        return []
    lines = [f"- {engine} on {', '.join(networks)}: `{text}`" for (engine, text), networks in found.items()]
    return ["### What fails", "", *lines, ""]


# ---- the plot ------------------------------------------------------------------------------------------------------

_COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")
_BAR, _GAP, _LEFT, _WIDTH, _MOST = 7, 10, 150, 330, 2.5


def svg(report: Report) -> str:
    """Bars of each engine's minimum divided by linnet's, a column per thread count. Bars longer than 2.5 end in a number."""
    engines, networks, counts = (names(report, key) for key in ("engine", "network", "threads"))
    colours = dict(zip(engines, _COLOURS, strict=False))
    step = len(engines) * _BAR + _GAP
    height, width = 50 + step * len(networks), _LEFT + len(counts) * (_WIDTH + 50)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i, engine in enumerate(engines):
        x = 10 + i * 95
        parts.append(f'<rect x="{x}" y="6" width="10" height="10" fill="{colours[engine]}"/>')
        parts.append(f'<text x="{x + 14}" y="15">{engine}</text>')
    for i, network in enumerate(networks):
        parts.append(f'<text x="{_LEFT - 6}" y="{50 + i * step + step // 2 - 2}" text-anchor="end">{network}</text>')
    times = {(r["network"], r["engine"], r["threads"]): r["min_ms"] for r in report["rows"] if "error" not in r}
    scale = _WIDTH / _MOST
    for column, count in enumerate(counts):
        left = _LEFT + column * (_WIDTH + 50)
        parts.append(f'<text x="{left}" y="36" font-weight="bold">time / time of linnet, {_threads(count)}</text>')
        for i, network in enumerate(networks):
            own = times.get((network, "linnet", count))
            for j, engine in enumerate(engines):
                value, y = times.get((network, engine, count)), 44 + i * step + j * _BAR
                if own is None or value is None:
                    continue
                relative = value / own
                length = scale * min(relative, _MOST)
                parts.append(
                    f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{_BAR - 1}" fill="{colours[engine]}"/>'
                )
                if relative > _MOST:
                    parts.append(f'<text x="{left + length + 3:.1f}" y="{y + 6}" font-size="8">{relative:.1f}</text>')
        one = left + scale
        parts.append(
            f'<line x1="{one:.1f}" y1="40" x2="{one:.1f}" y2="{height - 8}" stroke="black" stroke-dasharray="3 3"/>'
        )
    return "\n".join([*parts, "</svg>", ""])


def write(report: Report) -> None:
    """Writes the files of docs/ and the page that is made from them."""
    from tests import benchmark_page

    JSON.write_text(dumped(report))
    SVG.write_text(svg(report))
    benchmark_page.write()
    README.write_text(in_readme(README.read_text(), report))
