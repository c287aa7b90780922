"""`linnet explain`: prints the usual causes of an error. They come from the pages of docs/errors, which are installed
with the package. linnet.cli.main adds it to its group."""

from __future__ import annotations

import re
from importlib.resources import files

import click

from linnet.cli.options import CommandLineError
from linnet.clib.errors import STATUS, nearest

WIDTH = 100  # longest line; the terminal's width is used if it is smaller


@click.command(short_help="Print the usual causes of an error code.")
@click.argument("error", nargs=-1, metavar="[NAME|NUMBER|MESSAGE]")
def explain(error: tuple[str, ...]) -> None:
    """Print what an error code means, its usual causes with the message of each, and what to do.

    Give the first word of the message (such as wrong_shape), the number of the code, or the whole message. Without an
    argument, all codes are listed. The command needs no network.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    name = _name_of(" ".join(error)) if error else "index"
    page = files("linnet") / "errors" / f"{name}.md"
    text = str(page.read_text(encoding="utf-8"))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)  # links lead to pages that are not in the package
    console = Console()
    console.width = min(console.width, WIDTH)
    console.print(Markdown(text))


def _name_of(error: str) -> str:
    """The name of the code that a user gave as a name, a number or a whole message."""
    numbers = {str(number): name for number, name in STATUS.items()}
    words = re.findall(r"\w+", error)
    plain: list[str] = [word.lower().removeprefix("linnet_") for word in words]
    known = {str(name) for name in STATUS.values()}
    for word in plain:
        if word in known:
            return word
    if len(words) == 1 and words[0] in numbers:
        return str(numbers[words[0]])
    raise CommandLineError(
        "there is no error code of this name", code=102, tensor=error,
        expected=nearest("_".join(plain), STATUS.values()), hint="`linnet explain` lists all codes",
    )  # fmt: skip
