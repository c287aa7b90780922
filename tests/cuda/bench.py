"""`make bench-cuda`: times linnet on the first CUDA device beside PyTorch in one run, and prints a table.
`python -m tests.cuda.bench [--parts gemm,models,training] [--seconds 0.5] [--json FILE]`."""

from __future__ import annotations

import argparse
import concurrent.futures
import copy
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import linnet
from examples.evaluation.steps import bound

DEVICE = "cuda"
SIZE = 4096  # of the matrices


def line(name: str, ours: float, others: dict[str, float], note: str = "") -> dict[str, Any]:
    """Prints a row: microseconds of linnet, and of each peer with the ratio."""
    peers = "  ".join(f"{peer} {us:9.1f} ({ours / us:5.2f})" for peer, us in others.items())
    print(f"{name:34s} linnet {ours:9.1f}  {peers}  {note}", flush=True)
    return {"name": name, "linnet_us": ours, **{f"{peer}_us": us for peer, us in others.items()}, "note": note}


def measured(submit: Callable[[], Any], finish: Callable[[], Any], seconds: float) -> float:
    """Median microseconds of one call of `submit`, of several batches that are submitted together and waited for."""
    for _ in range(3):
        submit()
    finish()
    start = time.perf_counter()
    submit()
    finish()
    count = int(min(200, max(1, 0.05 / (time.perf_counter() - start))))
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(count):
            submit()
        finish()
        found.append((time.perf_counter() - start) / count * 1e6)
    return statistics.median(found)


def time_linnet(session: linnet.Session, feeds: dict[str, Any], seconds: float) -> tuple[float, dict[str, Any]]:
    binding, results = bound(session, feeds, DEVICE)
    us = measured(binding.submit, binding.wait, seconds)
    return us, {name: value.read() for name, value in results.items()}


def time_torch(run: Callable[[], Any], seconds: float) -> float:
    import torch

    return measured(run, torch.cuda.synchronize, seconds)


def time_torch_graph(run: Callable[[], Any], seconds: float) -> float:
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return time_torch(graph.replay, seconds)


# ---- matrices ----------------------------------------------------------------------------------------------------------------


def stored(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """As linnet takes them: bf16 are the bits, as u16."""
    if dtype == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(np.float16) if dtype == "f16" else values


def gemm_graph(dtype: str, values: np.ndarray[Any, Any]) -> linnet.Graph:
    """x [n, n] times constant weights; for i8 both are quantized, and so is the result."""
    graph = linnet.Graph()
    kind = dtype if dtype in ("f16", "bf16") else "f32"
    x = graph.placeholder("x", values.shape, kind)
    y = linnet.ops.matmul(x, graph.constant(stored(values, dtype), dtype=kind), transpose_b=True)
    graph.signature("infer", {"x": x}, {"y": y})
    return linnet.quantize(graph, [{"x": values}], dtype="i8", effort="fast") if dtype == "i8" else graph


def gemm(dtype: str, values: np.ndarray[Any, Any], seconds: float) -> dict[str, Any]:
    """i8: also the conversions of x and of the result, of whose time the product's own is told apart."""
    import torch

    size = len(values)
    graph = gemm_graph(dtype, values)
    precision = "tf32" if dtype == "tf32" else "f32"
    session = linnet.Session(graph, "infer", device=DEVICE, precision=precision)
    ours, results = time_linnet(session, {"x": stored(values, dtype)}, seconds)
    traced = linnet.Session(graph, "infer", device=DEVICE, precision=precision, trace=True)
    for _ in range(3):
        traced.run({"x": stored(values, dtype)})
    if dtype == "i8":
        ours = sum(1e3 * step.device_ms for step in traced.steps if step.op == "matmul")
    kernels = ", ".join(str(step.kernel) for step in traced.steps if step.op != "transfer")
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8}.get(dtype, torch.float32)
    a = torch.from_numpy(values).cuda()
    a = (a * 30).clamp(-127, 127).to(kind) if dtype == "i8" else a.to(kind)
    b = a.clone()
    peer = time_torch((lambda: torch._int_mm(a, b.t())) if dtype == "i8" else (lambda: a @ b.t()), seconds)
    got = results["y"][:64]
    wide = (got.astype(np.uint32) << 16).view(np.float32).astype(float) if dtype == "bf16" else got.astype(float)
    off = float(np.linalg.norm(wide - values[:64].astype(float) @ values.T) / np.linalg.norm(wide))
    return line(
        f"gemm {size} {dtype}",
        ours,
        {"cuBLAS": peer},
        f"{2 * size**3 / ours / 1e6:.0f} TFLOP/s, off {off:.1e}; {kernels}",
    )


def gemms(seconds: float) -> Iterator[dict[str, Any]]:
    values = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    for dtype in ("f32", "tf32", "f16", "bf16", "i8"):
        yield gemm(dtype, values, seconds)


# ---- models ------------------------------------------------------------------------------------------------------------------


def torch_model(name: str) -> Any:
    import torchvision

    return getattr(torchvision.models, name)(weights=None).eval()


def torch_times(module: Any, x: Any, dtype: str, seconds: float) -> dict[str, float]:
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    with torch.inference_mode():
        there = copy.deepcopy(module).cuda().to(torch.float16 if dtype == "f16" else torch.float32)
        given = x.cuda().to(next(there.parameters()).dtype)
        times = {"eager": time_torch(lambda: there(given), seconds)}
        times["graphs"] = time_torch_graph(lambda: there(given), seconds)
        there = there.to(memory_format=torch.channels_last)
        given = given.contiguous(memory_format=torch.channels_last)
        times["channels last"] = time_torch_graph(lambda: there(given), seconds)
    return times


