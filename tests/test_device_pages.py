"""The pages about the Raspberry Pi and Android: a new user's commands, from a PyTorch module and a folder of pictures to the int8
row of a table. They run as the pages write them; the Pi is an sshd on loopback, and the phone is a stand-in for adb."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from linnet.deploy.local import CPUS
from tests.cross_builds import cross
from tests.deploy_targets import TOOLS, Place, sshd, stand_in_adb
from tests.native import ROOT, need, run
from tests.test_docs import snippets

PI, ANDROID = ROOT / "docs" / "raspberry-pi.md", ROOT / "docs" / "android.md"
PAGE = 16384  # bytes of a page of newer phones


def story(page: Path) -> list[str]:
    """The commands of the first snippet, which are the whole way."""
    return snippets(page, "sh")[0].splitlines()


@pytest.fixture
def place(tmp_path: Path, torch: ModuleType) -> Place:
    """A folder with model.pt2, two convolutions and a dense layer for pictures of 64x64, and twenty pictures."""
    pytest.importorskip("onnxscript", reason="torch's exporter needs it: pip install 'linnet-runtime[torch]'")
    made = Place(tmp_path)
    nn = torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ).eval()  # fmt: skip
    torch.export.save(torch.export.export(net, (torch.zeros(1, 3, 64, 64),)), made.folder / "model.pt2")
    (made.folder / "pictures").mkdir()
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:96, :96][..., None] / 96
    for i in range(20):
        a, b, c = rng.random((3, 3))
        pixels = np.clip(a * x + b * y + c * np.sin(8 * x * a), 0, 1) * 255
        Image.fromarray(pixels.astype(np.uint8)).save(made.folder / "pictures" / f"{i}.jpg")
    return made


def linnet_of(place: Place, line: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of a page in the place's folder."""
    words = shlex.split(line)
    assert words[0] == "linnet"
    done = subprocess.run(
        [sys.executable, "-m", *words, *more], cwd=place.folder, env=place.env, capture_output=True, text=True, check=False,
        timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def rows(text: str) -> list[list[str]]:
    """The rows of all tables."""
    return [[word.strip() for word in line.strip("│").split("│")] for line in text.splitlines() if line.startswith("│")]


def agrees(text: str) -> None:
    """The tables have both dtypes; int8 has the same bits, and a time."""
    found = rows(text)
    assert [row[:3] for row in found if len(row) == 6 and row[1] == "output"] == [
        ["f32", "output", found[0][2]], ["i8", "output", "all bits"],
    ], text  # fmt: skip
    assert found[0][2] in ("yes", "all bits") and 0 < float(found[1][5]) < 0.1, text
    times = [float(row[2]) for row in found if row[0] == "i8" and row[1].isdecimal() and len(row) >= 6]
    assert times and min(times) > 0, text


def test_from_a_module_to_a_table_without_a_pi(place: Place) -> None:
    place.arm_tools()
    commands = story(PI)
    assert len(commands) <= 4 and not any("python" in line for line in commands)
    [line] = [line for line in commands if "emulate:" in line]
    done = linnet_of(place, line, "--seconds", "0.05")
    assert done.stdout.startswith("model.pt2 on emulate:cortex-a72: cortex-a72, aarch64\n")
    agrees(done.stdout)
    assert "torch" not in done.stderr, "torch's exporter logs what concerns no model"
    assert len(done.stderr.splitlines()) <= 10 and place.left() == [], done.stderr
    [shown] = [text for text in snippets(PI, "text") if "emulate:cortex-a72" in text]
    agrees(shown)
    heads = [line for line in done.stdout.splitlines() if line.startswith("┃")]
    assert [line for line in shown.splitlines() if line.startswith("┃")] == heads, "the page shows another table"


def test_the_same_with_a_pi(place: Place) -> None:
    [line] = [line for line in story(PI) if "pi@raspberrypi.local" in line]
    with sshd(place) as server:
        line = line.replace("pi@raspberrypi.local", server.target)
        done = linnet_of(place, line, *server.options, "--seconds", "0.05")
        agrees(done.stdout)
        assert "peak RSS" in done.stdout and place.left() == []


def test_a_file_that_takes_pictures(place: Place) -> None:
    """What the page runs on the Pi, on this machine."""
    [line] = [line for body in snippets(PI, "sh") for line in body.splitlines() if line.startswith("linnet convert")]
    linnet_of(place, line)
    (place.folder / "photo.jpg").write_bytes((place.folder / "pictures" / "3.jpg").read_bytes())
    [line] = [line for body in snippets(PI, "sh") for line in body.splitlines() if "linnet run" in line]
    found = rows(linnet_of(place, line).stdout)
    assert [row[:3] for row in found] == [["output", "f32", "[1,10]"]]


def test_a_phone(place: Place) -> None:
    device = stand_in_adb(place, "A1\tdevice\n")
    for line in story(ANDROID):
        if line.startswith("adb"):
            assert "A1" in run(["sh", "-c", line], cwd=place.folder, env=place.env)
        elif line.startswith("linnet"):
            agrees(linnet_of(place, line, "--seconds", "0.05").stdout)
    assert list(device.iterdir()) == [] and place.left() == []


def test_the_pip_command_installs_what_the_others_need() -> None:
    [line] = [line for line in story(PI) if line.startswith("pip")]
    [names] = re.findall(r"\[(.*)\]", line)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = " ".join(word for name in names.split(",") for word in extras[name])
    assert all(package in needed for package in ("torch>", "onnxscript>", "pillow>"))


def test_the_table_of_boards() -> None:
    found = re.findall(r"`emulate:(\S+)` \| `(\w+)`", PI.read_text())
    assert len(found) >= 6 and all(CPUS[cpu][0] == arch for cpu, arch in found)


@pytest.mark.more
def test_an_app_compiles_the_library(tmp_path: Path) -> None:
    """The snippet of CMake, with the compiler of this machine. The segments are aligned as it says."""
    need("cmake", "readelf")
    [lists] = snippets(ANDROID, "cmake")
    (tmp_path / "CMakeLists.txt").write_text(lists)
    (tmp_path / "linnet").symlink_to(ROOT)
    (tmp_path / "app.c").write_text('#include "linnet.h"\nconst char *app(void) { return linnet_version(); }\n')
    run(["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "b"), "-DCMAKE_BUILD_TYPE=Release"])
    run(["cmake", "--build", str(tmp_path / "b"), "--target", "app", "-j", "2"], timeout=290)
    assert min(alignments(tmp_path / "b" / "libapp.so")) >= PAGE


def alignments(program: Path) -> list[int]:
    """Of the segments that are loaded."""
    found = re.findall(r"^ +LOAD .* (0x[0-9a-f]+)$", run(["readelf", "-lW", str(program)]), re.MULTILINE)
    assert found
    return [int(word, 16) for word in found]


@pytest.mark.more
@pytest.mark.parametrize("arch", ["aarch64", "armv7", "android-arm64", "android-armv7"])
def test_tools_start_on_pages_of_16_kb(arch: str) -> None:
    need("readelf")
    folder = cross(arch) / "bin"
    for name in TOOLS:
        assert min(alignments(folder / name)) >= PAGE, name
