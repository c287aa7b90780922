"""Derives the update of some rows of a table from the update of the whole table. Every node is checked: if a row's new
value could depend on another row, the table is rejected with that node's name. This works for any optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from linnet.builder import ops
from linnet.clib.errors import UsageError
from linnet.ir import traits
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.program import Program
from linnet.sync.contract import GRADIENT

SHARED, ROWS, TOUCHED, IDS, COLUMN = "shared", "rows", "touched rows", "row numbers", "column of row numbers"
"""What the first axis of a tensor is: not related to the table; the table's rows; the rows that were pushed; or their
numbers, as received and in the form that scatter needs."""


@dataclasses.dataclass(frozen=True)
class _Place:
    """The tensor that replaces a tensor of the whole update, and the meaning of its first axis."""

    tensor: Tensor
    kind: str


class RowUpdate:
    """Rebuilds nodes of an update in `function` for rows [first, first + count) of the table.

    table: the name of the table. whole: its number of rows. own: the table and its optimizer state, which already have
    only these rows.
    """

    def __init__(self, function: Function, table: str, whole: int, first: int, count: int, own: frozenset[str]) -> None:
        self.function, self.table, self.whole, self.first, self.count = function, table, whole, first, count
        self.own = own
        self._places: dict[Tensor, _Place] = {}

    def input(self, old: Tensor, name: str) -> Tensor:
        """An input of the update, by its name in the signature."""
        rest = name.removeprefix(GRADIENT + self.table)
        kind = {"/ids": IDS, "/rows": TOUCHED, "": ROWS}.get(rest, SHARED)
        shape = list(old.shape or ())
        if kind == ROWS:
            shape[0] = self.count
        new = self.function.placeholder(old.name, old.dtype, shape)
        new.quantization = old.quantization
        self._places[old] = _Place(new, kind)
        return new

    def node(self, node: Node) -> None:
        """Creates the same node for these rows. Raises UsageError."""
        given = [None if t is None else self._place(t) for t in node.inputs]
        kinds = [SHARED if p is None else p.kind for p in given]
        kind = SHARED if all(k == SHARED for k in kinds) else self._kind(node, kinds)
        if any(isinstance(value, Function) for value in node.attributes.values()):
            raise self._refused(node, "the node has branches or loops")
        inputs = [None if p is None else p.tensor for p in given]
        if kind == ROWS:
            inputs = [
                self._rows_of(node, i, t) if t is not None and k == SHARED else t
                for i, (t, k) in enumerate(zip(inputs, kinds, strict=True))
            ]
        made = self.function.emit(
            node.op, inputs, node.attributes, len(node.outputs), node.name,
            [t.quantization for t in node.outputs], [t.dtype for t in node.outputs],
        )  # fmt: skip
        for old, new in zip(node.outputs, made, strict=True):
            shape = (self.count, *(old.shape or ())[1:]) if kind == ROWS else old.shape
            if new.static_shape is not None and new.static_shape != tuple(shape or ()):
                raise self._refused(
                    node,
                    f"the node's result has the fixed shape {list(new.static_shape)}, independent of the number of rows",
                )
            self._places[old] = _Place(new, kind)

    def _place(self, tensor: Tensor) -> _Place:
        if tensor not in self._places:
            if tensor.variable is not None:
                variable = self.function.graph.variables[tensor.variable.name]
                kind = ROWS if variable.name in self.own else SHARED
                self._places[tensor] = _Place(self.function.read(variable), kind)
            else:
                assert tensor.data is not None
                made = self.function.constant(tensor.data, tensor.name, tensor.dtype, tensor.quantization)
                self._places[tensor] = _Place(made, SHARED)
        return self._places[tensor]

    def _kind(self, node: Node, kinds: Sequence[str]) -> str:
        """The kind of the results of a node that reads something related to the table. Raises UsageError if rows could
        mix."""
        op, of = node.op, set(kinds)
        if op == "assign":
            if kinds == [ROWS, ROWS]:
                return ROWS
        elif op in traits.POINTWISE:
            if of <= {ROWS, SHARED} or of <= {TOUCHED, SHARED}:
                kind = ROWS if ROWS in of else TOUCHED
                self._check_broadcast(node, kinds, kind)
                return kind
        elif op == "gather":
            if (
                kinds == [ROWS, IDS]
                and node.attribute("kind") == "take"
                and not (node.attribute("axis") or node.attribute("batch_dims"))
            ):
                return TOUCHED
        elif op == "scatter":
            if kinds[1:] == [COLUMN, TOUCHED] and kinds[0] in (ROWS, SHARED) and node.attribute("kind") == "nd":
                return ROWS
        elif op == "copy":
            kind = node.attribute("kind")
            if kind == "unsqueeze" and kinds == [IDS] and tuple(node.attribute("axes")) == (1,):
                return COLUMN
            if kind == "identity" and len(kinds) == 1:
                return kinds[0]
        elif op == "reduce" and kinds[0] in (ROWS, TOUCHED) and of == {kinds[0]}:
            rank = node.inputs[0].rank if node.inputs[0] is not None else None
            axes = tuple(node.attribute("axes"))
            if axes and rank is not None and all(a % rank for a in axes):
                return kinds[0]
        raise self._refused(node, "a row's new value may depend on other rows")

    def _check_broadcast(self, node: Node, kinds: Sequence[str], kind: str) -> None:
        """Raises UsageError if the first axis of an operand does not become the first axis of the results, or if the
        program uses the index along this axis."""
        rank = node.outputs[0].rank
        for tensor, own in zip(node.inputs, kinds, strict=True):
            assert tensor is not None
            aligned = tensor.rank == rank if own == kind else True
            if own == SHARED and tensor.rank == rank and tensor.shape is not None and tensor.shape[0] != 1:
                aligned = kind == ROWS and tensor.shape[0] == self.whole
            if not aligned or (own == kind and tensor.shape is not None and tensor.shape[0] == 1):
                raise self._refused(node, f"'{tensor.name}' is broadcast over rows")
        if node.op == "map":
            program = Program.decode(node.attributes)
            if any(i.opcode == "iota" and i.operand == 0 for i in program.code):
                raise self._refused(node, "the node uses the number of a row")

    def _rows_of(self, node: Node, place: int, tensor: Tensor) -> Tensor:
        """These rows of a shared tensor, if it has one value per row."""
        rank = node.outputs[0].rank
        if tensor.rank != rank or tensor.shape is None or tensor.shape[0] != self.whole:
            return tensor
        if tensor.data is not None:
            data = tensor.data[self.first : self.first + self.count]
            return self.function.constant(data, tensor.name, tensor.dtype, tensor.quantization)
        maker = tensor.node
        source = maker.inputs[0] if maker is not None else None
        if maker is not None and maker.op == "copy" and maker.attribute("kind") == "expand" and source is not None:
            shape = [self.count, *tensor.shape[1:]]
            if source.rank is not None and (source.rank < (rank or 0) or (source.shape or (0,))[0] == 1):
                return ops.copy([source], kind="expand", shape=[d for d in shape if isinstance(d, int)])[0]
        return ops.copy(
            [tensor], kind="slice", axis=[0], starts=[self.first], ends=[self.first + self.count], steps=[1]
        )[0]

    def _refused(self, node: Node, reason: str) -> UsageError:
        return UsageError(
            f"'{self.table}' cannot be split by rows: {reason}, in the update's {node.op} "
            f"'{node.name or node.outputs[0].name}'",
            code=101,
            op=node.op,
            tensor=self.table,
            expected="an update in which each row depends only on itself",
            hint="keep it whole, or use an optimizer such as SGD, AdaGrad, Momentum or Adam without a norm over the "
            "table",
        )
