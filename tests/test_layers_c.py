"""Which folder of the C sources may include from which: the layers of runtime_c, from below, and the kernels beside them.
A file of one layer that needs something from above it is in the wrong folder, or the thing it needs is."""

from __future__ import annotations

import platform
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.layers_c import FOLDERS, circles, listed, room, rooms, within
from tests.native import ROOT, build, need

RUNTIME = ROOT / "runtime_c"

# Each folder may use itself and what is named here; nothing follows from anything else.
INTERFACE = {"include", "generated", "base", "kernel", "kernel/common"}
ALLOWED: dict[str, set[str]] = {
    "include": set(),
    "generated": {"kernel"},  # the op table is a table of what kernel/op.h describes
    "base": {"include"},
    "kernel": {"include", "generated", "base"},
    "kernel/common": {"include", "generated", "base", "kernel"},
    "model": {"include", "generated", "base", "kernel"},
    "simd": {"kernel"},
    "dispatch": {"generated", "base", "kernel"},
    "map": INTERFACE | {"simd"},
    "plan/graph": INTERFACE | {"model", "dispatch", "map"},
    "plan/passes": INTERFACE | {"plan/graph"},
    "plan/compile": INTERFACE | {"model", "plan/graph", "plan/passes"},
    "plan": INTERFACE | {"model", "dispatch", "plan/graph", "plan/compile"},
    "run": INTERFACE | {"model", "plan/graph", "plan/compile", "plan"},
    "ops": INTERFACE | {"simd", "map"},
    "fast/gemm": INTERFACE | {"simd", "map", "ops"},
    "fast/tail": INTERFACE | {"simd", "map", "ops", "fast/gemm"},
    "net": {"include"},
    "sync/codec": {"include", "net"},
    "sync/common": {"include", "net"},
    "sync/server": {"include", "net", "sync/codec", "sync/common"},
    "sync/worker": {"include", "net", "sync/codec", "sync/common"},
    "sync/ring": {"include", "net", "sync/codec", "sync/common"},
    "remote": {"include", "net"},
    "tools": {"include"},
    "kernels_x86": INTERFACE | {"simd", "map", "ops", "fast/gemm", "fast/tail"},
    "kernels_arm": INTERFACE | {"simd", "map", "ops", "fast/gemm", "fast/tail"},
    "kernels_gpu/common": {"include"},
    "kernels_gpu/opencl": {"include", "kernels_gpu/common"},
    "kernels_gpu/cuda": {"include", "kernels_gpu/common"},
}

# Single files that reach upwards, each with its reason.
EXCEPTIONS = {
    ("runtime_c/tools/linnet_host.c", "runtime_c/remote/host.h"): "linnet-host alone has a host",
    ("runtime_c/tools/linnet_host.c", "runtime_c/net/transport_security.h"): "linnet-host alone has a host",
    (
        "runtime_c/remote/piece_tables.c",
        "runtime_c/generated/node_attributes.inc",
    ): "a list that the schema's generator writes",
    (
        "runtime_c/sync/codec/digest.c",
        "runtime_c/base/digest.c",
    ): "liblinnet does not export its digest: sync compiles its own",
    ("runtime_c/dispatch/lists.inc", "kernels_x86/kernels.inc"): "the table of kernels is made of the lists",
    ("runtime_c/dispatch/lists.inc", "kernels_arm/kernels.inc"): "the table of kernels is made of the lists",
    ("runtime_c/dispatch/lists.inc", "kernels_arm/v7/kernels.inc"): "the table of kernels is made of the lists",
    ("runtime_c/fast/gemm/gemm.h", "kernels_x86/gemm/gemm_ukernels.inc"): "the list of tiles gives their prototypes",
    ("runtime_c/fast/gemm/gemm.h", "kernels_arm/gemm/gemm_ukernels.inc"): "the list of tiles gives their prototypes",
    ("runtime_c/fast/gemm/gemm.h", "kernels_arm/v7/gemm/gemm_ukernels.inc"): "the list of tiles gives their prototypes",
    ("kernels_gpu/common/kernels.h", "kernels_gpu/cuda/kernels.inc"): "the list of kernels gives their prototypes",
    ("kernels_gpu/common/choose.c", "kernels_gpu/cuda/kernels.inc"): "the table of kernels is made of the lists",
}

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)


def folder_of(file: Path) -> str:
    """The key of ALLOWED that a source file belongs to."""
    parts = file.relative_to(ROOT).parts
    if parts[0] != "runtime_c":
        return "/".join(parts[:2]) if parts[0] == "kernels_gpu" else parts[0]
    nested = "/".join(parts[1:3])
    return nested if nested in ALLOWED else parts[1]


