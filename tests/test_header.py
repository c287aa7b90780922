"""The public headers compile alone as C99, C11 and C++ without warnings, and the API stays small.
Only files whose name says so contain instructions beyond the baseline ISA."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.native import ROOT, build, need, run

INCLUDE = ROOT / "runtime_c" / "include"
HEADERS = ["linnet.h", "linnet_ext.h", "linnet_device.h", "linnet_sync.h", "linnet_sync_ext.h"]
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


def _calls(header: str) -> list[str]:
    """The functions without the initializers, of which each struct has one."""
    return [name for name in _functions(header) if not name.endswith("_init_sized")]


def test_at_most_sixty_functions() -> None:
    functions = _functions("linnet.h")
    print(f"linnet.h: {len(functions)} functions")
    assert len(functions) == len(set(functions))
    assert 30 < len(functions) <= 60


def test_at_most_twenty_five_functions_of_sync() -> None:
    functions = _calls("linnet_sync.h")
    print(f"linnet_sync.h: {len(functions)} functions")
    assert len(functions) == len(set(functions))
    assert 1 <= len(functions) <= 25


@pytest.mark.parametrize(
    ("library", "headers"),
    [
        ("liblinnet.so", ["linnet.h", "linnet_ext.h", "linnet_device.h"]),
        ("liblinnet_sync.so", ["linnet_sync.h", "linnet_sync_ext.h"]),
    ],
)
def test_the_library_exports_the_headers_and_nothing_else(library: str, headers: list[str]) -> None:
    need("nm")
    lines = run(["nm", "-D", "--defined-only", str(build("release") / library)]).splitlines()
    exported = {line.split()[-1].split("@")[0] for line in lines}
    assert exported == {name for header in headers for name in _functions(header)}


# VEX- and EVEX-encoded instructions begin with v in objdump's listing; verr and verw do too, but are old.
_BEYOND = re.compile(
    r"\t(v(?!err|erw|mcall|mrun|mload|msave|mresume|mxo)[a-z0-9]+|\S+\s.*%[yz]mm|andn|bextr|bzhi|mulx|pdep|pext)\b"
)
_SSE3_TO_SSE42 = re.compile(
    r"\t(pshufb|palignr|pmulhrsw|pabs[bwd]|ph(?:add|sub)s?[wd]|psign[bwd]|pblend\w+|blendv?p[sd]|round[ps][sd]|pmulld|"
    r"pm(?:ax|in)(?:sb|sd|uw|ud)|pmovsx\w+|pmovzx\w+|dpp[sd]|ptest|pcmpeqq|pcmpgtq|popcnt|crc32\w?|"
    r"haddp[sd]|addsubp[sd]|lddqu|movddup|movs[hl]dup)\b"
)
_ISA_FILE = re.compile(r"__(sse42|avx2|avx512|avx512vnni)\.c\.o$")
_LIBRARIES = ("linnet_objects", "linnet_sync_objects")


def _instructions(path: Path) -> str:
    return run(["objdump", "-d", "--no-show-raw-insn", str(path)])


def _objects(library: str) -> list[Path]:
    """The object files of `linnet_objects` or `linnet_sync_objects`, without those of deleted sources."""
    folder = build("release") / "CMakeFiles" / f"{library}.dir"
    found = [path for path in sorted(folder.rglob("*.o")) if (ROOT / path.relative_to(folder)).with_suffix("").exists()]
    assert found
    return found


def test_common_code_is_plain_x86_64() -> None:
    """Every object except those of NAME__ISA.c contains only instructions of the x86-64 baseline (SSE2)."""
    need("objdump")
    objects = [path for library in _LIBRARIES for path in _objects(library)]
    plain = [path for path in objects if not _ISA_FILE.search(path.name)]
    assert len(plain) > 20
    for path in plain:
        for line in _instructions(path).splitlines():
            found = _BEYOND.search(line) or _SSE3_TO_SSE42.search(line)
            assert not found, f"{path.name}: {line.strip()}"
    # Check of the search itself: files that may use AVX do use it.
    fast = [path for path in objects if "__avx" in path.name]
    assert fast and all(any(_BEYOND.search(line) for line in _instructions(path).splitlines()) for path in fast)
    older = [path for path in objects if "__sse42" in path.name]
    assert older and all(_SSE3_TO_SSE42.search(_instructions(path)) for path in older)


def test_avx2_files_hold_no_avx512() -> None:
    need("objdump")
    beyond = re.compile(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]")
    listings = {path.name: _instructions(path) for path in _objects("linnet_objects") if "__avx" in path.name}
    narrow = {name for name in listings if name.endswith("__avx2.c.o")}
    assert [name for name in narrow if beyond.search(listings[name])] == []
    # Check of the search itself: files that may use AVX-512 do use its registers.
    assert narrow and set(listings) - narrow
    assert [name for name in set(listings) - narrow if not beyond.search(listings[name])] == []


def _symbols(path: Path) -> list[tuple[str, str]]:
    """(name, section) pairs from the machine code; nm would list the link-time optimizer's symbols instead."""
    lines = [line.split() for line in run(["objdump", "-t", str(path)]).splitlines()]
    # value, flags (any number of columns), section, size, visibility if not default, name
    starts = [next((i for i, word in enumerate(line) if word[0] in ".*"), 0) for line in lines if len(line) > 3]
    lines = [line for line in lines if len(line) > 3]
    # _FORTIFY_SOURCE turns snprintf into __snprintf_chk
    return [
        (re.sub(r"^__(\w+)_chk$", r"\1", line[-1]), line[at])
        for line, at in zip(lines, starts, strict=True)
        if at and line[-1] != line[at]
    ]


