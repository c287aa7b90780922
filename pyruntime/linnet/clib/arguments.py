"""Turns a wrong argument of a public function into a UsageError that names it. The annotations say which values are
valid. `checked` wraps the functions that a package exports; linnet's own modules call each other without the
wrappers."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import dataclasses
import enum
import functools
import inspect
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from linnet.clib.errors import Error, UsageError, nearest

_WORDS = {
    int: "an integer", float: "a number", str: "a string", bool: "True or False", bytes: "bytes", type(None): "None",
    np.ndarray: "an array",
    collections.abc.Sequence: "a sequence", collections.abc.Mapping: "a dictionary",
    collections.abc.Iterable: "an iterable", collections.abc.Callable: "a function", tuple: "a tuple", list: "a list",
    dict: "a dictionary",
}  # fmt: skip
_NUMBERS: dict[Any, Any] = {int: ("iu", numbers.Integral), float: ("iuf", numbers.Real), bool: ("b", numbers.Integral)}
F = TypeVar("F", bound=Callable[..., Any])
Kind = TypeVar("Kind")
_UNIONS = (typing.Union, types.UnionType)
_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
PUBLIC: set[str] = set()  # names that users find in `linnet` itself, whose __init__ lists them


class _Absent:
    """Stands for a module that is not imported yet."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> type[_AbsentType]:
        return type(name, (_AbsentType,), {"module": self._module})


class _AbsentType:
    """Stands for a type of such a module. No value is an instance of it before the module is imported."""

    module: str


class _WrongKind(UsageError):
    """The error of a checked function. If another checked function called this one, that function may find that its own
    argument is wrong."""


_WrongKind.__name__ = _WrongKind.__qualname__ = "UsageError"  # as tracebacks show it


def at_least(name: str, value: int, least: int) -> int:
    """`value`. Raises UsageError if it is less than `least`."""
    if value < least:
        raise UsageError(f"'{name}' is out of range", code=101, expected=f"{least} or more", got=str(value))
    return value


# ---- keywords that are the fields of a dataclass ------------------------------------------------------------------------


def with_fields(kind: type) -> Callable[[F], F]:
    """Shows the fields of a dataclass in the signature of a function that takes them as **keywords, for help(), for the
    documentation, and for the check of arguments."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        fields = [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
            for field in dataclasses.fields(kind)
        ]
        function.__signature__ = signature.replace(parameters=[*own, *fields])  # type: ignore[attr-defined]
        return function

    return decorate


def fields_of(kind: type[Kind], given: Mapping[str, Any], function: str) -> Kind:
    """The dataclass with the **keywords that a function was given. Raises TypeError for a keyword that is no field."""
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            near = nearest(name, known)
            hint = f". Did you mean {near}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
    return kind(**given)


# ---- reading annotations -----------------------------------------------------------------------------------------------


@functools.cache
def _imported_for_types(module: str) -> dict[str, tuple[str, str]]:
    """Returns what a module imports only for type checking, as {name: (module, name in that module)}. The second name
    is "" for the module itself."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):  # no source
        return {}
    found: dict[str, tuple[str, str]] = {}
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    for line in (line for block in blocks for line in block.body):
        if isinstance(line, ast.ImportFrom) and line.module:
            found |= {name.asname or name.name: (line.module, name.name) for name in line.names}
        elif isinstance(line, ast.Import):
            found |= {name.asname or name.name.partition(".")[0]: (name.name, "") for name in line.names}
    return found


def _named(name: str, function: Any) -> Any:
    """Returns the object that a name in an annotation of the function stands for. Imports no module for it except
    pathlib."""
    for place in (function.__globals__, vars(builtins)):
        if name in place:
            return place[name]
    module, inner = _imported_for_types(function.__module__)[name]
    # linnet imports pathlib only where it is needed, because that takes 4 ms. It is needed here, to name the type in an
    # error.
    found = import_module(module) if module == "pathlib" else sys.modules.get(module, _Absent(module))
    return getattr(found, inner) if inner else found


def _read(node: ast.expr, function: Any) -> Any:
    """The type that an expression in an annotation stands for. Raises an exception if the expression is not a type."""
    if isinstance(node, ast.Name):
        return _named(node.id, function)
    if isinstance(node, ast.Attribute):
        return getattr(_read(node.value, function), node.attr)
    if isinstance(node, ast.Constant):
        return node.value if node.value is None or node.value is Ellipsis else Any
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return typing.Union[_read(node.left, function), _read(node.right, function)]  # noqa: UP007
    if isinstance(node, ast.Tuple | ast.List):
        items = [_read(item, function) for item in node.elts]
        return tuple(items) if isinstance(node, ast.Tuple) else items
    if isinstance(node, ast.Subscript):
        origin = _read(node.value, function)
        return origin[ast.literal_eval(node.slice) if origin is typing.Literal else _read(node.slice, function)]
    raise ValueError(ast.unparse(node))


