"""The OpenAPI 3.1 document of the door, made of the models and the table of refusals that the door itself uses.

`python -m orderflow.ingress.openapi` prints it; the repository keeps a copy at docs/openapi.json.
"""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import orderflow
from orderflow.domain.deliveries import MAX_EVENT_BYTES, MEDIA_TYPE, TYPE_PREFIX, Cause
from orderflow.domain.events import OrderEvent
from orderflow.domain.orders import Reason
from orderflow.ingress.answers import MEANINGS, PROBLEM

Schema = dict[str, Any]

_NOT_OF_EVENTS: Final = frozenset({Cause.NOT_FOUND, Cause.METHOD_NOT_ALLOWED, Cause.TOKEN_INVALID})
_OF_ORDERS: Final = (Cause.TOKEN_INVALID, Cause.NOT_FOUND, Cause.UNAVAILABLE)
_SCHEMAS: Final = "#/components/schemas/"


@cache
def document() -> Schema:
    """Give the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "orderflow",
            "version": orderflow.__version__,
            "summary": "Signed order events in; what became of them out.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": {
            "/v1/events": {"post": _events()},
            "/v1/orders/{order}": {"get": _orders()},
            "/livez": {"get": _probe("livez", "Whether the process answers", {"200": _json("Alive", "Liveness")})},
            "/readyz": {
                "get": _probe(
                    "readyz",
                    "Whether ledger and Temporal answer",
                    {"200": _json("Ready", "Readiness"), "503": _json("Not ready", "Readiness")},
                )
            },
            "/openapi.json": {"get": _probe("openapi", "This document", {"200": _json("OpenAPI 3.1", None)})},
        },
        "components": {"schemas": _schemas(), "securitySchemes": _security()},
    }


def _events() -> Schema:
    return {
        "operationId": "deliverEvent",
        "summary": "Deliver one event; safe to repeat until it is answered with 200 or 202",
        "description": f"A structured CloudEvent of at most {MAX_EVENT_BYTES} bytes, signed as Standard Webhooks says.",
        "security": [{"signature": []}],
        "parameters": [
            _header("webhook-id", "Names this delivery; the same when it is repeated.", {"type": "string"}),
            _header(
                "webhook-timestamp",
                "When this attempt was signed, in Unix seconds.",
                {"type": "string", "pattern": "^[0-9]{1,12}$"},
            ),
        ],
        "requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}OrderEvent"}}}},
        "responses": {
            "202": _json("The order was started", "Taken"),
            "200": _json("The event came before, and stands for this order", "Taken"),
            **_refusals(cause for cause in Cause if cause not in _NOT_OF_EVENTS),
        },
    }


def _orders() -> Schema:
    return {
        "operationId": "readOrder",
        "summary": "Where an order stands that this caller placed",
        "security": [{"token": []}],
        "parameters": [{"name": "order", "in": "path", "required": True, "schema": {"type": "string"}}],
        "responses": {"200": _json("Where it stands", "OrderStanding"), **_refusals(_OF_ORDERS)},
    }


def _probe(operation: str, summary: str, responses: Schema) -> Schema:
    return {"operationId": operation, "summary": summary, "security": [], "responses": responses}


def _header(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": True, "description": description, "schema": schema}


def _json(description: str, model: str | None) -> Schema:
    schema = {"$ref": _SCHEMAS + model} if model else {"type": "object"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _refusals(causes: Iterable[Cause]) -> Schema:
    """One response for each status, with the `type` of each cause that it stands for."""
    by_status: dict[int, list[Cause]] = {}
    for cause in causes:
        by_status.setdefault(MEANINGS[cause].status, []).append(cause)
    return {str(status): _refusal(status, by_status[status]) for status in sorted(by_status)}


def _refusal(status: int, causes: list[Cause]) -> Schema:
    types = {"enum": [TYPE_PREFIX + cause for cause in causes]}
    narrowed = {"allOf": [{"$ref": f"{_SCHEMAS}Problem"}, {"properties": {"type": types, "status": {"const": status}}}]}
    response: Schema = {
        "description": "; ".join(MEANINGS[cause].title for cause in causes),
        "content": {PROBLEM: {"schema": narrowed}},
    }
    headers = {}
    if status in {429, 503}:
        headers["Retry-After"] = {"required": True, "schema": {"type": "string", "pattern": "^[0-9]+$"}}
    if status == 401:
        headers["WWW-Authenticate"] = {"required": True, "schema": {"type": "string"}}
    return response | ({"headers": headers} if headers else {})


def _schemas() -> Schema:
    event = OrderEvent.model_json_schema(ref_template=_SCHEMAS + "{model}")
    parts = event.pop("$defs")
    text = {"type": "string"}
    return {
        "OrderEvent": event,
        **parts,
        "Taken": _object(
            {"order": {"type": "string", "pattern": "^order-[0-9a-f]{32}$"}, "duplicate": {"type": "boolean"}}
        ),
        "OrderStanding": _object(
            {
                "order": text,
                "stage": {
                    "type": "string",
                    "description": "a stage; `received` before its start; `terminated` or `timed_out` when Temporal"
                    " ended it; `unknown` when nobody knows any more",
                },
                "reason": {"enum": [*Reason, None]},
                "final": {"type": "boolean"},
            }
        ),
        "Problem": {
            **_object({"type": text, "title": text, "status": {"type": "integer"}, "detail": text}),
            "description": "RFC 9457",
            "properties": {
                "type": text,
                "title": text,
                "status": {"type": "integer"},
                "detail": text,
                "problems": {"type": "array", "minItems": 1, "items": _object({"path": text, "message": text})},
            },
        },
        "Liveness": _object({"status": {"const": "alive"}}),
        "Readiness": _object(
            {
                "status": {"enum": ["ready", "not ready"]},
                "checks": {"type": "object", "additionalProperties": text},
            }
        ),
    }


def _object(properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _security() -> Schema:
    return {
        "signature": {
            "type": "apiKey",
            "in": "header",
            "name": "webhook-signature",
            "description": "Standard Webhooks: `v1,` with HMAC-SHA256 or `v1a,` with Ed25519 over id, timestamp, body.",
        },
        "token": {"type": "http", "scheme": "bearer"},
    }


if __name__ == "__main__":
    print(json.dumps(document(), indent=2))
