"""The server's log: one JSON object a line, for machines, or one line of text, for people."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a call of the log gave as `extra`."""
    return {key: value for key, value in vars(record).items() if key not in _USUAL}


class JsonFormatter(logging.Formatter):
    """{"time", "level", "event", ...}."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """TIME EVENT field=value ..."""

    def format(self, record: logging.LogRecord) -> str:
        words = [f"{key}={value}" for key, value in _fields(record).items() if value not in ("", [])]
        line = " ".join([time.strftime("%H:%M:%S", time.localtime(record.created)), record.getMessage(), *words])
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def configure(form: str, requests: bool) -> None:
    """Sends the server's log to stderr. form: "json" or "text". requests: whether to log each request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    for name in ("linnet.serve", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == "linnet.serve" else logging.WARNING)
    logging.getLogger("linnet.serve.requests").setLevel(logging.INFO if requests else logging.ERROR)


def warn(event: str, **fields: Any) -> None:
    """A warning in the server's log."""
    logging.getLogger("linnet.serve").warning(event, extra=fields)
