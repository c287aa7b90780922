"""The gradient of a gather in sparse form: some rows of a tensor and their indices. All other rows are zero and are not
stored, so the cost of a training step does not depend on how many rows the tensor has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from linnet.autodiff._tools import elementwise, filled, integers
from linnet.builder import ops
from linnet.ir.dtypes import Dim
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.program import REGISTER


@dataclasses.dataclass(frozen=True)
class SparseRows:
    """A tensor of shape `shape` that is zero except for some rows along its first axis.

    ids: i64 [k], in [0, shape[0]). rows: [k, *shape[1:]]. Rows with the same id are added up. If `summed` is true, the
    ids are sorted, and rows with the same id are equal: each of them is already the whole sum.
    """

    ids: Tensor
    rows: Tensor
    shape: tuple[Dim, ...]
    summed: bool = False

    @property
    def function(self) -> Function:
        """The function to which the tensors belong."""
        return self.rows.function

    @property
    def dtype(self) -> str:
        """Dtype of the rows."""
        return self.rows.dtype

    @property
    def name(self) -> str:
        """Name of the rows, for messages."""
        return self.rows.name

    def tensor(self, like: Tensor) -> Tensor:
        """The same values as a dense tensor of `like`'s shape."""
        zeros = filled(like, 0.0)
        return ops.scatter(zeros, self._column(), self.rows, kind="nd", reduction="none" if self.summed else "add")

    def sums(self) -> SparseRows:
        """The same values sorted by id. Every row is replaced by the sum of all rows with the same id. Takes O(k log
        k)."""
        if self.summed:
            return self
        ids, order = ops.top_k(self.ids, ops.shape(self.ids), axis=0, largest=False)
        # 0 for all rows with the smallest id, 1 for all with the next, ...
        run = ops.cumsum(elementwise([_changes(ids)], lambda c: c.cast("i64"), "i64"), integers(ids, 0))
        column = ops.expand_dims(run, 1)
        rows = ops.gather(self.rows, order)
        totals = ops.scatter(filled(rows, 0.0), column, rows, kind="nd", reduction="add")
        return SparseRows(ids, ops.gather(totals, run), self.shape, summed=True)

    def square_sum(self) -> Tensor:
        """The sum of the squared elements as a scalar, after rows with equal ids are added up."""
        total = self.sums()
        first = elementwise([_changes(total.ids)], lambda c: c.max((c.iota(0) < 1).cast("i32")), "bool")
        wide = ops.copy([first], kind="unsqueeze", axis=range(1, len(self.shape)))[0] if len(self.shape) > 1 else first
        return elementwise([total.rows, wide], lambda v, c: c.select(v * v, 0.0), REGISTER[self.dtype]).sum()

    def apply(self, body: Callable[[Tensor], Tensor]) -> SparseRows:
        """Sums rows with equal ids, then applies a function to the rows. The function must map 0 to 0."""
        total = self.sums()
        return dataclasses.replace(total, rows=body(total.rows))

    def scaled(self, factor: float | Tensor) -> SparseRows:
        """The same rows multiplied by a number or scalar."""
        return dataclasses.replace(self, rows=self.rows * factor)

    def take(self, tensor: Tensor) -> Tensor:
        """The rows at these ids of another tensor with the same shape."""
        return ops.gather(tensor, self.ids)

    def put(self, tensor: Tensor, rows: Tensor) -> Tensor:
        """The given tensor with these rows replaced. Rows with the same id must be equal."""
        return ops.scatter(tensor, self._column(), rows, kind="nd")

    def add_to(self, tensor: Tensor, factor: float | Tensor = 1.0) -> Tensor:
        """Returns tensor + factor * (these rows). Only the rows at these ids are touched."""
        if self.summed:
            return self.put(tensor, self.take(tensor) + self.rows * factor)
        return ops.scatter(tensor, self._column(), self.rows * factor, kind="nd", reduction="add")

    def _column(self) -> Tensor:
        return ops.expand_dims(self.ids, 1)


def _changes(ids: Tensor) -> Tensor:
    """True where an id differs from the one before it; false at the first."""
    before = ops.gather(ids, elementwise([ids], lambda i: (i.iota(0) - 1).max(0), "i64"))
    return elementwise([ids, before], lambda a, b: a.ne(b), "bool")


def rows_of(x: Tensor, indices: Tensor, g: Tensor, from_end: bool = True) -> SparseRows:
    """The gradient of gather(x, indices) along axis 0. from_end: whether indices may be negative."""
    assert x.shape is not None
    rest = [d for d in x.shape[1:] if isinstance(d, int)]
    return SparseRows(row_numbers(x, indices, from_end), ops.reshape(g, [-1, *rest]), tuple(x.shape))


def row_numbers(x: Tensor, indices: Tensor, from_end: bool = True) -> Tensor:
    """The rows that gather(x, indices) along axis 0 reads: i64 [n], in order, none negative."""
    assert x.shape is not None
    ids, count = indices.cast("i64"), x.shape[0]
    if from_end and isinstance(count, int):
        ids = elementwise([ids], lambda i: (i < 0).select(i + count, i), "i64")
    return ops.reshape(ids, [-1])


def join(parts: Sequence[SparseRows]) -> SparseRows:
    """The sum of several gradients, made by concatenating their rows."""
    if len(parts) == 1:
        return parts[0]
    ids, rows = ops.concat([p.ids for p in parts], 0), ops.concat([p.rows for p in parts], 0)
    return SparseRows(ids, rows, parts[0].shape)


Gradients = Sequence[Tensor | SparseRows | None]
Rule = Callable[[Node, list[Tensor | None], list[bool]], Gradients]
"""The gradient rule of an op: (node, gradients of its outputs, which inputs need one) -> gradients of its inputs."""


def add_up(parts: list[Tensor]) -> Tensor:
    """The sum of partial gradients. The sum replaces the items of the list, so that it is computed only once."""
    while len(parts) > 1:
        group = parts[:8]
        parts[:8] = [elementwise(group, lambda *terms: sum(terms[1:], terms[0]), group[0].dtype)]
    return parts[0]


def sum_of(parts: list[Tensor | SparseRows], like: Tensor) -> Tensor | SparseRows:
    """The sum of partial gradients: as rows if all are rows, else as a tensor of `like`'s shape."""
    rows = [p for p in parts if isinstance(p, SparseRows)]
    dense = [p for p in parts if not isinstance(p, SparseRows)]
    if not rows:
        return add_up(dense)
    return join(rows).add_to(add_up(dense)) if dense else join(rows)
