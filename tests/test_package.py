"""linnet as a C package: what `cmake --install` writes, and projects that find it there with CMake or pkg-config, include it as a
folder, or fetch it. Each builds and runs a program. And what the Python package needs and carries."""
# Dear: a wheel is built.

from __future__ import annotations

import ast
import html
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

import linnet
from tests.native import ROOT, build, need, run

PROGRAM = """#include <stdio.h>
#include "linnet.h"
#include "linnet_sync.h"

int main(void) {
    linnet_model *model;
    linnet_error error;
    printf("%s %d\\n", linnet_version(), linnet_model_open("absent.lnt", NULL, &model, &error));
    return 0;
}
"""
OUTPUT = f"{linnet.__version__} 201\n"
PROJECT = """cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C)
{how}
add_executable(app app.c)
target_link_libraries(app PRIVATE {library})
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix that was installed somewhere else first and then moved."""
    folder = tmp_path_factory.mktemp("prefix")
    run(["cmake", "--install", str(build("release")), "--prefix", str(folder / "made")])
    return (folder / "made").rename(folder / "moved")


def project(folder: Path, how: str, library: str, *options: str) -> str:
    """Configures and builds a project of its own; returns what its program prints."""
    (folder / "CMakeLists.txt").write_text(PROJECT.format(how=how, library=library))
    (folder / "app.c").write_text(PROGRAM)
    run(["cmake", "-S", str(folder), "-B", str(folder / "build"), *options])
    run(["cmake", "--build", str(folder / "build"), "--target", "app", "-j", str(os.cpu_count() or 2)])
    return run([str(folder / "build" / "app")])


def test_what_is_installed(installed: Path) -> None:
    files = {str(path.relative_to(installed)) for path in installed.rglob("*") if not path.is_dir()}
    headers = {f"include/{path.name}" for path in (ROOT / "runtime_c" / "include").glob("*.h")}
    assert headers <= files and len(headers) == 5
    names = {Path(name).name for name in files - headers}
    for library in ("liblinnet", "liblinnet_sync"):
        assert {f"{library}.a", f"{library}.so", f"{library}.so.0", f"{library}.so.0.1.0"} <= names
    assert {"linnetConfig.cmake", "linnetConfigVersion.cmake", "linnet.pc", "linnet_sync.pc"} <= names
    assert {"linnet-run", "linnet-bench", "linnet-train", "linnet-parameter-server", "linnet-host"} <= names
    assert not [name for name in names if "test" in name or "fuzz" in name]


@pytest.mark.parametrize("library", ["linnet::linnet", "linnet::linnet_static"])
def test_find_package(library: str, installed: Path, tmp_path: Path) -> None:
    how = "find_package(linnet 0.1 REQUIRED CONFIG)"
    assert project(tmp_path, how, library, f"-DCMAKE_PREFIX_PATH={installed}") == OUTPUT


def test_find_package_refuses_another_version(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        PROJECT.format(how="find_package(linnet 0.2 REQUIRED CONFIG)", library="linnet::linnet")
    )
    done = subprocess.run(
        ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), f"-DCMAKE_PREFIX_PATH={installed}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0 and "0.1.0" in done.stderr


@pytest.mark.parametrize("package", ["linnet", "linnet_sync"])
def test_pkg_config(package: str, installed: Path, tmp_path: Path) -> None:
    need("pkg-config")
    (folder,) = {path.parent for path in installed.rglob("linnet.pc")}
    env = {"PKG_CONFIG_PATH": str(folder)}
    words = run(["pkg-config", "--cflags", "--libs", package], env=env).split()
    (tmp_path / "app.c").write_text(PROGRAM)
    where = next(word[2:] for word in words if word.startswith("-L"))
    run(["cc", "app.c", *words, f"-Wl,-rpath,{where}", "-o", "app"], cwd=tmp_path)
    assert run([str(tmp_path / "app")]) == OUTPUT
    assert run(["pkg-config", "--modversion", package], env=env).strip() == linnet.__version__
    assert "-lm" in run(["pkg-config", "--static", "--libs", package], env=env).split()


# Without optimization and without kernels of other instruction sets, the library builds in seconds.
QUICK = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS=-O0", "-DLINNET_ISAS=")
INSIDE = f"""add_subdirectory({ROOT} linnet)
if(TARGET test_plan OR TARGET linnet-run OR LINNET_WERROR)
  message(FATAL_ERROR "tests, tools and -Werror are for linnet's own developers")
endif()"""
FETCHED = f"""include(FetchContent)
FetchContent_Declare(linnet SOURCE_DIR {ROOT})
FetchContent_MakeAvailable(linnet)"""


