"""The networks of `python -m tests.peers` as ONNX files with seeded random weights, made once and cached; their inputs, and
ONNX Runtime's results at f32, with which every engine's results are compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

from linnet._fetch import write_atomic
from tests.peers.environments import home

_REVISION = 1  # part of the cached files' names; increase it when a network changes
_IMAGE = (1, 3, 224, 224)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Network:
    """A network's name, its ONNX file and the shape of its only input. If int8, the file has quantized operands (QDQ), and
    `base` is the network at f32; otherwise `base` is None."""

    name: str
    onnx: Path
    shape: tuple[int, ...]
    base: Network | None = None

    @property
    def int8(self) -> bool:
        return self.base is not None

    def input(self) -> Path:
        """A .npy file: an image that was not used for calibration, or normal numbers."""
        from tests import nets

        def value() -> Array:
            (image,) = nets.inputs().values()
            return image if self.shape == _IMAGE else _normal(self.shape, 42)

        return _saved(self.base.name if self.base else self.name, "input", value)

    def reference(self) -> Path:
        """A .npy file: what ONNX Runtime computes at f32."""
        network = self.base or self

        def value() -> Array:
            import onnxruntime

            session = onnxruntime.InferenceSession(network.onnx, providers=["CPUExecutionProvider"])
            return session.run(None, {session.get_inputs()[0].name: np.load(network.input())})[0]

        return _saved(network.name, "reference", value)

    def samples(self, count: int = 16) -> Array:
        """Inputs for calibration, [count, *shape]."""
        from tests import nets

        if self.shape == _IMAGE:
            return nets.images(count, 77)[:, None]
        return np.stack([_normal(self.shape, 100 + i) for i in range(count)])


def folder(*parts: str) -> Path:
    """A folder below the peers' own, made if it is missing."""
    path = home().joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def network(name: str) -> Network:
    """The network of this name, from `NAMES`; the first call makes its file."""
    if name.endswith("_int8"):
        base = network(name.removesuffix("_int8"))
        return Network(name, _cached(name, lambda: _quantized(base)), base.shape, base)
    path, shape = _NETWORKS[name]
    return Network(name, path(), shape)


def of_model(name: str, model: onnx.ModelProto) -> Network:
    """A network of one's own, for tests: its file lies with the others."""
    dims = model.graph.input[0].type.tensor_type.shape.dim
    return Network(name, _cached(name, model.SerializeToString), tuple(dim.dim_value for dim in dims))


