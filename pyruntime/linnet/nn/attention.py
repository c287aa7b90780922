"""Attention, the layers of transformers, and position encodings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from linnet import init
from linnet.builder import ops
from linnet.builder.attention import attention_weights
from linnet.clib.arguments import fields_of, with_fields
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Operators, Tensor
from linnet.nn._layer import Start, layer, positive, rank_of, size_of, variable
from linnet.nn.activations import Activation, softmax
from linnet.nn.linear import dense
from linnet.nn.normalization import layer_norm
from linnet.nn.randomness import dropout as _dropout

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AttentionFields(TypedDict, total=False):
    """The fields of AttentionSettings, as keyword arguments."""

    mask: Operators | None
    causal: bool
    dropout: float
    training: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionSettings:
    """The arguments that all functions with an attention take."""

    mask: Operators | None = None
    causal: bool = False
    dropout: float = 0.0
    training: bool = False


@with_fields(AttentionSettings)
def scaled_dot_product_attention(
    query: Operators,
    key: Operators,
    value: Operators,
    *,
    scale: float | None = None,
    **settings: Unpack[AttentionFields],
) -> Tensor:
    """softmax(query @ key^T * scale + mask) @ value (Vaswani et al. 2017).

    query [..., times, size], key [..., times', size], value [..., times', size'] -> [..., times, size']. mask: bool,
    True where a query may attend, or floats to add. Leading dimensions, also those of the mask, are broadcast by the
    rules of NumPy. A query that may attend to no key gives zeros. causal: no query attends to later keys. scale:
    default 1 / sqrt(size). dropout: rate on the attention weights while training.
    """
    given = fields_of(AttentionSettings, settings, "scaled_dot_product_attention")
    size, mask, causal = size_of(query, -1, "attention"), given.mask, "start" if given.causal else "none"
    rank_of(query, "attention", 2)
    if mask is not None:
        query = _as_many(query, key, value, mask)
    fits = mask is None or mask.dtype in ("bool", query.dtype)
    if not given.training and fits and scale != 0:
        return ops.attention(query, key, value, mask, scale=scale or 0.0, causal=causal)
    factor = 1.0 / math.sqrt(size) if scale is None else scale
    scores = ops.matmul(query, key, transpose_b=True)
    weights = attention_weights(
        scores, factor, {"causal": causal, "cap": 0, "window": 0}, None if mask is None else mask.tensor(scores)
    )
    return ops.matmul(_dropout(weights, given.dropout, given.training), value)


def _as_many(query: Operators, key: Operators, value: Operators, mask: Operators) -> Operators:
    """The query, repeated if the mask has leading dimensions that are larger than those of query, key and value. The op
    does not broadcast them."""
    rank = rank_of(mask, "attention", 0)
    shapes = [t.shape for t in (query, key, value) if t.shape is not None]
    if len(shapes) < 3 or rank <= 2:
        return query
    own = [[s[-i] for s in shapes if len(s) >= i] for i in range(rank, 2, -1)]
    sizes = (mask.shape or ())[:-2]
    if not any(not s or (size != 1 and all(d == 1 for d in s)) for size, s in zip(sizes, own, strict=True)):
        return query
    one = query.tensor().function.constant(np.array([1, 1], np.int64))
    return ops.copy([query, ops.concat([ops.shape(mask, start=0, end=rank - 2), one], 0)], kind="expand")[0]


@with_fields(AttentionSettings)
def multi_head_attention(
    query: Operators,
    key: Operators | None = None,
    value: Operators | None = None,
    *,
    heads: int,
    bias: bool = True,
    weight_start: Start = init.glorot,
    name: str = "",
    **settings: Unpack[AttentionFields],
) -> Tensor:
    """Attention with several parallel heads: query [batch, times, size], key and value [batch, times', ...] -> the
    shape of query.

    key: default the query (self-attention). value: default the key. mask: broadcast to [batch, heads, times, times'].
    Layers `query`, `key`, `value` and `output`, each dense to `size`.
    """
    fields_of(AttentionSettings, settings, "multi_head_attention")
    with layer(query, "attention", name):
        rank_of(query, "multi_head_attention", 3, 3)
        size = size_of(query, -1, "multi_head_attention")
        if size % positive(heads, "heads", "multi_head_attention"):
            raise UsageError(
                "the size is not divisible by the number of heads", code=104, tensor=query.name,
                expected=f"a divisor of {size}", got=f"{heads} heads",
            )  # fmt: skip
        key = query if key is None else key
        value = key if value is None else value
        split = []
        for part, tensor in (("query", query), ("key", key), ("value", value)):
            made = dense(tensor, size, bias=bias, weight_start=weight_start, name=part)
            split.append(ops.transpose(ops.reshape(made, [0, 0, heads, size // heads]), [0, 2, 1, 3]))
        y = scaled_dot_product_attention(*split, **settings)
        y = ops.reshape(ops.transpose(y, [0, 2, 1, 3]), [0, 0, size])
        return dense(y, size, bias=bias, weight_start=weight_start, name="output")


@with_fields(AttentionSettings)
def transformer_encoder_layer(
    x: Operators,
    heads: int,
    hidden: int,
    *,
    activation: Activation = "relu",
    norm_first: bool = False,
    epsilon: float = 1e-5,
    name: str = "",
    **settings: Unpack[AttentionFields],
) -> Tensor:
    """Self-attention and a network of two dense layers, each with a residual connection and a layer norm (Vaswani et
    al. 2017): x [batch, times, size] -> the same shape.

    hidden: units between the two dense layers. norm_first: normalize before each part instead of after it (Xiong et al.
    2020). The other arguments are those of multi_head_attention. With causal=True, it is a layer of a language model.
    """
    given = fields_of(AttentionSettings, settings, "transformer_encoder_layer")
    with layer(x, "encoder", name):
        size = size_of(x, -1, "transformer_encoder_layer")

        def drop(t: Tensor) -> Tensor:
            return _dropout(t, given.dropout, given.training)

        def attend(t: Operators) -> Tensor:
            return drop(multi_head_attention(t, heads=heads, name="attention", **settings))

        def feed(t: Operators) -> Tensor:
            y = drop(dense(t, hidden, activation=activation, name="dense_in"))
            return drop(dense(y, size, name="dense_out"))

        return _with_residuals(x, (attend, feed), norm_first, epsilon)


@with_fields(AttentionSettings)
def transformer_decoder_layer(
    x: Operators,
    memory: Operators,
    heads: int,
    hidden: int,
    *,
    memory_mask: Operators | None = None,
    activation: Activation = "relu",
    norm_first: bool = False,
    epsilon: float = 1e-5,
    name: str = "",
    **settings: Unpack[AttentionFields],
) -> Tensor:
    """Self-attention, attention to what an encoder has made, and a network of two dense layers, each with a residual
    connection and a layer norm (Vaswani et al. 2017): x [batch, times, size], memory [batch, times', size'] -> the shape
    of x.

    memory_mask: which entries of the memory may be attended to, as `mask` of multi_head_attention; [batch, 1, 1, times']
    leaves out the padding. mask and causal are those of the self-attention; causal=True for decoders that write one token
    after the other. hidden, norm_first: as for transformer_encoder_layer.
    """
    given = fields_of(AttentionSettings, settings, "transformer_decoder_layer")
    with layer(x, "decoder", name):
        size = size_of(x, -1, "transformer_decoder_layer")
        rank_of(memory, "transformer_decoder_layer", 3, 3)

        def drop(t: Tensor) -> Tensor:
            return _dropout(t, given.dropout, given.training)

        def attend(t: Operators) -> Tensor:
            return drop(multi_head_attention(t, heads=heads, name="attention", **settings))

        def look(t: Operators) -> Tensor:
            return drop(
                multi_head_attention(
                    t, memory, heads=heads, name="memory_attention", mask=memory_mask, dropout=given.dropout,
                    training=given.training,
                )
            )  # fmt: skip

        def feed(t: Operators) -> Tensor:
            return drop(dense(drop(dense(t, hidden, activation=activation, name="dense_in")), size, name="dense_out"))

        return _with_residuals(x, (attend, look, feed), norm_first, epsilon)


def _with_residuals(
    x: Operators, parts: Sequence[Callable[[Operators], Tensor]], norm_first: bool, epsilon: float
) -> Tensor:
    """Each part with a residual connection, and a layer norm before or after it."""
    for i, part in enumerate(parts):
        norm = f"norm_{i}"
        if norm_first:
            x = ops.add(x, part(layer_norm(x, epsilon=epsilon, name=norm)))
        else:
            x = layer_norm(ops.add(x, part(x)), epsilon=epsilon, name=norm)
    return x.tensor()


def additive_attention(
    query: Operators, memory: Operators, units: int, *, mask: Operators | None = None, name: str = ""
) -> tuple[Tensor, Tensor]:
    """Attention whose scores are score @ tanh(query @ query_weight + memory @ memory_weight) (Bahdanau et al. 2015): query
    [batch, times, size], memory [batch, times', size'] -> (the weighted means of the memory [batch, times, size'], the
    weights [batch, times, times']).

    units: size of the sum inside the tanh. mask: bool, True where a query may attend, broadcast to [batch, times, times'].
    """
    with layer(query, "attention", name):
        rank_of(query, "additive_attention", 3, 3)
        rank_of(memory, "additive_attention", 3, 3)
        asked = ops.reshape(dense(query, units, bias=False, name="query"), [0, 0, 1, units])
        known = ops.expand_dims(dense(memory, units, name="memory"), 1)
        scores = ops.squeeze(dense(ops.tanh(ops.add(asked, known)), 1, bias=False, name="score"), -1)
        if mask is not None:
            scores = ops.where(mask, scores, -1e9)
        weights = softmax(scores)
        return ops.matmul(weights, memory), weights


def sinusoidal_positions(x: Operators, longest: int, base: float = 10000.0) -> Tensor:
    """x [batch, times, size] plus fixed position encodings: sin(t / base^(2i / size)) at 2i, cos at 2i + 1 (Vaswani et
    al. 2017). longest: the largest number of times."""
    size = size_of(x, -1, "sinusoidal_positions")
    if longest < 1:
        raise UsageError("'longest' is too small", code=101, expected="1 or more", got=str(longest))
    angle = np.arange(longest)[:, None] / base ** (np.arange(0, size, 2) / size)
    table = np.empty((longest, size))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)[:, : size // 2]
    return ops.add(x, _first_rows(x.function.constant(table.astype(numpy_dtype(x.dtype)), "positions"), x, longest))


def learned_positions(x: Operators, longest: int, *, start: Start = init.normal, name: str = "") -> Tensor:
    """x [batch, times, size] plus a learned vector for each position. Variable `weight` [longest, size]."""
    with layer(x, "positions", name) as graph:
        shape = [positive(longest, "longest", "learned_positions"), size_of(x, -1, "learned_positions")]
        return ops.add(x, _first_rows(variable(graph, "weight", shape, start, x.dtype).tensor(x), x, longest))


def _first_rows(table: Tensor, x: Operators, longest: int) -> Tensor:
    """The first rows of the table, one for each time step of x."""
    rank_of(x, "positions", 3, 3)
    times = (x.shape or ())[1]
    if isinstance(times, int):
        if times > longest:
            raise UsageError(
                "x has more time steps than the layer has positions",
                code=104,
                tensor=x.name,
                expected=f"at most {longest}",
                got=str(times),
            )
        return table[:times]
    zero, axis = (x.function.constant(np.array([n], np.int64)) for n in (0, 0))
    return ops.copy([table, zero, ops.shape(x, start=1, end=2), axis], kind="slice")[0]
