"""Random ONNX graphs of sequence ops inside branches and loops, against ONNX Runtime.
Lengths differ between branches, loops carry growing sequences, and positions are computed at run time."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from linnet import onnx_backend
from tests.test_onnx_sequences import F32, I64, Node, arrays, constant, model, same, sequence, tensor

BOOL = TensorProto.BOOL
DEEPEST = 2


class Writer:
    """Writes nodes over sequences `seqs` and tensors `tens` of shape [n, 3]; each exists before it is read."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def simple(self, seqs: list[str], tens: list[str]) -> list[onnx.NodeProto]:
        """One step of one or two nodes; the results are added to the lists."""
        pick, s, t = self.random.choice, self.random.choice(seqs), self.random.choice(tens)
        y, a = self.name("v"), self.name("v")
        kind = pick(["construct", "fill", "insert", "at", "erase", "concat", "stack", "split", "pointwise", "map"])
        place = pick([[], ["zero"], ["last"], ["place"]])
        if kind in ("at", "concat", "stack", "pointwise"):
            tens.append(y)
        else:
            seqs.append(y)
        if kind == "construct":
            return [Node("SequenceConstruct", [pick(tens[:-1] or [t]) for _ in range(self.random.randint(1, 3))], [y])]
        if kind == "fill":
            return [Node("SequenceEmpty", [], [a], dtype=F32), Node("SequenceInsert", [a, t], [y])]
        if kind == "insert":
            return [Node("SequenceInsert", [s, t, *place], [y])]
        if kind == "at":
            return [Node("SequenceAt", [s, *(place or ["zero"])], [y])]
        if kind == "erase":
            return [Node("SequenceInsert", [s, t], [a]), Node("SequenceErase", [a, *place], [y])]
        if kind == "concat":
            return [Node("ConcatFromSequence", [s], [y], axis=0)]
        if kind == "stack":
            b = self.name("v")
            stacked = Node("ConcatFromSequence", [a], [b], axis=self.random.randint(0, 2), new_axis=1)
            return [Node("SequenceConstruct", [t, t], [a]), stacked, Node("Reshape", [b, "flat"], [y])]
        if kind == "split":
            return [Node("SplitToSequence", [t, *pick([[], ["two"]])], [y], axis=0)]
        if kind == "map":
            body = helper.make_graph([Node("Neg", [a], [f"{a}n"])], "b", [tensor(a, F32)], [tensor(f"{a}n", F32)])
            return [Node("SequenceMap", [s], [y], body=body)]
        return [Node(pick(["Neg", "Relu"]), [t], [y])]

    def branches(self, seqs: list[str], tens: list[str], depth: int) -> onnx.NodeProto:
        graphs = []
        for _ in range(2):
            inner_seqs, inner_tens = list(seqs), list(tens)
            nodes = self.block(inner_seqs, inner_tens, depth + 1, self.random.randint(1, 3))
            s, t = self.name("v"), self.name("v")
            nodes += [Node("Identity", [self.random.choice(inner_seqs)], [s])]
            nodes += [Node("Identity", [self.random.choice(inner_tens)], [t])]
            graphs.append(helper.make_graph(nodes, "g", [], [sequence(s), tensor(t, F32)]))
        made = [self.name("v"), self.name("v")]
        seqs.append(made[0])
        tens.append(made[1])
        return Node("If", ["flag"], made, then_branch=graphs[0], else_branch=graphs[1])

    def loop(self, seqs: list[str], tens: list[str], depth: int) -> onnx.NodeProto:
        """A loop that carries a growing sequence and a tensor, and scans the lengths."""
        i, k, s, t = (self.name("v") for _ in range(4))
        inner_seqs, inner_tens = [*seqs, s], [*tens, t]
        nodes = self.block(inner_seqs, inner_tens, depth + 1, self.random.randint(1, 3))
        k2, s2, t2, n = (self.name("v") for _ in range(4))
        grown = self.random.choice([s, inner_seqs[-1]])
        nodes += [Node("Identity", [k], [k2]), Node("SequenceInsert", [grown, self.random.choice(inner_tens)], [s2])]
        nodes += [Node("Neg", [t], [t2]), Node("SequenceLength", [s2], [n])]
        body = helper.make_graph(
            nodes,
            "g",
            [tensor(i, I64, []), tensor(k, BOOL, []), sequence(s), tensor(t, F32)],
            [tensor(k2, BOOL, []), sequence(s2), tensor(t2, F32), tensor(n, I64)],
        )
        operands = [self.random.choice(["trips", "two"]), "", self.random.choice(seqs), self.random.choice(tens)]
        made = [self.name("v"), self.name("v"), self.name("v")]
        seqs.append(made[0])
        tens.append(made[1])
        return Node("Loop", operands, made, body=body)

    def block(self, seqs: list[str], tens: list[str], depth: int, length: int) -> list[onnx.NodeProto]:
        nodes: list[onnx.NodeProto] = []
        for _ in range(length):
            kind = self.random.random()
            if depth < DEEPEST and kind < 0.12:
                nodes.append(self.branches(seqs, tens, depth))
            elif depth < DEEPEST and kind < 0.24:
                nodes.append(self.loop(seqs, tens, depth))
            else:
                nodes += self.simple(seqs, tens)
        return nodes


def written(seed: int) -> onnx.ModelProto:
    writer, seqs, tens = Writer(seed), ["s"], ["x"]
    nodes = writer.block(seqs, tens, 0, writer.random.randint(5, 14))
    outputs = [*(sequence(n) for n in seqs[1:][-3:]), *(tensor(n, F32) for n in tens[1:][-3:])]
    inputs = [sequence("s", F32, [None, 3]), tensor("x", F32, [None, 3])]
    inputs += [tensor("place", I64, []), tensor("flag", BOOL, []), tensor("trips", I64, [])]
    constants = [constant("zero", 0), constant("last", -1), constant("two", 2), constant("flat", [-1, 3])]
    proto: onnx.ModelProto = model(nodes, inputs, outputs, constants)
    return proto


def compare(seed: int) -> None:
    proto = written(seed)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    prepared, known = onnx_backend.prepare(proto), {i.name for i in session.get_inputs()}
    for flag, trips, place in ((True, 2, 0), (False, 3, 0), (True, 1, -1)):
        feeds: dict[str, Any] = {"s": arrays((2, 3), (1, 3), seed=seed), "x": arrays((2, 3), seed=seed + 1)[0]}
        feeds |= {"place": np.array(place), "flag": np.array(flag), "trips": np.array(trips)}
        feeds = {name: value for name, value in feeds.items() if name in known}
        same(list(prepared.run(feeds)), session.run(None, feeds))


@pytest.mark.parametrize("seed", range(25))
def test_random_sequences(seed: int) -> None:
    compare(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 2000, 50))
def test_many_random_sequences(first: int) -> None:
    for seed in range(first, first + 50):
        compare(seed)
