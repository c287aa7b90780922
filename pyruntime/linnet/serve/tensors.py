"""Requests and answers of the KServe v2 protocol: tensors in JSON, and as binary data behind a JSON header.
https://github.com/kserve/open-inference-protocol and Triton's extension "binary tensor data" define them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from linnet.ir.dtypes import numpy_dtype
from linnet.serve.settings import Refused
from linnet.session.model import TensorSpec

Array = npt.NDArray[Any]

DATATYPES: Final = {
    "f32": "FP32", "f64": "FP64", "f16": "FP16", "bf16": "BF16", "bool": "BOOL",
    "i8": "INT8", "i16": "INT16", "i32": "INT32", "i64": "INT64",
    "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "u64": "UINT64",
}  # fmt: skip
_DTYPES: Final = {datatype: dtype for dtype, datatype in DATATYPES.items()}
_MOST_AXES: Final = 32
_encode: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


@dataclasses.dataclass
class Request:
    """What a client asks for. outputs: {name: whether as binary data}; None: all outputs, as `binary` says."""

    feeds: dict[str, Array]
    outputs: dict[str, bool] | None
    binary: bool
    id: str
    parameters: Mapping[str, Any]


def datatype_of(dtype: str) -> str:
    """The protocol's name of a dtype. Types that it does not know keep linnet's name."""
    return DATATYPES.get(dtype, dtype.upper())


def metadata(spec: TensorSpec) -> dict[str, Any]:
    shape = [] if spec.shape is None else [-1 if d is None else d for d in spec.shape]
    return {"name": spec.name, "datatype": datatype_of(spec.dtype), "shape": shape}


def _bad(text: str) -> Refused:
    return Refused(400, text)


def _field(entry: Any, name: str, kind: type | tuple[type, ...], where: str, default: Any = None) -> Any:
    value = entry.get(name, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        names = {str: "a string", list: "an array", dict: "an object", int: "an integer", bool: "true or false"}
        raise _bad(f"{where}: {name!r} must be {names.get(kind, 'a value')}, got {_short(value)}")  # type: ignore[arg-type]
    return value


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (list, dict)):
        return f"an {'array' if isinstance(value, list) else 'object'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def parsed_json(data: bytes | memoryview) -> dict[str, Any]:
    """The JSON object in a body. Raises Refused."""
    try:
        found = json.loads(bytes(data).decode())
    except RecursionError:
        raise _bad("the body is JSON that is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise _bad(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except ValueError as error:
        raise _bad(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _bad(f"the body must be a JSON object, got {_short(found)}")
    return found


def read_request(body: memoryview, header: int | None) -> Request:
    """The request in a body. header: bytes of JSON before the binary data (Inference-Header-Content-Length); None: the
    body is only JSON. Raises Refused."""
    if header is not None and not 0 <= header <= len(body):
        raise _bad(f"Inference-Header-Content-Length is {header}, but the body has {len(body)} bytes")
    found = parsed_json(body if header is None else body[:header])
    binary = memoryview(b"") if header is None else body[header:]
    parameters = _field(found, "parameters", dict, "the request", {})
    feeds: dict[str, Array] = {}
    at = 0
    for i, entry in enumerate(_field(found, "inputs", list, "the request")):
        if not isinstance(entry, dict):
            raise _bad(f"inputs[{i}] must be an object, got {_short(entry)}")
        name = _field(entry, "name", str, f"inputs[{i}]")
        if name in feeds:
            raise _bad(f"input {name!r} is given twice")
        feeds[name], at = _read_input(entry, name, binary, at)
    if at != len(binary):
        raise _bad(f"the inputs take {at} bytes of binary data, but the body has {len(binary)}")
    outputs = found.get("outputs")
    wanted = None if outputs is None else _read_outputs(_field(found, "outputs", list, "the request"))
    return Request(
        feeds, wanted or None, parameters.get("binary_data_output") is True, _field(found, "id", str, "the request", ""),
        parameters,
    )  # fmt: skip


def _read_outputs(entries: list[Any]) -> dict[str, bool]:
    wanted: dict[str, bool] = {}
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise _bad(f"outputs[{i}] must be an object, got {_short(entry)}")
        parameters = _field(entry, "parameters", dict, f"outputs[{i}]", {})
        if parameters.get("classification"):
            raise _bad("the extension 'classification' is not supported; ask for the output's values")
        wanted[_field(entry, "name", str, f"outputs[{i}]")] = parameters.get("binary_data") is True
    return wanted


def _read_input(entry: Mapping[str, Any], name: str, binary: memoryview, at: int) -> tuple[Array, int]:
    """The value of an input, and where the binary data of the next one begins."""
    where = f"input {name!r}"
    datatype, shape = _field(entry, "datatype", str, where), _field(entry, "shape", list, where)
    dtype = _DTYPES.get(datatype)
    if dtype is None:
        raise _bad(f"{where}: unknown datatype {datatype!r}; expected one of {', '.join(_DTYPES)}")
    if len(shape) > _MOST_AXES or not all(type(d) is int and 0 <= d < 1 << 48 for d in shape):
        raise _bad(f"{where}: 'shape' must be an array of at most {_MOST_AXES} sizes of 0 or more, got {_short(shape)}")
    count, numpy_type = math.prod(shape), numpy_dtype(dtype)
    parameters = _field(entry, "parameters", dict, where, {})
    size = parameters.get("binary_data_size")
    if size is not None:
        if "data" in entry:
            raise _bad(f"{where} has both 'data' and 'binary_data_size'; give one of them")
        need = count * numpy_type.itemsize
        if type(size) is not int or size != need:
            raise _bad(f"{where}: 'binary_data_size' is {_short(size)}, but {datatype} {shape} has {need} bytes")
        if at + need > len(binary):
            raise _bad(f"{where} needs {need} bytes of binary data, but only {len(binary) - at} are left in the body")
        value = np.frombuffer(binary[at : at + need], numpy_type)
        if dtype == "bool" and value.size and value.view(np.uint8).max() > 1:
            raise _bad(f"{where}: binary data of BOOL may hold only the bytes 0 and 1")
        return value.reshape(shape), at + need
    if "shared_memory_region" in parameters:
        raise _bad(f"{where}: shared memory is not supported; send the data in the request")
    return _from_json(_field(entry, "data", list, where), dtype, where, shape), at


def _from_json(data: list[Any], dtype: str, where: str, shape: Sequence[int]) -> Array:
    """An array of the numbers in a flat or nested JSON array. Raises Refused if a number does not fit the dtype."""
    wanted = numpy_dtype(dtype)
    try:
        found = np.array(data) if data else np.zeros(0, wanted)
    except (ValueError, OverflowError) as error:
        raise _bad(f"{where}: 'data' is not an array of numbers: {error}") from None
    if found.size != math.prod(shape):
        raise _bad(f"{where}: 'data' has {found.size} values, but shape {list(shape)} has {math.prod(shape)}")
    integers = wanted.kind in "iu"
    allowed = "b" if dtype == "bool" else "iu" if integers else "iuf"
    if integers and found.dtype.kind in "fO":  # NumPy makes no integers of numbers beyond 63 bits
        found = np.array(data, object)
        allowed = "O" if all(type(number) is int for number in found.flat) else allowed
    if found.size and found.dtype.kind not in allowed:
        kinds = {"b": "true or false", "iu": "integers", "iuf": "numbers"}[allowed]
        raise _bad(f"{where}: 'data' must hold {kinds} for {datatype_of(dtype)}")
    if integers and found.size:
        limits = np.iinfo(wanted)
        low, high = int(found.min()), int(found.max())
        if low < limits.min or high > limits.max:
            raise _bad(f"{where}: {low if low < limits.min else high} does not fit into {datatype_of(dtype)}")
    with np.errstate(over="ignore"):  # a number beyond the range of f16 or f32 becomes infinite
        return found.astype(wanted).reshape(shape)


def write_answer(
    outputs: Mapping[str, Array], dtypes: Mapping[str, str], request: Request, about: Mapping[str, Any]
) -> tuple[list[bytes | memoryview], int | None]:
    """The parts of an answer's body, and the bytes of its JSON header if binary data follows it.

    dtypes: linnet's dtype of each output. about: the fields beside the outputs (model_name, ...)."""
    entries, blobs = [], list[bytes | memoryview]()
    for name, value in outputs.items():
        dtype = dtypes[name]
        entry: dict[str, Any] = {"name": name, "datatype": datatype_of(dtype), "shape": list(value.shape)}
        binary = request.binary if request.outputs is None else request.outputs.get(name, False)
        if binary:
            dense = np.ascontiguousarray(value)
            entry["parameters"] = {"binary_data_size": dense.nbytes}
            blobs.append(dense.tobytes())
        else:
            entry["data"] = _to_json(value)
        entries.append(entry)
    answer = dict(about)
    if request.id:
        answer["id"] = request.id
    answer["outputs"] = entries
    header = _encode(answer).encode()
    return [header, *blobs], len(header) if blobs else None


def _to_json(value: Array) -> list[Any]:
    """The values of an array in order. JSON has neither NaN nor infinity: they become null."""
    if value.dtype.kind in "iub":
        return list(value.reshape(-1).tolist())
    floats = value.reshape(-1).astype(np.float64)
    numbers: list[Any] = floats.tolist()
    return numbers if np.isfinite(floats).all() else [x if math.isfinite(x) else None for x in numbers]
