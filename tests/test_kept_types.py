"""Passes keep the type of every value that they replace. Patterns that passes recognize are built with constants of all
ranks, also of more ranks than their operands, and compared with ONNX's reference evaluator. A pass that changes a type is
undone for users, and an error in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
from onnx import helper as h
from onnx import numpy_helper as nh
from onnx.reference import ReferenceEvaluator

import linnet
from linnet.ir.function import Function
from linnet.passes import kept_types

Array = np.ndarray
KINDS = {np.float32: onnx.TensorProto.FLOAT, np.float64: onnx.TensorProto.DOUBLE}


class Net:
    """Nodes and constants of one model, and the name of the newest value."""

    def __init__(self, dtype: type = np.float32) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.dtype = dtype
        self.rng = np.random.default_rng(1)

    def op(self, kind: str, *inputs: str | Array | float, **attributes: object) -> str:
        names = []
        for value in inputs:
            if not isinstance(value, str):
                name = f"c{len(self.constants)}"
                value = np.asarray(value)
                self.constants[name] = value if value.dtype.kind == "i" else value.astype(self.dtype)
                value = name
            names.append(value)
        self.nodes.append(h.make_node(kind, names, [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def weights(self, *shape: int) -> Array:
        return np.asarray(self.rng.uniform(0.5, 1.5, shape))

    def model(self, shape: tuple[int | str, ...], output: str) -> onnx.ModelProto:
        kind = KINDS[self.dtype]
        graph = h.make_graph(
            self.nodes, "g", [h.make_tensor_value_info("x", kind, shape)], [h.make_tensor_value_info(output, kind, None)],
            [nh.from_array(value, name) for name, value in self.constants.items()],
        )  # fmt: skip
        return h.make_model(graph, opset_imports=[h.make_opsetid("", 15)], ir_version=8)


def affine(net: Net, y: str, width: int, lead: tuple[int, ...], tail: int = 0) -> str:
    """A scale and an offset, each with `lead` before the channels and `tail` ones after them."""
    y = net.op("Mul", y, net.weights(*lead, width, *[1] * tail))
    return net.op("Add", y, net.weights(*lead, width, *[1] * tail))


def layer_norm(net: Net, lead: tuple[int, ...]) -> str:
    mean = net.op("ReduceMean", "x", axes=[-1])
    centred = net.op("Sub", "x", mean)
    variance = net.op("ReduceMean", net.op("Mul", centred, centred), axes=[-1])
    deviation = net.op("Sqrt", net.op("Add", variance, 1e-5))
    return affine(net, net.op("Div", centred, deviation), 4, lead)


def layer_norm_of_moments(net: Net, lead: tuple[int, ...]) -> str:
    """The form of the Keras exporter, with its scale before the product."""
    mean = net.op("ReduceMean", "x", axes=[-1])
    square = net.op("ReduceMean", net.op("Mul", "x", "x"), axes=[-1])
    variance = net.op("Sub", square, net.op("Mul", mean, mean))
    inverse = net.op("Reciprocal", net.op("Sqrt", net.op("Add", variance, 1e-3)))
    factor = net.op("Mul", inverse, net.weights(*lead, 4))
    y = net.op("Mul", net.op("Sub", "x", mean), factor)
    return net.op("Add", y, net.weights(*lead, 4))


def rms_norm(net: Net, lead: tuple[int, ...]) -> str:
    square = net.op("ReduceMean", net.op("Mul", "x", "x"), axes=[-1])
    return affine(net, net.op("Div", "x", net.op("Sqrt", net.op("Add", square, 1e-5))), 4, lead)


def gelu(net: Net, lead: tuple[int, ...]) -> str:
    half = net.op("Mul", "x", net.weights(*lead, 1))
    cubic = net.op("Add", "x", net.op("Mul", net.op("Pow", "x", 3.0), np.full([*lead, 1], 0.044715)))
    return net.op("Mul", half, net.op("Add", net.op("Tanh", net.op("Mul", cubic, 0.79788)), 1.0))


def softmax(net: Net, lead: tuple[int, ...]) -> str:
    shifted = net.op("Sub", "x", net.op("ReduceMax", "x", axes=[-1]))
    e = net.op("Exp", shifted)
    return affine(net, net.op("Div", e, net.op("ReduceSum", e, np.array([-1]))), 4, lead)


def product(net: Net, lead: tuple[int, ...]) -> str:
    return affine(net, net.op("MatMul", "x", net.weights(4, 3)), 3, lead)


def product_of_one_column(net: Net, lead: tuple[int, ...]) -> str:
    """The constants broadcast the product to more columns."""
    return affine(net, net.op("MatMul", "x", net.weights(4, 1)), 5, lead)


def gemm(net: Net, lead: tuple[int, ...]) -> str:
    y = net.op("Gemm", "x", net.weights(3, 4), net.weights(1, 3), transB=1)
    return affine(net, y, 3, lead)


def convolution(net: Net, lead: tuple[int, ...]) -> str:
    image = net.op("Reshape", "x", np.array([-1, 1, 4, 4]))
    return affine(net, net.op("Conv", image, net.weights(3, 1, 1, 1)), 3, lead, 2)


def convolution_of_one_channel(net: Net, lead: tuple[int, ...]) -> str:
    image = net.op("Reshape", "x", np.array([-1, 1, 4, 4]))
    return affine(net, net.op("Conv", image, net.weights(1, 1, 3, 3)), 5, lead, 2)


def convolution_transposed(net: Net, lead: tuple[int, ...]) -> str:
    image = net.op("Reshape", "x", np.array([-1, 1, 4, 4]))
    return affine(net, net.op("ConvTranspose", image, net.weights(1, 3, 2, 2)), 3, lead, 2)


def batch_norm(net: Net, lead: tuple[int, ...]) -> str:
    y = net.op("BatchNormalization", "x", *(net.weights(4) for _ in range(4)))
    return affine(net, y, 4, lead)


def folded_batch_norm(net: Net, lead: tuple[int, ...]) -> str:
    y = affine(net, net.op("MatMul", "x", net.weights(4, 3)), 3, lead)
    return net.op("BatchNormalization", net.op("Reshape", y, np.array([-1, 3])), *(net.weights(3) for _ in range(4)))


def identities(net: Net, lead: tuple[int, ...]) -> str:
    """Ops that change no number, but perhaps the rank."""
    y = net.op("Expand", "x", np.array([*lead, 1, 4], np.int64))
    y = net.op("Concat", y, axis=-1)
    return net.op("Mul", y, np.ones([*lead, 1, 1]))


def attention(net: Net, lead: tuple[int, ...]) -> str:
    scores = net.op("MatMul", "x", net.op("Transpose", "x", perm=[1, 0]))
    scores = net.op("Mul", scores, np.full([*lead, 1], 0.5))
    return net.op("MatMul", net.op("Softmax", scores, axis=-1), "x")


PATTERNS: list[Callable[[Net, tuple[int, ...]], str]] = [
    layer_norm, layer_norm_of_moments, rms_norm, gelu, softmax, product, product_of_one_column, gemm, convolution,
    convolution_of_one_channel, convolution_transposed, batch_norm, folded_batch_norm, identities, attention,
]  # fmt: skip


@pytest.mark.parametrize("rows", [4, "n"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_keep_rank_and_dtype(pattern: Callable[..., str], dtype: type, rows: int | str) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (4, 4)).astype(dtype)
    for lead in ((), (1,), (1, 1), (1, 1, 1)):
        net = Net(dtype)
        model = net.model((rows, 4), pattern(net, lead))
        name = model.graph.output[0].name
        want = ReferenceEvaluator(model).run(None, {"x": x})[0]
        for optimize in (False, True):
            got = linnet.Session(linnet.from_onnx(model, optimize=optimize)).run({"x": x})[name]
            assert got.shape == want.shape and got.dtype == want.dtype, lead
            np.testing.assert_allclose(got, want, 1e-4, 1e-5)


def test_layer_norm_with_a_scale_of_more_ranks_is_still_found() -> None:
    net = Net()
    graph = linnet.from_onnx(net.model((4, 4), layer_norm(net, (1,))))
    assert [n.op for f in graph.functions for n in f.nodes] == ["layer_norm"]
    net = Net()
    graph = linnet.from_onnx(net.model((4, 4), layer_norm(net, (1, 1))))
    assert [n.op for f in graph.functions for n in f.nodes] == ["layer_norm", "map"]


def drop_rank(function: Function) -> bool:
    """A faulty pass: readers of an output of shape [1, 4] get a value of shape [4]."""
    table = {t: function.constant(np.ones(4, np.float32)) for n in function.nodes for t in n.outputs[:1]}
    function.graph.folded += 16 * len(table)
    for node in function.nodes:
        node.inputs = [None if t is None else table.get(t, t) for t in node.inputs]
    return True


def change_dtype(function: Function) -> bool:
    """A faulty pass: an output gets another dtype."""
    function.outputs = [function.constant(np.ones((1, 4), np.float64))]
    return True


def rename_and_enlarge(function: Function) -> bool:
    """A faulty pass: it changes a size, a name, an attribute and the list of nodes."""
    function.outputs[0].shape = (2, 4)
    function.outputs[0].name = function.unique("other")
    function.nodes[0].attributes["extra"] = 1
    function.nodes.reverse()
    return True


def change_an_attribute(function: Function) -> bool:
    """A faulty pass: a node computes another shape than its output has, because an attribute changes in place."""
    function.nodes[0].attributes["perm"] = (0, 1)
    return True


@pytest.fixture
def lenient() -> Iterator[None]:
    kept_types.strict = False
    yield
    kept_types.strict = True


def small() -> Function:
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 1))
    y = linnet.ops.softmax(linnet.ops.softmax(linnet.ops.transpose(x), axis=1), axis=1)
    graph.signature("infer", {"x": x}, {"y": y})
    return graph.signatures["infer"].function


FAULTS = [drop_rank, change_dtype, rename_and_enlarge, change_an_attribute]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_pass_that_changes_a_type_is_an_error_in_tests(fault: Callable[[Function], bool]) -> None:
    with pytest.raises(linnet.GraphError, match=f"the pass {fault.__name__} changes the type of"):
        kept_types.keeping_types(small(), fault)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_pass_that_changes_a_type_is_undone(fault: Callable[[Function], bool], lenient: None) -> None:
    function = small()

    def state() -> list[object]:
        nodes = [(id(n), n.op, list(map(id, n.inputs)), dict(n.attributes)) for n in function.nodes]
        tensors = [(id(t), t.name, t.dtype, t.shape) for t in function.tensors()]
        counted = [set(function._names), dict(function._counts), function.graph.folded]
        return [nodes, tensors, list(map(id, function.outputs)), *counted]

    before = state()
    assert kept_types.keeping_types(function, fault) is False
    assert state() == before
