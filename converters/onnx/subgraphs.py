"""Branches and the bodies of loops: subgraphs of ONNX nodes, inlined or converted to functions of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx

from linnet.converters.onnx.scope import Body, Scope
from linnet.converters.onnx.values import Value
from linnet.ir.dtypes import Dim
from linnet.ir.function import Tensor

if TYPE_CHECKING:
    from linnet.converters.onnx.importer import Importer


def branch(
    importer: Importer, graph: onnx.GraphProto, scope: Scope, given: Mapping[str, Value] | None = None
) -> list[Value]:
    """Inlines a subgraph, such as the branch of an If with a known condition. given: values of its inputs."""
    inner = Scope(scope.opsets, scope)
    inner.values.update(given or {})
    inner.initializers = {t.name: t for t in graph.initializer}
    importer.run(graph.node, inner)
    return [importer.given(inner, output.name) for output in graph.output]


def body(importer: Importer, graph: onnx.GraphProto, scope: Scope, any_shape: bool = False) -> Body:
    """Converts a branch to a function whose only inputs are captured values. The caller adds the outputs."""
    return loop_body(importer, graph, scope, None, None, any_shape)


def loop_body(
    importer: Importer,
    graph: onnx.GraphProto,
    scope: Scope,
    carried: Sequence[tuple[str, tuple[Dim, ...] | None]] | None,
    begin: Callable[[Body, Tensor, Tensor], None] | None,
    any_shape: bool = False,
) -> Body:
    """Converts a subgraph to a function of (iteration, condition, carried...) and of the values that the subgraph
    captures.

    carried: dtypes and shapes. begin(body, iteration, condition): sets the values of the subgraph's inputs.
    any_shape: captured values may have any dimensions.
    """
    function = importer.graph.function(graph.name or "body")
    body = importer.bodies[function] = Body(scope, importer.function, function, any_shape)
    body.initializers = {t.name: t for t in graph.initializer}
    function.source = importer.function.source
    outer, importer.function, depth, importer.depth = importer.function, function, importer.depth, 0
    try:
        if carried is not None and begin is not None:
            iteration = function.placeholder("iteration", "i64", ())
            condition = function.placeholder("condition", "bool", ())
            for index, (dtype, shape) in enumerate(carried):
                function.placeholder(f"carried_{index}", dtype, shape)
            body.iteration = iteration
            begin(body, iteration, condition)
        importer.run(graph.node, body)
    finally:
        importer.function, importer.depth = outer, depth
    return body


def results(importer: Importer, body: Body, graph: onnx.GraphProto) -> list[Value]:
    """The values of the subgraph's outputs."""
    return [inside(importer, body, functools.partial(importer.given, body, o.name)) for o in graph.output]


def inside(importer: Importer, body: Body, work: Callable[[], Any]) -> Any:
    """Runs `work`, whose nodes go into the body's function, and returns its result."""
    outer, importer.function = importer.function, body.function
    try:
        return work()
    finally:
        importer.function = outer


def give(importer: Importer, body: Body, tensor: Tensor) -> None:
    """Makes a tensor an output of the body's function. An input, or a tensor that is already an output, is copied first."""
    if tensor.node is None or tensor in body.function.outputs:
        source = tensor
        tensor = inside(importer, body, lambda: importer.emitted("copy", source, kind="identity"))
    body.function.outputs.append(tensor)
