"""Saved PyTorch modules through `linnet.load_graph` and `linnet convert`: the same numbers as from the module itself, and
one clear line for every file that holds no module."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import linnet
from tests.test_preprocess import photo
from tests.with_torch import MISSING, torch

pytest.importorskip("onnxscript", reason=MISSING)
from torch import nn

SHAPE = {"input": (1, 3, 32, 32)}
Command = Callable[..., Any]


def network() -> Any:
    """A convolution, a block of a depthwise and a pointwise one, and a classifier, as in torchvision's MobileNet."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU6(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 16, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 5),
    ).eval()  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the network in every kind of file."""
    folder, net, x = tmp_path_factory.mktemp("saved"), network(), torch.zeros(2, 3, 32, 32)
    torch.export.save(torch.export.export(net, (x[:1],)), folder / "fixed.pt2")
    batch = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(net, (x,), dynamic_shapes=batch), folder / "open.pt2")
    torch.jit.script(net).save(str(folder / "script.pt"))
    torch.jit.trace(net, x[:1]).save(str(folder / "trace.pt"))
    torch.save(net, folder / "module.pt")
    torch.save(net, folder / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(net.train(), folder / "training.pt")
    torch.save(net.state_dict(), folder / "weights.pt")
    return folder


def outputs(graph: linnet.Graph) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(1).standard_normal((1, 3, 32, 32), np.float32)
    return linnet.Session(graph).run({"input": x})["output"]


KINDS = {
    "fixed.pt2": None, "open.pt2": None, "script.pt": SHAPE, "trace.pt": SHAPE, "module.pt": SHAPE, "old.pt": SHAPE,
    "training.pt": SHAPE,
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_has_the_numbers_of_the_module(name: str, saved: Path) -> None:
    graph = linnet.load_graph(saved / name, KINDS[name], trust_pickle=name in ("module.pt", "old.pt", "training.pt"))
    expected = outputs(linnet.from_torch(network(), torch.zeros(1, 3, 32, 32)))
    np.testing.assert_allclose(outputs(graph), expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    assert np.ptp(expected) > 1e-3 and graph.metadata["source"] == "torch"


def test_shapes_of_a_program(saved: Path) -> None:
    """Those that it leaves open can be fixed, no others."""
    shape = linnet.load_graph(saved / "open.pt2").signatures["infer"].function.inputs[0].shape
    assert shape is not None and isinstance(shape[0], str) and shape[1:] == (3, 32, 32)  # torch's own name of the batch
    graph = linnet.load_graph(saved / "open.pt2", {"input": (4, 3, 32, 32)})
    assert graph.signatures["infer"].function.inputs[0].shape == (4, 3, 32, 32)
    with pytest.raises(linnet.ConversionError, match=r"\[1, 3, 8, 8\].*declares \[1, 3, 32, 32\]"):
        linnet.load_graph(saved / "fixed.pt2", {"input": (1, 3, 8, 8)})


def test_a_program_needs_no_example(saved: Path) -> None:
    program = torch.export.load(saved / "open.pt2")
    np.testing.assert_array_equal(outputs(linnet.from_torch(program)), outputs(linnet.load_graph(saved / "open.pt2")))
    with pytest.raises(linnet.UsageError, match="ExportedProgram has its own inputs"):
        linnet.from_torch(program, torch.zeros(1, 3, 32, 32))
    with pytest.raises(linnet.UsageError, match="inputs are missing"):
        linnet.from_torch(network())
    with pytest.raises(linnet.UsageError, match=r"linnet\.load_graph"):
        linnet.from_torch(torch.jit.load(saved / "script.pt"), torch.zeros(1, 3, 32, 32))


@pytest.mark.parametrize("name", ["script.pt", "module.pt"])
def test_wrong_shapes(name: str, saved: Path) -> None:
    def load(shapes: dict[str, Any] | None) -> None:
        linnet.load_graph(saved / name, shapes, trust_pickle=True)

    with pytest.raises(linnet.UsageError, match=r"does not record.*input_shapes="):
        load(None)
    with pytest.raises(linnet.UsageError, match=r"no input named 'x'; expected input"):
        load({"x": (1, 3, 32, 32)})
    with pytest.raises(linnet.UsageError, match=r"does not take f32 inputs of these shapes.*channels"):
        load({"input": (1, 4, 32, 32)})


def test_a_dictionary_of_outputs_and_an_optional_input(tmp_path: Path) -> None:
    torch.save(Named(), tmp_path / "named.pt")
    with pytest.raises(linnet.UsageError, match="expected a shape for x;"):
        linnet.load_graph(tmp_path / "named.pt", trust_pickle=True)
    graph = linnet.load_graph(tmp_path / "named.pt", {"x": (2, 3)}, trust_pickle=True)
    assert graph.signatures["infer"].inputs == ["x"] and graph.signatures["infer"].outputs == ["double", "sum"]
    torch.save(Optional(), tmp_path / "optional.pt")
    with pytest.raises(linnet.UsageError, match="expected a shape for x too"):
        linnet.load_graph(tmp_path / "optional.pt", {"y": (1,)}, trust_pickle=True)


class Named(nn.Module):
    def forward(self, x: Any, scale: Any = None) -> dict[str, Any]:
        return {"double": x * 2 if scale is None else x * scale, "sum": x.sum()}


class Pair(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        return x + y, (x * y, x - y)


class Keyed(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"double": x * 2}


class Forks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1


def test_outputs_of_torchscript(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.jit.script(Pair()).save(str(tmp_path / "pair.pt"))
    graph = linnet.load_graph(tmp_path / "pair.pt", {"x": (2,), "y": (2,)})
    found = linnet.Session(graph).run({"x": np.float32([1, 2]), "y": np.float32([3, 5])})
    assert {name: value.tolist() for name, value in found.items()} == {
        "output_0": [4, 7], "output_1": [3, 10], "output_2": [-2, -3]
    }  # fmt: skip
    torch.jit.script(Keyed()).save(str(tmp_path / "keyed.pt"))
    capfd.readouterr()
    with pytest.raises(linnet.ConversionError, match=r"DictConstruct.*\.pt2"):
        linnet.load_graph(tmp_path / "keyed.pt", {"x": (2,)})
    assert capfd.readouterr().out == ""


def test_the_exporters_message_is_one_line(tmp_path: Path) -> None:
    torch.save(Forks(), tmp_path / "forks.pt")
    with pytest.raises(linnet.ConversionError, match="data-dependent") as caught:
        linnet.load_graph(tmp_path / "forks.pt", {"x": (3,)}, trust_pickle=True)
    assert "\n" not in str(caught.value) and caught.value.problems[0].op == "torch.onnx.export"


class Optional(nn.Module):
    def forward(self, x: Any = None, y: Any = None) -> Any:
        return y if x is None else x


class Harmful:
    """Unpickling it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_pickles_run_only_when_trusted(tmp_path: Path) -> None:
    torch.save(Harmful(tmp_path / "made"), tmp_path / "harmful.pt")
    with pytest.raises(
        linnet.UsageError, match=r"pickled module.*run any code.*torch\.export\.save.*trust_pickle=True"
    ):
        linnet.load_graph(tmp_path / "harmful.pt", {"x": (1,)})
    assert not (tmp_path / "made").exists()
    with pytest.raises(linnet.FileError, match="holds a NoneType"):
        linnet.load_graph(tmp_path / "harmful.pt", {"x": (1,)}, trust_pickle=True)
    assert (tmp_path / "made").exists()


