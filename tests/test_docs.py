"""Runs every snippet of README.md, CONTRIBUTING.md and docs/*.md: Python and C as written, shell commands by name.
Snippets of one page share a folder with the digit model, and Python snippets of one page share variables."""
# Dear: pages that train with several processes are run as they are written.

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from PIL import Image

import linnet
from tests.command import run_here, run_process
from tests.native import ROOT, build, run

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "schema" / "README.md",
]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "c", "sh", "text", "toml", "cmake", "json", ""}


def snippets(page: Path, language: str) -> list[str]:
    return [body for word, body in _FENCE.findall(page.read_text()) if word == language]


def _with(language: str) -> list[Path]:
    return [page for page in PAGES if page.exists() and snippets(page, language)]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that snippets may use: mnist_small.onnx (also as model.onnx), samples.npz, digit.npy f32 [1,1,28,28], model.lnt,
    input.f32, photos/CLASS/0.png, labels.txt."""
    digits = ROOT / "examples" / "mnist_small"
    for name in ("mnist_small.onnx", "model.onnx"):
        shutil.copy(digits / "mnist_small.onnx", tmp_path / name)
    shutil.copy(digits / "samples.npz", tmp_path)
    with np.load(digits / "samples.npz") as samples:
        image = (samples["images"][0].astype(np.float32) / 255)[None, None]
        for name, pixels in zip(("seven", "other", "third"), samples["images"], strict=False):
            (tmp_path / "photos" / name).mkdir(parents=True)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / "0.png")
    (tmp_path / "labels.txt").write_text("zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n")
    np.save(tmp_path / "digit.npy", image)
    image.tofile(tmp_path / "input.f32")
    linnet.from_onnx(tmp_path / "mnist_small.onnx", input_shapes={"input": (1, 1, 28, 28)}).save(tmp_path / "model.lnt")
    return tmp_path


def test_pages_exist() -> None:
    for page in PAGES[:2]:
        assert page.exists()
    for name in ("architecture", "numerics", "ops", "format"):
        assert (ROOT / "docs" / f"{name}.md").exists(), f"docs/{name}.md"


@pytest.mark.parametrize("page", [p for p in PAGES if p.exists()], ids=_name)
def test_every_snippet_has_a_known_language(page: Path) -> None:
    """A snippet with a misspelt language would never run."""
    found = {word for word, _ in _FENCE.findall(page.read_text())}
    assert found <= LANGUAGES, found - LANGUAGES
    assert page.read_text().count("\n```") % 2 == 0


@pytest.mark.parametrize("page", _with("python"), ids=_name)
def test_python_snippets_run(page: Path, folder: Path) -> None:
    script = folder / "snippets.py"
    script.write_text("\n".join(snippets(page, "python")))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("page", _with("c"), ids=_name)
def test_c_snippets_compile_and_run(page: Path, folder: Path) -> None:
    """A C snippet with main() is linked and run on the digit. Others must compile, inside or outside of a function."""
    include = f"-I{ROOT / 'runtime_c' / 'include'}"
    internal = [f"-I{ROOT / 'runtime_c'}", f"-I{ROOT}"]
    for i, body in enumerate(snippets(page, "c")):
        source = folder / f"snippet{i}.c"
        source.write_text(body)
        if "int main" in body:
            program = folder / f"snippet{i}"
            library = build("release") / "liblinnet.a"
            run(["cc", "-std=c99", "-Wall", str(source), include, str(library), "-lm", "-lpthread", "-o", str(program)])
            run([str(program), "model.lnt", "input.f32"], cwd=folder)
        else:
            run(
                [
                    "cc",
                    "-std=c11",
                    "-Wall",
                    "-Wno-unused",
                    "-fsyntax-only",
                    "-include",
                    "linnet.h",
                    include,
                    *internal,
                    str(source),
                ]
            )


@pytest.mark.parametrize("page", _with("sh"), ids=_name)
def test_shell_snippets_name_what_exists(page: Path, folder: Path) -> None:
    """make targets must exist, linnet commands must have the options, and commands on the digit model are run."""
    script = folder / "snippets.py"
    if any(
        "linnet-train" in body or "linnet launch" in body for body in snippets(page, "sh")
    ):  # uses the results of the page's Python
        script.write_text("\n".join(snippets(page, "python")))
        run([sys.executable, str(script)], cwd=folder)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for body in snippets(page, "sh"):
        for line in body.replace("\\\n", " ").splitlines():
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] == "make":
                assert words[3 if words[1] == "-C" else 1] in targets, line
            elif words[0] == "linnet":
                _linnet(line, words[1:], folder)
            elif words[0] in ("linnet-run", "linnet-bench", "linnet-train"):
                run([str(build("release") / words[0]), *words[1:]], cwd=folder)
            elif words[0] in ("linnet-parameter-server", "linnet-host"):  # would serve forever
                known = run([str(build("release") / words[0]), "--help"])
                assert all(word in known for word in words if word.startswith("--")), line
            else:
                assert shutil.which(words[0]) or words[0] in ("pip", "cd", ".", "source", "adb", "docker", "kubectl"), (
                    line
                )


def _linnet(line: str, words: list[str], folder: Path) -> None:
    known = {path.name for path in folder.iterdir()}
    files = [word.split("=")[-1] for word in words if "." in word and not word.startswith("-")]
    runs = any(Path(file).name in known for file in files) or "--machine" in words
    if runs and words[0] != "deploy":  # which needs a device, or tools for another processor
        with contextlib.chdir(folder):  # launch starts processes that are like itself
            done = run_process(*words) if words[0] == "launch" else run_here(*words)
        assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"
        return
    with mock.patch.dict(os.environ, COLUMNS="200", NO_COLOR="1"):
        text = run_here(words[0], "--help").stdout
    if words[0] == "host":  # which passes its options on
        text = run([str(build("release", "linnet-host") / "linnet-host"), "--help"])
    for word in words:
        if word.startswith("--"):
            assert word.split("=")[0] in text, f"{line}: linnet {words[0]} has no {word}"


def test_readme_opens_with_six_lines_of_python_and_a_dozen_of_c() -> None:
    text = (ROOT / "README.md").read_text()
    fences = [(word, body) for word, body in _FENCE.findall(text) if word in ("python", "c")]
    assert fences[0][0] == "python" and len([line for line in fences[0][1].splitlines() if line.strip()]) <= 7
    assert len(text.splitlines()) <= 150
    assert fences[1][0] == "c" and len([line for line in fences[1][1].splitlines() if line.strip()]) <= 24


def test_readme_states_the_figures_of_the_generated_pages() -> None:
    readme = (ROOT / "README.md").read_text()
    cases = re.search(r"\| together \| (\d+) \| (\d+) ", (ROOT / "docs" / "onnx_coverage.md").read_text())
    ops = re.search(r"(\d+) of the (\d+) builtin ops", (ROOT / "docs" / "ops.md").read_text())
    assert cases and f"{int(cases[2]):,} of ONNX's {int(cases[1]):,} node cases" in readme
    assert ops and f"{ops[1]} of {ops[2]} ops" in readme
