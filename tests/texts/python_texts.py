"""Error texts, help texts and comments of the Python sources.
An error text is a string in an exception or a `Problem`, or one that reaches them through parameters of functions."""

from __future__ import annotations

import ast
import builtins
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.texts import PARTS, Text, name_of, sources

_REPORTS = {"Problem"}  # classes that are no exceptions and whose texts users read
_NOT_TEXT = {"code", "op", "op_index", "param_hint", "from_"}  # arguments of exceptions that are no text
_EXCEPTIONS = {n for n, v in vars(builtins).items() if isinstance(v, type) and issubclass(v, BaseException)}
Function = ast.FunctionDef | ast.AsyncFunctionDef
_METHODS = {name for kind in (str, list, dict, set) for name in dir(kind)}  # `join` of a string is not ours
Known = dict[str, set[str]]  # function: parameters that become error text; "*": all


def texts() -> Iterator[Text]:
    files = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources(".py")}
    shared, local = _reach(files)
    for path, tree in files.items():
        yield from _comments(path, tree)
        yield from _help(path, tree)
        yield from _errors(path, tree, shared, local[path])


def _called(node: ast.AST) -> str:
    """Name of the function that a call calls, without what is in front of the last dot."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


@cache
def _functions(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


@cache
def _calls(function: Function) -> list[ast.Call]:
    return [node for node in ast.walk(function) if isinstance(node, ast.Call)]


@cache
def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


@cache
def _assignments(function: Function) -> dict[str, list[ast.expr]]:
    """The values that the function gives its local variables, without those made of the variable itself."""
    found: dict[str, list[ast.expr]] = defaultdict(list)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            used = _names(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and target.id not in used:
                    found[target.id].append(node.value)
    return found


def _parameters(function: Function) -> list[str]:
    given = function.args
    names = [a.arg for a in given.posonlyargs + given.args]
    return (names[1:] if names[:1] in (["self"], ["cls"]) else names) + [a.arg for a in given.kwonlyargs]


def _defaults(function: Function) -> Iterator[tuple[str, ast.expr]]:
    given = function.args
    plain = given.posonlyargs + given.args
    for argument, value in zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True):
        yield argument.arg, value
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if default is not None:
            yield argument.arg, default


def _reach(files: dict[Path, ast.Module]) -> tuple[dict[str, list[str]], dict[Path, Known]]:
    """The classes and functions whose arguments become error text. Functions are known inside their own file by name, and
    everywhere when they are methods or are public, for then others call them."""
    raised = [
        node.exc for tree in files.values() for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc
    ]
    exceptions = _EXCEPTIONS | _REPORTS | {name for node in raised if (name := _called(node))[:1].isupper()}
    classes = [node for tree in files.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    grown = True
    while grown:
        names = {c.name for c in classes if {getattr(b, "id", getattr(b, "attr", "")) for b in c.bases} & exceptions}
        grown = not names <= exceptions
        exceptions |= names
    order: dict[str, list[str]] = {name: [] for name in exceptions}
    for c in classes:
        if c.name in exceptions:
            order[c.name] = next((_parameters(f) for f in _functions(c) if f.name == "__init__"), [])
    local: dict[Path, Known] = {path: defaultdict(set) for path in files}
    for known in local.values():
        known.update({name: {"*"} for name in exceptions})
    grown = True
    while grown:
        grown = False
        for path, tree in files.items():
            for function in _functions(tree):
                names_ = set(_parameters(function))
                for node in _calls(function):
                    for _, argument in _error_arguments(node, local[path], order):
                        for name in _names(argument) & names_:
                            if _is_str(function, name):
                                public = not function.name.startswith("_") and function.name not in _METHODS
                                for place in local.values() if public else [local[path]]:
                                    grown |= name not in place[function.name]
                                    place[function.name].add(name)
                                order[function.name] = _parameters(function)
    return order, local


def _is_str(function: Function, name: str) -> bool:
    given = function.args
    for argument in given.posonlyargs + given.args + given.kwonlyargs:
        if argument.arg == name:
            return argument.annotation is not None and "str" in ast.unparse(argument.annotation)
    return False


def _error_arguments(node: ast.AST, known: Known, order: dict[str, list[str]]) -> Iterator[tuple[str, ast.expr]]:
    """The arguments of a call that become error text, each with its keyword or the function's name."""
    if not isinstance(node, ast.Call) or not (wanted := known.get(_called(node))):
        return
    names = order.get(_called(node), [])
    for i, argument in enumerate(node.args):
        if "*" in wanted or (i < len(names) and names[i] in wanted):
            name = names[i] if i < len(names) else ""
            yield name if i and name in PARTS else _called(node), argument
    for keyword in node.keywords:
        if keyword.arg not in _NOT_TEXT and ("*" in wanted or keyword.arg in wanted):
            yield keyword.arg or "", keyword.value


