"""Changes a TFLite model before it is written: shapes, types, scales, operators, options, indices.
The writer of tests/tflite_models.py then writes a complete flatbuffer, so that the damage gets past the verifier."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence

import numpy as np

from linnet.converters.tflite.schema import OPS, OPTIONS
from tests.tflite_models import TYPES, G, O, T, build

SIZES = (-(2**31), -2, -1, 0, 1, 2, 3, 7, 255, 2**16, 2**31 - 1)


def mutated(graphs: Sequence[G], rng: random.Random) -> bytes:
    """Returns the file with one to three changes; tries again if it cannot be written."""
    for _ in range(20):
        changed = copy.deepcopy(list(graphs))
        for _ in range(rng.randint(1, 3)):
            change(rng.choice(changed), rng)
        try:
            return build(*changed)
        except Exception:  # the writer cannot represent it
            continue
    return build(*graphs)


def change(graph: G, rng: random.Random) -> None:
    tensors = list(graph.tensors)
    operators = list(graph.operators)
    t: T = rng.choice(tensors)
    o: O | None = rng.choice(operators) if operators else None
    names = [*(x.name for x in tensors), ""]
    how = rng.randrange(11)
    if how == 0:
        shape = list(t.shape)
        if shape and rng.random() < 0.7:
            shape[rng.randrange(len(shape))] = rng.choice(SIZES)
        else:
            shape.insert(rng.randint(0, len(shape)), rng.choice(SIZES))
        t.shape = shape
    elif how == 1:
        t.dtype = rng.choice(sorted(TYPES))
    elif how == 2:
        t.scale = rng.choice([0.0, -1.0, 1e-38, 1e38, float("nan"), float("inf"), [0.5, 0.25], [0.1] * 1000, None])
        t.zero = rng.choice([0, 127, -129, 2**31, 2**40])
        t.axis = rng.choice([0, 1, 3, -1, 99])
    elif how == 3:
        value = np.asarray(t.value if t.value is not None else np.zeros(4, np.int32))
        how_much = rng.choice([0, 1, value.nbytes // 2, value.nbytes + 4])
        t.value = np.frombuffer((value.tobytes() + b"\1" * 8)[:how_much], np.uint8)
    elif how == 4 and t.value is not None and np.asarray(t.value).size:  # these are often axes, shapes and indices
        value = np.array(t.value)
        with np.errstate(all="ignore"):
            value.reshape(-1)[rng.randrange(value.size)] = np.int64(rng.choice(SIZES)).astype(value.dtype)
        t.value = value
    elif how == 5:
        t.variable = not t.variable
    elif how == 6:
        t.signature = [rng.choice([-1, 0, 3]) for _ in range(rng.randint(0, 5))]
    elif how == 7 and o is not None:
        ports = list(o.inputs) if rng.random() < 0.7 else list(o.outputs)
        if ports and rng.random() < 0.7:
            ports[rng.randrange(len(ports))] = rng.choice(names)
        elif ports:
            ports.pop()
        else:
            ports.append(rng.choice(names))
        if len(ports) == len(o.outputs) and rng.random() < 0.3:
            o.outputs = [p for p in ports if p]
        else:
            o.inputs = ports
    elif how == 8 and o is not None:
        o.op = rng.choice([op for op in OPS if op])
        o.options = {k: v for k, v in o.options.items() if k in OPTIONS.get(o.op, {})}
    elif how == 9 and o is not None and o.options:
        key = rng.choice(sorted(o.options))
        kind = OPTIONS[o.op][key][1] if o.op in OPTIONS and key in OPTIONS[o.op] else ""
        if kind in ("i32", "i8", "u32"):
            o.options[key] = rng.choice(
                [-(2**31), -1, 0, 1, 2, 5, 100, 2**31 - 1] if kind != "i8" else [-1, 0, 1, 5, 100]
            )
        elif kind == "f32":
            o.options[key] = rng.choice([0.0, -1.0, float("nan"), 1e38])
        elif kind == "bool":
            o.options[key] = not o.options[key]
    elif how == 10:
        ports = list(rng.choice([graph.inputs, graph.outputs]))
        ports.append(rng.choice(names[:-1]))
        if rng.random() < 0.5:
            graph.inputs = ports
        else:
            graph.outputs = ports
