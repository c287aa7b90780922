"""In which dtype each layer of a graph computes, and how the multiply-accumulates of its products divide among the
dtypes. Both are read from the steps of a plan, so they describe what runs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.function import Node
from linnet.ir.node_names import step_names
from linnet.session.step import Step

PRODUCTS = traits.family("product", "recurrent")  # the ops whose operations are multiply-accumulates
_MOVES = traits.having("integers", "moves", "maps", "converts")  # steps beside the layers: their op says enough
_ONLY_FLOATS = traits.having("integers", "floats", "kept", "")
FLOATS = ("f64", "f32", "f16", "bf16")


@dataclasses.dataclass(frozen=True)
class Computed:
    """A step. dtype: a dtype, or bits of weights and activations such as w8a16. macs: multiply-accumulates of a product,
    0 for other steps."""

    layer: str
    op: str
    dtype: str
    macs: int

    @property
    def is_layer(self) -> bool:
        """Whether the step does more than move, convert or map elements one by one."""
        return self.op not in _MOVES

    @property
    def only_floats(self) -> bool:
        """Whether the op has no integer form, also in a quantized model."""
        return self.op in _ONLY_FLOATS


def computed(graph: Graph, steps: Sequence[Step]) -> list[Computed]:
    """The steps of a plan of the signature `infer`. Conversions that the planner inserted are left out."""
    nodes = {name: node for node, name in step_names(graph.signatures["infer"].function).items()}
    return [
        Computed(step.name, step.op, dtype_of(nodes[step.name]), step.flops // 2 if step.op in PRODUCTS else 0)
        for step in steps
        if step.name in nodes and nodes[step.name].op == step.op
    ]


def dtype_of(node: Node) -> str:
    """The dtype in which a node computes: for a product, the bits of both operands; for others, the float dtype that it
    reads or writes, or else the dtype of its integers."""
    inputs = [t.dtype for t in node.inputs if t is not None]
    if node.op in PRODUCTS and len(inputs) > 1:
        x, w = inputs[:2]
        if {x, w} <= {"i8", "u8"}:
            return "i8"
        if x == w and x in FLOATS:
            return x
        bits = "w" + w.lstrip("iubf")
        return bits if x in FLOATS else f"{bits}a{x.lstrip('iu')}"
    every = [*inputs, *(t.dtype for t in node.outputs)]
    return next((dtype for dtype in FLOATS if dtype in every), every[0] if every else "")


def shares(found: Iterable[Computed]) -> dict[str, float]:
    """{dtype: share of the multiply-accumulates}, the largest first. Empty if there are no products."""
    macs = Counter[str]()
    for step in found:
        macs[step.dtype] += step.macs
    return {dtype: count / macs.total() for dtype, count in macs.most_common() if count}
