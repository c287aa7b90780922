"""Builds the docs site in build/docs: the Markdown pages, and a reference made from docstrings and C headers.
`python docs/site/build.py [FOLDER]` (`make docs` installs what it needs). A warning of Sphinx or Doxygen is an error."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = Path(__file__).resolve().parent
BUILD = ROOT / "build"
sys.path[:0] = [str(SITE), str(BUILD / "python")]
from docstrings import as_rst  # noqa: E402
from headers import HEADERS, introduction, sections  # noqa: E402

PAGES = {  # page of the repository: page of the site; those of docs/ keep their names
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "schema/README.md": "schema.md",
    "kernels_gpu/README.md": "kernels_gpu.md",
    "examples/training/README.md": "examples_training.md",
    "examples/machines/README.md": "examples_machines.md",
    "examples/evaluation/README.md": "examples_evaluation.md",
    "examples/search/README.md": "examples_search.md",
}
MODULES = (
    "ops", "nn", "losses", "metrics", "optimizers", "schedules", "decoding", "clip", "init", "training", "data", "shuffle",
    "preprocess", "passes", "autodiff", "integers", "sync", "search", "serve", "converters", "converters.onnx",
    "converters.tflite", "converters.export", "quantization.aware", "quantization.table", "conformance", "onnx_backend",
)  # fmt: skip
GROUPS = {  # names of linnet by what they are for; the others follow
    "Graphs": "Graph Function Node Tensor Variable Signature Quantization UserOp load_user_ops",
    "Converting": "from_onnx from_tflite from_torch load_graph check Report replace_head quantize quantize_aware",
    "Running": "Session Model Store Checkpoint load_checkpoint pack isa_names include_dir",
    "Devices": "devices load_device check_device DeviceArray",
    "Building": "pointwise cond while_loop scan gradients stop_gradient softmax_cross_entropy",
    "Training": "fit evaluate History Saver Callback EarlyStopping TensorBoard",
    "Errors": "Error UsageError FileError GraphError ResourceError DeviceError SyncError Cancelled DeadlineExceeded "
    "TrainingError ConversionError Problem",
}
PYTHON_INDEX = """Python API
==========

``import linnet`` gives the names of the first page, and the modules of the others. A name that begins with an underscore is not
public.
"""
C_INDEX = """# C API

