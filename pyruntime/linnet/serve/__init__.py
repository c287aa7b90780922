"""Serves models over HTTP by the KServe v2 protocol, as an ASGI application. The command is `linnet serve`.
docs/serving.md describes it; the extra `serve` installs what it needs."""
