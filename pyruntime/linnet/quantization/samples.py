"""Samples for calibration, from an .npz file or a folder of pictures, sounds or arrays.
Each sample is read when it is used, so that only one photo is in memory at a time."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from linnet.clib.errors import Error, FileError, UsageError
from linnet.data.media import in_channels, read_image, read_sound
from linnet.facade import Graph
from linnet.ir.function import Tensor
from linnet.preprocess._edit import io_key, parse_io
from linnet.preprocess._recipes import RECIPES, pixels_graph, recipe_steps
from linnet.quantization.calibrate import Feeds, batches_for, load_arrays

PICTURES = (".jpg", ".jpeg", ".png", ".bmp")
FOLDER_SAMPLES = 100  # of a folder, if no limit is given
_KINDS = {
    "pictures": PICTURES, "sounds": (".wav", ".flac", ".ogg"), "arrays": (".npy", ".npz"),
}  # fmt: skip


def calibration_samples(
    graph: Graph,
    source: str | Path,
    limit: int | None = None,
    *,
    image: str | None = None,
    note: Callable[[str], object] = warnings.warn,
) -> Iterable[Feeds]:
    """The samples of a file or folder as `linnet.quantize(graph, samples)` takes them. They can be iterated more than once.

    source: an .npz file (see `load_batches`), one picture or sound, or a folder, whose sub-folders are searched too.
    Each file of the folder holds one sample. For a model that takes pictures, the files are JPEG, PNG or BMP files; for
    a model that takes sound, sound files. For other models, they are .npy files (one input) or .npz files (an array per
    input). limit: the largest number of samples, spread evenly over the sorted files; default: 100 of a folder, all of
    a file. image: the recipe that turns pictures into the model's own input, as for `linnet.preprocess.recipe`, if the
    graph does not contain these steps. note: called with a text that names the files that could not be read. Raises
    UsageError if the folder has no sample that the model takes. While iterating, raises it if none of the samples can
    be read.
    """
    path = Path(source)
    if limit is not None and limit < 1:
        raise UsageError("the number of samples is too small", code=101, expected="1 or more", got=str(limit))
    single = path.suffix.lower() in (*PICTURES, *_KINDS["sounds"])
    if not path.is_dir() and not single:
        return _spread(batches_for(path, graph), limit)
    kind, read = _reader(graph, image)
    files: dict[str, list[Path]] = {name: [] for name in _KINDS}
    for file in [path] if single and path.is_file() else sorted(path.rglob("*")):
        for name, endings in _KINDS.items():
            if file.suffix.lower() in endings and not file.name.startswith("."):
                files[name].append(file)
    if single and not path.exists():
        raise FileError("no such file", code=201, tensor=str(path), hint="check the path")
    if not files[kind]:
        raise _nothing(path, kind, files)
    return Samples(_spread(files[kind], limit or FOLDER_SAMPLES), read, note)


@dataclasses.dataclass
class Samples:
    """Samples that are read from their files in each iteration."""

    files: Sequence[Path]
    read: Callable[[Path], Feeds]
    note: Callable[[str], object]
    noted: bool = False

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Feeds]:
        failed: list[tuple[Path, Error]] = []
        for file in self.files:
            try:
                sample = self.read(file)
            except (UsageError, FileError) as error:
                failed.append((file, error))
                continue
            yield sample
        if not failed:
            return
        if len(failed) == len(self.files):
            raise UsageError(
                "no sample for calibration can be read", code=101, tensor=str(failed[0][0].parent),
                got=f"{len(failed)} files, the first with: {failed[0][1]}",
            )  # fmt: skip
        if not self.noted:
            names = ", ".join(str(file) for file, _ in failed[:5]) + (", ..." if len(failed) > 5 else "")
            self.note(f"{len(failed)} of {len(self.files)} samples cannot be read and are left out: {names}")
            self.noted = True


def _spread(items: Sequence[Any], limit: int | None) -> Sequence[Any]:
    """At most `limit` of the items, at equal distances."""
    if limit is None or len(items) <= limit:
        return items
    return [items[i * len(items) // limit] for i in range(limit)]


def _reader(graph: Graph, image: str | None) -> tuple[str, Callable[[Path], Feeds]]:
    """What kind of files the graph takes, and a function that turns a file into a sample."""
    signature = graph.signatures["infer"]
    inputs = dict(zip(signature.inputs, signature.function.inputs, strict=True))
    if image is not None:
        name, steps = recipe_steps(graph, image)
        _only(inputs, name)
        return "pictures", _pictures(name, inputs[name], steps)
    for name, tensor in inputs.items():
        kind, words = parse_io(graph.metadata.get(io_key("infer", name), "")) or ("", {})
        if kind in ("image", "audio"):
            _only(inputs, name)
            return _described(name, kind, words, tensor.dtype)
    return "arrays", lambda path: load_arrays(path, inputs)


def picture_reader(graph: Graph, image: str | None) -> Callable[[Path], Feeds]:
    """A function that turns the file of a picture into a sample. Raises UsageError if neither the model nor a recipe
    says how."""
    kind, read = _reader(graph, image)
    if kind != "pictures":
        raise UsageError(
            "the model does not say how pictures become its input", code=101, got=f"a model that takes {kind}",
            expected=f"--image (image=) with {RECIPES}",
            hint="give a recipe, or add the steps to the model with linnet.preprocess.image",
        )  # fmt: skip
    return read


def takes_files(graph: Graph, image: str | None) -> bool:
    """Whether the samples of a folder are pictures or sounds, which the model's own steps or a recipe turn into
    inputs."""
    signature = graph.signatures["infer"]
    about = [parse_io(graph.metadata.get(io_key("infer", name), "")) for name in signature.inputs]
    return image is not None or any(found is not None and found[0] in ("image", "audio") for found in about)


def _described(name: str, kind: str, words: dict[str, str], dtype: str) -> tuple[str, Callable[[Path], Feeds]]:
    """Like `_reader`, for an input that the graph's metadata describes."""
    if kind == "image":
        return "pictures", lambda path: {name: in_channels(read_image(path), words.get("colour", "RGB"))}
    return "sounds", lambda path: {name: read_sound(path, dtype, int(words.get("rate", "0")))}


