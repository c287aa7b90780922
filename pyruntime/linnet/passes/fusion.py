"""Fuses chains of pointwise nodes into one map node, so that C runs them in one pass over the data, or as one epilogue
of a heavy op. A producer is fused only if nothing else reads it and none of its elements would be computed twice."""

from __future__ import annotations

from collections.abc import Callable

from linnet.builder.mapping import Opened, iteration_shape, join, opened
from linnet.ir import traits
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.scopes import agree
from linnet.passes.rewrite import join_sources


def fuse_maps(function: Function) -> bool:
    """Fuses maps and casts into the maps that read them. Returns whether any were fused."""
    readers = {tensor: len(nodes) for tensor, nodes in function.consumers().items()}
    for tensor in function.outputs:
        readers[tensor] = readers.get(tensor, 0) + 1
    gone: set[Node] = set()
    known: dict[Node, Opened] = {}  # each node is taken apart once and assembled at the end
    failed: dict[Node, set[Node]] = {}  # producers with which a node could not be fused
    changed: dict[Node, dict[str, None]] = {}  # with the sources of the nodes they were made from

    def program(node: Node) -> Opened:
        if node not in known:
            made = opened(node)
            assert made is not None
            known[node] = made
        return known[node]

    for consumer in function.nodes:
        if consumer.op != "map":
            continue
        tried = failed[consumer] = set()
        while (producer := _candidate(consumer, readers, gone, tried, program)) is not None:
            joined = join(program(consumer), program(producer), producer)
            if joined is None:
                tried.add(producer)
                continue
            tried |= failed.get(producer, set())  # a producer that is too large for a part is too large for the whole
            for tensor in joined.operands:
                shared = tensor in consumer.inputs and tensor in producer.inputs
                if shared:  # two readers became one
                    readers[tensor] -= 1
            consumer.inputs = list(joined.operands)
            known[consumer] = joined
            sources = changed.pop(producer, {producer.source: None})
            changed[consumer] = sources | changed.pop(consumer, {consumer.source: None})
            consumer.placement = consumer.placement or producer.placement
            gone.add(producer)
    for node, sources in changed.items():
        node.attributes = known[node].program.attributes([t.dtype for t in node.outputs])
        node.source = join_sources(*sources)
    function.nodes = [node for node in function.nodes if node not in gone]
    return bool(gone)


def _candidate(
    consumer: Node,
    readers: dict[Tensor, int],
    gone: set[Node],
    tried: set[Node],
    program: Callable[[Node], Opened],
) -> Node | None:
    """A producer of one of the consumer's inputs that could be fused into it, or None."""
    for tensor in consumer.inputs:
        if tensor is None or tensor.node is None or readers.get(tensor) != 1:
            continue
        producer = tensor.node
        if producer.op not in traits.POINTWISE or producer in tried | gone or not agree(consumer, producer):
            continue
        loaded = program(consumer).loaded
        if _same_size(tensor, [t for t in consumer.inputs if t in loaded], producer, program(producer)):
            return producer
    return None


def _same_size(tensor: Tensor, loaded: list[Tensor | None], producer: Node, inner: Opened) -> bool:
    """Whether a map that loads these tensors runs over the producer's shape, as far as the known dimensions show."""
    shape = iteration_shape([t for t in loaded if t is not None])
    if shape is None or tensor.shape is None or len(shape) != len(tensor.shape):
        return False
    if any(own == 1 and d != 1 for own, d in zip(tensor.shape, shape, strict=True)):
        return False
    if any(i.opcode == "iota" for i in inner.program.code):  # coordinates refer to the producer's own shape
        return tensor.static_shape is not None and tensor.shape == shape
    return bool(producer.inputs)
