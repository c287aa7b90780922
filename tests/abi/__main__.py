"""Compares the public headers with the committed listings, or renews them: python -m tests.abi [--write [--incompatible]]."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.abi.listing import Reader, breaks, parse

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.abi", description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew tests/abi/*.txt, if only additions have been made")
    parser.add_argument(
        "--incompatible", action="store_true", help="with --write: also record changes that break programs"
    )
    arguments = parser.parse_args()
    outdated, broken = [], []
    headers = Reader().read()
    gone = {path.stem for path in FOLDER.glob("*.txt")} - set(headers)
    broken += [f"{name} is gone" for name in sorted(gone)]
    for name, header in headers.items():
        path = FOLDER / f"{name}.txt"
        old = path.read_text() if path.exists() else ""
        broken += [f"{name}: {problem}" for problem in breaks(parse(old), header)]
        if old != header.text():
            outdated.append((path, header.text()))
    print(*broken, sep="\n", end="\n" if broken else "")
    if broken and not (arguments.write and arguments.incompatible):
        print("Programs that are compiled already would break. Undo these changes: add fields at the end of structs, and new "
              "functions and enum values. Before the first release, --write --incompatible records them.")  # fmt: skip
        return 1
    if not arguments.write:
        print(*(f"{path.name} is out of date: run python -m tests.abi --write" for path, _ in outdated), sep="\n")
        return int(bool(outdated))
    for path, text in outdated:
        path.write_text(text)
        print(f"wrote {path.name}")
    for name in gone:
        (FOLDER / f"{name}.txt").unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