`linnet.h` is all that most programs need. The other headers are for programs that do more, and each says for which ones. Every
function that can fail returns a `linnet_status`; [error codes](../errors/index.md) says what each one means.
"""
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_FENCES = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def public(module: str) -> list[str]:
    """The public names of a module, in the order of the reference: classes and functions, but no modules and no types."""
    owner = importlib.import_module(module)
    names = getattr(owner, "__all__", None) or [
        name
        for name, value in vars(owner).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module
    ]
    return [name for name in names if not inspect.ismodule(getattr(owner, name))]


def main() -> int:
    began = time.monotonic()
    if not shutil.which("doxygen"):
        print("docs: doxygen is not installed; run: apt-get install doxygen", file=sys.stderr)
        return 1
    out = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else BUILD / "docs"
    source = out.with_name(f"{out.name}-source")
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    _pages(source)
    _python(source / "python")
    _c(source / "c")
    xml = _doxygen(out.with_name(f"{out.name}-doxygen"))
    environment = os.environ | {"LINNET_DOCS_ROOT": str(ROOT), "LINNET_DOCS_XML": str(xml)}
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", "-c", str(SITE)]
    doctrees = out.with_name(f"{out.name}-doctrees")
    done = subprocess.run([*command, "-d", str(doctrees), str(source), str(out)], env=environment, check=False)
    if done.returncode == 0:
        print(f"{os.path.relpath(out)}/index.html: {time.monotonic() - began:.0f} s")
    return done.returncode


def _pages(source: Path) -> None:
    """Copies the Markdown pages, with links that fit where they are now."""
    moved = {name: target for name, target in PAGES.items() if (ROOT / name).exists()}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        moved[page.relative_to(ROOT).as_posix()] = page.relative_to(ROOT / "docs").as_posix()
    for name, target in moved.items():
        text = (ROOT / name).read_text()
        parts = _FENCES.split(text)  # links in code are no links
        parts[::2] = [_LINK.sub(lambda link, name=name: _moved(link, name, moved, source), part) for part in parts[::2]]
        if name == "docs/index.md":
            parts.append((SITE / "contents.txt").read_text())
            parts[0] = parts[0].replace("*Python* and *C*", "[Python](python/index.rst) and [C](c/index.md)")
        if name == "docs/errors/index.md":
            pages = re.findall(r"\((\w+)\.md\)", text)
            parts.append("\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n")
        (source / target).parent.mkdir(parents=True, exist_ok=True)
        (source / target).write_text("".join(parts))
    for picture in (ROOT / "docs").glob("*.svg"):
        shutil.copy(picture, source)


def _moved(link: re.Match[str], page: str, moved: dict[str, str], source: Path) -> str:
    if "://" in link[2] or link[2].startswith("mailto:"):
        return link[0]
    path = os.path.normpath(os.path.join(os.path.dirname(page), link[2]))
    here = os.path.dirname(moved[page])
    if path in moved:
        return link[1] + os.path.relpath(moved[path], here) + link[3]
    file = ROOT / path
    if file.is_dir():
        file = file / "README.md"
    if not file.is_file():
        raise SystemExit(f"docs: {page}: the link {link[2]} leads nowhere")
    copy = source / "_files" / file.relative_to(ROOT)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, copy)
    return link[1] + os.path.relpath(copy, source / here) + ")"


def _python(folder: Path) -> None:
    """One page per public module, with a table of its names and then an entry for each."""
    import linnet

    folder.mkdir()
    pages = "\n".join(f"   {name}" for name in ("linnet", *MODULES))
    (folder / "index.rst").write_text(f"{PYTHON_INDEX}\n.. toctree::\n\n{pages}\n")
    groups = {title: names.split() for title, names in GROUPS.items()}
    grouped = {name for names in groups.values() for name in names}
    rest = [name for name in public("linnet") if name not in grouped and not hasattr(linnet.optimizers, name)]
    if rest:
        groups["Others"] = rest
    parts = ["linnet", "======", "", ".. module:: linnet", "", "Optimizers are in :mod:`linnet.optimizers`.", ""]
    for title, names in groups.items():
        parts += [title, "-" * len(title), "", *_entries("linnet", names)]
    (folder / "linnet.rst").write_text("\n".join(parts))
    for module in MODULES:
        title = f"linnet.{module}"
        owner = importlib.import_module(title)
        first = (owner.__doc__ or "").strip()
        parts = [title, "=" * len(title), "", f".. module:: {title}", "", *as_rst(first.splitlines())]
        names = public(title)
        there = [name for name in names if name in grouped and getattr(owner, name) is getattr(linnet, name)]
        if there:
            parts += [
                "Described with :mod:`linnet`: " + ", ".join(f":py:obj:`linnet.{name}`" for name in there) + ".",
                "",
            ]
        (folder / f"{module}.rst").write_text("\n".join(parts + _entries(title, [n for n in names if n not in there])))


def _entries(module: str, names: list[str]) -> list[str]:
    owner = importlib.import_module(module)
    if not names:
        return []
    lines = [f".. currentmodule:: {module}", "", ".. autosummary::", "   :nosignatures:", ""]
    lines += [f"   {name}" for name in names] + [""]
    for name in names:
        value = getattr(owner, name)
        kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
        if kind == "class" and issubclass(value, BaseException):
            kind = "exception"
        lines.append(f".. auto{kind}:: {name}")
        if kind == "class" and any(base.__name__ == name for base in value.__mro__[1:]):  # a part of it lives elsewhere
            lines.append("   :inherited-members:")
        lines.append("")
    return lines


def _c(folder: Path) -> None:
    """One page per header, with its sections."""
    directive = {"opaque": "typedef", "callback": "typedef"}
    folder.mkdir()
    pages = "\n".join(header.removesuffix(".h") for header in HEADERS)
    (folder / "index.md").write_text(f"{C_INDEX}\n```{{toctree}}\n{pages}\n```\n")
    for header in HEADERS:
        path = ROOT / "runtime_c" / "include" / header
        lines = [f"# {header}", "", introduction(path.read_text()), ""]
        for section in sections(path):
            lines += [f"## {section.title}", ""]
            for kind, name in section.names:
                members = ":members:\n:undoc-members:\n" if kind == "struct" else ""
                lines += [f"```{{doxygen{directive.get(kind, kind)}}} {name}\n{members}```", ""]
        (folder / f"{header.removesuffix('.h')}.md").write_text("\n".join(lines))


def _doxygen(out: Path) -> Path:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    settings = {
        "INPUT": " ".join(str(ROOT / "runtime_c" / "include" / header) for header in HEADERS),
        "INPUT_FILTER": f'"{sys.executable} {SITE / "headers.py"}"',
        "OUTPUT_DIRECTORY": out,
        "GENERATE_XML": "YES",
        "GENERATE_HTML": "NO",
        "GENERATE_LATEX": "NO",
        "QUIET": "YES",
        "EXTRACT_ALL": "YES",
        "EXTRACT_STATIC": "YES",
        "OPTIMIZE_OUTPUT_FOR_C": "YES",
        "TYPEDEF_HIDES_STRUCT": "YES",
        "MARKDOWN_SUPPORT": "NO",
        "MACRO_EXPANSION": "YES",
        "EXPAND_ONLY_PREDEF": "YES",
        "PREDEFINED": "LINNET_API= LINNET_STATIC=1",
        "WARN_IF_UNDOCUMENTED": "NO",
        "WARN_NO_PARAMDOC": "NO",
        "WARN_AS_ERROR": "FAIL_ON_WARNINGS",
        "XML_PROGRAMLISTING": "NO",
    }
    (out / "Doxyfile").write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    subprocess.run(["doxygen", str(out / "Doxyfile")], check=True)
    return out / "xml"


if __name__ == "__main__":
    sys.exit(main())
