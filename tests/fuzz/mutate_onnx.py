"""Changes the fields of an ONNX model: names, shapes, types, attributes, opsets, external data, bodies, functions.
There is one function per kind of damage. Each changes the message in place."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

SIZES = (-(2**63), -2, -1, 0, 1, 2, 3, 7, 255, 2**16, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
LOCATIONS = (
    "../weights.bin",
    "/etc/hostname",
    "/dev/zero",
    "none.bin",
    "",
    ".",
    "link.bin",
    "data.bin",
    "a/../data.bin",
    "\0",
    "x" * 5000,
)
Mutation = Callable[[ModelProto, random.Random], None]
MUTATIONS: list[Mutation] = []


def mutation(function: Mutation) -> Mutation:
    MUTATIONS.append(function)
    return function


def mutated(model: ModelProto, rng: random.Random) -> ModelProto:
    """Returns a copy with one to three changes."""
    model = copy.deepcopy(model)
    for _ in range(rng.randint(1, 3)):
        try:
            rng.choice(MUTATIONS)(model, rng)
        except DecodeError:  # nested more deeply than protobuf can read
            break
    return model


def graphs(model: ModelProto) -> list[GraphProto]:
    """Returns the graph and its subgraphs."""
    found, queue = [], [model.graph]
    while queue:
        graph = queue.pop()
        found.append(graph)
        queue += [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return found


def a_graph(model: ModelProto, rng: random.Random) -> GraphProto:
    return rng.choice(graphs(model))


def a_node(model: ModelProto, rng: random.Random) -> NodeProto | None:
    nodes = [n for g in graphs(model) for n in g.node]
    return rng.choice(nodes) if nodes else None


def names(model: ModelProto) -> list[str]:
    found = {v for g in graphs(model) for n in g.node for v in (*n.input, *n.output)}
    return sorted(found | {t.name for g in graphs(model) for t in g.initializer} | {"", "nothing", "x" * 300})


@mutation
def rewire(model: ModelProto, rng: random.Random) -> None:
    """Renames an operand or result: cycles, missing and duplicate names, other types."""
    node = a_node(model, rng)
    if node is not None:
        field = node.input if rng.random() < 0.7 and node.input else node.output
        if field:
            field[rng.randrange(len(field))] = rng.choice(names(model))


@mutation
def arity(model: ModelProto, rng: random.Random) -> None:
    node = a_node(model, rng)
    if node is not None:
        field = rng.choice([node.input, node.output])
        if field and rng.random() < 0.5:
            del field[rng.randrange(len(field))]
        else:
            field.append(rng.choice(names(model)))


@mutation
def operator(model: ModelProto, rng: random.Random) -> None:
    node = a_node(model, rng)
    if node is not None:
        every = sorted({s.name for s in onnx.defs.get_all_schemas()})
        node.op_type = rng.choice([*every, "", "Nonsense", rng.choice(every).lower()])
        if rng.random() < 0.1:
            node.domain = rng.choice(["ai.onnx", "com.microsoft", "ai.onnx.ml", "nobody"])


@mutation
def remove(model: ModelProto, rng: random.Random) -> None:
    graph = a_graph(model, rng)
    field = rng.choice([graph.node, graph.initializer, graph.input, graph.output])
    if field:
        del field[rng.randrange(len(field))]


@mutation
def twice(model: ModelProto, rng: random.Random) -> None:
    graph = a_graph(model, rng)
    field = rng.choice([graph.node, graph.initializer, graph.input, graph.output])
    if field:
        field.add().CopyFrom(field[rng.randrange(len(field))])


@mutation
def order(model: ModelProto, rng: random.Random) -> None:
    nodes = list(copy.deepcopy(model.graph.node))
    rng.shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


@mutation
def attribute_value(model: ModelProto, rng: random.Random) -> None:
    node = a_node(model, rng)
    if node is None or not node.attribute:
        return
    a = rng.choice(node.attribute)
    if a.type == AttributeProto.INT:
        a.i = rng.choice(SIZES)
    elif a.type == AttributeProto.FLOAT:
        a.f = rng.choice([float("nan"), float("inf"), -1.0, 0.0, 1e38])
    elif a.type == AttributeProto.INTS and a.ints:
        how = rng.randrange(3)
        if how == 0:
            a.ints[rng.randrange(len(a.ints))] = rng.choice(SIZES)
        elif how == 1:
            a.ints.append(rng.choice(SIZES))
        else:
            del a.ints[rng.randrange(len(a.ints)) :]
    elif a.type == AttributeProto.STRING:
        a.s = rng.choice([b"", b"SAME_UPPER", b"nonsense", b"\xff\xfe", b"linear", b"reflect"])
    elif a.type == AttributeProto.STRINGS:
        a.strings.append(rng.choice([b"Relu", b"nonsense", b"\xff"]))


@mutation
def attribute_type(model: ModelProto, rng: random.Random) -> None:
    """Gives an attribute another type than the op's, with or without a value."""
    node = a_node(model, rng)
    if node is None or not node.attribute:
        return
    a = rng.choice(node.attribute)
    made = rng.choice([helper.make_attribute(a.name, v) for v in (3, 1.5, "text", [1, 2], [0.5], ["a"], [-1])])
    if rng.random() < 0.5:
        a.CopyFrom(made)
    else:
        a.type = rng.randrange(0, 15)


