"""Refusals on the wire: one status each, problem documents, and a document that says so."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from orderflow.domain.deliveries import TYPE_PREFIX, Cause, DeliveryRefused
from orderflow.domain.errors import Problem
from orderflow.ingress.answers import MEANINGS, PROBLEM, problem
from orderflow.ingress.openapi import document
from tests.order_events import event

KEPT = Path(__file__).parents[2] / "docs" / "openapi.json"


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_has_one_status_and_none_is_a_500(cause: Cause) -> None:
    """W02, O01: one table, complete; the only server error asks to come again."""
    assert MEANINGS[cause].status in {400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 503}


@pytest.mark.parametrize("cause", Cause)
def test_a_refusal_is_a_problem_document_of_the_shape_that_the_openapi_document_gives(cause: Cause) -> None:
    """W09: what a sender's program branches on is the type; status and title belong to it."""
    refused = DeliveryRefused(cause, "a sentence", problems=(Problem("$.id", "is missing"),), retry_after=0.2)
    response = problem(refused)
    told = json.loads(bytes(response.body))
    schema = {**document()["components"]["schemas"]["Problem"], "$defs": {}}
    Draft202012Validator(schema).validate(told)
    assert told["type"] == TYPE_PREFIX + cause
    assert (response.status_code, response.media_type) == (told["status"], PROBLEM)
    assert response.headers["retry-after"] == "1"
    assert ("www-authenticate" in response.headers) is (response.status_code == 401)
    assert response.headers["cache-control"] == "no-store"


def test_the_kept_openapi_document_is_the_one_that_is_served() -> None:
    """W12: `python -m orderflow.ingress.openapi > docs/openapi.json` makes it anew."""
    assert json.loads(KEPT.read_text("utf-8")) == json.loads(json.dumps(document()))


def test_the_openapi_document_names_each_cause_at_the_status_that_it_has() -> None:
    """W09: nobody has to find a refusal out by meeting it."""
    named = set()
    for path in document()["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                schema = response["content"].get(PROBLEM, {}).get("schema", {"allOf": [{}, {}]})
                types = schema["allOf"][1].get("properties", {}).get("type", {"enum": []})["enum"]
                named |= {(name.removeprefix(TYPE_PREFIX), int(status)) for name in types}
    assert named == {(cause.value, MEANINGS[cause].status) for cause in Cause if cause is not Cause.METHOD_NOT_ALLOWED}


def test_the_shipped_example_fits_the_schema_of_events() -> None:
    """C06: what is documented is what is taken."""
    schemas = document()["components"]["schemas"]
    schema = {"$ref": "#/components/schemas/OrderEvent", "components": {"schemas": schemas}}
    Draft202012Validator(schema).validate(event())
