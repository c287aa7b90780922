"""Gradients of the sliding-window ops conv, conv_transpose and pool, and of resize. They can be differentiated again,
and sizes may be open."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from linnet.autodiff._tools import constant_of, elementwise, filled, integers, operand, reshape_like, shape_of, static
from linnet.autodiff.sparse import Gradients, Rule
from linnet.builder import ops
from linnet.clib.errors import GraphError
from linnet.ir.function import Node, Tensor, emit


class _Window:
    """Strides, dilations and explicit pads of a node that slides a window over x and produces y. For conv_transpose the
    roles are swapped: the window slides over y. If sizes are open, pads that depend on them are tensors."""

    def __init__(self, node: Node, x: Tensor, y: Tensor, kernel: tuple[int, ...]) -> None:
        rank = len(shape_of(x))
        self.channel_axis: int = node.attribute("channel_axis")
        self.count = rank - 2
        last = self.channel_axis % rank == rank - 1 and rank > 2
        self.axes = list(range(1, rank - 1)) if last else list(range(2, rank))
        self.x, self.y, self.kernel = x, y, kernel
        self.strides: list[int] = list(node.attribute("strides")) or [1] * self.count
        self.dilations: list[int] = list(node.attribute("dilations")) or [1] * self.count
        self.span: list[int] = [d * (k - 1) + 1 for d, k in zip(self.dilations, kernel, strict=True)]
        self.known = all(isinstance(shape_of(t)[a], int) for t in (x, y) for a in self.axes)
        mode = "explicit" if node.op == "conv_gradient" else node.attribute("auto_pad")
        wanted = node.op == "conv_transpose" and bool(node.attribute("output_shape"))
        self.pads = list(node.attribute("pads")) or [0] * (2 * self.count)
        self.open_pads: tuple[Tensor, Tensor] | None = None  # before, after: i64 [count]
        if mode != "explicit" or wanted:
            self.pads = [0] * (2 * self.count)
        if mode not in ("explicit", "valid") or wanted:
            extra = (list(node.attribute("output_padding")) if node.op == "conv_transpose" else []) or [0] * self.count
            more = mode == "same_lower" or (
                node.op == "conv_transpose" and mode != "same_upper"
            )  # more padding before than after
            if self.known or (all(s == 1 for s in self.strides) and not wanted and not any(extra)):
                total = [self._total(i, extra[i]) for i in range(self.count)]
                lows = [(t + 1) // 2 if more else t // 2 for t in total]
                self.pads = lows + [t - low for t, low in zip(total, lows, strict=True)]
            else:
                self.open_pads = self._open(extra, more)

    def _total(self, i: int, extra: int) -> int:
        """The total padding on both sides of axis i, computed from the sizes. With a stride of 1, the sizes are not
        needed."""
        if not self.known:
            return self.span[i] - 1
        n, m = self.sizes[i], self.out[i]
        return max((m - 1) * self.strides[i] + self.span[i] + extra - n, 0)

    def _open(self, extra: list[int], more: bool) -> tuple[Tensor, Tensor]:
        n, m = self.lengths(self.x), self.lengths(self.y)
        rest = integers(n, [s + e for s, e in zip(self.span, extra, strict=True)])
        operands = [n, m, integers(n, self.strides), rest]
        total = elementwise(operands, lambda n, m, s, r: ((m - 1) * s + r - n).max(0), "i64")
        low = elementwise([total], lambda t: (t + 1) / 2 if more else t / 2, "i64")
        return low, ops.subtract(total, low)

    @property
    def sizes(self) -> tuple[int, ...]:
        return static(self.x, self.axes)

    @property
    def out(self) -> tuple[int, ...]:
        return static(self.y, self.axes)

    def lengths(self, t: Tensor) -> Tensor:
        """The sizes of t along the window's axes, i64 [count], fixed or open."""
        return ops.shape(t, start=self.axes[0], end=self.axes[-1] + 1)

    def resized(self, t: Tensor, before: Tensor, like: Tensor) -> Tensor:
        """Returns t with `before` more elements in front (fewer if negative). Its end is padded or cropped to the
        length of `like`."""
        after = ops.subtract(ops.subtract(self.lengths(like), self.lengths(t)), before)
        return ops.copy([t, ops.concat([before, after], 0)], kind="pad", axis=self.axes)[0]


def _input_gradient(g: Tensor, w: Tensor, window: _Window, group: int) -> Tensor:
    """The gradient of a conv's input: a conv_transpose, extended by the elements at the end that the stride skipped."""
    how: dict[str, Any] = {
        "strides": window.strides, "dilations": window.dilations, "group": group, "channel_axis": window.channel_axis,
    }  # fmt: skip
    if not window.known:
        low = integers(g, window.pads[: window.count]) if window.open_pads is None else window.open_pads[0]
        return window.resized(ops.conv_transpose(g, w, **how), ops.subtract(integers(g, 0), low), window.x)
    over = [
        n - ((m - 1) * s - low - high + span)
        for n, m, s, low, high, span in zip(
            window.sizes, window.out, window.strides, window.pads[: window.count], window.pads[window.count :],
            window.span, strict=True,
        )
    ]  # fmt: skip
    return ops.conv_transpose(g, w, pads=window.pads, output_padding=over, **how)