def sources() -> list[Path]:
    """Every C file that is part of a library or of a tool."""
    folders = (RUNTIME, *(ROOT / f"kernels_{name}" for name in ("x86", "arm", "gpu")))
    return sorted(file for folder in folders for file in folder.rglob("*") if file.suffix in (".c", ".h", ".inc"))


def included(file: Path) -> list[Path]:
    """The project's own files that `file` includes, found as the compiler finds them."""
    text = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL)
    found = []
    for name in _INCLUDE.findall(text):
        places = (file.parent, RUNTIME, RUNTIME / "include", ROOT)
        place = next((folder for folder in places if (folder / name).is_file()), None)
        assert place is not None, f'{file.relative_to(ROOT)} includes "{name}", which is not in the tree'
        found.append((place / name).resolve())
    return found


def arrows_up() -> list[str]:
    """Every include that ALLOWED does not allow and EXCEPTIONS does not excuse."""
    wrong, excused = [], set()
    for file in sources():
        for target in included(file):
            pair = (str(file.relative_to(ROOT)), str(target.relative_to(ROOT)))
            here, there = folder_of(file), folder_of(target)
            if here == there or there in ALLOWED[here]:
                continue
            if pair in EXCEPTIONS:
                excused.add(pair)
            else:
                wrong.append(f"{pair[0]} includes {pair[1]}: {here}/ may not use {there}/")
    return wrong + [f"{a} no longer includes {b}: delete the exception" for a, b in sorted(set(EXCEPTIONS) - excused)]


def test_includes() -> None:
    """No file includes from a folder above its own."""
    assert arrows_up() == []


def test_the_table_has_no_circle() -> None:
    """Folders can be put in an order in which each uses only earlier ones; the op table and kernel/ describe each other."""
    left = {name: set(uses) - ({"kernel"} if name == "generated" else set()) for name, uses in ALLOWED.items()}
    while ready := [name for name, uses in left.items() if not uses & set(left)]:
        for name in ready:
            del left[name]
    assert left == {}


def test_an_arrow_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test notices when a folder loses the right to use another."""
    monkeypatch.setitem(ALLOWED, "run", ALLOWED["run"] - {"plan"})
    assert any(line.endswith("run/ may not use plan/") for line in arrows_up())


# Calls: a file can name in its header what a folder above implements. Tables of entry points do so by design.
REGISTRIES = {
    ("generated", "ops"): "the op table names each op's shape rule",
    ("dispatch", "ops"): "the list of references",
    ("dispatch", "kernels"): "the lists of fast kernels",
    ("map", "kernels"): "the interpreters of each ISA",
    ("base", "kernels"): "CRC-32C with the processor's instruction",
}
RANKS = (
    "base",
    "generated",
    "kernel",
    "model",
    "simd",
    "dispatch",
    "map",
    "plan/graph",
    "plan/passes",
    "plan/compile",
    "plan",
    "run",
    "ops",
    "fast",
    "kernels",
)


def symbols(objects: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Folder of each defined symbol, and the undefined symbols of each folder, from compiled objects."""
    defined: dict[str, str] = {}
    used: dict[str, set[str]] = {}
    for file, listing in listed(objects).items():
        parts = file.relative_to(objects).parts
        folder = parts[1] if parts[0] == "runtime_c" else "kernels"
        folder = nested if (nested := "/".join(parts[1:3])) in RANKS else folder
        for kind, name in listing:
            if kind == "U":
                used.setdefault(folder, set()).add(name)
            elif kind in "TRDBVWi":
                defined[name] = folder
    return defined, used


def test_calls() -> None:
    """No folder calls a function, or reads a table, of a folder above it, except through the named registries."""
    need("nm")
    defined, used = symbols(build("release") / "CMakeFiles" / "linnet_objects.dir")
    assert len(defined) > 500
    upwards = {
        (folder, defined[name], name)
        for folder, names in used.items()
        for name in names
        if name in defined and RANKS.index(defined[name]) > RANKS.index(folder)
    }
    assert {call for call in upwards if call[:2] not in REGISTRIES} == set()
    assert {call[:2] for call in upwards} == set(REGISTRIES), "a registry that nothing uses"


# Files that call each other in a circle. Each pair is one call that closes a circle; without the pairs there is none.
CIRCLES: dict[tuple[str, str], str] = {
    (
        "plan/compile/expand.c",
        "plan/compile/control.c",
    ): "the functions that a node calls are expanded like the first one",
    ("plan/compile/body_steps.c", "plan/compile/pipeline.c"): "a loop that is one step runs a program of its own",
}


