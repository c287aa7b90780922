"""linnet inside a C program: the example with the static library, the shared library, and the one-file amalgamation.
All give the same class and score as Python."""
# Dear: the amalgamation is one file, which no cache of compiled files divides.

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import linnet
from tests.native import ROOT, SANITIZED, build, need, run

EXAMPLE = ROOT / "examples" / "c" / "embed.c"
DIGITS = ROOT / "examples" / "mnist_small"
INCLUDE = f"-I{ROOT / 'runtime_c' / 'include'}"
C99 = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]


@pytest.fixture(scope="module")
def digit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model.lnt, input.f32, and the answer as `expected`."""
    folder = tmp_path_factory.mktemp("digit")
    linnet.from_onnx(DIGITS / "mnist_small.onnx", input_shapes={"input": (1, 1, 28, 28)}).save(folder / "model.lnt")
    with np.load(DIGITS / "samples.npz") as samples:
        image = (samples["images"][3].astype(np.float32) / 255)[None, None]
    image.tofile(folder / "input.f32")
    logits = linnet.Session(folder / "model.lnt").run({"input": image})["logits"]
    (folder / "expected").write_text(f"class {logits.argmax()}, score {logits.max():.3f}\n")
    return folder


def _answer(program: Path, folder: Path) -> str:
    return run([str(program), str(folder / "model.lnt"), str(folder / "input.f32")])


def test_example_is_about_fifty_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 75


def test_static_library(digit: Path, tmp_path: Path) -> None:
    program = tmp_path / "embed"
    library = build("release") / "liblinnet.a"
    run(["cc", *C99, str(EXAMPLE), INCLUDE, str(library), "-lm", "-lpthread", "-o", str(program)])
    assert _answer(program, digit) == (digit / "expected").read_text()


def test_compile_line_of_the_example(digit: Path, tmp_path: Path) -> None:
    """The command in the file's first comment works (with build/ being this build)."""
    found = re.search(r"^ \*\s+(cc .+)$", EXAMPLE.read_text(), re.MULTILINE)
    assert found
    words = found.group(1).replace("build/", f"{build('release')}/").split()
    words = [w.replace("embed.c", str(EXAMPLE)).replace("-Iruntime_c", f"-I{ROOT}/runtime_c") for w in words]
    run(words, cwd=tmp_path)
    assert _answer(tmp_path / "embed", digit) == (digit / "expected").read_text()


def test_shared_library_from_cxx(digit: Path, tmp_path: Path) -> None:
    need("g++")
    folder = build("release")
    source = tmp_path / "embed.cc"
    text = EXAMPLE.read_text().replace("scores = linnet", "scores = (const float *)linnet")
    source.write_text(text)
    program = tmp_path / "embed"
    run(["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", str(source), INCLUDE, f"-L{folder}", "-llinnet",
         f"-Wl,-rpath,{folder}", "-o", str(program)])  # fmt: skip
    assert _answer(program, digit) == (digit / "expected").read_text()


@pytest.mark.more
@pytest.mark.parametrize("compiler", ["cc", "clang"])
def test_amalgamation(compiler: str, digit: Path, tmp_path: Path) -> None:
    """linnet.c and linnet.h alone compile without warnings or other include paths, also sanitized, and give the same class."""
    need(compiler)
    run([sys.executable, str(ROOT / ".ci" / "amalgamate.py"), "--out", str(tmp_path)])
    kernels = {path.name for path in tmp_path.glob("linnet_*.c")}
    assert {path.name for path in tmp_path.iterdir()} == {"linnet.c", "linnet.h", "linnet_ext.h"} | kernels
    flags = ["-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-O0", "-fsanitize=address,undefined"]
    # clang warns when a loop with a vectorize pragma is not vectorized, which happens under sanitizers.
    flags += ["-Wno-pass-failed"] if compiler == "clang" else []
    run([compiler, "-std=c11", *flags, "-c", "linnet.c", "-o", "linnet.o"], cwd=tmp_path)
    run(
        [compiler, "-std=c99", *flags, str(EXAMPLE), "-I.", "linnet.o", "-lm", "-lpthread", "-o", "embed"], cwd=tmp_path
    )
    done = subprocess.run(
        ["./embed", str(digit / "model.lnt"), str(digit / "input.f32")],
        cwd=tmp_path, capture_output=True, text=True, check=False, env=SANITIZED, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = (digit / "expected").read_text()
    assert done.stdout.split(",")[0] == expected.split(",")[0]
    assert float(done.stdout.split()[-1]) == pytest.approx(float(expected.split()[-1]), rel=1e-3)


ISAS = """#include <stdio.h>
#include "linnet.h"
int main(void) {
    for (int i = 0; linnet_isa_name(i) != NULL; i++) puts(linnet_isa_name(i));
    return 0;
}
"""


@pytest.mark.parametrize(
    "compiler", [pytest.param("cc", marks=pytest.mark.more), pytest.param("clang", marks=pytest.mark.soak)]
)
def test_amalgamation_with_vectors(compiler: str, digit: Path, tmp_path: Path) -> None:
    """With -DLINNET_SIMD and the files of kernels, a program has the instruction sets of the built library, and its results.
    No file needs a flag for its instruction set."""
    need(compiler)
    run([sys.executable, str(ROOT / ".ci" / "amalgamate.py"), "--out", str(tmp_path)])
    sources = sorted(path.name for path in tmp_path.glob("linnet*.c"))
    flags = ["-Wall", "-Wextra", "-Werror", "-O0", "-ffp-contract=off", "-DLINNET_SIMD"]
    run([compiler, "-std=c11", *flags, "-c", *sources], cwd=tmp_path)
    objects = [str(path) for path in tmp_path.glob("*.o")]
    (tmp_path / "isas.c").write_text(ISAS)
    for source, name in ((EXAMPLE, "embed"), (tmp_path / "isas.c", "isas")):
        run([compiler, "-std=c99", str(source), "-I.", *objects, "-lm", "-lpthread", "-o", name], cwd=tmp_path)
    assert run([str(tmp_path / "isas")]).split() == linnet.isa_names()
    assert _answer(tmp_path / "embed", digit) == (digit / "expected").read_text()


@pytest.mark.soak
def test_amalgamation_with_vectors_of_arm(tmp_path: Path) -> None:
    need("aarch64-linux-gnu-gcc", "qemu-aarch64")
    run([sys.executable, str(ROOT / ".ci" / "amalgamate.py"), "--out", str(tmp_path)])
    sources = sorted(path.name for path in tmp_path.glob("linnet*.c"))
    (tmp_path / "isas.c").write_text(ISAS)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-DLINNET_SIMD", "-static"]
    run(["aarch64-linux-gnu-gcc", *flags, *sources, "isas.c", "-lm", "-lpthread", "-o", "isas"], cwd=tmp_path)
    assert run(["qemu-aarch64", "-cpu", "max", str(tmp_path / "isas")]).split() == ["scalar", "neon", "dotprod", "i8mm"]


def test_example_errors(digit: Path, tmp_path: Path) -> None:
    program = tmp_path / "embed"
    run(
        [
            "cc",
            *C99,
            str(EXAMPLE),
            INCLUDE,
            str(build("release") / "liblinnet.a"),
            "-lm",
            "-lpthread",
            "-o",
            str(program),
        ]
    )
    (tmp_path / "bad.lnt").write_bytes(b"not a model" * 100)
    for model, words in (("absent.lnt", "absent.lnt"), ("bad.lnt", "not a .lnt file")):
        done = subprocess.run(
            [str(program), str(tmp_path / model), str(digit / "input.f32")],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
