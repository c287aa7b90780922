"""Runs texts of CUDA kernels on the CPU, through the stand-ins for CUDA's driver and for NVRTC (tests/cuda/), by ctypes. `Rig` is
the driver, `Program` a text; `whole_text` puts linnet's prelude and the dialect in front of a kernel's text."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.clib.ffi import ffi
from linnet.clib.library import library
from tests.tree import NATIVE, ROOT

CUDA = NATIVE / "libcuda_standin.so"
NVRTC = NATIVE / "libnvrtc_standin.so"
NOT_READY, INVALID_VALUE, INVALID_HANDLE, LAUNCH_FAILED, ILLEGAL_ADDRESS = 600, 1, 400, 719, 700


def need_standins() -> None:
    """Skips the test if the build has no stand-ins, because the machine has no C++ compiler."""
    if not (CUDA.exists() and NVRTC.exists()):
        pytest.skip("missing: a C++ compiler when `make native` ran; get it with: apt-get install g++")


class CudaError(Exception):
    """A call of the driver returned this code."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} returned {code}")
        self.code = code


class Standin:
    """What the stand-in for libcuda exports for tests. ctypes opens the file that linnet has opened, so it is the same one."""

    def __init__(self) -> None:
        need_standins()
        self.library = ctypes.CDLL(str(CUDA), mode=ctypes.RTLD_GLOBAL)
        self.library.standin_calls.restype = ctypes.c_longlong
        self.library.standin_count.restype = ctypes.c_longlong
        self.library.standin_count.argtypes = [ctypes.c_char_p]
        self.library.standin_fail_at.argtypes = [ctypes.c_longlong, ctypes.c_int]

    def violations(self) -> list[str]:
        text = ctypes.create_string_buffer(100_000)
        self.library.standin_violations(text, len(text))
        return text.value.decode(errors="replace").splitlines()

    def forget(self) -> None:
        self.library.standin_forget()

    def report(self) -> tuple[int, str]:
        """The number of leaks, and their text."""
        text = ctypes.create_string_buffer(10_000)
        count = self.library.standin_report(text, len(text))
        return count, text.value.decode()

    def fail_at(self, k: int, code: int) -> None:
        self.library.standin_fail_at(k, code)

    def failed(self) -> str:
        """The function that has failed since `fail_at`; empty: none has."""
        self.library.standin_failed.restype = ctypes.c_char_p
        return str(self.library.standin_failed().decode())

    def calls(self) -> int:
        return int(self.library.standin_calls())

    def count(self, what: str) -> int:
        return int(self.library.standin_count(what.encode()))

    def hold(self, queries: int) -> None:
        self.library.standin_hold(queries)


@functools.cache
def standin() -> Standin:
    return Standin()