def file_calls(objects: Path) -> dict[str, set[str]]:
    """The files whose functions or tables each C file uses, from compiled objects: names without `runtime_c/`. The libraries of
    devices and the tools define some names each for itself."""
    defined: dict[tuple[str, str], str] = {}
    used: dict[str, set[tuple[str, str]]] = {}
    for file, listing in listed(objects).items():
        target, _, name = file.relative_to(objects).as_posix().removesuffix(".o").partition("/")
        library = re.fullmatch(r"linnet\w*_objects\.dir|linnet_(cuda|opencl|remote)\.dir|linnet-[\w-]+\.dir", target)
        if not library or not (ROOT / name).exists():  # the object of a file that has moved
            continue
        for kind, symbol in listing:
            if kind == "U":
                used.setdefault(name.removeprefix("runtime_c/"), set()).add((library[1], symbol))
            elif kind in "TRDBVWi":
                defined[library[1], symbol] = name.removeprefix("runtime_c/")
    return {name: {defined[s] for s in symbols if s in defined} - {name} for name, symbols in used.items()}


def circle(calls: dict[str, set[str]]) -> list[str]:
    """Files that call each other, as a path that ends where it begins; [] if there are none."""
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_files_call_each_other_in_no_circle() -> None:
    """A file can be read after those that it calls. Two lists do not count: the table of ops names every op's shape rule, and
    map_kernel.c names the interpreter of each ISA."""
    need("nm")
    for library in ("linnet_sync", "linnet_cuda", "linnet_opencl", "linnet_remote"):
        build("release", library)
    calls = file_calls(build("release") / "CMakeFiles")
    for folder in (
        "plan",
        "net",
        "sync",
        "remote",
        "tools",
        "kernels_gpu/common",
        "kernels_gpu/cuda",
        "kernels_gpu/opencl",
    ):
        assert any(name.startswith(folder + "/") for name in calls), folder
    if platform.machine() == "x86_64":
        assert any(name.startswith("kernels_x86/gemm/") for name in calls)
    assert len(calls) > 200
    calls["generated/op_table.c"] = set()
    calls["map/map_kernel.c"] = {name for name in calls["map/map_kernel.c"] if not name.startswith("kernels_")}
    for a, b in CIRCLES:
        assert b in calls.get(a, set()), f"{a} no longer calls {b}: delete the pair"
    without = {name: {other for other in others if (name, other) not in CIRCLES} for name, others in calls.items()}
    assert circle(without) == []
    for a, b in CIRCLES:
        assert circle(without | {a: without[a] | {b}}), f"the call from {a} to {b} closes no circle: delete the pair"


def test_rooms_form_no_circle() -> None:
    """In each folder of C sources, files with their headers include and call each other in no circle but those of CIRCLES."""
    need("nm")
    for library in ("linnet_sync", "linnet_cuda", "linnet_opencl"):
        build("release", library)
    arrows = rooms(build("release") / "CMakeFiles")
    for folder in FOLDERS:
        assert len(within(arrows, folder)) > 20, folder
    for a, b in CIRCLES:
        arrows[room(f"runtime_c/{a}")].remove(room(f"runtime_c/{b}"))
    assert {folder: circles(within(arrows, folder)) for folder in FOLDERS} == {folder: [] for folder in FOLDERS}


def test_a_pass_calls_no_other_pass() -> None:
    """A pass can be read alone: what it needs of an earlier one stands in the graph."""
    need("nm")
    calls = file_calls(build("release") / "CMakeFiles")
    passes = {name for name in calls if name.startswith("plan/passes/")}
    assert len(passes) > 10
    assert {(name, other) for name in passes for other in calls[name] & passes} == set()


def test_places_are_numbered_in_two_files() -> None:
    """Passes ask ln_on_cpu, ln_is_kernel and ln_on_device; only these files compare a place with a number."""
    place = re.compile(r"\b(?:device|place)\b\s*(?:[=!]=|>=?|<=?)\s*(?:0\b|1\b|LN_CPU)|!\s*\w+(?:->|\.)device\b")
    allowed = {RUNTIME / "plan" / "graph" / "devices.h", RUNTIME / "plan" / "passes" / "places.c"}
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("kernel", "plan", "run")
        for path in sorted((RUNTIME / folder).rglob("*.[ch]"))
        if path not in allowed
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if place.search(line)
    ]
    assert not found, "\n".join(found)
    assert any(place.search(path.read_text()) for path in allowed)
