"""docs/quantization.md: a user's way from a saved model and a folder of pictures to an int8 file with its accuracy. The commands
run as the page writes them, with a module that PyTorch saved. `make test` has no PyTorch, and takes an ONNX file instead."""
# Dear: the tour of the page runs whole, with PyTorch too.

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from linnet.quantization.table import Table
from tests.native import ROOT
from tests.test_compare import COLOURS, network
from tests.test_docs import snippets

PAGE = ROOT / "docs" / "quantization.md"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """pictures/ and labelled/ of three colours, and photo.jpg."""
    rng = np.random.default_rng(0)
    for number, (name, colour) in enumerate(COLOURS.items()):
        for i in range(8):
            pixels = np.clip(np.array(colour) + rng.integers(-25, 25, (24, 24, 3)), 0, 255).astype(np.uint8)
            folder = tmp_path / ("labelled/" + name if i % 2 else "pictures")
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{number}{i}.jpg")
    shutil.copy(tmp_path / "pictures" / "00.jpg", tmp_path / "photo.jpg")
    (tmp_path / "labelled" / "labels.txt").write_text("\n".join(COLOURS) + "\n")
    return tmp_path


def lines(snippet: int) -> list[str]:
    return snippets(PAGE, "sh")[snippet].splitlines()


def output(line: str, folder: Path) -> str:
    """What a command of the page prints."""
    words = shlex.split(line)
    assert words[0] == "linnet"
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


def tour(folder: Path, model: str = "model.pt2") -> None:
    """All commands of the first snippet, in order."""
    texts = [output(line.replace("model.pt2", model), folder) for line in lines(0)]
    accuracy = re.findall(r"│ +(\d+\.\d)% │$", texts[1].split("Agreement")[0], re.MULTILINE)
    assert accuracy == ["100.0", "100.0"], texts[1]
    assert "worst layer" in texts[2] and "<svg" in (folder / "layers.html").read_text()
    Table.read(folder / "fix.txt")
    assert all(f"{name}.lnt" in texts[4] for name in ("float", "int8", "fixed")), texts[4]
    assert "models" in texts[4].lower() and (folder / "models.html").exists()
    assert (folder / "int8.lnt").stat().st_size > 0


def test_the_tour(place: Path) -> None:
    network().to_onnx(place / "model.onnx")
    tour(place, "model.onnx")


def test_the_tour_from_pytorch(place: Path, torch: ModuleType) -> None:
    pytest.importorskip("onnxscript", reason="torch's exporter needs it: pip install 'linnet-runtime[torch]'")
    nn = torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3)).eval()
    with torch.no_grad():
        net[0].weight[:] = torch.eye(3)[:, :, None, None]
        net[4].weight[:] = torch.eye(3)
        net[0].bias[:] = net[4].bias[:] = 0
    torch.export.save(torch.export.export(net, (torch.zeros(1, 3, 8, 8),)), place / "model.pt2")
    tour(place)


def test_the_script(place: Path) -> None:
    """The page's script for digits, with the two commands that use it."""
    digits = ROOT / "examples" / "mnist_small"
    shutil.copy(digits / "mnist_small.onnx", place / "net.onnx")
    shutil.copy(digits / "samples.npz", place)
    (place / "data.py").write_text(snippets(PAGE, "python")[0])
    texts = [output(line, place) for line in lines(1)]
    assert re.search(r"small\.lnt +│ i16 .*│ 100\.0% │", texts[0]), texts[0]
    assert '"top-1": 1.0' in texts[1]
