"""Reads an ONNX model from disk: the protobuf, and tensors stored in separate files.
External data is read only from inside the model's folder, or from beside the file to which a link to the model leads, and
only if offset and length fit the file."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from linnet.clib.errors import FileError
from linnet.converters.onnx import outside
from linnet.converters.onnx.narrow import KINDS
from linnet.converters.onnx.operation import array_of, storage_of
from linnet.converters.onnx.problems import Unsupported
from linnet.converters.recognition import format_of
from linnet.ir.dtypes import numpy_dtype

_PIECE = 8 << 20


def load(path: str | Path) -> tuple[onnx.ModelProto, str]:
    """Returns the model without external data, and its absolute path. Raises FileError."""
    path = Path(path)
    if not path.exists():
        raise FileError("there is no such file", tensor=str(path), code=201, hint="check the path")
    if path.is_dir():
        _other_format(path)
    if not path.is_file():
        raise FileError("is not a regular file", tensor=str(path), code=202, hint="give the path of an .onnx file")
    if path.stat().st_size == 0:
        raise FileError("is empty", tensor=str(path), code=205, hint="export the model or copy the file again")
    again = "export the model again" if path.suffix.lower() == ".onnx" else "give an .onnx or .tflite file"
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            model = outside.parse(content, path)
    except OSError as error:
        raise FileError(
            f"cannot be read: {error.strerror}",
            tensor=str(path),
            code=202,
            hint="give a file that you have permission to read",
        ) from None
    except outside.TooManyFields:
        raise FileError(
            "has too many nodes, initializers and other parts", tensor=str(path), code=206, hint=again,
            expected=f"at most {outside.MOST_FIELDS:,}", got="more",
        ) from None  # fmt: skip
    except Exception:  # protobuf raises DecodeError, or ValueError above 2 GiB
        _other_format(path)
        raise FileError("is not an ONNX model, or is damaged", tensor=str(path), code=206, hint=again) from None
    if not model.HasField("graph"):
        raise FileError("is not an ONNX model: it has no graph", tensor=str(path), code=206, hint=again)
    return model, os.path.abspath(path)


def data_files(path: str | Path) -> list[Path]:
    """The files in which a model stores tensors outside its own file, each once. Files that are missing are left out.
    Raises FileError."""
    model, place = load(path)
    names = dict.fromkeys(
        entry.value
        for proto in _tensors(model.graph)
        if proto.data_location == onnx.TensorProto.EXTERNAL
        and all(e.key != outside.INSIDE for e in proto.external_data)
        for entry in proto.external_data
        if entry.key == "location"
    )
    found = (_inside(name, place) for name in names)
    return [file for file in found if file is not None and file.is_file()]


def _inside(location: str, place: str) -> Path | None:
    """The data file of the model at `place`; None if it is outside the model's folder. In the cache of a model hub, the
    model and its data files are links to files that lie in another folder, side by side. Raises ValueError and OSError
    for a path that cannot be resolved."""
    folder = Path(place).parent.resolve()
    file = (folder / location).resolve()
    linked = file.parent == Path(place).resolve().parent and folder in Path(os.path.abspath(folder / location)).parents
    return file if folder in file.parents or linked else None


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The initializers and the tensors in attributes, also those of branches and loop bodies."""
    yield from graph.initializer
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)


def _other_format(path: Path) -> None:
    """Raises FileError if the file is known to have another format."""
    # .pb is excluded because recognizing it would call `load` again
    found = "onnx" if path.suffix.lower() == ".pb" else format_of(path, lambda _: False)
    if found == "tflite":
        raise FileError("is a TFLite model", tensor=str(path), code=203, hint="convert it with linnet.from_tflite")
    if found == "torch":
        raise FileError("is a PyTorch file", tensor=str(path), code=203, hint="convert it with linnet.load_graph")


def array_from(proto: onnx.TensorProto, place: str | None) -> tuple[npt.NDArray[Any], str]:
    """The value and linnet dtype of an initializer, wherever its bytes are stored. place: the path of the model's file.
    Raises Unsupported."""
    what = f"tensor {proto.name!r}"
    if any(d < 0 for d in proto.dims):
        raise Unsupported(f"{what} has a negative dimension: {list(proto.dims)}", "export the model again")
    if proto.data_location != onnx.TensorProto.EXTERNAL:
        try:
            return array_of(proto, what)
        except (ValueError, TypeError) as error:
            raise Unsupported(f"{what} is damaged: {error}", "export the model again") from None
    dtype, kind = storage_of(proto.data_type, what), KINDS.get(proto.data_type)
    if place is None:
        raise Unsupported(f"{what} is stored in another file", "pass the path of the model, not a loaded ModelProto")
    entries = {e.key: e.value for e in proto.external_data}
    try:
        file = _inside(entries.get("location", ""), place)
        there = file is not None and file.is_file()
    except (ValueError, OSError) as error:  # the path contains a NUL or is too long
        raise Unsupported(
            f"{what} is stored in a file that cannot be read: {error}", "put the data file in the model's folder"
        ) from None
    if file is None:
        raise Unsupported(
            f"{what} is stored outside the model's folder: {entries.get('location')!r}",
            "put the data file in the model's folder",
        )
    if not there:
        raise Unsupported(
            f"the data file {entries.get('location')!r} of {what} is missing", "put it in the model's folder"
        )
    element = numpy_dtype(dtype)
    count = 1
    for d in proto.dims:
        count *= d
    size = count * element.itemsize if kind is None else -(-count * kind.bits // 8)  # several elements per byte
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", str(size)))
    except ValueError:
        raise Unsupported(f"the offset or length of {what} is not a number", "export the model again") from None
    if offset < 0 or length != size or offset + length > file.stat().st_size:
        raise Unsupported(
            f"{what} needs {size} bytes at offset {offset} of {file.name}, which has {file.stat().st_size} bytes",
            "the data file is truncated or belongs to another model: copy it again",
        )
    if count == 0:
        return np.zeros(tuple(proto.dims), element), dtype
    if kind is not None:
        raw = np.fromfile(file, np.uint8, size, offset=offset).tobytes()
        return array_of(onnx.TensorProto(dims=proto.dims, data_type=proto.data_type, raw_data=raw), what)
    if outside.INSIDE in entries:  # read now, because a caller may write the model's file again
        return _read(file, element, count, offset, what).reshape(tuple(proto.dims)), dtype
    data = np.memmap(file, element.newbyteorder("<"), "r", offset, (count,))
    return np.asarray(data).reshape(tuple(proto.dims)), dtype


def _read(file: Path, element: np.dtype[Any], count: int, offset: int, what: str) -> npt.NDArray[Any]:
    """Reads in pieces: one read of 400 MB into new memory takes six times as long as 50 reads of 8 MB."""
    data = np.empty(count, element.newbyteorder("<"))
    view, at = data.view(np.uint8).data, 0
    try:
        with file.open("rb", buffering=0) as opened:
            opened.seek(offset)
            while at < len(view) and (done := opened.readinto(view[at : at + _PIECE])):
                at += done
    except OSError as error:
        raise Unsupported(f"{what} cannot be read: {error.strerror}", "copy the file again") from None
    if at < len(view):
        raise Unsupported(f"{what} ends early: the file has been changed meanwhile", "convert it again")
    return data


def text_of(name: str | bytes) -> str:
    """A name as text. protobuf returns bytes if a damaged file holds invalid UTF-8."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
