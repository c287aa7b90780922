"""Every pass keeps the types of the values that it replaces. `keeping_types` runs one pass and then compares: outputs of
the function, tensors that are still there, and the outputs of every node that the pass made or gave other inputs. These
outputs are inferred again, so that a pass need not check its own patterns."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, TypeVar

from linnet.clib.errors import Error, GraphError
from linnet.ir import traits
from linnet.ir.dtypes import Dim
from linnet.ir.encode import complete, encode_node
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.infer import control_flow, infer

Shape = tuple[Dim, ...] | None
Step = TypeVar("Step", bound=Callable[..., object])

strict = False  # linnet's own tests set this: a pass that changes a type is then an error


def rewrites(ops: str | Container[str]) -> Callable[[Step], Step]:
    """Declares that a pass changes nothing in a function without this op, or one of these ops. A model with many branches
    has thousands of small functions, for which such a pass then takes no time."""

    def declared(step: Step) -> Step:
        step.ops = [ops] if isinstance(ops, str) else ops  # type: ignore[attr-defined]
        return step

    return declared


def keeping_types(function: Function, step: Callable[..., object], *arguments: Any) -> bool:
    """Runs the pass step(function, *arguments) and returns whether the pass says that it changed anything. If it changes
    the dtype, the rank or a known size of a value, everything that it did is undone, and the result is False. Raises
    GraphError instead if `strict` is set."""
    ops = getattr(step, "ops", None)
    if ops is not None and not any(node.op in ops for node in function.nodes):
        return False
    before = _Before(function)
    changed = bool(step(function, *arguments))
    wrong = before.difference(function)
    if wrong is None:
        return changed
    if strict:
        raise GraphError(
            f"the pass {step.__name__} changes the type of {wrong[0]!r}", code=303, op=step.__name__, tensor=wrong[0],
            expected=wrong[1], got=wrong[2], hint="the pass must leave a pattern of this type as it is",
        )  # fmt: skip
    before.restore(function)
    return False


class _Before:
    """A function as it is before a pass."""

    def __init__(self, function: Function) -> None:
        self.state = dict(vars(function), _names=set(function._names), _counts=dict(function._counts))
        self.lists = {name: list(self.state[name]) for name in ("inputs", "outputs", "nodes")}
        self.folded = function.graph.folded
        self.nodes: dict[Node, dict[str, Any]] = {
            node: {
                **vars(node), "inputs": list(node.inputs), "outputs": list(node.outputs),
                "attributes": dict(node.attributes),
            }
            for node in function.nodes
        }  # fmt: skip
        self.tensors: dict[Tensor, dict[str, Any]] = {t: dict(vars(t)) for t in function.tensors()}

    def restore(self, function: Function) -> None:
        """Undoes all changes since this object was made."""
        vars(function).update({**self.state, **self.lists})
        function.graph.folded = self.folded
        for part, fields in (*self.nodes.items(), *self.tensors.items()):
            vars(part).update(fields)

    def difference(self, function: Function) -> tuple[str, str, str] | None:
        """(name, type before, type now) of the first value whose type has changed, or None."""
        for old, new in zip(self.lists["outputs"], function.outputs, strict=True):
            fields = self.tensors[old]
            if _differ(fields["dtype"], fields["shape"], new.dtype, new.shape):
                return fields["name"], _text(fields["dtype"], fields["shape"]), _text(new.dtype, new.shape)
        for node in function.nodes:
            for t in node.outputs:
                known = self.tensors.get(t)
                if known is not None and _differ(known["dtype"], known["shape"], t.dtype, t.shape):
                    return known["name"], _text(known["dtype"], known["shape"]), _text(t.dtype, t.shape)
            if self._is_same(node):
                continue
            try:
                found = _inferred(node)
            except Error:  # by values rather than types, the node fails while it is planned
                if (wrong := self._wrong_input(node)) is not None:
                    return wrong
                continue
            for t, (dtype, shape) in zip(node.outputs, found, strict=False):
                if _differ(t.dtype, t.shape, dtype, shape):
                    return t.name, _text(t.dtype, t.shape), _text(dtype, shape)
        return None

    def _wrong_input(self, node: Node) -> tuple[str, str, str] | None:
        """Like `difference`, for the inputs of a node that has had others."""
        before = self.nodes[node]["inputs"] if node in self.nodes else []
        for old, new in zip(before, node.inputs, strict=False):
            if old is not None and new is not None:
                fields = self.tensors[old]
                if _differ(fields["dtype"], fields["shape"], new.dtype, new.shape):
                    return fields["name"], _text(fields["dtype"], fields["shape"]), _text(new.dtype, new.shape)
        return None

    def _is_same(self, node: Node) -> bool:
        fields = self.nodes.get(node)
        return (
            fields is not None
            and len(fields["inputs"]) == len(node.inputs)
            and all(a is b for a, b in zip(fields["inputs"], node.inputs, strict=True))
            and fields["outputs"] == node.outputs
            and fields["op"] == node.op
            and (fields["attributes"] is node.attributes or fields["attributes"] == node.attributes)
        )


def _inferred(node: Node) -> list[tuple[str, Shape]]:
    """The types that the op gives to the node's outputs. Raises Error."""
    count = len(node.outputs)
    if node.op in traits.CONTROL:
        return control_flow(node.op, node.inputs, complete(node.op, node.attributes), count, node.name)
    if node.op in traits.REGISTERED or node.op == "assign":
        return []  # types that a user declares
    message = encode_node(node.op, complete(node.op, node.attributes))
    quantization, dtypes = [t.quantization for t in node.outputs], [t.dtype for t in node.outputs]
    return infer(message, node.inputs, count, quantization, dtypes)


def _differ(dtype: str, shape: Shape, other_dtype: str, other: Shape) -> bool:
    """Whether two types exclude each other. Sizes that are names or unknown go with every size."""
    if dtype != other_dtype:
        return True
    if shape is None or other is None:
        return False
    return len(shape) != len(other) or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(shape, other, strict=True)
    )


def _text(dtype: str, shape: Shape) -> str:
    return f"{dtype} {'?' if shape is None else list(shape)}"
