"""What a new user meets: pip installs linnet from a clone into an empty environment, and every command and snippet of the first
pages runs there, from what is installed. A Pi is an sshd on loopback, a phone is a stand-in for adb, and a GPU is PoCL."""
# Dear: pip builds a wheel and installs PyTorch, and the tools for two processors are built.

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import linnet
from tests.cross_builds import need_index
from tests.deploy_targets import DIGITS, Place, calibration, sshd, stand_in_adb
from tests.native import ROOT, need, run
from tests.opencl import need_opencl
from tests.test_docs import snippets
from tests.tflite_models import G, O, T, build
from tests.walk import Reader

pytestmark = [pytest.mark.more, pytest.mark.timeout(3000)]  # 5 minutes on idle cores, 12 on busy ones
DOCS = ROOT / "docs"
REPLACED = (
    (r"^make (-C \S+ )?native$", r"make \1native NATIVE='--target linnet_static'"),  # as much as the pages use of it
    (r"^(linnet deploy (?!.*--seconds).*)", r"\1 --seconds 0.05"),
    (r"^linnet report( adb -o phone.json)?$", r"linnet report\1 --models kws --seconds 0.02 --threads 1"),  # minutes
    (r"--models resnet50", "--models kws --seconds 0.02 --threads 1"),
    # tests/test_wheels.py makes those wheels; the "Pi" is this machine
    (r"^make wheels PLATFORMS=\S+", "mkdir -p dist && cp $WHEEL dist"),
    # pip has built the wheel from a clone, once for all tests of this file
    (r"""^pip install (["']?)(?:\.\./)*\.\.?(\[[\w,]+\])?\1(?=\s|$)""", r'pip install "$WHEEL\2"'),
    (r"pi@raspberrypi\.local", "raspberrypi.local"),  # a name that the configuration of ssh has
)
LEFT_OUT = {"make demo": "tests/test_examples.py runs it", "make test": "this test is a part of it"}


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run of the tests share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "installed"
    folder.mkdir(exist_ok=True)
    return folder


