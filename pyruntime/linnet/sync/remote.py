"""Remote tables: tables that are too large for a worker. The rows that a batch looks up become an input, and only these
rows are transferred."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from linnet.autodiff._tools import behind, elementwise, inner_reads, integers, numbers_of
from linnet.autodiff.sparse import row_numbers
from linnet.builder import ops
from linnet.clib.errors import UsageError
from linnet.ir.function import Function, Node, Tensor, Variable
from linnet.ir.graph import graph_of


@dataclasses.dataclass(frozen=True)
class Table:
    """A remote table as used by one loss.

    ids: i64 [n], the row numbers that the batch looks up, in order. rows: a placeholder [n, ...] for these rows.
    stand_ins: tensors that replace the results of the lookups.
    """

    variable: Variable
    ids: Tensor
    rows: Tensor
    stand_ins: dict[Tensor, Tensor]


def look_ups(loss: Tensor, remote: Sequence[Variable]) -> list[Table]:
    """The remote tables that the loss depends on. Raises UsageError if a row input cannot replace a table."""
    used, inner = behind(loss), inner_reads(loss)
    made = []
    for variable in remote:
        if variable.graph is not loss.function.graph or variable.value.ndim < 1:
            raise UsageError(
                f"'{variable.name}' is not a table of this graph",
                code=101,
                tensor=variable.name,
                expected="a variable with rows",
            )
        gathers = _gathers(variable, loss.function, used)
        if variable in inner or not gathers:
            raise UsageError(
                "a branch or loop looks up rows of this remote table"
                if variable in inner
                else "the loss does not look up any row of this table",
                code=101,
                tensor=variable.name,
                expected="ops.gather or nn.embedding outside of branches and loops",
                hint="pass the rows into the branch or loop, or keep the table with the workers",
            )
        made.append(_table(variable, gathers))
    return made


def _gathers(variable: Variable, function: Function, used: set[Tensor]) -> list[Node]:
    """The lookups of a table, in order. Raises UsageError if anything else reads the table."""
    found = []
    for node in function.nodes:
        reads = [i for i, t in enumerate(node.inputs) if t is not None and t.variable is variable]
        if not reads or not any(t in used for t in node.outputs):
            continue
        if node.op != "gather" or reads != [0] or node.attribute("axis") != 0:
            raise UsageError(
                f"an op other than a lookup reads this table: {node.op} '{node.name or node.outputs[0].name}'",
                code=101,
                tensor=variable.name,
                expected="only ops.gather along axis 0 or nn.embedding",
                hint="remove it from remote=, so that workers hold the whole table",
            )
        found.append(node)
    return found


def _table(variable: Variable, gathers: Sequence[Node]) -> Table:
    graph, shape = graph_of(gathers[0].outputs[0]), variable.value.shape
    rows = graph.placeholder(f"rows/{variable.name}", (f"{variable.name}/looked up", *shape[1:]), variable.dtype)
    stand_ins: dict[Tensor, Tensor] = {}
    parts: list[Tensor] = []
    before = integers(rows, 0)  # number of rows of the lookups so far
    for node in gathers:
        table, indices = node.inputs[0], node.inputs[1]
        assert table is not None and indices is not None
        ids = row_numbers(table, indices, bool(node.attribute("from_end")))
        parts.append(ids)
        own = rows
        if len(gathers) > 1:
            place = elementwise([numbers_of(ids), before], lambda i, start: i + start, "i64")
            before = elementwise([before, ops.shape(ids)], lambda a, n: a + n, "i64")
            own = ops.gather(rows, place)
        made = own if indices.rank == 1 else _shaped(own, indices)
        made.shape = node.outputs[0].shape
        stand_ins[node.outputs[0]] = made
    return Table(variable, parts[0] if len(parts) == 1 else ops.concat(parts, 0), rows, stand_ins)


def _shaped(rows: Tensor, indices: Tensor) -> Tensor:
    """Reshapes rows [n, ...] to the result of a lookup. Its shape is the shape of the indices followed by the shape of
    a row."""
    rest = [d for d in rows.shape[1:] if isinstance(d, int)] if rows.shape is not None else []
    if indices.static_shape is not None:
        return ops.reshape(rows, [*indices.static_shape, *rest])
    return ops.copy([rows, ops.concat([ops.shape(indices), integers(rows, rest)], 0)], kind="reshape", allow_zero=True)[
        0
    ]
