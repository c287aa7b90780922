"""The OpenCL device for tests: liblinnet_opencl of this tree on the first device of OpenCL, which is PoCL on most machines."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from linnet.session.model import Device
from tests.native import ROOT, build, compile_c
from tests.opencl import need_opencl

_SHIM = """
#include "linnet_device.h"
#include <dlfcn.h>
static const linnet_host host = {sizeof host, linnet_dtype_name, linnet_step_op, linnet_step_name, linnet_step_input_count,
    linnet_step_output_count, linnet_step_get_input, linnet_step_get_output, linnet_step_integers, linnet_step_floats,
    linnet_step_precision, linnet_step_get_counts, linnet_step_evaluate, linnet_step_get_map, linnet_step_get_result,
    linnet_map_get_opcode, linnet_step_map_source, linnet_map_prelude};
__attribute__((visibility("default"))) const linnet_device *linnet_extension_device(void) {
    void *library = dlopen(LIBRARY, RTLD_NOW);
    int (*devices)(const linnet_host *, const char *, linnet_device_list *) =
        library ? (int (*)(const linnet_host *, const char *, linnet_device_list *))dlsym(library, "linnet_extension_devices") : 0;
    linnet_device_list list;
    linnet_device_list_init(&list);
    return devices && devices(&host, OPTIONS, &list) == 0 && list.count > 0 ? list.devices[0] : 0;
}
"""
_devices: dict[str, Device] = {}


def opencl_device(options: str = "") -> Device:
    """The first device, which gets all steps that it can run. Skips the test if there is none."""
    need_opencl()
    if options not in _devices:
        native = build("release", "linnet", "linnet_opencl")
        folder = Path(tempfile.mkdtemp())
        source = folder / "shim.c"
        source.write_text(_SHIM)
        library = compile_c(
            [source], folder / "libshim.so", "-shared", "-fPIC", "-Wno-pedantic", f"-I{ROOT / 'runtime_c' / 'include'}",
            f'-DLIBRARY="{native / "liblinnet_opencl.so"}"', f'-DOPTIONS="{options}"',
            f"-L{native}", "-llinnet", f"-Wl,-rpath,{native}", "-ldl",
        )  # fmt: skip
        _devices[options] = Device(library)
        source.unlink()
        os.chmod(library, 0o755)
    return _devices[options]
