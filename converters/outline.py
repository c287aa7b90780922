"""A source model as its author sees it: nodes of the file before lowering, for reports and drawings.
The importers make it. This module depends neither on ONNX nor on TFLite."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from linnet.clib.errors import Problem
from linnet.facade import Graph


@dataclasses.dataclass
class OutlineNode:
    """One node of the source's main graph. inputs, outputs: names of values, without constants. label: the node's name
    in problems and in `Node.source` ("OpType:label"). inside: labels of the nodes in its subgraphs. note: the shape of
    the output. It is inferred from the shapes of the inputs or, if that is not possible, taken from the file."""

    op: str
    label: str
    inputs: list[str]
    outputs: list[str]
    inside: frozenset[str] = frozenset()
    note: str = ""

    @property
    def source(self) -> str:
        return f"{self.op}:{self.label}"


@dataclasses.dataclass
class Outline:
    """The source's main graph. facts: what the file states about itself ("opset": "17", "producer": "pytorch 2.4", ...)."""

    format: str
    inputs: list[str]
    outputs: list[str]
    nodes: list[OutlineNode]
    facts: dict[str, str]


def known_shapes(graph: Graph) -> dict[str, str]:
    """The shapes of all tensors whose sizes are known, as texts such as "1x3x224x224"."""
    tensors = (tensor for function in graph.functions for node in function.nodes for tensor in node.outputs)
    return {
        tensor.name: "x".join(map(str, tensor.shape))
        for tensor in tensors
        if tensor.shape and all(isinstance(d, int) for d in tensor.shape)
    }


@dataclasses.dataclass
class Conversion:
    """The result of an importer, with or without problems. If there are problems, some nodes are missing from the
    graph, and tensors that no node produces replace their outputs (see `linnet.report`)."""

    graph: Graph
    problems: list[Problem]
    outline: Callable[[], Outline]
