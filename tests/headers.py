"""Which C file defines the functions that each header declares: `python -m tests.headers` lists the headers that declare
functions of more than one file. tests/test_headers_c.py has the rule. At ed1f14d1 there were 51 such headers. The 4 that are left
are lists, each with its reason in that test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.native import ROOT

FOLDERS = ("runtime_c", "kernels_x86", "kernels_arm", "kernels_gpu")
_NOISE = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE
)
_LIST = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"[^"]+\.inc"', re.MULTILINE)
_FUNCTION_TYPE = re.compile(r"\btypedef\b[^;()]*?\b(\w+)\s*\(\s*(?!\*)")
_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


def bare(text: str) -> str:
    """C text without comments, strings and preprocessor lines."""
    return re.sub(r'\bextern\s+""\s*\{', "", _NOISE.sub(lambda hit: '""' if hit[0][0] == '"' else " ", text))


def functions(text: str) -> tuple[set[str], set[str]]:
    """The names of the functions that a file declares for other files, and of those that it defines for them. A declaration may
    use the name of a function's type instead of brackets."""
    declared, defined, depth, begin = set(), set(), 0, 0
    text = bare(text)
    types = set(_FUNCTION_TYPE.findall(text))
    for hit in re.finditer(r"[{};]", text):
        if depth == 0 and hit[0] != "}":
            head = text[begin : hit.start()]
            name = _CALL.search(re.sub(r"\b(?:LINNET_API|LN_\w+|_\w+)\s*(?:\([^()]*\))?\s+(?=\w)", "", head))
            if (typed := re.fullmatch(r"\s*(\w+)\s+([\w\s,]+)", head)) and typed[1] in types:
                declared.update(re.findall(r"\w+", typed[2]))
            elif name and not re.search(r"\b(?:static|typedef)\b|=", head[: name.start()]):
                (defined if hit[0] == "{" else declared).add(name[1])
        depth += {"{": 1, "}": -1, ";": 0}[hit[0]]
        if depth <= 0:
            depth, begin = 0, hit.end()
    return declared, defined


def expanded(header: Path) -> str:
    """The text of a header. If macros make a part of it out of a list, NAME.inc, this part is expanded."""
    text = header.read_text()
    if not _LIST.search(text):
        return text
    places = [f"-I{ROOT / folder}" for folder in ("runtime_c/include", "runtime_c", ".", "kernels_gpu")]
    words = ["cc", "-E", "-x", "c", "-std=c11", *places, str(header)]
    made = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    parts = re.split(r'^# \d+ "([^"]*)".*\n', made, flags=re.MULTILINE)
    own = (str(header), ".inc")
    return "".join(part for file, part in zip(parts[1::2], parts[2::2], strict=True) if file.endswith(own))


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
        for name in sorted(functions(expanded(path))[0] & set(defined)):
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
