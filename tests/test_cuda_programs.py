"""Machines without NVRTC on the stand-ins for CUDA's driver: models run from a pack of programs that were compiled before, and on
the CPU where the pack has no program; what is missing or damaged is named. A driver is opened once, so each case is a process."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import Graph, ops
from tests.cuda_device import cuda_device
from tests.cuda_rig import CUDA, Program, need_standins
from tests.native import need, run
from tests.tree import ROOT

# Runs a model on the device and on the CPU. Prints where the steps ran, and the largest difference.
CHILD = """
import json, sys
import numpy as np
import linnet
path, name = sys.argv[1:]
session = linnet.Session(path, device=linnet.load_device(name))
feeds = {one.name: np.random.default_rng(1).standard_normal(one.shape).astype(np.float32) for one in session.inputs}
want = linnet.Session(path).run(feeds)
worst = 0.0
for _ in range(3):
    got = session.run(feeds)
    worst = max(worst, *(float(np.abs(got[key] - value).max()) for key, value in want.items()))
steps = [(step.op, step.device, step.placed) for step in session.steps if step.op != "transfer"]
print(json.dumps({"worst": worst, "steps": steps}))
"""


@functools.cache
def tool() -> ModuleType:
    """.ci/cuda_programs.py, whose folder is no package."""
    spec = importlib.util.spec_from_file_location("cuda_programs", ROOT / ".ci" / "cuda_programs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def convolution(*, sums: bool) -> Graph:
    """A convolution with an epilogue and a softmax, and with `sums` their sums."""
    graph = Graph(seed=0)
    x = graph.placeholder("x", (1, 8, 12, 12))
    w = graph.constant(np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32), "w")
    y = ops.softmax(ops.relu(ops.conv(x, w, pads=[1] * 4)), axis=-1)
    graph.signature("infer", {"x": x}, {"y": ops.reduce(y, kind="sum", axis=[-1]) if sums else y})
    return graph.freeze()


def images(graph: Graph, folder: Path) -> dict[str, bytes]:
    """The codes of a model's programs by their hashes, as NVRTC's stand-in compiles them."""
    folder.mkdir()
    linnet.Session(graph, device=cuda_device(f"texts={folder}"))
    return {path.stem: Program(path.read_text()).image for path in folder.glob("*.cu")}


class Packed:
    """A pack of the programs of a model, and a model that needs others too."""

    def __init__(self, folder: Path) -> None:
        need_standins()
        self.folder = folder
        self.codes = images(convolution(sums=False), folder / "a")
        self.pack = folder / "programs"
        self.pack.write_bytes(tool().pack(self.codes, 13000))
        models = {
            "conv": convolution(sums=False),
            "sums": convolution(sums=True),
        }
        for name, graph in models.items():
            graph.save(folder / f"{name}.lnt")

    def device(self, pack: Path | None = None) -> str:
        return f"cuda:0,cache=off,programs={pack or self.pack}"

    def python(self, *words: str | Path, **environment: str) -> tuple[int, str, str]:
        """The exit status and the output of a Python without NVRTC."""
        given = {
            **os.environ,
            "LINNET_CUDA": str(CUDA),
            "LINNET_NVRTC": str(self.folder / "no-nvrtc.so"),
            **environment,
        }
        done = subprocess.run(
            [sys.executable, *map(str, words)], env=given, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def run(self, model: str, device: str = "", **environment: str) -> dict[str, list[str]]:
        """Where the model's steps ran, by op, after a comparison of the results."""
        code, out, errors = self.python(
            "-c", CHILD, self.folder / f"{model}.lnt", device or self.device(), **environment
        )
        assert code == 0, errors[-3000:]
        said: dict[str, Any] = json.loads(out.splitlines()[-1])
        assert said["worst"] < 1e-4
        places: dict[str, list[str]] = {}
        for op, where, _ in said["steps"]:
            places.setdefault(op, []).append(where)
        return places


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return Packed(tmp_path_factory.mktemp("packed"))


def test_a_model_of_the_pack_runs_on_the_gpu(packed: Packed) -> None:
    places = packed.run("conv")
    assert {where for one in places.values() for where in one} == {"cuda"}
    assert {"conv", "softmax"} <= set(places)


def test_other_steps_run_on_the_cpu(packed: Packed) -> None:
    places = packed.run("sums")
    assert places["conv"] == places["softmax"] == ["cuda"] and places["reduce"] == ["cpu"]


def test_without_a_pack_all_runs_on_the_cpu(packed: Packed) -> None:
    assert {where for one in packed.run("conv", "cuda:0,cache=off").values() for where in one} == {"cpu"}


def test_a_gpu_that_is_not_there_plans_with_the_pack(packed: Packed) -> None:
    for model, on_gpu in (("conv", True), ("sums", False)):
        device = f"cuda:0,for=87,programs={packed.pack}"
        code, out, errors = packed.python(
            "-m", "linnet", "plan", packed.folder / f"{model}.lnt", "--device", device, "--json"
        )
        assert code == 0, errors
        assert ("cpu" not in json.loads(out)["steps_on"]) == on_gpu, out


