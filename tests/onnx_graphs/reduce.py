"""`python -m tests.onnx_graphs.reduce SEED` prints the smallest part of a failing graph that still fails, as text.
It drops outputs, then turns values into inputs, as long as the rest fails in the same way."""

from __future__ import annotations

import copy
import random
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.onnx_graphs.builder import Value, declared, names_read, session_of
from tests.onnx_graphs.judge import Case, difference, judge, make


def live(model: onnx.ModelProto) -> onnx.ModelProto:
    """Removes nodes, inputs and initializers that the outputs do not need."""
    graph = model.graph
    wanted = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if wanted & set(node.output):
            wanted |= names_read(node)
            kept.append(node)
    kept = [copy.deepcopy(n) for n in reversed(kept)]
    for field, chosen in (
        ("node", kept), ("input", [i for i in graph.input if i.name in wanted]),
        ("initializer", [t for t in graph.initializer if t.name in wanted]),
    ):  # fmt: skip
        values = [copy.deepcopy(c) for c in chosen]
        del getattr(graph, field)[:]
        getattr(graph, field).extend(values)
    return model


def smaller(case: Case, optimize: bool) -> Case:
    """Drops outputs, then turns values into inputs, as long as the verdict stays the same."""
    model, feeds, expected = case
    kind = judge(case, optimize)[0]

    def fails(candidate: onnx.ModelProto, more: dict[str, np.ndarray], outputs: dict[str, Value]) -> Case | None:
        names = {i.name for i in candidate.graph.input} - {t.name for t in candidate.graph.initializer}
        made = (candidate, {n: v for n, v in more.items() if n in names}, outputs)
        return (
            made
            if judge(made, optimize)[0]
            in ({kind} | ({"wrong", "reference"} if kind in ("wrong", "reference") else set()))
            else None
        )

    for name in list(expected):
        cut = copy.deepcopy(model)
        kept = [o for o in model.graph.output if o.name == name]
        del cut.graph.output[:]
        cut.graph.output.extend(kept)
        found = fails(live(cut), feeds, {name: expected[name]})
        if found:
            model, feeds, expected = found
            break
    inner = [o for n in model.graph.node for o in n.output if o]
    every = copy.deepcopy(model)
    del every.graph.output[:]
    every.graph.output.extend(onnx.helper.make_empty_tensor_value_info(o) for o in inner)
    values = dict(zip(inner, session_of(every).run(None, feeds), strict=True))
    for name in reversed(inner):
        if name in expected:
            continue
        for constant in (False, True):
            cut = copy.deepcopy(model)
            for node in cut.graph.node:
                for i, o in enumerate(node.output):
                    if o == name:
                        node.output[i] = f"{name}_unused"
            if constant:
                cut.graph.initializer.append(numpy_helper.from_array(np.asarray(values[name]), name))
            else:
                cut.graph.input.append(declared(name, np.asarray(values[name])))
            found = fails(live(cut), {**feeds, name: np.asarray(values[name])}, expected)
            if found:
                model, feeds, expected = found
                break
    return model, feeds, expected


def main() -> None:
    warnings.simplefilter("ignore")
    seed = int(sys.argv[1])
    case = make(random.Random(seed))
    assert case is not None
    case = smaller(case, seed % 5 != 0)
    print(onnx.printer.to_text(case[0]))
    for name, value in (*case[1].items(), *((n, v.array) for n, v in case[2].items())):
        print(name, value.dtype, value.shape, value.reshape(-1)[:12])
    for tensor in case[0].graph.initializer:
        print(tensor.name, numpy_helper.to_array(tensor).shape, numpy_helper.to_array(tensor).reshape(-1)[:12])
    print(*judge(case, seed % 5 != 0))
    try:
        results = ReferenceEvaluator(case[0]).run(None, case[1])
        for (name, value), result in zip(case[2].items(), results, strict=True):
            print("onnx.reference:", difference(np.asarray(result), value) or "agrees with ONNX Runtime", name)
    except Exception as error:
        print(f"onnx.reference: {type(error).__name__}: {str(error)[:200]}")


if __name__ == "__main__":
    main()
