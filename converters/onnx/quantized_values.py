"""The values of a quantized function while its ops are changed to integers: which tensors exist as integers, which
exist as real numbers, and which are quantized by their readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from linnet.builder.mapping import pointwise
from linnet.clib.errors import GraphError
from linnet.converters.onnx.quantized_numbers import LIMITS, dequantized, identity, parameters, same
from linnet.ir import traits
from linnet.ir.dtypes import FOLD_LIMIT, Quantization
from linnet.ir.expr import Expr
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.ir.infer import evaluate_node
from linnet.passes.rewrite import EQUAL, join_sources


class Values:
    """A dequantized tensor exists only as integers (`stored`) until a node needs its real numbers. If the readers of a tensor
    quantize it (`sink`), the node that makes it stores integers directly."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.nodes = function.nodes
        self.readers = function.consumers()
        self.outputs = set(function.outputs)
        self.new: dict[Tensor, Tensor] = {}  # old tensor: its replacement
        self.stored: dict[Tensor, Tensor] = {}  # old f32 tensor: the quantized integers that represent it
        self.skipped: set[Node] = set()
        self.kept: set[Node] = set()  # old nodes that are kept

    def now(self, tensor: Tensor) -> Tensor:
        return self.new.get(tensor, tensor)

    def real(self, tensor: Tensor) -> Tensor:
        """The tensor as real numbers: dequantized if it exists only as integers."""
        made = self.new.get(tensor)
        if made is not None:
            return made
        source = self.stored.get(tensor)
        if source is None:
            return tensor
        quantization = source.quantization
        assert quantization is not None
        if source.data is not None and (source.data.nbytes * 4 <= FOLD_LIMIT or not self.only_multiplied(tensor)):
            made = self.function.constant(dequantized(source.data, quantization), tensor.name)
        elif source.data is not None:  # the constant stays narrow in the file; planning widens it
            made = emit("dequantize", [source], {}, 1, "", self.function, dtypes=["f32"])[0]
        elif quantization.axis is None and source.dtype in LIMITS:
            program = identity(load=True)
            made = self.emit("map", [source], program.attributes(["f32"]), "f32", None)
        else:
            made = self.emit("dequantize", [source], {}, "f32", None)
        self.new[tensor] = self.named(made, tensor)
        return self.new[tensor]

    def only_multiplied(self, tensor: Tensor) -> bool:
        """Whether only matrix products and lookups read the tensor, possibly transposed. Unlike the weights of a
        convolution, nothing (such as a batch norm) is ever folded into these weights."""
        readers = self.readers.get(tensor, [])
        moved = [r.outputs[0] for r in readers if r.op == "copy" and r.attributes["kind"] == "transpose"]
        products = sum(r.op in traits.MATRICES | traits.LOOKS_UP for r in readers)
        whole = bool(readers) and tensor not in self.outputs and products + len(moved) == len(readers)
        return whole and all(self.only_multiplied(t) for t in moved)

    def emit(
        self, op: str, inputs: Iterable[Tensor | None], attributes: dict[str, Any], dtype: str, q: Quantization | None
    ) -> Tensor:
        """Emits a node with one output. The output is computed at once if all inputs are constant."""
        made = emit(op, list(inputs), dict(attributes), 1, "", self.function, [q], [dtype])[0]
        made.quantization = q
        node = made.node
        if node is not None and all(t is None or t.data is not None for t in node.inputs):
            try:
                values = evaluate_node(node)
            except GraphError:
                values = None
            if values is not None:
                assert self.function.nodes.pop() is node
                return self.function.constant(np.asarray(values[0]), made.name, made.dtype, q)
        return made

    def named(self, made: Tensor, old: Tensor, same_value: bool = True) -> Tensor:
        """Gives `made` the name of the tensor that it replaces, and the known part of its shape. If it is not
        `same_value`, but the integers of the tensor, the name gets a number."""
        made.name = old.name if same_value else self.function.unique(old.name)
        if made.shape is None or None in made.shape:
            made.shape = old.shape if old.shape is not None else made.shape
        return made

    def with_quantization(self, tensor: Tensor, q: Quantization) -> Tensor:
        """The same integers, marked with this scale and zero point."""
        if tensor.data is not None:
            return self.function.constant(tensor.data, tensor.name, tensor.dtype, q)
        if tensor.quantization is None and tensor.node is not None and tensor.node.op in traits.ENCODES:
            tensor.quantization = q
        if tensor.quantization is not None and same(tensor.quantization, q):
            return tensor
        return self.emit("copy", [tensor], {"kind": "identity"}, tensor.dtype, q)

    def requantized(self, source: Tensor, q: Quantization, dtype: str, old: Tensor) -> Tensor:
        """Converts integers to another scale."""
        assert source.quantization is not None
        if source.dtype == dtype and same(source.quantization, q):
            return source
        program = identity(load=True, store=True)
        return self.named(self.emit("map", [source], program.attributes([dtype]), dtype, q), old, old.dtype == dtype)

    def sink(self, tensor: Tensor) -> tuple[Quantization, str] | None:
        """The quantization and dtype with which to store the tensor, if all its readers are quantize nodes with the
        same parameters."""
        readers = self.readers.get(tensor, [])
        if tensor in self.outputs or not readers or tensor.dtype != "f32":
            return None
        found: tuple[Quantization, str] | None = None
        for reader in readers:
            q = parameters(reader) if reader.op == "quantize" else None
            if q is None or q.axis is not None or reader.outputs[0].dtype not in LIMITS:
                return None
            if found is not None and (found[1] != reader.outputs[0].dtype or not same(found[0], q)):
                return None
            found = q, reader.outputs[0].dtype
        return found

    def sunk(self, tensor: Tensor, made: Tensor) -> None:
        """Uses `made` in place of the results of the quantize nodes that read the tensor."""
        for reader in self.readers[tensor]:
            self.skipped.add(reader)
            self.new[reader.outputs[0]] = made
        if made.node is not None:
            every = [reader.source for reader in self.readers[tensor]]
            made.node.source = join_sources(*([EQUAL] if len(every) > 1 else []), made.node.source, *every)
        self.named(made, self.readers[tensor][0].outputs[0])

    def keep(self, old: Tensor, made: Tensor) -> bool:
        """Records that `made` holds the integers of `old`. A quantize node that reads `old` finds them later. The node's
        provenance ends with a part without a name, because its result is not the value of `old`."""
        if made.node is not None:
            made.node.source = join_sources(made.node.source, "stored:")
        self.stored[old] = self.named(made, old, same_value=False)
        return True

    def rounded(self, x: Tensor, body: Callable[[Expr], Expr], q: Quantization, dtype: str) -> Tensor:
        """Integers that a map computes and saturates itself."""
        low, high = LIMITS[dtype]
        made: Tensor = pointwise([x], lambda v: body(v).max(low).min(high), dtype, function=self.function)
        made.quantization = q
        return made
