"""Calibration data from files, and the range of a tensor."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.function import Tensor

Feeds = Mapping[str, npt.NDArray[Any]]


@dataclasses.dataclass
class Range:
    """The smallest and the largest value seen so far. It starts empty."""

    low: float = float("inf")
    high: float = float("-inf")

    def include(self, low: float, high: float) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)

    @property
    def empty(self) -> bool:
        return self.low > self.high


def load_batches(path: str | Path, inputs: Sequence[str]) -> list[dict[str, npt.NDArray[Any]]]:
    """Reads calibration batches from an .npz file.

    Each input has either one array under its own name with a leading axis of batches, or one array per batch under
    `name:0`, `name:1`, ... (for batches of different shapes). Raises UsageError if an input is missing or the numbers
    of batches differ.
    """
    try:
        archive = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(
            what="cannot read the calibration file", tensor=str(path), got=str(error), expected="an .npz file",
            hint="write it with numpy.savez(path, x=array_of_batches)",
        ) from None  # fmt: skip
    if not hasattr(archive, "files"):
        raise UsageError(
            what="the calibration file is not an .npz archive", tensor=str(path), got="a single .npy array",
            expected="an .npz file", hint="write it with numpy.savez(path, x=array_of_batches)",
        )  # fmt: skip
    columns: dict[str, list[npt.NDArray[Any]]] = {}
    for name in inputs:
        if name in archive.files:
            batches = _array(archive, name)
            if batches.ndim == 0:
                raise UsageError(
                    what="a calibration array needs a leading axis of batches", tensor=name, expected="one array per batch",
                    got="a single number", hint="write it with numpy.stack(list_of_batches)",
                )  # fmt: skip
            columns[name] = list(batches)
        else:
            columns[name] = []
            while f"{name}:{len(columns[name])}" in archive.files:
                columns[name].append(_array(archive, f"{name}:{len(columns[name])}"))
        if not columns[name] and name in archive.files:
            raise UsageError(
                what="the calibration array of this input holds no batch", tensor=name, expected="one batch or more",
                got=f"an array of shape {list(batches.shape)}", hint="write it with numpy.stack(list_of_batches)",
            )  # fmt: skip
        if not columns[name]:
            raise UsageError(
                what="the calibration file has no batch for this input", tensor=name,
                expected=f"an array named {name!r} or {name + ':0'!r}", got=", ".join(archive.files) or "an empty archive",
                hint="give one array with a leading axis of batches, or name:0, name:1, ...",
            )  # fmt: skip
    counts = {name: len(batches) for name, batches in columns.items()}
    if len(set(counts.values())) > 1:
        raise UsageError(
            what="the inputs have different numbers of calibration batches", tensor=str(path), got=str(counts),
            expected="the same number for each input", hint="give each input one array per batch",
        )  # fmt: skip
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def batches_for(path: str | Path, graph: Graph) -> list[dict[str, npt.NDArray[Any]]]:
    """`load_batches` for the entry point of a graph. Also raises UsageError if an array is a single batch without the
    axis of batches."""
    signature = graph.signatures["infer"]
    batches = load_batches(path, signature.inputs)
    for name, tensor in zip(signature.inputs, signature.function.inputs, strict=True):
        rank = batches[0][name].ndim if batches and tensor.shape is not None else -1
        if tensor.shape is not None and rank == len(tensor.shape) - 1:
            raise UsageError(
                "the calibration array of this input has no axis of batches", code=104, tensor=name,
                expected=f"{len(tensor.shape) + 1} axes, batches first", got=f"{len(tensor.shape)} axes",
                hint=f"write numpy.stack(list_of_inputs), or numpy.savez(path, {name}=array[None]) for a single input",
            )  # fmt: skip
    return batches


def load_arrays(path: Path, inputs: Mapping[str, Tensor]) -> dict[str, npt.NDArray[Any]]:
    """One sample: the array of an .npy file for the only input, or the arrays of an .npz file by the names of the
    inputs. A batch axis of size 1 is added to an array that lacks it. Raises UsageError if the file cannot be read or
    has no array for an input."""
    try:
        content = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(
            "cannot read a sample for calibration", code=101, tensor=str(path), got=str(error).splitlines()[0],
            expected="an .npy or .npz file", hint="write it with numpy.save or numpy.savez",
        ) from None  # fmt: skip
    given = {next(iter(inputs), ""): content} if isinstance(content, np.ndarray) else content
    missing = [name for name in inputs if name not in given]
    if missing:
        raise UsageError(
            "the sample has no array for an input", code=105, tensor=str(path), expected=", ".join(missing),
            got=", ".join(given), hint="write it with numpy.savez(path, input=array)",
        )  # fmt: skip
    found = {name: _array(given, name) for name in inputs}
    for name, tensor in inputs.items():
        if tensor.shape is not None and found[name].ndim == len(tensor.shape) - 1:
            found[name] = found[name][None]
    return found


def _array(archive: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(archive[name])
    except Exception as error:  # a damaged or pickled member: zip, zlib and NumPy each raise their own exceptions
        raise UsageError(
            what="cannot read an array of the calibration file", tensor=name, expected="an array of numbers",
            got=str(error).splitlines()[0], hint="write the file again with numpy.savez",
        ) from None  # fmt: skip