@pytest.mark.more
@pytest.mark.parametrize(("how", "library"), [(INSIDE, "linnet::linnet"), (FETCHED, "linnet::linnet_static")])
def test_inside_another_project(how: str, library: str, tmp_path: Path) -> None:
    assert project(tmp_path, how, library, *QUICK) == OUTPUT


@pytest.mark.parametrize("how", [INSIDE, FETCHED], ids=["add_subdirectory", "FetchContent"])
def test_another_project_builds_what_it_links_and_installs_its_own_files(how: str, tmp_path: Path) -> None:
    need("ninja")
    text = PROJECT.format(how=how, library="linnet::linnet_static") + "install(FILES app.c DESTINATION share)\n"
    (tmp_path / "CMakeLists.txt").write_text(text)
    (tmp_path / "app.c").write_text(PROGRAM)
    build, prefix, others = (
        tmp_path / "build",
        tmp_path / "prefix",
        ("runtime_c/sync/server", "kernels_gpu", "liblinnet.so"),
    )
    run(["cmake", "-G", "Ninja", "-S", str(tmp_path), "-B", str(build), *QUICK])
    steps = run(["ninja", "-C", str(build), "-t", "commands", "all"])
    assert "liblinnet.a" in steps and not [name for name in (*others, "tests/c", "runtime_c/tools") if name in steps]
    run(["cmake", "--install", str(build), "--prefix", str(prefix)])  # nothing of linnet, which has not been built
    assert [path for path in prefix.rglob("*") if path.is_file()] == [prefix / "share" / "app.c"]
    run(["cmake", "-S", str(tmp_path), "-B", str(build), "-DLINNET_INSTALL=ON"])
    steps = run(["ninja", "-C", str(build), "-t", "commands", "all"])
    assert all(name in steps for name in others[::2]) and "linnet" in (build / "cmake_install.cmake").read_text()


def test_the_folder_of_headers() -> None:
    folder = Path(linnet.include_dir())
    assert {path.name for path in folder.glob("*.h")} == {
        path.name for path in (ROOT / "runtime_c" / "include").glob("*.h")
    }


SESSION = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"onnx", "flatbuffers", "ml_dtypes", "rich", "click", "scipy", "torch", "PIL"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
import numpy as np
import linnet

path, x = sys.argv[1], np.ones((2, 3), np.float32)
for options in ({}, {"bounds": {"x": "1..4,3"}}, {"strict_dims": True}, {"trace": True}, {"snapshot": True}):
    print(linnet.Session(path, **options).run({"x": x})["y"].sum())
session = linnet.Session(open(path, "rb").read())
print(session.bind({"x": session.empty("x", (2, 3))}).run()["y"].shape, session.model.dim_names())
trained = linnet.Session(path, "train")
trained.run({"x": x})
trained.variables.save(path + ".ckpt", metadata={"step": 1})
print(trained.variables["w"], linnet.Store(trained.model).load(path + ".ckpt"))
try:
    linnet.from_onnx("model.onnx")
except linnet.Error as error:
    print(error)
"""


def test_a_session_needs_numpy_and_cffi_only(tmp_path: Path) -> None:
    """Importing linnet and running a file work without onnx, flatbuffers and what the command line needs: also with an open
    batch, within bounds, and when it trains."""
    graph = linnet.Graph()
    x, w = graph.placeholder("x", ("n", 3)), graph.variable("w", np.float32(1))
    graph.signature("infer", {"x": x}, {"y": x + w})
    graph.signature("train", {"x": x}, {}, updates={w: w + x.mean()})
    graph.save(tmp_path / "model.lnt")
    *values, bound, trained, error = run([sys.executable, "-c", SESSION, str(tmp_path / "model.lnt")]).splitlines()
    assert values == ["12.0"] * 5 and bound == "(2, 3) {'x': ('n', '')}" and trained == "2.0 {'step': '1'}"
    assert error == "linnet.from_onnx needs the package onnx, which is not installed; pip install onnx"


def test_onnx_is_left_out_where_it_has_no_wheels() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (onnx,) = (Requirement(text) for text in project["dependencies"] if text.startswith("onnx"))
    assert onnx.marker is not None
    assert [m for m in ("x86_64", "aarch64", "armv7l", "armv6l") if onnx.marker.evaluate({"platform_machine": m})] == [
        "x86_64", "aarch64"
    ]  # fmt: skip


INSTALLED = """
import sys
import numpy as np
import linnet

