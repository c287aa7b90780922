"""Runs the application under uvicorn, with limits for what comes before a request is complete: the size of its headers and
the time that they take."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import logging
import socket
from pathlib import Path
from typing import Any

from linnet.clib.errors import UsageError

log = logging.getLogger("linnet.serve")
MOST_HEADER_BYTES = 64 << 10
MOST_CONNECTIONS = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class Address:
    """Where a server listens. certificate, certificate_key: PEM files for TLS. grace: seconds that requests get to end
    when the server is told to stop."""

    host: str = "127.0.0.1"
    port: int = 8000
    certificate: Path | None = None
    certificate_key: Path | None = None
    grace: float = 30.0


def _protocol(header_timeout: float) -> Any:
    """uvicorn's protocol on httptools with the limits; where httptools is not installed, uvicorn's protocol on h11, which
    limits the size of headers itself."""
    if importlib.util.find_spec("httptools") is None:
        return "h11"
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Guarded(HttpToolsProtocol):
        """Closes a connection whose headers are too long or too slow."""

        def connection_made(self, transport: Any) -> None:
            self._head = 0
            self._timer: asyncio.TimerHandle | None = None
            super().connection_made(transport)
            self._start()

        def _start(self) -> None:
            self._head, self._in_head = 0, True
            self._stop()
            self._timer = asyncio.get_running_loop().call_later(header_timeout, self._refuse, 408, "Request Timeout")

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._timer is None:
                self._start()
            self._head, self._in_head = 0, True

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._stop()
            super().on_headers_complete()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._in_head:
                self._head += len(data)
                if self._head > MOST_HEADER_BYTES:
                    self._refuse(431, "Request Header Fields Too Large")

        def _refuse(self, status: int, text: str) -> None:
            self._stop()
            if self.transport.is_closing():
                return
            body = b'{"error":"%s"}' % text.encode()
            self.transport.write(
                b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"
                % (status, text.encode(), len(body), body)
            )
            self.transport.close()

    return Guarded


def config(app: Any, address: Address, header_timeout: float) -> Any:
    """uvicorn's configuration. Raises UsageError if only one of the files for TLS is given."""
    import uvicorn

    if (address.certificate is None) != (address.certificate_key is None):
        raise UsageError(
            "TLS needs a certificate and its key", code=101, got="only one of them",
            hint="give both --certificate and --certificate-key",
        )  # fmt: skip
    return uvicorn.Config(
        app, host=address.host, port=address.port, http=_protocol(header_timeout), ws="none", lifespan="on",
        log_config=None, access_log=False, server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=max(int(address.grace), 1), limit_concurrency=MOST_CONNECTIONS, backlog=1024,
        ssl_certfile=None if address.certificate is None else str(address.certificate),
        ssl_keyfile=None if address.certificate_key is None else str(address.certificate_key),
    )  # fmt: skip


def server_of(app: Any, address: Address, header_timeout: float) -> Any:
    """A uvicorn.Server that logs where it listens. Its `url` says so, too."""
    import uvicorn

    class Server(uvicorn.Server):
        url = ""

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                host, port = self.servers[0].sockets[0].getsockname()[:2]
                scheme = "https" if address.certificate is not None else "http"
                self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
                log.info("listening", extra={"url": self.url})

    return Server(config(app, address, header_timeout))


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((address.host, address.port))
    except OSError as error:
        made.close()
        where = f"{address.host}:{address.port}"
        raise UsageError(
            f"cannot listen on {where}: {error.strerror or error}", code=101, tensor=where,
            hint="give another --port, or the --host of this machine",
        ) from None  # fmt: skip
    return made


def run(app: Any, address: Address, header_timeout: float) -> bool:
    """Serves until SIGINT or SIGTERM, and then answers what waits. Returns whether it began to listen. Raises UsageError if
    the address cannot be used."""
    server = server_of(app, address, header_timeout)
    listening = _bound(address)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again after it has stopped in order
        server.run(sockets=[listening])
    return bool(server.started)
