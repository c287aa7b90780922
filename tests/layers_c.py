"""The rooms of each folder of C sources, from includes and from compiled objects: `python -m tests.layers_c [FOLDER...]`
prints a table. A room is a C file with its header, or a template. An arrow goes from a room to another one that it includes
or whose symbols it uses. Floors are the longest chain of arrows. A circle is a set of rooms that all reach each other. An arrow
up is one that would have to go, so that its folder has no circle.

With one header per file, circles can be seen and dissolved. Before that (at ed1f14d1) and after it:

    folder         rooms    floors  arrows up  circles
    runtime_c    381  414   28  34    47   3    22   2
    kernels_x86   33   35    5   5     2   0     2   0
    kernels_arm   24   24    2   2     0   0     0   0
    kernels_gpu   91  100   14  12     8   0     3   0

tests/test_layers_c.py names the two circles that are left, which are recursions in plan/compile/, and allows no other."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.native import ROOT, build

RUNTIME = ROOT / "runtime_c"
FOLDERS = ("runtime_c", "kernels_x86", "kernels_arm", "kernels_gpu")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
Arrows = dict[str, set[str]]


def listed(objects: Path) -> dict[Path, list[tuple[str, str]]]:
    """The letter and the name of each symbol of the compiled objects below a folder."""
    found: dict[Path, list[tuple[str, str]]] = {file: [] for file in objects.rglob("*.o")}
    words = ["nm", "--print-file-name", *map(str, found)]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for file, kind, name in re.findall(r"^(\S+):\s*[0-9a-f]*\s+([A-Za-z]) (\S+)$", text, re.MULTILINE):
        found[Path(file)].append((kind, name))
    return found


def sources() -> list[Path]:
    """Every C file, header and template of the libraries and tools."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return sorted(path for path in found if path.suffix in (".c", ".h", ".inc"))


def included(file: Path) -> list[Path]:
    """The project's own files that `file` includes, found as the compiler finds them; generated ones are left out."""
    text = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL)
    places = (file.parent, RUNTIME, RUNTIME / "include", ROOT, ROOT / "kernels_gpu")
    found = [next((at / name for at in places if (at / name).is_file()), None) for name in _INCLUDE.findall(text)]
    return [path.resolve() for path in found if path is not None]


def uses(objects: Path) -> Arrows:
    """The files whose functions or tables each C file uses, as paths in the tree. A library's symbols are its own: two libraries
    of devices each define some names."""
    libraries: dict[str, dict[str, str]] = {}
    wanted: dict[tuple[str, str], set[str]] = {}
    for file, listing in listed(objects).items():
        target, _, name = file.relative_to(objects).as_posix().removesuffix(".o").partition("/")
        if not re.fullmatch(r"linnet[\w-]*\.dir", target) or not (ROOT / name).exists():  # of a file that has moved
            continue
        for kind, symbol in listing:
            if kind == "U":
                wanted.setdefault((target, name), set()).add(symbol)
            elif kind in "TRDBVWi":
                libraries.setdefault(target, {})[symbol] = name
    found: Arrows = {}
    for (target, name), symbols in wanted.items():
        own = libraries.get(target, {})
        found.setdefault(name, set()).update({own[symbol] for symbol in symbols if symbol in own} - {name})
    return found


def room(path: str) -> str:
    """The room of a file: its path without .c or .h; a template, NAME.inc or NAME.inc.c, is a room of its own."""
    return re.sub(r"(?<!\.inc)\.[ch]$", "", path)


def rooms(objects: Path) -> Arrows:
    """Every room, with what it includes or uses. The table of ops names the functions of every op, and uses none."""
    found: Arrows = {}
    for file in sources():
        name = file.relative_to(ROOT).as_posix()
        targets = {room(other.relative_to(ROOT).as_posix()) for other in included(file)}
        found.setdefault(room(name), set()).update(targets - {room(name)})
    for name, others in uses(objects).items():
        if name != "runtime_c/generated/op_table.c":
            found.setdefault(room(name), set()).update({room(other) for other in others} - {room(name)})
    return found


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """The sets of more than one room that all reach each other (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(arrows[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(arrows):
        if name not in index:
            visit(name)
    return found


def upward(arrows: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Arrows without which there is no circle, found by the heuristic of Eades, Lin and Smyth, circle by circle."""
    found = []
    for members in circles(arrows):
        left = {name: arrows[name] & set(members) for name in members}
        first: list[str] = []
        last: list[str] = []
        while left:
            users = {name: sum(name in others for others in left.values()) for name in left}
            if sinks := sorted(name for name in left if not left[name]):
                taken, side = sinks[0], last
            elif sources := sorted(name for name in left if not users[name]):
                taken, side = sources[0], first
            else:
                taken, side = max(sorted(left), key=lambda name: len(left[name]) - users[name]), first
            side.append(taken)
            del left[taken]
            for others in left.values():
                others.discard(taken)
        order = {name: at for at, name in enumerate(first + last[::-1])}
        found += [(a, b) for a in members for b in sorted(arrows[a] & set(members)) if order[b] < order[a]]
    return sorted(found)


def floors(arrows: Mapping[str, set[str]]) -> int:
    """The number of rooms on the longest chain, without the arrows up."""
    without = set(upward(arrows))
    depth: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max((height(b) for b in arrows[name] if (name, b) not in without), default=0)
        return depth[name]

    return max(map(height, arrows), default=0)


def within(arrows: Arrows, folder: str) -> Arrows:
    """The rooms below a folder, with the arrows that stay in it."""
    inside = {name for name in arrows if name.startswith(folder + "/")}
    return {name: arrows[name] & inside for name in inside}


def main() -> None:
    """Prints a line per folder, and the circles below it."""
    sys.setrecursionlimit(10_000)
    release = build("release")
    for library in ("linnet_sync", "linnet_cuda", "linnet_opencl", "linnet_remote"):
        build("release", library)
    arrows = rooms(release / "CMakeFiles")
    folders = sys.argv[1:] or sorted({name.rpartition("/")[0] for name in arrows} | set(FOLDERS))
    print(f"{'folder':28} rooms floors arrows up circles (rooms in them)")
    for folder in folders:
        inside = within(arrows, folder)
        found = circles(inside)
        counted = f"{len(inside):5} {floors(inside):6} {sum(map(len, inside.values())):6} {len(upward(inside)):2}"
        print(f"{folder:28} {counted} {len(found):7} {' '.join(f'({len(circle)})' for circle in found)}")
        if sys.argv[1:]:
            for circle in found:
                print("    circle: " + ", ".join(name.removeprefix(folder + "/") for name in circle))
            for a, b in upward(inside):
                print(f"    up: {a.removeprefix(folder + '/')} -> {b.removeprefix(folder + '/')}")


if __name__ == "__main__":
    main()
