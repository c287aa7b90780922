"""`python -m examples.file_types [FILE or FOLDER ...]`: a table of the types of these files, by their content alone.
A folder means all files in it, at any depth. Without arguments it uses the folder of linnet's own sources."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from linnet._fetch import FetchError

from .detect import Detector


def files(paths: list[Path]) -> Iterator[Path]:
    """Returns the given files, and the files in the given folders, in order of their names."""
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if not any(part.startswith(".") for part in p.parts))
        yield from (p for p in ([path] if not path.is_dir() else inside) if not p.is_dir() and not p.is_symlink())


def main() -> int:
    """Runs `python -m examples.file_types`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m examples.file_types", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[Path(__file__).resolve().parents[1]])
    parser.add_argument("--limit", type=int, default=100, help="largest number of files to look at (default: 100)")
    args = parser.parse_args()
    try:
        detector = Detector()
    except FetchError as error:
        print(f"file_types: {error}", file=sys.stderr)
        return 1
    table = Table()
    for heading in ("file", "type", "description", "MIME type"):
        table.add_column(heading, overflow="fold")
    table.add_column("score", justify="right")
    status, start, count = 0, time.perf_counter(), 0
    for path in itertools.islice(files(args.paths), args.limit):
        try:
            found = detector.identify(path)
        except OSError as error:
            print(f"file_types: {path}: {error.strerror}", file=sys.stderr)
            status = 1
            continue
        table.add_row(str(path), found.label, found.description, found.mime, f"{found.score:.2f}")
        count += 1
    seconds = time.perf_counter() - start
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    print(f"{count} files, {1e3 * seconds / max(count, 1):.1f} ms each")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
