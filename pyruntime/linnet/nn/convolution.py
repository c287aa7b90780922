"""Convolutions over 1 to 3 spatial dimensions, with the channels at axis 1 (as in PyTorch, the default) or last (as in
Keras). The planner chooses the memory layout itself, so both are equally fast."""

from __future__ import annotations

from linnet import init
from linnet.builder import ops
from linnet.clib.errors import UsageError
from linnet.ir.function import Operators, Tensor
from linnet.ir.graph import graph_of
from linnet.nn._layer import Padding, Sizes, Start, layer, padding_of, per_axis, positive, rank_of, size_of, variable
from linnet.nn.activations import Activation, activate


def conv(
    x: Operators,
    filters: int,
    size: Sizes,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    bias: bool = True,
    activation: Activation = None,
    channel_axis: int = 1,
    weight_start: Start = init.he,
    bias_start: Start = init.zeros,
    name: str = "",
) -> Tensor:
    """Cross-correlation: x [batch, channels, spatial...] -> [batch, filters, spatial...].

    size, stride, dilation: one number, or one per spatial axis. padding: number of zeros on each side, or "same" or
    "valid". channel_axis: 1, or -1 for x [batch, spatial..., channels]. Variables `weight` [filters, channels / groups,
    size...] and `bias` [filters].
    """
    with layer(x, "conv", name) as graph:
        count = rank_of(x, "conv", 3, 5) - 2
        channels, filters = size_of(x, channel_axis, "conv"), positive(filters, "filters", "conv")
        if channels % positive(groups, "groups", "conv") or filters % groups:
            raise UsageError(
                "the channels or filters are not divisible by the number of groups", code=104, tensor=x.name,
                expected=f"{channels} channels and {filters} filters to be multiples of groups", got=f"{groups} groups",
            )  # fmt: skip
        shape = [filters, channels // groups, *per_axis(size, count, "size")]
        weight = variable(graph, "weight", shape, weight_start, x.dtype)
        y = ops.conv(
            x, weight.tensor(x), variable(graph, "bias", [filters], bias_start, x.dtype).tensor(x) if bias else None,
            strides=per_axis(stride, count, "stride"), dilations=per_axis(dilation, count, "dilation"), group=groups,
            channel_axis=channel_axis, **padding_of(padding, count),
        )  # fmt: skip
        return activate(y, activation)


def depthwise_conv(
    x: Operators,
    size: Sizes,
    *,
    multiplier: int = 1,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    bias: bool = True,
    activation: Activation = None,
    channel_axis: int = 1,
    weight_start: Start = init.he,
    bias_start: Start = init.zeros,
    name: str = "",
) -> Tensor:
    """Convolves each channel separately with `multiplier` filters: a conv with as many groups as channels.

    Variables `weight` [channels * multiplier, 1, size...] and `bias` [channels * multiplier].
    """
    channels = size_of(x, channel_axis, "depthwise_conv")
    return conv(
        x, channels * positive(multiplier, "multiplier", "depthwise_conv"), size, stride=stride, padding=padding,
        dilation=dilation, groups=channels, bias=bias, activation=activation, channel_axis=channel_axis,
        weight_start=weight_start, bias_start=bias_start,
        name=name or graph_of(x).unique_scope("depthwise_conv"),
    )  # fmt: skip


def separable_conv(
    x: Operators,
    filters: int,
    size: Sizes,
    *,
    multiplier: int = 1,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    bias: bool = True,
    activation: Activation = None,
    channel_axis: int = 1,
    weight_start: Start = init.he,
    name: str = "",
) -> Tensor:
    """A depthwise convolution without bias, followed by a convolution of size 1 over the channels (Chollet 2017).

    Variables `depthwise/weight`, `pointwise/weight` and `pointwise/bias`.
    """
    with layer(x, "separable_conv", name):
        y = depthwise_conv(
            x, size, multiplier=multiplier, stride=stride, padding=padding, dilation=dilation, bias=False,
            channel_axis=channel_axis, weight_start=weight_start, name="depthwise",
        )  # fmt: skip
        return conv(
            y, filters, 1, bias=bias, activation=activation, channel_axis=channel_axis, weight_start=weight_start,
            name="pointwise",
        )  # fmt: skip


def conv_transpose(
    x: Operators,
    filters: int,
    size: Sizes,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    bias: bool = True,
    activation: Activation = None,
    channel_axis: int = 1,
    weight_start: Start = init.he,
    bias_start: Start = init.zeros,
    name: str = "",
) -> Tensor:
    """The adjoint of conv. Sizes grow to (n - 1) * stride - 2 * padding + dilation * (size - 1) + 1 + output_padding.

    padding: number of elements cut off on each side; "same" gives n * stride. Variables `weight` [channels, filters /
    groups, size...] and `bias` [filters].
    """
    with layer(x, "conv_transpose", name) as graph:
        count = rank_of(x, "conv_transpose", 3, 5) - 2
        channels, filters = size_of(x, channel_axis, "conv_transpose"), positive(filters, "filters", "conv_transpose")
        if channels % positive(groups, "groups", "conv_transpose") or filters % groups:
            raise UsageError(
                "the channels or filters are not divisible by the number of groups", code=104, tensor=x.name,
                expected=f"{channels} channels and {filters} filters to be multiples of groups", got=f"{groups} groups",
            )  # fmt: skip
        kernel, strides = per_axis(size, count, "size"), per_axis(stride, count, "stride")
        dilations, extra = per_axis(dilation, count, "dilation"), per_axis(output_padding, count, "output_padding")
        if padding == "same":
            spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
            cut = [max(span - s, 0) for span, s in zip(spans, strides, strict=True)]
            extra = [max(s - span, 0) for span, s in zip(spans, strides, strict=True)]
            pads = [c // 2 for c in cut] + [c - c // 2 for c in cut]
        else:
            pads = padding_of(padding, count).get("pads", [0] * (2 * count))
        y = ops.conv_transpose(
            x, variable(graph, "weight", [channels, filters // groups, *kernel], weight_start, x.dtype).tensor(x),
            variable(graph, "bias", [filters], bias_start, x.dtype).tensor(x) if bias else None, strides=strides,
            dilations=dilations, pads=pads, group=groups, channel_axis=channel_axis, output_padding=extra,
        )  # fmt: skip
        return activate(y, activation)
