"""Writes batches of random map programs as one .lnt file, plus a file of feeds and expected results for tests/fuzz/fuzz_map.c.
The second file has, per input, its bytes, and per output a f64 (relative error, 0: the same bits) and its bytes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from linnet.facade import Graph
from linnet.ir.function import Function, Node, Tensor, emit
from tests.maps.numbers import Array
from tests.maps.programs import Case, Operand, case_of


class Batch:
    """Puts independent cases into one graph."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.main: Function = self.graph.function()
        self.feeds: list[Array] = []
        self.results: list[tuple[float, Array]] = []

    def feed(self, array: Array, dtype: str) -> Tensor:
        self.feeds.append(array)
        return self.main.placeholder(f"x{len(self.feeds)}", dtype, array.shape)

    def operand(self, case: Case, operand: Operand, seed: int) -> Tensor:
        """The operand as a tensor with the value of its array."""
        x, rng = operand.array, np.random.default_rng(seed)
        if operand.source == "constant":
            value = x.view(ml_dtypes.bfloat16) if operand.dtype == "bf16" else x
            return self.main.constant(value, "c", operand.dtype, operand.quantization)
        if operand.source == "transposed":
            perm = [int(i) for i in rng.permutation(x.ndim)]
            placed = self.feed(np.ascontiguousarray(x.transpose(np.argsort(perm))), operand.dtype)
            return emit("copy", [placed], {"kind": "transpose", "perm": perm})[0]
        if operand.source == "sliced":
            axis, front, step = int(rng.integers(x.ndim)), int(rng.integers(3)), int(rng.integers(1, 3))
            sizes = list(x.shape)
            sizes[axis] = front + sizes[axis] * step
            whole = np.zeros(sizes, x.dtype)
            cut = [slice(front, None, step) if i == axis else slice(None) for i in range(x.ndim)]
            whole[tuple(cut)] = x
            placed = self.feed(whole, operand.dtype)
            ends = {"starts": [front], "ends": [sizes[axis]], "axes": [axis], "steps": [step]}
            return emit("copy", [placed], {"kind": "slice", **ends})[0]
        if operand.source == "negated":
            opcodes = {"f32": 1, "f64": 4, "i32": 7, "i64": 8}
            kind, placed = opcodes[operand.dtype], self.feed(np.negative(x), operand.dtype)
            words = (1, kind, 0, 0, 0, 48, kind, 0, 0, 0, 3, kind, 1, 0, 0)
            return self.node([placed], {"program": words, "dtypes": (kind,)}, [(operand.dtype, x.shape, None)])[0]
        if operand.source in ("product", "conv"):
            op = "matmul" if operand.source == "product" else "conv"
            return emit(op, [self.feed(operand.factors[0], "f32"), self.main.constant(operand.factors[1]), None], {})[0]
        tensor = self.feed(x, operand.dtype)
        tensor.quantization = operand.quantization
        return tensor

    def node(self, inputs: list[Tensor], attributes: dict[str, Any], outputs: list[tuple[Any, ...]]) -> list[Tensor]:
        made = [self.main.tensor("y", dtype, shape) for dtype, shape, _ in outputs]
        for tensor, (_, _, quantization) in zip(made, outputs, strict=True):
            tensor.quantization = quantization
        self.main.nodes.append(Node("map", list(inputs), made, attributes, made[0].name))
        return made

    def add(self, seed: int) -> None:
        case = case_of(seed)
        operands = [self.operand(case, operand, seed + i) for i, operand in enumerate(case.operands)]
        attributes = case.program.attributes([r.dtype for r in case.results])
        outputs = [(r.dtype, case.shape, r.quantization) for r in case.results]
        for i, (tensor, result) in enumerate(zip(self.node(operands, attributes, outputs), case.results, strict=True)):
            tensor.name = f"case{seed}_{i}"
            self.main.outputs.append(tensor)
            self.results.append((result.error, result.array))

    def write(self, path: Path) -> None:
        """Writes PATH and PATH.bin."""
        self.graph.signature("infer", self.main)
        path.write_bytes(self.graph.to_bytes())
        with open(f"{path}.bin", "wb") as file:
            for array in self.feeds:
                file.write(array.tobytes())
            for error, array in self.results:
                file.write(np.float64(error).tobytes() + np.ascontiguousarray(array).tobytes())


def write(path: Path, seeds: Iterable[int]) -> None:
    """Makes one batch of the cases of these seeds."""
    batch = Batch()
    for seed in seeds:
        batch.add(seed)
    batch.write(path)