def _weight_gradient(x: Tensor, g: Tensor, window: _Window, group: int) -> Tensor:
    """Gradient of a conv's weights."""
    if window.open_pads is not None:
        x = ops.copy([x, ops.concat(list(window.open_pads), 0)], kind="pad", axis=window.axes)[0]
    return ops.conv_gradient(
        x, g, kernel=window.kernel, strides=window.strides, dilations=window.dilations, pads=window.pads, group=group,
        channel_axis=window.channel_axis,
    )  # fmt: skip


def _output_gradient(x: Tensor, w: Tensor, window: _Window, group: int) -> Tensor:
    """The conv itself, with the output size of the window."""
    if window.open_pads is not None:
        x = ops.copy([x, ops.concat(list(window.open_pads), 0)], kind="pad", axis=window.axes)[0]
    made = ops.conv(
        x, w, strides=window.strides, dilations=window.dilations, pads=window.pads, group=group,
        channel_axis=window.channel_axis,
    )  # fmt: skip
    if not window.known:
        return window.resized(made, integers(made, [0] * window.count), window.y)
    if static(made, window.axes) == tuple(window.out):
        return made
    return ops.copy(  # output padding of at least one stride
        [made], kind="slice", starts=[0] * window.count, ends=window.out, axis=window.axes, steps=[1] * window.count
    )[0]


def _bias_gradient(g: Tensor, window: _Window) -> Tensor:
    return ops.reduce(g, kind="sum", axis=[0, *window.axes], keep_dims=False)


def _window_of(node: Node, x: Tensor, y: Tensor, w: Tensor) -> tuple[_Window, int]:
    return _Window(node, x, y, static(w, range(2, len(shape_of(w))))), node.attribute("group")


def conv_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The gradient for x is a conv_transpose, for w a conv_gradient, and for the bias a sum."""
    x, w, g = node.inputs[0], node.inputs[1], given[0]
    assert x is not None and w is not None and g is not None
    window, group = _window_of(node, x, node.outputs[0], w)
    return [
        _input_gradient(g, w, window, group) if needs[0] else None,
        _weight_gradient(x, g, window, group) if needs[1] else None,
        _bias_gradient(g, window) if len(needs) > 2 and needs[2] else None,
    ]


def conv_gradient_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The op is linear in x and in g. The gradient for x is a conv_transpose, the gradient for g a conv. Both use the
    given gradient as their weights."""
    x, g, w = node.inputs[0], node.inputs[1], given[0]
    assert x is not None and w is not None and g is not None
    window, group = _window_of(node, x, g, w)
    return [
        _input_gradient(g, w, window, group) if needs[0] else None,
        _output_gradient(x, w, window, group) if needs[1] else None,
    ]


def conv_transpose_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The gradient for x is a conv. The gradient for w is the conv_gradient of a conv whose input is this op's
    output."""
    x, w, g = node.inputs[0], node.inputs[1], given[0]
    assert x is not None and w is not None and g is not None
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
    """Like _weight_gradient, but cuts off output padding if it is at least one stride, because the conv would turn it
    into extra positions."""
    if not window.known:
        pads = window.open_pads or (
            integers(g, window.pads[: window.count]),
            integers(g, window.pads[window.count :]),
        )
        steps = elementwise(
            [window.lengths(x), integers(g, window.strides), integers(g, window.span)],
            lambda m, s, span: (m - 1) * s + span, "i64",
        )  # fmt: skip
        after = ops.subtract(ops.subtract(steps, window.lengths(g)), pads[0])
        g = ops.copy([g, ops.concat([pads[0], after], 0)], kind="pad", axis=window.axes)[0]
        return ops.conv_gradient(
            g, x, kernel=window.kernel, strides=window.strides, dilations=window.dilations, group=group,
            channel_axis=window.channel_axis,
        )  # fmt: skip
    low, high = window.pads[: window.count], window.pads[window.count :]
    sizes = zip(window.sizes, window.out, window.strides, window.span, low, high, strict=True)
    over = [max(n + lo + hi - span - (m - 1) * s, 0) // s * s for n, m, s, span, lo, hi in sizes]
    if any(over):
        ends = [n - o for n, o in zip(window.sizes, over, strict=True)]
        g = ops.copy(
            [g], kind="slice", starts=[0] * window.count, ends=ends, axis=window.axes, steps=[1] * window.count
        )[0]
    return _weight_gradient(g, x, window, group)


_POOL = ("kind", "kernel", "strides", "dilations", "ceil_mode", "count_include_pad", "channel_axis")


def pool_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Uses the op pool_gradient with explicit padding."""
    x, y, g = node.inputs[0], node.outputs[0], given[0]
    assert x is not None and g is not None
    attributes: dict[str, Any] = {name: node.attribute(name) for name in _POOL}
    window = _Window(node, x, y, tuple(node.attribute("kernel")))
    if window.open_pads is not None:
        raise GraphError("the gradient rule needs fixed sizes or explicit pads", code=304, got=f"auto_pad, {x.shape}")
    attributes["pads"] = node.attribute("pads") if node.attribute("auto_pad") == "explicit" else window.pads
    if attributes["kind"] != "lp":
        return [ops.pool_gradient(x, g, **attributes)]
    # y = (sum of |x|^p)^(1/p). The adjoint of the sum is that of the mean times the number of elements in a window.
    p = node.attribute("p")
    inside = ops.pool(filled(x, 1.0), **{**attributes, "kind": "lp", "count_include_pad": False}, p=1)[0]
    slope = elementwise([g, y, inside], lambda g, v, n: v.eq(0.0).select(0.0, g * n * v ** (1.0 - p)), x.dtype)
    spread = ops.pool_gradient(x, slope, **{**attributes, "kind": "average", "count_include_pad": False})
    return [elementwise([x, spread], lambda v, s: s * v.unary("sign") * abs(v) ** float(p - 1), x.dtype)]