assert linnet.__file__.startswith(sys.argv[1]), linnet.__file__
graph = linnet.Graph()
x = graph.placeholder("x", (2, 3))
graph.signature("infer", {"x": x}, {"y": x + 1.0})
graph.save(sys.argv[1] + "/model.lnt")
print(linnet.__version__, linnet.Session(sys.argv[1] + "/model.lnt").run({"x": np.ones((2, 3), np.float32)})["y"].sum())
"""


@pytest.mark.more
def test_a_wheel_has_everything(tmp_path: Path) -> None:
    """`pip install .` as a user does it: tests run from the tree, so nothing else would miss a file that the wheel lacks."""
    target = tmp_path / "site"
    run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", f"--target={target}", str(ROOT)])
    environment = {"PYTHONPATH": str(target), "PATH": f"{target / 'bin'}:{os.environ['PATH']}"}
    assert (
        run([sys.executable, "-c", INSTALLED, str(target)], cwd=tmp_path, env=environment)
        == f"{linnet.__version__} 12.0\n"
    )
    for tool in ("linnet", "linnet-bench", "linnet-run", "linnet-parameter-server", "linnet-train", "linnet-host"):
        assert run([tool, "--version"], cwd=tmp_path, env=environment) == f"{tool} {linnet.__version__}\n"
        alone = Path(shutil.copy(target / "linnet" / "bin" / tool, tmp_path)) if tool != "linnet" else None
        if alone is not None:  # one file, which runs without the library of the wheel
            assert run([str(alone), "--version"], cwd=tmp_path, env={}) == f"{tool} {linnet.__version__}\n"
    run(["linnet", "inspect", str(target / "model.lnt")], cwd=tmp_path, env=environment)
    assert (target / "linnet" / "include" / "linnet.h").is_file()
    assert {path.name for path in (target / "linnet").rglob("*.py")} >= {
        path.name for folder in ("pyruntime/linnet", "converters") for path in (ROOT / folder).rglob("*.py")
    }


def test_the_package_runs_on_the_python_that_it_asks_for() -> None:
    """mypy and ruff check for the oldest Python which functions and modules of its library are used, and here the grammar."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    oldest = project["project"]["requires-python"].removeprefix(">=")
    assert project["tool"]["mypy"]["python_version"] == oldest
    assert project["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    version = (int(oldest.split(".")[0]), int(oldest.split(".")[1]))
    assert version == (3, 10)
    for folder in ("pyruntime", "converters"):
        for path in (ROOT / folder).rglob("*.py"):
            ast.parse(path.read_text(), str(path), feature_version=version)


def distributions(text: str) -> list[str]:
    """The distributions that commands of `pip install` and `pip download` in a text name."""
    commands = re.findall(r"\bpip3? (?:install|download)((?: +[^\s#`]*[^\s#`,;:])*)", html.unescape(text))
    words = [word.strip("\"'.)") for command in commands for word in command.split()]
    return [name[1] for word in words if (name := re.match(r"([A-Za-z][\w-]*)(?![\w./-])", word))]


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("pip install {}", ["linnet"]),
        ("see `pip install -U {}`.", ["linnet"]),
        ("pip install 'numpy' '{}[torch,image]'", ["numpy", "linnet"]),
        ('hint="pip install {}[train]"', ["linnet"]),
        ("pip install &quot;{}[report]&quot;", ["linnet"]),
        ("python -m pip install {}==0.1.0, then linnet", ["linnet"]),
        ("pip install '{}-runtime[torch]', or `pip install .`", ["linnet-runtime"]),
        ('pip install ".[image]"  # linnet', []),
    ],
)
def test_names_of_distributions_are_found(command: str, names: list[str]) -> None:
    assert distributions(command.format("linnet")) == names


def test_nothing_installs_the_package_of_another_project() -> None:
    """On the package index, linnet is another project's. pyproject.toml has the name of ours, with the extras that texts name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] != "linnet"
    own = 0
    for name in run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT).splitlines():
        if not (ROOT / name).is_file():  # removed, and not committed yet
            continue
        text = (ROOT / name).read_text(errors="replace")
        names = distributions(text)
        assert "linnet" not in names, f"{name}: our distribution is called {project['name']}"
        own += names.count(project["name"])
        for extras in re.findall(re.escape(project["name"]) + r"\[([\w,]+)\]", text):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), f"{name}: {extras}"
    assert own > 20
