"""Answers an inference request: reads its tensors or its photo, checks them, waits for the run, and writes the outputs.
A client that goes away and a deadline that passes end the run, if nobody else waits for it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from linnet.clib.errors import DeadlineExceeded, Error
from linnet.ir.dtypes import dtype_of
from linnet.serve import photos
from linnet.serve.lane import Done, Work
from linnet.serve.load import Loaded
from linnet.serve.repository import Repository, Version
from linnet.serve.settings import Refused, refusal
from linnet.serve.tensors import Request, datatype_of, read_request, write_answer
from linnet.serve.wire import JSON, Call, Gone, Header, Reply

Array = npt.NDArray[Any]
_PATIENCE = 0.05  # seconds after which a request that waits is watched for its client's going away
_LARGE = 1 << 18  # bytes of JSON, and numbers to write as JSON, that are not handled in the event loop
_LENGTH = b"inference-header-content-length"
_OCTETS: Header = (b"content-type", b"application/octet-stream")


async def infer(repository: Repository, call: Call) -> Reply:
    """The answer to POST /v2/models/NAME[/versions/VERSION]/infer. Raises Refused, Gone."""
    started = time.perf_counter_ns()
    settings = repository.settings
    name, version = call.path["name"], call.path.get("version", "")
    found = repository.find(name, version)
    try:
        body = await call.body(settings.max_body, settings.body_timeout)
        header = call.size_of(_LENGTH)
        media = photos.kind(call, header)
        if media:
            request = await photos.read(repository, name, version, call, body)
        elif (len(body) if header is None else header) > _LARGE:
            request = await asyncio.to_thread(read_request, memoryview(body), header)
        else:
            request = read_request(memoryview(body), header)
        del body
        deadline = time.monotonic() + _timeout(request, settings.timeout)
        found, loaded = await repository.ready(name, version)
        work = _work(loaded, request, deadline)
        _check_queue(loaded, settings.max_queue, found)
        done = await _answer(loaded, work, call)
        if done.error is not None:
            raise refusal(done.error)
        assert done.outputs is not None
        reply = await _reply(found, loaded, request, done.outputs, bool(media))
    except Refused:
        found.stats.failed(time.perf_counter_ns() - started)
        raise
    took = time.perf_counter_ns() - started
    found.stats.add(done, work.rows, took)
    return reply


def _timeout(request: Request, most: float) -> float:
    """Seconds that a request may take: the parameter `timeout` is in microseconds, as Triton's clients send it."""
    asked = request.parameters.get("timeout")
    if asked is None:
        return most
    if isinstance(asked, bool) or not isinstance(asked, (int, float)) or not 0 < asked < 1e15:
        raise Refused(400, f"the parameter 'timeout' is {asked!r:.40}; expected a number of microseconds above 0")
    return min(most, asked / 1e6)


def _work(loaded: Loaded, request: Request, deadline: float) -> Work:
    """The request as the lane takes it. Raises Refused if an input or an output is wrong."""
    specs, session = {spec.name: spec for spec in loaded.inputs}, loaded.lane.session
    for name, value in request.feeds.items():
        spec = specs.get(name)
        if spec is None:
            raise Refused(400, f"the model has no input {name!r}; it has {', '.join(specs) or 'none'}")
        if value.dtype != loaded.numpy_dtypes[name]:
            got = datatype_of(dtype_of(value.dtype))
            raise Refused(400, f"input {name!r} has datatype {datatype_of(spec.dtype)}, got {got}")
        try:
            session._check_shape(spec, value.shape)
        except Error as error:
            raise Refused(400, str(error)) from None
    missing = [name for name in specs if name not in request.feeds]
    if missing:
        raise Refused(400, f"no value is given for input {missing[0]!r}; the inputs are {', '.join(specs)}")
    for name in request.outputs or ():
        if name not in loaded.dtypes:
            raise Refused(400, f"the model has no output {name!r}; it has {', '.join(loaded.dtypes)}")
    rows, key = 1, None
    if loaded.batches:
        sizes = {value.shape[0] for value in request.feeds.values()}
        if len(sizes) > 1:
            raise Refused(400, f"the inputs have different batches: {sorted(sizes)}")
        rows = sizes.pop()
        key = tuple(value.shape[1:] for _, value in sorted(request.feeds.items()))
    elif request.feeds:
        first = next(iter(request.feeds.values()))
        rows = first.shape[0] if loaded.open_batch and first.ndim else 1
    loop = asyncio.get_running_loop()
    return Work(request.feeds, rows, key, deadline, loop.create_future(), loop)


def _check_queue(loaded: Loaded, most: int, version: Version) -> None:
    if loaded.busy >= most:
        raise Refused(
            429, f"{loaded.busy} requests wait for model {version.label!r}; at most {most} may (--max-queue)",
            [(b"retry-after", b"1")],
        )  # fmt: skip


async def _answer(loaded: Loaded, work: Work, call: Call) -> Done:
    """The result of the run. Nothing is awaited before the request is in the lane's queue."""
    if loaded.quick and not loaded.busy and (done := loaded.lane.at_once(work)) is not None:
        loaded.used = time.monotonic()
        return done
    loop = work.loop
    watching: list[asyncio.Task[None]] = []
    timer = loop.call_later(_PATIENCE, lambda: watching.append(loop.create_task(_watch(loaded, work, call))))
    loaded.busy += 1
    loaded.lane.submit(work)
    try:
        return await work.answer
    finally:
        loaded.busy -= 1
        loaded.used = time.monotonic()
        timer.cancel()
        for task in watching:
            task.cancel()
        if not work.answer.done() or work.answer.cancelled():
            loaded.lane.drop(work)


async def _watch(loaded: Loaded, work: Work, call: Call) -> None:
    """Ends the wait if the client goes away or the deadline passes."""
    try:
        while True:
            left = work.deadline - time.monotonic()
            message = await asyncio.wait_for(call.receive(), max(left, 0))
            if message["type"] == "http.disconnect":
                error: Exception = Gone()
                break
    except asyncio.TimeoutError:
        error = DeadlineExceeded("the request's time has passed before its answer was ready", code=702)
    loaded.lane.drop(work)
    if not work.answer.done():
        work.answer.set_exception(refusal(error) if isinstance(error, DeadlineExceeded) else error)


async def _reply(
    version: Version, loaded: Loaded, request: Request, outputs: Mapping[str, Array], media: bool
) -> Reply:
    about: dict[str, Any] = {"model_name": version.name, "model_version": version.version}
    if media:
        about["parameters"] = {"found": photos.found(loaded, outputs)}
    chosen = {name: outputs[name] for name in request.outputs or outputs}
    arguments = (chosen, loaded.dtypes, request, about)
    if not request.binary and sum(math.prod(value.shape) for value in chosen.values()) > _LARGE // 16:
        parts, header = await asyncio.to_thread(write_answer, *arguments)
    else:
        parts, header = write_answer(*arguments)
    if header is None:
        return Reply(parts, (JSON,))
    return Reply(parts, (_OCTETS, (_LENGTH, b"%d" % header)))
