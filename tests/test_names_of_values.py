"""A name stands for one value of the source model. Random networks whose nodes are unnamed, named like their outputs or
named on their own are run with every value fetched, and with every value fed. Each result is that of ONNX's reference
evaluator, or the name is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from onnx.reference import ReferenceEvaluator

import linnet
from tests.native import build

Array = np.ndarray
NAMINGS = ["unnamed", "like outputs", "own"]


class Random:
    """A random network of products, affine ops, norms and activations over [2, 4, 5, 5], some of them equal."""

    def __init__(self, seed: int, naming: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.naming, self.nodes, self.constants = naming, list[onnx.NodeProto](), list[onnx.TensorProto]()
        self.values = ["x"]
        # names like those that linnet gives to values of its own
        self.free = ["conv", "map", "matmul", "copy", "c0_1", "map_1", "x_1", "copy_1", "conv_1", "layer_norm"]
        for _ in range(int(self.rng.integers(5, 12))):
            self.add()

    def constant(self, *shape: int) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(nh.from_array(self.rng.uniform(0.5, 1.5, shape).astype(np.float32), name))
        return name

    def node(self, kind: str, inputs: list[str], **attributes: object) -> None:
        name = self.free.pop(0) if self.free and self.rng.random() < 0.3 else f"t{len(self.nodes)}"
        label = {"unnamed": "", "like outputs": name, "own": f"node {len(self.nodes)}"}[self.naming]
        self.nodes.append(h.make_node(kind, inputs, [name], label, **attributes))
        self.values.append(name)

    def add(self) -> None:
        recent = self.values[-1] if self.rng.random() < 0.75 else str(self.rng.choice(self.values))
        kind = self.rng.choice(
            ["Conv", "ConvTranspose", "MatMul", "Mul", "Add", "Sub", "Div", "BatchNormalization", "Relu", "Relu", "Sigmoid",
             "Identity", "Transpose", "Sum", "Concat", "Twice", "LayerNormalization"]
        )  # fmt: skip
        if kind in ("Conv", "ConvTranspose"):
            inputs = [recent, self.constant(4, 4, 1, 1)] + ([self.constant(4)] if self.rng.random() < 0.5 else [])
            self.node(kind, inputs)
        elif kind == "MatMul":
            self.node(kind, [recent, self.constant(5, 5)])
        elif kind in ("Mul", "Add", "Sub", "Div"):
            shape = [(4, 1, 1), (5,), (1, 4, 1, 1), ()][self.rng.integers(4)]
            pair = [recent, self.constant(*shape)]
            self.node(kind, pair[::-1] if self.rng.random() < 0.3 else pair)
        elif kind == "BatchNormalization":
            self.node(kind, [recent, *(self.constant(4) for _ in range(4))])
        elif kind == "LayerNormalization":
            self.layer_norm(recent)
        elif kind == "Transpose":
            self.node(kind, [recent], perm=[0, 1, 3, 2])
        elif kind == "Sum":
            self.node(kind, [recent, str(self.rng.choice(self.values))])
        elif kind == "Concat":
            self.node(kind, [recent], axis=1)
        elif kind == "Twice":  # equal values with two names
            self.node("Tanh", [recent])
            self.node("Tanh", [recent])
            self.node("Sum", self.values[-2:])
        else:
            self.node(kind, [recent])

    def layer_norm(self, x: str) -> None:
        self.constants.append(nh.from_array(np.float32(1e-3), epsilon := f"c{len(self.constants)}"))
        self.node("ReduceMean", [x], axes=[-1])
        self.node("Sub", [x, mean := self.values[-1]])
        self.node("Mul", [centred := self.values[-1], centred])
        self.node("ReduceMean", [self.values[-1]], axes=[-1])
        self.node("Add", [self.values[-1], epsilon])
        self.node("Sqrt", [self.values[-1]])
        self.node("Div", [centred, self.values[-1]])
        if self.rng.random() < 0.5:  # the mean is also read outside the norm
            self.node("Sum", [self.values[-1], mean])

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        infos = [h.make_tensor_value_info(name, T.FLOAT, None) for name in outputs]
        graph = h.make_graph(
            self.nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, [2, 4, 5, 5])], infos, self.constants
        )
        return h.make_model(graph, opset_imports=[h.make_opsetid("", 15)], ir_version=8)

    def behind(self, fed: str) -> list[onnx.NodeProto]:
        """The nodes, without the one that makes the fed value."""
        return [node for node in self.nodes if fed not in node.output]


def values_of(net: Random, x: Array, fed: tuple[str, Array] | None = None) -> dict[str, Array]:
    """All values of the model, from the reference evaluator."""
    model = net.model(net.values[1:])
    if fed is not None:
        del model.graph.node[:]
        model.graph.node.extend(net.behind(fed[0]))
        model.graph.initializer.append(nh.from_array(fed[1], fed[0]))
    return dict(zip(net.values[1:], ReferenceEvaluator(model).run(None, {"x": x}), strict=True))


def close(got: Array, want: Array) -> bool:
    limit = 1e-3 * max(1.0, float(np.abs(np.nan_to_num(want, nan=0)).max()))
    return got.shape == want.shape and bool(np.allclose(got, want, 1e-3, limit, equal_nan=True))


def refused(error: linnet.Error) -> bool:
    return error.code == 102 or "stands for several equal" in str(error) or "constant cannot be fed" in str(error)


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("seed", range(12))
def test_fetches_and_feeds_of_random_networks(seed: int, naming: str) -> None:
    net = Random(seed, naming)
    x = np.random.default_rng(seed).uniform(-1, 1, (2, 4, 5, 5)).astype(np.float32)
    last, want = net.values[-1], values_of(net, x)
    session = linnet.Session(linnet.from_onnx(net.model([last])))
    answered = 0
    for node in net.nodes:
        name = node.output[0]
        for asked in {name, node.name} - {""}:
            try:
                got = session.run({"x": x}, [asked])[asked]
            except linnet.Error as error:
                assert refused(error), error
                continue
            answered += 1
            assert close(got, want[name]), f"fetch of {asked} is not the value of {name}"
        fed = np.random.default_rng(seed).uniform(-1, 1, want[name].shape).astype(np.float32)
        for asked in {name, node.name} - {""}:
            try:
                got = session.run({"x": x, asked: fed}, [last])[last]
            except linnet.Error as error:
                assert refused(error), error
                continue
            assert close(got, values_of(net, x, (name, fed))[last]), f"feed of {asked}"
    assert answered > 0


def chain(naming: str = "unnamed") -> onnx.ModelProto:
    """A product, and the scale and offset that are folded into its weights."""
    rng = np.random.default_rng(0)
    parts = [
        nh.from_array(rng.uniform(0.5, 1.5, shape).astype(np.float32), name)
        for name, shape in (("w", (4, 3)), ("s", (3,)), ("b", (3,)))
    ]
    labels = {"unnamed": ["", "", "", ""], "own": ["product", "scale", "offset", "last"]}[naming]
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["t4"], labels[0]), h.make_node("Mul", ["t4", "s"], ["t6"], labels[1]),
        h.make_node("Add", ["t6", "b"], ["t8"], labels[2]), h.make_node("Sigmoid", ["t8"], ["y"], labels[3]),
    ]  # fmt: skip
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, [2, 4])],
        [h.make_tensor_value_info("y", T.FLOAT, [2, 3])],
        parts,
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)


def test_the_error_says_into_which_step_a_value_went() -> None:
    session = linnet.Session(linnet.from_onnx(chain()))
    x = np.ones((2, 4), np.float32)
    assert [step.name for step in session.steps] == ["t4"]  # the step keeps its name
    for name in ("t4", "t6"):
        for feeds, fetches in (({"x": x}, [name]), ({name: np.ones((2, 3), np.float32)}, ["y"])):
            with pytest.raises(linnet.UsageError, match="of which it has become a part") as caught:
                session.run(feeds, fetches)
            assert caught.value.code == 102 and "t4" in str(caught.value)
    with pytest.raises(linnet.UsageError, match="'t4'; expected t8, the result of step 't4', of which"):
        session.run({"x": x}, ["t4"])
    own = linnet.Session(linnet.from_onnx(chain("own")))
    np.testing.assert_array_equal(own.run({"x": x}, ["t8"])["t8"], session.run({"x": x}, ["t8"])["t8"])
    for name in ("product", "scale", "offset"):
        with pytest.raises(linnet.UsageError, match="of which it has become a part"):
            own.run({"x": x}, [name])


def test_values_without_optimization_have_all_names() -> None:
    session = linnet.Session(linnet.from_onnx(chain(), optimize=False))
    x = np.random.default_rng(1).uniform(-1, 1, (2, 4)).astype(np.float32)
    for node in chain().graph.node:
        want = ReferenceEvaluator(part(chain(), node.output[0])).run(None, {"x": x})[0]
        np.testing.assert_allclose(session.run({"x": x}, [node.output[0]])[node.output[0]], want, 1e-5, 1e-6)


def part(model: onnx.ModelProto, output: str) -> onnx.ModelProto:
    del model.graph.output[:]
    model.graph.output.append(h.make_tensor_value_info(output, T.FLOAT, None))
    return model


def ran(command: list[object]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def test_the_tools_refuse_such_names(tmp_path: Path) -> None:
    linnet.from_onnx(chain()).save(tmp_path / "m.lnt")
    done = ran([build("release") / "linnet-run", tmp_path / "m.lnt", "--random", "--fetch", "t4"])
    assert done.returncode and "it has become a part of step 't4', whose result is 't8'" in done.stderr
    done = ran([build("release") / "linnet-run", tmp_path / "m.lnt", "--random", "--fetch", "t8"])
    assert done.returncode == 0 and done.stdout.startswith("t8: f32 [2, 3]")


def quantized() -> onnx.ModelProto:
    """x is quantized, pooled and multiplied. The pool runs on integers."""
    w = nh.from_array(np.random.default_rng(0).integers(-9, 9, (4, 3)).astype(np.int8), "w")
    parts = [
        w,
        nh.from_array(np.float32(0.02), "s"),
        nh.from_array(np.int8(3), "z"),
        nh.from_array(np.float32(0.1), "r"),
    ]
    nodes = [
        h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), h.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        h.make_node("MaxPool", ["d"], ["p"], kernel_shape=[2, 2]),
        h.make_node("QuantizeLinear", ["p", "s", "z"], ["pq"]), h.make_node("DequantizeLinear", ["pq", "s", "z"], ["pd"]),
        h.make_node("DequantizeLinear", ["w", "s"], ["v"]), h.make_node("MatMul", ["pd", "v"], ["m"]),
        h.make_node("QuantizeLinear", ["m", "r", "z"], ["mq"]), h.make_node("DequantizeLinear", ["mq", "r", "z"], ["y"]),
    ]  # fmt: skip
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, [1, 2, 6, 5])],
        [h.make_tensor_value_info("y", T.FLOAT, None)],
        parts,
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 19)], ir_version=9)


def test_values_of_quantized_models_are_their_own() -> None:
    """A pool on integers has no real numbers, and a product that stores integers has none before rounding."""
    session = linnet.Session(linnet.from_onnx(quantized()))
    x = np.random.default_rng(1).uniform(-1, 1, (1, 2, 6, 5)).astype(np.float32)
    right = []
    for name in ("q", "d", "p", "pq", "pd", "m", "mq", "y"):
        want = ReferenceEvaluator(part(quantized(), name)).run(None, {"x": x})[0]
        try:
            got = session.run({"x": x}, [name])[name]
        except linnet.Error as error:
            assert refused(error), error
            continue
        right.append(name)
        assert got.dtype == want.dtype and np.allclose(got.astype(float), want.astype(float), 1e-5, 1e-5), name
    assert {"q", "mq", "y"} <= set(right)


def test_layers_of_a_graph_built_in_python_are_refused_too() -> None:
    """freeze merges a named batch norm into a named convolution."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 3, 4, 4))
    w = graph.constant(np.random.default_rng(0).uniform(0.5, 1, (2, 3, 1, 1)).astype(np.float32))
    y = linnet.ops.conv(x, w, name="first")
    four = [graph.constant(np.array([1.5, 2.5], np.float32)) for _ in range(4)]
    graph.signature("infer", {"x": x}, {"y": linnet.ops.relu(linnet.ops.batch_norm(y, *four, name="second"))})
    session, feeds = linnet.Session(linnet.passes.freeze(graph)), {"x": np.ones((1, 3, 4, 4), np.float32)}
    want = linnet.Session(graph).run(feeds, ["first", "second"])
    np.testing.assert_allclose(session.run(feeds, ["second"])["second"], want["second"], 1e-5)
    with pytest.raises(linnet.UsageError, match="'first'; expected second, the result of step 'first'"):
        session.run(feeds, ["first"])


