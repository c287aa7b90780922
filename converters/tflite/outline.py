"""Describes subgraph 0 of a TFLite model for `linnet.outline`.
The report draws it, so it must work even if the model does not convert."""

from __future__ import annotations

from collections.abc import Mapping

from linnet.converters.outline import Outline, OutlineNode
from linnet.converters.tflite.problems import Unsupported
from linnet.converters.tflite.schema import Model, TensorSpec


def outline(model: Model, known: Mapping[str, str]) -> Outline:
    """All operators in the order of the file, without constants. known: shapes that the conversion inferred."""
    graph = model.subgraphs[0]
    names = [f"{index}:{spec.name}" for index, spec in enumerate(graph.tensors)]  # names may repeat
    nodes = [
        OutlineNode(
            op=spec.op,
            label=graph.tensors[spec.outputs[0]].name if spec.outputs else f"operator {number}",
            inputs=[names[i] for i in spec.inputs if i >= 0 and not _constant(model, graph.tensors[i])],
            outputs=[names[i] for i in spec.outputs],
            note=_shape(graph.tensors[spec.outputs[0]], known) if spec.outputs else "",
        )
        for number, spec in enumerate(graph.operators)
    ]
    facts = {"description": model.description} if model.description else {}
    return Outline("tflite", [names[i] for i in graph.inputs], [names[i] for i in graph.outputs], nodes, facts)


def _shape(spec: TensorSpec, known: Mapping[str, str]) -> str:
    return known.get(spec.name) or "x".join(map(str, spec.shape))


def _constant(model: Model, spec: TensorSpec) -> bool:
    try:
        return model.has_data(spec)
    except Unsupported:  # its data is damaged, which is reported as a problem
        return True