def test_only_the_allocator_allocates() -> None:
    """Only base/memory.c calls malloc and related functions, so the host's allocator sees every byte."""
    need("objdump")
    callers = {}
    for path in _objects("linnet_objects"):
        names = {name for name, section in _symbols(path) if section == "*UND*"}
        taken = names & {"malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "strdup", "free", "alloca"}
        if taken:
            callers[path.name] = taken
    assert set(callers) == {"memory.c.o"}, callers


@pytest.mark.parametrize("library", _LIBRARIES)
def test_no_global_state_and_no_output(library: str) -> None:
    """No object has writable data, and none calls functions that print, read the environment or end the process."""
    need("objdump")
    forbidden = {"printf", "fprintf", "puts", "putchar", "perror", "getenv", "secure_getenv", "exit", "abort", "_exit",
                 "__assert_fail", "stdout", "stderr", "signal", "sigaction", "rand", "srand", "setlocale"}  # fmt: skip
    for path in _objects(library):
        for name, section in _symbols(path):
            assert not (section == "*UND*" and name in forbidden), f"{path.name} uses {name}"
            # Tables of pointers are relocated and then read-only (.data.rel.ro); anything else is mutable state.
            writable = section == "*COM*" or re.match(r"\.(bss|tbss|tdata|data(?!\.rel\.ro))", section)
            assert not writable, f"{path.name}: writable data {name}"


def test_the_environment_is_read_in_one_file() -> None:
    """Only the libraries of devices read it, and only the variables that docs/gpu.md describes."""
    folders = [ROOT / name for name in ("runtime_c", "kernels_x86", "kernels_arm", "kernels_gpu")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".c", ".h", ".inc")]
    reading = {str(path.relative_to(ROOT)) for path in files if re.search(r"\bgetenv\b|\benviron\b", path.read_text())}
    table = "kernels_gpu/common/environment.c"
    assert {name for name in reading if not name.startswith("runtime_c/tools/")} == {table}
    names = re.findall(r"\] = \"(\w+)\"", (ROOT / table).read_text())
    page = (ROOT / "docs" / "gpu.md").read_text()
    assert len(names) == 5 and [name for name in names if f"`{name}`" not in page] == []


def test_sync_reaches_the_system_in_a_few_files_only() -> None:
    """Only posix_*.c and transport_*.c of net/ and sync/ use sockets, files, clocks and threads. The rest is portable and runs
    in the simulator (tests/sim) with a clock that is passed in."""
    need("objdump")
    system = {"socket", "connect", "bind", "listen", "accept", "accept4", "send", "recv", "sendmsg", "recvmsg", "read",
              "write", "writev", "readv", "poll", "epoll_wait", "open", "open64", "fopen", "fopen64", "close", "mmap", "mmap64",
              "rename", "fsync", "time", "clock_gettime", "nanosleep", "usleep", "pthread_create", "dlopen"}  # fmt: skip
    found = {
        path.name: {name for name, section in _symbols(path) if section == "*UND*"} & system
        for path in _objects("linnet_sync_objects")
    }
    talking = {name: used for name, used in found.items() if name.startswith(("posix_", "transport_"))}
    assert {"socket", "fsync", "poll"} <= set().union(*talking.values())  # the search finds them
    for name, used in found.items():
        assert name in talking or not used, (
            f"{name} uses {sorted(used)}; what talks to the system is in posix_*.c or transport_*.c"
        )


def test_zeroing_a_struct_is_its_init_but_for_two_fields() -> None:
    """linnet.h says so of its own structs, and names the exception."""
    functions = r"void (linnet_\w+)_init(?:_sized)?\([^)]*\) \{(.*?)\}"
    sets = {
        f"{name}: {field}"
        for path in (
            *INCLUDE.glob("*.h"),
            INCLUDE.parent / "base" / "structs.c",
            INCLUDE.parent / "sync" / "common" / "config.c",
        )
        for name, body in re.findall(functions, path.read_text(), re.DOTALL)
        for field in re.findall(r"->(\w+ = [^;]+);", body)
    }
    assert sets == {"linnet_server_config: staleness = -1", "linnet_worker_config: worker = -1"}


def test_each_initializer_is_also_a_symbol() -> None:
    """Bindings cannot call inline functions. Other initializers of linnet_device.h are for libraries without liblinnet."""
    inline, symbols, own = set(), set(), {"linnet_device_struct"}
    for header in INCLUDE.glob("*.h"):
        text = header.read_text()
        inline |= set(re.findall(r"inline void (linnet_\w+)_init\(", text))
        symbols |= {
            name.removesuffix("_init_sized") for name in _functions(header.name) if name.endswith("_init_sized")
        }
        own |= set(re.findall(r"inline void (linnet_\w+)_init\([^{]*\{\s*linnet_device_struct_init", text))
    assert symbols == inline - own and len(symbols) > 15
