"""Runs cases of gemm_cases.py through CUDA's driver and compares them with NumPy: on a GPU, or on the CPU with the driver and the
compiler that stand in for them (LINNET_CUDA, LINNET_NVRTC). A plan here is what kernels_gpu/cuda/gemm.c passes."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gemm_cases as g
import numpy as np

MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Driver:
    """libcuda by ctypes, with the device's first context current."""

    def __init__(self, folder: Path) -> None:
        self.cu = ctypes.CDLL(os.environ.get("LINNET_CUDA", "libcuda.so.1"))
        self.folder = folder
        self.modules: dict[str, ctypes.c_void_p] = {}
        self.functions: dict[str, ctypes.c_void_p] = {}
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)
        self.stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.units = self.attribute(16)
        self.arch = f"{self.attribute(75)}{self.attribute(76)}"
        self.arch += "a" if self.arch == "90" else ""

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.cu, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self.cu.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {text.value!r} ({code})")

    def attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, 0)
        return value.value

    def allocate(self, size: int) -> ctypes.c_uint64:
        at = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(max(size, 16)))
        return at

    def free(self, at: ctypes.c_uint64) -> None:
        self.call("cuMemFree_v2", at)

    def upload(self, array: np.ndarray) -> ctypes.c_uint64:
        array = np.ascontiguousarray(array)
        at = self.allocate(array.nbytes)
        self.call(
            "cuMemcpyHtoDAsync_v2", at, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), self.stream
        )
        self.wait()
        return at

    def download(self, at: ctypes.c_uint64, like: np.ndarray) -> np.ndarray:
        out = np.empty_like(like)
        self.call(
            "cuMemcpyDtoHAsync_v2", ctypes.c_void_p(out.ctypes.data), at, ctypes.c_size_t(out.nbytes), self.stream
        )
        self.wait()
        return out

    def wait(self) -> None:
        self.call("cuStreamSynchronize", self.stream)

    def cubin(self, case: g.Case) -> bytes:
        path = self.folder / f"{case.name}_{self.arch}.cubin"
        if path.exists():
            return path.read_bytes()
        rtc = ctypes.CDLL(os.environ.get("LINNET_NVRTC", "libnvrtc.so.13"))
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        text = g.text(case).encode()
        assert rtc.nvrtcCreateProgram(ctypes.byref(program), text, b"linnet.cu", 0, None, None) == 0
        options = [f"--gpu-architecture=sm_{self.arch}".encode(), b"--fmad=false", b"-default-device", b"--std=c++17"]
        code = rtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if code != 0:
            rtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            rtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(log.value.decode()[:3000])
        assert rtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
        out = ctypes.create_string_buffer(size.value)
        assert rtc.nvrtcGetCUBIN(program, out) == 0
        rtc.nvrtcDestroyProgram(ctypes.byref(program))
        return out.raw

    def function(self, case: g.Case) -> ctypes.c_void_p:
        if case.name not in self.functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), self.cubin(case))
            self.call("cuModuleGetFunction", ctypes.byref(function), module, case.kernel.encode())
            if not case.sum_only and case.tile.shared(case.cluster) > 48 * 1024:
                self.call("cuFuncSetAttribute", function, MOST_SHARED, case.tile.shared(case.cluster))
            self.functions[case.name] = function
        return self.functions[case.name]

    def launch(self, case: g.Case, grid: tuple[int, int, int], block: int, shared: int, arguments: list[Any]) -> None:
        values = [a if not isinstance(a, int) else ctypes.c_int32(a) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        self.call("cuLaunchKernel", self.function(case), *grid, block, 1, 1, shared, self.stream, pointers, None)

    def time(self, run: Any, repeats: int) -> float:
        """The least microseconds of a run, of 3 rounds."""
        begin, end, best = ctypes.c_void_p(), ctypes.c_void_p(), 1e30
        self.call("cuEventCreate", ctypes.byref(begin), 0)
        self.call("cuEventCreate", ctypes.byref(end), 0)
        run()
        for _ in range(3):
            self.call("cuEventRecord", begin, self.stream)
            for _ in range(repeats):
                run()
            self.call("cuEventRecord", end, self.stream)
            self.call("cuEventSynchronize", end)
            ms = ctypes.c_float()
            self.call("cuEventElapsedTime", ctypes.byref(ms), begin, end)
            best = min(best, ms.value * 1000 / repeats)
        return best


@dataclass
class Shape:
    """A product of m x n x depth, or the convolution whose sizes are given."""

    m: int = 0
    n: int = 0
    depth: int = 0
    z: int = 1
    a_t: bool = False  # a is [depth, m]
    b_k: bool = False  # b is [depth, n], else [n, depth]
    batch: int = 0  # convolutions
    channels: int = 0
    size: int = 0
    kernel: int = 1
    stride: int = 1
    pad: int = 0
    last: bool = True  # x has its channels last

    def __post_init__(self) -> None:
        if self.batch:
            self.out = (self.size + 2 * self.pad - self.kernel) // self.stride + 1
            self.m, self.depth = self.batch * self.out**2, self.channels * self.kernel**2

    @property
    def macs(self) -> float:
        return float(self.m) * self.n * self.depth * self.z


def bf16(x: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def stored(dtype: str, x: np.ndarray) -> np.ndarray:
    if dtype == "bf16":
        return bf16(x)
    return x.astype({"f16": np.float16, "s8": np.int8, "u8": np.uint8}.get(dtype, np.float32))


def value(dtype: str, x: np.ndarray) -> np.ndarray:
    if dtype == "bf16":
        return (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return x.astype(np.float64)


def random(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if np.prod(shape) > 1 << 21:  # repeats itself
        return np.resize(random(rng, dtype, ((1 << 20) + 7,)), shape)
    if dtype in ("s8", "u8"):
        return rng.integers(-128 if dtype == "s8" else 0, 128 if dtype == "s8" else 256, shape).astype(
            stored(dtype, np.zeros(1)).dtype
        )
    return stored(dtype, rng.standard_normal(shape, np.float32))


def table_of(case: g.Case, s: Shape) -> np.ndarray:
    """The entries along the sum: channels inside taps if x has its channels last, else taps inside channels."""
    lanes = 16 // g.BYTES[case.dtype] if case.a_load == "chunks" else 1
    k = np.arange(s.depth)
    taps = s.kernel**2
    c, tap = (k % s.channels, k // s.channels) if s.last else (k // taps, k % taps)
    ky, kx = tap // s.kernel, tap % s.kernel
    x_x, x_c = (s.channels, 1) if s.last else (1, s.size**2)
    at = (ky * s.size + kx) * x_x + c * x_c
    entries = np.stack([at, ky << 11 | kx], 1).astype(np.int32)[::lanes]
    deep = 128 // g.BYTES[case.dtype]  # for any tile
    padded = -(-s.depth // deep) * deep // lanes
    return np.concatenate([entries, np.full((padded - len(entries), 2), [-1, 0], np.int32)])


@dataclass
class Prepared:
    """A case with its memory on the device."""

    driver: Driver
    case: g.Case
    shape: Shape
    arguments: list[Any]
    sum_arguments: list[Any]
    y: ctypes.c_uint64
    memory: list[ctypes.c_uint64]
    like: np.ndarray

    def run(self) -> None:
        t, s, case = self.case.tile, self.shape, self.case
        if t.math == 3:
            blocks = min(self.driver.units, -(-s.m // t.tm) * -(-s.n // t.tn) * s.z)
            self.driver.launch(case, (blocks, 1, 1), t.threads, t.shared(False), self.arguments)
            return
        tiles = -(-s.m // t.tm) * -(-s.n // t.tn)
        self.driver.launch(case, (tiles, 1, s.z * case.split), t.threads, t.shared(case.cluster), self.arguments)
        if case.split > 1 and not case.cluster:
            self.driver.launch(case.adding, (-(-s.m * s.n // 256), s.z, 1), 256, 0, self.sum_arguments)

    def free(self) -> None:
        for at in self.memory:
            self.driver.free(at)


def tensor_map(d: Driver, dtype: str, at: ctypes.c_uint64, sizes: tuple[int, int, int], rows: int) -> Any:
    """A CUtensorMap of [z, rows, k], in boxes of 128 bytes of k. It needs an alignment to 64."""
    size = g.BYTES[dtype]
    kind = {"f16": 6, "bf16": 9, "tf32": 11}.get(dtype, 0)
    memory = ctypes.create_string_buffer(192)
    start = -ctypes.addressof(memory) % 64
    out = (ctypes.c_ubyte * 128).from_buffer(memory, start)
    k, m, z = sizes
    d.call(
        "cuTensorMapEncodeTiled", out, kind, 3, at, (ctypes.c_uint64 * 3)(k, m, z),
        (ctypes.c_uint64 * 2)(k * size, k * m * size), (ctypes.c_uint32 * 3)(128 // size, rows, 1),
        (ctypes.c_uint32 * 3)(1, 1, 1), 0, 3, 3, 0,
    )  # fmt: skip
    return out


def prepare(d: Driver, case: g.Case, s: Shape, seed: int = 1) -> tuple[Prepared, tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(seed)
    base = {"tf32": "f32", "u8s8": "u8", "s8u8": "s8"}.get(case.dtype, case.dtype)
    w_type = {"u8s8": "s8", "s8u8": "u8"}.get(case.dtype, base)
    integers = base in ("s8", "u8")
    if s.batch:
        image = (s.size, s.size)
        x = random(rng, base, (s.batch, *image, s.channels) if s.last else (s.batch, s.channels, *image))
        w = random(rng, w_type, (s.n, s.depth))
    else:
        x = random(rng, base, (s.z, s.depth, s.m) if s.a_t else (s.z, s.m, s.depth))
        w = random(rng, w_type, (s.z, s.depth, s.n) if s.b_k else (s.z, s.n, s.depth))
    bias = rng.integers(-1000, 1000, s.n).astype(np.int32) if integers else random(rng, base, (s.n,))
    zero = 7 if case.fill or integers else 0
    w_zero = rng.integers(-20, 20, s.n).astype(np.int32) if case.zeros else np.zeros(s.n, np.int32)
    sums = (
        w.astype(np.int64).sum(-1).reshape(-1)[: s.n]
        if integers and s.z == 1 and not s.b_k
        else np.zeros(s.n, np.int64)
    )
    if integers and s.b_k:
        sums = w.astype(np.int64).sum(-2).reshape(-1)[: s.n]
    terms = -zero * (sums - s.depth * w_zero) if integers else sums
    like = np.zeros((s.z, s.m, s.n), np.int32 if integers else stored(base, np.zeros(1)).dtype)
    table = table_of(case, s) if s.batch else np.zeros((2, 2), np.int32)
    n_bytes = (s.n * 4 + 15) // 16 * 16
    packed = (
        table.tobytes()
        + w_zero.tobytes().ljust(n_bytes, b"\0")
        + terms.astype(np.int32).tobytes().ljust(n_bytes, b"\0")
    )
    memory = [d.upload(v) for v in (x, w, bias, np.frombuffer(packed, np.uint8))]
    y = d.upload(np.full(like.nbytes, 0x5A, np.uint8))
    partial = d.allocate(like.size * 4 * case.split if case.split > 1 and not case.cluster else 16)
    extras = [0, table.nbytes, table.nbytes + n_bytes, zero, memory[3]]
    steps = -(-s.depth // (case.tile.tk // g.BYTES[case.dtype]))
    out = s.out if s.batch else 1
    numbers = [s.m, s.n, s.depth, 1 if s.a_t else s.depth, s.m if s.a_t else 1, 1 if s.b_k else s.depth,
               s.n if s.b_k else 1, -(-steps // case.split), 1, s.size, s.size, out, out, out * out, 1, s.stride,
               s.stride, 0, s.pad, s.pad, s.channels if s.last else 1, s.channels * s.size**2]  # fmt: skip
    arguments = [*memory[:3], y, partial, *numbers, *extras]
    sum_arguments = [memory[2], y, partial, s.m, s.n, out * out, *extras]
    if case.tile.math == 3:
        maps = [tensor_map(d, case.dtype, at, (s.depth, rows, s.z), box)
                for at, rows, box in ((memory[0], s.m, case.tile.tm), (memory[1], s.n, case.tile.tn))]  # fmt: skip
        tiles = -(-s.m // case.tile.tm) * -(-s.n // case.tile.tn) * s.z
        arguments = [*maps, memory[2], y, s.m, s.n, s.depth, tiles, 1, *extras]
    return Prepared(d, case, s, arguments, sum_arguments, y, [*memory, y, partial], like), (
        x,
        w,
        bias,
        w_zero,
        np.int64(zero),
    )


def again(p: Prepared, case: g.Case) -> Prepared:
    """The same data for another tile of the same dtype and loads; the table is long enough for panels of 128 bytes."""
    arguments = list(p.arguments)
    steps = -(-p.shape.depth // (case.tile.tk // g.BYTES[case.dtype]))
    arguments[5 + 7] = -(-steps // case.split)
    return Prepared(p.driver, case, p.shape, arguments, p.sum_arguments, p.y, p.memory, p.like)


def reference(case: g.Case, s: Shape, data: tuple[np.ndarray, ...], rows: np.ndarray) -> np.ndarray:
    """float64 results of some rows."""
    x, w, bias, w_zero, zero = data
    base = {"tf32": "f32", "u8s8": "u8", "s8u8": "s8"}.get(case.dtype, case.dtype)
    xv, wv = value(base, x), value(base, w)
    if case.dtype in ("s8", "u8", "u8s8", "s8u8"):
        xv = xv - float(zero)
        wv = wv - (w_zero[None, None, :] if s.b_k else w_zero[:, None])
    if not s.batch:
        a = xv.transpose(0, 2, 1) if s.a_t else xv
        b = wv if s.b_k else wv.transpose(0, 2, 1)
        return a[:, rows] @ b + value(base, bias)
    if not s.last:
        xv = xv.transpose(0, 2, 3, 1)
    xv = np.pad(xv, ((0, 0), (s.pad, s.pad), (s.pad, s.pad), (0, 0)))
    image, at = rows // s.out**2, rows % s.out**2
    oy, ox = at // s.out * s.stride, at % s.out * s.stride
    taps = np.stack([xv[image, oy + ky, ox + kx] for ky in range(s.kernel) for kx in range(s.kernel)], 1)
    patch = taps if s.last else taps.transpose(0, 2, 1)
    return (patch.reshape(len(rows), -1) @ wv.T + value(base, bias))[None]


def compare(p: Prepared, data: tuple[np.ndarray, ...], most_rows: int = 1 << 30) -> float:
    """Relative error of y; integers: 0 or 1."""
    case, s = p.case, p.shape
    got = p.driver.download(p.y, p.like)
    if case.first:
        got = got.reshape(s.batch, s.n, -1).transpose(0, 2, 1).reshape(1, s.m, s.n)
    rows = np.arange(s.m) if s.m <= most_rows else np.unique(np.random.default_rng(3).integers(0, s.m, most_rows))
    want = reference(case, s, data, rows)
    base = {"tf32": "f32"}.get(case.dtype, case.dtype)
    if base in ("s8", "u8", "u8s8", "s8u8"):
        return float(not np.array_equal(got[:, rows].astype(np.int64), want.astype(np.int64)))
    have = value(base, got[:, rows])
    error = np.linalg.norm(have - want) / np.linalg.norm(want)
    return float(error) if np.isfinite(error) else float("inf")


LIMITS = {"f32": 2e-6, "tf32": 1e-3, "f16": 1e-3, "bf16": 8e-3}


def check(d: Driver, case: g.Case, s: Shape) -> str:
    """Runs and compares; "" if it is right."""
    p, data = prepare(d, case, s)
    try:
        p.run()
        d.wait()
        error = compare(p, data, 64 if s.macs > 1e10 else 1 << 30)
    finally:
        p.free()
    return "" if error <= LIMITS.get(case.dtype, 0) else f"{case.name} {s}: error {error:.2e}"


def shapes_of(case: g.Case) -> list[Shape]:
    """Sizes around the tile, and primes."""
    t = case.tile
    deep = t.tk // g.BYTES[case.dtype]
    unit = 16 // g.BYTES[case.dtype]
    if case.conv:
        lanes = unit if case.a_load == "chunks" else 1
        out = []
        sizes = [(2 * lanes, 7, 3, 1, 1), (lanes, 9, 3, 2, 1), (3 * lanes, 5, 1, 1, 0), (lanes, 11, 5, 2, 2)]
        for channels, size, kernel, stride, pad in sizes:
            for last in (True, False) if case.a_load != "chunks" else (True,):
                n = t.tn + unit + 1
                s = Shape(batch=2, channels=channels, size=size, kernel=kernel, stride=stride, pad=pad, n=n, last=last)
                if case.b_load != "chunks" or s.depth % unit == 0:
                    out.append(s)
        return out
    out = []
    sizes = [
        (t.tm - 1, t.tn + 1, deep),
        (t.tm + 1, t.tn - 1, 2 * deep + unit),
        (t.tm, t.tn, 5 * deep),
        (17, 23, 3 * unit),
    ]
    for m, n, k in sizes:
        a_ts = (True, False) if case.a_load != "chunks" else (False,)
        for a_t in a_ts:
            b_ks = {"chunks": (False,), "turned": (True,)}.get(case.b_load, (True, False))
            for b_k in b_ks:
                depth = k + 1 if case.a_load != "chunks" and case.b_load != "chunks" else k
                n = -(-n // 8) * 8 if case.b_load == "turned" else n
                out.append(Shape(m=m, n=n, depth=depth, z=1 if case.dtype[0] in "su" else 2, a_t=a_t, b_k=b_k))
    return out


def small_cases() -> list[g.Case]:
    """What the CPU can emulate in a test: small tiles of every dtype and way."""
    t64, t32 = g.Tile(64, 64, 64, 2, 2, 3, 1), g.Tile(32, 32, 128, 1, 2, 3, 1)
    wide, narrow = g.Tile(64, 32, 64, 1, 1, 3, 0), g.Tile(32, 32, 64, 1, 2, 2, 1)
    cases = []
    for dtype in ("f16", "bf16", "tf32", "s8", "u8s8"):
        other = "words" if dtype == "tf32" else "gather"
        for tile in (t64, t32, narrow):
            cases.append(g.Case(dtype, tile))
            cases.append(g.Case(dtype, tile, other, other))
            cases.append(g.Case(dtype, tile, conv=True, fill=dtype[0] in "su", split=2))
            cases.append(g.Case(dtype, tile, other, "chunks", conv=True, first=True))
    cases += [g.Case("f16", t64, "chunks", "turned"), g.Case("bf16", narrow, "gather", "turned")]
    cases += [g.Case("f16", t32, "chunks", "turned", split=2)]
    cases += [g.Case("s8", t64, "gather", "gather", zeros=True), g.Case("u8", t64, "gather", conv=True, zeros=True)]
    cases += [g.Case("s8", t64, conv=True, zeros=True, fill=True), g.Case("s8", t64, zeros=True)]
    cases += [g.Case("u8", t64, zeros=True, split=3), g.Case("s8u8", t32), g.Case("f32", wide)]
    cases += [g.Case("f32", wide, "words", "words", split=2), g.Case("f32", wide, "words", conv=True, first=True)]
    return cases


def main() -> int:
    """Checks small cases; the argument selects by name."""
    d = Driver(Path(os.environ.get("OUT", "/tmp/linnet_gemm")))
    failed = 0
    for case in small_cases():
        if len(sys.argv) > 1 and sys.argv[1] not in case.name:
            continue
        results = [r for r in (check(d, case, s) for s in shapes_of(case)) if r]
        print(case.name, results or "ok", flush=True)
        failed += len(results)
    return failed


if __name__ == "__main__":
    sys.exit(main() > 0)
