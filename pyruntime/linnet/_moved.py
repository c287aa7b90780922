"""Modules of earlier layouts, and what to use instead of them. linnet looks here only for a module or name that it
cannot find elsewhere."""

from __future__ import annotations

_ERRORS = "linnet.Error, linnet.UsageError, ... (linnet.clib.errors has them)"
_MAPS = "linnet.pointwise and linnet.ops (linnet.ir.expr has Expr, linnet.builder.mapping makes the nodes)"
_COMMAND = "the command linnet, or python -m linnet"
MOVED = {
    "bench": "linnet.session.bench",
    "body": "linnet.ir.body",
    "bounding": "linnet.session.bounding",
    "bounds": "linnet.Session(..., bounds=...) (linnet.session.bounds reads them)",
    "calibrate": "linnet.quantize (linnet.quantization.calibrate takes the ranges)",
    "checkpoint": "linnet.Checkpoint and linnet.load_checkpoint",
    "cli_sync_key": "linnet.cli.sync_key",
    "concerns": "linnet.check (linnet.report.concerns finds them)",
    "control": "linnet.cond, linnet.scan and linnet.while_loop",
    "converters.onnx.export": "linnet.Graph.to_onnx (linnet.converters.export)",
    "drawing": "linnet.report.drawing",
    "elementwise": "linnet.ops",
    "errors": _ERRORS,
    "finetune": "linnet.training.finetune",
    "graph": "linnet.Graph, linnet.Tensor, ... (linnet.ir.function has emit, linnet.ir.dtypes the element types)",
    "growth": "linnet.session.growth",
    "inspect_": "linnet inspect (linnet.report.inspect)",
    "mapping": _MAPS,
    "media": "linnet.data.media",
    "model": "linnet.Model, linnet.Store, linnet.load_device and linnet.isa_names",
    "native": "linnet.cli.native",
    "operators": "Python's operators on linnet.Tensor",
    "outline": "linnet.converters.outline",
    "planner": "linnet.session.planner",
    "quantization_table": "linnet.quantization.table",
    "quantize": "linnet.quantize, the function",
    "quantize_aware": "linnet.quantize_aware, the function",
    "report_page": "linnet.Report.to_html",
    "report_text": "linnet.report.text",
    "results": "linnet.cli.results",
    "running": "linnet.session.running",
    "shaping": "linnet.ops",
    "straight_through": "linnet.stop_gradient",
    "symbolic": "linnet.ir.symbolic",
    "tables": "linnet.report.tables",
    **dict.fromkeys(
        ("cli_launch", "cli_serve", "cli_simulate", "cli_split", "cli_sync", "cli_timeline", "cli_top", "cli_training",
         "cli_verify", "cli_worker"), _COMMAND,
    ),
}  # fmt: skip


def message(name: str) -> str | None:
    """What to use instead of a module that was called linnet.`name`; None if there was no such module."""
    instead = MOVED.get(name)
    return None if instead is None else f"linnet.{name} has moved: use {instead}"
