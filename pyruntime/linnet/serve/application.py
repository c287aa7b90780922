"""The ASGI application: routes of the KServe v2 protocol, metrics, the page, and what all answers have in common.
https://github.com/kserve/open-inference-protocol; the repository, statistics and binary extensions are Triton's."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from linnet.clib.version import __version__
from linnet.serve.infer import infer
from linnet.serve.metrics import CONTENT_TYPE, Metrics
from linnet.serve.openapi import description
from linnet.serve.repository import Repository, Version
from linnet.serve.settings import Refused, Settings, refusal
from linnet.serve.tensors import metadata, parsed_json
from linnet.serve.wire import Budget, Call, Gone, Receive, Reply, Scope, Send, in_json, refused

log = logging.getLogger("linnet.serve")
request_log = logging.getLogger("linnet.serve.requests")
Answers = Callable[[Call], Awaitable[Reply]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]
EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "statistics")
_OPEN = ("/", "/openapi.json", "/v2/health/live", "/v2/health/ready")  # without a key
_PAGE_HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
     b"connect-src 'self'; img-src 'self' blob: data:; media-src blob:"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-cache"),
)  # fmt: skip


class Server:
    """What answers the routes."""

    def __init__(self, repository: Repository) -> None:
        self.repository, self.settings = repository, repository.settings
        self.metrics = Metrics(repository)
        self.budget = Budget(self.settings.max_pending)
        self.ready = False

    async def work(self) -> None:
        """Loads the models, then follows their files. While it loads, the server listens and says that it is not ready."""
        await self.repository.start()
        self.ready = True
        ready = sum(one.loaded is not None for one in self.repository.all())
        log.info("ready", extra={"models": ready, "bytes": self.repository.bytes})
        if self.settings.poll:
            await self.repository.watch(self.settings.poll)

    # ---- health and metadata

    async def live(self, call: Call) -> Reply:
        return in_json({"live": True})

    async def is_ready(self, call: Call) -> Reply:
        return in_json({"ready": self.ready}, 200 if self.ready else 503)

    async def server_metadata(self, call: Call) -> Reply:
        return in_json({"name": "linnet", "version": __version__, "extensions": EXTENSIONS})

    def _version(self, call: Call) -> Version:
        return self.repository.find(call.path["name"], call.path.get("version", ""))

    async def model_metadata(self, call: Call) -> Reply:
        found, loaded = await self.repository.ready(call.path["name"], call.path.get("version", ""))
        inputs = [metadata(spec) for spec in loaded.inputs]
        for entry in inputs:
            if entry["name"] in loaded.accepts:
                entry["parameters"] = {"kind": loaded.accepts[entry["name"]][0]}
        return in_json(
            {
                "name": found.name, "versions": sorted(self.repository.versions[found.name], key=int), "platform": "linnet_lnt",
                "inputs": inputs, "outputs": [metadata(spec) for spec in loaded.outputs],
                "parameters": {
                    "bytes": loaded.bytes, "max_batch": max(loaded.batches, default=1), "signature": loaded.signature,
                    "version": found.version,
                },
            }
        )  # fmt: skip

    async def model_ready(self, call: Call) -> Reply:
        found = self._version(call)
        ready = found.loaded is not None or found.asleep
        return in_json({"name": found.name, "version": found.version, "ready": ready}, 200 if ready else 503)

    async def config(self, call: Call) -> Reply:
        found, loaded = await self.repository.ready(call.path["name"], call.path.get("version", ""))
        batched = max(loaded.batches, default=0)

        def entry(spec: Any) -> dict[str, Any]:
            about = metadata(spec)
            dims = about["shape"][1:] if batched else about["shape"]
            return {"name": spec.name, "data_type": "TYPE_" + about["datatype"], "dims": dims}

        return in_json(
            {
                "name": found.name, "platform": "linnet_lnt", "backend": "linnet", "max_batch_size": batched,
                "input": [entry(spec) for spec in loaded.inputs], "output": [entry(spec) for spec in loaded.outputs],
                **({"dynamic_batching": {"preferred_batch_size": list(loaded.batches)}} if batched else {}),
            }
        )  # fmt: skip

    async def stats(self, call: Call) -> Reply:
        if "name" in call.path:
            name = call.path["name"]
            asked = call.path.get("version", "")
            self.repository.find(name, asked)
            chosen = [self.repository.find(name, asked)] if asked else list(self.repository.versions[name].values())
        else:
            chosen = self.repository.all()
        return in_json({"model_stats": [one.stats.report(one.name, one.version) for one in chosen]})

    # ---- models

    async def index(self, call: Call) -> Reply:
        asked = await self._json(call)
        listed = self.repository.index()
        if asked.get("ready") is True:
            listed = [entry for entry in listed if entry["state"] == "READY"]
        return in_json(listed)

    async def load(self, call: Call) -> Reply:
        asked = await self._json(call)
        parameters = asked.get("parameters") or {}
        if not isinstance(parameters, dict) or any(
            key == "config" or str(key).startswith("file:") for key in parameters
        ):
            raise Refused(
                400, "a model is loaded from its file; 'config' and 'file:' in the parameters are not supported"
            )
        await self.repository.load(call.path["name"])
        return in_json({})

    async def unload(self, call: Call) -> Reply:
        await self._json(call)
        await self.repository.unload(call.path["name"])
        return in_json({})

    async def _json(self, call: Call) -> dict[str, Any]:
        body = await call.body(1 << 20, self.settings.body_timeout)
        return parsed_json(body) if body.strip() else {}

    async def infer(self, call: Call) -> Reply:
        return await infer(self.repository, call)

    # ---- the rest

    async def prometheus(self, call: Call) -> Reply:
        return Reply([self.metrics.text()], [(b"content-type", CONTENT_TYPE)])

    async def openapi(self, call: Call) -> Reply:
        return in_json(description(self.settings))

    async def page(self, call: Call) -> Reply:
        return Reply([(Path(__file__).parent / "page.html").read_bytes()], _PAGE_HEADERS)

    def routes(self) -> list[Route]:
        def route(path: str, answers: Answers, method: str = "GET") -> Route:
            name = answers.__name__
            return Route(path, _Endpoint(self, answers, name), methods=[method], name=f"{name} {path}")

        made = []  # the first that matches answers, so what is asked for most comes first
        for prefix in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            made += [route(f"{prefix}/infer", self.infer, "POST")]
        made += [
            route("/", self.page), route("/openapi.json", self.openapi), route("/metrics", self.prometheus),
            route("/v2", self.server_metadata), route("/v2/health/live", self.live),
            route("/v2/health/ready", self.is_ready), route("/v2/models/stats", self.stats),
            route("/v2/repository/index", self.index, "POST"),
            route("/v2/repository/models/{name}/load", self.load, "POST"),
            route("/v2/repository/models/{name}/unload", self.unload, "POST"),
        ]  # fmt: skip
        for prefix in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            made += [
                route(f"{prefix}/ready", self.model_ready), route(f"{prefix}/stats", self.stats),
                route(f"{prefix}/config", self.config), route(prefix, self.model_metadata),
            ]  # fmt: skip
        return made


class _Endpoint:
    """A route as ASGI: checks the key, answers, counts, and turns errors into answers."""

    def __init__(self, server: Server, answers: Answers, name: str) -> None:
        self._server, self._answers, self._name = server, answers, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, server = time.perf_counter(), self._server
        call = Call(scope, receive, server.budget)
        try:
            self._check_key(call)
            reply = await self._answers(call)
        except Refused as error:
            reply = refused(error)
        except Gone:
            server.metrics.count(self._name, 499)
            return
        except Exception as error:
            answer = refusal(error)
            if answer.status == 500:
                log.exception("a request failed", extra={"path": scope["path"]})
            reply = refused(answer)
        finally:
            call.release()
        await reply.send(send)
        took = time.perf_counter() - started
        server.metrics.count(self._name, reply.status)
        if self._name == "infer":
            server.metrics.seconds.observe(took)
        if request_log.isEnabledFor(logging.INFO):
            request_log.info(
                "request",
                extra={
                    "path": scope["path"],
                    "status": reply.status,
                    "ms": round(took * 1e3, 3),
                    "client": _client(scope),
                },
            )

    def _check_key(self, call: Call) -> None:
        key = self._server.settings.key
        if key and call.scope["path"] not in _OPEN:
            given = call.header(b"authorization") or b""
            if not hmac.compare_digest(given, b"Bearer " + key.encode()):
                raise Refused(
                    401, "this server needs a key: send the header 'Authorization: Bearer KEY'",
                    [(b"www-authenticate", b"Bearer")],
                )  # fmt: skip


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


async def _not_found(request: StarletteRequest, error: Exception) -> JSONResponse:
    """404 and 405 of paths that no route has."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    what = {404: f"there is no path {request.url.path!r:.200}", 405: f"the method {request.method} is not allowed here"}
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return JSONResponse({"error": what.get(status, str(error))}, status, headers)


def application(sources: Sequence[Path], settings: Settings) -> Any:
    """The ASGI application that serves these files and folders. Its lifespan loads and frees the models."""
    made = Server(Repository(sources, settings))

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        working = asyncio.create_task(made.work())
        try:
            yield
        finally:
            made.ready = False
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
            await made.repository.close()

    app = Starlette(routes=made.routes(), lifespan=lifespan, exception_handlers={HTTPException: _not_found})
    app.state.server = made
    return app