def pool_gradient_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The op is linear in g. The gradient is the average of the given gradient, or its elements at the maxima."""
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
    """For each axis, a product with the transposed matrix of its weights. A resize of the unit matrix gives these
    weights."""
    x, y, g = node.inputs[0], node.outputs[0], given[0]
    assert x is not None and g is not None
    rank = len(shape_of(x))
    axes = [a % rank for a in node.attribute("axes")] or list(range(rank))
    scales, region = _scales(node), operand(node, 3)
    for i, axis in enumerate(axes):
        same = shape_of(x)[axis] == shape_of(y)[axis] and shape_of(x)[axis] is not None
        if same and region is None and (not scales or scales[i] == 1):
            continue
        weights = _resize_weights(node, x, y, axes, i, scales)
        order = [*(a for a in range(rank) if a != axis), axis]
        g = ops.matmul(ops.transpose(g, order), weights, transpose_b=True)
        g = ops.transpose(g, [order.index(a) for a in range(rank)])
    return [g]


def _scales(node: Node) -> list[float]:
    given = operand(node, 1)
    if given is None:
        return list(node.attribute("scales"))
    if given.data is None:
        raise GraphError("the gradient rule needs constant scales", code=304, got=f"'{given.name}', computed")
    return [float(v) for v in given.data]


def _resize_weights(node: Node, x: Tensor, y: Tensor, axes: list[int], i: int, scales: list[float]) -> Tensor:
    """Weights [size before, size after] of axes[i]: how much each input element contributes to each output element."""
    axis, region = axes[i], operand(node, 3)
    length = ops.reshape(ops.shape(x, start=axis, end=axis + 1), [])
    numbers = ops.range_(integers(x, 0), length, integers(x, 1))
    column = ops.copy([numbers], kind="unsqueeze", axis=[1])[0]
    eye = elementwise([numbers, column], lambda a, b: a.eq(b).select(1.0, 0.0), x.dtype)
    how: dict[str, Any] = {**node.attributes, "axes": (1,), "scales": (), "sizes": (), "extrapolation_value": 0.0}
    operands: list[Tensor | None] = [eye, None, None, None]
    if region is not None:
        operands[3] = ops.gather(region, integers(x, [i, i + len(axes)]))
    if node.attribute("aspect") != "stretch" and not scales:
        return _shared_scale(node, eye, how, static(x, axes), i)
    if scales:
        how["scales"] = (scales[i],)
    else:
        operands[2] = ops.shape(y, start=axis, end=axis + 1)
    return emit("resize", operands, how)[0]


def _shared_scale(node: Node, eye: Tensor, how: dict[str, Any], lengths: tuple[int, ...], i: int) -> Tensor:
    """If the aspect ratio is kept, one axis determines the scale of all axes. So this axis is included too, and is
    filled with ones."""
    given = operand(node, 2)
    wanted = list(node.attribute("sizes")) if given is None else constant_of(given, "sizes")
    ratios = [Fraction(int(w), max(n, 1)) for w, n in zip(wanted, lengths, strict=True)]
    pick = min if node.attribute("aspect") == "not_larger" else max
    first = ratios.index(pick(ratios))
    wide = ops.copy([ops.copy([eye], kind="unsqueeze", axis=[2])[0]], kind="expand", shape=[1, 1, lengths[first]])[0]
    made = emit("resize", [wide], {**how, "axes": (1, 2), "sizes": (wanted[i], wanted[first])})[0]
    row = ops.copy([made], kind="slice", starts=[0], ends=[1], axis=[2], steps=[1])[0]
    return ops.copy([row], kind="squeeze", axis=[2])[0]


RULES: dict[str, Rule] = {
    "conv": conv_gradient,
    "conv_gradient": conv_gradient_gradient,
    "conv_transpose": conv_transpose_gradient,
    "pool": pool_gradient,
    "pool_gradient": pool_gradient_gradient,
    "resize": resize_gradient,
}
