"""The OpenCL device for tests: the first of the machine, which is PoCL on most of those that run tests."""

from __future__ import annotations

import functools
from pathlib import Path

import linnet
from linnet.session.device import Device
from tests.opencl import need_opencl
from tests.tree import NATIVE


@functools.cache
def opencl_device(options: str = "") -> Device:
    """The first device, which gets all steps that it can run. Skips the test if the machine has no OpenCL."""
    need_opencl()
    library = Path(linnet.__file__).parent / "lib" / "liblinnet_opencl.so"
    assert library.exists() or (NATIVE / "liblinnet_opencl.so").exists(), "`make native` builds liblinnet_opencl"
    return linnet.load_device(f"opencl:0{',' if options else ''}{options}")
