"""Builds a random ONNX graph node by node. ONNX Runtime computes every node alone as soon as it is made.
So each graph is valid, all shapes are known, and nodes that are ill-conditioned or that ONNX Runtime refuses are left out."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, defs, helper, numpy_helper

Array = npt.NDArray[Any]
LARGEST = 6_000  # most elements of a tensor
# Relative error that one node may add: a few units in the last place, because kernels add in different orders.
EPSILON = {"float64": 1e-13, "float32": 1.5e-6, "float16": 2e-3}
WORST = {
    "float64": 1e-8,
    "float32": 2e-3,
    "float16": 6e-2,
}  # fraction of the range; nodes that amplify errors beyond it are left out
FLOATS = ("float32", "float16", "float64")
INTS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
ANY = (*FLOATS, *INTS, "bool")


def words(text: str) -> set[str]:
    return set(text.split())


# Ops whose result is an element of an operand, or is rounded in a way that all implementations share.
EXACT = words(
    "Abs And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil CenterCropPad Clip "
    "Compress Concat Constant ConstantOfShape DepthToSpace Dropout Equal Expand EyeLike Flatten Floor Gather "
    "GatherElements GatherND GlobalMaxPool Greater GreaterOrEqual Hardmax Identity IsInf IsNaN Less LessOrEqual Max "
    "MaxPool MaxUnpool Min Neg NonZero Not OneHot Or Pad Range ReduceMax ReduceMin Relu Reshape ReverseSequence Round "
    "Scatter ScatterElements ScatterND Shape Sign Size Slice SpaceToDepth Split Squeeze TensorScatter ThresholdedRelu Tile "
    "TopK Transpose Trilu Unsqueeze Where Xor"
)


class Refused(Exception):
    """The node is not possible: ONNX Runtime has no kernel for it, or it does not fit."""


@dataclasses.dataclass
class Value:
    """A tensor of the graph: its value, and values that an equally good implementation might compute instead."""

    name: str
    array: Array
    shaken: list[Array]
    kind: str  # input, constant, node
    # constant that must be an initializer for ONNX Runtime or the op
    plain: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> str:
        return str(self.array.dtype)

    @property
    def exact(self) -> bool:
        return all(same(self.array, s) for s in self.shaken)


def same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


Maker = Callable[["Builder"], object]
MAKERS: dict[str, list[tuple[int, Maker]]] = {}  # family: (weight, maker)


def maker(family: str, weight: int = 2) -> Callable[[Maker], Maker]:
    """Registers a function that adds one op (or a few) to a builder. It may raise Refused at any point."""

    def register(function: Maker) -> Maker:
        MAKERS.setdefault(family, []).append((weight, function))
        return function

    return register


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def type_number(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def declared(name: str, array: Array, shape: Sequence[int | str | None] | None = None) -> ValueInfoProto:
    return helper.make_tensor_value_info(
        name, type_number(str(array.dtype)), list(array.shape if shape is None else shape)
    )


class Builder:
    """One graph under construction."""

    def __init__(self, source: random.Random, only: str = "") -> None:
        self.random, self.only = source, only
        self.opset = source.choice([*range(7, 27), 13, 17, 18, 19, 20, 21, 21, 22, 23, 24, 25, 26])
        self.values: list[Value] = []
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Value] = {}
        self.dynamic: dict[str, list[int | str | None]] = {}
        self.count = 0
        self.noise = np.random.default_rng(1)
        self.refusals: list[str] = []

    # -- choices

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def choice(self, options: Sequence[Any]) -> Any:
        return options[self.random.randint(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.random.randint(1, 100) > 100 - percent

    def ints(self, count: int, low: int, high: int) -> list[int]:
        return [self.integer(low, high) for _ in range(count)]

    def permutation(self, count: int) -> list[int]:
        left, order = list(range(count)), []
        while left:
            order.append(left.pop(self.integer(0, len(left) - 1)))
        return order

    def subset(self, count: int, least: int = 1) -> list[int]:
        """Some of range(count), in any order."""
        return self.permutation(count)[: self.integer(min(least, count), count)]

    def negated(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes, some counted from the end."""
        return [a - rank if self.chance(40) else a for a in axes]

    def axis(self, rank: int, least: int = 0) -> int:
        if rank <= least:
            raise Refused("no such axis")
        return self.integer(least, rank - 1)

    def shape(self, rank: int, largest: int = 7) -> tuple[int, ...]:
        dims = [0 if self.chance(1) else 1 if self.chance(20) else self.integer(1, largest) for _ in range(rank)]
        while np.prod(dims, dtype=np.int64) > LARGEST:
            dims[dims.index(max(dims))] //= 2
        return tuple(dims)

    # -- values

    def data(self, dtype: str, shape: Sequence[int], kind: str = "") -> Array:
        """kind: "" (any), mild (about -2 to 2), positive (0.5 to 2.5), special (NaN, infinities, extremes)."""
        seed, size = self.integer(0, 255), tuple(int(d) for d in shape)
        rng = np.random.default_rng(seed)
        kind = kind or ("special" if self.chance(6) else "mild")
        if dtype == "bool":
            return np.asarray(rng.random(size) < 0.5)
        if np.dtype(dtype).kind == "f":
            array = np.asarray(rng.normal(0, 1, size))
            if kind == "positive":
                array = np.asarray(rng.uniform(0.5, 2.5, size))
            elif seed % 3 == 0:  # multiples of one half: sums and products are exact, and values tie
                array = np.asarray(np.round(array * 4) / 4)
            array = array.astype(dtype)
            if kind == "special":
                extremes = np.array(
                    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-7, -1e4, 6e4, 0.5, 1.5, -2.5, np.finfo(dtype).max,
                     np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal], dtype)  # fmt: skip
                array = np.where(rng.random(size) < 0.3, rng.choice(extremes, size), array).astype(dtype)
            return np.asarray(array)
        info = np.iinfo(dtype)
        low, high = (max(info.min, -9), 9) if kind != "special" else (info.min, info.max)
        if kind == "positive":
            low = 1
        return np.asarray(rng.integers(low, high, size, dtype=np.dtype(dtype), endpoint=True))

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def const(self, array: Any, dtype: str = "", plain: bool = False) -> Value:
        """Adds a constant: an initializer or, unless plain, also a Constant node or an input with a default."""
        value = np.asarray(array, dtype or None)
        made = Value(self.fresh("c"), value, [value, value], "constant", plain)
        return made

    def given(self, array: Any, dtype: str = "") -> Value:
        """A value that usually is a constant but may be an input of the graph."""
        return self.input(np.asarray(array, dtype or None)) if self.chance(15) else self.const(array, dtype)

    def weights(self, dtype: str, *shape: int, scale: float = 0.5) -> Value:
        array = self.data(dtype, shape, "mild")
        return self.given(array * np.dtype(dtype).type(scale) if np.dtype(dtype).kind == "f" else array)

    def input(self, array: Array) -> Value:
        value = Value(self.fresh("x"), array, [array, array], "input")
        self.values.append(value)
        dims: list[int | str | None] = list(array.shape)
        if self.chance(25):
            dims = [f"{value.name}_{i}" if self.chance(50) else d for i, d in enumerate(dims)]
        self.dynamic[value.name] = dims
        return value

    def pick(self, *dtypes: str, ranks: Sequence[int] = (), where: Callable[[Value], bool] | None = None) -> Value:
        """Picks a tensor of these dtypes and ranks, preferably a late one; adds an input if there is none."""
        if self.only:
            if dtypes and self.only not in dtypes:
                raise Refused(f"no {self.only}")
            dtypes = (self.only,)

        def fits(v: Value) -> bool:
            return (not dtypes or v.dtype in dtypes) and (not ranks or v.rank in ranks) and (where is None or where(v))

        found = [v for v in self.values if fits(v)]
        if found and not self.chance(12):
            return self.choice(found[-3:] if self.chance(60) else found)
        for _ in range(4):
            dtype = dtypes[0] if self.chance(50) and dtypes else self.choice(dtypes or ANY)
            rank = self.choice(ranks) if ranks else self.choice([0, 1, 2, 2, 3, 3, 4, 4, 5])
            made = self.data(dtype, self.shape(rank))
            if where is None or where(Value("", made, [made], "input")):
                return self.input(made)
        raise Refused("nothing fits")

    # -- nodes

    def since(self, op: str) -> int:
        """The version of an op's definition at this graph's opset. Raises Refused if it has none."""
        try:
            return int(defs.get_schema(op, self.opset, "").since_version)
        except defs.SchemaError:
            raise Refused(f"{op} is not in opset {self.opset}") from None

    def node(
        self, op: str, inputs: Sequence[Value | None], outputs: int = 1, *, domain: str = "", skip: Sequence[int] = (),
        captures: Sequence[Value] = (), noise: float = 1.0, **attributes: Any,
    ) -> list[Value]:  # fmt: skip
        """Adds a node and computes it.

        skip: outputs that it leaves out. captures: outer values that its subgraphs read. noise: allowed rounding error of the
        node, as a multiple of EPSILON. Raises Refused."""
        if not domain:
            self.since(op)
        operands = list(inputs)
        while operands and operands[-1] is None:
            operands.pop()
        names = ["" if i in skip else self.fresh("t") for i in range(outputs)]
        node = helper.make_node(
            op, ["" if v is None else v.name for v in operands], names, domain=domain,
            name=f"n{len(self.nodes)}" if self.chance(70) else "", **attributes,
        )  # fmt: skip
        read = list({v.name: v for v in (*operands, *captures) if v is not None}.values())
        arrays = evaluate(node, read, self.opset)
        scale = 0.0
        if op in NARROW and arrays[0].dtype == np.float64:
            noise = 1e6
        if op not in EXACT:
            scale = max((magnitude(v.array) for v in read if v.array.dtype.kind == "f"), default=0.0)
            if op in PRODUCTS:
                floats = [v for v in operands if v is not None and v.array.dtype.kind == "f"]
                scale = float(np.prod([magnitude(v.array) for v in floats[:2]]))
            if op in POINTWISE:
                scale = 0.0
        variants = [arrays, arrays]
        if not all(v.exact for v in read):
            variants = [
                evaluate(node, [dataclasses.replace(v, array=v.shaken[i]) for v in read], self.opset) for i in (0, 1)
            ]
        made = []
        for position, (name, array) in enumerate(zip([n for n in names if n], arrays, strict=True)):
            shaken = []
            quantizing = op in QUANTIZING and array.dtype.kind in "iu"
            for variant in variants:
                other = variant[position]
                if other.shape != array.shape:
                    raise Refused("shape depends on rounding")
                if op not in EXACT and other.dtype.kind == "f":
                    other = self.shake(other, scale, noise)
                elif op == "Cast" and other.dtype.kind == "f":
                    other = self.shake(other, 0.0, 0.5) if read[0].dtype in ("float64", "float32") else other
                shaken.append(other)
            if quantizing:  # ties may round either way
                if any(np.abs(array.astype(np.int64) - other).max(initial=0) > 1 for other in shaken):
                    raise Refused("badly conditioned")
                info = np.iinfo(array.dtype)
                shaken = [np.clip(array.astype(np.int64) + d, info.min, info.max).astype(array.dtype) for d in (1, -1)]
            elif not stable(array, shaken, max([4 * deviation(v.array, v.shaken) for v in read], default=0.0)):
                raise Refused("badly conditioned")
            made.append(Value(name, array, shaken, "node"))
        for value in read:
            if value.kind == "constant":
                self.constants[value.name] = value
        self.nodes.append(node)
        self.values += [v for v in made if v.array.size <= 4 * LARGEST]
        return made

    def add(self, op: str, inputs: Sequence[Value | None], **attributes: Any) -> Value:
        """Adds a node with one output."""
        return self.node(op, inputs, 1, **attributes)[0]

    def shake(self, array: Array, scale: float, noise: float) -> Array:
        epsilon = EPSILON[str(array.dtype)] * noise
        wide = array.astype(np.float64)
        with np.errstate(all="ignore"):
            moved = wide * (1 + epsilon * self.noise.uniform(-1, 1, array.shape))
            if scale and np.isfinite(scale):
                moved = moved + epsilon * scale * self.noise.uniform(-1, 1, array.shape)
            return np.asarray(np.where(np.isfinite(wide), moved, wide)).astype(array.dtype)

    def grow(self, count: int, makers: Sequence[Maker] = ()) -> None:
        """Adds up to `count` ops, from these makers or from those of some families."""
        table = list(makers)
        if not table:
            families = sorted(MAKERS)
            only = [f for f in families if self.chance(45)] or families  # a theme, so that related ops occur together
            table = [m for f in only for weight, m in MAKERS[f] for _ in range(weight)]
        for _ in range(count):
            for _ in range(3):
                try:
                    self.choice(table)(self)
                    break
                except Refused as error:
                    self.refusals.append(str(error))

    # -- the model

    def model(self) -> tuple[onnx.ModelProto, dict[str, Array], dict[str, Value]]:
        """Returns the model, a value for each input, and the expected outputs."""
        read = {n for node in self.nodes for n in names_read(node)}
        results = [v for v in self.values if v.kind == "node" and (v.name not in read or self.chance(12))]
        if not results:
            raise Refused("an empty graph")
        if self.chance(5):  # outputs may also be inputs and constants
            results += [v for v in (*self.values, *self.constants.values()) if v.kind != "node"][:2]
        ir = 8 if self.opset < 19 else 10 if self.opset < 23 else 11
        nodes, initializers, inputs = list(self.nodes), [], []
        feeds: dict[str, Array] = {}
        for value in self.values:
            if value.kind == "input" and (value.name in read or value in results or self.chance(30)):
                inputs.append(declared(value.name, value.array, self.dynamic[value.name]))
                feeds[value.name] = value.array
        for value in self.constants.values():
            form = "initializer" if value.plain else self.choice(["initializer"] * 6 + ["node", "default", "typed"])
            proto = numpy_helper.from_array(value.array, value.name)
            if form == "typed" and value.array.size and value.dtype in ("float32", "int64", "int32", "float64"):
                proto = helper.make_tensor(value.name, proto.data_type, value.shape, value.array.reshape(-1).tolist())
            if form == "node":
                nodes.insert(0, helper.make_node("Constant", [], [value.name], value=proto))
            else:
                initializers.append(proto)
                if form == "default":
                    inputs.append(declared(value.name, value.array))
        if self.chance(5):
            initializers.append(numpy_helper.from_array(np.ones(3, np.float32), "unused"))
        outputs = [
            declared(v.name, v.array, [None] * v.rank if self.chance(10) else None)
            for v in {v.name: v for v in results}.values()
        ]
        graph = helper.make_graph(nodes, "random", inputs, outputs, initializers)
        domains = {n.domain for n in nodes} - {""}
        imports = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
        model = helper.make_model(graph, opset_imports=imports, ir_version=ir)
        return model, feeds, {v.name: v for v in results}