def _normal(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _cached(name: str, make: Callable[[], bytes]) -> Path:
    path = folder("networks") / f"{name}-r{_REVISION}.onnx"
    return path if path.is_file() else write_atomic(path, make())


def _saved(name: str, what: str, make: Callable[[], Array]) -> Path:
    path = folder("networks") / f"{name}-{what}-r{_REVISION}.npy"
    if not path.is_file():
        value = np.ascontiguousarray(make(), np.float32)
        header = folder("networks") / f".{name}-{what}.npy"
        np.save(header, value)
        header.replace(path)
    return path


# ---- int8 ----------------------------------------------------------------------------------------------------------


def _quantized(base: Network) -> bytes:
    """ONNX Runtime's static quantization: int8 weights per channel, u8 activations, minima and maxima of 16 samples."""
    import logging

    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    logging.getLogger().setLevel(logging.ERROR)
    given = onnx.load(base.onnx).graph.input[0].name

    class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter([{given: sample} for sample in base.samples()])

        def get_next(self) -> dict[str, Array] | None:
            return next(self.left, None)

    work = folder("networks", "work")
    ready, out = work / f"{base.name}.onnx", work / f"{base.name}-int8.onnx"
    quant_pre_process(base.onnx, ready, skip_symbolic_shape=True)
    quantization.quantize_static(
        ready, out, Samples(), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip
    found = out.read_bytes()
    ready.unlink()
    out.unlink()
    return found


# ---- networks that no other test has -------------------------------------------------------------------------------


class _Graph:
    """Emits ONNX nodes; weights are normal numbers of one generator."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def normal(self, *shape: int, scale: float) -> str:
        return self.constant(self.rng.standard_normal(shape, np.float32) * np.float32(scale))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        outputs = [name]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=f"{op}_{len(self.nodes)}", **attributes))
        return name

    def bytes(self, shape: tuple[int, ...]) -> bytes:
        """The checked model; input, output and hidden state have the same shape."""
        self.nodes[-1].output[0] = "output"
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("input", "output")]
        graph = helper.make_graph(self.nodes, "peers", infos[:1], infos[1:], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        data: bytes = model.SerializeToString()
        return data


def _lstm(steps: int = 50, units: int = 512) -> bytes:
    """One LSTM layer: `input` f32 [steps,1,units] -> `output`, the hidden state of each step."""
    g = _Graph(seed=50)
    weights = [g.normal(1, 4 * units, units, scale=1 / math.sqrt(units)) for _ in range(2)]
    y = g.node("LSTM", "input", *weights, g.normal(1, 8 * units, scale=0.05), hidden_size=units)
    g.node("Squeeze", y, g.constant([1], np.int64))
    return g.bytes((steps, 1, units))


def _encoder(layers: int = 6, width: int = 384, heads: int = 12, length: int = 128) -> bytes:
    """A transformer's encoder, norms after the sums, exact GELU: `input` f32 [1,length,width] -> `output` of the same shape."""
    g, x = _Graph(seed=384), "input"

    def linear(x: str, into: int, out: int) -> str:
        product = g.node("MatMul", x, g.normal(into, out, scale=1 / math.sqrt(into)))
        return g.node("Add", product, g.normal(out, scale=0.05))

    def norm(x: str) -> str:
        scale = g.constant(g.rng.uniform(0.8, 1.2, width))
        return g.node("LayerNormalization", x, scale, g.normal(width, scale=0.05), axis=-1, epsilon=1e-5)

    def split(x: str, order: list[int]) -> str:
        shape = g.constant([1, length, heads, width // heads], np.int64)
        return g.node("Transpose", g.node("Reshape", linear(x, width, width), shape), perm=order)

    for _ in range(layers):
        scores = g.node("MatMul", split(x, [0, 2, 1, 3]), split(x, [0, 2, 3, 1]))
        weights = g.node("Softmax", g.node("Mul", scores, g.constant(1 / math.sqrt(width // heads))), axis=-1)
        mixed = g.node("Transpose", g.node("MatMul", weights, split(x, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
        joined = g.node("Reshape", mixed, g.constant([1, length, width], np.int64))
        x = norm(g.node("Add", x, linear(joined, width, width)))
        h = linear(x, width, 4 * width)
        erf = g.node("Add", g.node("Erf", g.node("Div", h, g.constant(math.sqrt(2)))), g.constant(1))
        h = g.node("Mul", g.node("Mul", h, erf), g.constant(0.5))
        x = norm(g.node("Add", x, linear(h, 4 * width, width)))
    return g.bytes((1, length, width))


def _plain(name: str) -> Callable[[], Path]:
    def path() -> Path:
        from tests import nets

        return nets.NETS[name]()

    return path


def _light(name: str) -> Callable[[], Path]:
    def data() -> bytes:
        from tests import light_nets

        return _modern(onnx.load(light_nets.path(name)))

    return lambda: _cached(name, data)


def _modern(model: onnx.ModelProto) -> bytes:
    """The model at opset 17, with the names `input` and `output`: converters misread older ops, such as a softmax that
    flattens."""
    (given,), (result,) = model.graph.input, model.graph.output
    names = {given.name: "input", result.name: "output"}
    kept, same = [], dict[str, str]()
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = same.get(name, name)
        if node.op_type == "Dropout":  # does nothing
            same[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    for node in model.graph.node:
        for values in (node.input, node.output):
            for i, name in enumerate(values):
                values[i] = names.get(name, name)
    given.name, result.name = "input", "output"
    del model.graph.value_info[:]
    if model.opset_import[0].version < 17:
        model = version_converter.convert_version(model, 17)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


_NETWORKS: dict[str, tuple[Callable[[], Path], tuple[int, ...]]] = {
    "mobilenet_v2": (_plain("mobilenet_v2"), _IMAGE),
    "mobilenet_v3_small": (_light("mobilenet_v3_small"), _IMAGE),
    "efficientnet_b0": (_plain("efficientnet_b0"), _IMAGE),
    "squeezenet": (_light("squeezenet"), _IMAGE),
    "shufflenet": (_light("shufflenet"), _IMAGE),
    "resnet50": (_plain("resnet50"), _IMAGE),
    "alexnet": (_light("alexnet"), _IMAGE),
    "vgg19": (_light("vgg19"), _IMAGE),
    "densenet121": (_light("densenet121"), _IMAGE),
    "lstm": (lambda: _cached("lstm", _lstm), (50, 1, 512)),
    "encoder": (lambda: _cached("encoder", _encoder), (1, 128, 384)),
}
NAMES = (*_NETWORKS, "mobilenet_v2_int8", "resnet50_int8", "squeezenet_int8")
"""In the order of the tables."""
