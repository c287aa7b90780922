"""Makes the file that each engine reads from a network's ONNX file, once, with the engine's own converter.
A converter runs in the engine's environment; if it fails, `Unavailable` says why."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.peers import environments
from tests.peers.environments import Unavailable
from tests.peers.networks import Network, folder

ROOT = Path(__file__).resolve().parent.parent.parent
_TIMEOUT_S = 1200


def file_of(engine: str, network: Network) -> Path:
    """The file of a network for an engine; the first call converts it."""
    return _FILES[engine](network)


def _converted(environment: str, *parts: str) -> Path:
    """The folder of what an environment of these packages converts; the environment is installed."""
    return folder("converted", f"{environment}-{environments.install(environment)['digest']}", *parts)


def _unchanged(network: Network) -> Path:
    return network.onnx


def _linnet(network: Network) -> Path:
    """linnet's own file. It is converted anew in every run of the benchmark, because the converter changes."""
    import linnet

    path = folder("converted", "linnet") / f"{network.name}.lnt"
    try:
        linnet.from_onnx(network.onnx).save(path)
    except linnet.Error as error:
        raise Unavailable(f"cannot be converted: {error}") from error
    return path


def _pnnx(network: Network) -> Path:
    """The folder in which pnnx wrote an f32 network as ncnn's files and as a PyTorch module."""
    path = _converted("ncnn", network.onnx.stem)
    if not (path / "m.ncnn.param").is_file():
        shutil.copyfile(network.onnx, path / "m.onnx")
        programs = [*environments.program("ncnn").parent.parent.glob("lib/python*/site-packages/pnnx/pnnx")]
        if not programs:
            raise Unavailable("cannot be converted: its environment has no pnnx")
        shape = ",".join(map(str, network.shape))
        _run([str(programs[0]), "m.onnx", f"inputshape=[{shape}]", "fp16=0"], path)
        for name in ("m.onnx", "m.pnnx.onnx", "m.pnnxsim.onnx"):  # copies of all weights
            (path / name).unlink(missing_ok=True)
    return path


def _ncnn(network: Network) -> Path:
    if network.int8:
        raise Unavailable("its package has no tool that quantizes")
    return _pnnx(network) / "m.ncnn.param"


def _mnn(network: Network) -> Path:
    """`mnnconvert` itself would install a package that reports on its use, so this calls what it calls."""
    if network.int8:
        raise Unavailable("its converter quantizes only weights")
    path = _converted("mnn") / f"{network.onnx.stem}.mnn"
    if not path.is_file():
        part = path.with_suffix(".part")
        words = ["-f", "ONNX", "--modelFile", str(network.onnx), "--MNNModel", str(part), "--bizCode", "linnet"]
        if network.name == "lstm":
            words.append("--useOriginRNNImpl")  # without it, the converter crashes
        script = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
        _run([str(environments.program("mnn")), "-c", script, *words], path.parent)
        if not part.is_file():
            raise Unavailable("mnnconvert writes no file")
        part.replace(path)
    return path


def _of_module(engine: str, environment: str, suffix: str) -> Callable[[Network], Path]:
    """Converts the PyTorch module; an int8 network from that of its f32 network, with the engine's own quantizer."""

    def make(network: Network) -> Path:
        base = network.base or network
        path = _converted(environment) / f"{network.onnx.stem}{suffix}"
        if not path.is_file():
            with tempfile.TemporaryDirectory(prefix="linnet-peers-") as temporary:
                samples = Path(temporary, "samples.npy")
                if network.int8:
                    np.save(samples, base.samples())
                asked = {
                    "engine": engine, "folder": str(_pnnx(base)), "input": str(base.input()), "out": str(path),
                    "samples": str(samples) if network.int8 else "",
                }  # fmt: skip
                command = [str(environments.program(environment)), "-m", "tests.peers.from_pnnx", json.dumps(asked)]
                _run(command, ROOT)
        return path

    return make


def _run(command: list[str], where: Path) -> None:
    """Runs a converter in a folder. Raises Unavailable with the last line that it wrote."""
    try:
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"cannot be converted: {error}") from error
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()] or [str(done.returncode)]
        raise Unavailable(f"cannot be converted: {said[-1].strip()}"[:300])


_FILES: dict[str, Callable[[Network], Path]] = {
    "linnet": _linnet,
    "onnxruntime": _unchanged,
    "openvino": _unchanged,
    "ncnn": _ncnn,
    "mnn": _mnn,
    "litert": _of_module("litert", "litert-convert", ".tflite"),
    "executorch": _of_module("executorch", "executorch", ".pte"),
}