def test_it_is_said_what_is_missing(packed: Packed) -> None:
    code, out, errors = packed.python(
        "-m", "linnet", "plan", packed.folder / "sums.lnt", "--device", packed.device(), "--why"
    )
    assert code == 0, errors
    assert "no-nvrtc.so: cannot open" in out and f"programs are among the {len(packed.codes)} in {packed.pack}" in out
    assert "on cpu  the device refused it, though it runs such steps: it lacks the program, or the memory" in out
    code, out, errors = packed.python("-m", "linnet", "devices")
    assert code == 0, errors
    assert "no-nvrtc.so: cannot open" in out and "Until then" in out


def test_the_driver_is_too_old(packed: Packed) -> None:
    program = "import linnet, sys; print([d.missing for d in linnet.devices(sys.argv[1])][-1])"
    code, out, errors = packed.python("-c", program, packed.device(), LINNET_STANDIN_VERSION="12060")
    assert code == 0, errors
    assert out.endswith("need a driver of CUDA 13.0, and this one is of 12.6\n")
    places = packed.run("conv", LINNET_STANDIN_VERSION="12060")
    assert {where for one in places.values() for where in one} == {"cpu"}


def test_a_damaged_program_is_not_run(packed: Packed) -> None:
    """Its sum is wrong, so the pack does not have it."""
    data, at = bytearray(packed.pack.read_bytes()), 16 + 32 * len(packed.codes)
    for offset in range(at + 200, len(data), 97):
        data[offset] ^= 1
    damaged = packed.folder / "damaged"
    damaged.write_bytes(data)
    assert {where for one in packed.run("conv", packed.device(damaged)).values() for where in one} == {"cpu"}


def test_damaged_packs_are_refused(packed: Packed) -> None:
    """In this process: a pack that cannot be used is no matter of NVRTC."""
    whole = packed.pack.read_bytes()
    count = len(packed.codes)
    first, last = whole[16:48], whole[16 + 32 * (count - 1) : 16 + 32 * count]

    def with_entry(at: int, offset: int, size: int) -> bytes:
        start = 16 + 32 * at + 16
        return whole[:start] + struct.pack("<QI", offset, size) + whole[start + 12 :]

    outside, short = "a program lies outside of it", "shorter than its list"
    cases = {
        b"": "shorter than a head", whole[:15]: "shorter than a head", whole[: 16 + 32 * count - 1]: short, whole[:-1]: outside,
        whole[:8] + struct.pack("<I", 2**32 - 1) + whole[12:]: short, b"LNCUPACX" + whole[8:]: "does not begin with LNCUPACK",
        whole[:16] + last + whole[48 : 16 + 32 * (count - 1)] + first + whole[16 + 32 * count :]: "out of order",
        with_entry(0, 2**64 - 8, 16): outside, with_entry(1, 16, 16): outside, with_entry(1, len(whole), 1): outside,
        with_entry(1, 16 + 32 * count, 0): outside, with_entry(0, 16 + 32 * count, 2**32 - 1): outside,
    }  # fmt: skip
    for number, (data, text) in enumerate(cases.items()):
        path = packed.folder / f"bad-{number}"
        path.write_bytes(data)
        with pytest.raises(linnet.Error) as failed:
            linnet.load_device(f"cuda:0,programs={path}")
        assert text in str(failed.value) and str(path) in str(failed.value), (number, failed.value)
    with pytest.raises(linnet.Error, match=r"cannot read the file given with programs="):
        linnet.load_device(f"cuda:0,programs={packed.folder / 'no-file'}")


def test_needless_code_is_left_out() -> None:
    """A driver takes PTX of any older architecture, so only the oldest is kept, and no machine code for servers beside it."""
    ptx75, ptx80 = "arch=compute_75,code=compute_75", "arch=compute_80,code=compute_80"
    code87, code90 = "arch=compute_87,code=sm_87", "arch=compute_90a,code=sm_90a"
    assert tool().needed((ptx80, code87, ptx75, code90)) == (ptx75, code87)
    assert tool().needed((ptx80, code87)) == (ptx80, code87)
    assert tool().needed((code90,)) == (code90,)


@pytest.mark.more
def test_the_build_contains_a_pack(packed: Packed) -> None:
    need("cmake", "cc")
    made = packed.folder / "build"
    parts = [f"-DLINNET_{part}=OFF" for part in ("LTO", "TESTS", "TOOLS", "SYNC", "OPENCL", "MEDIA")]
    run(["cmake", "-S", str(ROOT), "-B", str(made), *parts, f"-DLINNET_CUDA_PROGRAMS={packed.pack}"], timeout=120)
    run(["cmake", "--build", str(made), "--target", "linnet_cuda"], timeout=300)
    library = made / "liblinnet_cuda.so"
    assert {where for one in packed.run("conv", f"{library}:0,cache=off").values() for where in one} == {"cuda"}
    assert packed.run("sums", f"{library}:0,cache=off")["reduce"] == ["cpu"]
