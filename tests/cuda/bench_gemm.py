"""Checks and times the kernels of kernels_gpu/cuda/gemm.inc on a GPU, beside cuBLAS and cuDNN if torch is there.

Here: `python tests/cuda/bench_gemm.py build FOLDER` compiles all cubins. On the GPU:
`python3 tests/cuda/bench_gemm.py run FOLDER [SECONDS [PART ...]]` prints tables and writes the numbers to $OUT or FOLDER. Each
part, such as check:tma, gemm:f16 or conv:tf32, is a process of its own; no case stops another one, an error is a line."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gemm_cases as g
import gemm_run as r
import numpy as np
from compile import compile_case

BEGIN = time.time()
MMA = (g.M128, g.M128W, g.M64N128, g.M128N64, g.M64, g.M32, g.M64N32)
WGMMA = (g.G256, g.G128, g.G128N64, g.G64N128, g.G64)
FFMA = (g.F128, g.F64, g.F32)
SPLITS = (2, 4, 8)


def tiles_of(dtype: str) -> tuple[g.Tile, ...]:
    return FFMA if dtype == "f32" else MMA + WGMMA


def gemm_cases() -> list[g.Case]:
    big = [(d, t) for d in ("f16", "bf16", "tf32", "s8") for t in (g.M128, g.M128W, g.G128, g.G256, g.T128, g.T256)]
    return [g.Case(d, t) for d, t in [*big, ("f32", g.F128), ("f32", g.F64)]]


def conv_cases(dtype: str) -> list[g.Case]:
    """Tiles and splits of convolutions whose channels come last."""
    out = []
    for t in tiles_of(dtype):
        out.append(g.Case(dtype, t, conv=True))
        if t.tm * t.tn <= 128 * 64:
            out += [g.Case(dtype, t, conv=True, split=k, cluster=True) for k in SPLITS]
    return out


def checked_cases() -> list[g.Case]:
    more = [g.Case(d, t) for d in ("f16", "bf16", "tf32", "s8", "u8") for t in (g.G64, g.G128, g.G256, g.T128, g.T256)]
    more += [g.Case("f16", g.G64, "gather", "gather"), g.Case("tf32", g.G64, "words", "words")]
    more += [
        g.Case("s8", g.G64, conv=True, fill=True),
        g.Case("f16", g.M64, conv=True, split=2, cluster=True, first=True),
    ]
    more += [g.Case("f32", g.F64, conv=True, split=4, cluster=True)]
    return r.small_cases() + more


DTYPES = ("f16", "tf32", "s8", "f32")
LAYERS = (  # channels, size, outputs, kernel, stride, how often in ResNet-50
    (64, 56, 64, 1, 1, 1), (64, 56, 64, 3, 1, 3), (64, 56, 256, 1, 1, 4), (256, 56, 64, 1, 1, 2), (256, 56, 128, 1, 1, 1),
    (128, 56, 128, 3, 2, 1), (128, 28, 512, 1, 1, 4), (256, 56, 512, 1, 2, 1), (512, 28, 128, 1, 1, 3), (128, 28, 128, 3, 1, 3),
    (512, 28, 256, 1, 1, 1), (256, 28, 256, 3, 2, 1), (256, 14, 1024, 1, 1, 6), (512, 28, 1024, 1, 2, 1),
    (1024, 14, 256, 1, 1, 5), (256, 14, 256, 3, 1, 5), (1024, 14, 512, 1, 1, 1), (512, 14, 512, 3, 2, 1), (512, 7, 2048, 1, 1, 3),
    (1024, 14, 2048, 1, 2, 1), (2048, 7, 512, 1, 1, 2), (512, 7, 512, 3, 1, 2),
)  # fmt: skip


def all_cases() -> list[g.Case]:
    """Every kernel, by name."""
    cases = gemm_cases() + checked_cases()
    for dtype in DTYPES:
        cases += conv_cases(dtype)
    cases += [c.adding for c in cases if c.split > 1 and not c.cluster]
    return list({c.name: c for c in cases}.values())


def build(folder: Path, arch: str = "90a") -> None:
    """Compiles what is not there."""
    missing = [c for c in all_cases() if not (folder / f"{c.name}_{arch}.cubin").exists()]
    print(len(missing), "to compile", flush=True)
    with ThreadPoolExecutor(2) as pool:
        for case, result in zip(missing, pool.map(lambda c: compile_case(c, arch, folder), missing), strict=True):
            if result["spills"]:
                print(case.name, result)
    for text in folder.glob("*.cu"):
        text.unlink()


class Graphs(r.Driver):
    """Times launches in a CUDA graph: the host's time is not in it."""

    def time(self, run: Any, repeats: int) -> float:
        graph, exe = ctypes.c_void_p(), ctypes.c_void_p()
        run()
        self.wait()
        self.call("cuStreamBeginCapture_v2", self.stream, 2)
        for _ in range(repeats):
            run()
        self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(exe), graph, ctypes.c_uint64(0))
        us = super().time(lambda: self.call("cuGraphLaunch", exe, self.stream), 3) / repeats
        self.call("cuGraphExecDestroy", exe)
        self.call("cuGraphDestroy", graph)
        return us


