"""Random ONNX graphs against ONNX Runtime: shapes, layouts, views, fusion and shared memory in mixtures nobody thought of.
Every graph has a seed; a failure names it, and `_model(seed)` builds it again."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet.session import isa_names

SEEDS_PER_CASE, CASES, LARGEST = 15, 10, 20_000
UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "LeakyRelu", "HardSwish", "Softplus", "Identity")
BINARY = ("Add", "Mul", "Sub", "Max", "Min")
Shape = tuple[int, ...]


def _broadcast(a: Shape, b: Shape) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False))


class _Builder:
    """Grows a graph one random op at a time; every method returns without an op where no shape fits."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shapes: dict[str, Shape] = {}
        self.read: set[str] = set()

    def weights(self, *shape: int) -> str:
        return self.constant(self.random.normal(0.0, 0.5, shape).astype(np.float32))

    def constant(self, array: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return str(self.constants[-1].name)

    def add(self, op: str, inputs: list[str], *shapes: Shape, **attributes: Any) -> str:
        names = [f"t{len(self.shapes) + i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        self.read.update(inputs)
        self.shapes.update({name: tuple(map(int, shape)) for name, shape in zip(names, shapes, strict=True)})
        return names[0]

    def integer(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def choice(self, options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]

    def pick(self, *ranks: int) -> tuple[str, Shape]:
        """A tensor, rather a late one, of one of the ranks (any when none is given); ("", ()) when there is none."""
        found = [name for name, shape in self.shapes.items() if not ranks or len(shape) in ranks]
        if not found:
            return "", ()
        name = self.choice(found[-3:] if self.random.random() < 0.6 else found)
        return name, self.shapes[name]

    def unary(self) -> None:
        x, shape = self.pick()
        self.add(self.choice(UNARY), [x], shape)

    def binary(self) -> None:
        x, shape = self.pick()
        if self.random.random() < 0.5:
            dims = [d if self.random.random() < 0.5 else 1 for d in shape][self.integer(0, len(shape)) :]
            y = self.weights(*dims)
        else:
            fitting = [name for name, other in self.shapes.items() if _broadcast(shape, other)]
            y = self.choice(fitting)
            shape = np.broadcast_shapes(shape, self.shapes[y])
        if np.prod(shape) <= LARGEST:
            self.add(self.choice(BINARY), [x, y] if self.random.random() < 0.5 else [y, x], shape)

    def _window(self, shape: Shape, dilated: bool) -> tuple[dict[str, Any], Shape] | None:
        kernel = [self.integer(1, min(3, d)) for d in shape[2:]]
        strides = [self.integer(1, 2) for _ in kernel]
        dilations = [self.integer(1, 2) if dilated else 1 for _ in kernel]
        before, after = ([self.integer(0, k - 1) for k in kernel] for _ in range(2))
        sizes = tuple(
            (d + a + b - (k - 1) * q - 1) // s + 1
            for d, a, b, k, q, s in zip(shape[2:], before, after, kernel, dilations, strides, strict=True)
        )
        attributes = {"kernel_shape": kernel, "strides": strides, "pads": before + after}
        if dilated:
            attributes["dilations"] = dilations
        return (attributes, sizes) if min(sizes) > 0 else None

    def conv(self) -> None:
        x, shape = self.pick(3, 4)
        window = self._window(shape, True) if x else None
        if window is None:
            return
        group = self.choice([g for g in range(1, shape[1] + 1) if shape[1] % g == 0])
        channels = group * self.integer(1, 4)
        inputs = [x, self.weights(channels, shape[1] // group, *window[0]["kernel_shape"])]
        if self.random.random() < 0.6:
            inputs.append(self.weights(channels))
        self.add("Conv", inputs, (shape[0], channels, *window[1]), group=group, **window[0])

    def pool(self) -> None:
        x, shape = self.pick(3, 4)
        window = self._window(shape, False) if x else None
        if window is not None:
            self.add(self.choice(("MaxPool", "AveragePool")), [x], (*shape[:2], *window[1]), **window[0])

    def matmul(self) -> None:
        x, shape = self.pick(2, 3, 4)
        if x:
            columns = self.integer(1, 20)
            y = self.add("MatMul", [x, self.weights(shape[-1], columns)], (*shape[:-1], columns))
            if self.random.random() < 0.5:
                self.add("Add", [y, self.weights(columns)], self.shapes[y])

    def concat(self) -> None:
        x, shape = self.pick(1, 2, 3, 4)
        if not x:
            return
        axis = self.integer(0, len(shape) - 1)
        cut = [
            n
            for n, s in self.shapes.items()
            if len(s) == len(shape) and s[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :]
        ]
        parts = [x, *(self.choice(cut) for _ in range(self.integer(1, 2)))]
        total = sum(self.shapes[part][axis] for part in parts)
        if np.prod(shape) // shape[axis] * total <= LARGEST:
            self.add("Concat", parts, (*shape[:axis], total, *shape[axis + 1 :]), axis=axis)

    def transpose(self) -> None:
        x, shape = self.pick(2, 3, 4)
        if x:
            order = [int(i) for i in self.random.permutation(len(shape))]
            self.add("Transpose", [x], tuple(shape[i] for i in order), perm=order)

    def reshape(self) -> None:
        x, shape = self.pick()
        rest, dims = int(np.prod(shape)), []
        for _ in range(self.integer(0, 3)):
            dims.append(self.choice([d for d in range(1, min(rest, 32) + 1) if rest % d == 0]))
            rest //= dims[-1]
        dims.insert(self.integer(0, len(dims)), rest)
        self.add("Reshape", [x, self.constant(np.array(dims, np.int64))], tuple(dims))

    def split(self) -> None:
        x, shape = self.pick(1, 2, 3, 4)
        axis = self.integer(0, max(0, len(shape) - 1))
        if x and shape[axis] > 1:
            first = self.integer(1, shape[axis] - 1)
            sizes = [first, shape[axis] - first]
            halves = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
            self.add("Split", [x, self.constant(np.array(sizes, np.int64))], *halves, axis=axis)

    def slice(self) -> None:
        x, shape = self.pick(1, 2, 3, 4)
        axis = self.integer(0, max(0, len(shape) - 1))
        if x and shape[axis] > 1:
            start, step = self.integer(0, shape[axis] - 1), self.integer(1, 2)
            end = self.integer(start + 1, shape[axis])
            bounds = [self.constant(np.array([value], np.int64)) for value in (start, end, axis, step)]
            size = (end - start + step - 1) // step
            self.add("Slice", [x, *bounds], (*shape[:axis], size, *shape[axis + 1 :]))

    def reduce(self) -> None:
        x, shape = self.pick(1, 2, 3, 4)
        if x:
            axis, keep = self.integer(0, len(shape) - 1), self.integer(0, 1)
            kept = (*shape[:axis], *[1] * keep, *shape[axis + 1 :])
            axes = self.constant(np.array([axis], np.int64))
            self.add(self.choice(("ReduceMean", "ReduceMax", "ReduceSum")), [x, axes], kept, keepdims=keep)

    def softmax(self) -> None:
        x, shape = self.pick(1, 2, 3, 4)
        if x:
            self.add("Softmax", [x], shape, axis=self.integer(0, len(shape) - 1))

    def resize(self) -> None:
        x, shape = self.pick(4)
        if x:
            sizes = (*shape[:2], self.integer(1, 9), self.integer(1, 9))
            names = [x, "", "", self.constant(np.array(sizes, np.int64))]
            self.add("Resize", names, sizes, mode=self.choice(("nearest", "linear")))

    STEPS = (
        unary, unary, unary, binary, binary, binary, binary, conv, conv, conv, pool, matmul, matmul, concat, concat, transpose,
        transpose, reshape, reshape, split, slice, slice, reduce, softmax, resize,
    )  # fmt: skip


def _model(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    builder, feeds = _Builder(seed), {}
    for i, ranks in enumerate(((2, 3, 4, 4), (1, 4))[: builder.integer(1, 2)]):
        rank = builder.choice(ranks)
        shape = tuple(builder.integer(1, (40, 24, 14, 10)[rank - 1]) for _ in range(rank))
        builder.shapes[f"x{i}"] = shape
        feeds[f"x{i}"] = builder.random.normal(0.0, 1.0, shape).astype(np.float32)
    builder.unary()
    for _ in range(builder.integer(4, 16)):
        builder.choice(builder.STEPS)(builder)
    made = [name for name in builder.shapes if name not in feeds]
    outputs = [name for name in made if name not in builder.read or builder.random.random() < 0.12]

    def declared(names: Any) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, builder.shapes[name]) for name in names]

    graph = helper.make_graph(builder.nodes, "random", declared(feeds), declared(outputs), builder.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), feeds


def _expected(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in model.graph.output], session.run(None, feeds), strict=True))


@pytest.mark.parametrize("case", range(CASES))
def test_random_graphs_agree_with_onnx_runtime(case: int) -> None:
    for seed in range(case * SEEDS_PER_CASE, (case + 1) * SEEDS_PER_CASE):
        model, feeds = _model(seed)
        expected = _expected(model, feeds)
        graph = linnet.from_onnx(model)
        for options in ({"threads": 1}, {"threads": 2}, {"isa_max": "scalar"}):
            session = linnet.Session(graph, **options)
            session.run(feeds)
            found = session.run(feeds)  # again: nothing of the first run may be needed or in the way
            assert set(found) == set(expected), seed
            for name, value in expected.items():
                assert found[name].shape == value.shape, (seed, options, name)
                # 1e-3: what cancels is as large as the rounding of the values it came from.
                scale = max(float(np.abs(value).max(initial=0.0)), 1e-3)
                np.testing.assert_allclose(
                    found[name], value, 0, 1e-4 * scale, err_msg=f"seed {seed}, {options}, {name}"
                )


@pytest.mark.parametrize("dtype", ["i8", "i16"])
def test_random_quantized_graphs_give_the_same_bits_on_every_isa(dtype: str) -> None:
    stored = 0
    for seed in range(40):
        model, feeds = _model(seed)
        graph = linnet.quantize(linnet.from_onnx(model), [feeds], dtype=dtype)
        stored += sum(t.dtype == dtype for node in graph.signatures["infer"].function.nodes for t in node.outputs)
        plain = linnet.Session(graph, threads=1, isa_max="scalar").run(feeds)
        for isa in isa_names()[1:]:
            for name, value in linnet.Session(graph, threads=2, isa_max=isa).run(feeds).items():
                np.testing.assert_array_equal(value, plain[name], f"seed {seed}, {isa}, {name}")
    assert stored > 40  # else the graphs hold nothing to compare
