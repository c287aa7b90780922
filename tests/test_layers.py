"""The layers of the Python package: imports run down (the contracts are in pyproject.toml), and no modules import each other in a
circle. Imports inside functions count. Files of the product, Python and C, are short enough to have one subject."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import grimp

ROOT = Path(__file__).resolve().parent.parent


def contracts() -> list[dict[str, Any]]:
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"])


def test_imports_run_down_the_layers() -> None:
    """In a process of its own: import-linter disables the loggers that exist already."""
    code = f"from importlinter.cli import lint_imports; exit(lint_imports({str(ROOT / 'pyproject.toml')!r}, no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"{len(contracts())} kept, 0 broken" in done.stdout, done.stdout + done.stderr


def named() -> set[str]:
    """Packages and modules that a contract layers, puts into a layer, or protects."""
    found: set[str] = set()
    for contract in contracts():
        found |= {*contract.get("containers", ()), *contract.get("protected_modules", ())}
        layers = " ".join(contract.get("layers", ())).replace(":", " ").replace("|", " ").split()
        found |= {f"{container}.{layer}" for container in contract.get("containers", ()) for layer in layers}
    return found


def folders() -> dict[str, Path]:
    """{installed name: folder} of every folder with Python files."""
    places = {"linnet": ROOT / "pyruntime" / "linnet", "linnet.converters": ROOT / "converters"}
    return {
        ".".join([name, *file.parent.relative_to(place).parts]): file.parent
        for name, place in places.items()
        for file in place.rglob("*.py")
    }


def test_every_folder_has_a_contract() -> None:
    """A folder that no contract names, or that is no package and so is not seen by any, may import what it likes."""
    assert {"linnet.converters.onnx.rules", "linnet.clib", "linnet.sync.simulate"} <= set(folders())
    assert set(folders()) - named() == set(), "name the folder in a contract of pyproject.toml"
    assert [str(folder) for folder in folders().values() if not (folder / "__init__.py").exists()] == []
    seen = grimp.build_graph("linnet", cache_dir=None).modules
    assert set(folders()) - seen == set(), "grimp does not see the folder"


def circle(graph: grimp.ImportGraph) -> list[str]:
    """Modules that import each other, directly or by way of others, as a path that ends where it begins; [] if there are
    none."""
    imports = {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    assert circle(grimp.build_graph("linnet", cache_dir=None, exclude_type_checking_imports=True)) == []


def test_none_do_so_for_type_checkers_but_importers() -> None:
    """A rule's Operation knows the importer that made it by type alone, so each importer counts as one module."""
    graph = grimp.build_graph("linnet", cache_dir=None)
    for importer in ("onnx", "tflite"):
        graph.squash_module(f"linnet.converters.{importer}")
    assert circle(graph) == []


def test_circles_are_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "d"), ("e", "e")):
        graph.add_import(importer=importer, imported=imported)
    assert circle(graph) == []
    graph.add_import(importer="c", imported="b")
    assert sorted(set(circle(graph))) == ["b", "c"]


MOST_LINES = 450
LONGER = {  # file: why it is one subject
    "runtime_c/include/linnet.h": "the public header, which one person reads in one sitting",
    "runtime_c/include/linnet_device.h": "the public header for devices, which one person reads in one sitting",
    "runtime_c/simd/math.h": "elementary functions, each of a few lines, which share their constants and their tests",
}


def sources() -> list[Path]:
    """The source files of the product, without those that the generator writes."""
    folders = ("runtime_c", "kernels_x86", "kernels_arm", "kernels_gpu", "pyruntime", "converters", "schema")
    ends = (".c", ".h", ".inc", ".py", ".cl", ".cu")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in ends]
    return sorted(path for path in found if "generated" not in str(path.relative_to(ROOT)))


def test_files_are_short() -> None:
    """A file that grows beyond the limit is split by subject, or it is listed with its reason."""
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    assert len(lines) > 700
    long = {name: count for name, count in lines.items() if count > MOST_LINES and name not in LONGER}
    assert not long, "\n".join(f"{name}: {count} lines, at most {MOST_LINES}" for name, count in long.items())
    assert all(lines[name] > MOST_LINES for name in LONGER), "a file of LONGER is short enough now"
