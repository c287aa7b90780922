"""Rules for attention in domain com.microsoft, as ONNX Runtime's optimizers write it: fused attention, which may have a
cache of keys and values, grouped heads and rotary embeddings. Definitions: ONNX Runtime, docs/ContribOperators.md."""

from __future__ import annotations

import math

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.registry import MICROSOFT, rule
from linnet.converters.onnx.rules.movement import as_i64
from linnet.converters.onnx.rules.quantized_ops import scaled_product
from linnet.ir.function import Tensor

LOWEST = -3.4028234663852886e38  # score of a key after the query


def heads_of(op: Operation, x: Tensor, heads: int, size: int) -> Tensor:
    """Reshapes [batch, length, heads * size] to [batch, heads, length, size]."""
    return op.transpose(op.reshape(x, [0, 0, heads, size]), [0, 2, 1, 3])


def joined(op: Operation, y: Tensor, width: int) -> Tensor:
    """Reshapes [batch, heads, length, size] to [batch, length, width]."""
    return op.reshape(op.transpose(y, [0, 2, 1, 3]), [0, 0, width])


def masked(op: Operation, scores: Tensor, mask: Tensor, filler: float) -> Tensor:
    """Adds the filler to the scores of hidden keys. mask: lengths [b], or ones for visible keys, of rank 2, 3 or 4."""
    rank = rank_of(mask, "the mask")
    if rank == 1:
        batch, given = (scores.shape or (None,))[0], (mask.shape or (None,))[0]
        if isinstance(batch, int) and isinstance(given, int) and batch != given:
            raise op.unsupported(
                "a mask of starts and ends is not supported", "use [b] (lengths), [b, total] or [b, length, total]"
            )
        lengths = op.reshape(mask, [-1, 1, 1, 1])
        return op.map(
            [scores, lengths],
            lambda s, n: s.iota(3, "i32").binary("lt", n.cast("i32")).select(s, s + filler),
        )
    if rank == 4:  # the mask covers the whole cache
        end = op.shape_of(scores, 3, 4)
        start = op.map([end, op.shape_of(scores, 2, 3)], lambda t, s: t - s)
        for axis, first, last in ((2, start, end), (3, op.constant(np.zeros(1, np.int64)), end)):
            mask = op.emit("copy", [mask, first, last, op.constant(np.array([axis], np.int64))], kind="slice")
        shown = mask
    elif rank in (2, 3):
        shown = op.unsqueeze(mask, [1, 2] if rank == 2 else [1])
    else:
        raise op.unsupported(
            f"a mask of rank {rank} is not supported", "use [b] (lengths), [b, total] or [b, length, total]"
        )
    return op.map([scores, shown], lambda s, m: s + (1 - m.cast(s.kind)) * filler)


def attend(
    op: Operation, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, added: Tensor | None, past: Tensor | None
) -> Tensor:
    """softmax(q k^T scale + mask) v for [batch, heads, length, size]. past: the keys before the query, [batch, heads,
    n, size]."""
    size = q.shape[3] if q.shape else None
    assert isinstance(size, int)
    filler = op.attribute("mask_filter_value", -10000.0)
    scale = op.attribute("scale", 0.0) or 1 / math.sqrt(size)
    scores = op.map([op.emit("matmul", [q, k], transpose_b=True)], lambda s: s * scale)
    if mask is not None:
        scores = masked(op, scores, mask, filler)
    if op.attribute("unidirectional", 0):
        before = op.constant(np.zeros(1, np.int64)) if past is None else op.shape_of(past, 2, 3)
        scores = op.map(
            [scores, before],
            lambda s, n: s.iota(3).binary("le", s.iota(2) + n).select(s, LOWEST),
        )
    if added is not None:
        scores = op.map([scores, added], lambda s, b: s + b)
    return op.emit("matmul", [op.emit("softmax", [scores], axis=-1), v])


def cached(op: Operation, past: Tensor | None, new: Tensor) -> Tensor:
    """The cache with the new entries appended."""
    return new if past is None else op.concat([past, new], 2)