def _errors(path: Path, tree: ast.Module, order: dict[str, list[str]], known: Known) -> Iterator[Text]:
    for function in _functions(tree):
        for name, value in _defaults(function):
            if name in known.get(function.name, ()):
                for text, line in _strings(value, None, {}):
                    if " " in text:
                        yield Text(name_of(path), line, "error", f"{function.name}, unless {name} is given", text)
    seen: set[tuple[int, str]] = set()
    strings = {f.name: f for f in _functions(tree) if f.returns is not None and "str" in ast.unparse(f.returns)}
    for function, node in _walk(tree, None):
        for what, argument in _error_arguments(node, known, order):
            for text, line in _strings(argument, function, strings):
                if " " in text.strip() and (line, text) not in seen:
                    seen.add((line, text))
                    yield Text(name_of(path), line, "error", what, text)


def _walk(node: ast.AST, inside: Function | None) -> Iterator[tuple[Function | None, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        within = child if isinstance(child, Function) else inside
        yield within, child
        yield from _walk(child, within)


def _strings(
    argument: ast.expr, function: Function | None, helpers: dict[str, Function], follow: int = 2
) -> Iterator[tuple[str, int]]:
    """The texts of an argument, of local variables that it names and of the file's functions that it calls; `follow` is how
    many variables and functions may lie between."""
    if isinstance(argument, ast.JoinedStr):
        yield _joined(argument), argument.lineno
        for part in argument.values:
            if isinstance(part, ast.FormattedValue):
                yield from _strings(part.value, function, helpers, follow)
    elif isinstance(argument, ast.Constant):
        if isinstance(argument.value, str):
            yield argument.value, argument.lineno
    elif isinstance(argument, ast.Name):
        for value in _assignments(function)[argument.id] if function and follow else ():
            yield from _strings(value, function, helpers, follow - 1)
    else:
        helper = helpers.get(_called(argument)) if follow else None
        if helper is not None and helper is not function:
            for node in ast.walk(helper):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield from _strings(node.value, helper, {}, follow - 1)
        for child in ast.iter_child_nodes(argument):
            if isinstance(child, ast.expr):
                yield from _strings(child, function, helpers, follow)


def _joined(node: ast.JoinedStr) -> str:
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            parts.append("{" + ast.unparse(part.value) + "}")
    return "".join(parts)


def _help(path: Path, tree: ast.Module) -> Iterator[Text]:
    """`help=...` of options, and the docstrings of commands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in ("help", "epilog", "short_help", "description"):
                    what = next((str(a.value) for a in node.args if isinstance(a, ast.Constant)), _called(node))
                    for text, line in _strings(keyword.value, None, {}):
                        yield Text(name_of(path), line, "help", what, text)
        elif isinstance(node, Function) and any(_called(d) in ("command", "group") for d in node.decorator_list):
            yield Text(name_of(path), node.body[0].lineno, "help", node.name, ast.get_docstring(node) or "")


def _comments(path: Path, tree: ast.Module) -> Iterator[Text]:
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
            yield Text(name_of(path), node.body[0].lineno, "comment", getattr(node, "name", ""), text)
    lines: list[tuple[int, bool, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT:
            alone = token.line.strip().startswith("#")
            text = token.string.lstrip("# ")
            if alone and lines and lines[-1][1] and lines[-1][0] + lines[-1][2].count("\n") + 1 == token.start[0]:
                lines[-1] = (lines[-1][0], True, lines[-1][2] + "\n" + text)
            else:
                lines.append((token.start[0], alone, text))
    for line, _, text in lines:
        if not text.startswith(("type:", "noqa", "fmt:", "ruff:", "!/")):
            yield Text(name_of(path), line, "comment", "", text)
