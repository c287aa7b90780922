"""The public headers: C99, C11 and C++ compile them alone and without a warning; the API stays small.
Common code is plain: no instruction beyond the baseline outside the files whose name says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.native import ROOT, build, need, run

INCLUDE = ROOT / "runtime_c" / "include"
HEADERS = ["linnet.h", "linnet_ext.h"]
LANGUAGES = {
    "c99": ["cc", "-x", "c", "-std=c99"],
    "c11": ["cc", "-x", "c", "-std=c11"],
    "c++11": ["g++", "-x", "c++", "-std=c++11"],
    "clang-c99": ["clang", "-x", "c", "-std=c99"],
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("header", HEADERS)
def test_header_compiles_alone(header: str, language: str, tmp_path: Path) -> None:
    command = LANGUAGES[language]
    need(command[0])
    source = tmp_path / "alone.c"
    source.write_text(f'#include "{header}"\n#include "{header}"\nint main(void) {{ return LINNET_OK; }}\n')
    run([*command, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", f"-I{INCLUDE}", str(source)])


def _functions(header: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", (INCLUDE / header).read_text(), flags=re.DOTALL)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    return re.findall(r"LINNET_API\s[^;{]*?\b(linnet_\w+)\s*\(", text)


def test_at_most_sixty_functions() -> None:
    functions = _functions("linnet.h")
    print(f"linnet.h: {len(functions)} functions")
    assert len(functions) == len(set(functions))
    assert 30 < len(functions) <= 60


def test_the_library_exports_the_headers_and_nothing_else() -> None:
    need("nm")
    library = build("release") / "liblinnet.so"
    lines = run(["nm", "-D", "--defined-only", str(library)]).splitlines()
    exported = {line.split()[-1].split("@")[0] for line in lines}
    assert exported == {*_functions("linnet.h"), *_functions("linnet_ext.h")}


# VEX- and EVEX-encoded instructions begin with v in objdump's listing; verr and verw do too, and are old.
_BEYOND = re.compile(
    r"\t(v(?!err|erw|mcall|mrun|mload|msave|mresume|mxo)[a-z0-9]+|\S+\s.*%[yz]mm|andn|bextr|bzhi|mulx|pdep|pext)\b"
)
_SSE3_TO_SSE42 = re.compile(
    r"\t(pshufb|palignr|pmulhrsw|pabs[bwd]|ph(?:add|sub)s?[wd]|psign[bwd]|pblend\w+|blendv?p[sd]|round[ps][sd]|pmulld|"
    r"pm(?:ax|in)(?:sb|sd|uw|ud)|pmovsx\w+|pmovzx\w+|dpp[sd]|ptest|pcmpeqq|pcmpgtq|popcnt|crc32\w?|"
    r"haddp[sd]|addsubp[sd]|lddqu|movddup|movs[hl]dup)\b"
)
_ISA_FILE = re.compile(r"__(avx2|avx512|avx512vnni)\.c\.o$")


def _instructions(path: Path) -> str:
    return run(["objdump", "-d", "--no-show-raw-insn", str(path)])


def test_common_code_is_plain_x86_64() -> None:
    """Every object but those of kernels_x86/*__avx*.c holds instructions of the x86-64 baseline (SSE2) only."""
    need("objdump")
    folder = build("release") / "CMakeFiles" / "linnet_objects.dir"
    objects = sorted(folder.rglob("*.o"))
    plain = [path for path in objects if not _ISA_FILE.search(path.name)]
    assert len(plain) > 20
    for path in plain:
        for line in _instructions(path).splitlines():
            found = _BEYOND.search(line) or _SSE3_TO_SSE42.search(line)
            assert not found, f"{path.relative_to(folder)}: {line.strip()}"
    # The search can find: the files that are allowed AVX do use it.
    fast = [path for path in objects if path not in plain]
    assert fast and all(any(_BEYOND.search(line) for line in _instructions(path).splitlines()) for path in fast)


def test_avx2_files_hold_no_avx512() -> None:
    need("objdump")
    folder = build("release") / "CMakeFiles" / "linnet_objects.dir"
    for path in sorted(folder.rglob("*__avx2.c.o")):
        assert not re.search(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]", _instructions(path)), path.name


def _symbols(path: Path) -> list[tuple[str, str]]:
    """(name, section) of the machine code; nm would list what the link-time optimizer sees instead."""
    lines = [line.split() for line in run(["objdump", "-t", str(path)]).splitlines()]
    # value, flags (any number of columns), section, size, visibility if not default, name
    starts = [next((i for i, word in enumerate(line) if word[0] in ".*"), 0) for line in lines if len(line) > 3]
    lines = [line for line in lines if len(line) > 3]
    return [(line[-1], line[at]) for line, at in zip(lines, starts, strict=True) if at and line[-1] != line[at]]


def test_only_the_allocator_allocates() -> None:
    """malloc and its kin are called from core/memory.c alone, so the host's allocator sees every byte."""
    need("objdump")
    folder = build("release") / "CMakeFiles" / "linnet_objects.dir"
    callers = {}
    for path in sorted(folder.rglob("*.o")):
        names = {name for name, section in _symbols(path) if section == "*UND*"}
        taken = names & {"malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "strdup", "free", "alloca"}
        if taken:
            callers[path.name] = taken
    assert set(callers) == {"memory.c.o"}, callers


def test_no_global_state_and_no_output() -> None:
    """No writable data in any object, and none calls what prints, reads the environment or ends the process."""
    need("objdump")
    folder = build("release") / "CMakeFiles" / "linnet_objects.dir"
    forbidden = {"printf", "fprintf", "puts", "putchar", "perror", "getenv", "secure_getenv", "exit", "abort", "_exit",
                 "__assert_fail", "stdout", "stderr", "signal", "sigaction", "rand", "srand", "setlocale"}  # fmt: skip
    for path in sorted(folder.rglob("*.o")):
        for name, section in _symbols(path):
            assert not (section == "*UND*" and name in forbidden), f"{path.name} uses {name}"
            # Tables of pointers are relocated, then read-only (.data.rel.ro); anything else is mutable state.
            writable = section == "*COM*" or re.match(r"\.(bss|tbss|tdata|data(?!\.rel\.ro))", section)
            assert not writable, f"{path.name}: writable data {name}"
