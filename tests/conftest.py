"""Selects the linnet under test: the sources of this tree, laid out as a package, with the library built by CMake. With
LINNET_TEST_INSTALLED it is the installed package."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import hypothesis
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # tests import each other as tests.NAME
    sys.path.insert(0, str(ROOT))


if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # of a shell that started this in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# hypothesis gets no deadline: on a busy machine, slow does not mean wrong.
hypothesis.settings.register_profile("linnet", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("linnet")


def _choose() -> None:
    if os.environ.get("LINNET_TEST_INSTALLED"):
        return
    from tests import native, tree

    folder = str(tree.package())
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    if not os.environ.get("LINNET_LIBRARY"):
        native.build("release", *tree.LIBRARIES)


_choose()
pytest_plugins = ["tests.suite"]


@pytest.fixture(autouse=True)
def _same_numbers(request: pytest.FixtureRequest) -> None:
    """Each test draws the same numbers from the generator RNG of its module, whichever tests ran before it."""
    module = request.module
    if isinstance(rng := getattr(module, "RNG", None), np.random.Generator):
        module.RNG_STATE = getattr(module, "RNG_STATE", rng.bit_generator.state)  # as the module was imported
        rng.bit_generator.state = module.RNG_STATE


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pytest's fixture with shorter names: error records of C hold 79 characters of a path, and xdist adds a folder."""
    return tmp_path_factory.mktemp(re.sub(r"\W", "_", request.node.name)[:12])


@pytest.fixture
def linnet_command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `linnet ARGUMENTS` in this process and returns the result, whatever the exit status."""
    from tests.command import run_here

    return run_here


@pytest.fixture
def linnet_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `linnet ARGUMENTS` in a separate process and returns the result, whatever the exit status."""
    from tests.command import run_process

    return run_process


@pytest.fixture
def torch() -> ModuleType:
    """PyTorch, for a test that compares with it."""
    from tests.with_torch import MISSING

    return pytest.importorskip("torch", reason=MISSING, exc_type=ImportError)


@pytest.fixture(autouse=True, scope="session")
def strict_passes() -> None:
    """A pass that changes the type of a value fails the test. Users get the value without the pass."""
    from linnet.passes import kept_types

    kept_types.strict = True
