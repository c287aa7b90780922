"""Fully connected layers and embeddings."""

from __future__ import annotations

from linnet import init
from linnet.builder import ops
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import DTypeLike
from linnet.ir.function import Operators, Tensor
from linnet.ir.graph import graph_of
from linnet.nn._layer import Start, layer, positive, size_of, variable
from linnet.nn.activations import Activation, activate


def dense(
    x: Operators,
    units: int,
    *,
    bias: bool = True,
    activation: Activation = None,
    weight_start: Start = init.glorot,
    bias_start: Start = init.zeros,
    name: str = "",
) -> Tensor:
    """Returns activation(x @ weight + bias) over the last axis: x [..., inputs] -> [..., units].

    Variables `weight` [inputs, units] and `bias` [units], of x's dtype.
    """
    with layer(x, "dense", name) as graph:
        inputs, units = size_of(x, -1, "dense"), positive(units, "units", "dense")
        weight = variable(graph, "weight", [inputs, units], weight_start, x.dtype)
        offset = variable(graph, "bias", [units], bias_start, x.dtype).tensor(x) if bias else None
        return activate(ops.matmul(x, weight.tensor(x), offset), activation)


def embedding(
    ids: Operators, count: int, size: int, *, start: Start = init.normal, dtype: DTypeLike = "f32", name: str = ""
) -> Tensor:
    """Looks up rows of a table: ids i32 or i64 [...] -> [..., size]. Variable `weight` [count, size].

    An id outside [0, count) is an error at run time. The gradient is sparse: only the rows in use are touched.
    """
    if ids.dtype not in ("i32", "i64"):
        raise UsageError("embedding needs integer ids", code=103, tensor=ids.name, expected="i32 or i64", got=ids.dtype)
    graph = graph_of(ids)
    with graph.scope(name or graph.unique_scope("embedding")):
        count, size = positive(count, "count", "embedding"), positive(size, "size", "embedding")
        table = variable(graph, "weight", [count, size], start, dtype).tensor(ids)
        return ops.gather(table, ids, from_end=False, name=f"{ids.name}/row")


def flatten(x: Operators, axis: int = 1) -> Tensor:
    """Merges the axis `axis` and all later ones into one. By default: [batch, ...] -> [batch, all the rest]."""
    return ops.reshape(x, [*[0] * axis, -1])
