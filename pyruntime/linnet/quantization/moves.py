"""Nodes that move values without computing: which of them move integers, and where integers of one range are not enough.
A tensor with parts of very different size, such as the boxes and scores of a detector, has one range for all parts, so
that the values of the small parts become equal. Products may read such integers; everything else reads floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet.ir.function import Function, Node, Tensor
from linnet.quantization.observe import Seen

_UNEQUAL = 3.0  # a part that needs less than this fraction of the shared range gets a range of its own


class Moves:
    """The base of Decisions."""

    if TYPE_CHECKING:
        old: Function
        outputs: set[Tensor]
        consumers: dict[Tensor, list[Node]]
        passing: set[Node]
        mixed: set[Tensor]
        floats: set[Tensor]

        def _seen(self, tensor: Tensor | None) -> Seen | None: ...
        def _integer_operands(self, node: Node) -> list[Tensor]: ...

    def _passes_through(self, node: Node) -> bool:
        """Whether the node only moves or selects values. Integers then pass with the same scale and zero point on both
        sides."""
        if any(t.dtype != "f32" for t in node.outputs[:1]):
            return False
        if node.op == "copy":
            first = node.inputs[0]
            if node.attributes.get("kind") == "pad":
                return str(node.attributes.get("pad_mode", "constant")) != "constant"
            if node.attributes.get("kind") == "concat":
                return all(t is not None and t.data is None for t in node.inputs)
            return first is not None and first.data is None
        if node.op == "pool":
            return node.attributes.get("kind", "max") in ("max", "average") and len(node.outputs) == 1
        return node.op == "resize" and node.attributes.get("mode", "nearest") in ("nearest", "linear")

    def _share(self, node: Node) -> bool:
        """Whether the results of a node that only moves values share the range of its operand. If a part of a split or
        slice has much smaller values, it gets a range of its own, and the operand stays float."""
        source = node.inputs[0]
        if node.op != "copy" or source is None or node.attributes.get("kind") not in ("split", "slice"):
            return True
        return not any(self._has_own_range(part, source) for part in node.outputs)

    def _has_own_range(self, part: Tensor, whole: Tensor) -> bool:
        a, b = self._seen(part), self._seen(whole)
        if a is None or b is None:
            return False
        return 0 < _UNEQUAL * (max(a.high, 0.0) - min(a.low, 0.0)) < max(b.high, 0.0) - min(b.low, 0.0)

    def _mixed(self) -> set[Tensor]:
        """Tensors with parts of very different size, such as the boxes and scores of a detector: concatenations, and the
        results of nodes that move them or compute on each element. With one range, the small values become equal."""
        found: set[Tensor] = set()
        for node in self.old.nodes:
            parts = [t for t in node.inputs if t is not None]
            if node.op == "copy" and node.attributes.get("kind") == "concat":
                mixed = any(part in found or self._has_own_range(part, node.outputs[0]) for part in parts)
            else:
                mixed = any(part in found for part in parts) and (node.op == "map" or self._passes_through(node))
            if mixed:
                found.update(node.outputs)
        return found

    def _must_be_float(self, tensor: Tensor) -> bool:
        """Whether a tensor needs more than the integers that products read: it is an output, also after nodes that only
        move values, or it is mixed and something else reads it. All its readers must be decided already."""
        if tensor in self.outputs:
            return True
        for node in self.consumers.get(tensor, []):
            if self._passes_through(node) and any(t in self.floats for t in node.outputs):
                return True
            if tensor in self.mixed and node not in self.passing and tensor not in self._integer_operands(node):
                return True
        return False
