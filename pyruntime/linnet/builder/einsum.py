"""einsum: operands are contracted two at a time as batched matrix products, so gradients are those of matmul and sums. First,
the diagonal is taken if a letter is repeated. Letters that occur in only one operand are summed before the product."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from linnet.builder.generated import copy, matmul, reduce, shape
from linnet.builder.mapping import pointwise
from linnet.builder.shaping import concat, expand_dims, reshape, sum, transpose
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import Dim
from linnet.ir.function import Operators, Tensor

Term = tuple[Tensor, list[str]]  # a tensor, and a letter for each of its axes


def _wrong(equation: str, expected: str, got: str) -> UsageError:
    return UsageError(f"einsum cannot read {equation!r}", code=101, expected=expected, got=got)


def _letters(equation: str, term: str, rank: int, dots: int) -> list[str]:
    """One letter per axis. The axes of an ellipsis are "0", "1", ..., aligned to the right."""
    head, ellipsis, tail = term.partition("...")
    hidden = rank - len(head) - len(tail)
    letters = [*head, *((str(dots - hidden + i) for i in range(hidden)) if ellipsis else ()), *tail]
    if len(letters) != rank or not all(c.isalpha() for c in head + tail):
        raise _wrong(equation, f"a letter for each of {rank} axes", repr(term))
    return letters


def _diagonal(x: Tensor, letters: list[str]) -> Term:
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            x = pointwise([x], lambda v, i=first, j=second: v.iota(i).eq(v.iota(j)).select(v, 0), x.dtype)
            x, letters = sum(x, second), letters[:second] + letters[second + 1 :]
    return x, letters


def _summed(term: Term, keep: set[str]) -> Term:
    x, letters = term
    axes = [i for i, letter in enumerate(letters) if letter not in keep]
    return (sum(x, axes), [letter for letter in letters if letter in keep]) if axes else term


def _arranged(term: Term, order: Sequence[str]) -> Tensor:
    """The tensor with its axes in this order of letters. Letters that it lacks become axes of size 1."""
    x, letters = term
    present = [letters.index(letter) for letter in order if letter in letters]
    if present != sorted(present):
        x = transpose(x, present)
    missing = [i for i, letter in enumerate(order) if letter not in letters]
    return expand_dims(x, missing) if missing else x


def _shaped(x: Tensor, dims: Sequence[Dim], sizes: Sequence[Tensor]) -> Tensor:
    """Reshapes x to these dimensions. sizes: the dimensions as i64 tensors, which are used for the open ones."""
    if all(isinstance(d, int) for d in dims):
        return reshape(x, [d for d in dims if isinstance(d, int)])
    made = copy([x, concat(sizes, 0)], kind="reshape", allow_zero=True)[0]
    made.shape = tuple(dims)
    return made


def _merged(x: Tensor, batch: int, groups: Sequence[int]) -> Tensor:
    """Merges each group of axes that follow the batch axes into one axis."""
    known, at = x.shape or (), batch
    dims, sizes = list(known[:batch]), [shape(x, start=0, end=batch)] if batch else []
    for group in groups:
        part = known[at : at + group]
        dims.append(math.prod(d for d in part if isinstance(d, int)) if all(isinstance(d, int) for d in part) else None)
        size = reduce(shape(x, start=at, end=at + group), kind="prod", axis=[0]) if group else None
        sizes.append(x.function.constant(np.ones(1, np.int64)) if size is None else size)
        at += group
    return _shaped(x, dims, sizes)


def _contract(a: Term, b: Term, keep: set[str]) -> Term:
    a = _summed(a, keep | set(b[1]))
    b = _summed(b, keep | set(a[1]))
    inner = [x for x in a[1] if x in b[1] and x not in keep]
    if not inner:
        order = [*a[1], *(x for x in b[1] if x not in a[1])]
        return _arranged(a, order) * _arranged(b, order), order
    batch = [x for x in a[1] if x in b[1] and x in keep]
    rows, columns = [x for x in a[1] if x not in b[1]], [x for x in b[1] if x not in a[1]]
    left, right = _arranged(a, [*batch, *rows, *inner]), _arranged(b, [*batch, *inner, *columns])
    order, n = [*batch, *rows, *columns], len(batch)
    if len(rows) == len(columns) == len(inner) == 1:
        return matmul(left, right), order
    y = matmul(_merged(left, n, [len(rows), len(inner)]), _merged(right, n, [len(inner), len(columns)]))
    row_dims, column_dims = (left.shape or ())[n : n + len(rows)], (right.shape or ())[n + len(inner) :]
    sizes = [shape(y, start=0, end=n)] if batch else []
    sizes += [shape(left, start=n, end=n + len(rows))] if rows else []
    sizes += [shape(right, start=n + len(inner))] if columns else []
    return _shaped(y, [*(y.shape or ())[:n], *row_dims, *column_dims], sizes), order


def einsum(equation: str, *operands: Operators, name: str = "") -> Tensor:
    """Sums of products by Einstein's notation (numpy.einsum): einsum("bij,bjk->bik", x, y). An ellipsis stands for axes
    that broadcast. Without "->", the result has the letters that occur once, in alphabetic order."""
    tensors = [operand.tensor() for operand in operands]
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors) or any(t.shape is None for t in tensors):
        raise _wrong(equation, f"{len(terms)} operands of known rank", f"{len(tensors)} operands")
    ranks = [len(t.shape or ()) for t in tensors]
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True) if "..." in term]
    dots = max(hidden, default=0)
    letters = [_letters(equation, term, rank, dots) for term, rank in zip(terms, ranks, strict=True)]
    every = [letter for part in letters for letter in part]
    if arrow:
        output = _letters(equation, right, len(right.replace("...", "")) + (dots if "..." in right else 0), dots)
    else:
        once = sorted(letter for letter in set(every) if every.count(letter) == 1 and not letter.isdigit())
        output = [*(str(i) for i in range(dots)), *once]
    if len(set(output)) < len(output) or not set(output) <= set(every):
        raise _wrong(equation, "letters of the operands, each once, after the arrow", "".join(output))
    work = [_diagonal(tensor, part) for tensor, part in zip(tensors, letters, strict=True)]
    term = work[0]
    for i, other in enumerate(work[1:], 2):
        term = _contract(term, other, set(output).union(*(set(part) for _, part in work[i:])))
    x, have = _summed(term, set(output))
    return transpose(x, [have.index(letter) for letter in output], name=name)
