"""Cases for finite differences: every op with a gradient rule, every value of its attributes and every operand.
test_gradients.py runs them, and fails if the op table has something without a case."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import linnet
from linnet import ops
from linnet._generated.op_table import DERIVATIVES
from linnet.builder.mapping import pointwise
from linnet.ir.function import Tensor

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """build: a function of one tensor per array. second: also check second derivatives. sizes: whether sizes may be open."""

    name: str
    build: Callable[..., Tensor]
    arrays: tuple[Array, ...]
    second: bool = True
    open: bool = True


def some(*shape: int, seed: int = 0, low: float = 0.3, high: float = 1.7) -> Array:
    return np.random.default_rng(seed + sum(shape)).uniform(low, high, shape)


def apart(*shape: int, seed: int = 0) -> Array:
    """Values that differ by much more than a step of finite differences, for ops that select the largest."""
    count = int(np.prod(shape))
    return (np.random.default_rng(seed).permutation(count) / count + 0.3).reshape(shape)


def const(x: Tensor, values: Any, dtype: Any = np.int64) -> Tensor:
    return x.function.constant(np.array(values, dtype))


def maps() -> Iterator[Case]:
    domains = {"asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atanh": (-0.9, 0.9), "acosh": (1.2, 3.0)}
    for opcode, row in DERIVATIVES.items():
        low, high = domains.get(opcode, (0.3, 1.4))
        x, y = some(2, 3, low=low, high=high), some(3, 1, 2, 1, seed=9, low=low, high=high)
        if opcode in ("cast", "select"):
            continue
        if len(row) == 1:
            yield Case(f"map_{opcode}", lambda x, o=opcode: pointwise([x], lambda v: v.unary(o)), (x,))
        else:
            yield Case(
                f"map_{opcode}", lambda x, y, o=opcode: pointwise([x, y], lambda a, b: a.binary(o, b)), (some(2, 3), y)
            )
    yield Case("map_select", lambda x, y: ops.where(x > 1.0, x * y, y), (some(3, 4), some(4)))
    yield Case("map_cast", lambda x: pointwise([x], lambda v: (v * v).cast("f64") * 2.0), (some(3),))
    yield Case(
        "map_two_outputs", lambda x: ops.multiply(*pointwise([x], lambda v: (v * v, v.unary("exp")))), (some(3),)
    )
    yield Case("map_same_twice", lambda x: pointwise([x, x], lambda a, b: a * b * a), (some(4),))
    yield Case("map_scalar", lambda x, y: x * y, (some(), some(2, 3)))


def copies() -> Iterator[Case]:
    def copied(**attributes: Any) -> Callable[..., Tensor]:
        return lambda *x: ops.copy(x, **attributes)[0]

    def operand(kind: str, *values: list[int], **attributes: Any) -> Callable[..., Tensor]:
        return lambda x: ops.copy([x, *(const(x, v) for v in values)], kind=kind, **attributes)[0]

    def split(x: Tensor, axis: int = 1) -> Tensor:
        parts = ops.copy([x], kind="split", axis=axis, shape=[1, 2, 3], outputs=3)
        return ops.multiply(parts[0], parts[2])

    kinds: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
        "identity": (copied(), [(2, 3)]),
        "reshape": (copied(kind="reshape", shape=[4, -1]), [(2, 6)]),
        "reshape_zero": (copied(kind="reshape", shape=[0, 3, -1]), [(2, 6)]),
        "reshape_allow_zero": (copied(kind="reshape", shape=[3, 4], allow_zero=True), [(2, 6)]),
        "reshape_operand": (operand("reshape", [3, 4]), [(2, 6)]),
        "transpose": (copied(kind="transpose", perm=[2, 0, 1]), [(2, 3, 4)]),
        "transpose_reversed": (copied(kind="transpose"), [(2, 3, 4)]),
        "concat": (copied(kind="concat", axis=-1), [(2, 3), (2, 1), (2, 2)]),
        "concat_one": (copied(kind="concat"), [(2, 3)]),
        "split": (split, [(2, 6)]),
        "split_last": (lambda x: split(x, -1), [(2, 6)]),
        "split_even": (lambda x: ops.copy([x], kind="split", axis=1, outputs=3)[1], [(2, 6)]),
        "slice": (copied(kind="slice", starts=[1, -3], ends=[3, 100], axis=[0, 2], steps=[1, 1]), [(4, 2, 5)]),
        "slice_steps": (copied(kind="slice", starts=[0, -1], ends=[4, -100], axis=[0, 1], steps=[2, -2]), [(4, 5)]),
        "slice_all_axes": (copied(kind="slice", starts=[1, 0], ends=[3, 2]), [(4, 5)]),
        "slice_operands": (operand("slice", [1], [9], [1], [2]), [(3, 6)]),
        "slice_backwards": (copied(kind="slice", starts=[-1], ends=[-(1 << 63)], axis=[1], steps=[-1]), [(3, 4)]),
        "pad": (copied(kind="pad", pads=[1, 0, 0, 2]), [(2, 3)]),
        "pad_value": (copied(kind="pad", pads=[1, 0, 0, 2], value=0.5), [(2, 3)]),
        "pad_crop": (copied(kind="pad", pads=[-1, 2, 0, -1]), [(3, 4)]),
        "pad_axes": (copied(kind="pad", pads=[1, 2], axis=[1]), [(2, 3)]),
        "pad_operand": (operand("pad", [1, 0, 0, 2]), [(2, 3)]),
        "pad_reflect": (copied(kind="pad", pads=[0, 2, 0, 1], pad_mode="reflect"), [(2, 4)]),
        "pad_edge": (copied(kind="pad", pads=[1, 2, 0, 1], pad_mode="edge"), [(2, 4)]),
        "pad_wrap": (copied(kind="pad", pads=[0, 2, 0, 1], pad_mode="wrap"), [(2, 4)]),
        "expand": (copied(kind="expand", shape=[2, 3, 4]), [(3, 1)]),
        "expand_operand": (operand("expand", [2, 3, 4]), [(3, 1)]),
        "tile": (copied(kind="tile", shape=[2, 1, 3]), [(2, 3, 2)]),
        "tile_operand": (operand("tile", [2, 3]), [(2, 3)]),
        "squeeze": (copied(kind="squeeze", axis=[1]), [(2, 1, 3)]),
        "squeeze_all": (copied(kind="squeeze"), [(2, 1, 3)]),
        "unsqueeze": (copied(kind="unsqueeze", axis=[0, 2]), [(2, 3)]),
        **{
            f"depth_to_space_{mode}_{axis}": (
                copied(kind="depth_to_space", block=2, axis=axis, depth_mode=mode),
                [(1, 8, 2, 3) if axis == 1 else (1, 2, 3, 8)],
            )
            for mode in ("dcr", "crd")
            for axis in (1, -1)
        },
        "space_to_depth": (copied(kind="space_to_depth", block=2, axis=1), [(1, 2, 4, 6)]),
        "space_to_depth_last": (copied(kind="space_to_depth", block=2, axis=-1), [(1, 4, 6, 2)]),
        "space_to_depth_crd": (copied(kind="space_to_depth", block=2, axis=1, depth_mode="crd"), [(1, 2, 4, 6)]),
    }
    for name, (build, shapes) in kinds.items():
        arrays = tuple(some(*s, seed=i) for i, s in enumerate(shapes))
        yield Case(f"copy_{name}", lambda *x, b=build: ops.multiply(y := b(*x), y), arrays, open=name != "squeeze_all")


def reductions() -> Iterator[Case]:
    kinds = ["sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"]
    for kind, keep in itertools.product(kinds, (True, False)):
        for axes in ([], [1], [0, -1]):
            name = f"reduce_{kind}_{keep}_{''.join(map(str, axes))}"
            yield Case(
                name, lambda x, k=kind, a=axes, d=keep: ops.reduce(x, kind=k, axis=a, keep_dims=d), (apart(2, 3, 2),)
            )
        yield Case(
            f"reduce_{kind}_{keep}_none",
            lambda x, k=kind, d=keep: ops.reduce(x, kind=k, keep_dims=d, noop_with_empty_axes=True), (apart(2, 3),),
        )  # fmt: skip
    yield Case("reduce_operand", lambda x: ops.reduce(x, const(x, [1]), kind="l2", keep_dims=False), (some(2, 3),))
    yield Case("reduce_prod_zeros", lambda x: ops.reduce(x, kind="prod"), (np.array([[0.0, 2.0], [3.0, 4.0]]),))


def products() -> Iterator[Case]:
    shapes = [
        ((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 2)), ((2, 3, 4), (2, 4, 2)),
        ((2, 1, 3, 4), (5, 4, 2)), ((3, 4), (2, 4, 2)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)), ((1, 3, 4), (2, 4, 2)),
    ]  # fmt: skip
    for a, b in shapes:
        yield Case(f"matmul_{a}_{b}", ops.matmul, (some(*a), some(*b, seed=2)))
    for ta, tb, batch in itertools.product((False, True), (False, True), ((), (2,))):
        x, y = (*batch, *((4, 3) if ta else (3, 4))), ((2, 4) if tb else (4, 2))
        yield Case(
            f"matmul_{ta}_{tb}_{batch}",
            lambda x, y, z, ta=ta, tb=tb: ops.matmul(x, y, z, transpose_a=ta, transpose_b=tb),
            (some(*x), some(*y), some(2)),
        )


def norms() -> Iterator[Case]:
    for log, axis in itertools.product((False, True), (0, 1, -1)):
        yield Case(f"softmax_{log}_{axis}", lambda x, g=log, a=axis: ops.softmax(x, axis=a, log=g), (some(3, 4, 2),))
    for rms, axis, epsilon in itertools.product((False, True), (1, -1), (1e-5, 1e-2)):
        shape = (3, 4) if axis == 1 else (4,)
        yield Case(
            f"layer_norm_{rms}_{axis}_{epsilon}",
            lambda x, s, b, r=rms, a=axis, e=epsilon: ops.layer_norm(x, s, b, axis=a, rms=r, epsilon=e)[0],
            (some(2, 3, 4), some(*shape), some(*shape, seed=4)),
        )
    yield Case("layer_norm_plain", lambda x: ops.layer_norm(x)[0], (some(2, 3, 4),))
    for rms in (False, True):
        yield Case(
            f"layer_norm_statistics_{rms}",
            lambda x, s, r=rms: ops.multiply(ops.add(*(o := ops.layer_norm(x, s, rms=r, outputs=3))[:2]), o[2]),
            (some(2, 3, 4), some(4)),
        )
    for axis, epsilon in itertools.product((1, -1), (1e-5, 1e-2)):
        x = some(2, 4, 3, 3) if axis == 1 else some(2, 3, 3, 4)
        four = [some(4, seed=i) for i in range(4)]
        yield Case(
            f"batch_norm_{axis}_{epsilon}",
            lambda *x, a=axis, e=epsilon: ops.batch_norm(*x, channel_axis=a, epsilon=e), (x, *four),
        )  # fmt: skip
        for groups in (0, 2):
            yield Case(
                f"group_norm_{axis}_{groups}_{epsilon}",
                lambda x, s, b, a=axis, g=groups, e=epsilon: ops.group_norm(x, s, b, groups=g, channel_axis=a, epsilon=e),
                (x, *four[:2]), open=False,
            )  # fmt: skip
    yield Case("group_norm_plain", lambda x: ops.group_norm(x, groups=2), (some(2, 4, 3),), open=False)


def moments() -> Iterator[Case]:
    for axis, second in itertools.product((1, -1), (0, 1)):
        x = some(2, 3, 4, 2)
        yield Case(f"moments_{axis}_{second}", lambda x, a=axis, s=second: ops.moments(x, channel_axis=a)[s], (x,))
        yield Case(
            f"moments_products_{axis}_{second}",
            lambda x, g, m, a=axis, s=second: ops.moments(x, g, m, kind="products", channel_axis=a)[s],
            (x, some(2, 3, 4, 2, seed=1), some(x.shape[axis])),
        )

    def trained(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        return ops.relu(ops.batch_norm(x, scale, bias, *ops.moments(x)))

    yield Case("moments_batch_norm", trained, (some(3, 2, 2, 3), some(2), some(2, seed=1) - 0.5))


def indexing() -> Iterator[Case]:
    def gathered(values: Any, **attributes: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: ops.gather(ops.multiply(x, x), const(x, values), **attributes)

    yield Case("gather_0", gathered([[1, 0], [-1, 1]]), (some(3, 2, 4),))
    yield Case("gather_forward_only", gathered([2, 0], from_end=False), (some(3, 2),))
    yield Case("gather_1", gathered([[1, 0], [-1, 1]], axis=1), (some(3, 2, 4),))
    yield Case("gather_last", gathered([3, 3, 0], axis=-1), (some(3, 2, 4),))
    yield Case("gather_scalar", gathered(1, axis=1), (some(3, 2, 4),))
    yield Case("gather_batch", gathered([[1, 0], [-1, 1]], axis=1, batch_dims=1), (some(2, 3, 4),))
    yield Case("gather_batch_2", gathered([[[1], [1]], [[0], [-1]]], axis=2, batch_dims=2), (some(2, 2, 3),))
    yield Case("gather_elements", gathered([[0, 1, 1], [2, 2, 0]], kind="elements", axis=1), (some(2, 3),))
    yield Case("gather_elements_0", gathered([[0, 1, 1]], kind="elements"), (some(2, 3),))
    yield Case("gather_nd", gathered([[0, 1], [2, 0], [0, 1]], kind="nd"), (some(3, 2, 2),))
    yield Case("gather_nd_batch", gathered([[[1], [0]], [[2], [2]]], kind="nd", batch_dims=1), (some(2, 3, 2),))
    for reduction in ("none", "add", "mul", "max", "min"):
        places = (
            [[0, 2]] if reduction == "none" else [[0, 0], [1, 1]]
        )  # positions that are only written must not repeat

        def elements(x: Tensor, u: Tensor, p: Any = places, r: str = reduction, axis: int = 1) -> Tensor:
            y = ops.scatter(ops.multiply(x, x), const(x, p), ops.multiply(u, u), axis=axis, reduction=r)
            return ops.multiply(y, y)

        yield Case(f"scatter_{reduction}", elements, (apart(2, 3), apart(*np.shape(places), seed=3) + 0.05))
        yield Case(
            f"scatter_{reduction}_0", lambda x, u, e=elements, r=reduction: e(x, u, [[1, 0, 1]], r, 0),
            (apart(2, 3), apart(1, 3, seed=3) + 0.04),
        )  # fmt: skip
        yield Case(
            f"scatter_nd_{reduction}",
            lambda x, u, r=reduction: ops.scatter(
                x, const(x, [[1], [0]] if r == "none" else [[1], [1]]), u, kind="nd", reduction=r
            ),
            (apart(3, 2), apart(2, 2, seed=4) + 0.03),
        )  # fmt: skip
    zeros = np.array([0.0, 0.5, 0.0, 1.5])
    yield Case(
        "scatter_mul_zeros",
        lambda x, u: ops.scatter(x, const(x, [0, 0, 1, 1]), u, reduction="mul"), (some(3), zeros), second=False,
    )  # fmt: skip
    for exclusive, reverse, product in itertools.product((False, True), (False, True), (False, True)):

        def running(x: Tensor, axis: int, e: bool = exclusive, r: bool = reverse, p: bool = product) -> Tensor:
            return ops.cumsum(ops.multiply(x, x), const(x, axis), exclusive=e, reverse=r, product=p)

        name = f"cumsum_{exclusive}_{reverse}_{product}"
        yield Case(name, lambda x, f=running: f(x, 1), (some(2, 4),))
        yield Case(f"{name}_first", lambda x, f=running: f(x, -2), (some(3, 2),))
        if product:
            yield Case(
                f"{name}_zeros",
                lambda x, e=exclusive, r=reverse: ops.cumsum(x, const(x, 0), exclusive=e, reverse=r, product=True),
                (np.array([2.0, 0.0, 3.0, 0.0, 0.5]),),
            )
    for axis, largest, ordered in itertools.product((1, 0, -1), (True, False), (True, False)):
        yield Case(
            f"top_k_{axis}_{largest}_{ordered}",
            lambda x, a=axis, g=largest, s=ordered: ops.top_k(
                ops.multiply(x, x), const(x, [2]), axis=a, largest=g, sorted=s
            )[0].sum(a),
            (apart(3, 5),),
        )
    yield Case("cast", lambda x: ops.cast(ops.multiply(x, x), dtype="f64"), (some(3, 5),))


def convolutions() -> Iterator[Case]:
    convs: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = {
        "plain": ({}, (2, 3, 5, 6), (4, 3, 3, 2)),
        "strided": ({"strides": [2, 3], "pads": [1, 0, 2, 1]}, (2, 2, 6, 7), (3, 2, 3, 2)),
        "dilated": ({"dilations": [2, 1], "pads": [1, 1, 1, 1], "strides": [1, 2]}, (1, 2, 7, 6), (2, 2, 2, 3)),
        "grouped": ({"group": 2, "strides": [2, 2]}, (2, 4, 6, 5), (6, 2, 3, 3)),
        "depthwise": ({"group": 4, "pads": [1, 1, 1, 1]}, (2, 4, 4, 5), (4, 1, 3, 3)),
        "same": ({"auto_pad": "same_upper", "strides": [2, 2]}, (1, 2, 5, 6), (3, 2, 3, 3)),
        "same_lower": ({"auto_pad": "same_lower"}, (1, 2, 5, 6), (3, 2, 2, 2)),
        "same_lower_strided": ({"auto_pad": "same_lower", "strides": [2, 3]}, (1, 2, 6, 6), (3, 2, 3, 2)),
        "valid": ({"auto_pad": "valid", "strides": [2, 1]}, (1, 2, 5, 6), (3, 2, 2, 2)),
        "one_d": ({"strides": [2], "pads": [1, 1]}, (2, 3, 8), (2, 3, 3)),
        "three_d": ({"strides": [1, 2, 1]}, (1, 2, 3, 4, 3), (2, 2, 2, 2, 2)),
        "channels_last": ({"channel_axis": -1, "strides": [2, 1], "group": 2}, (2, 5, 4, 4), (2, 2, 2, 3)),
    }
    for name, (attributes, x, w) in convs.items():
        yield Case(
            f"conv_{name}",
            lambda x, w, b, a=attributes: ops.conv(x, w, b, **a),
            (some(*x), some(*w), some(w[0])),
            open=False,
        )
        yield Case(
            f"conv_{name}_open", open_sizes(lambda x, w, a=attributes: ops.conv(x, w, **a), w), (some(*x), some(*w))
        )
    transposed: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = {
        "plain": ({}, (2, 3, 4, 3), (3, 2, 2, 3)),
        "strided": ({"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]}, (1, 2, 3, 3), (2, 3, 3, 3)),
        "whole_stride": ({"strides": [2, 1], "output_padding": [3, 2]}, (1, 2, 3, 3), (2, 3, 3, 3)),
        "grouped": ({"group": 2, "strides": [2, 2]}, (1, 4, 3, 3), (4, 2, 2, 2)),
        "one_d": ({"strides": [2], "dilations": [2]}, (2, 2, 4), (2, 3, 2)),
        "channels_last": ({"channel_axis": -1, "strides": [2, 2]}, (1, 3, 3, 2), (2, 3, 2, 2)),
        "same_upper": ({"auto_pad": "same_upper", "strides": [2, 2]}, (1, 2, 3, 4), (2, 3, 3, 3)),
        "same_lower": ({"auto_pad": "same_lower", "strides": [2, 1]}, (1, 2, 3, 4), (2, 3, 3, 2)),
        "valid": ({"auto_pad": "valid", "strides": [2, 2]}, (1, 2, 3, 3), (2, 3, 2, 3)),
        "shape": ({"output_shape": [7, 6], "strides": [3, 2]}, (1, 2, 3, 3), (2, 3, 3, 3)),
        "shape_larger": ({"output_shape": [11, 7], "strides": [3, 2]}, (1, 2, 3, 3), (2, 3, 3, 3)),
        "shape_upper": ({"output_shape": [6, 4], "auto_pad": "same_upper"}, (1, 2, 5, 4), (2, 3, 3, 3)),
    }
    for name, (attributes, x, w) in transposed.items():
        out = some(w[1] * attributes.get("group", 1))
        yield Case(
            f"conv_transpose_{name}", lambda x, w, b, a=attributes: ops.conv_transpose(x, w, b, **a),
            (some(*x), some(*w), out), open=False,
        )  # fmt: skip
        yield Case(
            f"conv_transpose_{name}_open",
            open_sizes(lambda x, w, a=attributes: ops.conv_transpose(x, w, **a), w), (some(*x), some(*w)),
        )  # fmt: skip
    for group, axis in ((1, 1), (2, -1)):
        yield Case(
            f"conv_gradient_{group}_{axis}",
            lambda x, g, n=group, a=axis: ops.conv_gradient(
                x, g, kernel=[2, 3], strides=[2, 1], dilations=[1, 2], pads=[1, 0, 0, 2], group=n, channel_axis=a
            ),
            (some(2, 2, 5, 6), some(2, 4, 3, 4)) if axis == 1 else (some(2, 5, 6, 2), some(2, 3, 4, 4)), open=False,
        )  # fmt: skip
    yield Case(
        "conv_gradient_plain", lambda x, g: ops.conv_gradient(x, g, kernel=[2, 2]), (some(2, 2, 4, 4), some(2, 3, 3, 3)),
        open=False,
    )  # fmt: skip


def open_sizes(build: Callable[..., Tensor], w: tuple[int, ...]) -> Callable[..., Tensor]:
    """Weights keep fixed shapes, which the rules need; everything else is open if the inputs of the case are."""

    def made(x: Tensor, weights: Tensor) -> Tensor:
        fixed = weights if weights.static_shape else ops.copy([weights], kind="reshape", shape=w)[0]
        return build(x, fixed)

    return made


def pools() -> Iterator[Case]:
    every: dict[str, dict[str, Any]] = {
        "plain": {"kernel": [2, 2], "strides": [2, 2]},
        "ones": {"kernel": [2, 2]},
        "padded": {"kernel": [3, 2], "strides": [1, 2], "pads": [1, 0, 1, 1]},
        "dilated": {"kernel": [2, 2], "dilations": [2, 1], "pads": [1, 0, 0, 1]},
        "include": {"kernel": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": True},
        "include_ceil": {
            "kernel": [3, 2],
            "strides": [2, 3],
            "pads": [1, 1, 1, 0],
            "count_include_pad": True,
            "ceil_mode": True,
        },
        "ceil": {"kernel": [2, 3], "strides": [2, 2], "ceil_mode": True},
        "last": {"kernel": [2, 2], "strides": [2, 2], "channel_axis": -1},
        "valid": {"kernel": [3, 3], "strides": [2, 2], "auto_pad": "valid"},
        "same": {"kernel": [3, 3], "strides": [2, 2], "auto_pad": "same_upper"},
        "same_lower": {"kernel": [2, 2], "auto_pad": "same_lower"},
    }
    for kind, (name, attributes) in itertools.product(("max", "average", "lp"), every.items()):
        attributes = {k: v for k, v in attributes.items() if k != "count_include_pad" or kind == "average"}
        x = apart(2, 5, 4, 3) if name == "last" else apart(2, 3, 5, 4)
        for p in (2,) if kind != "lp" else (1, 2, 3):
            yield Case(
                f"pool_{kind}_{name}_{p}",
                lambda x, k=kind, a=attributes, p=p: ops.pool(ops.multiply(x, x), kind=k, p=p, **a)[0], (x,),
                open=name != "same",
            )  # fmt: skip
    yield Case("pool_one_d", lambda x: ops.pool(x, kind="average", kernel=[3], strides=[2])[0], (some(2, 2, 7),))
    yield Case("pool_three_d", lambda x: ops.pool(x, kind="lp", kernel=[2, 2, 2])[0], (some(1, 2, 3, 3, 2),))
    from linnet.builder.generated import pool_gradient

    for kind, axis, ceil, include in itertools.product(("max", "average"), (1, -1), (False, True), (False, True)):
        x = apart(1, 2, 5, 5) if axis == 1 else apart(1, 5, 5, 2)
        g = some(1, 2, 3, 3) if axis == 1 else some(1, 3, 3, 2)
        if kind == "average":
            yield Case(
                f"pool_gradient_{axis}_{ceil}_{include}",
                lambda g, x=x, a=axis, c=ceil, i=include: pool_gradient(
                    const(g, x, np.float64), g, kind="average", kernel=[2, 2], strides=[2, 2], dilations=[2, 1],
                    pads=[1, 1, 1, 0], channel_axis=a, ceil_mode=c, count_include_pad=i,
                ),
                (g,),
            )  # fmt: skip
        elif not include:
            yield Case(
                f"pool_gradient_max_{axis}_{ceil}",
                lambda g, x=x, a=axis, c=ceil: pool_gradient(
                    const(g, x, np.float64), g, kernel=[3, 3], strides=[2, 2], pads=[1] * 4, channel_axis=a, ceil_mode=c
                ),
                (g,),
            )
    yield Case(
        "pool_gradient_plain", lambda g: pool_gradient(const(g, apart(1, 1, 3, 3), np.float64), g, kernel=[2, 2]),
        (some(1, 1, 2, 2),),
    )  # fmt: skip


def resizes() -> Iterator[Case]:
    every: dict[str, dict[str, Any]] = {
        "nearest": {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 1.5]},
        "linear": {"mode": "linear", "axis": [2, 3], "sizes": [7, 3]},
        "antialias": {"mode": "linear", "axis": [3], "scales": [0.6], "antialias": True},
        "cubic": {"mode": "cubic", "axis": [-1, 2], "sizes": [9, 8], "coordinates": "align_corners"},
        "outside": {"mode": "cubic", "axis": [2], "sizes": [9], "exclude_outside": True, "coordinates": "asymmetric"},
        "coefficient": {"mode": "cubic", "axis": [2], "sizes": [9], "cubic_coefficient": -0.5},
        "symmetric": {"mode": "linear", "axis": [2, 3], "scales": [1.3, 0.7], "coordinates": "half_pixel_symmetric"},
        "pytorch": {"mode": "linear", "axis": [2, 3], "sizes": [1, 7], "coordinates": "pytorch_half_pixel"},
        **{
            f"nearest_{n}": {
                "mode": "nearest",
                "axis": [2, 3],
                "sizes": [6, 7],
                "nearest": n,
                "coordinates": "asymmetric",
            }
            for n in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        },
    }
    for name, attributes in every.items():
        yield Case(f"resize_{name}", lambda x, a=attributes: ops.resize(ops.multiply(x, x), **a), (some(1, 2, 4, 5),))
    for aspect in ("not_larger", "not_smaller"):
        yield Case(
            f"resize_{aspect}",
            lambda x, a=aspect: ops.resize(ops.multiply(x, x), mode="linear", axis=[2, 3], sizes=[7, 6], aspect=a),
            (some(1, 2, 4, 5),), open=False,
        )  # fmt: skip
    for mode, value in itertools.product(("nearest", "linear", "cubic"), (0.0, 0.5)):
        yield Case(
            f"resize_region_{mode}_{value}",
            lambda x, m=mode, v=value: ops.resize(
                ops.multiply(x, x), None, None, const(x, [0.1, -0.3, 0.9, 1.2], np.float32), mode=m, axis=[2, 3],
                sizes=[5, 6], coordinates="tf_crop_and_resize", extrapolation_value=v,
            ),
            (some(1, 2, 4, 5),),
        )  # fmt: skip
    yield Case(
        "resize_operands", lambda x: ops.resize(x, const(x, [1.0, 1.5], np.float32), mode="linear", axis=[0, 2]), (some(2, 2, 4),)
    )  # fmt: skip
    yield Case(
        "resize_sizes", lambda x: ops.resize(x, None, const(x, [5, 7]), mode="linear", axis=[0, 2]), (some(2, 2, 4),)
    )


def attentions() -> Iterator[Case]:
    def case(name: str, given: Sequence[str] = (), **attributes: Any) -> Case:
        turned = attributes.get("key_transposed", False)
        arrays = {
            "query": some(2, 2, 3, 4, low=-1, high=1),
            "key": some(2, 1, *((4, 5) if turned else (5, 4)), low=-1, high=1, seed=4),
            "value": some(2, 1, 5, 3, low=-1, high=1, seed=5),
        }
        if "mask" in given:
            arrays["mask"] = some(3, 8 if "past" in given else 5, low=-1, high=1, seed=6)
        if "past" in given:
            arrays["past_key"] = some(2, 1, *((4, 3) if turned else (3, 4)), low=-1, high=1, seed=7)
            arrays["past_value"] = some(2, 1, 3, 3, low=-1, high=1, seed=8)

        def build(*tensors: Tensor) -> Tensor:
            fixed = [
                t if t.static_shape else ops.copy([t], kind="reshape", shape=arrays[n].shape)[0]
                for n, t in zip(arrays, tensors, strict=True)
            ]
            named = dict(zip(arrays, fixed, strict=True))
            if "lengths" in given:
                named["lengths"] = const(tensors[0], [2, 3], np.int64)
            return ops.attention(**named, **attributes)

        return Case(f"attention_{name}", build, tuple(arrays.values()))

    yield case("plain")
    for given in (["mask"], ["lengths"], ["past"], ["mask", "lengths", "past"]):
        for causal in ("none", "start", "end"):
            yield case("_".join([*given, causal]), given, causal=causal, scale=0.7, cap=1.5 * (causal == "start"))
    yield case("turned", ["past"], key_transposed=True, causal="end", window=2)


GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def recurrent() -> Iterator[Case]:
    def case(
        name: str, kind: str, direction: str = "forward", time: int = 3, lengths: bool = False, states: bool = True,
        peepholes: bool = False, bias: bool = False, kept: bool = False, **attributes: Any,
    ) -> Case:  # fmt: skip
        d, batch, hidden = 2 if direction == "bidirectional" else 1, 2, 2
        arrays = {
            "p": some(time, batch, d * GATES[kind] * hidden, low=-1, high=1),
            "weights": some(d, GATES[kind] * hidden, hidden, low=-1, high=1),
        }
        if states:
            arrays["initial_h"] = some(d, batch, hidden, low=-1, high=1)
        if states and kind == "lstm":
            arrays["initial_c"] = some(d, batch, hidden, low=-1, high=1, seed=4)
        if peepholes:
            arrays["peepholes"] = some(d, 3 * hidden, low=-1, high=1)
        if bias:
            arrays["bias"] = some(d, hidden)

        def build(*tensors: Tensor) -> Tensor:
            fixed = [
                t if t.static_shape or n == "p" else ops.copy([t], kind="reshape", shape=arrays[n].shape)[0]
                for n, t in zip(arrays, tensors, strict=True)
            ]
            named = dict(zip(arrays, fixed, strict=True))
            if lengths:
                named["lengths"] = const(tensors[0], [time - 1, time], np.int32)
            made = ops.recurrent(
                **named, kind=kind, direction=direction, outputs=5 if kept else 3 if kind == "lstm" else 2, **attributes
            )
            if kept and kind != "lstm":
                del made[2]
            return ops.concat([ops.reshape(t, [-1]) for t in made], 0)

        return Case(f"recurrent_{kind}_{name}", build, tuple(arrays.values()))

    for kind, direction, lengths in itertools.product(GATES, ("forward", "reverse", "bidirectional"), (False, True)):
        plain = {"linear_before_reset": True} if kind == "gru" else {}
        yield case(f"{direction}_{lengths}", kind, direction, lengths=lengths, **plain)
        yield case(f"clipped_{direction}_{lengths}", kind, direction, lengths=lengths, clip=0.4)
    for kind in GATES:
        yield case("long", kind, "bidirectional", time=10, clip=5.0)
        yield case("no_states", kind, states=False, clip=0.4)
        for lengths in (False, True):
            plain = {"linear_before_reset": lengths} if kind == "gru" else {}
            yield case(f"kept_{lengths}", kind, "bidirectional", kept=True, lengths=lengths, **plain)
    yield case("peepholes", "lstm", "bidirectional", peepholes=True)
    yield case("coupled", "lstm", input_forget=True)
    yield case("bias", "gru", linear_before_reset=True, bias=True)
    yield case("bias_clip", "gru", linear_before_reset=True, bias=True, clip=0.5)
    for number in range(11):
        yield case(f"activation_{number}", "rnn", activations=[number], alpha=[0.4], beta=[0.7])
    yield case("mixed", "lstm", activations=[0, 1, 4], alpha=[0, 0, 0.3], beta=[0, 0, 0])
    yield case(
        "mixed_two", "gru", "bidirectional", activations=[7, 1, 0, 5], alpha=[0.2, 0, 0, 0.1], beta=[0.5, 0, 0, 0]
    )


def recurrent_gradients() -> Iterator[Case]:
    """Cases for the op `recurrent_gradient` alone. The second-order cases of `recurrent` cover its use there."""

    def case(kind: str, direction: str, lengths: bool, whole: bool, relu: bool = False) -> Case:
        d, time, batch, hidden = 2 if direction == "bidirectional" else 1, 3, 2, 2
        wide, tall, state = (time, batch, d * GATES[kind] * hidden), (time, d, batch, hidden), (d, batch, hidden)
        shapes = {"weights": (d, GATES[kind] * hidden, hidden), "gates": wide}
        if kind == "gru":
            shapes["y"] = tall
        if kind != "rnn":
            shapes["cells"] = tall
        if whole and kind != "rnn":
            shapes["initial_h" if kind == "gru" else "initial_c"] = state
        if whole:
            shapes |= {"dy": tall, "dy_h": state}
        if not whole or kind == "lstm":
            shapes["dy_c" if kind == "lstm" else "dy"] = state if kind == "lstm" else tall
        arrays = [some(*s, seed=i, low=-0.9, high=0.9) for i, s in enumerate(shapes.values())]

        def build(*tensors: Tensor) -> Tensor:
            named = dict(zip(shapes, tensors, strict=True))
            if lengths:
                named["lengths"] = const(tensors[0], [time - 1, time], np.int32)
            made = recurrent_gradient(**named, kind=kind, direction=direction, relu=relu, outputs=4)
            used = {"rnn": made[:2], "gru": [made[0], made[1], made[3]], "lstm": made[:3]}[kind]
            return ops.concat([ops.reshape(t, [-1]) for t in used], 0)

        name = f"recurrent_gradient_{kind}_{direction}_{lengths}_{whole}_{relu}"
        return Case(name, build, tuple(arrays), open=False)

    from linnet.builder.generated import recurrent_gradient

    for kind, direction in itertools.product(GATES, ("forward", "reverse", "bidirectional")):
        yield case(kind, direction, direction == "reverse", direction != "forward")
    yield case("rnn", "forward", True, True, relu=True)


def control() -> Iterator[Case]:
    """test_autodiff_control.py has more of these."""

    def step(s: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        s = ops.tanh(s * row)
        return s, s * s

    def call(x: Tensor) -> Tensor:
        callee = x.function.graph.function("callee")
        a = callee.placeholder("a", "f64", (3,))
        callee.outputs = [ops.tanh(a)]
        return ops.call([x * x], callee=callee)[0]

    yield Case("if", lambda x: linnet.cond(x.sum() > 1.0, lambda: x * x, lambda: x * 2.0), (some(3),))
    yield Case(
        "while", lambda x, y: linnet.while_loop(lambda s: s.sum() < 5.0, lambda s: s * y, x, 9), (some(3), some(3) + 1)
    )
    yield Case("while_scan", lambda x, y: linnet.scan(step, x, y)[1], (some(2), some(10, 2)))
    yield Case("while_map", lambda x: linnet.scan(lambda _, r: (None, ops.tanh(r) * r), None, x)[1], (some(10, 2),))
    yield Case("call", call, (some(3),), open=False)


CASES = [
    case
    for make in (
        maps,
        copies,
        reductions,
        products,
        norms,
        moments,
        indexing,
        convolutions,
        pools,
        resizes,
        attentions,
        recurrent,
        recurrent_gradients,
        control,
    )
    for case in make()
]