class User:
    """A clone in a folder of its own, an empty environment, and a cache without tools. common: a folder in which the first user
    lets pip build a wheel from the clone, as `pip install .` does; all users install this wheel."""

    def __init__(self, folder: Path, common: Path) -> None:
        need("git", "cmake", "ninja")
        need_index()
        self.clone, self.bin = folder / "clone", folder / "first"
        for name in run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT).splitlines():
            if (ROOT / name).is_file():
                (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.clone / name)
        self.bin.mkdir()
        (self.bin / "python3").symlink_to(Path(sys.base_prefix, "bin", "python3"))
        kept = {
            k: v
            for k, v in os.environ.items()
            if k.startswith(("PIP_", "CCACHE_", "OCL_", "POCL_", "LANG")) or k == "HOME"
        }
        self.env = {
            **kept, "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin", "LINNET_CACHE": str(folder / "cache"),
            "PIP_CONSTRAINT": str(ROOT / ".ci" / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "SKBUILD_CMAKE_DEFINE": "LINNET_LTO=OFF", "COLUMNS": "120", "TMPDIR": str(folder), "MPLBACKEND": "agg",
            "PIP_NO_COMPILE": "1",
        }  # fmt: skip
        with open(common / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not list(common.glob("*.whl")):
                pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(common), str(self.clone)]
                run(pip, env=self.env)
        (wheel,) = common.glob("*.whl")
        self.env["WHEEL"] = str(wheel)
        self.reader = Reader(self.clone, self.env, REPLACED, LEFT_OUT)

    @contextlib.contextmanager
    def devices(self) -> Iterator[Place]:
        """A Pi that is called raspberrypi.local, and a phone."""
        (self.clone.parent / "there").mkdir()
        place = Place(self.clone.parent / "there")
        stand_in_adb(place, "A1\tdevice\n")
        shutil.copy(place.bin / "adb", self.bin)
        with sshd(place) as server:
            config = place.folder / "ssh_config"
            config.write_text(
                f"Host raspberrypi.local\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {server.folder}/id\n"
                f"  IdentitiesOnly yes\n  HostKeyAlias [127.0.0.1]:{server.port}\n  UserKnownHostsFile {server.folder}/known\n"
            )
            for tool in ("ssh", "scp"):
                (self.bin / tool).write_text(f'#!/bin/sh\nexec {shutil.which(tool)} -F {config} "$@"\n')
                (self.bin / tool).chmod(0o755)
            yield place

    def report(self, capsys: pytest.CaptureFixture[str]) -> None:
        with capsys.disabled():
            print(
                f"\n{len(self.reader.commands)} commands and {len(self.reader.snippets)} snippets of Python ran; not run:"
            )
            print("\n".join(sorted(set(self.reader.skipped))) or "none")


def test_the_tutorial(tmp_path: Path, common: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("ssh")
    user = User(tmp_path, common)
    reader, digits = user.reader, user.clone / "examples" / "mnist_small"
    with user.devices() as place:
        place.arm_tools()  # zig, which the page installs, takes minutes; the last test builds tools with GCC
        reader.env["LINNET_TARGETS"] = str(place.targets)
        reader.page(DOCS / "tutorial.md")
    assert reader.folder == digits
    assert reader.command("linnet run model.lnt --input digit.npy | tail -1").startswith("logits: ")
    assert run([str(digits / "digit"), str(digits / "own.lnt")]).strip().isdigit()
    assert len(reader.commands) >= 28 and len(reader.snippets) == 4
    user.report(capsys)


def test_readme_training_and_gpu(tmp_path: Path, common: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_opencl()
    user = User(tmp_path, common)
    reader, digits = user.reader, user.clone / "examples" / "mnist_small"
    reader.shell("python3 -m venv .venv && . .venv/bin/activate\npip install .")
    reader.page(ROOT / "README.md", digits)
    shutil.copy(digits / "program.c", user.clone)
    reader.command("cc program.c -Iruntime_c/include build/liblinnet.a -lm -lpthread")
    reader.command("./a.out examples/mnist_small/digits.lnt")
    reader.folder = digits
    reader.page(DOCS / "training.md")
    linnet.from_onnx(DIGITS / "mnist_small.onnx", input_shapes={"input": (1, 1, 28, 28)}).save(digits / "model.lnt")
    reader.page(DOCS / "gpu.md")
    assert len(reader.commands) >= 12 and len(reader.snippets) >= 12
    user.report(capsys)


def _models(clone: Path) -> None:
    """The files that the pages about deploying name."""
    shutil.copy(DIGITS / "mnist_small.onnx", clone)
    shutil.copy(DIGITS / "mnist_small.onnx", clone / "net.onnx")
    calibration(clone / "photos.npz")
    tensors = [T("input", shape=[1, 224, 224, 3]), T("y", shape=[1, 1, 1, 3])]
    pool = O("AVERAGE_POOL_2D", ["input"], ["y"], {
        "padding": 1, "stride_w": 224, "stride_h": 224, "filter_w": 224, "filter_h": 224, "activation": "none",
    })  # fmt: skip
    (clone / "net.tflite").write_bytes(build(G(tensors, [pool], ["input"], ["y"])))
    (clone / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for i in range(8):
        Image.fromarray(rng.integers(0, 255, (96, 80, 3), np.uint8)).save(clone / "pictures" / f"{i}.jpg")


MODULE = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).eval()
torch.export.save(torch.export.export(net, (torch.zeros(1, 3, 64, 64),)), "model.pt2")
"""


def test_deploying_and_the_raspberry_pi(tmp_path: Path, common: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without zig, compilers of the system build the tools."""
    need("qemu-aarch64", "ssh", "scp", "aarch64-linux-gnu-gcc")
    user = User(tmp_path, common)
    reader = user.reader
    _models(user.clone)
    with user.devices() as place:
        reader.shell("python3 -m venv .venv && . .venv/bin/activate\npip install '.[image,train]'")
        reader.page(DOCS / "deploy.md")
        assert (user.clone / "times.png").is_file() and (user.clone / "phone.json").is_file()
        assert "with aarch64-linux-gnu-gcc" in reader.command(
            "linnet deploy emulate:cortex-a72 net.onnx --seconds 0.05"
        )

        first, send, there = snippets(DOCS / "raspberry-pi.md", "sh")
        install, *deploy = first.splitlines()
        reader.shell(install)
        (user.clone / "module.py").write_text(MODULE)
        reader.command("python module.py")
        assert "│ i8    │ output │ all bits │" in reader.shell("\n".join(deploy))
        reader.shell(send)
        assert (place.tmp / "small.lnt").is_file(), "scp has copied it"
        shutil.copy(user.clone / "pictures" / "3.jpg", place.tmp / "photo.jpg")
        home = Reader(place.tmp, {**reader.env, "PATH": f"{user.bin}:/usr/bin:/bin"})  # what a person does on the Pi
        assert "output: " in home.shell(there)
    reader.commands += home.commands
    assert len(reader.commands) >= 20
    user.report(capsys)
