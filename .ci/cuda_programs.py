#!/usr/bin/env python3
"""Compiles the CUDA programs of standard models with nvcc into one file, which CMake embeds: LINNET_CUDA_PROGRAMS=FILE. A machine
without NVRTC then runs models that consist of the same programs. `python .ci/cuda_programs.py FILE [--jobs N]`. What nvcc made of
a text is kept in build/cuda-fatbins, so that a second run takes seconds."""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import linnet  # noqa: E402
from linnet import nn  # noqa: E402
from linnet.session.planner import Planner  # noqa: E402
from tests import nets  # noqa: E402
from tests.cuda.nvcc import MISSING, find_nvcc  # noqa: E402

# What is compiled for the texts of each architecture: PTX for all later GPUs, and machine code.
CODE = {75: ("arch=compute_75,code=compute_75",), 87: ("arch=compute_80,code=compute_80", "arch=compute_87,code=sm_87"),
        90: ("arch=compute_90a,code=sm_90a",)}  # fmt: skip
FORMATS = ("f32", "f16", "i8")
KEPT = ROOT / "build" / "cuda-fatbins"


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
    return {path: needed(codes) for path, codes in found.items()}


def needed(codes: tuple[str, ...]) -> tuple[str, ...]:
    """Leaves out what other code stands in for, because a GPU's driver takes PTX of any older architecture: newer PTX, and where
    there is PTX the machine code for servers. It stays for boards, whose processors take long to compile."""
    ptx = sorted(code for code in codes if "code=compute" in code)
    machine = sorted(code for code in codes if "code=sm" in code and not (ptx and code.endswith("sm_90a")))
    return (*ptx[:1], *machine)


def version(nvcc: str) -> int:
    """CUDA's version as its driver counts it: 13000 for 13.0. A driver must be as new for what nvcc makes."""
    said = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout
    major, minor = map(int, re.findall(r"release (\d+)\.(\d+)", said)[0])
    return 1000 * major + 10 * minor


def compiled(nvcc: str, path: Path, codes: tuple[str, ...]) -> bytes:
    """What nvcc makes of a text, or made of it earlier."""
    words = [word for code in codes for word in ("-gencode", code)]
    words += ["--std=c++17", "--fmad=false", "-w", "-compress-mode=size"]
    key = hashlib.sha256("\n".join([path.read_text(), str(version(nvcc)), *words]).encode()).hexdigest()
    kept = KEPT / key[:40]
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        out = kept.with_suffix(f".{os.getpid()}")
        subprocess.run([nvcc, "-fatbin", *words, "-o", str(out), str(path)], check=True)
        out.replace(kept)  # others see the whole file or none
    return kept.read_bytes()


def pack(codes: dict[str, bytes], cuda: int) -> bytes:
    """The file that kernels_gpu/cuda/pack.c reads: codes by the hashes that are the names of the texts. `cuda` is the version of
    CUDA that a driver must have for them."""
    entries = sorted((int(name[:16], 16), int(name[16:32], 16), code) for name, code in codes.items())
    at = 16 + 32 * len(entries)
    head, body = struct.pack("<8sII", b"LNCUPACK", len(entries), cuda), bytearray()
    for first, second, code in entries:
        body += b"\0" * (-(at + len(body)) % 16)
        head += struct.pack("<3QII", first, second, at + len(body), len(code), zlib.crc32(code))
        body += code
    return head + bytes(body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit(MISSING)
    with tempfile.TemporaryDirectory() as folder:
        found = texts(Path(folder))
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            made = pool.map(lambda one: compiled(nvcc, *one), found.items())
            codes = dict(zip((path.stem for path in found), made, strict=True))
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_bytes(pack(codes, version(nvcc)))
    print(f"{len(codes)} programs, {options.file.stat().st_size} bytes: {options.file}")


if __name__ == "__main__":
    main()
