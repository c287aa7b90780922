"""Error texts name Python's keyword arguments, such as `input_shapes=`. These are the same texts with the options of the
command that failed."""

from __future__ import annotations

import ast
import re
from typing import Final

import click

# Keyword arguments whose options have other names. All others are called like their option.
OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "input_shapes": ("--shape", "--input"),
    "bounds": ("--input", "--shape"),
    "feeds": ("--input",),
    "fetches": ("--fetch",),
    "devices": ("--device",),
    "input": (),  # a detail of --image
    "batch_size": ("--batch",),
}
_VALUE = r"\{(?:[^{}]|\{[^{}]*\})*\}|\[[^][]*\]|'[^']*'|[\w.]+"
_ARGUMENT = re.compile(
    rf"(?P<said>--[a-z-]+ \()?(?<![\w.'-])(?P<name>[a-z]+(?:_[a-z]+)*)(?:=(?P<value>{_VALUE})?|\b)(?(said)\))"
)


def command_line_words(text: str, command: click.Command | None) -> str:
    """The text with options in place of keyword arguments that the command has an option for. A name without "=" must
    contain an underscore, because other names are also words."""
    if command is None:
        return text
    given = {option: parameter for parameter in command.params for option in parameter.opts if option.startswith("--")}

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if "_" not in name and not match[0][match.end("name") - match.start() :].startswith("="):
            return match[0]
        option = next((o for o in OPTIONS.get(name, ("--" + name.replace("_", "-"),)) if o in given), None)
        if option is None:
            return match[0]
        if match["said"]:
            return match["said"].removesuffix(" (")
        if not match["value"] or getattr(given[option], "is_flag", False):
            return option
        return " ".join(f"{option} {value}" for value in _values(match["value"]))

    return _ARGUMENT.sub(replace, text)


def _values(text: str) -> list[str]:
    """A Python value as the command line takes it. An option is repeated for each key of a dict."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return [text.strip("[]") or "..."]
    if isinstance(value, dict):
        return [f"{name}={','.join(map(_size, shape))}" for name, shape in value.items()]
    return [str(value)]


def _size(size: object) -> str:
    return "..." if size is ... else "..".join(map(str, size)) if isinstance(size, tuple) else str(size)
