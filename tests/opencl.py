"""Runs OpenCL kernels on the first device of the first platform, by ctypes: for tests of the texts that linnet emits.
PoCL is such a platform, on the CPU: apt-get install pocl-opencl-icd ocl-icd-libopencl1."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import pytest

_READ_WRITE, _COPY, _ALL_DEVICES, _BUILD_LOG = 1, 32, 0xFFFFFFFF, 0x1183


def _handle(function: Any, *arguments: Any) -> Any:
    """Calls a function that returns a handle and stores its status last."""
    status = ctypes.c_int()
    function.restype = ctypes.c_void_p
    made = function(*arguments, ctypes.byref(status))
    assert status.value == 0, f"{function.__name__} failed: {status.value}"
    return ctypes.c_void_p(made)


def _check(status: int, what: str) -> None:
    assert status == 0, f"{what} failed: {status}"


class OpenCL:
    """A context, a queue and a program."""

    def __init__(self, source: str, options: str = "") -> None:
        self.cl = ctypes.CDLL("libOpenCL.so.1")
        platform, self.device = ctypes.c_void_p(), ctypes.c_void_p()
        _check(self.cl.clGetPlatformIDs(1, ctypes.byref(platform), None), "clGetPlatformIDs")
        ids = self.cl.clGetDeviceIDs
        ids.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p]
        _check(ids(platform, _ALL_DEVICES, 1, ctypes.byref(self.device), None), "clGetDeviceIDs")
        self.context = _handle(self.cl.clCreateContext, None, 1, ctypes.byref(self.device), None, None)
        self.queue = _handle(self.cl.clCreateCommandQueue, self.context, self.device, ctypes.c_uint64(0))
        text = ctypes.c_char_p(source.encode())
        self.program = _handle(self.cl.clCreateProgramWithSource, self.context, 1, ctypes.byref(text), None)
        if self.cl.clBuildProgram(self.program, 0, None, options.encode(), None, None):
            log = ctypes.create_string_buffer(100_000)
            self.cl.clGetProgramBuildInfo(self.program, self.device, _BUILD_LOG, ctypes.c_size_t(100_000), log, None)
            pytest.fail(log.value.decode(errors="replace")[-4000:])

    def run(self, name: str, arguments: list[np.ndarray | None], outputs: list[int], threads: int) -> None:
        """Runs a kernel; arguments are buffers, or None. Reads the arguments `outputs` back."""
        kernel = _handle(self.cl.clCreateKernel, self.program, name.encode())
        buffers: list[Any] = []
        for i, array in enumerate(arguments):
            held = ctypes.c_void_p()
            if array is not None:
                size = ctypes.c_size_t(array.nbytes)
                held = _handle(
                    self.cl.clCreateBuffer,
                    self.context,
                    ctypes.c_uint64(_READ_WRITE | _COPY),
                    size,
                    ctypes.c_void_p(array.ctypes.data),
                )
            buffers.append(held)
            size = ctypes.c_size_t(ctypes.sizeof(ctypes.c_void_p))
            _check(self.cl.clSetKernelArg(kernel, i, size, ctypes.byref(held)), "clSetKernelArg")
        count = ctypes.c_size_t(threads)
        _check(
            self.cl.clEnqueueNDRangeKernel(self.queue, kernel, 1, None, ctypes.byref(count), None, 0, None, None),
            "clEnqueueNDRangeKernel",
        )
        for i in outputs:
            array = arguments[i]
            assert array is not None
            status = self.cl.clEnqueueReadBuffer(
                self.queue,
                buffers[i],
                1,
                ctypes.c_size_t(0),
                ctypes.c_size_t(array.nbytes),
                ctypes.c_void_p(array.ctypes.data),
                0,
                None,
                None,
            )
            _check(status, "clEnqueueReadBuffer")
        for held in buffers:
            if held:
                self.cl.clReleaseMemObject(held)
        self.cl.clReleaseKernel(kernel)


@functools.cache
def need_opencl() -> None:
    """Skips the test if there is no OpenCL device."""
    count = ctypes.c_uint()
    try:
        ctypes.CDLL("libOpenCL.so.1").clGetPlatformIDs(0, None, ctypes.byref(count))
    except OSError:
        count.value = 0
    if count.value == 0:
        pytest.skip("missing: OpenCL; get it with: apt-get install pocl-opencl-icd ocl-icd-libopencl1")
