"""Gradients of the ops that slide a window, conv, conv_transpose and pool, and of resize. They are made of conv and matmul
themselves, so they can be differentiated again. Spatial sizes must be numbers; the batch may be dynamic."""

from __future__ import annotations

from typing import Any

import numpy as np

from linnet import ops
from linnet.autodiff._tools import Gradients, filled, reshape_like, shape_of, static, through
from linnet.errors import GraphError
from linnet.graph import Node, Tensor, emit, numpy_dtype


class _Window:
    """Strides, dilations and explicit pads of a node, from its attributes and the sizes of its tensors."""

    def __init__(self, node: Node, x: Tensor, y: Tensor, kernel: tuple[int, ...]) -> None:
        rank = len(shape_of(x))
        self.last = node.attribute("channel_axis") % rank == rank - 1 and rank > 2
        self.count = rank - 2
        self.axes = list(range(1, rank - 1)) if self.last else list(range(2, rank))
        self.sizes, self.out, self.kernel = static(x, self.axes), static(y, self.axes), kernel
        self.strides = list(node.attribute("strides")) or [1] * self.count
        self.dilations = list(node.attribute("dilations")) or [1] * self.count
        self.span = [d * (k - 1) + 1 for d, k in zip(self.dilations, kernel, strict=True)]
        self.pads = list(node.attribute("pads")) or [0] * (2 * self.count)
        mode = node.attribute("auto_pad")
        if mode != "explicit":
            lows, highs = [], []
            for n, m, s, span in zip(self.sizes, self.out, self.strides, self.span, strict=True):
                total = 0 if mode == "valid" else max((m - 1) * s + span - n, 0)
                lows.append((total + 1) // 2 if mode == "same_lower" else total // 2)
                highs.append(total - lows[-1])
            self.pads = lows + highs

    def first(self, t: Tensor) -> Tensor:
        """With the channels at axis 1."""
        return ops.transpose(t, [0, self.count + 1, *range(1, self.count + 1)]) if self.last else t

    def back(self, t: Tensor) -> Tensor:
        return ops.transpose(t, [0, *range(2, self.count + 2), 1]) if self.last else t


def _input_gradient(g: Tensor, w: Tensor, window: _Window, group: int) -> Tensor:
    """Of a conv's input (channels first): conv_transpose, with what the stride left over added at the end."""
    over = [
        n - ((m - 1) * s - low - high + span)
        for n, m, s, low, high, span in zip(
            window.sizes, window.out, window.strides, window.pads[: window.count], window.pads[window.count :],
            window.span, strict=True,
        )
    ]  # fmt: skip
    return ops.conv_transpose(
        g, w, strides=window.strides, dilations=window.dilations, pads=window.pads, group=group, output_padding=over
    )


def _weight_gradient(x: Tensor, g: Tensor, w: Tensor, window: _Window, group: int) -> Tensor:
    """Of a conv's weights [out, in/group, k...], from x and g with their channels first: a correlation of x with g, in
    which the batch takes the place of the channels, and stride and dilation change places."""
    inner, kernel = shape_of(w)[1], static(w, range(2, 2 + window.count))
    if not isinstance(inner, int):
        raise GraphError("its rule needs fixed channels of the weights", code=304)
    rest = list(range(2, 2 + window.count))
    if group == 1:
        left = ops.transpose(x, [1, 0, *rest])
    else:  # [batch, group * inner, ...] -> [inner, group * batch, ...]
        apart = ops.reshape(x, [-1, group, inner, *window.sizes])
        left = ops.transpose(apart, [2, 1, 0, *(i + 1 for i in rest)])
        left = ops.reshape(left, [inner, -1, *window.sizes])
    made = ops.conv(
        left, ops.transpose(g, [1, 0, *rest]),
        strides=window.dilations, dilations=window.strides, pads=window.pads, group=group,
    )  # fmt: skip
    if shape_of(made)[2:] != kernel:  # the last rows that the stride never reached; a dynamic batch hides the sizes
        made = ops.copy([made], kind="slice", starts=[0] * len(rest), ends=kernel, axes=rest, steps=[1] * len(rest))[0]
    made = ops.transpose(made, [1, 0, *rest])
    return made if made.static_shape is not None else reshape_like(made, w)


def _bias_gradient(g: Tensor, window: _Window) -> Tensor:
    return ops.reduce(g, kind="sum", axes=[0, *range(2, 2 + window.count)], keep_dims=False)


def conv_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """conv_transpose for x, a correlation of x with the gradient for w, a sum for the bias."""
    x, w, g = node.inputs[0], node.inputs[1], given[0]
    assert x is not None and w is not None and g is not None
    window = _Window(node, x, node.outputs[0], static(w)[2:])
    group, g = node.attribute("group"), window.first(g)
    return [
        window.back(_input_gradient(g, w, window, group)) if needs[0] else None,
        _weight_gradient(window.first(x), g, w, window, group) if needs[1] else None,
        _bias_gradient(g, window) if len(needs) > 2 and needs[2] else None,
    ]


def conv_transpose_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """conv for x; for w the correlation of a conv whose input is this op's output."""
    x, w, g = node.inputs[0], node.inputs[1], given[0]
    assert x is not None and w is not None and g is not None
    if node.attribute("auto_pad") != "explicit" or node.attribute("output_shape"):
        raise GraphError(
            "conv_transpose with auto_pad or output_shape has no gradient rule", code=301, hint="give pads"
        )
    window = _Window(node, node.outputs[0], x, static(w)[2:])
    group, g = node.attribute("group"), window.first(g)
    result: list[Tensor | None] = [None, None, None]
    if needs[0]:
        made = ops.conv(
            g, w, strides=window.strides, dilations=window.dilations, pads=window.pads, group=group
        )  # fmt: skip
        axes = range(2, 2 + window.count)
        if static(made, axes) != window.out:  # output padding of a whole stride
            made = ops.copy(
                [made], kind="slice", starts=[0] * window.count, ends=window.out, axes=axes, steps=[1] * window.count
            )[0]
        result[0] = window.back(made)
    if needs[1]:
        result[1] = _weight_gradient(g, window.first(x), w, window, group)
    if len(needs) > 2 and needs[2]:
        result[2] = _bias_gradient(g, window)
    return result


def pool_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """max: the gradient goes to where the maximum was; average: through a depthwise conv with ones."""
    x, y, g = node.inputs[0], node.outputs[0], given[0]
    assert x is not None and g is not None
    kind = node.attribute("kind")
    if kind == "max":
        attributes: dict[str, Any] = dict(node.attributes)
        indices = ops.pool(x, **{**attributes, "storage_order": 0}, outputs=2)[1]
        zeros = ops.reshape(filled(x, 0.0), [-1])
        flat = [ops.reshape(t, [-1]) for t in (indices, g)]
        return [reshape_like(ops.scatter(zeros, *flat, reduction="add"), x)]
    if kind != "average":
        raise GraphError(f"pool of kind {kind} has no gradient rule", code=301)
    window = _Window(node, x, y, tuple(node.attribute("kernel")))
    if node.attribute("ceil_mode"):
        raise GraphError("average pool with ceil_mode has no gradient rule", code=301, hint="pad explicitly")
    ones = np.ones((1, 1, *window.kernel), numpy_dtype(g.dtype) if g.dtype != "bf16" else np.float32)
    arguments: dict[str, Any] = {"strides": window.strides, "dilations": window.dilations, "pads": window.pads}

    def build(x: Tensor) -> Tensor:
        kernel = x.function.constant(ones)
        first = window.first(x)
        total = ops.conv(ops.reshape(first, [-1, 1, *window.sizes]), kernel, **arguments)
        if node.attribute("count_include_pad"):
            total = ops.scale(total, 1.0 / float(np.prod(window.kernel)))
        else:
            field = x.function.constant(np.ones((1, 1, *window.sizes), ones.dtype))
            total = ops.divide(total, ops.conv(field, kernel, **arguments))
        channels = static(first, [1])
        return window.back(ops.reshape(total, [-1, *channels, *window.out]))

    return through(build, [x], g, [True])


def resize_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Axis by axis, a product with the transposed matrix of its weights, which a resize of the unit matrix gives."""
    x, y, g = node.inputs[0], node.outputs[0], given[0]
    assert x is not None and g is not None
    if node.attribute("coordinates") == "tf_crop_and_resize" or node.attribute("aspect") != "stretch":
        raise GraphError("resize by regions, or with an aspect that is kept, has no gradient rule", code=301)
    rank = len(shape_of(x))
    axes = [a % rank for a in node.attribute("axes")] or list(range(rank))
    operand_scales = node.inputs[1] if len(node.inputs) > 1 else None
    scales: list[float] = list(node.attribute("scales"))
    if operand_scales is not None:
        if operand_scales.data is None:
            raise GraphError("its rule needs constant scales", code=304, got=f"'{operand_scales.name}', computed")
        scales = [float(v) for v in operand_scales.data]
    fixed = {"axes": (1,), "scales": (), "sizes": ()}
    for i, axis in enumerate(axes):
        if shape_of(x)[axis] == shape_of(y)[axis] and (not scales or scales[i] == 1):
            continue
        (size,), (wanted,) = static(x, [axis]), static(y, [axis])
        eye = ops.cast(x.function.constant(np.eye(size, dtype=np.float32)), dtype=x.dtype)
        how = {"scales": (scales[i],)} if scales else {"sizes": (wanted,)}
        weights = emit("resize", [eye], {**node.attributes, **fixed, **how})[0]
        order = [*(a for a in range(rank) if a != axis), axis]
        g = ops.matmul(ops.transpose(g, order), weights, transpose_b=True)
        g = ops.transpose(g, [order.index(a) for a in range(rank)])
    return [g]


__all__ = ["conv_gradient", "conv_transpose_gradient", "pool_gradient", "resize_gradient"]
