"""Error texts name Python's keyword arguments, such as `input_shapes=`. This module replaces them with the options of
the command that failed."""

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
    """The text with options in place of keyword arguments, if the command has an option for them. A name without "=" is
    replaced only if it contains an underscore, because other names are also ordinary words."""
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
    """A Python value in the form that the command line takes. For a dict, the option is repeated for each key."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return [text.strip("[]") or "..."]
    if isinstance(value, dict):
        return [f"{name}={','.join(map(_size, shape))}" for name, shape in value.items()]
    return [str(value)]


def _size(size: object) -> str:
    return "..." if size is ... else "..".join(map(str, size)) if isinstance(size, tuple) else str(size)
