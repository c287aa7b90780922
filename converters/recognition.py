"""Recognizes the format of a file by its content and its name. For a format that linnet does not read, names a tool
that converts it to ONNX or TFLite. If another tool already converts a format well, linnet has no importer for it."""

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

_ORIGINAL = "export the model that it was made from to ONNX or TFLite"
_OPENVINO = "give the ONNX or TFLite model that it was made from: OpenVINO's tools do not convert back"
_NCNN = "give the ONNX model that it was made from, or export that model to ONNX: ncnn's tools do not convert back"

# By extension: the kind of file, and how a user turns it into a file that linnet reads.
EXPORTERS = {
    ".h5": ("a Keras file", _KERAS), ".hdf5": ("a Keras file", _KERAS), ".keras": ("a Keras file", _KERAS),
    ".pb": ("a TensorFlow graph", "convert its folder to a .tflite file with tf.lite.TFLiteConverter.from_saved_model"),
    ".ckpt": ("a checkpoint", _TORCH),
    ".safetensors": ("a file with weights but no graph", _TORCH),
    ".mlmodel": ("a Core ML model", _COREML), ".mlpackage": ("a Core ML model", _COREML),
    ".mlmodelc": ("a compiled Core ML model", _COREML),
    ".pkl": ("a pickle", _PICKLE), ".joblib": ("a pickle", _PICKLE),
    ".pdmodel": ("a PaddlePaddle model", "convert it to ONNX with paddle2onnx --model_dir ... --save_file model.onnx"),
    ".gguf": ("a GGUF file", "export the original model to ONNX"),
    ".ort": ("a model in ONNX Runtime's own format", "use the .onnx file it was made from: the format has no way back"),
    ".task": ("a MediaPipe task file, a zip archive of .tflite models", "unzip it, and give one of its .tflite files"),
    ".zip": ("a zip archive (the format of PyTorch and Keras files)", "for PyTorch: " + _TORCH + "; for Keras: " + _KERAS),
    ".param": ("an ncnn graph", _NCNN), ".ncnn": ("an ncnn graph", _NCNN),
    ".mnn": ("an MNN model", _ORIGINAL), ".litertlm": ("a LiteRT-LM file", _ORIGINAL),
    ".tnnproto": ("a TNN model", _ORIGINAL), ".dlc": ("a Qualcomm SNPE model", _ORIGINAL),
    ".rknn": ("a Rockchip model", _ORIGINAL),
    ".xml": ("an OpenVINO graph", _OPENVINO), ".bin": ("a file with weights but no graph",
             "give the file with the graph: an .onnx, .tflite or .pt2 file; if it belongs to an OpenVINO .xml file, give the "
             "model that this was made from"),
    ".pte": ("an ExecuTorch program", "save the exported program itself with torch.export.save, and give that .pt2 file"),
    ".ptl": ("a PyTorch Mobile file", _TORCH),
    ".engine": ("a TensorRT engine", "give the ONNX model that it was built from: an engine only has code for one GPU"),
    ".plan": ("a TensorRT engine", "give the ONNX model that it was built from: an engine only has code for one GPU"),
    ".caffemodel": ("a Caffe model", "convert it to ONNX with a converter of Caffe models"),
    ".prototxt": ("the text of a Caffe graph", "convert it, with its .caffemodel, to ONNX"),
    ".npy": ("a NumPy array", "give the model's file, and this one with --input to linnet run"),
    ".npz": ("NumPy arrays", "give the model's file, and this one with --calibration or --data"),
    ".lnt": ("already a linnet file", "use it with linnet run, bench or inspect"),
}  # fmt: skip

# The identifiers of FlatBuffers, which are at byte 4.
_IDENTIFIERS = {b"ORTM": ".ort", b"ET12": ".pte", b"ET13": ".pte"}

TORCH = (".pt", ".pth", ".pt2")
_TORCH_PARTS = ("archive_format", "serialized_exported_program.json", "/constants.pkl", "/data.pkl")  # in its archives

