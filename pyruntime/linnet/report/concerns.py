"""Finds where a converted graph may lose precision: `find(graph)`. A concern does not prevent a conversion. Concerns
say what f16, i8 and i16 would do to weights, where f64 is narrowed, and which weights are quantized in an unusual way.
Every concern says what to do. If a model is already quantized, there are no concerns about quantizing it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

import numpy as np

from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.function import Node, Tensor
from linnet.ir.graph import dtype_of_graph
from linnet.quantization.scheme import FLOATS_KEPT, INTEGER_OPS

F16_MAX = 65504.0
F16_NORMAL = 2.0**-14  # the smallest number that f16 represents with full precision
F16_ERROR = 2.0**-9  # twice the largest error of rounding a normal number to f16
I32_MAX = 2**31 - 1
FLOATS = ("f64", "f32", "f16", "bf16")
_SENTINELS = (np.iinfo(np.int64).max, np.iinfo(np.int64).min, np.iinfo(np.int64).max - 1)


@dataclasses.dataclass(frozen=True)
class Concern:
    """kind: f16, f64, i64, quantization, floats_kept or not_finite. node: the source nodes concerned, or "". tensor:
    the constant, or "". text: what is unusual. hint: what to do."""

    kind: str
    node: str
    tensor: str
    text: str
    hint: str


def find(graph: Graph) -> list[Concern]:
    """All concerns: first those about constants, then the others, in the order of the graph."""
    with np.errstate(all="ignore"):  # NaN and infinity are among the things to find
        found = [*_numbers(graph), *_doubles(graph), *_floats_kept(graph)]
    quantized = dtype_of_graph(graph) in ("i8", "i16")
    return [concern for concern in found if not (quantized and concern.kind in ("f16", "floats_kept"))]


def _numbers(graph: Graph) -> Iterator[Concern]:
    """Concerns about constants and quantization parameters, each reported once."""
    seen: set[int] = set()
    for node in (node for function in graph.functions for node in function.nodes):
        for tensor in node.inputs:
            if tensor is not None and tensor.data is not None and id(tensor.data) not in seen:
                seen.add(id(tensor.data))
                yield from _constant(node, tensor)
        for tensor in (*node.inputs, *node.outputs):
            if tensor is not None and tensor.quantization is not None and id(tensor.quantization) not in seen:
                seen.add(id(tensor.quantization))
                yield from _quantization(node, tensor)


def _constant(node: Node, tensor: Tensor) -> Iterator[Concern]:
    """Concerns about the values of a constant."""
    data = tensor.data
    assert data is not None
    if tensor.dtype in ("f32", "f64") and data.size:
        values = np.abs(data.astype(np.float64, copy=False).reshape(-1))
        finite = values[np.isfinite(values)]
        if np.isnan(values).any():
            text = f"{int(np.isnan(values).sum())} of its {values.size} values are NaN"
            yield Concern("not_finite", node.source, tensor.name, text, "check the training run that produced them")
        peak = float(finite.max(initial=0.0))
        if peak > F16_MAX:
            text = (
                f"contains values up to {peak:.3g}, beyond the range of f16 ({F16_MAX:.0f}); with --dtype f16 "
                "this op stays in f32"
            )
            yield Concern("f16", node.source, tensor.name, text, "scale the weights, or keep f32 here")
        elif peak > 0:
            stored = np.minimum(finite, F16_MAX).astype(np.float16).astype(np.float64)
            lost = float(np.linalg.norm(stored - finite) / np.linalg.norm(finite / peak) / peak)
            if lost > F16_ERROR:
                small = int(((finite > 0) & (finite < F16_NORMAL)).sum())
                text = (
                    f"{small} of {finite.size} values are subnormal in f16 (below {F16_NORMAL:.2g}) and lose {lost:.1%}"
                )
                yield Concern("f16", node.source, tensor.name, text, "scale the weights, or keep f32 here (--table)")
    elif tensor.dtype in ("i64", "u64") and data.size:
        odd = (np.abs(data.astype(np.float64)) > I32_MAX) & ~np.isin(data, _SENTINELS)
        if odd.any():
            text = (
                f"contains {int(data[odd].reshape(-1)[0])}, beyond the range of 32-bit integers; computed in 64 "
                "bits as declared"
            )
            yield Concern(
                "i64",
                node.source,
                tensor.name,
                text,
                "a device with 32-bit indices rejects it: keep it within 32 bits",
            )


def _quantization(node: Node, tensor: Tensor) -> Iterator[Concern]:
    """Concerns about zero points."""
    q = tensor.quantization
    assert q is not None
    if tensor.data is not None and node.op in INTEGER_OPS and tensor.dtype in ("i8", "i16") and np.any(q.zero):
        text = f"quantized weights are not symmetric (zero points up to {int(np.abs(q.zero).max())})"
        yield Concern(
            "quantization", node.source, tensor.name, text, "export symmetric weights: these are exact, but slower"
        )


def _doubles(graph: Graph) -> Iterator[Concern]:
    """Concerns about f64: nodes that compute in f64 as the model declares, and nodes for which a conversion rule
    narrowed f64."""
    computed: Counter[str] = Counter()
    narrowed: dict[str, str] = {}
    for function in graph.functions:
        for node in function.nodes:
            reads = any(t is not None and t.dtype == "f64" for t in node.inputs)
            makes = any(t.dtype == "f64" for t in node.outputs)
            if not (reads or makes):
                continue
            kind = node.source.partition(":")[0]
            if reads and not makes and any(t.dtype in FLOATS for t in node.outputs) and "Cast" not in node.source:
                narrowed[node.source] = node.outputs[0].dtype
            else:
                computed[kind or node.op] += 1
    if computed:
        which = ", ".join(f"{op} x{n}" for op, n in computed.most_common(8))
        text = f"{sum(computed.values())} ops compute in f64 as declared ({which}), with slow reference kernels"
        yield Concern("f64", "", "", text, "export in f32 unless f64 is needed")
    for source, dtype in narrowed.items():
        yield Concern("f64", source, "", f"f64 is narrowed to {dtype} here", "check that f32 is precise enough")


def _floats_kept(graph: Graph) -> Iterator[Concern]:
    """Ops that compute in floats even in a quantized model."""
    kept = Counter(
        node.op
        for function in graph.functions
        for node in function.nodes
        if node.op in FLOATS_KEPT | traits.having("integers", "floats") and any(t.dtype in FLOATS for t in node.outputs)
    )
    if kept:
        which = ", ".join(f"{op} x{n}" for op, n in kept.most_common())
        text = f"stay in f32 when the model is quantized to i8 or i16: {which}"
        yield Concern("floats_kept", "", "", text, "measure with linnet bench how much of the time they take")
    if "if" in kept or "while" in kept or len(graph.functions) > 1:
        text = "a graph with branches or loops cannot be quantized after training"
        yield Concern("floats_kept", "", "", text, "use --dtype f32, or fix the inputs that the conditions depend on")
