"""examples/c/train.c: at most 80 lines, trains a model whose `train` signature Python made; on this machine, sanitized, and on
ARM."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import linnet
from tests.native import ROOT, SANITIZED, build, need, run
from tests.test_train_tool import idx

EXAMPLE = ROOT / "examples" / "c" / "train.c"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", f"-I{ROOT / 'runtime_c' / 'include'}"]
STEPS = 25


def digits(path: Path) -> Path:
    """A folder with digits.lnt, images, labels: 500 blurred bars in ten positions."""
    from linnet import nn

    graph = linnet.Graph(seed=3)
    x, t = graph.placeholder("x", ("batch", 28, 28)), graph.placeholder("t", ("batch",), "i32")
    logits = nn.dense(nn.dense(nn.flatten(x), 32, activation="relu"), 10)
    loss = linnet.softmax_cross_entropy(logits, t).mean()
    graph.signature("infer", {"x": x}, {"logits": logits})
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.Momentum(0.1, 0.9).minimize(loss))
    linnet.passes.run(graph).save(path / "digits.lnt")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 500)
    images = rng.integers(0, 90, (500, 28, 28))
    for image, label in zip(images, labels, strict=True):
        image[:, 2 * label + 3 : 2 * label + 6] += 150
    idx(path / "images", images.astype(np.uint8))
    idx(path / "labels", labels.astype(np.uint8))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits(tmp_path_factory.mktemp("digits"))


def train(command: list[str], folder: Path, checkpoint: str, steps: int = STEPS) -> list[str]:
    return run([*command, "digits.lnt", "images", "labels", checkpoint, str(steps)], cwd=folder).splitlines()


def loss_of(line: str) -> float:
    found = re.fullmatch(r"step \d+: loss (\d+\.\d+)", line)
    assert found, line
    return float(found[1])


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    library = build("release", "linnet_static") / "liblinnet.a"
    run(["cc", *FLAGS, str(EXAMPLE), str(library), "-lm", "-lpthread", "-o", str(folder / "train")])
    return folder / "train"


def test_it_is_at_most_80_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 80


def test_it_trains_saves_and_goes_on(program: Path, folder: Path) -> None:
    first = train([str(program)], folder, "a.ckpt")
    assert re.match(r"500 examples, \d\.\d\d MB, \d+ threads?", first[0])
    model = linnet.Model(folder / "digits.lnt")
    store = linnet.Store(model)
    store.load(folder / "a.ckpt")
    trained = store["dense/weight"] if "dense/weight" in store else next(iter(store.as_dict().values()))
    second = train([str(program)], folder, "a.ckpt")
    assert loss_of(second[-1]) < 0.5 * loss_of(first[-1]) < 2.3
    store.load(folder / "a.ckpt")
    again = store["dense/weight"] if "dense/weight" in store else next(iter(store.as_dict().values()))
    assert not np.array_equal(trained, again)
    images = np.frombuffer((folder / "images").read_bytes(), np.uint8, offset=16).reshape(-1, 28, 28)
    labels = np.frombuffer((folder / "labels").read_bytes(), np.uint8, offset=8)
    logits = linnet.Session(model, store=store).run({"x": images.astype(np.float32) / 255})["logits"]
    assert (logits.argmax(1) == labels).mean() > 0.9


def test_the_compile_line_of_its_comment(folder: Path, tmp_path: Path) -> None:
    found = re.search(r"^ \*\s+(cc .+)$", EXAMPLE.read_text(), re.MULTILINE)
    assert found
    words = found.group(1).replace("build/", f"{build('release')}/").split()
    words = [w.replace("train.c", str(EXAMPLE)).replace("-Iruntime_c", f"-I{ROOT}/runtime_c") for w in words]
    run(words, cwd=tmp_path)
    assert (tmp_path / "train").exists()


def test_sanitized(program: Path, folder: Path) -> None:
    library = build("address", "linnet_static") / "liblinnet.a"
    run(["cc", *FLAGS, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", str(EXAMPLE), str(library), "-lm",
         "-lpthread", "-o", str(folder / "sanitized")])  # fmt: skip
    command = ["digits.lnt", "images", "labels", "s.ckpt", str(STEPS)]
    done = subprocess.run(
        [str(folder / "sanitized"), *command], cwd=folder, env={**os.environ, **SANITIZED}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == train([str(program)], folder, "r.ckpt")[-1]


def test_on_arm_with_the_same_losses(program: Path, folder: Path) -> None:
    need("qemu-aarch64", "aarch64-linux-gnu-gcc")
    library = build("aarch64", "linnet_static") / "liblinnet.a"
    run(["aarch64-linux-gnu-gcc", *FLAGS, str(EXAMPLE), str(library), "-lm", "-lpthread", "-o", str(folder / "arm")])
    there = train(["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "./arm"], folder, "arm.ckpt")
    here = train([str(program)], folder, "x86.ckpt")
    assert abs(loss_of(there[-1]) - loss_of(here[-1])) < 2e-4  # four digits are printed


def test_it_says_what_is_wrong(program: Path, folder: Path) -> None:
    def says(*arguments: str) -> str:
        done = subprocess.run(
            [str(program), *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    assert "usage" in says()
    assert "not_found" in says("absent.lnt", "images", "labels", "x", "1")
    assert "write_failed" in says("digits.lnt", "images", "labels", "no/such/folder", "1")
    (folder / "bad.ckpt").write_bytes(b"x" * 200)
    assert "bad_magic" in says("digits.lnt", "images", "labels", "bad.ckpt", "1")
