"""Embeddings: constant tables of which a graph looks up rows. A table is stored in 4, 8 or 16 bits, and the lookup widens only
the rows that it gives. So neither the file nor the memory holds the table in floats."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from linnet.ir import traits
from linnet.ir.dtypes import Quantization, blocks_of, bytes_of, numpy_dtype
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.node_names import step_names
from linnet.quantization.scheme import HALVES, LIMITS, table_of, weight_parameters

if TYPE_CHECKING:
    from linnet.quantization.decisions import Decisions

LARGE = 1 << 16  # bytes of a table of floats; a smaller one gains nothing
BLOCK = 32  # numbers of 4 bits that share a scale
# How a scheme of the quantization table stores the rows. Activations do not matter here.
STORED = {
    "w4": "w4", "i8": "i8", "w8": "i8", "w8a8": "i8", "w8a16": "i8", "i16": "i16", "w16a16": "i16", "w16": "f16",
}  # fmt: skip
# In an i16 graph, rows have 8 bits if this loses little: 50 dB, where the limit of all outputs is 40 dB.
_QUIET = 1e-5


@dataclasses.dataclass(frozen=True)
class Embedding:
    """A lookup. table: f32 [rows, ...]. stored: i8, i16 or w4, or the dtype of the floats. noise: of the stored rows, relative
    to their power. why: the reason if the table stays in floats."""

    node: Node
    table: Tensor
    stored: str
    noise: float = 0.0
    why: str = ""

    @property
    def remark(self) -> str:
        assert self.table.data is not None
        rows, *rest = self.table.data.shape
        words = f"gather: {rows} rows of {int(np.prod(rest))}"
        if self.noise > 0:
            words += f", rows {-10 * np.log10(self.noise):.1f} dB"
        return f"{words}; {self.why}" if self.why else words


def embeddings(made: Decisions) -> dict[Node, Embedding]:
    """How each lookup in a large constant table, or in one that has a row, stores this table."""
    found = {}
    for node in made.old.nodes:
        table = table_of(node)
        if table is None or table.data is None:
            continue
        names = [made.steps[node], *made.aliases[node]]
        asked = made.overrides.dtype(*names, default="")
        if asked or table.data.nbytes >= LARGE:
            found[node] = _choose(made, node, table, asked)
    return found


def _choose(made: Decisions, node: Node, table: Tensor, asked: str) -> Embedding:
    assert table.data is not None
    wanted = asked or made.dtype
    stored = STORED.get(wanted)
    if stored is None or stored in HALVES:
        mode = made.modes[node]
        return Embedding(node, table, mode if mode in HALVES else "f32", why="--table says so" if asked else "")
    why = _obstacle(made, node, table, stored)
    if why:
        return Embedding(node, table, "f32", why=why)
    for product in made.consumers[table]:
        form = _weights_of(made, product) if product is not node and product.op in traits.MATRICES else ""
        if form:
            return Embedding(node, table, form, why=f"has one constant with {made.steps[product]}")
    if stored == "i16" and not asked and (noise := noise_of(table.data, "i8", made.weight_bits)) <= _QUIET:
        return Embedding(node, table, "i8", noise)
    return Embedding(node, table, stored, noise_of(table.data, stored, made.weight_bits))


def _obstacle(made: Decisions, node: Node, table: Tensor, stored: str) -> str:
    """Why the table of a lookup cannot be stored in this form, or an empty text."""
    assert table.data is not None
    if any(t in made.fixed for t in node.outputs):
        return "its rows are known before the run"
    if not np.isfinite(table.data).all():
        return "the table has values that are not finite"
    if table in made.old.outputs:
        return "the table is a result of the graph"
    for reader in made.consumers.get(table, []):
        if table_of(reader) is table or shares(made, reader, table, stored):
            continue
        return f"{made.steps[reader]} reads the table too, in {made.modes[reader]}, and it would be stored twice"
    return ""


def shares(made: Decisions, product: Node, table: Tensor, stored: str) -> bool:
    """Whether a product whose weights are the table multiplies by the stored rows, so that both read one constant."""
    if product.op not in traits.MATRICES or [t is table for t in product.inputs] != [
        i == 1 for i in range(len(product.inputs))
    ]:
        return False
    if traits.weight_axis(product.op, product.attributes, table.rank or 0) != 0:
        return False
    if stored == "w4":
        return made.schemes.get(product) == "w4"
    return made.modes[product] in LIMITS or made.schemes.get(product) == "w8"


def _weights_of(made: Decisions, product: Node) -> str:
    """The form of an integer product's weights, if it is decided before they are rounded."""
    scheme = made.schemes.get(product, made.modes[product])
    return {"i8": "i8", "w8a8": "i8", "w8": "i8", "w16a16": "i16"}.get(scheme, "")


