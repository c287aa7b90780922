"""Compares a model's results on a target with those on the host."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import DeviceError
from linnet.deploy.folder import Folder
from linnet.deploy.models import SUMS, Feeds, Models, Variant
from linnet.deploy.tool_runs import result_of
from linnet.ir.dtypes import for_npy, has_floats

# How far a float output may be from the host's, as a fraction of the range of its values. Kernels of two ISAs add in different
# orders; in a narrow dtype, that can move a value by one step of the dtype.
TOLERANCES: Final = {"f32": 1e-3, "f16": 1e-2, SUMS: 5e-2, "i16": 1e-2, "i8": 5e-2}

Values = dict[str, npt.NDArray[Any]]


@dataclasses.dataclass
class Compared:
    """One output of a model in one dtype. equal: whether all bits are equal. worst: the largest difference, as a
    fraction of the range of the host's values; it is at `index`. tolerance: the largest difference allowed, 0 if all
    bits must be equal. from_f32: the largest difference from the float model on the host, measured in the same way;
    None if there is no float model."""

    dtype: str
    output: str
    equal: bool
    worst: float
    tolerance: float
    index: list[int]
    here: float
    there: float
    from_f32: float | None

    @property
    def good(self) -> bool:
        return self.equal or self.worst <= self.tolerance


def send_sample(folder: Folder, sample: Feeds) -> list[str]:
    """Sends the inputs and returns the options of linnet-run that name them."""
    words = []
    for i, (name, value) in enumerate(sample.items()):
        folder.send(npy(value), f"input{i}.npy")
        words += ["--input", f"{name}=input{i}.npy"]
    return words


def npy(value: npt.NDArray[Any]) -> bytes:
    """The bytes of a .npy file."""
    stream = io.BytesIO()
    value = for_npy(value)
    np.save(stream, np.ascontiguousarray(value) if value.ndim else value)
    return stream.getvalue()


def run_there(folder: Folder, variant: Variant, words: list[str], show: Callable[[str], None]) -> Values:
    """Runs a model on the target's copy of the sample, and fetches its outputs."""
    show(f"{variant.dtype}: running the sample on {folder.target.name}")
    found = result_of(
        folder, "linnet-run", variant.file, [*words, "-o", variant.name, *variant.options], {},
        f"the sample in {variant.dtype}",
    )  # fmt: skip
    values: Values = {}
    for output in found["outputs"]:
        try:
            values[output["name"]] = np.load(io.BytesIO(folder.fetch(output["file"])), allow_pickle=False)
        except (ValueError, EOFError, KeyError) as error:
            raise DeviceError(
                f"linnet-run wrote no array on {folder.target.name}", code=501, tensor=str(output.get("name", "")),
                expected="a .npy file", got=str(error), hint="deploy again; the tool must be of this version of linnet",
            ) from None  # fmt: skip
    return values


def run_all(
    folder: Folder, models: Models, words: list[str], show: Callable[[str], None]
) -> Iterator[tuple[Variant, Values]]:
    """Runs each model on the target. Sums of f16 are left out if they change no bit of the results of f16."""
    plain: Values = {}
    for variant in list(models.variants):
        there = run_there(folder, variant, words, show)
        if variant.dtype == "f16":
            plain = there
        if variant.dtype == SUMS and all(value.tobytes() == plain[name].tobytes() for name, value in there.items()):
            models.leave_out(variant, show)
        else:
            yield variant, there


def run_here(variant: Variant, sample: Feeds, isa_max: str | None = None) -> Values:
    """Runs a model on this machine. isa_max: "scalar" for kernels that share no code with the fast ones."""
    from linnet.session.model import Model
    from linnet.session.session import Session

    shapes = {name: value.shape for name, value in sample.items()}
    session = Session(Model(variant.content), input_shapes=shapes, isa_max=isa_max)
    return {k: np.array(v) for k, v in session.run(sample).items()}


def compare(variant: Variant, models: Models, there: Values, here: Values, reference: Values | None) -> list[Compared]:
    """Compares all outputs. Raises DeviceError if an output is absent or has another shape or dtype."""
    rows = []
    for name, expected in here.items():
        got = there.get(name)
        if got is None or got.shape != expected.shape or got.dtype != expected.dtype:
            raise DeviceError(
                f"an output in {variant.dtype} is absent, or has another form", code=501, tensor=name, expected=_form(expected),
                got="no such output" if got is None else _form(got),
                hint="copy the tools of this version of linnet to the target",
            )  # fmt: skip
        exact = variant.exact or not has_floats(got)
        tolerance = 0.0 if exact else TOLERANCES.get(variant.dtype, TOLERANCES["f32"])
        worst, index = distance(got, expected)
        distant = None
        if reference is not None and variant is not models.reference and name in reference:
            float_values = reference[name]
            distant = distance(got, float_values)[0] if float_values.shape == got.shape else None
        rows.append(
            Compared(
                variant.dtype, name, got.tobytes() == expected.tobytes(), worst, tolerance,
                [int(i) for i in index], _at(expected, index), _at(got, index), distant,
            )
        )  # fmt: skip
    return rows


def distance(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> tuple[float, tuple[Any, ...]]:
    """The largest difference as a fraction of the range of the finite expected values, and its index. If a NaN or an
    infinity is not at the same place in both, the difference is infinite."""
    if got.size == 0:
        return 0.0, (0,) * got.ndim
    a, b = got.astype(np.float64), expected.astype(np.float64)
    finite = b[np.isfinite(b)]
    span = (np.ptp(finite) or np.abs(finite).max()) if finite.size else 0.0
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        far = np.where(same, 0.0, np.abs(a - b) / (span or 1.0))
    far = np.where(np.isnan(far), np.inf, far)
    index = np.unravel_index(int(np.argmax(far)), far.shape)
    return float(far[index]), index


def difference(rows: list[Compared]) -> DeviceError | None:
    """The error for the output that is furthest off, or None if all are good."""
    bad = [row for row in rows if not row.good]
    if not bad:
        return None
    row = max(bad, key=lambda r: r.worst)
    allowed = f"within {row.tolerance:g} of the range" if row.tolerance else "the same bits"
    return DeviceError(
        f"the results in {row.dtype} differ from those of the host", code=501, tensor=row.output,
        expected=f"{row.here!r} ({allowed})", got=f"{row.there!r} at {row.index}, {row.worst:.3g} of the range away",
        hint="please report this error; with --keep, the files stay on the target",
    )  # fmt: skip


def _form(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype} {list(array.shape)}"


def _at(array: npt.NDArray[Any], index: tuple[Any, ...]) -> float:
    return float(array[index]) if array.size else 0.0
