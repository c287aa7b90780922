"""One HTTP request as ASGI delivers it: its headers, its body within limits of size and time, and its answer."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from linnet.serve.settings import Refused

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]
_DISCARDED = 16 << 20
JSON: Header = (b"content-type", b"application/json")


class Budget:
    """Bytes of bodies that are in memory at once, over all requests."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0

    def take(self, size: int) -> None:
        """Raises Refused (429) if there is no room."""
        if self.used + size > self.most:
            raise Refused(
                429, f"the bodies of the requests that wait have {self.used} bytes; at most {self.most} are allowed",
                [(b"retry-after", b"1")],
            )  # fmt: skip
        self.used += size


class Call:
    """A request. `taken`: the bytes of the budget that its body holds; `release` gives them back."""

    def __init__(self, scope: Scope, receive: Receive, budget: Budget) -> None:
        self.scope, self.receive = scope, receive
        self.path: dict[str, str] = scope.get("path_params", {})
        self._budget, self.taken = budget, 0

    def header(self, name: bytes) -> bytes | None:
        for key, value in self.scope["headers"]:
            if key == name:
                return bytes(value)
        return None

    def size_of(self, name: bytes) -> int | None:
        """A header that is a number of bytes. Raises Refused."""
        text = self.header(name)
        if text is None:
            return None
        if not text.isdigit() or len(text) > 15:
            raise Refused(400, f"the header {name.decode()} is {text[:40]!r}; expected a number of bytes")
        return int(text)

    def release(self) -> None:
        self._budget.used -= self.taken
        self.taken = 0

    async def body(self, most: int, timeout: float) -> bytes:
        """The whole body, decompressed. Raises Refused: 413 if it has more than `most` bytes, 408 if it takes longer than
        `timeout` seconds."""
        length = self.size_of(b"content-length")
        task, late = asyncio.current_task(), False

        def end() -> None:
            nonlocal late
            late = True
            if task is not None:
                task.cancel()

        timer = asyncio.get_running_loop().call_later(timeout, end)
        try:
            data = await self._read(most, length or 0)
        except asyncio.CancelledError:
            if not late:
                raise
            if task is not None and hasattr(task, "uncancel"):  # Python 3.11
                task.uncancel()
            raise Refused(408, f"the body did not arrive within {timeout:g} s", [(b"connection", b"close")]) from None
        finally:
            timer.cancel()
        coding = self.header(b"content-encoding")
        return (
            data
            if coding is None or coding == b"identity"
            else self._decompressed(data, coding.decode("latin-1"), most)
        )

    async def _read(self, most: int, announced: int) -> bytes:
        chunks, size = list[bytes](), 0
        if announced > most:
            await self._discard()
            raise _too_large(announced, most)
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            chunk = message.get("body", b"")
            if chunk:
                size += len(chunk)
                if size > most:
                    self.release()
                    chunks.clear()
                    await self._discard()
                    raise _too_large(size, most)
                self._budget.take(len(chunk))
                self.taken += len(chunk)
                chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _discard(self) -> None:
        """Reads on for a while without keeping anything: a client that is still sending would not see the answer."""
        size, more = 0, True
        while more and size < _DISCARDED:
            message = await self.receive()
            size += len(message.get("body", b""))
            more = message["type"] == "http.request" and message.get("more_body", False)

    def _decompressed(self, data: bytes, coding: str, most: int) -> bytes:
        if coding not in ("gzip", "deflate"):
            raise Refused(415, f"the content encoding {coding!r} is not supported; expected gzip or deflate")
        opened = zlib.decompressobj(31 if coding == "gzip" else 15)
        try:
            made = opened.decompress(data, most + 1)
        except zlib.error as error:
            raise Refused(400, f"the body is not valid {coding}: {error}") from None
        if len(made) > most:
            raise _too_large(len(made), most)
        if not opened.eof:
            raise Refused(400, f"the body ends in the middle of its {coding} data")
        self._budget.take(len(made))
        self.taken += len(made)
        return made


class Gone(Exception):
    """The client has closed the connection."""


def _too_large(size: int, most: int) -> Refused:
    return Refused(
        413, f"the body has {size} bytes or more; at most {most} are allowed (--max-body)", [(b"connection", b"close")]
    )


class Reply:
    """An answer: its status, body and headers."""

    __slots__ = ("headers", "parts", "status")

    def __init__(
        self, parts: Sequence[bytes | memoryview], headers: Iterable[Header] = (JSON,), status: int = 200
    ) -> None:
        self.parts, self.headers, self.status = parts, headers, status

    async def send(self, send: Send) -> None:
        body = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        headers = [*self.headers, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def in_json(value: Any, status: int = 200, headers: Iterable[Header] = ()) -> Reply:
    return Reply([json.dumps(value, separators=(",", ":")).encode()], (JSON, *headers), status)


def refused(error: Refused) -> Reply:
    return in_json({"error": error.text}, error.status, error.headers)