def test_a_program_cannot_bring_a_pickle(saved: Path, tmp_path: Path) -> None:
    """torch.export.load unpickles the example inputs that a file has, whatever they are."""
    import zipfile

    torch.save(Harmful(tmp_path / "made"), tmp_path / "inputs.pt")
    with zipfile.ZipFile(saved / "fixed.pt2") as old, zipfile.ZipFile(tmp_path / "net.pt2", "w") as new:
        names = old.namelist()
        for name in names:
            harm = name.endswith("sample_inputs/model.pt")
            new.writestr(name, (tmp_path / "inputs.pt").read_bytes() if harm else old.read(name))
    assert any(name.endswith("sample_inputs/model.pt") for name in names)
    before = dict(os.environ)
    with pytest.raises(linnet.UsageError, match=r"pickled objects.*run any code"):
        linnet.load_graph(tmp_path / "net.pt2")
    assert not (tmp_path / "made").exists() and dict(os.environ) == before


def test_a_pickle_without_its_source(tmp_path: Path) -> None:
    torch.save(Named(), tmp_path / "named.pt")
    content = (tmp_path / "named.pt").read_bytes()
    (tmp_path / "named.pt").write_bytes(content.replace(b"Named", b"Nomad"))
    with pytest.raises(linnet.FileError, match=r"unpickled.*Nomad.*PYTHONPATH"):
        linnet.load_graph(tmp_path / "named.pt", {"x": (2, 3)}, trust_pickle=True)


