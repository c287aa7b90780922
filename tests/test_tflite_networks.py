"""Small networks with random structure, weights and quantization, made here, against LiteRT's reference kernels: every tensor of
8-bit and 16-bit integer networks bit for bit, float and hybrid ones to 1e-4 of the range of each tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import linnet
from tests.tflite_models import G, O, T, build

litert = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="LiteRT is the reference: pip install ai-edge-litert (22 MB)"
)
ACTIVATIONS = ("none", "relu", "relu6")


class Network:
    """Builds a network operator by operator. `spread` is the approximate size of a tensor's numbers."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.rng = kind, np.random.default_rng(seed)
        self.dtype = "f32" if kind in ("f32", "hybrid") else kind
        self.tensors: list[T] = []
        self.operators: list[O] = []
        self.spread: dict[str, float] = {}
        self.x = self.tensor([2, 12, 10, 4], 1.0)

    def tensor(self, shape: Sequence[int], spread: float, like: T | None = None) -> T:
        """like: a tensor with the same quantization."""
        scale, zero = None, 0
        if like is not None:
            scale, zero = like.scale, like.zero
        elif self.dtype != "f32":
            scale = 3 * spread / (32768 if self.dtype == "i16" else 128)
            zero = 0 if self.dtype == "i16" else int(self.rng.integers(-20, 20)) + (128 if self.dtype == "u8" else 0)
        made = T(f"t{len(self.tensors)}", self.dtype, list(shape), scale, zero)
        self.tensors.append(made)
        self.spread[made.name] = spread
        return made

    def constant(self, value: np.ndarray, dtype: str, **keys: Any) -> T:
        made = T(f"c{len(self.tensors)}", dtype, value.shape, value=value, **keys)
        self.tensors.append(made)
        return made

    def add(self, op: str, inputs: Sequence[T], output: T, **options: Any) -> T:
        self.operators.append(O(op, [t.name for t in inputs], [output.name], options))
        return output

    def weights(self, x: T, shape: Sequence[int], axis: int) -> tuple[T, T, float]:
        """Weights, bias, and the spread of their product with x."""
        outs, taps = shape[axis], math.prod(shape) // shape[axis]
        if self.kind == "f32":
            w = self.constant(self.rng.normal(0, 1 / math.sqrt(taps), shape).astype(np.float32), "f32")
            return w, self.constant(self.rng.normal(0, 0.2, outs).astype(np.float32), "f32"), self.spread[x.name]
        spread = self.spread[x.name]
        if self.kind == "u8":
            scale = 1 / math.sqrt(taps) / 40
            w = self.constant(self.rng.integers(0, 256, shape).astype(np.uint8), "u8", scale=scale, zero=130)
            own: Any = x.scale * scale
        else:
            scale = self.rng.uniform(0.5, 1.5, outs) / math.sqrt(taps) / 70
            value = self.rng.integers(-127, 128, shape).astype(np.int8)
            w = self.constant(value, "i8", scale=scale, zero=0, axis=axis)
            if self.kind == "hybrid":
                return w, self.constant(self.rng.normal(0, 0.2, outs).astype(np.float32), "f32"), spread
            own = np.float32(x.scale) * scale.astype(np.float32)
        wide = self.kind == "i16"
        value = np.round(self.rng.normal(0, 0.2 * spread, outs) / own).astype(np.int64 if wide else np.int32)
        return w, self.constant(value, "i64" if wide else "i32", scale=own, zero=0), spread * 2

    def convolve(self, x: T, depthwise: bool) -> T:
        n, h, w, c = x.shape
        k, step, same = int(self.rng.choice([1, 3])), int(self.rng.choice([1, 2])), bool(self.rng.random() < 0.7)
        same = same or min(h, w) < k
        outs = c * int(self.rng.choice([1, 2])) if depthwise else int(self.rng.integers(3, 9))
        kernel, bias, spread = self.weights(x, [1, k, k, outs] if depthwise else [outs, k, k, c], 3 if depthwise else 0)
        size = [-(-d // step) if same else (d - k) // step + 1 for d in (h, w)]
        common = {"padding": 0 if same else 1, "stride_w": step, "stride_h": step, "dilation_w": 1, "dilation_h": 1,
                  "activation": self.rng.choice(ACTIVATIONS)}  # fmt: skip
        if depthwise:
            common["multiplier"] = outs // c
        return self.add("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", [x, kernel, bias],
                        self.tensor([n, *size, outs], spread), **common)  # fmt: skip

    def pool(self, x: T) -> T:
        n, h, w, c = x.shape
        size = [-(-h // 2), -(-w // 2)]
        op, y = (
            str(self.rng.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"])),
            self.tensor([n, *size, c], self.spread[x.name], x),
        )
        return self.add(op, [x], y, padding=0, stride_w=2, stride_h=2, filter_w=2, filter_h=2, activation="none")

    def pointwise(self, x: T) -> T:
        """The sum or the product of x with another function of it."""
        other = self.add("LEAKY_RELU", [x], self.tensor(x.shape, self.spread[x.name]), alpha=0.3)
        op = str(self.rng.choice(["ADD", "SUB", "MUL"]))
        spread = self.spread[x.name]
        act = "none" if op == "SUB" else self.rng.choice(ACTIVATIONS)
        return self.add(
            op, [x, other], self.tensor(x.shape, spread * spread if op == "MUL" else 2 * spread), activation=act
        )

    def joined(self, x: T) -> T:
        """x concatenated with a function of it, with the same quantization."""
        other = self.tensor(x.shape, self.spread[x.name], x)
        self.add("RELU", [x], other)
        *lead, c = x.shape
        y = self.tensor([*lead, 2 * c], self.spread[x.name], x)
        return self.add("CONCATENATION", [x, other], y, axis=3, activation="none")

    def model(self) -> bytes:
        x = self.x
        for _ in range(int(self.rng.integers(5, 9))):
            if min(x.shape[1:3]) < 3:
                break
            step = self.rng.choice(["conv", "conv", "depthwise", "pool", "pointwise", "joined"])
            if step in ("conv", "depthwise"):
                x = self.convolve(x, step == "depthwise")
            else:
                x = getattr(self, step)(x)
        axes = self.constant(np.int32([1, 2]), "i32")
        x = self.add("MEAN", [x, axes], self.tensor([x.shape[0], x.shape[3]], self.spread[x.name]), keep_dims=False)
        kernel, bias, spread = self.weights(x, [5, x.shape[1]], 0)
        y = self.add("FULLY_CONNECTED", [x, kernel, bias], self.tensor([x.shape[0], 5], spread), activation="none")
        return build(G(self.tensors, self.operators, [self.x.name], [y.name]))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["f32", "i8", "u8", "i16", "hybrid"])
def test_every_tensor_agrees(kind: str, seed: int) -> None:
    network = Network(kind, seed)
    model = network.model()
    made = litert.Interpreter(
        model_content=model, num_threads=1, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )  # fmt: skip
    made.allocate_tensors()
    dtype = {"f32": np.float32, "i8": np.int8, "u8": np.uint8, "i16": np.int16}[network.dtype]
    rng, shape = np.random.default_rng(seed), network.x.shape
    if dtype == np.float32:
        x = rng.standard_normal(shape).astype(dtype)
    else:
        x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
    made.set_tensor(made.get_input_details()[0]["index"], x)
    made.invoke()
    places = {d["name"]: d["index"] for d in made.get_tensor_details()}
    graph = linnet.from_tflite(model, optimize=False)
    names = [o.outputs[0] for o in network.operators]
    results = linnet.Session(graph).run({network.x.name: x}, names)
    assert len(names) >= 5
    last = linnet.Session(linnet.from_tflite(model)).run({network.x.name: x})[names[-1]]
    for operator, name in zip(network.operators, names, strict=True):
        got, wanted = results[name], made.get_tensor(places[name])
        if dtype == np.float32:
            span = float(wanted.max() - wanted.min())
            assert float(np.abs(got - wanted).max()) <= 1e-4 * span, f"{operator.op} {name}"
        else:
            np.testing.assert_array_equal(got, wanted, err_msg=f"{operator.op} {name}")
    assert np.unique(results[names[0]]).size > 20
    np.testing.assert_allclose(last.astype(np.float64), results[names[-1]].astype(np.float64), rtol=1e-5, atol=1e-5)
