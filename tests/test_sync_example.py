"""examples/c/worker.c: at most 86 lines, trains with others on a server; on this machine, sanitized, and on 64-bit ARM
together with a worker in Python on this machine."""

from __future__ import annotations

import re
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import nn
from linnet.sync import Server, Worker
from tests.native import ROOT, SANITIZED, build, need, run
from tests.opencl_device import opencl_device
from tests.test_train_tool import idx

EXAMPLE = ROOT / "examples" / "c" / "worker.c"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", f"-I{ROOT / 'runtime_c' / 'include'}"]
LIBRARIES = ("linnet_sync_static", "linnet_static")
BATCH, STEPS = 64, 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """digits.lnt, images, labels: 500 blurred bars in ten positions."""
    path = tmp_path_factory.mktemp("digits")
    graph = linnet.Graph(seed=3)
    x, t = graph.placeholder("x", ("batch", 28, 28)), graph.placeholder("t", ("batch",), "i32")
    logits = nn.dense(nn.dense(nn.flatten(x), 32, activation="relu"), 10)
    loss = linnet.softmax_cross_entropy(logits, t).mean()
    graph.signature("infer", {"x": x}, {"logits": logits})
    linnet.sync.signatures(graph, loss, linnet.Momentum(0.1, 0.9), {"x": x, "t": t})
    graph.save(path / "digits.lnt")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 500)
    images = rng.integers(0, 90, (500, 28, 28))
    for image, label in zip(images, labels, strict=True):
        image[:, 2 * label + 3 : 2 * label + 6] += 150
    idx(path / "images", images.astype(np.uint8))
    idx(path / "labels", labels.astype(np.uint8))
    return path


def feeds(folder: Path, step: int, number: int) -> dict[str, np.ndarray]:
    """The example's feeds for a step."""
    images = np.frombuffer((folder / "images").read_bytes(), np.uint8, offset=16).reshape(-1, 28, 28)
    labels = np.frombuffer((folder / "labels").read_bytes(), np.uint8, offset=8)
    rows = ((step * 7919 + np.arange(BATCH)) * 31 + number * 17) % len(images)
    return {"x": images[rows].astype(np.float32) / 255, "t": labels[rows].astype(np.int32)}


def reference(folder: Path, workers: int) -> dict[str, np.ndarray]:
    """The same training in one process: the mean of the workers' gradients at each step, in NumPy."""
    session, velocity = linnet.Session(folder / "digits.lnt", "grad"), dict[str, np.ndarray]()
    for step in range(STEPS):
        outs = [session.run(feeds(folder, step, k)) for k in range(workers)]
        for name in [n for n in session.variables if f"gradient/{n}" in outs[0]]:
            g = sum(out[f"gradient/{name}"] for out in outs) / np.float32(workers)
            velocity[name] = np.float32(0.9) * velocity.get(name, np.float32(0)) + g
            session.variables[name] = session.variables[name] - np.float32(0.1) * velocity[name]
    return session.variables.as_dict()


def compiled(compiler: str, kind: str, program: Path, *flags: str) -> Path:
    where = build(kind, *LIBRARIES)
    libraries = [str(where / "liblinnet_sync.a"), str(where / "liblinnet.a"), "-lm", "-lpthread", "-ldl"]
    run([compiler, *FLAGS, *flags, str(EXAMPLE), *libraries, "-o", str(program)])
    return program


def arguments(address: str, number: int) -> list[str]:
    return ["digits.lnt", address, str(number), "images", "labels", str(STEPS)]