@mutation
def attribute_set(model: ModelProto, rng: random.Random) -> None:
    node = a_node(model, rng)
    if node is None:
        return
    if node.attribute and rng.random() < 0.6:
        del node.attribute[rng.randrange(len(node.attribute))]
    else:
        name = rng.choice(["axis", "axes", "perm", "pads", "kernel_shape", "group", "to", "value", "nonsense", "body"])
        node.attribute.append(helper.make_attribute(name, rng.choice([1, -1, [1, 1], "x", 2.0, [2**40]])))
    if rng.random() < 0.05 and node.attribute:
        node.attribute[0].ref_attr_name = "nothing"


@mutation
def shape(model: ModelProto, rng: random.Random) -> None:
    """Changes the shape or type of an input, output or value."""
    graph = a_graph(model, rng)
    infos = [*graph.input, *graph.output, *graph.value_info]
    if not infos:
        return
    info = rng.choice(infos)
    how = rng.randrange(6)
    if how == 0:
        info.type.Clear()
    elif how == 1:
        info.type.tensor_type.elem_type = rng.choice([0, 1, 7, 8, 10, 11, 14, 16, 17, 22, 25, 99, -1])
    elif how == 2:
        info.type.sequence_type.elem_type.tensor_type.elem_type = 1
    elif how == 3:
        info.type.tensor_type.shape.dim.add().dim_value = rng.choice(SIZES)
    else:
        dims = info.type.tensor_type.shape.dim
        for _ in range(rng.randint(1, 2)):
            if dims:
                d = dims[rng.randrange(len(dims))]
                if rng.random() < 0.2:
                    d.dim_param = rng.choice(["", "N", "?"])
                else:
                    d.dim_value = rng.choice(SIZES)


