"""The command `linnet sync-key`: a new pre-shared key for servers and workers.
The file is its owner's alone from the first moment, and never overwrites one that is in use."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from linnet.errors import FileError, UsageError

BYTES = 32


def write_key(path: Path) -> None:
    """Writes a new key of 256 random bits, as hex digits and a newline, to a new file of mode 0600.

    Errors: UsageError (the file exists), FileError (it cannot be written; then nothing is left of it).
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileExistsError:
        raise UsageError(
            "the file exists, and may be a key that is in use", code=101, tensor=str(path),
            hint="choose another name, or remove it first",
        ) from None  # fmt: skip
    except OSError as why:
        raise FileError(
            "the key cannot be written", code=207, tensor=str(path), got=os.strerror(why.errno or 0)
        ) from None
    try:
        with os.fdopen(file, "w") as stream:
            stream.write(secrets.token_hex(BYTES) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as why:
        path.unlink(missing_ok=True)
        raise FileError(
            "the key cannot be written", code=207, tensor=str(path), got=os.strerror(why.errno or 0)
        ) from None


@click.command("sync-key", short_help="Make a key for servers and workers.")
@click.argument("file", type=click.Path(path_type=Path))
def sync_key(file: Path) -> None:
    """Make a new pre-shared key in FILE, which must not exist yet.

    Copy it to every machine of the job over a channel that you trust (scp), keep its mode 600, and give it to servers and
    workers with --key FILE: they then talk TLS 1.3 and turn away who does not have it.
    """
    write_key(file)
    click.echo(f"wrote {file}: {BYTES * 8} random bits, for its owner alone; give it with --key")
