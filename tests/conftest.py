"""Selects the linnet under test: the installed package or, if none is installed or LINNET_TEST_TREE is set, the sources of this
tree laid out as a package, with the library built by CMake."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # tests import each other as tests.NAME
    sys.path.insert(0, str(ROOT))


# hypothesis gets no deadline: on a busy machine, slow does not mean wrong.
hypothesis.settings.register_profile("linnet", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("linnet")


def _tree_package() -> Path:
    """Makes a folder with `linnet` and `linnet/converters` as links into the tree."""
    from tests.native import BUILDS

    folder = BUILDS / "python"
    package = folder / "linnet"
    package.mkdir(parents=True, exist_ok=True)
    wanted = {path.name: path for path in (ROOT / "pyruntime" / "linnet").iterdir() if path.name != "__pycache__"}
    wanted["converters"] = ROOT / "converters"
    wanted["include"] = ROOT / "runtime_c" / "include"
    for name, target in wanted.items():
        link = package / name
        if not link.is_symlink() or link.readlink() != target:
            temporary = package / f".{name}.{os.getpid()}"
            temporary.symlink_to(target)
            temporary.replace(link)
    for link in package.iterdir():  # of files that have moved or gone
        if link.is_symlink() and not link.exists():
            link.unlink(missing_ok=True)
    return folder


def _choose() -> None:
    installed = importlib.util.find_spec("linnet")
    if installed is not None and installed.origin is not None and not os.environ.get("LINNET_TEST_TREE"):
        return
    folder = str(_tree_package())
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    if not os.environ.get("LINNET_LIBRARY"):
        from tests.native import build

        os.environ["LINNET_LIBRARY"] = str(build("release", "linnet", "linnet_sync") / "liblinnet.so")


_choose()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pytest's fixture with shorter names: error records of C hold 79 characters of a path, and xdist adds a folder."""
    return tmp_path_factory.mktemp(re.sub(r"\W", "_", request.node.name)[:12])


@pytest.fixture
def linnet_command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `linnet ARGUMENTS` in a separate process and returns the result, whatever the exit status."""

    def run(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "linnet", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    return run
