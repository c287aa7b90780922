"""Rules for normalizations at inference.
Scales and biases of unusual shapes are applied by a map after the runtime op."""

from __future__ import annotations

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.registry import rule
from linnet.ir.expr import positive_power
from linnet.ir.function import Tensor


@rule("BatchNormalization")
def batch_normalization(op: Operation) -> list[Tensor]:
    x, scale, bias, mean, variance = (op.input(i) for i in range(5))
    op.ignore("is_test")
    if not op.attribute("spatial", 1):
        raise op.unsupported(
            "statistics per element (spatial = 0) are not supported", "export the model with a newer opset"
        )
    epsilon, momentum = op.attribute("epsilon"), op.attribute("momentum")
    if not op.attribute("training_mode", 0):
        if any(op.wants(i) for i in range(1, len(op.node.output))):
            raise op.unsupported("the batch statistics cannot be outputs", "export the model for inference")
        return [op.emit("batch_norm", [x, scale, bias, mean, variance], epsilon=epsilon)]
    axes = [a for a in range(rank_of(x, "input 0")) if a != 1]
    here = op.reduce(x, "mean", axes)
    spread = op.reduce(op.map([x, here], lambda v, m: (v - m) * (v - m)), "mean", axes)
    here, spread = op.squeeze(here, axes), op.squeeze(spread, axes)
    running = [
        op.map([old, new], lambda o, n: o * momentum + n * (1 - momentum))
        for old, new in ((mean, here), (variance, spread))
    ]
    return [op.emit("batch_norm", [x, scale, bias, here, spread], epsilon=epsilon), *running]


@rule("InstanceNormalization")
def instance_normalization(op: Operation) -> Tensor:
    return op.emit("group_norm", [op.input(0), op.input(1), op.input(2)], groups=0, epsilon=op.attribute("epsilon"))


def _group_norm(op: Operation, per_group: bool) -> Tensor:
    x, scale, bias = op.input(0), op.input(1), op.input(2)
    groups = op.attribute("num_groups")
    channels = x.shape[1] if x.shape else None
    op.ignore("stash_type")  # everything is accumulated in f32
    if per_group:
        if not isinstance(channels, int):
            raise op.unknown("the number of channels is unknown")
        scale, bias = (
            op.reshape(op.expand(op.reshape(t, [groups, 1]), [groups, channels // groups]), [channels])
            for t in (scale, bias)
        )
    return op.emit("group_norm", [x, scale, bias], groups=groups, epsilon=op.attribute("epsilon"))


@rule("GroupNormalization", since=18)
def group_normalization_18(op: Operation) -> Tensor:
    return _group_norm(op, per_group=True)


@rule("GroupNormalization", since=21)
def group_normalization(op: Operation) -> Tensor:
    return _group_norm(op, per_group=False)


def _fits(op: Operation, x: Tensor, parameter: Tensor | None, axis: int) -> bool:
    """Whether a scale or bias has exactly the normalized shape."""
    if parameter is None:
        return True
    return x.shape is not None and parameter.shape == x.shape[axis:] and parameter.dtype == x.dtype


@rule("LayerNormalization")
def layer_normalization(op: Operation) -> list[Tensor | None]:
    x, scale, bias = op.input(0), op.optional(1), op.optional(2)
    rank = rank_of(x, "input 0")
    axis = op.attribute("axis")
    axis += rank if axis < 0 else 0
    stash = (
        "bf16" if op.attribute("stash_type") == 16 else "f32"
    )  # type of mean and deviation; linnet computes in f32 or f64
    count = max((i + 1 for i in range(3) if op.wants(i)), default=1)
    inside = _fits(op, x, scale, axis) and _fits(op, x, bias, axis) and scale is not None
    operands = [x, scale, bias] if inside and bias is not None else [x, scale] if inside else [x]
    outputs = op.emit_all("layer_norm", operands, count, axis=axis, epsilon=op.attribute("epsilon"))
    if not inside:
        extra = [t for t in (scale, bias) if t is not None]
        if scale is not None and bias is not None:
            outputs[0] = op.map([outputs[0], *extra], lambda v, s, b: v * s + b)
        elif scale is not None:
            outputs[0] = op.map([outputs[0], *extra], lambda v, s: v * s)
    return [outputs[0], *(op.cast(t, stash) for t in outputs[1:])]


@rule("RMSNormalization")
def rms_normalization(op: Operation) -> Tensor:
    x, scale = op.input(0), op.input(1)
    rank = rank_of(x, "input 0")
    axis = op.attribute("axis")
    axis += rank if axis < 0 else 0
    op.ignore("stash_type")
    attributes = {"axis": axis, "epsilon": op.attribute("epsilon"), "rms": True}
    if _fits(op, x, scale, axis):
        return op.emit("layer_norm", [x, scale], **attributes)
    y = op.emit("layer_norm", [x], **attributes)
    return op.map([y, scale], lambda v, s: v * s.cast(v.kind), scale.dtype)


@rule("LRN")
def local_response_normalization(op: Operation) -> Tensor:
    """x / (bias + alpha * mean of squares over `size` channels) ^ beta. The window is an average pool along the channels."""
    x = op.input(0)
    rank, size = rank_of(x, "input 0"), op.attribute("size")
    alpha, beta, bias = op.attribute("alpha"), op.attribute("beta"), op.attribute("bias")
    squares = op.map([x], lambda v: v * v)
    shape = op.shape_of(x)
    flat = op.reshape(squares, [0, 0, -1] if rank != 2 else [0, 0, 1])
    pads = [(size - 1) // 2, 0, size // 2, 0]
    window = op.emit(
        "pool", [op.unsqueeze(flat, [1])], kind="average", kernel=[size, 1], pads=pads, count_include_pad=True
    )
    sums = op.reshape(window, shape)
    return op.map([x, sums], lambda v, s: v / positive_power(s * alpha + bias, beta))


@rule("MeanVarianceNormalization")
def mean_variance_normalization(op: Operation) -> Tensor:
    x = op.input(0)
    axes = list(op.attribute("axes", [0, 2, 3]))
    mean = op.reduce(x, "mean", axes)
    variance = op.reduce(op.map([x, mean], lambda v, m: (v - m) * (v - m)), "mean", axes)
    return op.map([x, mean, variance], lambda v, m, s: (v - m) / (s.unary("sqrt") + 1e-9))


@rule("LpNormalization")
def lp_normalization(op: Operation) -> Tensor:
    """x divided by its norm along the axis; 0 if the norm is 0."""
    x = op.input(0)
    p, axis = op.attribute("p"), op.attribute("axis")
    if p not in (1, 2):
        raise op.unsupported(f"p = {p} is not supported", "use 1 or 2")
    norm = op.reduce(x, f"l{p}", [axis])
    return op.map([x, norm], lambda v, n: n.binary("eq", 0).select(0, v / n))