NARROW = {"HardSwish", "Shrink", "Gelu"}  # for these ops ONNX Runtime uses f32 constants even for f64
QUANTIZING = words("QuantizeLinear DynamicQuantizeLinear QLinearMatMul QLinearConv")
PRODUCTS = words("Conv ConvTranspose MatMul Gemm Einsum FusedMatMul")
POINTWISE = words(
    "Add Sub Mul Div Pow Sqrt Exp Log Sigmoid Tanh Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Reciprocal Elu "
    "Selu Celu LeakyRelu PRelu HardSigmoid HardSwish Softplus Softsign Mish Gelu Mod Sum Mean Swish Shrink"
)


def magnitude(array: Array) -> float:
    finite = array[np.isfinite(array)]
    return float(np.abs(finite.astype(np.float64)).max(initial=0.0))


def deviation(array: Array, shaken: Sequence[Array]) -> float:
    """The largest difference of a perturbed value, as a fraction of the range; also for integers."""
    if array.dtype.kind == "b":
        return 0.0
    with np.errstate(all="ignore"):
        gaps = [np.abs(array.astype(np.float64) - other.astype(np.float64)) for other in shaken]
    worst = max((float(np.max(g, initial=0.0, where=np.isfinite(g))) for g in gaps), default=0.0)
    return worst / (magnitude(array) or 1.0)


