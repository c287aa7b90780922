"""Data sources and the loader: files, images, text, CSV; order, shards, augmentation, resuming, and refusals."""

from __future__ import annotations

import gzip
import json
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import data, preprocess

Array = np.ndarray[Any, Any]


def numbers(count: int) -> data.Arrays:
    return data.Arrays({"x": np.arange(count, dtype=np.float32)[:, None], "t": np.arange(count, dtype=np.int32)})


def seen(loader: data.Loader, epoch: int = 0, start: int = 0) -> list[list[int]]:
    return [batch["t"].tolist() for batch in loader.batches(epoch, start)]


def flat(lists: list[list[int]]) -> list[int]:
    return [number for part in lists for number in part]


def test_an_epoch_has_every_example_once_in_an_order_of_its_own() -> None:
    loader = data.Loader(numbers(10), batch_size=4, seed=3)
    first, second = seen(loader), seen(loader, 1)
    assert [len(b) for b in first] == [4, 4, 2] and len(loader) == 3
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(10)) and first != second
    assert seen(data.Loader(numbers(10), batch_size=4, seed=3)) == first != seen(data.Loader(numbers(10), 4, seed=4))
    assert seen(data.Loader(numbers(10), 4, shuffle=False, drop_last=True)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("prefetch", [0, 3])
def test_the_loader_goes_on_where_it_stopped(prefetch: int) -> None:
    def noise(batch: data.Batch, generator: np.random.Generator) -> data.Batch:
        return {**batch, "x": batch["x"] + generator.random(batch["x"].shape, np.float32)}

    loader = data.Loader(numbers(50), 4, seed=1, augment=[noise], prefetch=prefetch)
    whole = list(loader.batches(2))
    for batch, again in zip(whole[5:], loader.batches(2, 5), strict=True):
        np.testing.assert_array_equal(batch["x"], again["x"])
    assert not np.array_equal(whole[0]["x"] % 1, whole[1]["x"] % 1)


def test_shards_share_nothing_and_are_equally_long() -> None:
    shards = [data.Loader(numbers(11), 2, seed=5, shard=(i, 3)) for i in range(3)]
    parts = [flat(seen(loader)) for loader in shards]
    assert [len(p) for p in parts] == [3, 3, 3] and len(set(flat(parts))) == 9
    assert [len(loader) for loader in shards] == [2, 2, 2]


def test_the_loader_leaves_no_thread_and_hands_errors_on() -> None:
    before = threading.enumerate()  # of earlier tests

    class Broken(data.Arrays):
        def take(self, indices: Any) -> data.Batch:
            if 13 in indices:
                raise ValueError("example 13")
            return super().take(indices)

    loader = data.Loader(Broken({"x": np.zeros(20)}), 2, shuffle=False, prefetch=2)
    with pytest.raises(ValueError, match="example 13"):
        list(loader.batches())
    batches = loader.batches()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert not [t for t in threading.enumerate() if t.name == "linnet-loader" and t not in before]


def test_split_and_subset() -> None:
    train, validation = numbers(20).split(0.25, seed=1)
    everything = np.arange(20)
    parts = [set(s.take(everything[: len(s)])["t"].tolist()) for s in (train, validation)]
    assert [len(p) for p in parts] == [15, 5] and parts[0] | parts[1] == set(range(20))
    assert train.digest() != validation.digest() and numbers(3).digest() == numbers(3).digest() != numbers(4).digest()
    assert numbers(9).subset([3, -1]).loaded().arrays["t"].tolist() == [3, 8]


def test_wrong_data_is_refused() -> None:
    for make, words in (
        (lambda: data.Arrays({"x": np.zeros(3), "t": np.zeros(4)}), "3 in 'x', 4 in 't'"),
        (lambda: data.Arrays({}), "no arrays"),
        (lambda: data.Arrays({"x": 1.0}), "a single value"),
        (lambda: data.Arrays({"x": np.array([[1], [1, 2]], object)}), "array of objects"),
        (lambda: data.Loader(numbers(3), 0), "batch_size"),
        (lambda: data.Loader(numbers(3), 1, shard=(3, 3)), "shard"),
        (
            lambda: data.Loader(numbers(3), 4, drop_last=True),
            "has too few examples for one batch; expected at least 4 examples, got 3",
        ),
        (lambda: numbers(3).split(1.5), "share is out of range"),
        (lambda: numbers(3).subset([5]), "do not exist"),
    ):
        with pytest.raises(linnet.UsageError, match=words):
            make()


def images(count: int = 64) -> Array:
    return np.random.default_rng(0).random((count, 2, 6, 5), np.float32)


@pytest.mark.parametrize("channel_axis", [1, -1])
def test_augmentation(channel_axis: int) -> None:
    x, generator = images(), np.random.default_rng(1)

    def apply(change: Any) -> Array:
        given = x if channel_axis == 1 else np.ascontiguousarray(np.moveaxis(x, 1, -1))
        before = given.copy()
        made = change({"x": given, "t": x}, generator)["x"]
        np.testing.assert_array_equal(given, before)  # the source's own array is unchanged
        return made if channel_axis == 1 else np.moveaxis(made, -1, 1)

    axis: dict[str, Any] = {"channel_axis": channel_axis}
    for vertical in (False, True):
        turned = x[:, :, ::-1] if vertical else x[..., ::-1]
        made = apply(data.flip("x", vertical=vertical, **axis))
        flipped = (made == turned).all((1, 2, 3))
        assert 0.3 < flipped.mean() < 0.7 and ((made == x).all((1, 2, 3)) == ~flipped).all()
    made = apply(data.crop("x", (4, 3), **axis))
    assert made.shape == (64, 2, 4, 3)
    windows = {(t, l): x[:, :, t : t + 4, l : l + 3] for t in range(3) for l in range(3)}  # noqa: E741
    found = [{place for place, w in windows.items() if np.array_equal(w[i], made[i])} for i in range(64)]
    assert all(len(f) == 1 for f in found) and set().union(*found) == set(windows)
    moved = apply(data.shift("x", 1, value=-1.0, **axis))
    assert moved.shape == x.shape and (moved[:, :, 1:-1, 1:-1] != -1).all() and (moved == -1).any()
    with pytest.raises(linnet.UsageError, match="too small for this crop size; expected at least 9 x 3, got 6 x 5"):
        apply(data.crop("x", (9, 3), **axis))
    with pytest.raises(linnet.UsageError, match="no such input to augment; expected x or t"):
        apply(data.flip("y"))


def test_each_shard_and_each_batch_draws_augmentations_of_its_own() -> None:
    def drawn(shard: int, epoch: int, seed: int = 0) -> list[float]:
        found: list[float] = []

        def note(batch: Any, generator: np.random.Generator) -> Any:
            found.append(generator.random())
            return batch

        loader = data.Loader(numbers(12), 3, seed=seed, augment=[note], shard=(shard, 2))
        assert len(list(loader.batches(epoch))) == len(found) == 2
        return found

    every = [value for shard in (0, 1) for epoch in (0, 1) for seed in (0, 1) for value in drawn(shard, epoch, seed)]
    assert len(set(every)) == len(every) == 16
    assert drawn(1, 1) == drawn(1, 1)


def write_idx(path: Path, array: Array) -> None:
    code = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}[array.dtype.name]
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = head + array.astype(array.dtype.newbyteorder(">")).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "f4", "f8"])
def test_idx(tmp_path: Path, dtype: str) -> None:
    wanted = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for name in ("plain", "packed.gz"):
        write_idx(tmp_path / name, wanted)
        found = data.read_idx(tmp_path / name)
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype


