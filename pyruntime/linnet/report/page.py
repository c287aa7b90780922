"""A Report as one self-contained HTML page: tables on the left, the drawn graph on the right (report.html is the
template). All text from the model is escaped, because a name may contain anything."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from html import escape
from importlib.resources import files
from typing import Any

from linnet._generated.op_table import OPS
from linnet.ir.node_names import node_names
from linnet.report import drawing
from linnet.report import text as report_text
from linnet.report.contents import Contents, is_reference
from linnet.report.drawing import NO_DRAWING, draw
from linnet.report.tables import shortened

# The colour class of each family of ops on the page. All other ops only move numbers.
FAMILIES = {
    "product": "heavy",
    "recurrent": "heavy",
    "map": "pointwise",
    "reduction": "reduce",
    "norm": "reduce",
    "window": "reduce",
    "control": "control",
    "variable": "control",
    "conversion": "numbers",
}
LEGEND = {
    "heavy": "products and convolutions", "pointwise": "pointwise (map)", "reduce": "reductions, norms, pools",
    "move": "movement", "control": "control flow, state", "numbers": "casts, quantization",
    "folded": "folded, or part of another step",
    "problem": "cannot be converted",
}  # fmt: skip


def _family(op: str) -> str:
    return FAMILIES.get(OPS[op]["family"], "move")


def page(report: Contents) -> str:
    """The whole page. It has no drawing if the extra `report` is not installed."""
    details = _details(report)
    families = [d["family"] for d in details]
    legend = "".join(
        f'<span class="key {kind}">{escape(text)}</span>' for kind, text in LEGEND.items() if kind in families
    )
    frame = (files("linnet.report") / "report.html").read_text(encoding="utf-8")
    state = "bad" if report.problems else "warn" if report.concerns else "good"
    parts = {
        "TITLE": escape(f"{report.model}: {report}"),
        "STATE": state,
        "SUMMARY": escape(str(report)),
        "LINES": "".join(f"<p>{escape(line)}</p>" for line in report_text.lines(report)[1:]),
        "TABLES": "".join(table_html(t) for t in report_text.tables(report)),
        "LEGEND": legend,
        "DETAILS": json.dumps(details).replace("<", "\\u003c"),
        "GRAPH": draw(report.outline, families)
        if drawing.installed()
        else f'<p class="missing">{escape(NO_DRAWING)}</p>',
    }
    for key, text in parts.items():  # insert the values last, so that keys are not looked for inside them
        frame = frame.replace(f"<!--{key}-->", text, 1)
    return frame


_LETTERS = 40  # of a name in a table; the tooltip has the rest of a longer one


def table_html(table: Any) -> str:
    """A rich table as HTML. Long names are shortened in the middle, and a tooltip shows them in full."""
    right = [column.justify == "right" for column in table.columns]
    head = "".join(
        f"<th{' class=n' if r else ''}>{escape(str(c.header))}</th>" for c, r in zip(table.columns, right, strict=True)
    )
    columns = [_cells([str(cell) for cell in c.cells], r) for c, r in zip(table.columns, right, strict=True)]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True))
    return f"<details open><summary>{escape(str(table.title))}</summary><table><tr>{head}</tr>{rows}</table></details>"


def _cells(texts: list[str], number: bool) -> list[str]:
    """The cells of a column. Names may be broken after the characters that separate their parts."""
    if number:
        return [f"<td class=n>{escape(text)}</td>" for text in texts]
    short = shortened((text for text in texts if not re.search(r"\s", text)), _LETTERS)
    made = []
    for text in texts:
        shown = re.sub(r"([_/;:.]+)(?=\w)", "\\1\0", short.get(text, text))
        title = f' title="{escape(text)}"' if short.get(text, text) != text else ""
        made.append(f"<td{title}>{escape(shown).replace(chr(0), '<wbr>').replace(chr(10), '<br>')}</td>")
    return made


def _details(report: Contents) -> list[dict[str, Any]]:
    """The data that the page shows for a source node when it is clicked."""
    functions = report.graph.functions if report.graph is not None else []
    nodes = [n for f in functions for n in f.nodes]
    step_names = [name for f in functions for name in node_names(f.nodes)]
    made: dict[str, list[Any]] = defaultdict(list)
    source_of: dict[str, list[str]] = {}
    for node, step_name in zip(nodes, step_names, strict=True):
        sources = node.source.split("+")
        for source in sources:
            made[source].append(node)
        for name in (step_name, *(t.name for t in node.outputs)):
            source_of.setdefault(name, sources)
    shapes = {t.name: t.shape for node in nodes for t in node.outputs}
    steps: dict[str, list[Any]] = defaultdict(list)
    for step in report.steps:
        for name in (step.name, *step.fused.split("+")):
            for source in source_of.get(name, ()):
                if step not in steps[source]:
                    steps[source].append(step)
    details = []
    for entry in report.outline.nodes:
        if not entry.note and (shape := next((shapes[o] for o in entry.outputs if shapes.get(o)), None)):
            entry.note = "x".join("?" if d is None else str(d) for d in shape)
        names = {entry.label, *entry.inside}
        problems = [p for p in report.problems if p.node in names and (p.op == entry.op or p.node in entry.inside)]
        concerns = [c for c in report.concerns if entry.source in c.node.split("+")]
        runtime = made[entry.source]
        op = next((n.op for n in runtime if _family(n.op) == "heavy"), runtime[0].op if runtime else "")
        family = "problem" if problems else _family(op) if op else "folded"
        details.append(
            {
                "op": entry.op, "name": entry.label, "family": family, "shape": entry.note,
                "inputs": entry.inputs, "outputs": entry.outputs,
                "runtime": [f"{n.op} -> {n.outputs[0]!r}" for n in runtime],
                "steps": [
                    f"{s.name}: {s.kernel} on {s.device}, {s.flops / 1e6:.3f} MFLOP, {s.bytes / 1e3:.1f} kB"
                    + (f", {s.ms:.4f} ms" if s.runs else "")
                    + (" (scalar reference kernel)" if is_reference(s.kernel) else "")
                    for s in steps[entry.source]
                ],
                "problems": [f"{p.reason}. {p.hint}" for p in problems],
                "concerns": [f"{c.tensor}: {c.text}" if c.tensor else c.text for c in concerns],
            }
        )  # fmt: skip
    return details
