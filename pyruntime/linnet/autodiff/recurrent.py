"""The gradient of `recurrent`: backpropagation through time by the op `recurrent_gradient`, from gates that the forward
node keeps (Hochreiter and Schmidhuber, "Long short-term memory", 1997; Werbos, "Backpropagation through time",
1990)."""

from __future__ import annotations

from linnet.autodiff._tools import operand, shape_of
from linnet.autodiff.cells import GATES, cells, real
from linnet.autodiff.cells_back import before, cells_back
from linnet.autodiff.sparse import Gradients
from linnet.autodiff.walk import through
from linnet.builder import ops
from linnet.clib.errors import GraphError
from linnet.ir.function import Node, Tensor

_RELU = 2  # index of relu in the attribute `activations`


def recurrent_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The op recurrent_gradient computes the gradients for p and the initial states. One matmul over all steps computes
    the gradients of the weights. A sum computes the gradient of the bias. Options that recurrent_gradient does not
    support (other activations, clip, peepholes, coupled gates) use equivalent scans.
    """
    kind, relu = node.attribute("kind"), _is_relu(node)
    inner = any(g is not None for g in given[3:])  # gradients of gates and cells, in second derivatives
    if inner or not _has_kernel(node, relu):
        return through(lambda *operands: cells(node, list(operands), inner), node.inputs, given, needs)
    weights, directions = node.inputs[1], 2 if node.attribute("direction") == "bidirectional" else 1
    assert weights is not None
    gates, memory = _kept(node)
    dp, dh, dc, dq = ops.recurrent_gradient(
        real(weights), gates, node.outputs[0], memory, operand(node, 2), operand(node, 3), operand(node, 4),
        *[*given, None, None][:3], kind=kind, direction=node.attribute("direction"), relu=relu, outputs=4,
    )  # fmt: skip
    dq = dq if kind == "gru" else dp  # for other kinds the two are equal, and only dp is written
    parts = ops.copy([dq], kind="split", axis=2, outputs=directions) if directions > 1 else [dq]
    needs = [*needs, *[False] * 7][:7]
    by_weights = by_bias = None
    if needs[1]:
        y, initial, lengths, reverse = node.outputs[0], operand(node, 2), operand(node, 4), _reverse(node)
        states = [before(y, initial, lengths, d, reverse or d == 1) for d in range(directions)]
        made = [ops.matmul(_rows(p), _rows(h), transpose_a=True) for p, h in zip(parts, states, strict=True)]
        by_weights = _stack(made)
    if needs[6]:
        hidden = [ops.copy([part], kind="split", axis=2, outputs=GATES[kind])[-1] for part in parts]
        by_bias = _stack([ops.reduce(part, kind="sum", axis=[0, 1], keep_dims=False) for part in hidden])
    return [
        dp if needs[0] else None, by_weights, dh if needs[2] else None, dc if needs[3] else None, None, None, by_bias
    ]  # fmt: skip


def second_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The gradient of recurrent_gradient itself, through an equivalent scan from the last step to the first."""
    return through(lambda *operands: cells_back(node, list(operands)), node.inputs, given, needs)


def _reverse(node: Node) -> bool:
    return bool(node.attribute("direction") == "reverse")


def _is_relu(node: Node) -> bool:
    activations = list(node.attribute("activations"))
    return node.attribute("kind") == "rnn" and bool(activations) and set(activations) == {_RELU}


def _has_kernel(node: Node, relu: bool) -> bool:
    """Whether recurrent_gradient supports this node's options."""
    kind, activations = node.attribute("kind"), list(node.attribute("activations"))
    defaults = {"rnn": [1], "gru": [0, 1], "lstm": [0, 1, 1]}[kind]
    usual = relu or all(a == defaults[i % len(defaults)] for i, a in enumerate(activations))
    plain = node.attribute("clip") == 0 and operand(node, 5) is None and not node.attribute("input_forget")
    return usual and plain and (kind != "gru" or bool(node.attribute("linear_before_reset")))


def _kept(node: Node) -> tuple[Tensor, Tensor]:
    """The outputs `gates` and `cells` of the forward node. They are added to the node on first use."""
    p, y = node.inputs[0], node.outputs[0]
    assert p is not None
    shape = shape_of(y)
    states = None if len(shape) != 4 else shape[1:]
    for i, (name, dims) in enumerate([("y_h", states), ("y_c", states), ("gates", p.shape), ("cells", shape)], 1):
        if len(node.outputs) <= i:
            made = y.function.tensor(name, y.dtype, dims)
            made.node = node
            node.outputs.append(made)
    return node.outputs[3], node.outputs[4]


def _rows(x: Tensor) -> Tensor:
    """Reshapes x to [time * batch, the rest]."""
    return ops.reshape(x, [-1, _units(x)])


def _units(x: Tensor) -> int:
    size = shape_of(x)[-1]
    if not isinstance(size, int):
        raise GraphError(
            "the gradient rule needs a fixed number of hidden units", code=304, got=str(x.shape), hint="use fixed sizes"
        )
    return size


def _stack(parts: list[Tensor]) -> Tensor:
    return ops.concat([ops.copy([t], kind="unsqueeze", axis=[0])[0] for t in parts], 0)
