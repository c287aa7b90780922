"""The container file of `linnet serve`: its steps run in an empty environment, and what they add is measured. There is no Docker
here: the test reads the file and repeats its RUN steps with a fresh Python in place of the image's."""
# Dear: pip builds a wheel and installs packages.

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import linnet
from examples.serving import slim
from linnet.serve import kubernetes
from tests.cross_builds import need_index
from tests.native import ROOT, need, run
from tests.serving import Client, mlp, served

FILE = ROOT / "examples" / "serving" / "Containerfile"
MOST = 60_000_000  # bytes on top of the image of Python
# What converting a model and printing tables need, and a server does not.
LEFT_OUT = {"ml-dtypes", "onnx", "rich"}


@dataclass
class Container:
    """What a container file says. steps: its RUN instructions; mounts: {target: source} of their files from the context."""

    base: str = ""
    steps: list[str] = field(default_factory=list)
    mounts: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)


def read(path: Path) -> Container:
    made = Container()
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            assert not made.base, "there is one stage"
            made.base = rest
        elif word in ("ARG", "ENV"):
            made.variables |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        elif word == "RUN":
            for mount in re.findall(r"--mount=(\S+)", rest):
                options = dict(pair.split("=") for pair in mount.split(","))
                assert options["type"] == "bind"
                made.mounts[options["target"]] = options["source"]
            made.steps.append(re.sub(r"--mount=\S+", "", rest).strip())
        elif word:
            assert word not in made.others, word
            made.others[word] = rest.strip()
    return made


def test_it_says_what_a_server_needs(tmp_path: Path) -> None:
    made = read(FILE)
    assert made.base == "python:3.11-slim"
    assert made.others["USER"] == "10001:10001", "Kubernetes knows from a number that it is not root"
    assert made.others["EXPOSE"] == "8000" and made.others["VOLUME"] == "/models"
    assert json.loads(made.others["ENTRYPOINT"]) == ["linnet", "serve"]
    assert json.loads(made.others["CMD"]) == ["/models", "--host", "0.0.0.0", "--port", "8000"]
    assert "http://127.0.0.1:8000/v2/health/ready" in made.others["HEALTHCHECK"]
    assert not {"COPY", "ADD"} & made.others.keys(), "a copied wheel would stay in the image"
    assert made.mounts["/mnt/slim.py"] == "examples/serving/slim.py" and (ROOT / made.mounts["/mnt/slim.py"]).is_file()
    text = kubernetes.manifests(mlp(tmp_path / "mlp.lnt"), image="x")
    assert "runAsUser: 10001" in text and "containerPort: 8000" in text and "mountPath: /models" in text


def test_it_installs_the_packages_that_pyproject_names() -> None:
    (step,) = read(FILE).steps
    first = step.split("&&")[0]
    installed = {word for word in first.split()[2:] if not word.startswith(("-", "$"))}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    names = {re.match(r"[\w-]+", line).group() for line in needed}  # type: ignore[union-attr]
    assert installed == names - LEFT_OUT


def test_a_library_without_its_end_still_loads(tmp_path: Path) -> None:
    need("cc", "readelf")
    (tmp_path / "a.c").write_text("int answer(void) { return 42; }\n")
    library = tmp_path / "a.so"
    run(["cc", "-g", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "a.c")])
    before = library.stat().st_size
    assert ".debug_info" in run(["readelf", "-SW", str(library)])
    removed = slim.cut(library)
    assert removed > 0 and library.stat().st_size == before - removed
    assert "no sections" in run(["readelf", "-SW", str(library)])
    program = f"import ctypes; print(ctypes.CDLL({str(library)!r}).answer())"
    assert run([sys.executable, "-c", program]).strip() == "42"
    assert slim.cut(library) == 0, "nothing is left to cut off"
    assert slim.cut(tmp_path / "a.c") == 0 and (tmp_path / "a.c").read_text().startswith("int"), "it is not a library"


def _files(folder: Path) -> dict[Path, tuple[int, int]]:
    return {
        path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*") if not path.is_dir()
    }  # fmt: skip


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A folder of Python in which the steps ran, and the bytes that they added."""
    need("cmake", "ninja", "cc")
    need_index()
    folder = tmp_path_factory.mktemp("container")
    base = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "CCACHE_")) or name == "HOME"}
    path = "/usr/local/bin:/usr/bin:/bin"
    build = {
        **base, "PATH": path, "SKBUILD_CMAKE_DEFINE": "LINNET_LTO=OFF", "SKBUILD_BUILD_DIR": str(folder / "build")
    }  # fmt: skip
    run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder / "dist"), str(ROOT)], env=build
    )
    shutil.rmtree(folder / "build", ignore_errors=True)

    python = folder / "python"
    venv.create(python, with_pip=True)
    for compiled in [*python.rglob("__pycache__")]:  # the image has none
        shutil.rmtree(compiled)
    made = read(FILE)
    before = _files(python)
    for step in made.steps:
        for target, source in made.mounts.items():
            step = step.replace(target, str(folder / source if source == "dist" else ROOT / source))
        done = subprocess.run(
            ["sh", "-c", step], env={**base, **made.variables, "PATH": f"{python}/bin:{path}"}, cwd=folder,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "removed " in done.stdout
    added = sum(found[0] for file, found in _files(python).items() if before.get(file) != found)
    return python, added


@pytest.mark.more  # pip builds a wheel
@pytest.mark.timeout(1200)
def test_the_steps_add_at_most_60_mb(image: tuple[Path, int], tmp_path: Path) -> None:
    python, added = image
    print(f"the steps add {added / 1e6:.1f} MB")
    assert 30_000_000 < added <= MOST
    stated = re.search(r"(\d+) MB on top of python", FILE.read_text())
    assert stated and abs(int(stated[1]) - added / 1e6) < 3, "write the size of today into the file and the page"
    page = (ROOT / "docs" / "serving_containers.md").read_text()
    assert f"{stated[1]} MB" in page

    models = tmp_path / "models"
    models.mkdir()
    linnet.from_onnx(ROOT / "examples" / "mnist_small" / "mnist_small.onnx").save(models / "digits.lnt")
    made = read(FILE)
    environment = {**made.variables, "PATH": f"{python}/bin", "HOME": str(tmp_path)}
    (program, *words), arguments = json.loads(made.others["ENTRYPOINT"]), json.loads(made.others["CMD"])
    arguments[arguments.index("/models")] = str(models)
    with served([*arguments, "--log", "json"], [str(python / "bin" / program), *words], environment) as server:
        check = json.loads(made.others["HEALTHCHECK"].partition(" CMD ")[2])
        asked = [
            str(python / "bin" / check[0]),
            *(word.replace("http://127.0.0.1:8000", server.url) for word in check[1:]),
        ]
        assert subprocess.run(asked, env=environment, check=False).returncode == 0
        client = Client(server.url)
        status, answer = client.infer("digits", {"input": np.zeros((2, 1, 28, 28), np.float32)})
        assert status == 200 and answer["outputs"][0]["shape"] == [2, 10]
        assert client.raw("GET", "/")[0] == client.raw("GET", "/metrics")[0] == 200
    assert subprocess.run(asked, env=environment, check=False, stderr=subprocess.DEVNULL).returncode != 0
