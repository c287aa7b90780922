"""What to do about an ONNX op that has no rule: another spelling in ops that have one, or an option of the exporter.
Only asked when a rule is missing, so an entry that a new rule makes superfluous does no harm."""

from __future__ import annotations

import difflib

from onnx import defs

from linnet.converters.onnx.registry import MICROSOFT, RULES, find

_OUTSIDE = "do it outside of the model, and feed the numbers"
_SEQUENCE = "give the parts as separate outputs, or Concat them along a new axis"
_RANDOM = "feed random numbers as an input: results are then repeatable too"
_UNFUSED = "save the model before ONNX Runtime's transformer optimizer (or with optimization_level basic)"

# Op type, of any domain: the nearest spelling.
REWRITES: dict[str, str] = {
    "Bernoulli": f"{_RANDOM}: Less(random, p)",
    "BatchedNMS_TRT": "export the boxes and scores, and select with ai.onnx NonMaxSuppression",
    "Col2Im": "ConvTranspose with a constant one-hot weight, which is the same sum of overlapping patches",
    "DeformConv": "GridSample at the shifted positions of each kernel tap, then one Conv of kernel 1 over the samples",
    "Det": "2x2 and 3x3 determinants are a few Mul and Sub of Gather results",
    "EfficientNMS_TRT": "export the boxes and scores, and select with ai.onnx NonMaxSuppression",
    "GroupQueryAttention": "ai.onnx Attention (opset 23) takes fewer heads of keys and values, past_key and past_value",
    "ImageDecoder": "decode outside; linnet-run reads JPEG and PNG itself",
    "LabelEncoder": _OUTSIDE,
    "MaxRoiPool": "RoiAlign with mode max",
    "Multinomial": f"{_RANDOM}: ArgMax(log(p) - log(-log(random)))",
    "NonMaxSuppression": "export the boxes and scores, and select them outside",
    "RandomNormal": _RANDOM,
    "RandomNormalLike": _RANDOM,
    "RandomUniform": _RANDOM,
    "RandomUniformLike": _RANDOM,
    "RegexFullMatch": _OUTSIDE,
    "RoiAlign": "GridSample at the sampling points of each box, then AveragePool",
    "MelWeightMatrix": "compute the matrix while exporting, as a constant",
    "STFT": "Conv with the windowed cosines and sines as weights, stride the hop",
    "StringConcat": _OUTSIDE,
    "StringNormalizer": _OUTSIDE,
    "StringSplit": _OUTSIDE,
    "TfIdfVectorizer": _OUTSIDE,
    "Unique": "when the values are bounded: ScatterElements ones into a histogram, then NonZero",
}  # fmt: skip

_PREFIXES = {
    "Sequence": _SEQUENCE, "SplitToSequence": "Split, with as many outputs as there are parts",
    "ConcatFromSequence": "Concat of the tensors themselves", "Optional": "give an empty tensor and its size instead",
}  # fmt: skip

_DOMAINS = {
    MICROSOFT: _UNFUSED,
    "com.microsoft.nchwc": "save the model with optimization_level extended, not all: this layout is for one processor",
    "ai.onnx.ml": "export with tensor ops in place of ai.onnx.ml: linear models are Gemm, trees Gather and Where",
    "ai.onnx.preview.training": "export the inference graph: linnet makes training graphs itself",
    "ai.onnx.training": "export the inference graph: linnet makes training graphs itself",
    "org.pytorch.aten": "export with torch.onnx.export(..., dynamo=True), which writes ONNX ops only",
    "aten": "export with torch.onnx.export(..., dynamo=True), which writes ONNX ops only",
    "prim": "export with torch.onnx.export(..., dynamo=True), which writes ONNX ops only",
}

_GENERAL = "replace it by standard ONNX ops, or write a rule (CONTRIBUTING.md)"


def nearest(op_type: str, domain: str = "", opset: int = 0) -> str:
    """What to do in place of an op that has no rule at this opset."""
    parts = []
    if op_type in REWRITES:
        parts.append(REWRITES[op_type])
    elif prefix := next((p for p in _PREFIXES if op_type.startswith(p)), ""):
        parts.append(_PREFIXES[prefix])
    if domain in _DOMAINS:
        parts.append(_DOMAINS[domain])
    if domain and defs.has(op_type) and (same := _handled(op_type)):
        since = _since(op_type)
        how = f": export with opset {since} or newer" if opset < since else ""
        parts.append(f"ai.onnx has an op {same!r}, which is converted{how}")
    elif similar := _similar(op_type, domain):
        parts.append(f"{similar!r} is converted, if that is what it computes")
    if not domain and opset and (newer := _newer(op_type, opset)):
        parts.append(f"export with opset {newer} or newer, which is converted")
    return "; ".join(parts) or _GENERAL


def _handled(op_type: str) -> str:
    return op_type if op_type in RULES or _body(op_type) else ""


def _body(op_type: str) -> bool:
    schema = defs.get_schema(op_type)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _since(op_type: str) -> int:
    """The opset that introduced an op."""
    return int(
        min(s.since_version for s in defs.get_all_schemas_with_history() if s.name == op_type and s.domain == "")
    )


def _newer(op_type: str, opset: int) -> int:
    """The first opset after `opset` whose form of the op has a rule or a function body; 0 for none."""
    versions = sorted(
        s.since_version for s in defs.get_all_schemas_with_history()
        if s.name == op_type and s.domain == "" and s.since_version > opset and not s.deprecated
        and (find(op_type, s.since_version) or s.has_function)
    )  # fmt: skip
    return versions[0] if versions else 0


def _similar(op_type: str, domain: str) -> str:
    """An op of nearly the same name that has a rule; "" for none."""
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