def test_bad_idx(tmp_path: Path) -> None:
    good = tmp_path / "good"
    write_idx(good, np.zeros((2, 3), np.uint8))
    content = good.read_bytes()
    for bad, words in (
        (content[:-1], "the wrong length for its shape"), (content[:6], "its header"), (b"PK\3\4....", "not an idx file"),
        (gzip.compress(content)[:-9], "decompressed"), (content + b"0", "wrong length"),
    ):  # fmt: skip
        (tmp_path / "bad").write_bytes(bad)
        with pytest.raises(linnet.FileError, match=words):
            data.read_idx(tmp_path / "bad")
    with pytest.raises(linnet.FileError, match="not_found"):
        data.read_idx(tmp_path / "none")


def test_mnist(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", pixels)
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.uint8([3, 1, 4, 1, 5]))
    source = data.mnist(tmp_path)
    batch = source.take(np.array([4, 0]))
    assert batch["x"].shape == (2, 1, 4, 3) and batch["x"].dtype == np.float32 and batch["t"].dtype == np.int32
    np.testing.assert_array_equal(batch["x"][0, 0], pixels[4] / np.float32(255))
    assert batch["t"].tolist() == [5, 3] and data.mnist(tmp_path, flat=True).arrays["x"].shape == (5, 12)
    with pytest.raises(linnet.FileError, match="t10k-images-idx3-ubyte"):
        data.mnist(tmp_path, "test")
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.uint8([3, 1]))
    with pytest.raises(linnet.FileError, match="do not match"):
        data.mnist(tmp_path)


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a, b ,kind\n1,2.5,cat\n3,4,"dog"\n\n5,6,cat\n')
    source = data.read_csv(path, "kind")
    np.testing.assert_array_equal(source.arrays["x"], np.float32([[1, 2.5], [3, 4], [5, 6]]))
    assert source.arrays["t"].tolist() == [0, 1, 0] and source.classes == ["cat", "dog"]
    source = data.read_csv(path, "b", inputs=["a"], names=("in", "out"))
    assert source.arrays["in"].shape == (3, 1) and source.arrays["out"].dtype == np.float32
    assert data.read_csv(path, "a", inputs=["b"]).arrays["t"].dtype == np.int32
    with pytest.raises(linnet.UsageError, match="no column named 'c'.*a or b or kind"):  # noqa: RUF043
        data.read_csv(path, "c")
    with pytest.raises(linnet.FileError, match="line 2, column 'kind' is not a number; expected a number, got 'cat'"):
        data.read_csv(path, "a")
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(linnet.FileError, match="line 3 has the wrong number of columns"):
        data.read_csv(path, "b")


