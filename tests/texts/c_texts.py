"""Error texts, help texts and comments of the C sources.
A text is a string literal that reaches an error function, straight or through functions that pass a parameter on."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.texts import Text, name_of, sources
from tests.texts.c_tokens import Function, Source, Token, arguments, closing, functions, read, unescaped

ENDINGS = (".c", ".h", ".inc")
_WRITERS = {"snprintf": 2, "vsnprintf": 2, "fprintf": 1, "fputs": 0}  # index of the text among the arguments
_RECORDS = {
    "linnet_error_begin": 2,
    "linnet_error_add": 2,
}  # the exported functions that copy a text into an error record
_TARGET = re.compile(r"^(error|problem|reason|why|stderr|refusal)$")
Known = dict[str, set[int]]  # function: indices of the arguments that become error text; -1: this one and all later


def texts() -> Iterator[Text]:
    files = {path: read(path.read_text(encoding="utf-8")) for path in sources(*ENDINGS)}
    defined = {path: functions(source) for path, source in files.items()}
    shared, local = _reach(files, defined)
    for path, source in files.items():
        yield from _comments(path, source)
        yield from _help(path, source)
        known = shared | local[path]
        tables = _tables(source)
        seen: set[tuple[int, str]] = set()
        for function in defined[path]:
            for text in _errors(path, function, known, tables):
                if (text.line, text.text) not in seen:
                    seen.add((text.line, text.text))
                    yield text


def _reach(files: dict[Path, Source], defined: dict[Path, list[Function]]) -> tuple[Known, dict[Path, Known]]:
    """The functions whose arguments become error text: those whose prototype is checked as a printf format beside an error,
    and, until nothing is added, those that pass a parameter on to one of them."""
    shared: Known = defaultdict(set, {name: {index} for name, index in _RECORDS.items()})
    local: dict[Path, Known] = {path: defaultdict(set) for path in files}
    for source in files.values():
        for name, first in _printf_like(source.tokens):
            shared[name].add(-first)
    grown = True
    while grown:
        grown = False
        for path, list_ in defined.items():
            known = shared | local[path]
            for function in list_:
                own = local[path] if function.static or function.macro else shared
                names = function.names()
                for argument in _error_arguments(function.body, known):
                    for token in argument:
                        if token.kind == "name" and token.text in names:
                            at = names.index(token.text)
                            mine = own[function.name]
                            if _is_text(function, at) and at not in mine and not any(i < 0 and at >= -i for i in mine):
                                mine.add(at)
                                grown = True
    for path, list_ in defined.items():  # a macro of a header is seen by all
        if path.suffix == ".h":
            for function in list_:
                shared[function.name] |= local[path].get(function.name, set())
    return shared, local


def _printf_like(tokens: list[Token]) -> Iterator[tuple[str, int]]:
    """Prototypes `NAME(..., ...) SOME_PRINTF(n, m)`: the name and the index of the format."""
    for i, token in enumerate(tokens):
        if token.kind == "name" and token.text.endswith("_PRINTF") and i and tokens[i - 1].text == ")":
            depth, j = 0, i - 1
            while j >= 0:
                depth += (tokens[j].text == ")") - (tokens[j].text == "(")
                if depth == 0:
                    break
                j -= 1
            yield tokens[j - 1].text, int(arguments(tokens, i + 1)[0][0].text) - 1


def _is_text(function: Function, at: int) -> bool:
    words = [t.text for t in function.parameters[at]]
    return function.macro or ("char" in words and "*" in words)


def _calls(body: list[Token]) -> Iterator[tuple[Token, list[list[Token]]]]:
    for i, token in enumerate(body[:-1]):
        if token.kind == "name" and body[i + 1].text == "(":
            yield token, arguments(body, i + 1)


def _text_indices(name: str, given: list[list[Token]], known: Known) -> list[int]:
    if name in _WRITERS:
        target = given[-1] if name == "fputs" else given[0]
        written = any(_TARGET.match(t.text) for t in target)
        return list(range(_WRITERS[name], len(given) - (name == "fputs"))) if written else []
    indices: set[int] = set()
    for i in known.get(name, ()):
        indices |= set(range(-i, len(given))) if i < 0 else {i}
    return sorted(i for i in indices if i < len(given))


def _error_arguments(body: list[Token], known: Known) -> Iterator[list[Token]]:
    for token, given in _calls(body):
        for i in _text_indices(token.text, given, known):
            yield given[i]


def _errors(path: Path, function: Function, known: Known, tables: dict[str, list[Token]]) -> Iterator[Text]:
    for token, given in _calls(function.body):
        indices = _text_indices(token.text, given, known)
        if not indices:
            continue
        code = next((a[0].text for a in given if len(a) == 1 and re.match("LINNET_|LN_SYNC_", a[0].text)), "")
        what = code or function.name if token.text in _WRITERS else code or re.sub("^ln_(sync_)?", "", token.text)
        for i in indices:
            for text, line in _literals(given[i], tables, function.body):
                if re.search("[A-Za-z]{2}", re.sub(r"%[-+ #0*.\d]*[a-zA-Z]+", "", text)):
                    yield Text(name_of(path), line, "error", what, text)


def _literals(argument: list[Token], tables: dict[str, list[Token]], body: list[Token]) -> Iterator[tuple[str, int]]:
    """The literals of an argument, neighbours joined; of a table or local variable that it names, those inside that."""
    joined: list[str] = []
    for token in [*argument, Token("mark", "", 0)]:
        if token.kind == "string":
            joined.append(unescaped(token.text))
            line = token.line
        elif token.kind == "name" and token.text.startswith("PRI"):
            joined.append(token.text)
        else:
            if joined:
                yield "".join(joined), line
            joined = []
            if token.kind == "name":
                yield from ((unescaped(t.text), t.line) for t in tables.get(token.text, ()))
                yield from _assigned(token.text, body)


def _assigned(name: str, body: list[Token]) -> Iterator[tuple[str, int]]:
    """Literals that `name = ...;` gives a variable of the function."""
    for i in range(len(body) - 1):
        if body[i].text == name and body[i + 1].text == "=" and (i == 0 or body[i - 1].text not in (".", "->")):
            for token in body[i + 2 :]:
                if token.text in (";", ","):
                    break
                if token.kind == "string":
                    yield unescaped(token.text), token.line


def _tables(source: Source) -> dict[str, list[Token]]:
    """The arrays of texts of a file: `char *const NAME[] = {...}`."""
    found = {}
    tokens = source.tokens
    for i in range(2, len(tokens) - 1):
        if tokens[i].text == "=" and tokens[i + 1].text == "{" and tokens[i - 1].text == "]":
            j = i - 1
            while tokens[j].text != "[":
                j -= 1
            if any(t.text == "char" for t in tokens[max(j - 6, 0) : j]):
                inner = tokens[i + 1 : closing(tokens, i + 1)]
                found[tokens[j - 1].text] = [t for t in inner if t.kind == "string"]
    return found


def _help(path: Path, source: Source) -> Iterator[Text]:
    """A string that begins with "usage:" is what --help prints."""
    tokens = source.tokens
    for i, token in enumerate(tokens):
        if token.kind == "string" and token.text.startswith('"usage:'):
            whole = []
            for part in tokens[i:]:
                if part.kind != "string":
                    break
                whole.append(unescaped(part.text))
            yield Text(name_of(path), token.line, "help", "", "".join(whole))


def _comments(path: Path, source: Source) -> Iterator[Text]:
    previous: Text | None = None
    for token in source.comments:
        lines = re.sub(r"^/\*+|\*+/$|^//", "", token.text).split("\n")
        text = "\n".join(re.sub(r"^\s*\*? ?", "", line).strip() for line in lines).strip()
        if previous and token.text.startswith("//") and token.line == previous.line + previous.text.count("\n") + 1:
            previous = Text(previous.path, previous.line, "comment", "", previous.text + "\n" + text)
            continue
        if previous:
            yield previous
        previous = Text(name_of(path), token.line, "comment", "", text)
    if previous:
        yield previous
