"""The command `linnet sync-key`: creates a pre-shared key for servers and workers.
The file is created with mode 0600 and never overwrites an existing file."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from linnet.clib.errors import FileError, UsageError

BYTES = 32


def write_key(path: Path) -> None:
    """Writes a new key of 256 random bits, as hex digits and a newline, to a new file with mode 0600.

    Raises UsageError if the file exists, and FileError if it cannot be written. In the second case no partial file
    remains.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileExistsError:
        raise UsageError(
            "the file already exists and may be a key in use", code=101, tensor=str(path),
            hint="choose another name, or delete the file first",
        ) from None  # fmt: skip
    except OSError as why:
        raise FileError(
            "cannot write the key file", code=207, tensor=str(path), got=os.strerror(why.errno or 0)
        ) from None
    try:
        with os.fdopen(file, "w") as stream:
            stream.write(secrets.token_hex(BYTES) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as why:
        path.unlink(missing_ok=True)
        raise FileError(
            "cannot write the key file", code=207, tensor=str(path), got=os.strerror(why.errno or 0)
        ) from None


@click.command("sync-key", short_help="Create a pre-shared key for servers and workers.")
@click.argument("file", type=click.Path(path_type=Path))
def sync_key(file: Path) -> None:
    """Create a new pre-shared key in FILE, which must not exist yet.

    Copy the file to every machine of the job over a trusted channel (for example scp), keep its mode at 600, and pass
    it to servers and workers with --key FILE. They then use TLS 1.3 and reject anyone without the key.
    """
    write_key(file)
    click.echo(f"wrote {file}: {BYTES * 8} random bits, readable only by you; pass it with --key")
