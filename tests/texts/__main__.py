"""Lists every error text of the library, the tools and the converters, to be read without the code beside it.
`python -m tests.texts [--help-texts] [--all-comments] [--comments N --seed S] [--only PATH]`"""

from __future__ import annotations

import argparse
import random
from itertools import groupby

from tests.texts import PARTS, Text
from tests.texts.kept import all_texts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.texts", description=__doc__.split("\n")[0])
    parser.add_argument("--help-texts", action="store_true", help="list the texts of --help instead")
    parser.add_argument("--all-comments", action="store_true", help="list comments and docstrings instead")
    parser.add_argument("--comments", type=int, metavar="N", help="draw N random comments and error texts instead")
    parser.add_argument("--seed", type=int, default=0, help="which draw")
    parser.add_argument("--only", action="append", metavar="PATH", help="only sources whose path contains this")
    arguments = parser.parse_args()
    found = sorted(all_texts(), key=lambda t: (t.path, t.line))
    if arguments.only:
        found = [t for t in found if any(part in t.path for part in arguments.only)]
    if arguments.comments is not None:
        found = [t for t in found if t.kind in ("comment", "error")]
        found = random.Random(arguments.seed).sample(found, min(arguments.comments, len(found)))
        for text in found:
            print(text)
        return
    kind = "help" if arguments.help_texts else "comment" if arguments.all_comments else "error"
    _print([t for t in found if t.kind == kind])


def _print(found: list[Text]) -> None:
    for path, group in groupby(found, key=lambda t: t.path):
        print(f"\n{path}")
        for text in group:
            body = text.text.replace("\n", "\n            ")
            part = text.what in PARTS
            print(f"  {text.line:4}  {'  ' if part else ''}{text.what + ': ' if text.what else ''}{body}")


if __name__ == "__main__":
    main()