MODELS = [(n, b, d) for n in ("resnet50", "mobilenet_v2") for b in (1, 32) for d in ("f32", "tf32", "f16")]


def model(name: str, batch: int, dtype: str, seconds: float, compile_only: bool) -> dict[str, Any]:
    """Inference in f32 (both without tf32), tf32 and f16. linnet's f16 file has f32 inputs and outputs. The weights are random,
    and torchvision's are others."""
    import onnx
    import torch

    from tests import nets

    one = nets.inputs()
    label, image = next(iter(one.items()))
    described = onnx.load(nets.NETS[name]())
    for value in (*described.graph.input, *described.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    graph = linnet.from_onnx(described)
    feeds = {label: np.repeat(image, batch, 0)}
    made = linnet.quantize(graph, [feeds], dtype="f16") if dtype == "f16" else graph
    session = linnet.Session(made, device=DEVICE, precision="tf32" if dtype == "tf32" else "f32")
    if compile_only:
        return {}
    ours, results = time_linnet(session, feeds, seconds)
    want = next(iter(linnet.Session(graph).run(feeds).values())).astype(np.float64)
    got = next(iter(results.values())).astype(np.float64)
    off = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    x = torch.from_numpy(feeds[label])
    return line(
        f"{name} batch {batch} {dtype}", ours, torch_times(torch_model(name), x, dtype, seconds), f"off by {off:.1e}"
    )


def compile_rows(part: str, rows: list[str]) -> None:
    """Fills the cache of programs, several processes at a time: NVRTC takes most of a first start."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        words = [sys.executable, "-m", "tests.cuda.bench", "--compile", "--parts", part, "--only"]
        list(pool.map(lambda row: subprocess.run([*words, row], check=False, capture_output=True), rows))


def models(seconds: float, only: str, compile_only: bool) -> Iterator[dict[str, Any]]:
    rows = {f"{n} batch {b} {d}": (n, b, d) for n, b, d in MODELS if only in f"{n} batch {b} {d}"}
    if not compile_only:
        compile_rows("models", list(rows))
    for row in rows.values():
        yield model(*row, seconds, compile_only)


# ---- training ----------------------------------------------------------------------------------------------------------------

STEPS = {"alexnet": 128, "overfeat": 128, "oxfordnet": 64, "googlenet": 128}  # Titan X, published: 81 279 540 445 ms


def torch_step(peer: Any, images: Any, labels: Any, seconds: float) -> float:
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    there, x, t = peer.cuda(), images.cuda(), labels.cuda()
    optimizer = torch.optim.SGD(there.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(there(x), t).backward()
        optimizer.step()

    us = time_torch(step, seconds)
    torch.cuda.empty_cache()
    return us


def training(seconds: float, only: str, compile_only: bool) -> Iterator[dict[str, Any]]:
    """A step of SGD: forwards, backwards and the update of the variables. Both may use tf32."""
    from tests import train_models

    names = {f"train {name} batch {count} tf32": name for name, count in STEPS.items()}
    names = {row: name for row, name in names.items() if only in row}
    if not compile_only:
        compile_rows("training", list(names))
    for row, name in names.items():
        shape = (STEPS[name], *train_models.MODELS[name][1][1:])
        peer = train_models.twin(name, (2, *shape[1:]))
        images, labels = train_models.batch(name, shape)
        graph = train_models.graph_of(name, peer, shape)
        session = linnet.Session(graph, "train", device=DEVICE, precision="tf32")
        if compile_only:
            continue
        fallen = sorted({step.op for step in session.steps if step.placed == "cannot"})
        ours, _ = time_linnet(session, {"x": images.numpy(), "t": labels.numpy()}, seconds)
        del session
        peers = {"eager": torch_step(peer, images, labels, seconds)}
        yield line(row, ours, peers, f"on the CPU: {fallen}" if fallen else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="gemm,models,training")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--only", default="", help="rows of models that contain this text")
    parser.add_argument("--compile", action="store_true", help="only compile the programs of models")
    parser.add_argument("--json")
    options = parser.parse_args()
    devices = [device for device in linnet.devices(DEVICE) if not device.missing]
    if not devices:
        print("\n".join(device.missing for device in linnet.devices(DEVICE)))
        return 1
    print(f"{devices[0].hardware}, {devices[0].driver}; microseconds, and linnet's time over the peer's in brackets")
    try:
        import torch

        print(f"PyTorch {torch.__version__}")
    except ImportError:
        print("PyTorch is the peer: pip install torch torchvision")
        return 1
    rows, failed = [], 0
    parts: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "gemm": lambda: gemms(options.seconds),
        "models": lambda: models(options.seconds, options.only, options.compile),
        "training": lambda: training(options.seconds, options.only, options.compile),
    }
    for part in options.parts.split(","):
        try:
            for row in parts[part]():
                rows.append(row)
        except Exception:
            failed += 1
            traceback.print_exc()
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"device": devices[0].hardware, "driver": devices[0].driver, "rows": rows}, file, indent=1)
    return failed


if __name__ == "__main__":
    sys.exit(main())