def torch_time(run: Any, repeats: int) -> float:
    """Microseconds in a CUDA graph of torch."""
    import torch

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            run()
    best = 1e30
    for _ in range(4):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) * 1000 / repeats)
    return best


def torch_gemm(dtype: str, n: int) -> float:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    if dtype == "s8":
        a, b = (torch.randint(-128, 128, (n, n), dtype=torch.int8, device="cuda") for _ in range(2))
        return torch_time(lambda: torch._int_mm(a, b.T), 10)
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}.get(dtype, torch.float32)
    a, b = (torch.randn(n, n, device="cuda", dtype=kind) for _ in range(2))
    return torch_time(lambda: torch.matmul(a, b.T), 10)


def torch_conv(dtype: str, batch: int, layer: tuple[int, ...]) -> float:
    import torch

    channels, size, outputs, kernel, stride, _ = layer
    if dtype not in ("f16", "tf32"):
        return float("nan")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    kind = torch.float16 if dtype == "f16" else torch.float32
    x = torch.randn(batch, channels, size, size, device="cuda", dtype=kind).to(memory_format=torch.channels_last)
    w = torch.randn(outputs, channels, kernel, kernel, device="cuda", dtype=kind).to(memory_format=torch.channels_last)
    b = torch.randn(outputs, device="cuda", dtype=kind)
    with torch.no_grad():
        return torch_time(lambda: torch.nn.functional.conv2d(x, w, b, stride, kernel // 2), 20)


def attempt(function: Any, *arguments: Any) -> Any:
    """The result; an exception as text."""
    try:
        return function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:160]}"


def time_case(d: r.Driver, case: g.Case, shape: r.Shape, repeats: int, checks: bool) -> float | str:
    p, data = r.prepare(d, case, shape)
    try:
        p.run()
        d.wait()
        if checks:
            error = r.compare(p, data, 32)
            if error > r.LIMITS.get(case.dtype, 0):
                return f"wrong: {error:.2e}"
        return d.time(p.run, repeats)
    finally:
        p.free()


def check_part(d: r.Driver, way: str, out: dict[str, Any]) -> list[str]:
    """Kernels of one way of multiplying, at sizes around their tiles."""
    cases = [c for c in checked_cases() if c.tile.name.startswith(way)]
    begin, bad, n = time.time(), 0, 0
    for case in cases:
        for shape in r.shapes_of(case):
            result = attempt(r.check, d, case, shape)
            n += 1
            if result != "":
                out[f"{case.name} {shape}"] = result
                bad += 1
                if bad < 12:
                    print("WRONG", case.name, shape, result, flush=True)
    return [f"checks {way}: {bad} wrong of {n} products of {len(cases)} kernels, {time.time() - begin:.0f} s"]


def gemm_part(d: r.Driver, dtype: str, out: dict[str, Any], has_torch: bool) -> list[str]:
    """4096 x 4096 x 4096."""
    n, lines = 4096, []
    theirs = attempt(torch_gemm, dtype, n) if has_torch else "no torch"
    cases = [c for c in gemm_cases() if c.dtype == dtype]
    for case in cases:
        us = attempt(time_case, d, case, r.Shape(m=n, n=n, depth=n), 10, True)
        out[case.name] = us
        rate = f"{2e-6 * n**3 / us:.0f} T/s" if isinstance(us, float) else us
        share = (
            f"{100 * theirs / us:.0f} % of cuBLAS"
            if isinstance(us, float) and isinstance(theirs, float)
            else str(theirs)
        )
        lines.append(f"{case.name:40} {rate:>12} {share}")
        print(lines[-1], flush=True)
    return lines


