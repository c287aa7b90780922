"""The texts of CUDA's products compile for each architecture with nvcc, and inner loops keep no registers in memory. linnet
writes the texts for a GPU that is not there; tests/cuda/resources.json has the registers of each tile (tests/cuda/compile.py)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linnet import Graph, ops
from linnet.ir.function import emit
from tests.cuda.nvcc import need_nvcc
from tests.cuda_device import NVRTC
from tests.cuda_rig import CUDA, need_standins
from tests.tree import ROOT

FOLDER = ROOT / "tests" / "cuda"


def products(dtype: str) -> Graph:
    """A matmul of each kind of size, and a convolution of each way to read x."""
    graph, inputs, outputs = Graph(), {}, {}

    def constant(*shape: int) -> Any:
        value = graph.constant(np.full(shape, 0.5, np.float32), f"c{len(outputs)}_{len(shape)}_{shape[0]}")
        return ops.cast(value, dtype=dtype) if dtype != "f32" else value

    def placeholder(*shape: int) -> Any:
        name = f"x{len(inputs)}"
        inputs[name] = graph.placeholder(name, shape)
        return ops.cast(inputs[name], dtype=dtype) if dtype != "f32" else inputs[name]

    for m, n, k in ((1024, 2048, 512), (1, 1000, 2048), (200, 72, 50)):
        outputs[f"y{len(outputs)}"] = ops.matmul(placeholder(m, k), constant(k, n))
        outputs[f"y{len(outputs)}"] = ops.matmul(placeholder(m, k), placeholder(k, n))
    for channels, size, n, kernel in ((64, 56, 64, 3), (3, 64, 32, 3), (256, 14, 512, 1)):
        w = constant(n, channels, kernel, kernel)
        pad = kernel // 2
        for axis, shape in ((1, (1, channels, size, size)), (-1, (1, size, size, channels))):
            y = ops.conv(placeholder(*shape), w, channel_axis=axis, pads=[pad] * 4)
            outputs[f"y{len(outputs)}"] = ops.relu(y)
    graph.signature("infer", inputs, outputs)
    return graph


def gradients(dtype: str) -> Graph:
    """Of weights and of inputs of convolutions of several sizes, with both places of the channels."""
    graph = Graph()
    main = graph.function()
    sizes = [
        (128, 64, 192, (27, 27), 5, 1),
        (2, 3, 64, (224, 224), 11, 4),
        (8, 32, 32, (14, 14), 3, 1),
        (4, 64, 64, (8, 8, 8), 3, 1),
    ]
    for images, channels, n, size, kernel, stride in sizes:
        space, out = len(size), [(v - 1) // stride + 1 for v in size]
        pads, strides = [kernel // 2] * 2 * space, [stride] * space
        for axis in (1, -1):
            x, g = ((images, c, *s) if axis == 1 else (images, *s, c) for c, s in ((channels, size), (n, out)))
            fed = [main.placeholder(f"{kind}{len(main.outputs)}", dtype, shape) for kind, shape in (("x", x), ("g", g))]
            more = {"strides": strides, "pads": pads, "channel_axis": axis}
            main.outputs += emit("conv_gradient", fed, {"kernel": [kernel] * space, **more}, 1)
            if stride == 1:
                w = main.placeholder(f"w{len(main.outputs)}", dtype, (n, channels, *[kernel] * space))
                main.outputs += emit("conv_transpose", [fed[1], w], more, 1)
    graph.signature("infer", main)
    return graph


@pytest.mark.more
@pytest.mark.parametrize("compute", [75, 87, 90])
@pytest.mark.parametrize("build", [products, gradients])
def test_texts_compile(build: Callable[[str], Graph], compute: int, tmp_path: Path) -> None:
    compiler = need_nvcc()
    for dtype, precision in (("f32", "f32"), ("f32", "tf32"), ("f16", "f32")):
        graph = build(dtype)
        model = tmp_path / f"{dtype}.lnt"
        graph.save(model)
        device = f"cuda:0,for={compute},texts={tmp_path}"
        plan = [sys.executable, "-m", "linnet", "plan", str(model), "--device", device, "--precision", precision]
        subprocess.run(plan, check=True, capture_output=True, timeout=300)
    texts = sorted(tmp_path.glob("*.cu"))
    own = [text for text in texts if re.search(r"lg_gemm|lg_depthwise|lg_multiply", text.read_text())]
    assert len(own) > 8, [text.name for text in texts]
    arch = f"{compute}a" if compute == 90 else str(compute)
    for text in own:
        command = [compiler, "-cubin", "-std=c++17", "--fmad=false", "-gencode", f"arch=compute_{arch},code=sm_{arch}",
                   "-Xptxas", "-v", "-o", os.devnull, str(text)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[:2000]
        assert "serialized" not in done.stderr
        spilled = [int(v) for v in re.findall(r"(\d+) bytes spill stores", done.stderr)]
        # The large tile of multiply-adds has 128 registers; what it keeps in memory is used outside of its inner loop.
        most = 96 if "#define MATH 0\n#define BLOCKS 2" in text.read_text() else 0
        # So does a tile of f16 whose A goes through registers, on Turing.
        if compute == 75 and "#define A_LOAD 2" in text.read_text():
            most = 32
        assert max(spilled) <= most, (text, done.stderr[-400:])


def test_every_tile_is_in_the_table() -> None:
    sys.path.insert(0, str(FOLDER))
    try:
        import compile as tool
    finally:
        sys.path.remove(str(FOLDER))
    known = json.loads((FOLDER / "resources.json").read_text())
    assert sorted(known) == sorted(tool.names())
    assert [name for name, values in known.items() if values["spills"]] == []


@pytest.mark.more
def test_emulated_products() -> None:
    """Every dtype, tile and way to load, at sizes around the tile, against NumPy."""
    need_standins()
    environment = {**os.environ, "LINNET_CUDA": str(CUDA), "LINNET_NVRTC": str(NVRTC), "OUT": os.devnull}
    done = subprocess.run(
        [sys.executable, str(FOLDER / "gemm_run.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