# The first bytes of formats that may have any file name, and the extension whose entry above applies.
_BEGINNINGS = (
    (b"7767517\n", ".param"), (b"7767517\r", ".param"), (b"ftrt", ".engine"), (b"ptrt", ".engine"), (b"\x93NUMPY", ".npy"),
    (b"\x89HDF\r\n\x1a\n", ".h5"), (b"LINNET\r\n", ".lnt"), (b"GGUF", ".gguf"),
    *((bytes([0x80, protocol]), ".pkl") for protocol in range(2, 6)),
)  # fmt: skip


def is_tflite(path: str | Path) -> bool:
    """Whether a file has TFLite's identifier. If the file cannot be read: whether it has TFLite's extension."""
    try:
        with open(path, "rb") as file:
            if file.read(8)[4:] == b"TFL3":
                return True
    except OSError:
        pass
    return Path(path).suffix.lower() in (".tflite", ".lite")


def is_linnet(path: str | Path) -> bool:
    """Whether a file has the first bytes of a .lnt file. If the file cannot be read: whether it has the extension
    .lnt."""
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
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError):
        return False


def format_of(path: str | Path, is_onnx: Callable[[Path], bool]) -> str:
    """Returns "onnx", "tflite" or "torch". is_onnx: a function that says whether a file is an ONNX model although its
    name belongs to another format. For example, names of old ONNX models end in .pb. Raises FileError for a folder, or
    a file of another format."""
    path = Path(path)
    if is_tflite(path):
        return "tflite"
    if is_torch(path):
        return "torch"
    suffix = path.suffix.lower()
    content = _suffix_by_content(path)
    if suffix not in EXPORTERS:
        suffix = content or suffix
    if path.is_dir() and suffix not in EXPORTERS:
        if (path / "saved_model.pb").is_file():
            what, hint = "a TensorFlow SavedModel", EXPORTERS[".pb"][1]
        else:
            what, hint = "a folder", "give the path of the model file in it"
    elif suffix in EXPORTERS and path.exists() and not (path.is_file() and not content and is_onnx(path)):
        what, hint = EXPORTERS[suffix]
        if suffix in (".task", ".zip") and tflite_parts(path):
            what, hint = EXPORTERS[".task"][0], _unpacking(path)
    else:
        return "onnx"
    raise FileError(f"is {what}", tensor=str(path), code=203, expected="an .onnx, .tflite, .pt2 or .pt file", hint=hint)


def _suffix_by_content(path: Path) -> str:
    """Returns the extension of the format that the first bytes identify; "" if they identify none or cannot be read."""
    try:
        with open(path, "rb") as file:
            start = file.read(4096)
    except OSError:
        return ""
    if start.startswith(b"PK\x03\x04"):
        return ".task" if tflite_parts(path) else ".zip"
    if start[4:8] in _IDENTIFIERS:
        return _IDENTIFIERS[start[4:8]]
    if start.lstrip()[:1] == b"<":
        return ".xml" if b"<net " in start else ""
    if len(start) > 16 and start[8:10] == b'{"' and int.from_bytes(start[:8], "little") < path.stat().st_size:
        return ".safetensors"  # the length of a JSON header, and the header
    return next((suffix for beginning, suffix in _BEGINNINGS if start.startswith(beginning)), "")


def tflite_parts(path: Path) -> list[str]:
    """The names of the TFLite models in a zip archive; none if the file is not an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name for name in archive.namelist() if name.lower().endswith((".tflite", ".lite"))]
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError):
        return []


def _unpacking(path: Path) -> str:
    """The hint for an archive of TFLite models."""
    parts = tflite_parts(path)
    if not parts:
        return EXPORTERS[".task"][1]
    return f"unpack it: unzip {path} -d {path.stem}; then give one of its models: " + ", ".join(
        f"{path.stem}/{part}" for part in parts
    )
