"""A program and a library whose headers are of different versions work together, in both directions. The newer version is
made here: a copy of today's headers in which every struct with a struct_size has more fields."""
# Dear: a program is compiled against each struct that has grown.

from __future__ import annotations

import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import linnet
from tests.abi.listing import INCLUDE, Reader
from tests.native import ROOT, SANITIZED, build, run

CLIENT = ROOT / "tests" / "abi" / "client.c"
MORE = "    uint64_t grown_number;\n    const char *grown_text;\n    double grown_numbers[5];\n"
ADDRESS = ["-fsanitize=address,undefined", "-g", "-O0", "-std=c11", "-D_GNU_SOURCE"]


def grown(text: str) -> str:
    """A header in which every struct that begins with struct_size ends with more fields."""
    body = r"(struct (?:linnet_\w+) \{\n(?:\s*/\*(?:(?!\*/).)*\*/\n)?    size_t struct_size;.*?\n)(\}(?: linnet_\w+)?;)"
    return re.sub(body, lambda found: found.group(1) + MORE + found.group(2), text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the newer version."""
    tree = tmp_path_factory.mktemp("newer")
    for folder in ("runtime_c", "kernels_x86", "kernels_arm", ".ci", "schema"):
        shutil.copytree(ROOT / folder, tree / folder)
    for header in (tree / "runtime_c" / "include").glob("*.h"):
        header.write_text(grown(header.read_text()))
    return tree


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (2, 4))
    w = graph.variable("w", linnet.init.glorot((4, 32)))
    y = linnet.ops.tanh(x @ w) @ graph.constant(np.ones((32, 64), np.float32))  # constants that a plan packs
    graph.signature("infer", {"x": x}, {"y": y})
    linnet.sync.signatures(graph, (y * y).mean(), linnet.SGD(0.1), {"x": x})
    path = tmp_path_factory.mktemp("growth") / "model.lnt"
    graph.save(path)
    return path


def compile_client(include: Path, out: Path, libraries: list[str], *options: str) -> Path:
    flags = [*ADDRESS, "-Wall", "-Wextra", "-Werror", *options]
    run(["cc", *flags, str(CLIENT), f"-I{include}", *libraries, "-lm", "-lpthread", "-ldl", "-o", str(out)])
    return out


def test_every_struct_with_a_size_has_grown(newer: Path) -> None:
    before, after = Reader(), Reader(newer / "runtime_c" / "include")
    before.read(), after.read()
    for name, struct in before.structs.items():
        more = after.structs[name].size - struct.size
        assert more == 56 if struct.grows else more == 0, name
    client = CLIENT.read_text()
    taken = " ".join(text for header in before.headers.values() for text in header.inlines)
    for name in re.findall(r"\blinnet_\w+(?=_init\b)", taken):
        made_here = re.search(rf"NEW\({name},", client)
        assert made_here or name in OF_DEVICES, f"tests/abi/client.c does not use {name}"


OF_DEVICES = {
    "linnet_device_about", "linnet_device_list", "linnet_device_span", "linnet_device_struct", "linnet_device_tensor",
    "linnet_requant", "linnet_map", "linnet_map_opcode", "linnet_plan_device_info", "linnet_source_options", "linnet_step_counts",
}  # fmt: skip


@pytest.mark.more
def test_an_older_program_runs_with_a_newer_library(newer: Path, model: Path, tmp_path: Path) -> None:
    """The library, with AddressSanitizer, must not touch a byte beyond the older program's structs."""
    run([sys.executable, str(newer / ".ci" / "amalgamate.py"), "--out", str(tmp_path)])
    sources = [
        tmp_path / "linnet.c",
        *(file for room in ("net", "sync") for file in sorted((newer / "runtime_c" / room).rglob("*.c"))),
    ]
    include = [f"-I{newer / 'runtime_c'}", f"-I{newer / 'runtime_c' / 'include'}", "-ffp-contract=off"]

    def compiled(source: Path) -> str:
        made = tmp_path / f"{source.parent.name}_{source.stem}.o"  # files of several rooms have the same name
        run(["cc", *ADDRESS, *include, "-c", str(source), "-o", str(made)])
        return str(made)

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources))
    program = compile_client(INCLUDE, tmp_path / "client", objects)
    assert run([str(program), str(model), str(tmp_path)], env=SANITIZED) == "every struct\n"


def test_a_newer_program_runs_with_an_older_library(newer: Path, model: Path, tmp_path: Path) -> None:
    """The library is today's; the program sees 0 in fields that the library does not know, and may not set them."""
    folder = build("release")
    libraries = [f"-L{folder}", "-llinnet_sync", "-llinnet", f"-Wl,-rpath,{folder}"]
    program = compile_client(newer / "runtime_c" / "include", tmp_path / "client", libraries, "-DGROWN")
    assert run([str(program), str(model), str(tmp_path)], env=SANITIZED) == "every struct\n"


def test_a_program_of_the_same_version(model: Path, tmp_path: Path) -> None:
    folder = build("release")
    program = compile_client(
        INCLUDE, tmp_path / "client", [f"-L{folder}", "-llinnet_sync", "-llinnet", f"-Wl,-rpath,{folder}"]
    )
    assert run([str(program), str(model), str(tmp_path)], env=SANITIZED) == "every struct\n"
