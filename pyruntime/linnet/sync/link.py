"""Connection settings: keys, certificates, heartbeats. Servers, workers and observers use the same settings."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from linnet.clib.errors import UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, new_struct
from linnet.sync._library import sync_library


@dataclasses.dataclass(frozen=True)
class Link:
    """A connection between a worker and a server.

    key_file: a file with a pre-shared key of at least 32 bytes, raw or hexadecimal. Both sides have the same key, and
        only the owner may be able to read the file.
    certificate, private_key, authority: PEM files; both sides are verified.
    server_name: the DNS name or IP address that the server's certificate must carry; None: the host of the address, or
        localhost if it has none. With a key or certificates, the connection uses TLS 1.3 through OpenSSL's libssl
        (libssl: its path; None: the system's). Without them only loopback and local sockets are allowed, unless
        `insecure` is true.
    heartbeat: seconds between heartbeats. None: a server takes a third of `lease`, or 5 without `lease`; a worker takes
        the server's value.
    lease: seconds of silence after which the other side counts as lost; None: three heartbeats.
    chunk: bytes per frame, 4096 to 4 MiB.
    """

    key_file: str | Path | None = None
    certificate: str | Path | None = None
    private_key: str | Path | None = None
    authority: str | Path | None = None
    libssl: str | Path | None = None
    insecure: bool = False
    heartbeat: float | None = None
    lease: float | None = None
    chunk: int = 256 << 10
    server_name: str | None = None

    def config(self, keep: list[Any]) -> Any:
        """Makes a linnet_link_config. Appends it, and the objects to which its pointers refer, to `keep`."""
        config = new_struct("linnet_link_config")
        keep.append(config)
        for name in ("key_file", "certificate", "private_key", "authority", "libssl", "server_name"):
            value = getattr(self, name)
            if value is not None:
                setattr(config, name, c_text(str(value), keep))
        config.insecure, config.chunk = bool(self.insecure), self.chunk
        config.heartbeat_ms = milliseconds("heartbeat", self.heartbeat)
        config.lease_ms = milliseconds("lease", self.lease)
        return config


def c_text(text: str, keep: list[Any]) -> Any:
    """A C string that lives as long as `keep`."""
    keep.append(ffi.new("char[]", text.encode()))
    return keep[-1]


def c_texts(texts: list[str], keep: list[Any]) -> Any:
    """An array of C strings that lives as long as `keep`."""
    keep.append(ffi.new("char *[]", [c_text(text, keep) for text in texts] or [ffi.NULL]))
    return ffi.cast("const char *const *", keep[-1])


def milliseconds(name: str, seconds: float | None) -> int:
    """Converts seconds for C, where 0 means the default. Raises UsageError for a value out of range."""
    if seconds is None:
        return 0
    if not 0.001 <= seconds <= 2_000_000:
        raise UsageError(
            "the time is out of range",
            code=101,
            tensor=name,
            expected="seconds from 0.001 to 2,000,000",
            got=repr(seconds),
        )
    return round(seconds * 1000)


def status(address: str, link: Link | None = None) -> dict[str, Any]:
    """The report of the server at `address`: its members, steps, versions, bytes and times. Raises SyncError."""
    lib, keep, error = sync_library(), list[Any](), ffi.new("linnet_error *")
    config, needed = (link or Link()).config(keep), ffi.new("size_t *")
    size = 1 << 16
    while True:
        text = ffi.new("char[]", size)
        if lib.linnet_sync_status(address.encode(), config, text, size, needed, error):
            raise exception(error)
        if needed[0] < size:
            return dict(json.loads(bytes(ffi.string(text))))
        size = int(needed[0]) + (1 << 12)
