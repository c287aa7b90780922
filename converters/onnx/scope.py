"""The names of values in a graph, a function body, a branch or the body of a loop, while it is converted."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from linnet.converters.onnx.schemas import MAIN
from linnet.converters.onnx.values import Value
from linnet.ir.function import Function, Tensor


class Scope:
    """The names of values in a graph, branch or function body. `parent` gives access to the names of the enclosing graph."""

    def __init__(self, opsets: Mapping[str, int], parent: Scope | None = None) -> None:
        self.opsets = dict(opsets)
        self.parent = parent
        self.values: dict[str, Value] = {}
        self.initializers: dict[str, onnx.TensorProto] = {}

    def opset(self, domain: str) -> int:
        return self.opsets.get("" if domain in MAIN else domain, 0)


class Body(Scope):
    """The scope of a branch or loop body that becomes a function. Values captured from outside become inputs of the function."""

    def __init__(self, parent: Scope, outer: Function, function: Function, any_shape: bool = False) -> None:
        super().__init__(parent.opsets, parent)
        self.outer, self.function = outer, function
        self.any_shape = any_shape  # dimensions of captured tensors are treated as unknown inside
        self.captured: dict[Tensor, Tensor] = {}  # outer tensor: input of the function
        self.iteration: Tensor | None = None  # of a loop: the iteration number

    def capture(self, tensor: Tensor) -> Tensor:
        """The input that represents an outer tensor inside the body. Constants are copied instead."""
        if tensor.data is not None:
            return self.function.constant(tensor.data, tensor.name, tensor.dtype, tensor.quantization)
        if tensor not in self.captured:
            shape = (None,) * len(tensor.shape) if self.any_shape and tensor.shape is not None else tensor.shape
            inside = self.function.placeholder(tensor.name, tensor.dtype, shape)
            self.captured[tensor] = inside
        return self.captured[tensor]
