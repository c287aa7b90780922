"""Random graphs, planned with all optimizations and with none: layouts, views, in-place writing and fusion change no result.
An error in lifetimes or strides shows up as a different number."""

from __future__ import annotations

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from linnet.ir.function import Function, Tensor

SEEDS = range(120)


def _weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(max(1, int(np.prod(shape[1:]))))).astype(np.float32)


class Builder:
    """Adds random nodes over 4-D tensors [1, C, H, W]; every new tensor is a candidate operand of the next."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph()
        self.main: Function = self.graph.function()
        self.tensors: list[Tensor] = []

    def pick(self) -> Tensor:
        """Recent tensors are more likely, so that both chains and skips occur."""
        back = int(self.rng.geometric(0.4))
        return self.tensors[-min(back, len(self.tensors))]

    def same_shape(self, x: Tensor) -> Tensor:
        others = [t for t in self.tensors if t.shape == x.shape]
        return others[int(self.rng.integers(len(others)))]

    def conv(self, x: Tensor) -> Tensor:
        channels = int(x.shape[1])
        kind = self.rng.integers(3)
        if kind == 0:  # depthwise
            return ops.conv(x, self.constant(channels, 1, 3, 3), self.constant(channels), pads=[1] * 4, group=channels)
        out = int(self.rng.choice([8, 16, 24]))
        if kind == 1:
            return ops.conv(x, self.constant(out, channels, 1, 1), None)
        return ops.conv(x, self.constant(out, channels, 3, 3), self.constant(out), pads=[1] * 4)

    def constant(self, *shape: int) -> Tensor:
        return self.main.constant(_weights(self.rng, *shape))

    def node(self) -> None:
        x = self.pick()
        shape = tuple(int(d) for d in x.shape)
        match int(self.rng.integers(11)):
            case 0 | 1 | 2:
                made = self.conv(x)
                if self.rng.random() < 0.7:
                    made = ops.relu(made)
                elif any(t.shape == made.shape for t in self.tensors):
                    made = ops.add(made, self.same_shape(made))
            case 3:
                made = ops.add(x, self.same_shape(x))
            case 4:
                made = ops.multiply(x, self.constant(shape[1], 1, 1))
            case 5:
                made = ops.scale(x, 0.5, 0.25)
            case 6:
                made = ops.concat([x, self.same_shape(x)], int(self.rng.integers(1, 4)))
                if max(made.shape) > 64:  # type: ignore[type-var]
                    return
            case 7:
                axis = int(self.rng.integers(1, 4))
                if shape[axis] < 4:
                    return
                half = shape[axis] // 2
                made = ops.copy([x], kind="slice", starts=[half], ends=[shape[axis]], axis=[axis], steps=[1])[0]
            case 8:
                perm = [[0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2]][int(self.rng.integers(3))]
                made = ops.transpose(x, perm)
            case 9:
                made = ops.reshape(x, [shape[0], shape[2], shape[1], shape[3]])
            case _:
                if min(shape[2:]) < 2:
                    return
                made = ops.pool(x, kind="max", kernel=[2, 2], strides=[1, 1])[0]
        self.tensors.append(made)

    def finish(self) -> None:
        every = len(self.tensors)
        wanted = {every - 1, *(int(i) for i in self.rng.integers(0, every, 2))}
        self.main.outputs = [self.tensors[i] for i in sorted(wanted) if self.tensors[i] not in self.main.inputs]
        self.graph.signature("infer", self.main)


def random_case(seed: int) -> tuple[Builder, dict[str, np.ndarray]]:
    """A random graph, and values for its inputs."""
    builder = Builder(seed)
    rng = builder.rng
    shapes = [(1, int(rng.choice([3, 8, 16])), int(rng.choice([4, 8, 9])), 8) for _ in range(2)]
    for i, shape in enumerate(shapes):
        builder.tensors.append(builder.main.placeholder(f"x{i}", "f32", shape))
    for _ in range(int(rng.integers(4, 24))):
        builder.node()
    builder.finish()
    return builder, {f"x{i}": rng.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}


def close(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    span = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * span, err_msg=what)


@pytest.mark.parametrize("seed", SEEDS)
def test_plans_agree(seed: int) -> None:
    builder, feeds = random_case(seed)
    names = [t.name for t in builder.main.outputs]
    if not names:
        return
    expected = linnet.Session(builder.graph, reference=True, threads=1).run(feeds, names)
    for options in ({"threads": 1}, {"threads": 3}, {"threads": 1, "isa_max": "scalar"}):
        session = linnet.Session(builder.graph, **options)  # type: ignore[arg-type]
        first = session.run(feeds, names)
        again = session.run(feeds, names)
        for name, value in expected.items():
            close(first[name], value, f"{name} {options}")
            np.testing.assert_array_equal(first[name], again[name], err_msg=f"{name}: a second run differs")


def reached(wanted: list[str], fed: set[str], function: Function) -> set[str]:
    """Those of the fed tensors that the wanted ones are computed from, or that are wanted themselves."""
    makers = {output.name: node for node in function.nodes for output in node.outputs}
    seen: set[str] = set()
    left = list(wanted)
    while left:
        name = left.pop()
        if name not in seen and name not in fed and name in makers:
            left += [x.name for x in makers[name].inputs if x is not None]
        seen.add(name)
    return seen & fed


@pytest.mark.parametrize("seed", range(200, 260))
def test_plans_agree_wherever_they_start_and_end(seed: int) -> None:
    """Some of the tensors are fed, with their values, and some are fetched; and the same on bound memory, where no two
    outputs may share a buffer."""
    builder, feeds = random_case(seed)
    session = linnet.Session(builder.graph, threads=1)
    names = [t.name for t in builder.tensors if t.name not in feeds and session.model.tensor(t.name) is not None]
    if not names:
        return
    values = linnet.Session(builder.graph, reference=True, threads=1).run(feeds, names)
    for _ in range(3):
        cut = {str(name): values[name] for name in builder.rng.choice(names, 2)}
        wanted = sorted({str(name) for name in builder.rng.choice(names, 4)})
        read = reached(wanted, set(cut), builder.main)
        if read != set(cut):
            with pytest.raises(linnet.UsageError, match="no fetched tensor needs this fed tensor"):
                session.run(feeds | cut, wanted)
        cut = {name: cut[name] for name in read}
        found = session.run(feeds | cut, wanted)
        bound = {name: session.empty(name, value.shape) for name, value in (feeds | cut).items()}
        for name, value in (feeds | cut).items():
            bound[name][:] = value
        outputs = session.bind(bound, wanted).run()
        for name in wanted:
            close(found[name], values[name], f"{name}, fed {list(cut)}")
            np.testing.assert_array_equal(outputs[name], found[name], err_msg=f"{name}, fed {list(cut)}, bound")
        for name, value in (feeds | cut).items():
            np.testing.assert_array_equal(bound[name], value, err_msg=f"{name} was overwritten")
