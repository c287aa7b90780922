"""Automatic differentiation: `gradients` walks back from a loss and adds ordinary nodes to the graph. The C library is
not involved. RULES has one rule per op (in rules.py and, for some families of ops, in maps.py, copies.py, windows.py,
...). walk.py applies the rules backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

from linnet.autodiff._tools import FLOAT_DTYPES, filled, inner_reads
from linnet.autodiff.rules import RULES
from linnet.autodiff.sparse import SparseRows, sum_of
from linnet.autodiff.walk import rules, walk
from linnet.clib.arguments import check_all
from linnet.clib.errors import GraphError, UsageError
from linnet.ir.function import Operators, Tensor, Variable, refuse_other_graphs
from linnet.ir.scopes import following

__all__ = ["SparseRows", "gradients"]

rules.update(RULES)


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
    """Returns the derivative of `loss` with respect to each entry of `wanted`, as tensors of the same function.

    loss: a float tensor. If it has several elements, the derivative of their sum is taken.
    wanted: float tensors of the same function, or variables (every read of the variable in that function counts).
    seed: the gradient of `loss` itself, of its dtype and shape; default: ones. Returns one tensor per entry, of its
        dtype and shape, with zeros where the loss does not depend on it.
    sparse: a variable whose rows are only read by gathers gets its gradient as SparseRows, which optimizers accept
        directly; every other gradient is a tensor. Only nodes on a path from `wanted` to `loss` are differentiated, and
        the emitted nodes can be differentiated again. Method: reverse accumulation (Griewank and Walther, "Evaluating
        Derivatives", 2008, chapter 3).
    Raises UsageError for integer tensors or tensors of another function, and GraphError for a node on the path that has
    no gradient. The error names the node, its op and the reason.
    """
    loss = loss.tensor()
    function = loss.function
    refuse_other_graphs(function.graph, *wanted, seed)
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
                f"the tensor belongs to function '{item.function.name}', not to the loss's function",
                code=101,
                tensor=item.name,
                expected=f"a tensor of '{function.name}'",
            )
        else:
            sources.append([item])
    for tensor in [loss, *(t for group in sources for t in group)]:
        if tensor.dtype not in FLOAT_DTYPES:
            raise UsageError(
                "only float tensors have a gradient",
                code=103,
                tensor=tensor.name,
                expected="a float dtype",
                got=tensor.dtype,
            )
    if seed is None:
        with following(function, loss):
            seed = filled(loss, 1.0)
    flat = [t for group in sources for t in group]
    try:
        found = dict(zip(flat, walk(nodes, {loss: seed}, flat), strict=True))
    except Exception:
        function.nodes[:] = nodes  # on failure, remove the gradient's nodes
        for node in nodes:
            for tensor in node.outputs:
                tensor.node = node
        raise
    result: list[Tensor | SparseRows] = []
    for item, group in zip(wanted, sources, strict=True):
        parts = [g for t in group if (g := found[t]) is not None]
        like = item.tensor(loss)
        with following(function, like):
            total = sum_of(parts, like) if parts else filled(like, 0.0)
            result.append(total.tensor(like) if isinstance(total, SparseRows) and not sparse else total)
    return result


def _refuse_inner_reads(loss: Tensor, wanted: Sequence[Tensor | Variable]) -> None:
    """Raises GraphError if the loss depends on a branch or loop whose body itself reads a wanted variable, because no
    gradient would reach this read. linnet.scan, while_loop and cond capture variables; functions built by hand may
    not."""
    for variable, (node, function) in inner_reads(loss).items():
        if variable in wanted:
            raise GraphError(
                f"variable '{variable.name}' is read inside function '{function.name}', where no gradient can reach "
                "it",
                code=301, op=node.name or node.op, tensor=variable.name,
                hint="read it outside and pass it in as an input, as linnet.scan, while_loop and cond do",
            )  # fmt: skip


check_all(globals(), __all__)
