"""Public names of the Python package: none is lost, and importing linnet loads little."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import linnet

NAMES: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "public_names.toml").read_text())


@pytest.mark.parametrize("module", NAMES)
def test_names_are_kept(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in NAMES[module] if not hasattr(found, name)] == []


def test_modules_with_public_names_are_attributes() -> None:
    """`import linnet` is enough for those, as it was."""
    for name in NAMES["linnet"]:
        assert getattr(linnet, name) is not None
    assert linnet.ops.relu is importlib.import_module("linnet.ops").relu
    assert importlib.import_module("linnet.session").Session is linnet.Session
    assert importlib.import_module("linnet.report").check is linnet.check
    assert isinstance(linnet.facade.Graph(), linnet.Graph) and linnet.Graph.__name__ == "Graph"


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named .linnet\.nonsense."):
        importlib.import_module("linnet.nonsense")
    with pytest.raises(AttributeError, match=r"module 'linnet' has no attribute 'nonsense'"):
        _ = linnet.nonsense  # type: ignore[attr-defined]


def test_import_loads_nothing_that_is_lazy() -> None:
    lazy = (
        "onnx", "click", "rich", "linnet._generated.op_table", "linnet.ir.graph", "linnet.passes", "linnet.session.session",
        "linnet.file.writer", "linnet.builder.ops", "linnet.nn",
    )  # fmt: skip
    assert [name for name in lazy if importlib.util.find_spec(name) is None] == [], "a name that nothing has"
    code = f"import sys, linnet; print(*(name for name in {lazy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
