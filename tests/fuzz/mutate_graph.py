"""Changes a graph before it is written: attributes, shapes, types, quantization, operands, constants, programs, sub-graphs.
`python -m tests.fuzz.mutate_graph FOLDER FIRST LAST` writes mutants for fuzz_graph: complete files with a right checksum."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from linnet._generated.op_table import OPCODES, OPS
from linnet.facade import Graph
from linnet.file.reader import from_bytes
from linnet.file.writer import to_bytes
from linnet.ir.dtypes import DTYPE_NAMES, Quantization, numpy_dtype
from linnet.ir.function import Function, Node, Tensor
from tests.fuzz.graph_corpus import corpus

INTEGERS = (
    -(2**63),
    -(2**62),
    -(2**31),
    -129,
    -3,
    -2,
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    255,
    65536,
    2**31 - 1,
    2**31,
    2**40,
    2**62,
    2**63 - 1,
)
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 64, 255, 65536, 2**31 - 1, 2**32, 2**40, 2**62)
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-45, -1e-45, 1e38, -1e38, 1e300, float("inf"), float("-inf"), float("nan"))
DTYPES = tuple(DTYPE_NAMES.values())
MOST_CONSTANT = 4096  # maximum number of elements of a constant in a mutant


class Mutation:
    """Mutates one graph."""

    def __init__(self, graph: Graph, rng: random.Random) -> None:
        self.graph, self.rng = graph, rng
        self.function: Function = rng.choice([f for f in graph.functions if f.nodes] or graph.functions)
        self.tensors = list(self.function.tensors())
        self.nodes = self.function.nodes

    def integer(self, old: int = 0) -> int:
        return self.rng.choice((self.rng.choice(INTEGERS), self.rng.randint(-2, 8), old + 1, old - 1, -old))

    def node(self) -> Node:
        return self.rng.choice(self.nodes)

    def tensor(self) -> Tensor:
        return self.rng.choice(self.tensors)

    # ---- what may change

    def attribute(self) -> None:
        node = self.node()
        specs = OPS[node.op]["attributes"]
        name = self.rng.choice(sorted(specs))
        _, kind, _, values = specs[name]
        old = node.attribute(name)
        if kind == "function":
            node.attributes[name] = self.rng.choice([*self.graph.functions, None])
        elif kind == "enum":
            node.attributes[name] = self.rng.choice(sorted(values))
        elif kind == "dtype":
            node.attributes[name] = self.rng.choice(["none", *DTYPES])
        elif kind == "bool":
            node.attributes[name] = not old
        elif kind == "float":
            node.attributes[name] = self.rng.choice(REALS)
        elif kind == "int":
            node.attributes[name] = self.integer(int(old))
        else:
            node.attributes[name] = self.sequence(list(old), kind == "floats")

    def sequence(self, values: list[Any], real: bool) -> tuple[Any, ...]:
        rng, how = self.rng, self.rng.random()
        new = rng.choice(REALS) if real else self.integer(int(rng.choice(values)) if values and not real else 0)
        if values and how < 0.6:
            values[rng.randrange(len(values))] = new
        elif values and how < 0.75:
            values.pop(rng.randrange(len(values)))
        elif how < 0.97:
            values.insert(rng.randint(0, len(values)), new)
        else:
            values *= rng.choice((0, 2, 40))
        return tuple(values)

    def program(self) -> None:
        """Changes one word of a map's instructions, mostly to a value that the verifier accepts."""
        maps = [n for n in self.nodes if n.op == "map"]
        if not maps:
            return self.attribute()
        node, rng = self.rng.choice(maps), self.rng
        words = list(node.attribute("program"))
        at, count = 5 * rng.randrange(max(1, len(words) // 5)), len(words) // 5
        if not words:
            return None
        how = rng.randrange(4)
        if how == 0:
            words[at] = rng.choice([number for number, _, _ in OPCODES.values()])
        elif how == 1:
            words[at + 1] = rng.choice((1, 4, 7, 8))
        elif how == 2:
            words[at + rng.randint(2, 4)] = rng.choice((rng.randrange(count), self.integer()))
        else:  # repeats an instruction
            words[at:at] = words[at : at + 5]
        node.attributes["program"] = tuple(words)

    def shape(self) -> None:
        t, rng = self.tensor(), self.rng
        dims: list[Any] = list(t.shape) if t.shape is not None else []
        how = rng.random()
        if dims and how < 0.6:
            dims[rng.randrange(len(dims))] = rng.choice((rng.choice(SIZES), rng.randint(0, 9), None, "n"))
        elif how < 0.75:
            dims.insert(rng.randint(0, len(dims)), rng.choice((1, 2, 1 << 33, None)))
        elif dims and how < 0.9:
            dims.pop(rng.randrange(len(dims)))
        t.shape = None if how > 0.95 else tuple(dims)
        self.fit(t)

    def fit(self, t: Tensor) -> None:
        """Gives a constant data that fits its new shape and type."""
        if t.data is None:
            return
        known = t.static_shape
        if known is None or int(np.prod(known, dtype=object)) > MOST_CONSTANT:
            t.data = None
            self.open(t)
            return
        with np.errstate(all="ignore"):
            flat = np.resize(t.data.reshape(-1) if t.data.size else np.zeros(1, t.data.dtype), known)
            t.data = np.ascontiguousarray(flat.astype(numpy_dtype(t.dtype))).reshape(known)

    def open(self, t: Tensor) -> None:
        """Turns a constant (shapes, axes, weights, bounds) into an input, so that the data decides it."""
        t.data = None
        if t not in self.function.inputs:
            self.function.inputs.append(t)
        for signature in self.graph.signatures.values():
            if signature.function is self.function and len(signature.inputs) < len(self.function.inputs):
                signature.inputs.append(f"opened{len(signature.inputs)}")

    def opened(self) -> None:
        constants = [t for t in self.tensors if t.data is not None]
        if constants:
            self.open(self.rng.choice(constants))

    def dtype(self) -> None:
        t = self.tensor()
        t.dtype = self.rng.choice(DTYPES)
        self.fit(t)

    def value(self) -> None:
        constants = [t for t in self.tensors if t.data is not None and t.data.size]
        if not constants:
            return
        t, rng = self.rng.choice(constants), self.rng
        assert t.data is not None
        data = np.array(t.data)
        with np.errstate(all="ignore"):
            if data.dtype.kind == "f":
                data.reshape(-1)[rng.randrange(data.size)] = rng.choice(REALS)
            else:
                at = rng.randrange(data.size)
                old = int(data.reshape(-1)[at])
                data.reshape(-1)[at] = np.array(self.integer(old) & 0xFFFFFFFFFFFFFFFF, np.uint64).astype(data.dtype)
        t.data = data

    def quantization(self) -> None:
        t, rng = self.tensor(), self.rng
        old = t.quantization
        if old is None or rng.random() < 0.2:
            if rng.random() < 0.3:
                t.dtype = rng.choice(("i8", "u8", "i4", "u4", "i16", "i32"))
                self.fit(t)
            t.quantization = Quantization(np.array([0.5], np.float32), np.array([rng.choice((0, 3, -128))], np.int32))
            return
        count = rng.choice((0, 1, 2, 3, 4, 8, 300, old.scale.size + 1))
        scale, zero = np.array(old.scale, np.float32).reshape(-1), np.array(old.zero, np.int64).reshape(-1)
        how = rng.randrange(6)
        if how == 0 and scale.size:
            with np.errstate(over="ignore"):
                scale[rng.randrange(scale.size)] = rng.choice(REALS)
        elif how == 1 and zero.size:
            zero[rng.randrange(zero.size)] = rng.choice((-(2**31), -129, -1, 0, 127, 128, 255, 65535, 2**31 - 1))
        elif how == 2:
            scale = np.resize(scale, count)
        elif how == 3:
            zero = np.resize(zero, count)
        elif how == 4:
            scale, zero = np.resize(scale, count), np.resize(zero, count)
        axis = rng.choice((None, 0, 1, 2, 3, -1, -9, 2**31 - 1, -(2**31))) if rng.random() < 0.3 else old.axis
        bits = rng.choice((0, 1, 2, 3, 4, 7, 8, 16, 31, 32, 63, 64, 255)) if how == 5 else old.bits
        block = old.block if rng.random() < 0.8 else rng.choice((0, 1, 2, 16, 32, 33, 2**31 - 1, 2**31, 2**32 - 1))
        t.quantization = Quantization(scale, zero.astype(np.int32), axis, bits, block)

    def operand(self) -> None:
        node, rng = self.node(), self.rng
        how = rng.random()
        if node.inputs and how < 0.6:
            node.inputs[rng.randrange(len(node.inputs))] = rng.choice((self.tensor(), self.earlier(node)))
        elif node.inputs and how < 0.75:
            node.inputs[rng.randrange(len(node.inputs))] = None
        elif node.inputs and how < 0.85:
            node.inputs.pop(rng.randrange(len(node.inputs)))
        else:
            node.inputs.insert(rng.randint(0, len(node.inputs)), self.earlier(node))

    def earlier(self, node: Node) -> Tensor:
        """Returns a tensor that exists when the node runs."""
        made = [t for n in self.nodes[: self.nodes.index(node)] for t in n.outputs]
        return self.rng.choice(
            [*made, *self.function.inputs, *(t for t in self.tensors if t.data is not None)] or self.tensors
        )

    def op(self) -> None:
        """Replaces the op by another one on the same operands, which keeps attributes with equal names."""
        node, rng = self.node(), self.rng
        node.op = rng.choice([name for name in OPS if name not in ("call", "if", "while")])
        specs = OPS[node.op]["attributes"]
        node.attributes = {
            k: v for k, v in node.attributes.items() if k in specs and _suits(v, specs[k][1], specs[k][3])
        }  # fmt: skip

    def order(self) -> None:
        rng, nodes = self.rng, self.nodes
        a, b = rng.randrange(len(nodes)), rng.randrange(len(nodes))
        nodes[a], nodes[b] = nodes[b], nodes[a]

    def drop(self) -> None:
        """Removes a node; its results become inputs."""
        node = self.node()
        self.nodes.remove(node)
        for t in node.outputs:
            t.node = None
            self.open(t)

    def ports(self) -> None:
        """Changes inputs and outputs of a function without its callers' knowledge."""
        function, rng = self.rng.choice(self.graph.functions), self.rng
        ports = rng.choice((function.inputs, function.outputs))
        tensors = list(function.tensors()) or ports
        how = rng.random()
        if ports and how < 0.3:
            ports.pop(rng.randrange(len(ports)))
        elif ports and how < 0.6:
            a, b = rng.randrange(len(ports)), rng.randrange(len(ports))
            ports[a], ports[b] = ports[b], ports[a]
        elif tensors:
            ports.append(rng.choice(tensors))
        for s in self.graph.signatures.values():
            if s.function is function and rng.random() < 0.9:
                s.inputs = [f"in{i}" for i in range(len(function.inputs))]
                s.outputs = [f"out{i}" for i in range(len(function.outputs))]

    def calls(self) -> None:
        """Replaces a sub-graph by another one: with other ports, by its caller, or by itself."""
        callers = [n for f in self.graph.functions for n in f.nodes if n.op in ("call", "if", "while")]
        if not callers:
            return self.attribute()
        node = self.rng.choice(callers)
        names = [name for name, spec in OPS[node.op]["attributes"].items() if spec[1] == "function"]
        node.attributes[self.rng.choice(names)] = self.rng.choice(self.graph.functions)
        return None

    def variable(self) -> None:
        rng, variables = self.rng, list(self.graph.variables.values())
        if not variables:
            return self.value()
        v = rng.choice(variables)
        how = rng.random()
        with np.errstate(all="ignore"):
            if how < 0.4:
                v.value = np.resize(v.value, [rng.choice((0, 1, 2, 3, 5, 8)) for _ in range(rng.randint(0, 4))])
            elif how < 0.7:
                v.value = np.ascontiguousarray(v.value.astype(numpy_dtype(rng.choice(DTYPES))))
            else:
                readers = [t for t in self.tensors if t.variable is not None]
                if readers:
                    rng.choice(readers).variable = v
        return None

    CHANGES: tuple[Callable[[Mutation], None], ...] = (
        attribute, attribute, attribute, attribute, program, shape, shape, shape, opened, opened, dtype, value, value, value,
        quantization, quantization, operand, operand, op, order, drop, ports, calls, variable,
    )  # fmt: skip


def _suits(value: Any, kind: str, values: Any) -> bool:
    if kind == "enum":
        return value in values
    if kind == "function":
        return value is None or isinstance(value, Function)
    if kind in ("ints", "floats"):
        return isinstance(value, tuple | list)
    if kind == "bytes":
        return isinstance(value, bytes)
    return isinstance(value, str) if kind == "dtype" else isinstance(value, int | float)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Returns the file with one to four changes; tries again if it cannot be written."""
    for _ in range(40):
        graph = from_bytes(content)
        try:
            for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
                rng.choice(Mutation.CHANGES)(Mutation(graph, rng))
            return to_bytes(graph)
        except Exception:  # the writer cannot represent it
            continue
    return content


def write(folder: Path, first: int, last: int) -> list[Path]:
    """Writes the graphs of the corpus as they are, and the mutants `first` to `last` - 1."""
    seeds = [to_bytes(graph) for graph in corpus()]
    files = {f"seed{number}": content for number, content in enumerate(seeds)}
    for number in range(first, last):
        rng = random.Random(number)
        files[f"mutant{number}"] = mutated(rng.choice(seeds), rng)
    for name, content in files.items():
        (folder / f"{name}.lnt").write_bytes(content)
    return [folder / f"{name}.lnt" for name in files]


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
