"""One self-contained HTML page of tables and drawings, without scripts: for comparisons of models, and for the effects
of a quantization."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from linnet.report.page import table_html

if TYPE_CHECKING:
    from rich.table import Table

_STYLE = """
:root { --page: #fff; --ink: #1d2530; --dim: #66717f; --line: #d5dbe3; --one: #1f6feb; --two: #d1731a; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --page: #14181e; --ink: #e3e8ef; --dim: #93a0b0; --line: #333c48; --one: #6ea8ff;
  --two: #f0a45c; --bad: #ff7b72; } }
body { margin: 0 auto; max-width: 70em; padding: 16px 18px; font: 14px/1.45 Arial, Helvetica, sans-serif; color: var(--ink);
  background: var(--page); }
h1 { font-size: 18px; } h2 { font-size: 14px; margin: 22px 0 2px; overflow-wrap: anywhere; }
p { margin: 4px 0; color: var(--dim); overflow-wrap: anywhere; } summary { font-weight: bold; cursor: pointer; }
details { margin-top: 14px; overflow-x: auto; }
table { border-collapse: collapse; margin-top: 4px; font-size: 13px; }
th { text-align: left; color: var(--dim); font-weight: normal; white-space: nowrap; }
th, td { border-bottom: 1px solid var(--line); padding: 3px 12px 3px 0; vertical-align: top; overflow-wrap: anywhere; }
td { min-width: 2.5em; } td:first-child { min-width: 8em; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; display: block; } svg text { font-size: 11px; fill: var(--dim); }
.one { fill: var(--one); } .two { fill: none; stroke: var(--two); stroke-width: 1.5; } .bad { color: var(--bad); }
.range { stroke: var(--two); stroke-width: 3; } .seen { stroke: var(--one); stroke-width: 3; } .axis { stroke: var(--line); }
.outside { fill: var(--bad); opacity: 0.12; }
"""


def page(title: str, lines: Sequence[str], tables: Sequence[Table], drawings: str = "") -> str:
    """The page. lines: plain text at the top. drawings: HTML below the tables."""
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, '
        f'initial-scale=1">\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n'
        + "\n".join(f"<p>{escape(line)}</p>" for line in lines)
        + "\n".join(table_html(made) for made in tables)
        + drawings
        + "\n</html>\n"
    )
