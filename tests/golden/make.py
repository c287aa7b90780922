"""Writes the golden file of a release: `python -m tests.golden.make N`, once, when version N of the format is released.
It holds one of each: float and quantized layers, a variable and its assignment, sub-graphs, several signatures, metadata."""

from __future__ import annotations

import sys
from pathlib import Path

import linnet
import numpy as np
from linnet.graph import Graph, emit

from tests.graphs import branch, feeds, pointwise, quantized

HERE = Path(__file__).resolve().parent
FEEDS = {"infer": feeds("conv_net"), "choose": feeds("branch"), "count": feeds("counter")}


def graph() -> Graph:
    """`infer`: an int8 network; `choose`: an `if`; `count`: total += x."""
    made = quantized("i8")
    made.metadata["source"] = "tests/golden/make.py"
    chooser = branch()
    for function in chooser.functions:
        function.graph = made
        made.functions.append(function)
    made.signature("choose", chooser.functions[0], outputs=["y"])
    total = made.variable("total", np.arange(4, dtype=np.float32))
    count = made.function("count")
    before = count.read(total)
    count.outputs.append(emit("assign", [before, pointwise("add", before, count.placeholder("x", "f32", (4,)))], {})[0])
    made.signature("count", count, outputs=["y"])
    return made


def results(source: Path) -> dict[str, np.ndarray]:
    """{"signature.output": array} of every signature run on its fixed input."""
    found = {}
    for signature, data in FEEDS.items():
        for name, value in linnet.Session(source, signature).run(data).items():
            found[f"{signature}.{name}"] = value
    return found


if __name__ == "__main__":
    path = HERE / f"v{int(sys.argv[1])}.lnt"
    if path.exists() and "--again" not in sys.argv:
        raise SystemExit(f"{path.name} exists: a golden file is never written again")
    graph().save(path)
    np.savez(path.with_suffix(".npz"), **results(path))
    print(f"{path.name}: {path.stat().st_size} bytes")