@functools.cache
def _hint(text: str, function: Any) -> Any:
    try:
        return _read(ast.parse(text, mode="eval").body, function)
    except Exception:  # the annotation has a meaning only for the type checker, so it is not checked here
        return Any


# ---- comparing values with them ----------------------------------------------------------------------------------------


def _fits_generic(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    if origin is np.ndarray:
        return isinstance(value, np.ndarray)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is type:
        return isinstance(value, type)
    if not isinstance(origin, type):
        return True
    if origin in (collections.abc.Sequence, collections.abc.Iterable) and isinstance(value, np.ndarray):
        return value.ndim > 0 and (not inner or _fits(value.flat[0], inner[0]) if value.size else True)
    if not isinstance(value, origin) and not (origin is tuple and isinstance(value, list)):
        return False
    if isinstance(value, bytes) and inner:
        return inner[0] is int or inner[0] is Any
    if isinstance(value, str) and origin is not str and inner and inner[0] is not str:
        return inner[0] is Any or inner[0] is object
    if isinstance(value, list | tuple) and origin is tuple and inner and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(_fits(item, kind) for item, kind in zip(value, inner, strict=True))
    if isinstance(value, collections.abc.Mapping):
        return not inner or all(_fits(k, inner[0]) and _fits(v, inner[-1]) for k, v in value.items())
    if isinstance(value, list | tuple) and inner:
        return all(_fits(item, inner[0]) for item in value)
    return True


def _is_path(kind: Any) -> bool:
    return isinstance(kind, type) and kind.__name__ == "Path" and kind.__module__.partition(".")[0] == "pathlib"


def _fits_plainly(value: Any, text: str) -> bool:
    """Whether an annotation names the value's own type. This check is cheaper than reading the annotation."""
    kind = type(value)
    name = "None" if value is None else kind.__name__
    own = kind.__module__ == "builtins" or kind.__module__.startswith("linnet.")
    return own and "[" not in text and name in text.split(" | ")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the kind that an annotation allows. True if this cannot be decided."""
    if hint is Any or isinstance(hint, (str, typing.ForwardRef)):
        return True
    if hint is None or hint is type(None):
        return value is None
    if isinstance(hint, typing.TypeVar):
        bound = hint.__bound__
        return bound is None or isinstance(bound, typing.ForwardRef) or _fits(value, bound)
    if isinstance(hint, type) and issubclass(hint, _AbsentType):
        found = sys.modules.get(hint.module)
        return found is not None and _fits(value, getattr(found, hint.__name__))
    origin = typing.get_origin(hint)
    if origin in _UNIONS:
        return any(_fits(value, choice) for choice in typing.get_args(hint))
    if origin is typing.Literal:
        return any(type(value) is type(choice) and value == choice for choice in typing.get_args(hint))
    if origin is not None:
        return _fits_generic(value, origin, typing.get_args(hint))
    if hint in _NUMBERS:
        kinds, number = _NUMBERS[hint]
        scalar = isinstance(value, np.ndarray | np.generic) and value.shape == () and value.dtype.kind in kinds
        return isinstance(value, number) or scalar
    if _is_path(hint):
        return isinstance(value, os.PathLike)
    if isinstance(hint, type) and getattr(hint, "_is_runtime_protocol", False):
        return isinstance(value, hint) and not isinstance(value, type)
    if isinstance(hint, type) and not getattr(hint, "_is_protocol", False):
        return isinstance(value, hint)
    return True


def _words(hint: Any) -> str:
    """An annotation in words, as a person would say it."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in _UNIONS:
        return " or ".join(dict.fromkeys(map(_words, inner)))
    if origin is typing.Literal:
        return " or ".join(map(repr, inner))
    if origin in (collections.abc.Sequence, collections.abc.Iterable, list) and inner and inner[0] is not Any:
        return f"{_WORDS[origin]} ({_words(inner[0])}, ...)"
    if origin is tuple and inner:
        return f"a tuple ({', '.join('...' if item is Ellipsis else _words(item) for item in inner)})"
    if isinstance(hint, typing.TypeVar) and hint.__bound__ is not None:
        return _words(hint.__bound__)
    kind = origin or hint
    if _is_path(kind):
        return "a path"
    if kind in _WORDS:
        return _WORDS[kind]
    name = getattr(kind, "__name__", str(kind))
    if name == "Operators":
        return "a tensor or variable"
    if name == "SourceLike":
        return "a source (an object with __len__, take and digest)"
    return ("a " if name[0] not in "AEIO" else "an ") + (f"linnet.{name}" if name in PUBLIC else name)


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, str | bytes | os.PathLike):
        return f"{'the path ' if isinstance(value, os.PathLike) else ''}{str(value)[:60]!r}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {list(value.shape)}"
    if isinstance(value, list | tuple | dict) and len(value) < 5 and len(text := repr(value)) < 60:
        return text
    if callable(value):
        return f"the function {getattr(value, '__name__', type(value).__name__)}"
    name = type(value).__name__
    return ("a " if name[0].upper() not in "AEIO" else "an ") + name


