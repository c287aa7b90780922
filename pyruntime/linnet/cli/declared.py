"""Options of a command as fields of a dataclass: a field has the type, the default and the help text of its option, and the
command gets all of them as one argument. Options that several commands have are gathered in the same way."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

Command = Callable[..., Any]
Adding = Callable[[Command], Command]  # adds options to a command


def option(*names: str, **settings: Any) -> Any:
    """A field whose value is this option of the command line. The arguments are those of click.option."""
    return dataclasses.field(metadata={"add": lambda field: click.option(*names, field, **settings)})


def shared(add: Adding) -> Any:
    """A field whose value is an option that several commands have. The option gives an argument with the name of the
    field."""
    return dataclasses.field(metadata={"add": lambda field: add})


def gathers(name: str, options: Mapping[str, Adding], make: Callable[..., Any]) -> Adding:
    """Adds options, each under the name of the argument that it gives. The command receives what `make` makes of all these
    arguments as one argument `name`."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**values: Any) -> Any:
            made = make(**{each: values.pop(each) for each in options})
            return command(**{name: made}, **values)

        decorated: Command = with_options
        for add in reversed(list(options.values())):
            decorated = add(decorated)
        return decorated

    return decorate


def takes(kind: type) -> Adding:
    """Adds the options that the fields of this dataclass declare, in their order. The command receives the dataclass as the
    argument `given`."""
    return gathers("given", {field.name: field.metadata["add"](field.name) for field in dataclasses.fields(kind)}, kind)
