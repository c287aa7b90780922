"""Which C file defines the functions that each header declares: `python -m tests.headers` lists the headers that declare
functions of more than one file. tests/test_headers_c.py has the rule."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.native import ROOT

FOLDERS = ("runtime_c", "kernels_x86", "kernels_arm", "kernels_gpu")
_NOISE = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE
)
_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


def bare(text: str) -> str:
    """C text without comments, strings and preprocessor lines."""
    return re.sub(r'\bextern\s+""\s*\{', "", _NOISE.sub(lambda hit: '""' if hit[0][0] == '"' else " ", text))


def functions(text: str) -> tuple[set[str], set[str]]:
    """The names of the functions that a file declares for other files, and of those that it defines for them."""
    declared, defined, depth, begin = set(), set(), 0, 0
    text = bare(text)
    for hit in re.finditer(r"[{};]", text):
        if depth == 0 and hit[0] != "}":
            head = text[begin : hit.start()]
            name = _CALL.search(re.sub(r"\b(?:LINNET_API|LN_\w+|_\w+)\s*(?:\([^()]*\))?\s+(?=\w)", "", head))
            if name and not re.search(r"\b(?:static|typedef)\b|=", head[: name.start()]):
                (defined if hit[0] == "{" else declared).add(name[1])
        depth += {"{": 1, "}": -1, ";": 0}[hit[0]]
        if depth <= 0:
            depth, begin = 0, hit.end()
    return declared, defined


def files(*suffixes: str) -> list[Path]:
    """The C files of the library and its devices with these suffixes, without the public headers, which are not a file's own."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    return sorted(path for path in found if "include" not in path.relative_to(ROOT).parts)


def definitions() -> dict[str, set[str]]:
    """The files that define each function; several do if a build chooses one of them."""
    found: dict[str, set[str]] = {}
    for path in files(".c"):
        for name in functions(path.read_text())[1]:
            found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return found


def declarations() -> dict[str, dict[str, list[str]]]:
    """For each header that declares functions: the files that define them, with the functions of each. Two libraries of devices
    define some names each for itself, so the files of the header's folder come first."""
    defined = definitions()
    found: dict[str, dict[str, list[str]]] = {}
    for path in files(".h"):
        for name in sorted(functions(path.read_text())[0] & set(defined)):
            folder = str(path.parent.relative_to(ROOT))
            own = {source for source in defined[name] if str(Path(source).parent) == folder}
            for source in sorted(own or defined[name]):
                found.setdefault(str(path.relative_to(ROOT)), {}).setdefault(source, []).append(name)
    return found


def mixed() -> dict[str, dict[str, list[str]]]:
    """The headers that declare functions of more than one file."""
    return {header: sources for header, sources in declarations().items() if len(sources) > 1}


def main() -> None:
    """Prints the headers that declare functions of more than one file, the worst first."""
    found = sorted(mixed().items(), key=lambda item: -len(item[1]))
    for header, sources in found:
        print(f"{header}: {sum(map(len, sources.values()))} functions of {len(sources)} files")
        if "-v" in sys.argv:
            for source, names in sources.items():
                print(f"    {source}: {', '.join(names)}")
    print(f"{len(found)} headers declare functions of more than one file")


if __name__ == "__main__":
    main()
