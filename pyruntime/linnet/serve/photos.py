"""Photos and sounds as bodies of requests, for models that contain the steps (linnet.preprocess), and what such models
find: labels, boxes, text."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from linnet.clib.errors import Error
from linnet.serve.load import Loaded
from linnet.serve.repository import Repository
from linnet.serve.settings import Refused, refusal
from linnet.serve.tensors import Request
from linnet.serve.wire import Call

_MOST_PIXELS = 24_000_000


def kind(call: Call, header: int | None) -> str:
    """ "image", "audio" or "file" if the body is a photo or a sound by its content type; "" if it holds tensors."""
    given = (call.header(b"content-type") or b"").split(b";")[0].strip().lower()
    if header is not None:
        return ""
    for name in ("image", "audio"):
        if given.startswith(name.encode() + b"/"):
            return name
    return "file" if given == b"application/octet-stream" else ""


async def read(repository: Repository, name: str, version: str, call: Call, body: bytes) -> Request:
    """The request whose body is the value of the one input that takes a photo or a sound. Raises Refused."""
    from linnet.data import media

    found, loaded = await repository.ready(name, version)
    if len(loaded.accepts) != 1:
        raise Refused(
            415,
            f"model {found.label!r} takes no photo or sound, because no input has the steps for one; send tensors, or add "
            "the steps (linnet convert --image imagenet, linnet.preprocess)",
        )
    (target, about), *_ = loaded.accepts.items()
    dtype = next(spec.dtype for spec in loaded.inputs if spec.name == target)
    async with repository.decoders:
        try:
            value = await asyncio.to_thread(media.read_body, body, target, dtype, about, _MOST_PIXELS)
        except Error as error:
            raise refusal(error) from None
    binary = b"application/octet-stream" in (call.header(b"accept") or b"")
    return Request({target: value}, None, binary, "", {})


def found(loaded: Loaded, outputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of what the model has found, as `linnet run` prints them."""
    from linnet.data.results import Described

    rows = Described(loaded.model, loaded.signature).found(outputs)
    return {name: [{key: _finite(value) for key, value in row.items()} for row in each] for name, each in rows.items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
