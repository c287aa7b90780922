"""Recognises the format of a file by its content and its name. For a format that linnet does not read, names a tool that
converts it to ONNX or TFLite. linnet has no importer for a format that another tool already converts well."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

from linnet.clib.errors import FileError

_KERAS = "call model.export('folder') in Keras, then tf.lite.TFLiteConverter.from_saved_model('folder').convert()"
_TORCH = (
    "load the module in Python and call linnet.from_torch(module, example_inputs), or export it with torch.onnx.export"
)
_COREML = "export the original model to ONNX or TFLite: Core ML's tools do not convert back"
_PICKLE = (
    "convert scikit-learn estimators to ONNX with skl2onnx.convert_sklearn, and torch modules with linnet.from_torch"
)

EXPORTERS = {
    ".h5": ("a Keras file", _KERAS), ".hdf5": ("a Keras file", _KERAS), ".keras": ("a Keras file", _KERAS),
    ".pb": ("a TensorFlow graph", "convert its folder to a .tflite file with tf.lite.TFLiteConverter.from_saved_model"),
    ".ckpt": ("a checkpoint", _TORCH),
    ".safetensors": ("a file with weights but no graph", _TORCH),
    ".mlmodel": ("a Core ML model", _COREML), ".mlpackage": ("a Core ML model", _COREML),
    ".pkl": ("a pickle", _PICKLE), ".joblib": ("a pickle", _PICKLE),
    ".pdmodel": ("a PaddlePaddle model", "convert it to ONNX with paddle2onnx --model_dir ... --save_file model.onnx"),
    ".gguf": ("a GGUF file", "export the original model to ONNX"),
    ".ort": ("an ONNX Runtime file", "use the .onnx file it was made from"),
    ".zip": ("a zip archive (the format of PyTorch and Keras files)", "for PyTorch: " + _TORCH + "; for Keras: " + _KERAS),
    ".lnt": ("already a linnet file", "use it with linnet run, bench or inspect"),
}  # fmt: skip

TORCH = (".pt", ".pth", ".pt2")
_TORCH_PARTS = ("archive_format", "serialized_exported_program.json", "/constants.pkl", "/data.pkl")  # in its archives

# The first bytes of formats that may have any file name, and the extension whose entry above applies.
_BEGINNINGS = (
    (b"\x89HDF\r\n\x1a\n", ".h5"), (b"LINNET\r\n", ".lnt"), (b"GGUF", ".gguf"), (b"PK\x03\x04", ".zip"),
    *((bytes([0x80, protocol]), ".pkl") for protocol in range(2, 6)),
)  # fmt: skip


def is_tflite(path: str | Path) -> bool:
    """Whether a file has TFLite's identifier; if the file cannot be read, whether it has TFLite's extension."""
    try:
        with open(path, "rb") as file:
            if file.read(8)[4:] == b"TFL3":
                return True
    except OSError:
        pass
    return Path(path).suffix.lower() in (".tflite", ".lite")


def is_linnet(path: str | Path) -> bool:
    """Whether a file has the first bytes of a .lnt file; if the file cannot be read, whether it has that extension."""
    try:
        with open(path, "rb") as file:
            return file.read(8) == b"LINNET\r\n"
    except OSError:
        return Path(path).suffix.lower() == ".lnt"


def is_torch(path: str | Path) -> bool:
    """Whether a file has an extension of PyTorch, or is an archive that torch wrote."""
    path = Path(path)
    if path.suffix.lower() in TORCH:
        return not path.is_dir()
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"PK\x03\x04":
                return False
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(_TORCH_PARTS) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def format_of(path: str | Path, is_onnx: Callable[[Path], bool]) -> str:
    """Returns "onnx", "tflite" or "torch". is_onnx: whether a .pb file is an ONNX model, because old ONNX models have this
    extension too. Raises FileError for a folder, or a file of another format."""
    path = Path(path)
    if is_tflite(path):
        return "tflite"
    if is_torch(path):
        return "torch"
    suffix = path.suffix.lower()
    if suffix not in EXPORTERS:
        suffix = _suffix_by_content(path) or suffix
    if path.is_dir() and suffix not in EXPORTERS:
        if (path / "saved_model.pb").is_file():
            what, hint = "a TensorFlow SavedModel", EXPORTERS[".pb"][1]
        else:
            what, hint = "a folder", "give the path of the model file in it"
    elif suffix in EXPORTERS and path.exists() and not (suffix == ".pb" and is_onnx(path)):
        what, hint = EXPORTERS[suffix]
    else:
        return "onnx"
    raise FileError(f"is {what}", tensor=str(path), code=203, expected="an .onnx, .tflite, .pt2 or .pt file", hint=hint)


def _suffix_by_content(path: Path) -> str:
    """Returns the extension of the format that the first bytes identify; "" if they identify none or cannot be read."""
    try:
        with open(path, "rb") as file:
            start = file.read(8)
    except OSError:
        return ""
    found = next((suffix for beginning, suffix in _BEGINNINGS if start.startswith(beginning)), "")
    return ".ort" if start[4:] == b"ORTM" else found