@mutation
def tensor(model: ModelProto, rng: random.Random) -> None:
    """Makes dims, type and data of a constant disagree."""
    tensors = [t for g in graphs(model) for t in g.initializer]
    tensors += [a.t for g in graphs(model) for n in g.node for a in n.attribute if a.HasField("t")]
    if not tensors:
        return
    t = rng.choice(tensors)
    how = rng.randrange(6)
    if how == 0 and t.dims:
        t.dims[rng.randrange(len(t.dims))] = rng.choice(SIZES)
    elif how == 1:
        t.dims.append(rng.choice(SIZES))
    elif how == 2:
        t.data_type = rng.choice([0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 14, 16, 17, 21, 22, 23, 24, 25, 99])
    elif how == 3:
        t.raw_data = (
            t.raw_data[: len(t.raw_data) // 2] if rng.random() < 0.5 else t.raw_data + b"\0" * rng.choice([1, 8])
        )
    elif how == 4:
        t.float_data.append(1.0) if rng.random() < 0.5 else t.string_data.append(b"text")
    elif t.raw_data:  # other values of the right size, which are often shapes, axes and indices
        at = rng.randrange(len(t.raw_data))
        data = bytearray(t.raw_data)
        if len(data) >= 8 and rng.random() < 0.7:
            data[at & ~7 : (at & ~7) + 8] = rng.choice(SIZES).to_bytes(8, "little", signed=True)
            data = data[: len(t.raw_data)]
        else:
            data[at] = rng.randrange(256)
        t.raw_data = bytes(data)


@mutation
def external(model: ModelProto, rng: random.Random) -> None:
    """Moves data to another file: outside the folder, missing, a device, or truncated."""
    if not model.graph.initializer:
        return
    t = rng.choice(model.graph.initializer)
    if rng.random() < 0.8:
        t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    entries = {"location": rng.choice(LOCATIONS)}
    for key in ("offset", "length"):
        if rng.random() < 0.5:
            entries[key] = str(rng.choice([*SIZES, "many", "", "1.5", "0x10"]))
    for key, value in entries.items():
        t.external_data.add(key=key, value=value)


@mutation
def opset(model: ModelProto, rng: random.Random) -> None:
    how = rng.randrange(4)
    if how == 0:
        del model.opset_import[:]
    elif how == 1:
        model.opset_import.append(
            helper.make_opsetid(rng.choice(["", "nobody", "com.microsoft"]), rng.choice([1, 5, 18]))
        )
    elif model.opset_import:
        model.opset_import[0].version = rng.choice(
            [-1, 0, 1, 5, 6, 7, 9, 10, 11, 13, 17, 18, 21, 26, 28, 29, 99, 2**62]
        )


@mutation
def nest(model: ModelProto, rng: random.Random) -> None:
    """Nests the graph as the branch of an If, a few or very many times."""
    inner = GraphProto()
    inner.CopyFrom(model.graph)
    del inner.input[:]
    for _ in range(rng.choice([1, 2, 3, 15, 29])):  # protobuf itself stops at 100 nested messages, three per level
        outer = GraphProto(name="outer")
        outs = [f"{o.name}_" for o in inner.output]
        test = onnx.numpy_helper.from_array(__import__("numpy").array(True), "test")
        outer.initializer.append(test)
        node = helper.make_node(
            "If", ["test"], outs, then_branch=inner, else_branch=inner if rng.random() < 0.05 else GraphProto()
        )
        outer.node.append(node)
        for o, name in zip(inner.output, outs, strict=True):
            outer.output.add().CopyFrom(o)
            outer.output[-1].name = name
        inner = outer
        if inner.ByteSize() > 200_000:
            break
    inner.input.extend(model.graph.input)
    model.graph.CopyFrom(inner)


@mutation
def function(model: ModelProto, rng: random.Random) -> None:
    """Turns nodes into functions of the model, some of which call themselves or each other."""
    node = a_node(model, rng)
    if node is None:
        return
    made = [f"f{i}" for i in range(rng.choice([1, 2, 30]))]
    for i, name in enumerate(made):
        body = model.functions.add(name=name, domain="own")
        body.opset_import.extend([*model.opset_import, helper.make_opsetid("own", 1)])
        body.input.extend(f"a{k}" for k in range(len(node.input)))
        body.output.extend(f"b{k}" for k in range(len(node.output)))
        inner = body.node.add()
        inner.CopyFrom(node)
        if rng.random() < 0.7:
            inner.op_type, inner.domain = made[(i + 1) % len(made)], "own"
            if rng.random() < 0.5:
                body.node.add().CopyFrom(inner)
                body.node[-1].output[:] = [f"c{k}" for k in range(len(node.output))]
        inner.input[:], inner.output[:] = list(body.input), list(body.output)
    node.op_type, node.domain = made[0], "own"
    model.opset_import.append(helper.make_opsetid("own", 1))


@mutation
def blow_up(model: ModelProto, rng: random.Random) -> None:
    """Adds nodes that create large constants from little data: many of them, or each larger than the one before."""
    import numpy as np

    graph = model.graph
    last = "seed_of_blow_up"
    graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 64), np.float32), last))
    size = rng.choice([64, 4096, 2**20, 2**33])
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([size, 64], np.int64), "size_of_blow_up"))
    for i in range(rng.choice([1, 4, 60])):
        name = f"blown{i}"
        op = rng.choice(["Expand", "Tile", "ConstantOfShape", "Concat", "Transpose", "MatMul"])
        if op == "ConstantOfShape":
            graph.node.append(helper.make_node(op, ["size_of_blow_up"], [name]))
        elif op == "Concat":
            graph.node.append(helper.make_node(op, [last] * 8, [name], axis=0))
        elif op == "Transpose":
            graph.node.append(helper.make_node(op, [last], [name]))
        elif op == "MatMul":
            graph.node.append(helper.make_node("Transpose", [last], [f"{name}t"]))
            graph.node.append(helper.make_node(op, [last, f"{name}t"], [name]))
        else:
            graph.node.append(helper.make_node(op, [last, "size_of_blow_up"], [name]))
        last = name
    graph.node.append(helper.make_node("Identity", [last], ["blown_up"]))
    graph.output.append(helper.make_tensor_value_info("blown_up", TensorProto.FLOAT, None))


@mutation
def loop_bounds(model: ModelProto, rng: random.Random) -> None:
    """Changes trip counts and conditions of loops."""
    for graph in graphs(model):
        for t in graph.initializer:
            if t.data_type == TensorProto.INT64 and not t.dims:
                t.raw_data = rng.choice(SIZES).to_bytes(8, "little", signed=True)
