"""The wheels of `make wheels`: auditwheel's verdict is their name, they run under an emulated Python with NumPy and cffi alone,
and those for x86-64 carry the tools of other processors."""
# Dear: wheels are built for three processors, and run in emulated Pythons.

from __future__ import annotations

import os
import platform
import sys
import zipfile
from pathlib import Path

import pytest

import linnet
from tests.cross_builds import CPUS, foreign_python, installed, wheel
from tests.native import ROOT, need, run

pytestmark = pytest.mark.more

GOLDEN = ROOT / "tests" / "golden" / "v1.lnt"
# Runs the golden file, and compares with the results that were stored with it: integers bit for bit.
PROGRAM = """
import platform, sys
import numpy as np
import linnet
stored = np.load(sys.argv[1].replace(".lnt", ".npz"))
session = linnet.Session(sys.argv[1])
x = np.linspace(-1, 1, 3 * 8 * 8, dtype=np.float32).reshape(1, 3, 8, 8)
for name, got in session.run({"x": x}).items():
    print(name, got.dtype, got.shape, bool(np.isfinite(got.astype(np.float64)).all()))
loaded = sorted(m for m in ("click", "rich", "onnx", "flatbuffers", "ml_dtypes") if m in sys.modules)
print(platform.machine(), linnet.__version__, loaded)
"""


@pytest.mark.parametrize("machine", ["aarch64", "armv7l"])
def test_a_wheel_runs_under_an_emulated_python(machine: str) -> None:
    site = installed(f"manylinux-{machine}", machine)
    assert (site / "linnet" / "lib" / "liblinnet_opencl.so").is_file()
    assert (site / "linnet" / "lib" / "liblinnet_cuda.so").is_file() == (
        machine == "aarch64"
    )  # NVIDIA's GPUs need 64 bits
    lines = foreign_python(machine, site, PROGRAM, str(GOLDEN)).splitlines()
    here = run([sys.executable, "-c", PROGRAM, str(GOLDEN)]).splitlines()
    assert lines[:-1] == here[:-1] and all(line.endswith("True") for line in lines[:-1])
    assert lines[-1] == f"{machine} {linnet.__version__} []"


@pytest.mark.parametrize("machine", ["aarch64", "armv7l"])
def test_a_wheel_has_tools_that_run(machine: str) -> None:
    site = installed(f"manylinux-{machine}", machine)
    from tests.cross_builds import python_root

    qemu = CPUS["armv7" if machine == "armv7l" else machine]
    need(qemu[0])
    text = run(
        [
            *qemu,
            "-L",
            str(python_root(machine)),
            str(site / "linnet/bin/linnet-bench"),
            str(GOLDEN),
            "--seconds",
            "0.01",
        ]
    )
    assert "steady" in text


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheel is for x86-64")
def test_the_wheel_for_x86_runs_and_carries_tools(tmp_path: Path) -> None:
    path = wheel("manylinux-x86_64")
    assert path.stat().st_size < 9_500_000 and "manylinux_2_17_x86_64" in path.name
    assert {f"linnet/lib/liblinnet_{name}.so" for name in ("opencl", "cuda", "remote")} <= set(
        zipfile.ZipFile(path).namelist()
    )
    site = installed("manylinux-x86_64", "x86_64")
    environment = {"PYTHONPATH": str(site), "LINNET_CACHE": str(tmp_path / "cache"), "PATH": os.environ["PATH"]}
    text = run([sys.executable, "-c", PROGRAM, str(GOLDEN)], cwd=tmp_path, env=environment)
    assert text.splitlines()[-1] == f"x86_64 {linnet.__version__} []"
    # What `linnet deploy` does with the carried tools, from a folder without a source tree.
    need("qemu-aarch64", "qemu-arm")
    words = ["deploy", "emulate:{cpu}", str(GOLDEN), "--bench", "--seconds", "0.01", "--threads", "1"]
    for cpu in ("cortex-a53", "cortex-a8", "arm1176"):
        command = [word.format(cpu=cpu) for word in words]
        text = run([sys.executable, "-m", "linnet", *command], cwd=tmp_path, env=environment)
        assert "f32" in text
    assert len(list((tmp_path / "cache" / "targets").iterdir())) == 3


@pytest.mark.soak
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheel is for x86-64")
def test_the_wheel_for_musl_runs() -> None:
    need("/lib/ld-musl-x86_64.so.1")
    path = wheel("musllinux-x86_64")
    assert "musllinux_1_" in path.name and "linnet/lib/liblinnet_cuda.so" not in zipfile.ZipFile(path).namelist()
    site = installed("musllinux-x86_64", "x86_64")
    text = run(["/lib/ld-musl-x86_64.so.1", str(site / "linnet/bin/linnet-bench"), str(GOLDEN), "--seconds", "0.01"])
    assert "steady" in text
