"""The description of the HTTP interface, as OpenAPI 3.1: what clients are generated from, and what the tests of hostile
requests read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from linnet.clib.version import __version__
from linnet.serve.settings import Settings
from linnet.serve.tensors import DATATYPES

_ERROR = {
    "type": "object", "required": ["error"], "properties": {"error": {"type": "string"}},
}  # fmt: skip
_TENSOR_DATA = {"type": "array", "items": {}, "description": "the values, flat or nested, in row-major order"}
_PARAMETERS = {"type": "object", "additionalProperties": True}


def _tensor(data: bool) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["name", "shape", "datatype"],
        "properties": {
            "name": {"type": "string"},
            "shape": {"type": "array", "maxItems": 32, "items": {"type": "integer", "minimum": 0}},
            "datatype": {"type": "string", "enum": list(DATATYPES.values())},
            "parameters": _PARAMETERS,
            **({"data": _TENSOR_DATA} if data else {}),
        },
    }


_REQUEST = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": {
            "type": "object",
            "properties": {
                "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "microseconds"},
                "binary_data_output": {"type": "boolean"},
            },
        },
        "inputs": {"type": "array", "items": {"$ref": "#/components/schemas/tensor"}},
        "outputs": {
            "type": "array",
            "items": {
                "type": "object", "required": ["name"],
                "properties": {"name": {"type": "string"}, "parameters": _PARAMETERS},
            },
        },
    },
}  # fmt: skip
_ANSWER = {
    "type": "object",
    "required": ["model_name", "model_version", "outputs"],
    "properties": {
        "id": {"type": "string"}, "model_name": {"type": "string"}, "model_version": {"type": "string"},
        "parameters": _PARAMETERS,
        "outputs": {"type": "array", "items": {"$ref": "#/components/schemas/tensor"}},
    },
}  # fmt: skip
_ERRORS = {
    400: "The request is wrong; the error says what.",
    401: "The key is missing or wrong.",
    404: "There is no such model or version.",
    408: "The body did not arrive in time.",
    413: "The body, or what the run would need, is too large.",
    415: "The model takes no photo or sound, or the content encoding is not supported.",
    429: "Too many requests wait; try again later.",
    503: "The model is not ready.",
    504: "The deadline passed before the answer was ready.",
}


def _response(text: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _errors(codes: Iterable[int]) -> dict[str, Any]:
    reference = {"$ref": "#/components/schemas/error"}
    return {str(code): _response(_ERRORS[code], reference) for code in (*codes, 401)}


def _operation(text: str, schema: Any, codes: Iterable[int] = (), **more: Any) -> dict[str, Any]:
    return {"summary": text, "responses": {"200": _response(text, schema), **_errors(codes)}, **more}


def _body(schema: Any, required: bool, **others: Any) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}, **others}}}


def description(settings: Settings) -> dict[str, Any]:
    """The OpenAPI document of a server with these settings."""
    any_object = {"type": "object"}
    binary = {"schema": {"type": "string", "format": "binary"}}
    infer = _operation(
        "Run a model once", {"$ref": "#/components/schemas/answer"}, (400, 404, 408, 413, 415, 429, 503, 504),
        **_body({"$ref": "#/components/schemas/request"}, True, **{"image/*": binary, "audio/*": binary}),
    )  # fmt: skip
    asked = _body(any_object, False)
    paths: dict[str, Any] = {
        "/v2": {"get": _operation("Name, version and extensions of the server", any_object)},
        "/v2/health/live": {"get": _operation("Whether the server runs", any_object)},
        "/v2/health/ready": {
            "get": _operation("Whether all models were tried and the server answers", any_object, (503,))
        },
        "/v2/models/stats": {"get": _operation("Statistics of all models", any_object)},
        "/v2/repository/index": {
            "post": _operation(
                "The models and their states", {"type": "array", "items": any_object}, (400, 408, 413), **asked
            )
        },
        "/metrics": {
            "get": {
                "summary": "Metrics for Prometheus",
                "responses": {"200": {"description": "text", "content": {"text/plain": {}}}, **_errors(())},
            }
        },
    }
    for action in ("load", "unload"):
        paths[f"/v2/repository/models/{{name}}/{action}"] = {
            "parameters": [_in_path("name")],
            "post": _operation(f"{action.title()} a model", any_object, (400, 404, 408, 413), **asked),
        }
    for prefix in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        names = [_in_path(name) for name in ("name", "version") if "{" + name + "}" in prefix]
        for path, method, operation in (
            ("", "get", _operation("Inputs and outputs", any_object, (404, 503))),
            ("/ready", "get", _operation("Whether the model answers", any_object, (404, 503))),
            ("/config", "get", _operation("The configuration as Triton's clients read it", any_object, (404, 503))),
            ("/stats", "get", _operation("Statistics", any_object, (404,))),
            ("/infer", "post", infer),
        ):
            paths[prefix + path] = {"parameters": names, method: operation}
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "linnet serve", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"error": _ERROR, "tensor": _tensor(True), "request": _REQUEST, "answer": _ANSWER},
        },
    }
    if settings.key:
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": list[str]()}]
    return made


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
