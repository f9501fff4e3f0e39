"""Questions to the door: a caller's own orders, and nothing personal in any answer or log line."""

import json
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from tests.support.door import Door
from tests.support.senders import CANARIES, Text, as_bytes
from tests.support.street import Street

NOT_FOUND: Final = (404, "not-found")
TOKEN_INVALID: Final = (401, "token-invalid")
NOBODYS: Final = "order-" + "0" * 32


async def _placed(door: Door, street: Street) -> str:
    return (await door.post(street.shop.placed(), street.shop)).order


async def test_a_caller_sees_where_its_own_order_stands(door: Door, street: Street) -> None:
    """Issue 4: stage and reason, whether it stays so, and nothing else."""
    order = await _placed(door, street)
    answer = await door.order(order, street.shop)
    assert answer.status == 200
    assert answer.json == {"order": order, "stage": "running", "reason": None, "final": False}
    assert answer.headers["cache-control"] == "no-store"


async def test_the_orders_of_others_are_as_unknown_as_none(door: Door, street: Street) -> None:
    """DESIGN 8: the answer to a guess is the same to the byte, whether there is such an order or not."""
    order = await _placed(door, street)
    others = [await door.order(order, sender) for sender in (street.market, street.kiosk, street.anyone)]
    nobodys = await door.order(NOBODYS, street.shop)
    assert [answer.told for answer in (*others, nobodys)] == [NOT_FOUND] * 4
    assert {answer.body for answer in others} == {nobodys.body}


@pytest.mark.parametrize(
    "order",
    [
        "order-", "x", "order-" + "0" * 31, "order-" + "0" * 33, "ORDER-" + "0" * 32, "order-" + "g" * 32, "%00", "%ff",
        "..%2f..%2fetc%2fpasswd", "order-0'%20OR%201=1", "%F0%9F%8D%B5", "a" * 4000, "order-" + "0" * 32 + "%0a",
        "?x=1", "temporal-sys-scheduler", "reconcile", ";", "%", "%zz",
    ],
)  # fmt: skip
async def test_a_name_that_is_no_orders_is_not_found(door: Door, street: Street, order: str) -> None:
    """Issue 4: junk of any kind, 404 and no 5xx."""
    answer = await door.ask(f"/v1/orders/{order}", street.shop.token)
    assert answer.told == NOT_FOUND


@pytest.mark.parametrize(
    "token",
    ["x", "", " ", "a" * 10_000, b"\xe9", b"\xff\xfe", "🍵", "null", "' OR 1=1", "Bearer x", "\t", "a,b"],
    ids=lambda token: repr(token)[:20],
)
async def test_a_wrong_token_is_refused(door: Door, street: Street, token: Text) -> None:
    """Issue 4: 401 with a challenge, whatever bytes it is made of; 431 or 400 for what is no header any more."""
    answer = await door.ask(f"/v1/orders/{await _placed(door, street)}", token)
    assert answer.told == TOKEN_INVALID
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_token_is_one_header_of_one_scheme(door: Door, street: Street) -> None:
    """Issue 4: none, two, another scheme, or in the query: all 401; the scheme has no case."""
    target = f"/v1/orders/{await _placed(door, street)}"
    right = f"Bearer {street.shop.token}"
    refused: list[list[tuple[Text, Text]]] = [
        [],
        [("authorization", right), ("authorization", right)],
        [("authorization", right), ("authorization", "Bearer x")],
        [("authorization", f"Basic {street.shop.token}")],
        [("authorization", street.shop.token)],
        [("authorization", f"Bearer {street.shop.token}x")],
        [("authorization", f"Bearer {street.shop.token[:-1]}")],
        [("authorization", f"Bearer {street.shop.token.swapcase()}")],
        [("cookie", f"token={street.shop.token}")],
        [("x-forwarded-user", "shop")],
    ]
    for headers in refused:
        assert (await door.send(method="GET", target=target, headers=headers)).told == TOKEN_INVALID, headers
    in_query = await door.send(method="GET", target=f"{target}?access_token={street.shop.token}")
    assert in_query.told == TOKEN_INVALID
    for scheme in ("bearer", "BEARER", "Bearer"):
        taken = await door.send(
            method="GET", target=target, headers=[("authorization", f"{scheme} {street.shop.token}")]
        )
        assert taken.status == 200


async def test_a_signing_secret_is_no_token_and_a_token_signs_nothing(door: Door, street: Street) -> None:
    """DESIGN 8: each proves one thing."""
    order = await _placed(door, street)
    assert (await door.ask(f"/v1/orders/{order}", str(street.shop.secret))).told == TOKEN_INVALID
    body = as_bytes(street.shop.placed())
    headers = [("authorization", f"Bearer {street.shop.token}"), ("content-type", "application/cloudevents+json")]
    assert (await door.send(body, headers)).told == (401, "signature-missing")


async def test_a_refusal_repeats_nothing_of_what_it_refuses(door: Door, street: Street) -> None:
    """O01, issue 4: with canaries as values, wherever an event can hold them; names of members are named (C08)."""
    event = street.shop.placed()
    customer, email, note = CANARIES
    spoilt: list[Any] = [
        {**event, "id": email, "time": customer},
        {**event, "source": f"/{customer} {email}"},
        {**event, "type": email},
        {**event, "specversion": note},
        {**event, "data": email},
        {**event, "datacontenttype": customer},
        {**event, "data": {**event["data"], "currency": email, "total_minor": customer}},
        {**event, "data": {**event["data"], "customer": {"id": "", "email": note}}},
        {**event, "data": {**event["data"], "items": [{"sku": email + "\n", "quantity": note}]}},
        {**event, "data": {**event["data"], "note": customer * 100}},
        {**event, "data": {**event["data"], "total_minor": 1}},
        [event],
        as_bytes(event)[:-20],
        as_bytes(event) + as_bytes(event),
        as_bytes(event).replace(b'"total_minor": 3399', b'"total_minor": 1e999'),
    ]
    answers = [await door.post(value, street.shop) for value in spoilt]
    assert {answer.status for answer in answers} <= {400, 422, 403}, "each answer was searched for canaries"
    conflicting = await door.post(event, street.shop), await door.post({**event, "subject": email}, street.shop)
    assert [answer.status for answer in conflicting] == [202, 409]
    assert not [canary for canary in CANARIES if canary in door.child.said]


async def test_the_document_of_the_door_is_valid_and_kept_in_the_repository(door: Door) -> None:
    """Issue 4: OpenAPI 3.1; each schema in it is a JSON Schema."""
    document = (await door.ask("/openapi.json")).json
    assert document["openapi"].startswith("3.1.")
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert sorted(document["paths"]) == ["/livez", "/openapi.json", "/readyz", "/v1/events", "/v1/orders/{order}"]
    json.dumps(document)


@pytest.mark.parametrize("target", ["/livez", "/readyz", "/openapi.json"])
async def test_what_needs_no_proof_tells_no_secrets(door: Door, street: Street, target: str) -> None:
    """Issue 4: probes and document are for anybody on the network; no address, no caller, nothing of what is behind."""
    answer = await door.ask(target)
    assert answer.status == 200
    told = answer.body.decode()
    assert not [
        word for word in ("127.0.0.1", "/tmp", "postgres", street.shop.token, "market", "kiosk") if word in told
    ]
    assert "server" not in answer.headers
