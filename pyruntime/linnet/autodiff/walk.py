"""Walks back through nodes and calls each op's rule for the gradients of its inputs. A rule calls `through` to start a
walk of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from linnet._generated.op_table import OPS
from linnet.autodiff._tools import FLOAT_DTYPES
from linnet.autodiff.sparse import Gradients, Rule, SparseRows, sum_of
from linnet.builder import ops
from linnet.builder.straight_through import STOPPED
from linnet.clib.errors import GraphError
from linnet.ir.function import Node, Tensor
from linnet.ir.scopes import following

rules: dict[str, Rule] = {}
"""The rule of each op. Rules also walk, so they are in modules above this one; linnet.autodiff fills this table
(rules.RULES)."""


def reached(nodes: Sequence[Node], sources: Iterable[Tensor]) -> set[Tensor]:
    """Returns the tensors that depend on `sources` in a differentiable way, including the sources. nodes: in order of
    use."""
    active = set(sources)
    for node in nodes:
        if node.source == STOPPED:
            continue
        if any(t in active for t in node.inputs if t is not None):
            # Integers take part only if they represent real values.
            stands = node.op == "quantize" or any(
                t in active and t.dtype not in FLOAT_DTYPES for t in node.inputs if t is not None
            )
            active.update(t for t in node.outputs if t.dtype in FLOAT_DTYPES or stands)
    return active


def walk(
    nodes: Sequence[Node], seeds: dict[Tensor, Tensor], wanted: Sequence[Tensor]
) -> list[Tensor | SparseRows | None]:
    """Gradients of `wanted` from the gradients of some outputs of `nodes`. A gradient is None if there is no path. It
    is SparseRows for a read of a variable whose rows are read only by gathers. nodes: in order of use."""
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
    return [_sum(partial[t], t) if t in partial else None for t in wanted]


def _sum(parts: list[Tensor | SparseRows], t: Tensor) -> Tensor | SparseRows:
    with following(t.function, t):
        return sum_of(parts, t)


def _dense(partial: dict[Tensor, list[Tensor | SparseRows]], t: Tensor) -> Tensor | None:
    """The gradient of a node's output as a tensor. It is never SparseRows, because only nodes that read variables have
    such gradients."""
    total = _sum(partial[t], t) if t in partial else None
    assert not isinstance(total, SparseRows)
    if total is not None:
        partial[t] = [total]  # computed once
    return total


def _back(node: Node, given: list[Tensor | None], needs: list[bool]) -> list[Tensor | SparseRows | None]:
    """The gradients of a node's inputs, by the rule of its op."""
    function = node.outputs[0].function
    before = function.source, function.placement
    function.source, function.placement = node.source, node.placement
    try:
        rule = rules.get(node.op)
        if rule is None:
            text = str(OPS[node.op]["gradient"])
            raise GraphError(
                text.removeprefix("none: ")
                if text.startswith("none")
                else "linnet does not have a gradient rule for this op yet",
                code=301,
            )
        whole = [
            t for t, n in zip(node.inputs, needs, strict=True) if t is not None and n and t.dtype not in FLOAT_DTYPES
        ]
        if whole and not OPS[node.op]["integer_gradient"]:
            raise GraphError(
                "the op computes in integers", code=301, got=f"'{whole[0].name}', {whole[0].dtype}",
                hint="dequantize its operands first",
            )  # fmt: skip
        made = rule(node, given, needs)
    except GraphError as error:
        if error.op:
            raise
        raise GraphError(
            f"op {node.op} cannot be differentiated: {error.what}", code=error.code or 301, op=node.name or node.op,
            op_index=function.nodes.index(node), tensor=node.outputs[0].name, expected=error.expected, got=error.got,
            hint=error.hint or "ask for gradients of tensors after this node, or build the model without it",
        ) from None  # fmt: skip
    finally:
        function.source, function.placement = before
    return [*made, *[None] * len(needs)][: len(needs)]


def through(
    build: Callable[..., Tensor | Sequence[Tensor]],
    inputs: Sequence[Tensor | None],
    given: Tensor | Sequence[Tensor | None],
    needs: Sequence[bool],
) -> Gradients:
    """The gradients of an op, found by walking back through equivalent nodes. `build` creates these nodes from aliases
    of the inputs."""
    gradients = [given] if isinstance(given, Tensor) else list(given)
    function = next(g.function for g in gradients if g is not None)
    # Identity nodes keep the inputs distinct from each other and from what the inputs depend on.
    own = [None if t is None else ops.copy([t])[0] for t in inputs]
    start = len(function.nodes)
    made = build(*own)
    nodes = function.nodes[start:]
    seeds = {
        y: g for y, g in zip([made] if isinstance(made, Tensor) else made, gradients, strict=False) if g is not None
    }
    wanted = [t for t, need in zip(own, needs, strict=True) if t is not None and need]
    found = iter(walk(nodes, seeds, wanted))
    return [next(found) if t is not None and need else None for t, need in zip(own, needs, strict=True)]