def test_weights_alone_are_refused(saved: Path) -> None:
    for trust in (False, True):
        with pytest.raises(linnet.FileError, match=r"state_dict.*load_state_dict.*torch\.export\.save"):
            linnet.load_graph(saved / "weights.pt", SHAPE, trust_pickle=trust)


@pytest.mark.parametrize("name", ["fixed.pt2", "script.pt", "module.pt"])
def test_damaged_files(name: str, saved: Path, tmp_path: Path) -> None:
    content = (saved / name).read_bytes()
    path = tmp_path / name
    for damaged in (content[: len(content) // 2], content[:4] + bytes(200), b"", b"content"):
        path.write_bytes(damaged)
        with pytest.raises(linnet.FileError, match=r"is not a PyTorch file, or is damaged.*linnet\.from_torch"):
            linnet.load_graph(path, SHAPE, trust_pickle=True)


def test_random_damage_ends_in_an_error_or_a_graph(saved: Path, tmp_path: Path) -> None:
    rng, path = np.random.default_rng(3), tmp_path / "net.pt2"
    content = (saved / "fixed.pt2").read_bytes()
    for _ in range(20):
        changed = bytearray(content)
        for at in rng.integers(0, len(content), 30):
            changed[at] = rng.integers(0, 256)
        path.write_bytes(bytes(changed))
        try:
            linnet.load_graph(path)
        except linnet.Error as error:
            assert "\n" not in str(error)


def test_the_command(saved: Path, tmp_path: Path, linnet_command: Command) -> None:
    out = tmp_path / "net.lnt"
    done = linnet_command("convert", saved / "fixed.pt2", "-o", out)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    expected = outputs(linnet.load_graph(saved / "fixed.pt2"))
    np.testing.assert_array_equal(outputs(linnet.load_graph(out)), expected)
    done = linnet_command("convert", saved / "module.pt", "-o", out, "--shape", "input=1,3,32,32")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "--trust-pickle" in done.stderr
    arguments = ("convert", saved / "module.pt", "-o", out, "--shape", "input=1,3,32,32", "--trust-pickle")
    assert linnet_command(*arguments).returncode == 0
    np.testing.assert_allclose(outputs(linnet.load_graph(out)), expected, rtol=0, atol=1e-6)
    done = linnet_command("convert", "--check", saved / "script.pt", "--shape", "input=1,3,32,32", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["converts"] and report["format"] == "torch" and report["nodes"] > 5


def test_from_pictures_to_an_i8_model(saved: Path, tmp_path: Path, linnet_command: Command) -> None:
    """One command takes a saved module and a folder of pictures, and the result takes a picture."""
    for i in range(20):
        Image.fromarray(photo(40 + i, 60, i, smooth=True)).save(tmp_path / f"{i}.png")
    for name in ("open.pt2", "script.pt"):
        out = tmp_path / "i8.lnt"
        done = linnet_command(
            "convert", saved / name, "-o", out, "--shape", "input=1,3,32,32", "--dtype", "i8", "--calibration", tmp_path,
            "--samples", 10, "--image", "imagenet",
        )  # fmt: skip
        assert done.returncode == 0 and done.stderr == "", done.stderr
        done = linnet_command("run", out, "--input", tmp_path / "7.png", "--output-dir", tmp_path)
        assert done.returncode == 0, done.stderr
        pixels = transformed(Image.open(tmp_path / "7.png"))
        with torch.no_grad():
            expected = network()(pixels).numpy()
        assert np.abs(np.load(tmp_path / "output.npy") - expected).max() < 0.05 * np.abs(expected).max()
    done = linnet_command("bench", out, "--signature", "raw", "--seconds", "0.05", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["inputs"][0]["shape"] == [1, 3, 32, 32]


def transformed(picture: Any) -> Any:
    """What torchvision's transforms Resize(37), CenterCrop(32), ToTensor and Normalize make of a picture that is wider than
    high."""
    width = int(37 * picture.width / picture.height)
    sized = picture.resize((width, 37), Image.Resampling.BILINEAR)
    left, top = round((width - 32) / 2), round((37 - 32) / 2)
    values = np.asarray(sized.crop((left, top, left + 32, top + 32)), np.float32) / 255
    normal = (values - np.float32((0.485, 0.456, 0.406))) / np.float32((0.229, 0.224, 0.225))
    return torch.from_numpy(normal.transpose(2, 0, 1)[None].astype(np.float32))
