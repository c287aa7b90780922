"""The rule for Einsum: operands are contracted two at a time as batched matrix products. First, the diagonal is taken
if an index is repeated. Indices that occur in only one operand are summed before the product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.rules.linear import product
from linnet.ir.function import Tensor


def _letters(op: Operation, term: str, rank: int, dots: int) -> list[str]:
    """One label per dimension. The dimensions of an ellipsis are "0", "1", ..., aligned to the right."""
    head, ellipsis, tail = term.partition("...")
    if not ellipsis:
        labels = list(head)
    else:
        hidden = rank - len(head) - len(tail)
        labels = [*head, *(str(dots - hidden + i) for i in range(hidden)), *tail]
    if len(labels) != rank:
        raise op.unsupported(
            f"the term {term!r} does not match its operand, which has rank {rank}", "correct the equation"
        )
    return labels


def _diagonal(op: Operation, x: Tensor, labels: list[str]) -> tuple[Tensor, list[str]]:
    """Keeps elements whose coordinates along equal labels agree, then sums over the second of the two axes."""
    for label in labels:
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)

            def body(value: Expr, i: int = first, j: int = second) -> Expr:
                return value.iota(i).binary("eq", value.iota(j)).select(value, 0)

            x = op.reduce(op.map([x], body), "sum", [second], keep_dims=False)
            labels = labels[:second] + labels[second + 1 :]
    return x, labels


def _sum_out(op: Operation, x: Tensor, labels: list[str], keep: set[str]) -> tuple[Tensor, list[str]]:
    axes = [i for i, label in enumerate(labels) if label not in keep]
    if not axes:
        return x, labels
    return op.reduce(x, "sum", axes, keep_dims=False), [label for label in labels if label in keep]


def _arranged(op: Operation, x: Tensor, labels: list[str], order: Sequence[str]) -> Tensor:
    """x transposed to `order`, with axes of size 1 for missing labels."""
    present = [label for label in order if label in labels]
    x = op.transpose(x, [labels.index(label) for label in present])
    return op.unsqueeze(x, [i for i, label in enumerate(order) if label not in labels])


def _merged(op: Operation, x: Tensor, batch: int, groups: Sequence[int]) -> Tensor:
    """Merges each group of axes that follow the batch axes into one axis."""
    if all(g == 1 for g in groups):
        return x
    sizes, at = [op.shape_of(x, 0, batch)] if batch else [], batch
    for group in groups:
        part = op.shape_of(x, at, at + group)
        sizes.append(op.reduce(part, "prod", [0]) if group else op.constant(np.ones(1, np.int64)))
        at += group
    return op.reshape(x, op.concat(sizes, 0))


def _contract(
    op: Operation, a: Tensor, la: list[str], b: Tensor, lb: list[str], keep: set[str]
) -> tuple[Tensor, list[str]]:
    a, la = _sum_out(op, a, la, keep | set(lb))
    b, lb = _sum_out(op, b, lb, keep | set(la))
    inner = [x for x in la if x in lb and x not in keep]
    if not inner:
        order = [*la, *(x for x in lb if x not in la)]
        y = op.map([_arranged(op, a, la, order), _arranged(op, b, lb, order)], lambda v, w: v * w)
        return y, order
    batch = [x for x in la if x in lb and x in keep]
    rows = [x for x in la if x not in lb]
    columns = [x for x in lb if x not in la]
    a = _arranged(op, a, la, [*batch, *rows, *inner])
    b = _arranged(op, b, lb, [*batch, *inner, *columns])
    plain = len(rows) == len(columns) == len(inner) == 1
    if plain:
        return product(op, a, b), [*batch, *rows, *columns]
    # shapes of the merged axes, needed to split them again
    rows_shape = op.shape_of(a, len(batch), len(batch) + len(rows))
    columns_shape = op.shape_of(b, len(batch) + len(inner))
    y = product(
        op,
        _merged(op, a, len(batch), [len(rows), len(inner)]),
        _merged(op, b, len(batch), [len(inner), len(columns)]),
    )
    parts = [op.shape_of(y, 0, len(batch))] if batch else []
    parts += ([rows_shape] if rows else []) + ([columns_shape] if columns else [])
    shape: Tensor | list[int] = op.concat(parts, 0) if parts else []
    return op.reshape(y, shape), [*batch, *rows, *columns]


@rule("Einsum")
def einsum(op: Operation) -> Tensor:
    equation = str(op.attribute("equation")).replace(" ", "")
    tensors = op.all_inputs()
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise op.unsupported(f"the equation has {len(terms)} terms for {len(tensors)} operands", "correct the equation")
    ranks = [rank_of(t, f"input {i}") for i, t in enumerate(tensors)]
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True) if "..." in term]
    dots = max(hidden, default=0)
    labels = [_letters(op, term, rank, dots) for term, rank in zip(terms, ranks, strict=True)]
    if arrow:
        output = _letters(op, right, len(right.replace("...", "")) + (dots if "..." in right else 0), dots)
    else:  # the ellipsis first, then the letters that occur once, in alphabetic order
        every = [x for part in labels for x in part]
        output = [str(i) for i in range(dots)] + sorted(
            x for x in set(every) if every.count(x) == 1 and not x.isdigit()
        )
    work = [_diagonal(op, tensor, part) for tensor, part in zip(tensors, labels, strict=True)]
    x, have = work[0]
    for index in range(1, len(work)):
        later = set(output).union(*(set(part) for _, part in work[index + 1 :]))
        x, have = _contract(op, x, have, *work[index], later)
    x, have = _sum_out(op, x, have, set(output))
    return op.transpose(x, [have.index(label) for label in output])
