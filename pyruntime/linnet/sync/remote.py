"""Remote tables: too large for a worker, so the rows that a batch looks up come in as an input, and only these travel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from linnet import ops
from linnet.autodiff._tools import behind, elementwise, inner_reads, integers, numbers_of
from linnet.autodiff.sparse import row_numbers
from linnet.errors import UsageError
from linnet.graph import Function, Node, Tensor, Variable


@dataclasses.dataclass(frozen=True)
class Table:
    """A remote table as one loss uses it.

    ids: i64 [n], what the batch looks up, in order. rows: a placeholder [n, ...] for these rows. stand_ins: what takes the
    place of the results of the look-ups.
    """

    variable: Variable
    ids: Tensor
    rows: Tensor
    stand_ins: dict[Tensor, Tensor]


def look_ups(loss: Tensor, remote: Sequence[Variable]) -> list[Table]:
    """The remote tables behind the loss. Raises UsageError for what no row input can stand for."""
    used, inner = behind(loss), inner_reads(loss)
    made = []
    for variable in remote:
        if variable.graph is not loss.function.graph or variable.value.ndim < 1:
            raise UsageError(
                f"'{variable.name}' is no table of this graph",
                code=101,
                tensor=variable.name,
                expected="a variable with rows",
            )
        gathers = _gathers(variable, loss.function, used)
        if variable in inner or not gathers:
            raise UsageError(
                "a remote table is looked up in a branch or loop" if variable in inner else "the loss looks no row of it up",
                code=101, tensor=variable.name, expected="ops.gather or nn.embedding outside branches and loops",
                hint="pass the rows in, or keep the table with the worker",
            )  # fmt: skip
        made.append(_table(variable, gathers))
    return made


def _gathers(variable: Variable, function: Function, used: set[Tensor]) -> list[Node]:
    """The look-ups of a table, in order; UsageError when something else reads it."""
    found = []
    for node in function.nodes:
        reads = [i for i, t in enumerate(node.inputs) if t is not None and t.variable is variable]
        if not reads or not any(t in used for t in node.outputs):
            continue
        if node.op != "gather" or reads != [0] or node.attribute("axis") != 0:
            raise UsageError(
                f"more than look-ups reads this table: {node.op} '{node.name or node.outputs[0].name}'", code=101,
                tensor=variable.name, expected="ops.gather along axis 0 or nn.embedding alone",
                hint="leave it out of remote=, then workers hold it whole",
            )  # fmt: skip
        found.append(node)
    return found


def _table(variable: Variable, gathers: Sequence[Node]) -> Table:
    graph, shape = gathers[0].outputs[0].function.graph, variable.value.shape
    rows = graph.placeholder(f"rows/{variable.name}", (f"{variable.name}/looked up", *shape[1:]), variable.dtype)
    stand_ins: dict[Tensor, Tensor] = {}
    parts: list[Tensor] = []
    before = integers(rows, 0)  # rows of the look-ups so far
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
    """Rows [n, ...] as what a look-up of indices gives: the shape of indices, then that of a row."""
    rest = [d for d in rows.shape[1:] if isinstance(d, int)] if rows.shape is not None else []
    if indices.static_shape is not None:
        return ops.reshape(rows, [*indices.static_shape, *rest])
    return ops.copy([rows, ops.concat([ops.shape(indices), integers(rows, rest)], 0)], kind="reshape", allow_zero=True)[
        0
    ]