def stable(array: Array, shaken: Sequence[Array], allowed: float) -> bool:
    """Whether the perturbed values are close enough for a meaningful comparison: within `allowed` of the range, or WORST."""
    if array.dtype.kind != "f":
        return all(same(array, s) for s in shaken)
    limit = min(max(WORST[str(array.dtype)], allowed), 0.1) * magnitude(array)
    for other in shaken:
        finite = np.isfinite(array)
        if not np.array_equal(finite, np.isfinite(other)):
            return False
        a, b = array[finite].astype(np.float64), other[finite].astype(np.float64)
        if np.abs(a - b).max(initial=0.0) > limit:
            return False
    return True


def evaluate(node: NodeProto, read: Sequence[Value], opset: int) -> list[Array]:
    """Computes the outputs of one node with ONNX Runtime. Raises Refused."""
    inputs = [declared(v.name, v.array) for v in read if v.kind != "constant"]
    constants = [numpy_helper.from_array(v.array, v.name) for v in read if v.kind == "constant"]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    imports = [helper.make_opsetid("", opset)]
    if node.domain:
        imports.append(helper.make_opsetid(node.domain, 1))
    graph = helper.make_graph([node], "one", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=imports, ir_version=8 if opset < 19 else 10)
    try:
        results = session_of(model).run(None, {v.name: v.array for v in read if v.kind != "constant"})
    except Exception as error:
        raise Refused(f"{node.op_type}: {' '.join(str(error).split())[:200]}") from None
    arrays = [np.asarray(r) for r in results]
    if any(a.size > 8 * LARGEST or a.dtype.kind not in "fiub" for a in arrays):
        raise Refused("too large")
    return arrays


def names_read(node: NodeProto) -> set[str]:
    names = set(node.input)
    for attribute in node.attribute:
        graphs: list[GraphProto] = [attribute.g] if attribute.type == AttributeProto.GRAPH else list(attribute.graphs)
        for graph in graphs:
            names |= {o.name for o in graph.output} | {n for inner in graph.node for n in names_read(inner)}
    return names


__all__ = [
    "ANY",
    "FLOATS",
    "INTS",
    "MAKERS",
    "Builder",
    "Refused",
    "TensorProto",
    "Value",
    "declared",
    "maker",
    "type_number",
]
