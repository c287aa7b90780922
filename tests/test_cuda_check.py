"""Every kernel of kernels_gpu on liblinnet_cuda: `linnet.check_device` runs the cases of all ops on the stand-ins for CUDA's
driver and compares them with the CPU, with the threads of blocks in several orders, and as several generations of GPUs."""
# Dear: the stand-in of the driver runs each block of each kernel on the CPU.

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

import linnet
from linnet.conformance.cases import all_cases
from tests.cuda_device import clean, cuda_device
from tests.cuda_rig import CUDA, NVRTC, environment
from tests.tree import ROOT

pytestmark = pytest.mark.usefixtures("few_objects")

PRODUCTS = {"conv", "conv_transpose", "matmul"}
MOST = {"map", "cast", "reduce", "softmax", "copy"}
OPS = {case.op for case in all_cases()}
# Compiling the texts takes a minute or two where none are kept, so the ops are several tests.
GROUPS = {"products": OPS & PRODUCTS, "most": OPS & MOST, "others": OPS - PRODUCTS - MOST}


@pytest.mark.parametrize(
    "order", [0, pytest.param(1, marks=pytest.mark.more), pytest.param(23, marks=pytest.mark.more)]
)
@pytest.mark.parametrize("group", GROUPS)
def test_all_cases_agree(group: str, order: int) -> None:
    with clean(), environment(LINNET_STANDIN_ORDER=order):
        report = linnet.check_device(cuda_device(), ops=sorted(GROUPS[group]))
        gc.collect()
    assert report.ok, report.failures
    ran, refused = report.count("agrees"), report.count("refused")
    assert ran > 100 and refused < 0.1 * ran, f"the device took {ran} steps and refused {refused}"


@pytest.mark.more
@pytest.mark.parametrize("compute", [75, 80, 120])
def test_generations_of_gpus(compute: int) -> None:
    """Each takes its own kernels for products; those of 9.0 use instructions that are not emulated. The environment is read
    once, so it is a process of its own."""
    code = "import sys\nimport linnet\ndevice = linnet.load_device('cuda:0,cache=off')\n"
    code += (
        "report = linnet.check_device(device, ops=['matmul', 'conv'])\nprint(report.failures)\nsys.exit(not report.ok)"
    )
    names = {"LINNET_CUDA": str(CUDA), "LINNET_NVRTC": str(NVRTC), "LINNET_STANDIN_COMPUTE": str(compute)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **names}, capture_output=True, text=True,
                          timeout=280, check=False)  # fmt: skip
    assert done.returncode == 0 and "stand-in:" not in done.stderr, done.stdout[-3000:] + done.stderr[-3000:]
