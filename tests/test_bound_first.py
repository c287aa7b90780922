"""A memory limit is compared with what the variables need before they take memory: a file of 1 MB describes 400 MB of
variables, because they share their bytes. The C tools run with an address space that has no room for them, and the processes
of Python report their largest size."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import linnet
from tests.native import build

ROWS, COUNT = 1 << 18, 400  # 400 variables of 1 MB
MOST = 1 << 28  # the address space of a C tool, and the size of a process of Python
LIMIT = 64_000_000
SAYS = f"at most {LIMIT}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, inputs, data and a checkpoint."""
    folder = tmp_path_factory.mktemp("bound")
    graph = linnet.Graph()
    x = graph.placeholder("x", (None, 4))
    for i in range(COUNT):
        graph.variable(f"v{i}", np.ones(ROWS, np.float32))
    w = graph.variable("w", np.ones((4, 1), np.float32))
    loss = ((x @ w) ** 2).mean()
    (gradient,) = linnet.gradients(loss, [w])
    graph.signature("infer", {"x": x}, {"y": x @ w})
    graph.signature("train", {"x": x}, {"loss": loss}, updates={w: w - 0.1 * gradient})
    graph.save(folder / "m.lnt")
    assert (folder / "m.lnt").stat().st_size < 2_000_000
    np.save(folder / "x.npy", np.ones((2, 4), np.float32))
    np.savez(folder / "data.npz", x=np.ones((8, 4), np.float32))
    return folder


def _small() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST))


@pytest.mark.parametrize(
    "tool",
    [
        "linnet-run m.lnt x.npy",
        "linnet-run m.lnt x.npy --checkpoint c.ckpt",
        "linnet-bench m.lnt",
        "linnet-train m.lnt",
    ],
)
def test_tools_refuse_before_they_allocate(tool: str, folder: Path) -> None:
    name, *arguments = tool.split()
    if name == "linnet-train":
        arguments += ["--data", "data.npz", "--batch", "4", "--steps", "1", "--no-checkpoint"]
    if name != "linnet-bench":
        arguments += ["--threads", "1"]
    command = [str(build("release", name) / name), *arguments, "--memory", str(LIMIT)]
    done = subprocess.run(
        command, cwd=folder, preexec_fn=_small, capture_output=True, text=True, timeout=60, check=False
    )
    said = done.stderr
    assert done.returncode == 1, said
    if name == "linnet-train":
        assert "--memory: 64.00 MB is not enough; training needs 42" in said, said
    else:
        assert "too_large" in said and SAYS in said and "raise --memory" in said, said


def _peak(code: str, folder: Path) -> tuple[str, int]:
    """Runs Python code in a process of its own. Returns what it printed, and the bytes that it was larger at its largest than
    after the import."""
    before = "import linnet\nfrom linnet.session.machine import peak_rss\nbefore = peak_rss()\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{before}{code}\nprint(peak_rss() - before)"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    *text, grown = done.stdout.splitlines()
    return "\n".join(text) + done.stderr, int(grown)


@pytest.mark.parametrize(
    "code",
    [
        "linnet.Session('m.lnt', max_bytes=LIMIT)",
        "linnet.Session('m.lnt', input_shapes={'x': (2, 4)}, max_bytes=LIMIT)",
        "linnet.Session('m.lnt', 'train', bounds={'x': ((1, 8), 4)}, max_bytes=LIMIT)",
        "m = linnet.Model('m.lnt'); linnet.Session(m, input_shapes={'x': (2, 4)}, store=linnet.Store(m), max_bytes=LIMIT)",
    ],
)
def test_python_refuses_before_it_allocates(code: str, folder: Path) -> None:
    code = code.replace("LIMIT", str(LIMIT))
    said, grown = _peak(f"try:\n    {code}\nexcept linnet.GraphError as error:\n    print(error)", folder)
    assert "too_large" in said and SAYS in said and grown < MOST, (said, grown)


@pytest.mark.parametrize("command", ["plan m.lnt --input x=2,4", "run m.lnt --input x=x.npy", "bench m.lnt"])
def test_commands_refuse_before_they_allocate(command: str, folder: Path) -> None:
    words = [*command.split(), "--max-bytes", str(LIMIT)]
    code = f"import sys\nfrom linnet.cli.main import main\nsys.argv = ['linnet', *{words}]\n"
    code += "try:\n    main()\nexcept SystemExit as end:\n    print('status', end.code)"
    said, grown = _peak(code, folder)
    assert "status 1" in said and "too_large" in said and SAYS in said and grown < MOST, (said, grown)


def test_the_store_of_a_session_is_as_large_as_predicted(folder: Path) -> None:
    """A store takes memory when something uses it, and says the same size before and after."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (2,))
    v = graph.variable("v", np.ones(1000, np.float32))
    graph.signature("infer", {"x": x}, {"y": x * v.sum()})
    model = linnet.Model(graph)
    store = linnet.Store(model)
    before = repr(store)
    assert (store["v"] == 1).all() and repr(store) == before
    session = linnet.Session(model, store=store)
    exact = session.memory["total"]
    assert linnet.Session(model, max_bytes=exact).run({"x": np.ones(2, np.float32)})["y"][0] == 1000
    with pytest.raises(linnet.GraphError, match=f"at most {exact - 1} bytes, got {exact}"):
        linnet.Session(model, max_bytes=exact - 1)