@contextmanager
def environment(**values: object) -> Iterator[None]:
    """Sets variables of the environment, which the stand-ins read at each use."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: str(value) for name, value in values.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# ---- the driver ------------------------------------------------------------------------------------------------------

_SYMBOLS = {"DeviceTotalMem": "_v2", "CtxPushCurrent": "_v2", "CtxPopCurrent": "_v2", "MemGetInfo": "_v2", "MemAlloc": "_v2",
            "MemFree": "_v2", "MemcpyHtoDAsync": "_v2", "MemcpyDtoHAsync": "_v2", "MemcpyDtoDAsync": "_v2",
            "StreamDestroy": "_v2", "EventDestroy": "_v2", "GraphAddKernelNode": "_v2",
            "GraphInstantiate": "WithFlags"}  # fmt: skip


class Node(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS."""

    _fields_ = [("func", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
                ("parameters", ctypes.c_void_p), ("extra", ctypes.c_void_p), ("kernel", ctypes.c_void_p),
                ("context", ctypes.c_void_p)]  # fmt: skip


def _argument(value: Any) -> Any:
    """64 bits for each integer: what the driver takes as 32 bits is in the low half of a register."""
    return ctypes.c_uint64(value & (2**64 - 1)) if isinstance(value, int) else value


class Rig:
    """The driver with a current context and a stream. `rig.call("EventCreate", ...)` calls cuEventCreate and raises CudaError."""

    def __init__(self, device: int = 0) -> None:
        self.standin = standin()
        self.call("Init", 0)
        context = ctypes.c_void_p()
        self.call("DevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("CtxPushCurrent", context)
        self.stream = self.made("StreamCreate", 1)
        self.buffers: list[int] = []

    def close(self) -> None:
        for buffer in self.buffers:
            self.call("MemFree", buffer)
        self.call("StreamDestroy", self.stream)
        self.call("CtxPopCurrent", None)

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.call("StreamSynchronize", self.stream)
        self.close()

    def code(self, name: str, *arguments: Any) -> int:
        function = getattr(self.standin.library, "cu" + name + _SYMBOLS.get(name, ""))
        return int(function(*map(_argument, arguments)))

    def call(self, name: str, *arguments: Any) -> None:
        code = self.code(name, *arguments)
        if code:
            raise CudaError("cu" + name, code)

    def made(self, name: str, *arguments: Any) -> int:
        """The handle that a function stores at its first parameter."""
        handle = ctypes.c_uint64()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle.value

    def finish(self) -> None:
        self.call("StreamSynchronize", self.stream)

    def upload(self, array: np.ndarray) -> int:
        """Memory of the device with the array; it is freed with the rig."""
        array = np.ascontiguousarray(array)
        buffer = self.made("MemAlloc", max(array.nbytes, 1))
        self.buffers.append(buffer)
        self.call("MemcpyHtoDAsync", buffer, array.ctypes.data, array.nbytes, self.stream)
        self.finish()
        return buffer

    def download(self, buffer: int, like: np.ndarray) -> np.ndarray:
        out = np.empty_like(like, order="C")
        self.call("MemcpyDtoHAsync", out.ctypes.data, buffer, out.nbytes, self.stream)
        self.finish()
        return out

    def function(self, program: Program, name: str) -> int:
        if program.module is None:
            program.module = self.made("ModuleLoadData", program.image)
        return self.made("ModuleGetFunction", program.module, name.encode())

    def launch(
        self, function: int, grid: Sequence[int], block: Sequence[int], *arguments: Any, shared: int = 0
    ) -> None:
        """Arguments: addresses of memory as ints, np.int32 or np.float32, or bytes of any other type."""
        self.call(
            "LaunchKernel", function, *three(grid), *three(block), shared, self.stream, parameters(arguments), None
        )

    def run(self, program: Program, name: str, grid: Sequence[int], block: Sequence[int], *arguments: Any,
            shared: int = 0) -> list[np.ndarray]:  # fmt: skip
        """Launches the kernel and waits. Arrays are uploaded, and returned as they are afterwards."""
        buffers = [(self.upload(a), a) if isinstance(a, np.ndarray) else None for a in arguments]
        passed = [held[0] if held else a for held, a in zip(buffers, arguments, strict=True)]
        if shared > 48 * 1024:
            self.call("FuncSetAttribute", self.function(program, name), 8, shared)
        self.launch(self.function(program, name), grid, block, *passed, shared=shared)
        self.finish()
        return [self.download(*held) for held in buffers if held]


def three(sizes: Sequence[int]) -> list[int]:
    return [*sizes, 1, 1][:3]


def parameters(arguments: Sequence[Any]) -> Any:
    """The array of addresses of parameters. It keeps what they point at."""
    held = []
    for a in arguments:
        data = a if isinstance(a, bytes) else (np.uint64(a) if isinstance(a, int) else a).tobytes()
        held.append(ctypes.create_string_buffer(data, len(data)))
    out = (ctypes.c_void_p * max(len(held), 1))(*[ctypes.addressof(one) for one in held])
    out.held = held
    return out


# ---- programs --------------------------------------------------------------------------------------------------------


class CompileError(Exception):
    """NVRTC refused the text; the message is its log."""


class Program:
    """A text that has been compiled."""

    def __init__(self, text: str, options: Sequence[str] = ("--gpu-architecture=sm_87",)) -> None:
        need_standins()
        nvrtc = ctypes.CDLL(str(NVRTC))
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"linnet.cu", 0, None, None) == 0
        code = nvrtc.nvrtcCompileProgram(program, len(options), given)
        if code:
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
            raise CompileError(f"{code}: {log.value.decode(errors='replace')[:6000]}")
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        assert nvrtc.nvrtcGetCUBIN(program, image) == 0
        assert nvrtc.nvrtcDestroyProgram(ctypes.byref(program)) == 0
        self.image = image.raw
        self.module: int | None = None


def whole_text(text: str, *, language: int | None = None) -> str:
    """The prelude, the dialect and the text, as the backend gives them to the compiler."""
    options = ffi.new("linnet_source_options *")
    options.struct_size = ffi.sizeof("linnet_source_options")
    options.language = library().LINNET_SOURCE_CUDA if language is None else language
    options.native = 1
    uses = "ln_f32_to_bf16 ln_f16_to_f32 ln_bf16_to_f32 ln_f32_to_f16\n" + text
    length = ffi.new("size_t *")
    prelude = ffi.new("char[]", 200_000)
    assert library().linnet_map_prelude(options, uses.encode(), prelude, 200_000, length) == library().LINNET_OK
    dialect = (ROOT / "kernels_gpu" / "cuda" / "dialect.inc").read_text()
    axes = "".join(f"#define LG_AXIS_{i} {axis}\n" for i, axis in enumerate("xyz"))
    return axes + ffi.string(prelude).decode() + dialect + text


def common(name: str) -> str:
    """The text of a file of kernels_gpu/common."""
    return (ROOT / "kernels_gpu" / "common" / f"{name}.inc").read_text()


def defines(**values: object) -> str:
    """#define NAME value for each; `X="f32"` for a name of one letter defines X_T, X_GET and X_PUT."""
    types = {"f32": "float", "f16": "ln_u16", "bf16": "ln_u16", "f64": "double", "bool": "ln_u8"}
    lines = []
    for name, value in values.items():
        if isinstance(value, str) and len(name) == 1:
            lines.append(f"#define {name}_T {types.get(value, 'ln_' + value)}")
            lines.append(
                f"#define {name}_GET(p,i) LG_GET_{value}(p,i)\n#define {name}_PUT(p,i,v) LG_PUT_{value}(p,i,v)"
            )
        else:
            lines.append(f"#define {name} {value}")
    return "\n".join(itertools.chain(lines, [""]))


assert linnet is not None
