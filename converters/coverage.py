"""Writes the second half of docs/ops.md, which lists the ONNX and TFLite ops that are converted:
`python -m linnet.converters.coverage docs/ops.md`. All facts come from the rules' registrations and source code."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from onnx import FunctionProto, defs

from linnet._generated.op_table import OPS as RUNTIME_OPS
from linnet.converters.onnx import hints
from linnet.converters.onnx import rules as onnx_rules
from linnet.converters.onnx.operation import DTYPES
from linnet.converters.onnx.operation import Operation as OnnxOperation
from linnet.converters.onnx.registry import NEWEST_OPSET, find
from linnet.converters.onnx.registry import RULES as ONNX_RULES
from linnet.converters.tflite import hints as tflite_hints
from linnet.converters.tflite import rules as tflite_rules
from linnet.converters.tflite import schema as tflite_schema
from linnet.converters.tflite.operation import Operation as TfliteOperation
from linnet.converters.tflite.registry import RULES as TFLITE_RULES

BEGIN = "<!-- coverage: `python -m linnet.converters.coverage docs/ops.md` writes everything below -->"
GROUPS = {"floats": ("f16", "f32", "f64", "bf16"), "integers": ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")}
MOST_REFUSALS = 6

__all__ = ["page", "write"]


def page() -> str:
    """The text from the marker to the end of the file."""
    onnx_rules.load()
    tflite_rules.load()
    parts = [BEGIN, "", "# Source ops", "", _HEAD, _onnx(), "", _foreign(), "", _tflite(), ""]
    return "\n".join(parts)


def write(path: Path) -> None:
    """Replaces everything after the marker."""
    path.write_text(path.read_text().partition(BEGIN)[0] + page())


_HEAD = """How the converters translate each op. *Emits*: the runtime ops that the rule, or a function it calls, can emit, before
constants are folded and maps fused. *Refuses*: the problems that the rule can report. Which of ONNX's node cases pass is
listed in [onnx_coverage.md](onnx_coverage.md).
"""


# ---- ONNX


def _onnx() -> str:
    histories: dict[str, list[Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= NEWEST_OPSET:
            histories.setdefault(schema.name, []).append(schema)
    rows, counts = [], {"rule": 0, "function body": 0, "no": 0}
    for name in sorted(histories):
        history = sorted(histories[name], key=lambda s: s.since_version)
        newest = history[-1]
        handled = [s for s in history if not s.deprecated and _handled(s)]
        rule = find(name, NEWEST_OPSET)
        if rule is not None and _only_refuses(rule):
            how, emits, refuses = "no", "", hints.nearest(name)
        elif rule is not None:
            how, emits, refuses = "rule", *_facts(rule, OnnxOperation)
        elif _has_body(newest):
            how, emits, refuses = "function body", _body_ops(newest), ""
        else:
            how, emits, refuses = "no", "", "deprecated" if newest.deprecated else hints.nearest(name)
        counts[how] += 1
        versions = ", ".join(str(s.since_version) for s in handled)
        missing = ", ".join(str(s.since_version) for s in history if s not in handled and not s.deprecated)
        versions += f" (not {missing})" if missing and handled else ""
        rows.append(f"| {name} | {versions} | {how} | {_types(newest) if handled else ''} | {emits} | {refuses} |")
    lines = [
        f"## ONNX, domain ai.onnx, opset 1 to {NEWEST_OPSET}", "",
        f"{counts['rule']} of {len(rows)} ops have a rule, {counts['function body']} are lowered through the function body",
        f"of their definition, and {counts['no']} are not converted. *Versions*: opsets of the definitions that are converted.",
        "*Types*: element types of the first operand that both the definition and linnet support.", "",
        "| op | versions | how | types | emits | refuses, or what to do |", "|---|---|---|---|---|---|", *rows,
    ]  # fmt: skip
    return "\n".join(lines)


def _foreign() -> str:
    names = sorted(key for key in ONNX_RULES if ":" in key)
    lines = ["## ONNX, other domains", "", "| domain | op | emits | refuses |", "|---|---|---|---|"]
    for key in names:
        domain, _, name = key.partition(":")
        emits, refuses = _facts(ONNX_RULES[key][0][1], OnnxOperation)
        lines.append(f"| {domain} | {name} | {emits} | {refuses} |")
    return "\n".join(lines)


def _handled(schema: Any) -> bool:
    rule = find(schema.name, schema.since_version)
    return not _only_refuses(rule) if rule is not None else _has_body(schema)


def _has_body(schema: Any) -> bool:
    return bool(schema.has_function or schema.has_context_dependent_function)


def _body_ops(schema: Any) -> str:
    """The ONNX ops of a function body. The body may depend on the node."""
    if not schema.has_function:
        return "through a body made for the node"
    body = FunctionProto()
    body.ParseFromString(schema.get_function_with_opset_version(max(schema.function_opset_versions)))
    return "by " + ", ".join(sorted({node.op_type for node in body.node} - {"Constant"}))


def _types(schema: Any) -> str:
    """The element types of linnet that the first operand may have."""
    specs = list(schema.inputs) or list(schema.outputs)
    allowed = next(
        (c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == specs[0].type_str), None
    )
    texts = list(allowed) if allowed is not None else [specs[0].type_str]
    names = {"float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
             "double": 11, "uint32": 12, "uint64": 13, "bfloat16": 16}  # fmt: skip
    found = {DTYPES[number] for name, number in names.items() if f"tensor({name})" in texts}
    words = []
    for group, members in GROUPS.items():
        if found.issuperset(members):
            words.append(group)
            found -= set(members)
    words += [name for name in (*GROUPS["floats"], *GROUPS["integers"], "bool") if name in found]
    words += ["sequences"] if any(text.startswith("seq(") for text in texts) else []
    words += ["optionals"] if any(text.startswith("optional(") for text in texts) else []
    words += ["4-bit types (storage only)"] if "tensor(int4)" in texts else []
    return ", ".join(words)


# ---- TFLite


def _tflite() -> str:
    rows = []
    for name in sorted({*tflite_schema.OPS, *TFLITE_RULES}):
        rule = TFLITE_RULES.get(name)
        emits, refuses = _facts(rule, TfliteOperation) if rule is not None else ("", tflite_hints.nearest(name))
        rows.append(f"| {name} | {'rule' if rule is not None else 'no'} | {emits} | {refuses} |")
    covered = sum(op in TFLITE_RULES for op in tflite_schema.OPS)
    lines = [
        "## TFLite", "",
        f"{covered} of the {len(tflite_schema.OPS)} builtin ops have a rule.",
        "[tflite.md](tflite.md) describes their numeric results.",
        "", "| op | how | emits | refuses, or what to do |", "|---|---|---|---|", *rows,
    ]  # fmt: skip
    return "\n".join(lines)


# ---- the ops that a rule emits, and the problems that it reports


def _facts(rule: Callable[..., Any], operation: type) -> tuple[str, str]:
    """Two table cells: the runtime ops that a rule can emit, in the order of the op table, and the problems that it can
    report."""
    emitted: set[str] = set()
    refused: list[str] = []
    for op, text in _walk(rule, operation, frozenset()):
        emitted |= {op} if op else set()
        refused += [text] if text and text not in refused else []
    more = f" ...and {len(refused) - MOST_REFUSALS} more" if len(refused) > MOST_REFUSALS else ""
    return ", ".join(op for op in RUNTIME_OPS if op in emitted), "; ".join(refused[:MOST_REFUSALS]).replace(
        "|", "\\|"
    ) + more


def _walk(function: Any, operation: type, above: frozenset[Any]) -> Iterator[tuple[str, str]]:
    """Walks through a function and the functions that it calls. Yields ("op", "") for each op that they can emit, and
    ("", "reason") for each refusal."""
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType) or function in above or not function.__module__.startswith("linnet."):
        return
    above |= {function}
    for node in ast.walk(_tree(function)):
        if isinstance(node, ast.Name) and isinstance(called := function.__globals__.get(node.id), FunctionType):
            yield from _walk(called, operation, above)
        if not isinstance(node, ast.Call):
            continue
        callee, first = node.func, node.args[0] if node.args else None
        name = callee.attr if isinstance(callee, ast.Attribute) else callee.id if isinstance(callee, ast.Name) else ""
        if name in ("emit", "emit_all", "emitted") and isinstance(first, ast.Constant) and first.value in RUNTIME_OPS:
            yield str(first.value), ""
        elif name == "map" or name == "pointwise":
            yield "map", ""
        elif name in ("unsupported", "Unsupported") and first is not None and ".rules." in function.__module__:
            yield "", _text(first)
        elif isinstance(callee, ast.Attribute) and isinstance(method := getattr(operation, name, None), FunctionType):
            yield from _walk(method, operation, above)


@functools.cache
def _tree(function: Any) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _only_refuses(rule: Callable[..., Any]) -> bool:
    """Whether a rule only refuses the op. Such rules exist to give a better message than "there is no rule"."""
    body = list(_tree(inspect.unwrap(rule)).body[0].body)  # type: ignore[attr-defined]
    if isinstance(body[0], ast.Expr):  # a docstring
        del body[0]
    return len(body) == 1 and isinstance(body[0], ast.Raise)


def _text(node: ast.expr) -> str:
    """A message as written in the source; filled-in values become a name or "..."."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant)
            else f"<{part.value.id}>" if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) else "..."
            for part in node.values
        )  # fmt: skip
    return ""


if __name__ == "__main__":
    write(Path(sys.argv[1]))