def packed(
    op: Operation, qkv: Tensor, sizes: list[int], mask: Tensor | None, added: Tensor | None, past: Tensor | None
) -> list[Tensor]:
    """Attention over adjacent q, k and v: [batch, length, sum(sizes)]. past and present: [2, ...] for k and v."""
    heads = int(op.attribute("num_heads", 1))
    parts = op.emit_all("copy", [qkv], 3, kind="split", axis=-1, shape=sizes)
    q, k, v = (heads_of(op, t, heads, size // heads) for t, size in zip(parts, sizes, strict=True))
    before = None
    if past is not None:
        before, values = (op.squeeze(op.slice(past, 0, i, i + 1), [0]) for i in range(2))
        k, v = cached(op, before, k), cached(op, values, v)
    outputs = [joined(op, attend(op, q, k, v, mask, added, before), sizes[2])]
    if op.wants(1):
        outputs.append(op.concat([op.unsqueeze(t, [0]) for t in (k, v)], 0))
    return outputs


def refuse_shared_buffers(op: Operation) -> None:
    if op.attribute("past_present_share_buffer", 0):
        raise op.unsupported("a cache that is updated in place is not supported", "export with a cache that grows")


@rule("Attention", domain=MICROSOFT)
def attention(op: Operation) -> list[Tensor]:
    """Self-attention with one matrix for all projections."""
    x, w, bias, mask, past, added = op.input(0), op.input(1), *(op.optional(i) for i in range(2, 6))
    refuse_shared_buffers(op)
    if op.attribute("do_rotary", 0):
        raise op.unsupported("rotary embeddings inside Attention are not supported", "export the model unfused")
    op.ignore("rotary_embedding_dim")
    qkv = op.emit("matmul", [x, w] if bias is None else [x, w, bias])
    sizes = list(op.attribute("qkv_hidden_sizes", [])) or [width_of(op, w) // 3] * 3
    return packed(op, qkv, sizes, mask, added, past)


@rule("QAttention", domain=MICROSOFT)
def qattention(op: Operation) -> list[Tensor]:
    """Attention whose packed projection is an integer product."""
    x, w, bias, mask = op.input(0), op.input(1), op.input(2), op.optional(5)
    refuse_shared_buffers(op)
    op.ignore("do_rotary")
    qkv = scaled_product(op, x, w, [op.input(3), op.input(4)], [op.optional(6), op.optional(7)], bias)
    return packed(op, qkv, [width_of(op, w) // 3] * 3, mask, None, op.optional(8))


def width_of(op: Operation, x: Tensor) -> int:
    """The last dimension."""
    width = x.shape[-1] if x.shape else None
    if not isinstance(width, int):
        raise op.unknown("the width of a weight, query, key or value is unknown")
    return width


@rule("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(op: Operation) -> list[Tensor]:
    """Attention after the projections. q, k, v are [batch, length, width] each, with one bias for all three. They may
    be packed as [batch, length, heads, 3 or 2, size]. If keys and values come from another sequence, they may be
    [batch, heads, length, size]."""
    q, k, v, bias = op.input(0), op.optional(1), op.optional(2), op.optional(3)
    mask, added, past_k, past_v = (op.optional(i) for i in range(4, 8))
    if op.optional(8) is not None or op.optional(9) is not None:
        raise op.unsupported(
            "a cache for beam search, or one updated in place, is not supported", "export with a cache that grows"
        )
    if op.wants(3):
        raise op.unsupported("the attention scores cannot be an output", "remove this output if nothing uses it")
    heads = int(op.attribute("num_heads", 1))
    parts: list[Tensor | None] = [q, k, v]
    for index, count in ((0, 3), (1, 2)):  # packed
        given = parts[index]
        if given is not None and rank_of(given, f"input {index}") == 5:
            pieces = op.emit_all("copy", [given], count, kind="split", axis=3, shape=[1] * count)
            width = heads * width_of(op, given)
            parts[index : index + count] = [op.reshape(t, [0, 0, width]) for t in pieces]
    found = [t for t in parts if t is not None]
    if len(found) != 3:
        raise op.unsupported("the keys or the values are missing", "pass query, key and value")
    projected = [rank_of(t, "a query, key or value") == 4 for t in found]
    widths = [heads * width_of(op, t) if done else width_of(op, t) for t, done in zip(found, projected, strict=True)]
    if bias is not None:
        ends = np.cumsum([0, *widths])
        found = [
            t if done else op.map([t, op.slice(bias, 0, int(a), int(b))], lambda v, w: v + w)
            for t, done, a, b in zip(found, projected, ends, ends[1:], strict=False)
        ]
    q, k, v = (
        t if done else heads_of(op, t, heads, width // heads)
        for t, done, width in zip(found, projected, widths, strict=True)
    )
    k, v = cached(op, past_k, k), cached(op, past_v, v)
    y = joined(op, attend(op, q, k, v, mask, added, past_k), widths[2])
    return [y, k, v][: len(op.node.output)]


def rotated(op: Operation, x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Rotates pairs of elements of [batch, heads, length, size] by angles that grow with the position [batch or 1, length]."""
    size, half = width_of(op, x), width_of(op, cos)
    angles = [op.unsqueeze(op.emit("gather", [t, positions], kind="take", axis=0), [1]) for t in (cos, sin)]
    if interleaved:
        pair = [op.emit("copy", [x], kind="slice", axes=[3], starts=[i], ends=[2 * half], steps=[2]) for i in range(2)]
    else:
        pair = [op.slice(x, 3, i * half, (i + 1) * half) for i in range(2)]
    real = op.map([*pair, *angles], lambda a, b, c, s: a * c - b * s)
    imaginary = op.map([*pair, *angles], lambda a, b, c, s: a * s + b * c)
    if interleaved:
        turned = op.concat([op.unsqueeze(t, [4]) for t in (real, imaginary)], 4)
        turned = op.reshape(turned, [0, 0, 0, 2 * half])
    else:
        turned = op.concat([real, imaginary], 3)
    return turned if size == 2 * half else op.concat([turned, op.slice(x, 3, 2 * half, size)], 3)


def positions_from(op: Operation, first: Tensor, length: Tensor) -> Tensor:
    """Positions [b or 1, length] that start at first [b or 1]."""
    steps = op.emit("range", [op.constant(np.int64(0)), op.reshape(length, []), op.constant(np.int64(1))])
    return op.map([op.reshape(first, [-1, 1]), steps], lambda f, i: f.cast("i64") + i, "i64")


@rule("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(op: Operation) -> Tensor:
    """x: [batch, length, width] or [batch, heads, length, size]. positions: the start of the sequence, or one per element."""
    x, positions, cos, sin = (op.input(i) for i in range(4))
    if op.attribute("is_packed_batching", 0) or op.attribute("scale", 1.0) != 1.0:
        raise op.unsupported("neither packed batches nor a scale other than 1 is supported", "export the model unfused")
    op.ignore("rotary_embedding_dim")
    heads, flat = int(op.attribute("num_heads", 0)), rank_of(x, "input 0") == 3
    width = width_of(op, x)
    if flat:
        size = width // heads if heads else 2 * width_of(op, cos)
        x = heads_of(op, x, width // size, size)
    if rank_of(positions, "the positions") == 1:
        positions = positions_from(op, positions, op.shape_of(x, 2, 3))
    y = rotated(op, x, positions, cos, sin, bool(op.attribute("interleaved", 0)))
    return joined(op, y, width) if flat else y


@rule("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(op: Operation) -> list[Tensor]:
    """Causal attention in which several query heads share a key (Ainslie et al. 2023). Row b of the cache holds
    seqlens_k[b] + 1 elements, including those of this step. The length of the output cache is that of the input cache
    or total_sequence_length, whichever is larger."""
    q, k, v, past_k, past_v = op.input(0), *(op.optional(i) for i in range(1, 5))
    lengths, total = as_i64(op, op.input(5)), op.reshape(as_i64(op, op.input(6)), [1])
    cos, sin, places, added = (op.optional(i) for i in range(7, 11))
    for index in range(11, len(op.inputs)):
        if op.optional(index) is not None:
            raise op.unsupported(f"input {index} is not supported", "export the model with an older ONNX Runtime")
    if op.attribute("smooth_softmax", 0) or op.attribute("qk_output", 0):
        raise op.unsupported("smooth_softmax and qk_output are not supported", "export the model unfused")
    op.ignore("k_quant_type", "v_quant_type", "kv_cache_bit_width")
    heads, groups = int(op.attribute("num_heads", 1)), int(op.attribute("kv_num_heads", 1))
    if k is None or v is None:
        size = width_of(op, q) // (heads + 2 * groups)
        q, k, v = op.emit_all("copy", [q], 3, kind="split", axis=-1, shape=[heads * size, groups * size, groups * size])
    else:
        size = width_of(op, q) // heads
    q, k, v = heads_of(op, q, heads, size), heads_of(op, k, groups, size), heads_of(op, v, groups, size)
    length = op.shape_of(q, 2, 3)
    # where this step begins in each row; 0 for a prompt, whose rows may be padded at the end
    first = op.map([lengths, length, total], lambda n, s, t: s.eq(t).select(0, n + 1 - s).max(0), "i64")
    first = op.reshape(first, [-1])
    if op.attribute("do_rotary", 0):
        if cos is None or sin is None:
            raise op.unsupported("rotary embeddings need tables of cosines and sines", "pass cos_cache and sin_cache")
        places = positions_from(op, first, length) if places is None else places
        interleaved = bool(op.attribute("rotary_interleaved", 0))
        q, k = (rotated(op, t, places, cos, sin, interleaved) for t in (q, k))
    present = [extended(op, past, new, first, total) for past, new in ((past_k, k), (past_v, v))]
    scale, cap = op.attribute("scale", 0.0) or 1 / math.sqrt(size), float(op.attribute("softcap", 0.0))
    window = int(op.attribute("local_window_size", -1))
    shown = [op.unsqueeze(t, [2]) for t in present]  # broadcasts over the queries of the group
    grouped = op.reshape(q, [0, groups, heads // groups, -1, size])
    scores = op.emit("matmul", [grouped, shown[0]], transpose_b=True)  # [batch, groups, heads / groups, length, total]

    def visible(s: Expr, first: Expr) -> Expr:
        s = s * scale
        s = (s / cap).tanh() * cap if cap else s
        query, key = s.iota(3) + first, s.iota(4)
        kept = key <= query
        if window > 0:
            kept = kept & (key > query - window)
        return kept.select(s, LOWEST)

    scores = op.map([scores, op.reshape(first, [-1, 1, 1, 1, 1])], visible)
    if added is not None:
        scores = op.map([scores, by_group(op, added, groups, heads)], lambda s, b: s + b)
    y = op.emit("matmul", [op.emit("softmax", [scores], axis=-1), shown[1]])
    y = joined(op, op.reshape(y, [0, heads, -1, size]), heads * size)
    return [y, *present][: len(op.node.output)]


def by_group(op: Operation, added: Tensor, groups: int, heads: int) -> Tensor:
    """Reshapes the tensor that is added to the scores, [1 or batch, 1 or heads, length, total], to the shape of the
    grouped scores."""
    given = added.shape[1] if added.shape else None
    if not isinstance(given, int):
        raise op.unknown("it is unknown whether the attention bias has one head or all")
    split = op.constant(np.array([1, 1] if given == 1 else [groups, heads // groups], np.int64))
    return op.reshape(added, op.concat([op.shape_of(added, 0, 1), split, op.shape_of(added, 2, 4)], 0))


def extended(op: Operation, past: Tensor | None, new: Tensor, first: Tensor, total: Tensor) -> Tensor:
    """The cache with the new entries, which begin at position `first` [b]. Its length is at least `total`."""
    zero = op.constant(np.zeros(1, np.int64))
    if past is None:
        past = op.slice(new, 2, 0, 0)
    room = op.map([total, op.shape_of(past, 2, 3)], lambda t, n: (t - n).max(0))
    pads = op.concat([*[zero] * 6, room, zero], 0)
    longer = op.emit("copy", [past, pads], kind="pad")
    places = op.map([new, op.reshape(first, [-1, 1, 1, 1])], lambda v, f: v.iota(2) + f, "i64")
    return op.emit("scatter", [longer, places, new], kind="elements", axis=2)