def start(command: list[str], folder: Path, address: str, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, *arguments(address, number)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def close(folder: Path, server: Server, workers: int, tolerance: float) -> None:
    expected = reference(folder, workers)
    assert server.status()["version"] == STEPS
    for name in server.store:
        if name in expected and "momentum" not in name:
            np.testing.assert_allclose(server.store[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name)


def test_it_is_at_most_86_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 86


def test_two_of_them_train_one_model(folder: Path) -> None:
    program = compiled("cc", "release", folder / "worker")
    with Server(folder / "digits.lnt", workers=2) as server:
        workers = [start([str(program)], folder, server.address, k) for k in range(2)]
        outputs = [worker.communicate(timeout=120) for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0], outputs
        close(folder, server, 2, 1e-5)
        losses = [float(out.split()[-1]) for out, _ in outputs]
        assert all(re.fullmatch(rf"step {STEPS}: loss \d+\.\d+", out.splitlines()[-1]) for out, _ in outputs)
        assert max(losses) < 1.0


def test_the_compile_line_of_its_comment(folder: Path, tmp_path: Path) -> None:
    found = re.search(r"^ \*\s+(cc .+)$", EXAMPLE.read_text(), re.MULTILINE)
    assert found
    words = found.group(1).replace("build/", f"{build('release', *LIBRARIES)}/").split()
    words = [w.replace("worker.c", str(EXAMPLE)).replace("-Iruntime_c", f"-I{ROOT}/runtime_c") for w in words]
    run(words, cwd=tmp_path)
    assert (tmp_path / "worker").exists()


def test_sanitized(folder: Path) -> None:
    program = compiled(
        "cc", "address", folder / "sanitized", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"
    )
    with Server(folder / "digits.lnt") as server:
        done = subprocess.run(
            [str(program), *arguments(server.address, 0)], cwd=folder, env=SANITIZED, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        close(folder, server, 1, 1e-5)


def test_what_goes_wrong_is_said(folder: Path) -> None:
    program = compiled("cc", "release", folder / "worker")
    with Server(folder / "digits.lnt") as server, Worker(folder / "digits.lnt", server.address, number=0):
        process = start([str(program)], folder, f"unix:{folder}/nobody/there", -7)
        _, text = process.communicate(timeout=60)
        assert process.returncode == 1 and "a number from 0, or -1" in text
        assert run_usage(program) == "usage: worker MODEL.lnt SERVER NUMBER IMAGES.idx LABELS.idx STEPS [DEVICE]\n"


def test_it_computes_on_a_device(folder: Path, tmp_path: Path) -> None:
    """The reference computes on the CPU."""
    device = opencl_device()
    program = compiled("cc", "release", tmp_path / "worker")
    library = build("release", "linnet_opencl") / "liblinnet_opencl.so"
    with Server(folder / "digits.lnt") as server:
        command = [str(program), *arguments(server.address, 0)]
        done = subprocess.run(
            [*command, str(library)], cwd=folder, capture_output=True, text=True, check=False, timeout=120
        )
        assert device and done.returncode == 0, done.stderr
        close(folder, server, 1, 1e-4)
        done = subprocess.run(
            [*command, "nowhere"], cwd=folder, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 1 and "nowhere" in done.stderr


def run_usage(program: Path) -> str:
    return subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=60).stderr


def test_a_worker_on_arm_and_one_in_python_here(folder: Path) -> None:
    """64-bit ARM under qemu in C, and this machine in Python: one model, within 1e-5 of one process."""
    need("qemu-aarch64", "aarch64-linux-gnu-gcc")
    program = compiled("aarch64-linux-gnu-gcc", "aarch64", folder / "worker-arm")
    emulated = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", "cortex-a53", str(program)]
    with Server(folder / "digits.lnt", workers=2) as server:
        there = start(emulated, folder, server.address, 1)

        def here() -> None:
            with Worker(folder / "digits.lnt", server.address, number=0, timeout=120) as worker:
                while (step := worker.info.step) < STEPS:
                    worker.step(feeds(folder, step, 0))

        thread = threading.Thread(target=here)
        thread.start()
        out, text = there.communicate(timeout=300)
        thread.join(60)
        assert there.returncode == 0 and not thread.is_alive(), text
        assert re.fullmatch(rf"step {STEPS}: loss \d+\.\d+", out.splitlines()[-1])
        close(folder, server, 2, 1e-5)
