"""Chains of pointwise nodes become one map node, so that C runs them in one sweep, or as one epilogue of a heavy op.
A producer is fused only where nothing else reads it and no element of it would be computed twice."""

from __future__ import annotations

from linnet.graph import Function, Node, Tensor
from linnet.mapping import Program, fuse, iteration_shape, program_of
from linnet.passes.rewrite import join_sources


def fuse_maps(function: Function) -> bool:
    """Fuses maps and casts into the maps that read them. Returns whether there were any."""
    readers = {tensor: len(nodes) for tensor, nodes in function.consumers().items()}
    for tensor in function.outputs:
        readers[tensor] = readers.get(tensor, 0) + 1
    gone: set[int] = set()
    for consumer in function.nodes:
        if consumer.op != "map":
            continue
        tried: set[int] = set()
        while (producer := _candidate(consumer, readers, gone, tried)) is not None:
            tried.add(id(producer))
            joined = fuse(consumer, producer)
            if joined is None:
                continue
            program, operands = joined
            consumer.attributes = program.attributes([t.dtype for t in consumer.outputs])
            for tensor in operands:
                shared = tensor in consumer.inputs and tensor in producer.inputs
                if shared:  # two readers became one
                    readers[tensor] -= 1
            consumer.inputs = list(operands)
            consumer.source = join_sources(producer.source, consumer.source)
            gone.add(id(producer))
    function.nodes = [node for node in function.nodes if id(node) not in gone]
    return bool(gone)


def _candidate(consumer: Node, readers: dict[Tensor, int], gone: set[int], tried: set[int]) -> Node | None:
    """A producer of one of the consumer's inputs that may become part of it."""
    for tensor in consumer.inputs:
        if tensor is None or tensor.node is None or readers.get(tensor) != 1:
            continue
        producer = tensor.node
        if producer.op not in ("map", "cast") or id(producer) in tried or id(producer) in gone:
            continue
        program = program_of(consumer)
        assert program is not None
        if _same_size(tensor, program, consumer, producer):
            return producer
    return None


def _same_size(tensor: Tensor, program: Program, consumer: Node, producer: Node) -> bool:
    """Whether the consumer runs over the producer's shape, as far as shapes are known."""
    loaded = [t for i, t in enumerate(consumer.inputs) if i in program.loads and t is not None]
    shape = iteration_shape(loaded)
    if shape is None or tensor.shape is None or len(shape) != len(tensor.shape):
        return False
    if any(own == 1 and d != 1 for own, d in zip(tensor.shape, shape, strict=True)):
        return False
    inner = program_of(producer)
    assert inner is not None
    if any(i.opcode == "iota" for i in inner.code):  # coordinates mean the producer's own shape
        return tensor.static_shape is not None and tensor.shape == shape
    return bool(producer.inputs)