def _hint_for(value: Any, words: str) -> str:
    if "linnet.Graph" in words and isinstance(value, str | os.PathLike):
        return "open the file first, with linnet.Graph.load or linnet.from_onnx"
    if "a path" in words and "linnet.Graph" not in words and type(value).__name__ == "Graph":
        return "save the graph first, with graph.save(path), and pass the path"
    return ""


def _misfit(function: Any, name: str, arguments: dict[str, Any]) -> _WrongKind | None:
    """The error for the first argument that its annotation does not allow."""
    parameters = inspect.signature(function).parameters
    for key, given in arguments.items():
        parameter = parameters[key]
        text = parameter.annotation
        if text is parameter.empty:
            continue
        if isinstance(text, str) and parameter.kind not in _SEVERAL and _fits_plainly(given, text):
            continue
        hint = _hint(text, function) if isinstance(text, str) else text
        values = given if parameter.kind is parameter.VAR_POSITIONAL else [given]
        values = given.values() if parameter.kind is parameter.VAR_KEYWORD else values
        for value in values:
            if not _fits(value, hint) and value is not parameter.default:
                words = _words(hint)
                return _WrongKind(
                    f"{name}: the argument '{key}' is of the wrong kind", code=101, expected=words, got=_value(value),
                    hint=_hint_for(value, words),
                )  # fmt: skip
    return None


def _bound(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        return inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError:  # too few or too many arguments: Python's own error says so
        return {}


def _wrap(function: Any, name: str, strict: bool) -> Any:
    constructs = function.__name__ == "__init__"

    def misfit(args: Any, kwargs: Any) -> _WrongKind | None:
        label = f"{name.rpartition('.')[0]}.{type(args[0]).__name__}" if constructs and args else name
        return _misfit(function, label, _bound(function, args, kwargs))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, Error) and not isinstance(error, _WrongKind):
                raise
            if (wrong := misfit(args, kwargs)) is None:
                raise
            raise wrong from error
        if strict and (wrong := misfit(args, kwargs)):
            raise wrong
        return result

    return call


_SEEN: dict[Any, Any] = {}  # function or class -> what users get


def checked(value: Any, name: str, *, strict: bool = False) -> Any:
    """Wraps `value`, a function or class, for users to call. If a call raises an exception that is not linnet's, and an
    argument is not of the annotated kind, the wrapper raises a UsageError about that argument instead. If all arguments
    fit, for example if a function that the caller passed fails, the exception is raised as it is. strict: arguments are
    also checked if the call succeeds, because a wrong argument may be noticed much later. Constructors of classes are
    always strict."""
    if not inspect.isfunction(value) and not inspect.isclass(value):
        return value
    if value not in _SEEN:
        if inspect.isfunction(value):
            _SEEN[value] = _wrap(value, name, strict)
            _SEEN[value].__module__ = name.rpartition(".")[0]  # where pickle finds it
            _SEEN[_SEEN[value]] = _SEEN[value]
        else:
            _SEEN[value] = value
            for cls in value.__mro__:
                if cls.__module__.startswith("linnet.") and (cls is value or cls not in _SEEN):
                    _SEEN[cls] = cls
                    _check_class(cls, name)
    return _SEEN[value]


def _check_class(cls: Any, name: str) -> None:
    if issubclass(cls, Exception | enum.Enum) or getattr(cls, "_is_protocol", False):
        return
    for key, member in list(vars(cls).items()):
        label = name if key == "__init__" else f"{name}.{key}"
        if key.startswith("_") and key != "__init__":
            continue
        if inspect.isfunction(member) and not getattr(member, "unchecked", False):
            setattr(cls, key, _wrap(member, label, strict=key == "__init__"))
        elif isinstance(member, classmethod | staticmethod):
            setattr(cls, key, type(member)(_wrap(member.__func__, label, strict=False)))


def check_all(namespace: dict[str, Any], names: Iterable[str], *, strict: bool = False) -> None:
    """Wraps everything that a package exports with `checked`. dir() of the package then lists only the exported
    names."""
    exported = sorted(names)
    namespace["__dir__"] = lambda: exported
    for name in exported:
        if name in namespace:
            package = "linnet" if name in PUBLIC else namespace["__name__"]
            namespace[name] = checked(namespace[name], f"{package}.{name}", strict=strict)


def unchecked(function: F) -> F:
    """Marks a method that checks its own arguments because it is called too often to be wrapped."""
    function.unchecked = True  # type: ignore[attr-defined]
    return function