def test_characters(tmp_path: Path) -> None:
    source = data.characters("abcabcabca", 3)
    batch = source.take(np.array([0, 2]))
    assert len(source) == 3 and source.vocabulary == "abc" and batch["x"].dtype == np.int32
    assert source.decode(batch["x"]) == "abcabc" and source.decode(batch["t"]) == "bcabca"
    assert len(data.characters("abcabcabca", 3, step=1)) == 7
    (tmp_path / "t.txt").write_text("héllo")
    assert data.characters(tmp_path / "t.txt", 2).vocabulary == "hloé"
    with pytest.raises(linnet.UsageError, match="not in the vocabulary"):
        data.characters("abd", 1, vocabulary="abc")
    with pytest.raises(linnet.UsageError, match="more than 5 characters"):
        data.characters("abc", 5)


def test_image_folder_gives_what_the_deployed_model_would_see(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="pictures need Pillow: pip install 'linnet-runtime[image]'")
    pixels = np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), np.uint8)
    for i, name in enumerate(("dog/b.png", "cat/a.png", "cat/deep/c.bmp")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels[i]).save(tmp_path / name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    source = data.image_folder(tmp_path, (8, 10), fit="shortest", resize=9, mean=0.5)
    assert source.classes == ["cat", "dog"] and source.labels.tolist() == [0, 0, 1]
    batch = source.take(np.array([2, 0]))
    assert batch["x"].shape == (2, 3, 8, 10) and batch["x"].dtype == np.float32 and batch["t"].tolist() == [1, 0]
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 3, 8, 10))
    graph.signature("infer", {"x": x}, {"y": x * 2.0})
    deployed = linnet.Session(preprocess.image(graph, "x", fit="shortest", resize=9, mean=0.5))
    np.testing.assert_array_equal(batch["x"][0] * 2, deployed.run({"x": pixels[0]})["y"][0])
    assert source.loaded().arrays["t"].tolist() == [0, 0, 1]
    last = data.image_folder(tmp_path, (4, 4), colour="grey", layout="NHWC")
    assert last.take(np.array([1]))["x"].shape == (1, 4, 4, 1)
    (tmp_path / "cat" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    with pytest.raises(linnet.Error, match=r"a\.png"):
        source.take(np.array([0]))
    for folder in (tmp_path / "empty", tmp_path / "none"):
        with pytest.raises(linnet.FileError):
            data.image_folder(folder, (4, 4))


class Shards:
    """A source by its methods alone, which gives lists and plain numbers."""

    def __len__(self) -> int:
        return 40

    def take(self, indices: np.ndarray) -> dict[str, Any]:
        return {"x": [[float(i)] * 4 for i in indices], "t": (indices % 3).astype(np.int32)}

    def digest(self) -> str:
        return "40"


def test_any_object_with_the_methods_is_a_source(tmp_path: Path) -> None:
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", ("batch", 4)), graph.placeholder("t", ("batch",), "i32")
    scores = linnet.nn.dense(x * 0.01, 3)
    loss = linnet.softmax_cross_entropy(scores, t).mean()
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.SGD(0.1).minimize(loss))
    graph.signature("eval", {"x": x, "t": t}, {"loss": loss})
    arrays = {"x": np.repeat(np.arange(40, dtype=np.float32)[:, None], 4, 1), "t": (np.arange(40) % 3).astype(np.int32)}

    class Subclass(Shards, data.Source):
        pass

    losses = []
    for source in (arrays, Shards(), Subclass(), data.Loader(Shards(), 8, seed=2), data.Loader(Subclass(), 8, seed=2)):
        own = {} if isinstance(source, data.Loader) else {"batch_size": 8, "seed": 2, "validation": 0.25}
        losses.append(linnet.fit(graph, source, epochs=2, progress=False, **own)["loss"])
    assert losses[0] == losses[1] == losses[2] and losses[3] == losses[4] != losses[0]
    store = linnet.fit(graph, Shards(), directory=tmp_path, progress=False).store
    assert json.loads((tmp_path / "manifest.json").read_text())["run"]["data"] == "40"
    found = [linnet.evaluate(graph, source) for source in (arrays, Shards())]
    assert found[0] == found[1] and store