def conv_part(d: r.Driver, dtype: str, out: dict[str, Any], has_torch: bool) -> list[str]:
    """The convolutions of ResNet-50, each by its best tile."""
    lines = []
    for batch in (1, 32):
        total = theirs_total = 0.0
        for layer in LAYERS:
            channels, size, outputs, kernel, stride, count = layer
            shape = r.Shape(
                batch=batch, channels=channels, size=size, n=outputs, kernel=kernel, stride=stride, pad=kernel // 2
            )
            times = time_layer(d, dtype, shape)
            out[f"{dtype} {batch} {layer}"] = times
            good = {k: v for k, v in times.items() if isinstance(v, float)}
            best = min(good, key=lambda k: good[k]) if good else str(times)[:200]
            theirs = attempt(torch_conv, dtype, batch, layer) if has_torch else float("nan")
            out[f"{dtype} {batch} {layer} torch"] = theirs
            total += count * good.get(best, float("nan"))
            theirs_total += count * (theirs if isinstance(theirs, float) else float("nan"))
            print(f"{dtype:5} {batch:2} {layer!s:30} {best:48} {good.get(best, 0):8.1f} torch {theirs}", flush=True)
        lines.append(f"ResNet-50's convolutions {dtype} batch {batch}: {total:.0f} us, torch {theirs_total:.0f} us")
        print(lines[-1], flush=True)
    return lines


PARTS = [f"check:{way}" for way in ("mma", "ffma", "wgmma", "tma")]
PARTS += [f"gemm:{dtype}" for dtype in ("f16", "bf16", "tf32", "s8", "f32")] + [f"conv:{dtype}" for dtype in DTYPES]


def run_part(folder: Path, part: str) -> None:
    """One part, in a process of its own: a kernel that fails takes the context with it."""
    kind, name = part.split(":")
    d = Graphs(folder)
    has_torch = kind != "check" and os.environ.get("NO_TORCH") is None and importlib.util.find_spec("torch") is not None
    out: dict[str, Any] = {}
    lines = (
        check_part(d, name, out)
        if kind == "check"
        else (gemm_part if kind == "gemm" else conv_part)(d, name, out, has_torch)
    )
    place = Path(os.environ.get("OUT", folder))
    (place / f"{kind}_{name}.json").write_text(json.dumps(out, indent=1))
    (place / f"{kind}_{name}.txt").write_text("\n".join(lines) + "\n")


def run(folder: Path, seconds: float, parts: list[str]) -> None:
    """Each part, until the time is over; the lines that sum up come last."""
    place = Path(os.environ.get("OUT", folder))
    for part in parts:
        left = seconds - (time.time() - BEGIN)
        if left < 5:
            print("no time for", part)
            continue
        try:
            subprocess.run([sys.executable, __file__, "part", str(folder), part], timeout=min(left, 150), check=False)
        except subprocess.TimeoutExpired:
            print("too long:", part, flush=True)
    print(f"---- {time.time() - BEGIN:.0f} s")
    for part in parts:
        text = place / f"{part.replace(':', '_')}.txt"
        print(text.read_text().rstrip() if text.exists() else f"{part}: no result")


def time_layer(d: r.Driver, dtype: str, shape: r.Shape) -> dict[str, float | str]:
    """Each tile that makes sense: of those with few blocks only what splits the sum."""
    times: dict[str, float | str] = {}
    shared: tuple[r.Prepared, Any] | None = None
    for case in conv_cases(dtype):
        t = case.tile
        blocks = -(-shape.m // t.tm) * -(-shape.n // t.tn)
        steps = shape.depth * g.BYTES[dtype] // t.tk
        if case.split > 1 and (blocks * case.split > 4 * d.units or steps < 2 * case.split):
            continue
        if blocks * case.split < d.units // 12 or (blocks > 64 * d.units and t.tm * t.tn < 64 * 64):
            continue
        if shared is None:
            shared = r.prepare(d, case, shape)
        # the tables depend on the tile's depth alone, and the numbers on the split
        p = r.again(shared[0], case)
        times[case.name] = attempt(one_time, d, p, 20 if shape.macs < 3e9 else 5)
    if shared is not None:
        shared[0].free()
    return times


def one_time(d: r.Driver, p: r.Prepared, repeats: int) -> float:
    p.run()
    d.wait()
    return d.time(p.run, repeats)


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(Path(sys.argv[2]))
    elif sys.argv[1] == "part":
        np.seterr(all="ignore")
        run_part(Path(sys.argv[2]), sys.argv[3])
    else:
        run(Path(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 240.0, sys.argv[4:] or PARTS)
