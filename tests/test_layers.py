"""The layers of the Python package: imports run down (the contracts are in pyproject.toml), and no modules import each other in a
circle. Imports inside functions count. Files of the product, Python and C, are short enough to have one subject."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent


def test_imports_run_down_the_layers() -> None:
    """In a process of its own: import-linter disables the loggers that exist already."""
    code = f"from importlinter.cli import lint_imports; exit(lint_imports({str(ROOT / 'pyproject.toml')!r}, no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 kept, 0 broken" in done.stdout, done.stdout + done.stderr


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
