"""Checks on the binaries that release builds are hardened: relocations resolved at start and then read-only, non-executable
stack, canaries, checked copies, position-independent tools. For x86-64, for aarch64, and for the files of a wheel."""

from __future__ import annotations

import importlib.resources
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.native import ROOT, build, need, run

LIBRARIES = ("liblinnet.so", "liblinnet_sync.so")
TOOLS = ("linnet-bench", "linnet-run", "linnet-parameter-server", "linnet-train", "linnet-host")


def weaknesses(path: Path) -> list[str]:
    """The protections that a binary lacks."""
    segments = run(["readelf", "-Wl", str(path)])
    dynamic = run(["readelf", "-Wd", str(path)])
    symbols = set(re.findall(r"\b(__\w+_chk(?:_fail)?)\b", run(["readelf", "-W", "--dyn-syms", str(path)])))
    stack = re.search(r"GNU_STACK.*\s(RWE?|R)\s", segments)
    found = {
        "no read-only relocations (-z relro)": "GNU_RELRO" in segments,
        "relocations that are resolved later (no -z now)": re.search(r"BIND_NOW|Flags:.*\bNOW\b", dynamic),
        "a stack that may run": stack and "E" not in stack.group(1),
        "relocations in its code": "TEXTREL" not in dynamic,
        "no position-independent code": re.search(r"Elf file type is DYN", segments),
        "no canaries (-fstack-protector-strong)": "__stack_chk_fail" in symbols,
        "no checked copies (_FORTIFY_SOURCE)": symbols - {"__stack_chk_fail"},
    }
    if path.name in TOOLS:
        found["a program at a fixed address (no -pie)"] = re.search(r"Flags:.*\bPIE\b", dynamic)
    return [f"{path.name}: {what}" for what, good in found.items() if not good]


@pytest.mark.parametrize("kind", ["release", "aarch64"])
def test_binaries(kind: str) -> None:
    need("readelf")
    folder = build(kind)
    assert [w for name in (*LIBRARIES, *TOOLS) for w in weaknesses(folder / name)] == []


def test_the_test_finds_what_is_lacking(tmp_path: Path) -> None:
    need("readelf", "cc")
    (tmp_path / "p.c").write_text("int main(void) { return 0; }")
    soft = tmp_path / "linnet-run"
    run(
        [
            "cc",
            "-no-pie",
            "-fno-pie",
            "-fno-stack-protector",
            "-Wl,-z,norelro,-z,lazy,-z,execstack",
            str(tmp_path / "p.c"),
            "-o",
            str(soft),
        ]
    )
    assert len(weaknesses(soft)) == 7


def test_what_reads_files_has_canaries() -> None:
    """Functions with an array on the stack that handle unchecked bytes."""
    need("objdump")
    folder = build("release") / "CMakeFiles" / "linnet_objects.dir" / "runtime_c"
    for name in (
        "model/model",
        "model/structure_nodes",
        "model/structure_values",
        "model/checkpoint",
        "base/error",
        "model/verify_map",
        "plan/compile/infer",
    ):
        assert "__stack_chk_fail" in run(["objdump", "-t", str(folder / f"{name}.c.o")]), name


def test_wheels(tmp_path: Path) -> None:
    """The libraries of the installed package or, in a tree without one, the results of the commands that scikit-build would
    run."""
    installed = importlib.resources.files("linnet") / "lib" / "liblinnet.so"
    if installed.is_file():
        package = Path(str(installed)).parent.parent
        files = [*(package / "lib" / name for name in LIBRARIES), *(package / "bin" / name for name in TOOLS)]
        assert [w for file in files for w in weaknesses(file)] == []
        return
    need("cmake", "ninja")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["cmake"]
    words = [f"-DCMAKE_BUILD_TYPE={settings['build-type']}", *(f"-D{k}={v}" for k, v in settings["define"].items())]
    run(
        [
            "cmake",
            "-S",
            str(ROOT),
            "-B",
            str(tmp_path),
            "-G",
            "Ninja",
            "-DSKBUILD=2",
            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
            *words,
        ]
    )
    compiled = json.loads((tmp_path / "compile_commands.json").read_text())
    assert len(compiled) > 150
    for entry in compiled:
        for flag in ("-D_FORTIFY_SOURCE=", "-fstack-protector-strong", "-fstack-clash-protection", "-fPI"):
            assert flag in entry["command"], entry["file"]
    bare = [Path(e["file"]).stem for e in compiled if "-fno-stack-protector" in e["command"]]
    assert all(re.match(r"gemm_", name) for name in bare), bare
    done = subprocess.run(
        ["ninja", "-t", "commands", *LIBRARIES, *TOOLS], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    links = [line for line in done.stdout.splitlines() if re.search(r" -o (\S*/)?(lib)?linnet[\w-]*(\.so)? ", line)]
    assert len(links) == len(LIBRARIES) + len(TOOLS)
    for line in links:
        assert all(f"-Wl,-z,{word}" in line for word in ("relro", "now", "noexecstack")), line
        assert "-shared" in line or " -pie" in line, line
