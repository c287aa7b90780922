"""Gradients as a graph library: `gradients` walks back from a loss and emits ordinary nodes; C knows nothing of it.
RULES (rules.py, and by family maps.py, copies.py, windows.py) has one rule per op; this file has the walk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, overload

from linnet._generated.op_table import OPS
from linnet.autodiff._tools import FLOAT_DTYPES, filled, inner_reads
from linnet.autodiff.rules import RULES
from linnet.autodiff.sparse import SparseRows, sum_of
from linnet.errors import GraphError, UsageError
from linnet.graph import Node, Tensor, Variable
from linnet.operators import Operators
from linnet.straight_through import STOPPED

__all__ = ["SparseRows", "gradients"]


@overload
def gradients(
    loss: Operators, wanted: Sequence[Tensor | Variable], seed: Tensor | None = None, sparse: Literal[False] = False
) -> list[Tensor]: ...
@overload
def gradients(
    loss: Operators, wanted: Sequence[Tensor | Variable], seed: Tensor | None = None, *, sparse: Literal[True]
) -> list[Tensor | SparseRows]: ...
def gradients(
    loss: Operators, wanted: Sequence[Tensor | Variable], seed: Tensor | None = None, sparse: bool = False
) -> Sequence[Tensor | SparseRows]:
    """The derivative of `loss` with respect to each of `wanted`, as tensors of the same function.

    loss: a float tensor; when it has more than one element, the derivative is that of their sum. wanted: float tensors of
    the same function, or variables (every read of the variable in that function counts). seed: the gradient of `loss`
    itself, of its dtype and shape; ones when absent. Returns one tensor per entry, of its dtype and shape; zeros where the
    loss does not depend on it. sparse: a variable that only gathers of rows read has its gradient as SparseRows, which an
    optimizer takes as they are; otherwise as a tensor like the others. Only nodes on a path from `wanted` to `loss` are
    differentiated, and what is emitted can be differentiated again. Reverse accumulation, Griewank and Walther, "Evaluating
    Derivatives", 2008, chapter 3.
    Raises UsageError for tensors of integers or of another function, GraphError for a node on the path that has no
    gradient; it names the node, its op and the reason.
    """
    loss = loss.tensor()
    function = loss.function
    nodes = list(function.nodes)
    reads = [t for t in function.tensors() if t.variable is not None and t.node is None]
    if loss.variable is not None and loss not in reads:
        reads.append(loss)
    reads_of: dict[Variable, list[Tensor]] = {}
    for tensor in reads:
        if tensor.variable is not None:
            reads_of.setdefault(tensor.variable, []).append(tensor)
    _refuse_inner_reads(loss, wanted)
    sources: list[list[Tensor]] = []
    for item in wanted:
        if isinstance(item, Variable):
            sources.append(list(reads_of.get(item, ())))
        elif item.function is not function:
            raise UsageError(
                f"it belongs to function '{item.function.name}'", code=101, tensor=item.name,
                expected=f"a tensor of '{function.name}', where the loss is",
            )  # fmt: skip
        else:
            sources.append([item])
    for tensor in [loss, *(t for group in sources for t in group)]:
        if tensor.dtype not in FLOAT_DTYPES:
            raise UsageError(
                "only floats have a gradient", code=103, tensor=tensor.name, expected="a float type", got=tensor.dtype
            )
    seed = filled(loss, 1.0) if seed is None else seed
    flat = [t for group in sources for t in group]
    try:
        found = dict(zip(flat, walk(nodes, {loss: seed}, flat), strict=True))
    except Exception:
        function.nodes[:] = nodes  # nothing of a gradient that cannot be made stays
        for node in nodes:
            for tensor in node.outputs:
                tensor.node = node
        raise
    result: list[Tensor | SparseRows] = []
    for item, group in zip(wanted, sources, strict=True):
        parts = [g for t in group if (g := found[t]) is not None]
        like = item.tensor(loss)
        total = sum_of(parts, like) if parts else filled(like, 0.0)
        result.append(total.tensor(like) if isinstance(total, SparseRows) and not sparse else total)
    return result


def _refuse_inner_reads(loss: Tensor, wanted: Sequence[Tensor | Variable]) -> None:
    """GraphError when a branch or loop on which the loss depends reads a wanted variable by itself, where no gradient would
    see it. linnet.scan, while_loop and cond capture variables; functions that were built by hand need not."""
    for variable, (node, function) in inner_reads(loss).items():
        if variable in wanted:
            raise GraphError(
                f"variable '{variable.name}' is read inside function '{function.name}', where no gradient reaches it",
                code=301, op=node.name or node.op, tensor=variable.name,
                hint="read it outside and pass it in as an input, as linnet.scan, while_loop and cond do",
            )  # fmt: skip


def reached(nodes: Sequence[Node], sources: Iterable[Tensor]) -> set[Tensor]:
    """The tensors that a gradient path leads to from `sources`, and these. nodes: in order of use."""
    active = set(sources)
    for node in nodes:
        if node.source == STOPPED:
            continue
        if any(t in active for t in node.inputs if t is not None):
            # Integers only where they stand for real values.
            stands = node.op == "quantize" or any(
                t in active and t.dtype not in FLOAT_DTYPES for t in node.inputs if t is not None
            )
            active.update(t for t in node.outputs if t.dtype in FLOAT_DTYPES or stands)
    return active


def walk(
    nodes: Sequence[Node], seeds: dict[Tensor, Tensor], wanted: Sequence[Tensor]
) -> list[Tensor | SparseRows | None]:
    """Gradients of `wanted` from those of some outputs of `nodes`; None where there is no path, SparseRows for a read of a
    variable that only gathers of rows read. nodes: in order of use."""
    active = reached(nodes, wanted)
    partial: dict[Tensor, list[Tensor | SparseRows]] = {t: [g] for t, g in seeds.items() if t in active}
    for node in reversed(nodes):
        given = [_dense(partial, t) for t in node.outputs]
        if not any(g is not None for g in given):
            continue
        needs = [t is not None and t in active for t in node.inputs]
        if not any(needs):
            continue
        for tensor, gradient in zip(node.inputs, _back(node, given, needs), strict=True):
            if tensor is not None and gradient is not None and tensor in active:
                partial.setdefault(tensor, []).append(gradient)
    return [sum_of(partial[t], t) if t in partial else None for t in wanted]


def _dense(partial: dict[Tensor, list[Tensor | SparseRows]], t: Tensor) -> Tensor | None:
    """The gradient of what a node made, which only reads of variables have in rows."""
    total = sum_of(partial[t], t) if t in partial else None
    assert not isinstance(total, SparseRows)
    if total is not None:
        partial[t] = [total]  # made once
    return total


def _back(node: Node, given: list[Tensor | None], needs: list[bool]) -> list[Tensor | SparseRows | None]:
    """The gradients of a node's inputs by its op's rule."""
    function, source = node.outputs[0].function, node.outputs[0].function.source
    function.source = node.source
    try:
        rule = RULES.get(node.op)
        if rule is None:
            text = str(OPS[node.op]["gradient"])
            raise GraphError(
                text.removeprefix("none: ")
                if text.startswith("none")
                else "linnet has no gradient rule for this op yet",
                code=301,
            )
        whole = [
            t for t, n in zip(node.inputs, needs, strict=True) if t is not None and n and t.dtype not in FLOAT_DTYPES
        ]
        if whole and node.op not in ("copy", "dequantize"):
            raise GraphError(
                "it computes in integers", code=301, got=f"'{whole[0].name}', {whole[0].dtype}",
                hint="dequantize its operands first",
            )  # fmt: skip
        made = rule(node, given, needs)
    except GraphError as error:
        if error.op:
            raise
        raise GraphError(
            f"op {node.op} cannot be differentiated: {error.what}", code=error.code or 301, op=node.name or node.op,
            op_index=function.nodes.index(node), tensor=node.outputs[0].name, expected=error.expected, got=error.got,
            hint=error.hint or "ask for gradients of tensors behind it, or write the model without it",
        ) from None  # fmt: skip
    finally:
        function.source = source
    return [*made, *[None] * len(needs)][: len(needs)]