def fetched_and_fed(nodes: list[onnx.NodeProto], inputs: dict[str, Array], name: str) -> tuple[bool, bool]:
    """Compares a fetch of `name` and y after a feed of it with the reference. Returns which of the two the session
    accepts."""
    infos = [h.make_tensor_value_info(n, T.FLOAT, a.shape) for n, a in inputs.items()]
    model = h.make_model(
        h.make_graph(nodes, "g", infos, [h.make_tensor_value_info("y", T.FLOAT, None)]),
        opset_imports=[h.make_opsetid("", 15)], ir_version=8,
    )  # fmt: skip
    session = linnet.Session(linnet.from_onnx(model))
    accepted = [True, True]
    want = ReferenceEvaluator(part(onnx.ModelProto.FromString(model.SerializeToString()), name)).run(None, inputs)[0]
    try:
        assert close(session.run(inputs, [name])[name], want)
    except linnet.Error as error:
        assert refused(error), error
        accepted[0] = False
    value = np.random.default_rng(5).uniform(-1, 1, want.shape).astype(np.float32)
    rest = [node for node in model.graph.node if name not in node.output]
    del model.graph.node[:]
    model.graph.node.extend(rest)
    model.graph.initializer.append(nh.from_array(value, name))
    try:
        got = session.run({**inputs, name: value}, ["y"])["y"]
        assert close(got, ReferenceEvaluator(model).run(None, inputs)[0])
    except linnet.Error as error:
        assert refused(error), error
        accepted[1] = False
    return accepted[0], accepted[1]


