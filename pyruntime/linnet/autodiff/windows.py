"""Gradients of the ops that slide a window, conv, conv_transpose and pool, and of resize. They can be differentiated again.
Spatial sizes must be numbers; the batch may be dynamic."""

from __future__ import annotations

from typing import Any

import numpy as np

from linnet import ops
from linnet.autodiff._tools import Gradients, Rule, reshape_like, shape_of, static
from linnet.errors import GraphError
from linnet.graph import Node, Tensor, emit


class _Window:
    """Strides, dilations and explicit pads of a node, from its attributes and the sizes of its tensors."""

    def __init__(self, node: Node, x: Tensor, y: Tensor, kernel: tuple[int, ...]) -> None:
        rank = len(shape_of(x))
        self.channel_axis: int = node.attribute("channel_axis")
        self.count = rank - 2
        last = self.channel_axis % rank == rank - 1 and rank > 2
        self.axes = list(range(1, rank - 1)) if last else list(range(2, rank))
        self.sizes, self.out, self.kernel = static(x, self.axes), static(y, self.axes), kernel
        self.strides = list(node.attribute("strides")) or [1] * self.count
        self.dilations = list(node.attribute("dilations")) or [1] * self.count
        self.span = [d * (k - 1) + 1 for d, k in zip(self.dilations, kernel, strict=True)]
        self.pads = list(node.attribute("pads")) or [0] * (2 * self.count)
        mode = "explicit" if node.op == "conv_gradient" else node.attribute("auto_pad")
        if mode != "explicit":
            lows, highs = [], []
            for n, m, s, span in zip(self.sizes, self.out, self.strides, self.span, strict=True):
                total = 0 if mode == "valid" else max((m - 1) * s + span - n, 0)
                lows.append((total + 1) // 2 if mode == "same_lower" else total // 2)
                highs.append(total - lows[-1])
            self.pads = lows + highs


def _input_gradient(g: Tensor, w: Tensor, window: _Window, group: int) -> Tensor:
    """Of a conv's input: conv_transpose, with what the stride left over added at the end."""
    over = [
        n - ((m - 1) * s - low - high + span)
        for n, m, s, low, high, span in zip(
            window.sizes, window.out, window.strides, window.pads[: window.count], window.pads[window.count :],
            window.span, strict=True,
        )
    ]  # fmt: skip
    return ops.conv_transpose(
        g, w, strides=window.strides, dilations=window.dilations, pads=window.pads, group=group, output_padding=over,
        channel_axis=window.channel_axis,
    )  # fmt: skip


def _weight_gradient(x: Tensor, g: Tensor, window: _Window, group: int) -> Tensor:
    """Of a conv's weights."""
    return ops.conv_gradient(
        x, g, kernel=window.kernel, strides=window.strides, dilations=window.dilations, pads=window.pads, group=group,
        channel_axis=window.channel_axis,
    )  # fmt: skip


def _output_gradient(x: Tensor, w: Tensor, window: _Window, group: int) -> Tensor:
    """conv itself, of the window's output size."""
    made = ops.conv(
        x, w, strides=window.strides, dilations=window.dilations, pads=window.pads, group=group,
        channel_axis=window.channel_axis,
    )  # fmt: skip
    if static(made, window.axes) == tuple(window.out):
        return made
    return ops.copy(  # output padding of a whole stride
        [made], kind="slice", starts=[0] * window.count, ends=window.out, axes=window.axes, steps=[1] * window.count
    )[0]


def _bias_gradient(g: Tensor, window: _Window) -> Tensor:
    return ops.reduce(g, kind="sum", axes=[0, *window.axes], keep_dims=False)


def _window_of(node: Node, x: Tensor, y: Tensor, w: Tensor) -> tuple[_Window, int]:
    return _Window(node, x, y, static(w, range(2, len(shape_of(w))))), node.attribute("group")


def conv_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """conv_transpose for x, conv_gradient for w, a sum for the bias."""
    x, w, g = node.inputs[0], node.inputs[1], given[0]
    assert x is not None and w is not None and g is not None
    window, group = _window_of(node, x, node.outputs[0], w)
    return [
        _input_gradient(g, w, window, group) if needs[0] else None,
        _weight_gradient(x, g, window, group) if needs[1] else None,
        _bias_gradient(g, window) if len(needs) > 2 and needs[2] else None,
    ]


def conv_gradient_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """It is linear in x and in g: conv_transpose and conv, with the gradient in the place of the weights."""
    x, g, w = node.inputs[0], node.inputs[1], given[0]
    assert x is not None and w is not None and g is not None
    window, group = _window_of(node, x, g, w)
    return [
        _input_gradient(g, w, window, group) if needs[0] else None,
        _output_gradient(x, w, window, group) if needs[1] else None,
    ]


def conv_transpose_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """conv for x; for w conv_gradient, of a conv whose input is this op's output."""
    x, w, g = node.inputs[0], node.inputs[1], given[0]
    assert x is not None and w is not None and g is not None
    if node.attribute("auto_pad") != "explicit" or node.attribute("output_shape"):
        raise GraphError(
            "conv_transpose with auto_pad or output_shape has no gradient rule", code=301, hint="give pads"
        )
    window, group = _window_of(node, node.outputs[0], x, w)
    result: list[Tensor | None] = [None, None, None]
    if needs[0]:
        result[0] = _output_gradient(g, w, window, group)
    if needs[1]:
        result[1] = _cut(g, x, window, group)
    if len(needs) > 2 and needs[2]:
        result[2] = _bias_gradient(g, window)
    return result


def _cut(g: Tensor, x: Tensor, window: _Window, group: int) -> Tensor:
    """_weight_gradient, without the output padding of a whole stride that conv would make positions of."""
    low, high = window.pads[: window.count], window.pads[window.count :]
    sizes = zip(window.sizes, window.out, window.strides, window.span, low, high, strict=True)
    over = [max(n + lo + hi - span - (m - 1) * s, 0) // s * s for n, m, s, span, lo, hi in sizes]
    if any(over):
        ends = [n - o for n, o in zip(window.sizes, over, strict=True)]
        g = ops.copy(
            [g], kind="slice", starts=[0] * window.count, ends=ends, axes=window.axes, steps=[1] * window.count
        )[0]
    return _weight_gradient(g, x, window, group)


_POOL = ("kind", "kernel", "strides", "dilations", "ceil_mode", "count_include_pad", "channel_axis")


def pool_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """pool_gradient, with the padding written out."""
    x, y, g = node.inputs[0], node.outputs[0], given[0]
    assert x is not None and g is not None
    if node.attribute("kind") not in ("max", "average"):
        raise GraphError(f"pool of kind {node.attribute('kind')} has no gradient rule", code=301)
    attributes: dict[str, Any] = {name: node.attribute(name) for name in _POOL}
    if node.attribute("auto_pad") == "explicit":
        pads = node.attribute("pads")
    else:
        pads = _Window(node, x, y, tuple(node.attribute("kernel"))).pads
    return [ops.pool_gradient(x, g, pads=pads, **attributes)]


def pool_gradient_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """It is linear in g: the average of the gradient, or its elements at the maxima."""
    x, g, d = node.inputs[0], node.inputs[1], given[0]
    assert x is not None and g is not None and d is not None
    attributes: dict[str, Any] = {name: node.attribute(name) for name in (*_POOL, "pads")}
    if not needs[1]:
        return [None, None]
    if attributes["kind"] == "average":
        return [None, ops.pool(d, **attributes)[0]]
    indices = ops.reshape(ops.pool(x, **attributes, outputs=2)[1], [-1])
    return [None, reshape_like(ops.gather(ops.reshape(d, [-1]), indices), g)]


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


RULES: dict[str, Rule] = {
    "conv": conv_gradient,
    "conv_gradient": conv_gradient_gradient,
    "conv_transpose": conv_transpose_gradient,
    "pool": pool_gradient,
    "pool_gradient": pool_gradient_gradient,
    "resize": resize_gradient,
}