def test_what_is_no_source_is_refused() -> None:
    class NoDigest:
        def __len__(self) -> int:
            return 4

        def take(self, indices: np.ndarray) -> dict[str, Any]:
            return {"x": indices}

    class Wrong(NoDigest):
        def take(self, indices: np.ndarray) -> Any:
            return indices

        def digest(self) -> Any:
            return 5

    for given, text in (
        (NoDigest(), "got a NoDigest"), (5, "got 5"), (Shards, "got the class Shards"),
    ):  # fmt: skip
        with pytest.raises(linnet.UsageError, match="'source' is of the wrong kind.*__len__, take and digest.*" + text):
            data.Loader(given, 2)  # type: ignore[arg-type]
    graph = linnet.Graph()
    x = graph.placeholder("x", ("batch",))
    graph.signature("train", {"x": x}, {"loss": x.mean()})
    for wrong, text in (
        (NoDigest(), "an object with __len__, take and digest"),
        (Wrong(), "digest of a source must be text"),
    ):
        with pytest.raises(linnet.UsageError, match=text):
            linnet.fit(graph, wrong, progress=False)
    with pytest.raises(linnet.UsageError, match=r"Wrong.take.*a batch must be a mapping.*got 'ndarray'|got ndarray"):
        next(data.Loader(Wrong(), 2).batches())
