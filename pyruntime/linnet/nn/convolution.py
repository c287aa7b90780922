"""Convolutions over 1 to 3 spatial dimensions, with the channels at axis 1 (as in PyTorch, the default) or last (as in
Keras). The planner chooses the memory layout itself, so both are equally fast."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypedDict

from linnet import init
from linnet.builder import ops
from linnet.clib.arguments import fields_of, with_fields
from linnet.clib.errors import UsageError
from linnet.ir.function import Operators, Tensor
from linnet.ir.graph import graph_of
from linnet.nn._layer import Padding, Sizes, Start, layer, padding_of, per_axis, positive, rank_of, size_of, variable
from linnet.nn.activations import Activation, activate

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ConvFields(TypedDict, total=False):
    """The fields of ConvSettings, as keyword arguments."""

    stride: Sizes
    padding: Padding
    dilation: Sizes
    bias: bool
    activation: Activation
    channel_axis: int
    weight_start: Start
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvSettings:
    """The arguments that all convolutions take."""

    stride: Sizes = 1
    padding: Padding = 0
    dilation: Sizes = 1
    bias: bool = True
    activation: Activation = None
    channel_axis: int = 1
    weight_start: Start = init.he
    name: str = ""


@with_fields(ConvSettings)
def conv(
    x: Operators,
    filters: int,
    size: Sizes,
    *,
    groups: int = 1,
    bias_start: Start = init.zeros,
    **settings: Unpack[ConvFields],
) -> Tensor:
    """Cross-correlation: x [batch, channels, spatial...] -> [batch, filters, spatial...].

    size, stride, dilation: one number, or one per spatial axis. padding: number of zeros on each side, or "same" or
    "valid". channel_axis: 1, or -1 for x [batch, spatial..., channels]. Variables `weight` [filters, channels / groups,
    size...] and `bias` [filters].
    """
    given = fields_of(ConvSettings, settings, "conv")
    with layer(x, "conv", given.name) as graph:
        count = rank_of(x, "conv", 3, 5) - 2
        channels, filters = size_of(x, given.channel_axis, "conv"), positive(filters, "filters", "conv")
        if channels % positive(groups, "groups", "conv") or filters % groups:
            raise UsageError(
                "the channels or filters are not divisible by the number of groups", code=104, tensor=x.name,
                expected=f"{channels} channels and {filters} filters to be multiples of groups", got=f"{groups} groups",
            )  # fmt: skip
        shape = [filters, channels // groups, *per_axis(size, count, "size")]
        weight = variable(graph, "weight", shape, given.weight_start, x.dtype).tensor(x)
        offset = variable(graph, "bias", [filters], bias_start, x.dtype).tensor(x) if given.bias else None
        y = ops.conv(
            x, weight, offset, strides=per_axis(given.stride, count, "stride"),
            dilations=per_axis(given.dilation, count, "dilation"), group=groups, channel_axis=given.channel_axis,
            **padding_of(given.padding, count),
        )  # fmt: skip
        return activate(y, given.activation)


@with_fields(ConvSettings)
def depthwise_conv(
    x: Operators,
    size: Sizes,
    *,
    multiplier: int = 1,
    bias_start: Start = init.zeros,
    **settings: Unpack[ConvFields],
) -> Tensor:
    """Convolves each channel separately with `multiplier` filters: a conv with as many groups as channels.

    Variables `weight` [channels * multiplier, 1, size...] and `bias` [channels * multiplier].
    """
    given = fields_of(ConvSettings, settings, "depthwise_conv")
    channels = size_of(x, given.channel_axis, "depthwise_conv")
    filters = channels * positive(multiplier, "multiplier", "depthwise_conv")
    settings["name"] = given.name or graph_of(x).unique_scope("depthwise_conv")
    return conv(x, filters, size, groups=channels, bias_start=bias_start, **settings)


@with_fields(ConvSettings)
def separable_conv(
    x: Operators, filters: int, size: Sizes, *, multiplier: int = 1, **settings: Unpack[ConvFields]
) -> Tensor:
    """A depthwise convolution without bias, followed by a convolution of size 1 over the channels (Chollet 2017).

    Variables `depthwise/weight`, `pointwise/weight` and `pointwise/bias`.
    """
    given = fields_of(ConvSettings, settings, "separable_conv")
    with layer(x, "separable_conv", given.name):
        y = depthwise_conv(
            x, size, multiplier=multiplier, stride=given.stride, padding=given.padding, dilation=given.dilation, bias=False,
            channel_axis=given.channel_axis, weight_start=given.weight_start, name="depthwise",
        )  # fmt: skip
        return conv(
            y, filters, 1, bias=given.bias, activation=given.activation, channel_axis=given.channel_axis,
            weight_start=given.weight_start, name="pointwise",
        )  # fmt: skip


@with_fields(ConvSettings)
def conv_transpose(
    x: Operators,
    filters: int,
    size: Sizes,
    *,
    output_padding: Sizes = 0,
    groups: int = 1,
    bias_start: Start = init.zeros,
    **settings: Unpack[ConvFields],
) -> Tensor:
    """The adjoint of conv. Sizes grow to (n - 1) * stride - 2 * padding + dilation * (size - 1) + 1 + output_padding.

    padding: number of elements cut off on each side; "same" gives n * stride. Variables `weight` [channels, filters /
    groups, size...] and `bias` [filters].
    """
    given = fields_of(ConvSettings, settings, "conv_transpose")
    with layer(x, "conv_transpose", given.name) as graph:
        count = rank_of(x, "conv_transpose", 3, 5) - 2
        channels = size_of(x, given.channel_axis, "conv_transpose")
        filters = positive(filters, "filters", "conv_transpose")
        if channels % positive(groups, "groups", "conv_transpose") or filters % groups:
            raise UsageError(
                "the channels or filters are not divisible by the number of groups", code=104, tensor=x.name,
                expected=f"{channels} channels and {filters} filters to be multiples of groups", got=f"{groups} groups",
            )  # fmt: skip
        kernel, strides = per_axis(size, count, "size"), per_axis(given.stride, count, "stride")
        dilations = per_axis(given.dilation, count, "dilation")
        extra = per_axis(output_padding, count, "output_padding")
        if given.padding == "same":
            spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
            cut = [max(span - s, 0) for span, s in zip(spans, strides, strict=True)]
            extra = [max(s - span, 0) for span, s in zip(spans, strides, strict=True)]
            pads = [c // 2 for c in cut] + [c - c // 2 for c in cut]
        else:
            pads = padding_of(given.padding, count).get("pads", [0] * (2 * count))
        shape = [channels, filters // groups, *kernel]
        weight = variable(graph, "weight", shape, given.weight_start, x.dtype).tensor(x)
        offset = variable(graph, "bias", [filters], bias_start, x.dtype).tensor(x) if given.bias else None
        y = ops.conv_transpose(
            x, weight, offset, strides=strides, dilations=dilations, pads=pads, group=groups,
            channel_axis=given.channel_axis, output_padding=extra,
        )  # fmt: skip
        return activate(y, given.activation)