def test_one_of_two_equal_values_cannot_be_fed() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3)).astype(np.float32)
    nodes = [
        h.make_node("Softmax", ["x"], ["a"]), h.make_node("Softmax", ["x"], ["b"]),
        h.make_node("Transpose", ["a"], ["c"]), h.make_node("MatMul", ["b", "c"], ["d"]), h.make_node("Relu", ["d"], ["y"]),
    ]  # fmt: skip
    assert fetched_and_fed(nodes, {"x": x}, "a") == (True, False)
    assert not fetched_and_fed(nodes, {"x": x}, "b")[1]
    assert fetched_and_fed(nodes, {"x": x}, "d") == (True, True)


@pytest.mark.parametrize("output", ["d", "v", "s"])
def test_outputs_inside_a_layer_norm_are_fetched_and_fed(output: str) -> None:
    """Nothing else reads the value, but it is an output, so the norm stays what it is in the source."""
    rng = np.random.default_rng(1)
    x, value = (rng.uniform(-1, 1, (3, 4)).astype(np.float32) for _ in range(2))
    nodes = [
        h.make_node("ReduceMean", ["x"], ["m"], axes=[-1]), h.make_node("Sub", ["x", "m"], ["d"]),
        h.make_node("Mul", ["d", "d"], ["p"]), h.make_node("ReduceMean", ["p"], ["v"], axes=[-1]),
        h.make_node("Add", ["v", "epsilon"], ["e"]), h.make_node("Sqrt", ["e"], ["s"]), h.make_node("Div", ["d", "s"], ["y"]),
    ]  # fmt: skip
    infos = [h.make_tensor_value_info(name, T.FLOAT, [3, 4 if name in "xyd" else 1]) for name in ("x", "y", output)]
    epsilon = [nh.from_array(np.array(1e-5, np.float32), "epsilon")]
    model = h.make_model(
        h.make_graph(nodes, "g", infos[:1], infos[1:], epsilon), opset_imports=[h.make_opsetid("", 15)], ir_version=8
    )
    session = linnet.Session(linnet.from_onnx(model))
    want = dict(zip(("y", output), ReferenceEvaluator(model).run(None, {"x": x}), strict=True))
    assert all(close(found, want[name]) for name, found in session.run({"x": x}).items())
    given = value if output == "d" else np.abs(value[:, :1])
    centred = given if output == "d" else x - x.mean(1, keepdims=True)
    square = given if output == "v" else np.square(centred).mean(1, keepdims=True)
    expected = centred / (given if output == "s" else np.sqrt(square + 1e-5))
    assert close(session.run({"x": x, output: given}, ["y"])["y"], expected)


@pytest.mark.parametrize("name", ["matmul", "map", "copy", "gemm_1", "matmul_1"])
def test_values_keep_names_that_linnet_gives_to_values_of_its_own(name: str) -> None:
    """Gemm with a factor makes a product of its own before the factor is applied."""
    rng = np.random.default_rng(0)
    inputs = {n: rng.uniform(-1, 1, (3, 3)).astype(np.float32) for n in ("x", "w")}
    nodes = [
        h.make_node("Gemm", ["x", "w"], ["t"], alpha=2.0, transA=1), h.make_node("Softmax", ["t"], ["u"]),
        h.make_node("Gemm", ["u", "w"], ["v"], alpha=3.0), h.make_node("MatMul", ["v", "w"], [name]),
        h.make_node("Softmax", [name], ["y"]),
    ]  # fmt: skip
    assert fetched_and_fed(nodes, inputs, name) == (True, True)
