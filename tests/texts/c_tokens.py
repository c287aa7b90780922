"""A small tokenizer for C, and the functions and macros that a file defines.
It knows comments, literals, directives and brackets; types and expressions are only sequences of tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)
      | (?P<directive>^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<char>'(?:\\.|[^'\\\n])*')
      | (?P<name>[A-Za-z_]\w*)
      | (?P<number>\.?\d[\w.]*)
      | (?P<mark>->|\.\.\.|[^\s])""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_DEFINE = re.compile(r"\s*#\s*define\s+(\w+)(\([^)]*\))?", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:(n)|(t)|x[0-9a-fA-F]{1,2}|0|(.))", re.DOTALL)
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    line: int


@dataclass
class Function:
    """A function or a macro with parameters: the tokens of each parameter, and its body."""

    name: str
    line: int
    parameters: list[list[Token]]
    body: list[Token]
    static: bool = False
    macro: bool = False

    def names(self) -> list[str]:
        """Name of each parameter: the last name in it that is no array bound."""
        return [next((t.text for t in reversed(p) if t.kind == "name"), "...") for p in self.parameters]


@dataclass
class Source:
    comments: list[Token] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)  # without comments and directives
    macros: list[Function] = field(default_factory=list)


def unescaped(literal: str) -> str:
    return _ESCAPE.sub(lambda m: "\n" if m[1] else "\t" if m[2] else m[3] or "", literal[1:-1])


def read(text: str) -> Source:
    found = Source()
    for token in _tokens(text, 1):
        if token.kind == "comment":
            found.comments.append(token)
        elif token.kind == "directive":
            _directive(token, found)
        else:
            found.tokens.append(token)
    return found


def _tokens(text: str, line: int) -> list[Token]:
    found, at = [], 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        found.append(Token(str(match.lastgroup), match.group(), line))
    return found


def _directive(token: Token, found: Source) -> None:
    define = _DEFINE.match(token.text)
    start = define.end() if define else 0
    body = _tokens(token.text[start:].replace("\\\n", " \n"), token.line + token.text.count("\n", 0, start))
    found.comments += [t for t in body if t.kind == "comment"]
    if define:
        code = [t for t in body if t.kind not in ("comment", "directive")]
        parameters = [_tokens(p, token.line) for p in (define[2] or "()")[1:-1].split(",")]
        found.macros.append(Function(define[1], token.line, parameters, code, macro=True))


def closing(tokens: list[Token], start: int) -> int:
    """Index of the bracket that closes the one at `start`; the last token when none does."""
    depth = 0
    for i in range(start, len(tokens)):
        if tokens[i].kind == "mark":
            depth += (tokens[i].text in _OPEN) - (tokens[i].text in _CLOSE)
            if depth == 0:
                return i
    return len(tokens) - 1


def arguments(tokens: list[Token], start: int) -> list[list[Token]]:
    """The arguments between the parenthesis at `start` and its end, split at commas outside brackets."""
    found: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[start + 1 : closing(tokens, start)]:
        if token.kind == "mark":
            depth += (token.text in _OPEN) - (token.text in _CLOSE)
            if token.text == "," and depth == 0:
                found.append([])
                continue
        found[-1].append(token)
    return found


def functions(source: Source) -> list[Function]:
    """The functions and macros that the file defines; prototypes are not among them."""
    found, i, start, tokens = list(source.macros), 0, 0, source.tokens
    while i < len(tokens):
        token = tokens[i]
        if token.text in (";", "}"):
            start = i + 1
        called = token.kind == "name" and i + 1 < len(tokens) and tokens[i + 1].text == "("
        if called:
            end = closing(tokens, i + 1)
            if end + 1 < len(tokens) and tokens[end + 1].text == "{":
                last = closing(tokens, end + 1)
                static = any(t.text == "static" for t in tokens[start:i])
                body = tokens[end + 1 : last + 1]
                found.append(Function(token.text, token.line, arguments(tokens, i + 1), body, static))
                i = start = last + 1
                continue
        if token.text == "{" and not any(t.text == "extern" for t in tokens[max(i - 2, 0) : i]):
            i = closing(tokens, i)  # of a struct, an enum or an initializer
        i += 1
    return found
