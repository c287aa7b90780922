#!/usr/bin/env python3
"""Compiles the CUDA programs of standard models with nvcc into one file, which CMake embeds: LINNET_CUDA_PROGRAMS=FILE. A machine
without NVRTC then runs models that consist of the same programs. `python .ci/cuda_programs.py FILE [--jobs N]`."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import linnet  # noqa: E402
from linnet import nn  # noqa: E402
from linnet.session.planner import Planner  # noqa: E402
from tests import nets  # noqa: E402

# What is compiled for the texts of each architecture: PTX for all later GPUs, and machine code.
CODE = {75: ("arch=compute_75,code=compute_75",), 87: ("arch=compute_80,code=compute_80", "arch=compute_87,code=sm_87"),
        90: ("arch=compute_90a,code=sm_90a",)}  # fmt: skip
FORMATS = ("f32", "f16", "i8")


def encoder() -> tuple[linnet.Graph, dict[str, np.ndarray]]:
    graph = linnet.Graph(seed=0)
    x = graph.placeholder("x", (1, 64, 256))
    y = nn.transformer_encoder_layer(x, 8, 1024)
    graph.signature("infer", {"x": x}, {"y": y})
    return graph.freeze(), {"x": np.random.default_rng(0).standard_normal((1, 64, 256)).astype(np.float32)}


def lstm() -> tuple[linnet.Graph, dict[str, np.ndarray]]:
    graph = linnet.Graph(seed=0)
    x = graph.placeholder("x", (40, 1, 64))
    graph.signature("infer", {"x": x}, {"y": nn.dense(nn.lstm(x, 128)[0], 12)})
    return graph.freeze(), {"x": np.random.default_rng(0).standard_normal((40, 1, 64)).astype(np.float32)}


def models() -> list[tuple[linnet.Graph, dict[str, np.ndarray]]]:
    images = [(linnet.from_onnx(make()), nets.inputs()) for make in nets.NETS.values()]
    return [*images, encoder(), lstm()]


def texts(folder: Path) -> dict[Path, tuple[str, ...]]:
    """Plans the models for each architecture; the device writes the text of each program. Text: what it is compiled for."""
    found: dict[Path, tuple[str, ...]] = defaultdict(tuple)
    for graph, feeds in models():
        for dtype in FORMATS:
            made = graph if dtype == "f32" else linnet.quantize(graph, [feeds], dtype=dtype)
            for compute, codes in CODE.items():
                for precision in ("f32", "tf32") if dtype == "f32" and compute >= 80 else ("f32",):
                    before = set(folder.glob("*.cu"))
                    device = linnet.load_device(f"cuda,for={compute},texts={folder}")
                    seen = folder / "seen"
                    seen.mkdir(exist_ok=True)
                    for path in before:
                        path.rename(seen / path.name)
                    planner = Planner(linnet.Model(made), devices=[device], precision=precision)
                    planner.plan({})
                    for path in folder.glob("*.cu"):
                        found[seen / path.name] = tuple(dict.fromkeys((*found[seen / path.name], *codes)))
                        path.replace(seen / path.name)
    return found


def compiled(path: Path, codes: tuple[str, ...]) -> bytes:
    out = path.with_suffix(".fatbin")
    words = [word for code in codes for word in ("-gencode", code)]
    words += ["--std=c++17", "--fmad=false", "-w", "-compress-mode=size", "-o", str(out), str(path)]
    subprocess.run(["nvcc", "-fatbin", *words], check=True)
    return out.read_bytes()


def pack(codes: dict[str, bytes]) -> bytes:
    """The file that kernels_gpu/cuda/program.c reads: codes by the hashes that are the names of the texts."""
    entries = sorted((int(name[:16], 16), int(name[16:32], 16), code) for name, code in codes.items())
    at = 16 + 32 * len(entries)
    head, body = struct.pack("<8sQ", b"LNCUPACK", len(entries)), b""
    for first, second, code in entries:
        body += b"\0" * (-(at + len(body)) % 16)
        head += struct.pack("<4Q", first, second, at + len(body), len(code))
        body += code
    return head + body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if shutil.which("nvcc") is None:
        sys.exit("nvcc is missing; install the CUDA toolkit, or with pip nvidia-cuda-nvcc, nvidia-nvvm, nvidia-cuda-crt and "
                 "nvidia-cuda-runtime")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        found = texts(Path(folder))
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            codes = dict(zip((path.stem for path in found), pool.map(compiled, found, found.values()), strict=True))
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_bytes(pack(codes))
    print(f"{len(codes)} programs, {options.file.stat().st_size} bytes: {options.file}")


if __name__ == "__main__":
    main()
