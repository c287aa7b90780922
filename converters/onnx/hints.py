"""Advice for ONNX ops without a rule: an equivalent made of supported ops, or an option of the exporter.
When an op gets a rule, its entry here is removed (tests/test_check.py)."""

from __future__ import annotations

import difflib
import functools

from onnx import defs

from linnet.converters.onnx.registry import MICROSOFT, RULES, find

_OUTSIDE = "compute it outside the model and pass the result as an input"
_UNFUSED = "save the model before ONNX Runtime's transformer optimizer runs, or with optimization_level basic"

# Op type in any domain: the nearest equivalent.
REWRITES: dict[str, str] = {
    "BatchedNMS_TRT": "export the boxes and scores, and select with ai.onnx NonMaxSuppression",
    "EfficientNMS_TRT": "export the boxes and scores, and select with ai.onnx NonMaxSuppression",
    "ImageDecoder": "decode images outside the model; linnet-run reads JPEG and PNG",
    "LabelEncoder": _OUTSIDE,
    "RegexFullMatch": _OUTSIDE,
    "StringConcat": _OUTSIDE,
    "StringNormalizer": _OUTSIDE,
    "StringSplit": _OUTSIDE,
}  # fmt: skip

_DOMAINS = {
    MICROSOFT: _UNFUSED,
    "com.microsoft.nchwc": "save the model with optimization_level extended, not all: this layout is specific to one processor",
    "ai.onnx.ml": "export with tensor ops in place of ai.onnx.ml: Gemm for linear models, Gather and Where for trees",
    "ai.onnx.preview.training": "export the inference graph: training ops are not converted",
    "ai.onnx.training": "export the inference graph: training ops are not converted",
    "org.pytorch.aten": "export with torch.onnx.export(..., dynamo=True), which writes only ONNX ops",
    "aten": "export with torch.onnx.export(..., dynamo=True), which writes only ONNX ops",
    "prim": "export with torch.onnx.export(..., dynamo=True), which writes only ONNX ops",
}

_GENERAL = "replace it with standard ONNX ops, or write a rule (CONTRIBUTING.md)"


@functools.cache
def nearest(op_type: str, domain: str = "", opset: int = 0) -> str:
    """Advice for an op that has no rule at this opset; "" for an op of an unknown domain."""
    parts = []
    if op_type in REWRITES:
        parts.append(REWRITES[op_type])
    if domain in _DOMAINS:
        parts.append(_DOMAINS[domain])
    if domain and defs.has(op_type) and (same := _handled(op_type)):
        since = _since(op_type)
        how = f": export with opset {since} or newer" if opset < since else ""
        parts.append(f"ai.onnx has the op {same!r}, which linnet converts{how}")
    elif similar := _similar(op_type, domain):
        parts.append(f"use {similar!r}, which linnet converts, if it computes the same")
    if not domain and opset and (newer := _newer(op_type, opset)):
        parts.append(f"export with opset {newer} or newer, where linnet converts it")
    return "; ".join(parts) or ("" if domain else _GENERAL)


def _handled(op_type: str) -> str:
    return op_type if op_type in RULES or _body(op_type) else ""


def _body(op_type: str) -> bool:
    schema = defs.get_schema(op_type)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _since(op_type: str) -> int:
    """The opset that introduced the op."""
    return int(
        min(s.since_version for s in defs.get_all_schemas_with_history() if s.name == op_type and s.domain == "")
    )


def _newer(op_type: str, opset: int) -> int:
    """The first opset after `opset` in which the op has a rule or a function body; 0 if there is none."""
    versions = sorted(
        s.since_version for s in defs.get_all_schemas_with_history()
        if s.name == op_type and s.domain == "" and s.since_version > opset and not s.deprecated
        and (find(op_type, s.since_version) or s.has_function)
    )  # fmt: skip
    return versions[0] if versions else 0


def _similar(op_type: str, domain: str) -> str:
    """An op that has a rule and nearly the same name; "" if there is none."""
    names: dict[str, str] = {}
    for key in RULES:
        where, _, name = key.rpartition(":")
        if name != op_type or where != domain:
            names.setdefault(name.lower(), name)
    word = op_type.lower().replace("_", "")
    if word in names:
        return names[word]
    if len(word) >= 5 and (longer := sorted(name for name in names if name.startswith(word))):
        return names[longer[0]]
    found = difflib.get_close_matches(word, names, n=1, cutoff=0.87)
    return names[found[0]] if found else ""
