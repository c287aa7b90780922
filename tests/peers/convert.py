"""Makes the file that each engine reads from a network's ONNX file, once, with the engine's own converter.
A converter runs in the engine's environment; if it fails, `Unavailable` says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.peers.environments import Unavailable
from tests.peers.networks import Network, folder

ROOT = Path(__file__).resolve().parent.parent.parent
_TIMEOUT_S = 1200


def file_of(engine: str, network: Network) -> Path:
    """The file of a network for an engine; the first call converts it."""
    make = _FILES.get(engine)
    if make is None:
        raise Unavailable("has no converter here yet")
    return make(network)


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


_FILES: dict[str, Callable[[Network], Path]] = {
    "linnet": _linnet, "onnxruntime": _unchanged, "openvino": _unchanged,
}  # fmt: skip
