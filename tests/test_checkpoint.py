"""Checkpoints: a save is restored completely or not at all; other models, damage and a full disk give clear errors.
Kills, failing file operations and fuzzing are in test_checkpoint_faults.py."""

from __future__ import annotations

import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.file.layout import HEADER
from tests.graphs import bytes_of


def model(classes: int = 5, batch: str = "batch") -> linnet.Model:
    """A frozen part `base`, a trained part `head`, and a counter."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (batch, 3))
    base = graph.variable("base", linnet.init.glorot((3, 64)))
    head = graph.variable("head", linnet.init.glorot((64, classes)))
    step = graph.variable("step", np.int64(0))
    y = (x @ base) @ head
    graph.signature("infer", {"x": x}, {"y": y})
    graph.signature("train", {"x": x}, {"y": y}, updates={head: head * -1.0, step: step + 1})
    return linnet.Model(graph.to_bytes())


def trained(m: linnet.Model, steps: int = 3) -> linnet.Store:
    store = linnet.Store(m)
    session = linnet.Session(m, "train", store=store)
    for _ in range(steps):
        session.run({"x": np.ones((2, 3), np.float32)})
    return store


def same(a: linnet.Store, b: linnet.Store) -> bool:
    return all(a[name].tobytes() == b[name].tobytes() for name in a)


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    m = model()
    store, path = trained(m), tmp_path / "a.ckpt"
    store.save(path, metadata={"step": 2, "z": "ä \n", "": "", "a": "first"})
    fresh = linnet.Store(m)
    assert fresh.load(path) == {"step": "2", "z": "ä \n", "": "", "a": "first"}
    assert same(fresh, store)
    found = linnet.load_checkpoint(path)
    assert found.model == m.metadata("digest") and found.metadata["step"] == "2"
    np.testing.assert_array_equal(found.variables["head"], store["head"])
    assert [p.name for p in tmp_path.iterdir()] == ["a.ckpt"]  # no other file remains


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    m = model()
    store, path = trained(m), tmp_path / "a.ckpt"
    store.save(path)
    assert set(linnet.load_checkpoint(path).variables) == {"head", "step"}
    again = linnet.Store(m)
    again.load(path)
    again.save(path)  # loaded variables have changed
    assert set(linnet.load_checkpoint(path).variables) == {"head", "step"}
    store.save(path, list(store))
    assert set(linnet.load_checkpoint(path).variables) == {"base", "head", "step"}
    store.save(path, ["head", "head"])
    assert set(linnet.load_checkpoint(path).variables) == {"head"}
    fresh = linnet.Store(m)
    fresh["base"] = base = np.full((3, 64), 7, np.float32)
    fresh.load(path)
    np.testing.assert_array_equal(fresh["base"], base)  # variables missing in the file are unchanged
    linnet.Store(m).save(path)
    assert linnet.load_checkpoint(path).variables == {}


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 1, 3, 1, 2, 1, 1, 2)])
def test_every_dtype_and_rank(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    graph = linnet.Graph()
    value = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    graph.variable("a variable/of any name: ä", value)
    x = graph.placeholder("x", (1,))
    graph.signature("infer", {"x": x}, {"y": x + 1.0})
    m = linnet.Model(graph.to_bytes())
    store = linnet.Store(m)
    [name] = store
    store[name] = ones = np.ones(shape, dtype)
    store.save(tmp_path / "a")
    fresh = linnet.Store(m)
    fresh.load(tmp_path / "a")
    np.testing.assert_array_equal(fresh[name], ones)
    np.testing.assert_array_equal(linnet.load_checkpoint(tmp_path / "a").variables[name], ones)


def test_a_loaded_store_is_used_by_sessions_that_have_run(tmp_path: Path) -> None:
    """Weights that a session packed before the load are replaced by the loaded ones."""
    m = model()
    store = trained(m)
    store.save(tmp_path / "a")
    fresh = linnet.Store(m)
    infer = linnet.Session(m, store=fresh)
    x = np.ones((2, 3), np.float32)
    before = infer.run({"x": x})["y"]
    fresh.load(tmp_path / "a")
    after = infer.run({"x": x})["y"]
    np.testing.assert_allclose(after, linnet.Session(m, store=store).run({"x": x})["y"])
    assert not np.allclose(after, before)


def test_another_model_is_refused_with_both_digests(tmp_path: Path) -> None:
    m, other = model(5), model(6)
    trained(m).save(tmp_path / "a")
    store = linnet.Store(other)
    with pytest.raises(linnet.FileError) as caught:
        store.load(tmp_path / "a")
    assert caught.value.status == "other_model" and caught.value.tensor.endswith("/a")
    assert str(m.metadata("digest")) in caught.value.got and str(other.metadata("digest")) in caught.value.expected
    assert same(store, linnet.Store(other))
    (tmp_path / "model").write_bytes(bytes_of("mlp"))
    with pytest.raises(linnet.FileError, match=r"a model, not a checkpoint") as caught:
        store.load(tmp_path / "model")
    assert caught.value.status == "other_model"
    with pytest.raises(linnet.FileError, match=r"a model, not a checkpoint"):
        linnet.load_checkpoint(tmp_path / "model")


def test_the_digest_tells_weights_and_graphs_apart() -> None:
    digests = {model().metadata("digest"), model().metadata("digest")}
    assert len(digests) == 1
    assert len(digests | {model(6).metadata("digest"), model(5, "n").metadata("digest")}) == 3
    different = linnet.Graph(seed=2)
    one = linnet.Graph(seed=1)
    for g in (different, one):  # only the initial values differ
        w = g.variable("w", linnet.init.glorot((3, 64)))
        x = g.placeholder("x", (1, 3))
        g.signature("infer", {"x": x}, {"y": x @ w})
    assert linnet.Model(one).metadata("digest") != linnet.Model(different).metadata("digest")


def test_damage_is_found_wherever_it_is(tmp_path: Path) -> None:
    """Changing any single byte of the file makes the load fail, and no variable changes."""
    m = model()
    store = trained(m)
    store.save(tmp_path / "good", ["step", "head"], {"step": 5})
    content = (tmp_path / "good").read_bytes()
    for at in range(0, len(content), 1 if len(content) < 3000 else 7):
        damaged = bytearray(content)
        damaged[at] ^= 0x40
        (tmp_path / "bad").write_bytes(damaged)
        fresh = linnet.Store(m)
        with pytest.raises(linnet.FileError) as caught:
            fresh.load(tmp_path / "bad")
        assert caught.value.code in (203, 204, 205, 206, 208) and "\n" not in str(caught.value), at
        assert same(fresh, linnet.Store(m))
        with pytest.raises(linnet.FileError):
            linnet.load_checkpoint(tmp_path / "bad")
    for length in range(0, len(content), 61):
        (tmp_path / "bad").write_bytes(content[:length])
        fresh = linnet.Store(m)
        with pytest.raises(linnet.FileError):
            fresh.load(tmp_path / "bad")
        assert same(fresh, linnet.Store(m))


def test_variables_that_the_model_has_not_are_refused(tmp_path: Path) -> None:
    """A file with a correct digest but wrong variables, made by hand or by a bug."""
    m = model()
    trained(m).save(tmp_path / "good")
    content = bytearray((tmp_path / "good").read_bytes())
    start, size = HEADER.unpack_from(content)[3:5]
    shapes = [(n, *dims) for n, dims in ((2, (64, 5)), (2, (32, 5)), (2, (5, 64)), (1, (320,)), (1, (64,)))]
    whole, *others = (b"".join(size.to_bytes(4 if i == 0 else 8, "little") for i, size in enumerate(s)) for s in shapes)
    for old, new in ((b"head", b"tail"), *((whole, other) for other in others)):
        structure = bytes(content[start : start + size])
        at = structure.index(old)
        changed = structure[:at] + new + structure[at + len(new) :]
        header = list(HEADER.unpack_from(content))
        header[5] = zlib.crc32(changed)
        (tmp_path / "bad").write_bytes(HEADER.pack(*header) + changed + bytes(content[start + size :]))
        with pytest.raises(linnet.FileError) as caught:
            linnet.Store(m).load(tmp_path / "bad")
        assert caught.value.status == "corrupt", caught.value


def test_wrong_calls(tmp_path: Path) -> None:
    store = trained(model())
    with pytest.raises(linnet.UsageError, match="no variable of this name") as caught:
        store.save(tmp_path / "a", ["head", "tail"])
    assert caught.value.status == "unknown_name" and caught.value.tensor == "tail"
    with pytest.raises(linnet.UsageError, match=r"is a string"):
        store.save(tmp_path / "a", "head")
    with pytest.raises(linnet.UsageError, match="checkpoint_of"):
        store.save(tmp_path / "a", metadata={"checkpoint_of": "x"})
    with pytest.raises(linnet.FileError) as caught2:
        store.load(tmp_path / "absent")
    assert caught2.value.status == "not_found"
    with pytest.raises(linnet.FileError) as caught2:
        store.save(tmp_path / "absent" / "a")
    assert caught2.value.status == "write_failed" and "no such file" in str(caught2.value)
    with pytest.raises(linnet.FileError) as caught2:
        store.save(tmp_path / ("a" * 5000))
    assert caught2.value.status == "write_failed"
    with pytest.raises(linnet.FileError, match="not a regular file"):
        store.save(tmp_path)
    with pytest.raises(linnet.FileError, match="not a regular file"):
        store.save("/dev/null")  # a device is never replaced by a file
    assert not list(tmp_path.iterdir())


def test_a_link_is_followed(tmp_path: Path) -> None:
    m = model()
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "latest"
    link.symlink_to(tmp_path / "elsewhere" / "a.ckpt")
    trained(m, 1).save(tmp_path / "elsewhere" / "a.ckpt")
    trained(m, 2).save(link)
    assert link.is_symlink()
    store = linnet.Store(m)
    store.load(tmp_path / "elsewhere" / "a.ckpt")
    assert store["step"] == 2


def test_what_a_kill_left_is_used_again(tmp_path: Path) -> None:
    m = model()
    (tmp_path / "a.part").write_bytes(b"x" * 100_000)
    trained(m).save(tmp_path / "a")
    assert linnet.Store(m).load(tmp_path / "a") == {}
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_saving_while_another_thread_trains_and_a_third_saves_too(tmp_path: Path) -> None:
    """`step` and `head` of a checkpoint belong to the same moment between two runs: head has its initial sign if step is even."""
    m = model()
    store = linnet.Store(m)
    first = store["head"]
    stop = threading.Event()

    def train() -> None:
        session = linnet.Session(m, "train", store=store)
        while not stop.is_set():
            session.run({"x": np.ones((2, 3), np.float32)})

    def check(name: str) -> None:
        for _ in range(40):
            store.save(tmp_path / "shared")
            found = linnet.load_checkpoint(tmp_path / "shared").variables
            step = int(found["step"]) if found else 0
            if found and step:
                seen.add(step)
                if not np.array_equal(found["head"], first * (-1) ** step):
                    wrong.append((name, step))

    wrong: list[object] = []
    seen: set[int] = set()
    threads = [threading.Thread(target=check, args=(name,)) for name in ("a", "b")]
    trainer = threading.Thread(target=train)
    for thread in (trainer, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    trainer.join()
    assert not wrong and len(seen) > 1
    assert [p.name for p in tmp_path.iterdir()] == ["shared"]


def test_inspect_shows_a_checkpoint(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from linnet.cli.main import cli

    m = model()
    trained(m).save(tmp_path / "a.ckpt", metadata={"step": 2})
    done = CliRunner().invoke(cli, ["inspect", str(tmp_path / "a.ckpt")])
    assert done.exit_code == 0
    for words in ("a checkpoint", str(m.metadata("digest")), "step: 2", "head"):
        assert words in done.output, done.output
    done = CliRunner().invoke(cli, ["inspect", str(tmp_path / "a.ckpt"), "--json"])
    assert str(m.metadata("digest")) in done.output
