"""Which importer reads a file; for other formats, what turns them into ONNX or TFLite: linnet has no importer for what
somebody else converts well already."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from linnet.errors import FileError

_KERAS = (
    "model.export('folder') in Keras, then tf.lite.TFLiteConverter.from_saved_model('folder').convert(), gives TFLite"
)
_TORCH = "load the module in Python and call linnet.from_torch(module, example_inputs), or torch.onnx.export it"
_COREML = "export the model that it was made from: Core ML's tools do not convert back"
_PICKLE = "skl2onnx.convert_sklearn makes scikit-learn's estimators ONNX; for modules of torch use linnet.from_torch"

EXPORTERS = {
    ".h5": ("a Keras file", _KERAS), ".hdf5": ("a Keras file", _KERAS), ".keras": ("a Keras file", _KERAS),
    ".pb": ("a TensorFlow graph", "tf.lite.TFLiteConverter.from_saved_model on its folder gives a .tflite file"),
    ".pt": ("a PyTorch file", _TORCH), ".pth": ("a PyTorch file", _TORCH),
    ".ckpt": ("a checkpoint", _TORCH), ".pt2": ("a torch.export program", "torch.onnx.export(torch.export.load(file))"),
    ".safetensors": ("a file of weights alone", _TORCH),
    ".mlmodel": ("a Core ML model", _COREML), ".mlpackage": ("a Core ML model", _COREML),
    ".pkl": ("a pickle", _PICKLE), ".joblib": ("a pickle", _PICKLE),
    ".pdmodel": ("a PaddlePaddle model", "paddle2onnx --model_dir ... --save_file model.onnx makes it ONNX"),
    ".gguf": ("a GGUF file", "export the model that it was made from to ONNX"),
    ".ort": ("an ONNX Runtime file", "give the .onnx file that it was made from"),
    ".zip": ("a zip archive, as PyTorch and Keras write", "for PyTorch: " + _TORCH + "; for Keras: " + _KERAS),
    ".lnt": ("a linnet file already", "give it to linnet run, bench or inspect"),
}  # fmt: skip


# First bytes of formats that come under any name, and the extension above that tells about them.
_BEGINNINGS = (
    (b"\x89HDF\r\n\x1a\n", ".h5"), (b"LINNET\r\n", ".lnt"), (b"GGUF", ".gguf"), (b"PK\x03\x04", ".zip"),
    *((bytes([0x80, protocol]), ".pkl") for protocol in range(2, 6)),
)  # fmt: skip


def importer_of(path: str | Path) -> ModuleType:
    """The package `linnet.converters.onnx` or `.tflite`. Raises FileError for a folder, or a file of another format."""
    from linnet.converters import onnx, tflite

    path = Path(path)
    if tflite.is_tflite(path):
        return tflite
    suffix = path.suffix.lower()
    if suffix not in EXPORTERS:
        suffix = _suffix_by_content(path) or suffix
    if path.is_dir() and suffix not in EXPORTERS:
        if (path / "saved_model.pb").is_file():
            what, hint = "a TensorFlow SavedModel", EXPORTERS[".pb"][1]
        else:
            what, hint = "a folder", "give the path of the file in it"
    elif suffix in EXPORTERS and path.exists() and not (suffix == ".pb" and _is_onnx(path)):
        what, hint = EXPORTERS[suffix]
    else:
        return onnx
    raise FileError(f"is {what}", tensor=str(path), code=203, expected="an .onnx or .tflite file", hint=hint)


def _suffix_by_content(path: Path) -> str:
    """The extension of a format that no ONNX file can begin like; "" for others, and where nothing can be read."""
    try:
        with open(path, "rb") as file:
            start = file.read(8)
    except OSError:
        return ""
    found = next((suffix for beginning, suffix in _BEGINNINGS if start.startswith(beginning)), "")
    return ".ort" if start[4:] == b"ORTM" else found


def _is_onnx(path: Path) -> bool:
    """Whether a .pb file, as ONNX models of old are named too, is one."""
    from linnet.converters.onnx import loader

    try:
        return bool(loader.load(path)[0].graph.node)
    except FileError:
        return False
