"""Options of a command as fields of a dataclass. A field is the only place that names its option: it has the type, the
default and the help text, and the command gets all of them as one argument."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def option(*names: str, **settings: Any) -> Any:
    """A field whose value is this option of the command line. The arguments are those of click.option."""
    return dataclasses.field(metadata={"add": lambda field: click.option(*names, field, **settings)})


def shared(add: Callable[[Command], Command]) -> Any:
    """A field whose value is an option that several commands have. The option gives an argument with the name of the
    field."""
    return dataclasses.field(metadata={"add": lambda field: add})


def takes(kind: type, name: str = "given") -> Callable[[Command], Command]:
    """Adds the options that the fields of this dataclass declare, in their order. The command receives the dataclass as the
    argument `name`."""
    fields = dataclasses.fields(kind)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**values: Any) -> Any:
            made = kind(**{field.name: values.pop(field.name) for field in fields})
            return command(**{name: made}, **values)

        decorated: Command = with_options
        for field in reversed(fields):
            decorated = field.metadata["add"](field.name)(decorated)
        return decorated

    return decorate