def narrow(values: npt.NDArray[Any], stored: str, bits: int = 8) -> tuple[npt.NDArray[Any], Quantization]:
    """A table in 8 or 16 bits with a scale for each row, or in 4 bits ("w4") with a scale for each block of a row. bits: of the
    numbers that are stored in 8."""
    if stored == "i16":  # rows are not summed, so they use all bits
        return weight_parameters(values, 0, bits=16, limit=LIMITS["i16"][1])
    if stored != "w4":
        return weight_parameters(values, 0, bits=bits)
    return four_bits(values, values.ndim - 1)


def four_bits(values: npt.NDArray[Any], axis: int) -> tuple[npt.NDArray[Any], Quantization]:
    """Symmetric numbers of 4 bits, with a scale for each block of numbers along an axis: the one with the least squared error
    among some."""
    x = np.moveaxis(np.asarray(values, np.float32), axis, -1)
    count = -(-x.shape[-1] // BLOCK)
    padded = np.zeros((*x.shape[:-1], count * BLOCK), np.float32)
    padded[..., : x.shape[-1]] = x
    blocks = padded.reshape(*x.shape[:-1], count, BLOCK)
    # The number that is largest in absolute value becomes -8 or 7: a block may be mirrored in no other way, because scales are
    # positive. Smaller scales cut it off, and round the others more finely.
    top, bottom = blocks.max(-1, keepdims=True), blocks.min(-1, keepdims=True)
    whole = np.maximum(np.maximum(top / 7, bottom / -8), np.float32(1e-30))
    best, least = whole, np.full(whole.shape, np.inf, np.float32)
    for part in (1.0, 0.94, 0.88, 0.82):
        scale = whole * np.float32(part)
        error = np.square(np.clip(np.rint(blocks / scale), -8, 7) * scale - blocks).sum(-1, keepdims=True)
        best, least = np.where(error < least, scale, best), np.minimum(error, least)
    codes = np.clip(np.rint(blocks / best), -8, 7).reshape(padded.shape)[..., : x.shape[-1]]
    scales = np.ascontiguousarray(np.moveaxis(best[..., 0], -1, axis))
    assert scales.shape == blocks_of(values.shape, axis, BLOCK)
    stored = np.ascontiguousarray(np.moveaxis(codes, -1, axis)).astype(np.int8).astype(numpy_dtype("i4"))
    return stored, Quantization(scales, np.zeros(scales.shape, np.int32), axis, 4, BLOCK)


def real(stored: npt.NDArray[Any], q: Quantization) -> npt.NDArray[np.float32]:
    """The values that symmetric integers represent."""
    scale = q.scale
    if q.block:
        assert q.axis is not None
        scale = np.repeat(scale, q.block, q.axis).take(range(stored.shape[q.axis]), q.axis)
    elif q.axis is not None:
        scale = scale.reshape([-1 if i == q.axis else 1 for i in range(stored.ndim)])
    return np.asarray(stored.astype(np.float32) * scale, np.float32)


def noise_of(values: npt.NDArray[Any], stored: str, bits: int = 8) -> float:
    """The squared error of a table's stored form, relative to the sum of its squares."""
    power = float(np.square(values, dtype=np.float64).sum())
    lost = real(*narrow(values, stored, bits)) - values
    return float(np.square(lost, dtype=np.float64).sum()) / power if power > 0 else 0.0


class Tables:
    """The narrow constants of one function. A product whose weights are a table has the same constant as the lookup."""

    def __init__(self, made: Decisions, function: Function) -> None:
        self.lookups = embeddings(made)
        self.bits, self.function = made.weight_bits, function
        self.made: dict[tuple[Tensor, str], Tensor] = {}
        self.settled: set[Tensor] = set()  # weights that a product has rounded

    def stored(self, node: Node) -> str:
        """The form of the table that a node looks up in, or an empty text if it is floats."""
        found = self.lookups.get(node)
        if found is None or found.stored not in ("i8", "i16", "w4"):
            return ""
        held = None if found.stored == "w4" else self.made.get((found.table, "weights"))
        return found.stored if held is None else held.dtype  # of the product that has the same constant

    def rows(self, node: Node) -> Tensor:
        """The narrow table of a lookup."""
        table, stored = self.lookups[node].table, self.stored(node)
        assert table.data is not None
        held = self.made.get((table, "w4" if stored == "w4" else "weights"))
        if held is None:
            values, parameters = narrow(table.data, stored, self.bits)
            held = self.function.constant(values, table.name, quantization=parameters)
            self.made[table, "w4" if stored == "w4" else "weights"] = held
        return held

    def weights(self, w: Tensor, values: npt.NDArray[Any], parameters: Quantization) -> Tensor:
        """The constant for a product's weights. The product rounds them with more care, so a lookup in the same table gets its
        numbers."""
        shared = any(t.table is w and self.stored(n) in ("i8", "i16") for n, t in self.lookups.items())
        if not shared or w in self.settled or parameters.axis != 0:
            return self.function.constant(values, w.name, quantization=parameters)
        self.settled.add(w)
        held = self.made.get((w, "weights"))
        if held is None:
            held = self.made[w, "weights"] = self.function.constant(values, w.name, quantization=parameters)
        held.data, held.quantization = values, parameters
        held.dtype = "i8" if values.dtype == np.int8 else "i16"
        return held

    def blocks(self, w: Tensor, turned: bool) -> Tensor:
        """The constant for a product's weights of 4 bits: [outputs, inputs], so that the numbers of a block follow each other.
        turned: whether w is in this order."""
        assert w.data is not None
        key = (w, "w4" if turned else "columns")
        if key not in self.made:
            values, parameters = four_bits(w.data if turned else w.data.T, 1)
            self.made[key] = self.function.constant(values, w.name, quantization=parameters)
        return self.made[key]


@dataclasses.dataclass(frozen=True)
class Described:
    """What a report says of an embedding. stored: i8, i16, w4 or a dtype of floats. before, after: bytes, with scales."""

    layer: str
    rows: int
    columns: int
    stored: str
    before: int
    after: int
    why: str = ""


def described(old: Function, new: Function, why: Mapping[str, str] | None = None) -> list[Described]:
    """The lookups of a float function whose tables are large, and how the quantized function stores these tables."""
    made = {name: node for node, name in step_names(new).items()}
    found = []
    for node, name in step_names(old).items():
        table, other = table_of(node), made.get(name)
        if table is None or table.data is None or table.data.nbytes < LARGE or other is None or other.op != node.op:
            continue
        x = other.inputs[0]
        if x is None or x.data is None:
            continue
        rows, *rest = table.data.shape
        held = bytes_of(x.dtype, x.data.shape) + (x.quantization.scale.nbytes if x.quantization is not None else 0)
        stored = "w4" if x.dtype == "i4" else x.dtype
        found.append(
            Described(name, rows, int(np.prod(rest)), stored, table.data.nbytes, held, (why or {}).get(name, ""))
        )
    return found


def sentence(found: Sequence[Described]) -> str:
    """One line about the embeddings of a graph."""
    kinds = dict.fromkeys(one.stored for one in found)
    parts = []
    for kind in kinds:
        own = [one for one in found if one.stored == kind]
        before, after = (sum(getattr(one, name) for one in own) / 1e6 for name in ("before", "after"))
        parts.append(f"{len(own)} in {kind} ({before:,.1f} MB of floats -> {after:,.1f} MB)")
    return f"embeddings: {', '.join(parts)}"