def _only(inputs: dict[str, Tensor], name: str) -> None:
    if len(inputs) > 1:
        raise UsageError(
            "a folder has values for one input only, and the model has more", code=105, got=", ".join(inputs),
            hint="give an .npz file with an array for each input",
        )  # fmt: skip


def _pictures(name: str, tensor: Tensor, steps: dict[str, Any]) -> Callable[[Path], Feeds]:
    """Reads a picture as the model's own input."""
    from linnet.session.session import Session

    shape = list(tensor.shape or ())
    if len(shape) == 4:
        shape[0] = 1
    session = Session(pixels_graph(name, shape, tensor.dtype, tensor.quantization, steps))
    return lambda path: {name: session.run({name: read_image(path)})["y"]}


def _nothing(path: Path, kind: str, files: dict[str, list[Path]]) -> UsageError:
    """The error for a folder without a file of the kind that the model takes."""
    other = next((name for name, found in files.items() if found), None)
    if kind == "arrays" and other == "pictures":
        return UsageError(
            "the model does not say how pictures become its input", code=101, tensor=str(path),
            expected=f"--image (image=) with {RECIPES}",
            hint="give a recipe, or add the steps to the model with linnet.preprocess.image",
        )  # fmt: skip
    endings = ", ".join(_KINDS[kind])
    return UsageError(
        f"the folder has no {kind} for calibration", code=105, tensor=str(path), expected=f"files of type {endings}",
        got=f"{len(files[other])} {other}" if other else "no sample",
    )  # fmt: skip
