"""Who is at the door: signatures over the raw bytes, rotation, freshness, nonces, and junk in each of their headers."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.door import Door
from tests.support.senders import Sender, Text, as_bytes, changed, hmac_signature, new_secret, without
from tests.support.street import Street

INVALID: Final = (401, "signature-invalid")
MISSING: Final = (401, "signature-missing")
OUTSIDE: Final = (401, "timestamp-outside-window")

UNUSUAL: Final[dict[str, Callable[[bytes], bytes]]] = {
    "tabs between members": lambda body: body.replace(b", ", b",\t\t"),
    "reversed keys": lambda body: as_bytes(dict(reversed(list(_value(body).items())))),
    "an escaped é": lambda body: body.replace(b'"requested_by": "dana"', b'"requested_by": "dan\\u00e9"'),
    "an é as it is": lambda body: body.replace(b'"requested_by": "dana"', '"requested_by": "dané"'.encode()),
    "an escaped slash": lambda body: body.replace(b'"/shop"', b'"\\/shop"'),
    "a trailing newline": lambda body: body + b"\r\n",
    "white space around": lambda body: b"\n\t " + body + b" ",
}


def _value(body: bytes) -> dict[str, object]:
    value: dict[str, object] = json.loads(body)
    return value


@pytest.mark.parametrize("spelling", UNUSUAL.values(), ids=UNUSUAL.keys())
async def test_the_bytes_as_they_came_are_what_is_verified(
    door: Door, street: Street, spelling: Callable[[bytes], bytes]
) -> None:
    """W01: whatever the spelling of the JSON, a right signature over it passes."""
    plain = as_bytes(street.shop.placed())
    body = spelling(plain)
    assert body != plain
    assert (await door.post(body, street.shop)).told == (202, "new")


@pytest.mark.parametrize("altered", [b" ", b"\n"])
async def test_one_byte_added_after_signing_is_refused(door: Door, street: Street, altered: bytes) -> None:
    """W01: also where the JSON means the same."""
    body = as_bytes(street.shop.placed())
    assert (await door.send(body + altered, street.shop.headers(body))).told == INVALID


JUNK_SIGNATURES: Final[dict[str, Text]] = {
    "a Latin-1 byte": b"v1,\xe9",
    "only a Latin-1 byte": b"\xe9",
    "junk": b"\x80\xff\xfe;,;",
    "10 KB": "v1," + "A" * 10_000,
    "no value": "v1,",
    "an equals sign": "v1=",
    "no comma": "v1",
    "only a comma": ",",
    "a hash in hex": "v1," + "0a" * 32,
    "hex of odd length": "v1," + "0a" * 31 + "0",
    "upper-case hex": "v1," + "0A" * 32,
    "base64 of too little": "v1,AAAA",
    "not base64": "v1,****",
    "base64 without padding": "v1," + "A" * 43,
    "another version": "v2," + "A" * 43 + "=",
    "quotes": '"v1,AAAA"',
    "many spaces": "v1,AAAA" + " " * 500 + "v1,AAAA",
}


@pytest.mark.parametrize("signature", JUNK_SIGNATURES.values(), ids=JUNK_SIGNATURES.keys())
async def test_junk_as_a_signature_is_refused(door: Door, street: Street, signature: Text) -> None:
    """W02: with 401, whatever bytes it is made of."""
    assert (await door.post(street.shop.placed(), street.shop, signature=signature)).told == INVALID


@pytest.mark.parametrize("signature", ["", " "])
async def test_an_empty_signature_is_refused(door: Door, street: Street, signature: str) -> None:
    """W02: an empty header is none."""
    answer = await door.post(street.shop.placed(), street.shop, signature=signature)
    assert answer.told in (MISSING, INVALID)


@pytest.mark.parametrize("junk", [b"\xe9", b"\x80\xff", "x" * 10_000, "🍵".encode(), "a.b"], ids=repr)
async def test_junk_as_an_id_is_no_fault_of_ours(door: Door, street: Street, junk: Text) -> None:
    """W02: the nonce is a header like the others; a signature over it may pass, or it is refused."""
    body = as_bytes(street.shop.placed())
    second = str(int(time.time()))
    signature = street.shop.sign(junk, second, body)
    headers = changed(street.shop.headers(body, stamp=second), webhook_id=junk, webhook_signature=signature)
    assert (await door.send(body, headers)).status in (202, 401, 431, 400)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
async def test_a_delivery_that_lacks_a_header_is_refused(door: Door, street: Street, name: str) -> None:
    """W02, W04: as missing, whichever of the three it is."""
    body = as_bytes(street.shop.placed())
    assert (await door.send(body, without(street.shop.headers(body), name))).told == MISSING


Candidates = Callable[[str, str, bytes, Street], str]

SEVERAL: Final[dict[str, tuple[Candidates, int]]] = {
    "a bad one, then the new secret's": (lambda *of: f"{_bad(*of)} {_new(*of)}", 202),
    "the new secret's, then a bad one": (lambda *of: f"{_new(*of)} {_bad(*of)}", 202),
    "the old secret's, which is still good": (lambda *of: _old(*of), 202),
    "the retired secret's": (lambda *of: _retired(*of), 401),
    "the retired secret's and a bad one": (lambda *of: f"{_retired(*of)} {_bad(*of)}", 401),
    "junk, then the new secret's": (lambda *of: f"v1,* {_new(*of)}", 202),
    "of another version, then the new secret's": (lambda *of: f"v9,AAAA {_new(*of)}", 202),
    "the right bytes under another version": (lambda *of: _new(*of).replace("v1,", "v1a,"), 401),
}


def _bad(webhook_id: str, stamp: str, body: bytes, street: Street) -> str:
    return hmac_signature(new_secret(), webhook_id, stamp, body)


def _new(webhook_id: str, stamp: str, body: bytes, street: Street) -> str:
    return street.shop.sign(webhook_id, stamp, body)


def _old(webhook_id: str, stamp: str, body: bytes, street: Street) -> str:
    return hmac_signature(street.old_secret, webhook_id, stamp, body)


def _retired(webhook_id: str, stamp: str, body: bytes, street: Street) -> str:
    return hmac_signature(street.retired_secret, webhook_id, stamp, body)


@pytest.mark.parametrize(("candidates", "status"), SEVERAL.values(), ids=SEVERAL.keys())
async def test_any_one_signature_of_a_living_secret_is_enough(
    door: Door, street: Street, candidates: Candidates, status: int
) -> None:
    """W03: two secrets are good while one replaces the other; one that has ended is not."""
    event = street.shop.placed()
    body, second, number = as_bytes(event), str(int(time.time())), f"msg_{event['id']}"
    signature = candidates(number, second, body, street)
    answer = await door.post(body, street.shop, webhook_id=number, stamp=second, signature=signature)
    assert answer.told == ((202, "new") if status == 202 else INVALID)


async def test_a_thousand_candidates_are_refused_quickly(door: Door, street: Street) -> None:
    """W03: the header is cut off by its size, or candidates are capped; that the last one is good does not count."""
    body, second = as_bytes(street.shop.placed()), str(int(time.time()))
    good = _new("msg_1", second, body, street)
    bad = " ".join([_bad("msg_1", second, body, street)] * 999)
    began = time.monotonic()
    for many in (f"{bad} {good}", " ".join(["v1,AA"] * 999 + [good])):
        answer = await door.post(body, street.shop, webhook_id="msg_1", stamp=second, signature=many)
        assert answer.status in (401, 431, 400)
    assert time.monotonic() - began < 2


async def test_an_ed25519_signature_is_as_good(door: Door, street: Street) -> None:
    """Issue 4: `v1a`, beside candidates of other kinds."""
    body, second = as_bytes(street.kiosk.placed()), str(int(time.time()))
    assert (await door.post(body, street.kiosk)).told == (202, "new")
    good = street.kiosk.sign("msg_2", second, body)
    several = f"v1,AAAA v1a,AAAA {good}"
    assert (await door.post(body, street.kiosk, webhook_id="msg_2", stamp=second, signature=several)).status == 200
    assert (await door.post(body, Sender("kiosk", "/kiosk", Ed25519PrivateKey.generate()))).told == INVALID


@pytest.mark.parametrize(("age", "good"), [(-280, True), (-305, False), (50, True), (80, False), (290, False)])
async def test_a_delivery_is_good_for_five_minutes_and_a_minute_ahead(
    door: Door, street: Street, age: int, good: bool
) -> None:
    """W04: both sides of the window; the exact second is tested without a clock that runs (tests/unit)."""
    answer = await door.post(street.shop.placed(), street.shop, stamp=int(time.time()) + age)
    assert answer.told == ((202, "new") if good else OUTSIDE)


def _stamps() -> dict[str, Callable[[int], Text]]:
    arabic = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
    return {
        "with an exponent": lambda now: "1e9",
        "with letters behind": lambda now: f"{now}abc",
        "with a plus": lambda now: f"+{now}",
        "negative": lambda now: "-1",
        "not a number": lambda now: "NaN",
        "in milliseconds": lambda now: f"{now}000",
        "with a fraction": lambda now: f"{now}.0",
        "with an underscore": lambda now: f"{str(now)[:5]}_{str(now)[5:]}",
        "in hex": lambda now: hex(now),
        "with leading zeros": lambda now: f"000000000{now}",
        "in Arabic digits": lambda now: str(now).translate(arabic),
        "with a byte of junk": lambda now: b"\xe9%d" % now,
        "of 5000 digits": lambda now: "9" * 5000,
        "a date": lambda now: "Thu, 01 Jan 2026 00:00:00 GMT",
    }


@pytest.mark.parametrize("stamp", _stamps().values(), ids=_stamps().keys())
async def test_a_timestamp_is_a_plain_number_of_seconds(
    door: Door, street: Street, stamp: Callable[[int], Text]
) -> None:
    """W04: rightly signed or not, anything else is refused with 401."""
    body, text = as_bytes(street.shop.placed()), stamp(int(time.time()))
    signature = street.shop.sign("msg_1", text, body)
    headers = changed(
        street.shop.headers(body, webhook_id="msg_1"), webhook_timestamp=text, webhook_signature=signature
    )
    assert (await door.send(body, headers)).status == 401


async def test_an_empty_timestamp_is_refused(door: Door, street: Street) -> None:
    """W04: it counts as missing or as wrong."""
    answer = await door.post(street.shop.placed(), street.shop, stamp="")
    assert answer.told in (MISSING, INVALID)


async def test_white_space_around_a_timestamp_is_none_of_it(door: Door, street: Street) -> None:
    """W04: HTTP itself takes it away before anybody compares, so that what was signed is the number."""
    body, second = as_bytes(street.shop.placed()), str(int(time.time()))
    headers = street.shop.headers(body, stamp=second)
    assert (await door.send(body, changed(headers, webhook_timestamp=f" {second}"))).told == (202, "new")
    signed_with_it = street.shop.headers(body, stamp=f" {second}")
    assert (await door.send(body, signed_with_it)).status == 401


async def test_an_unsigned_delivery_is_not_even_read(door: Door, street: Street) -> None:
    """W09: 401, where reading would have said 400, or died."""
    deep = b"[" * 20_000
    assert (await door.send(deep, [("content-type", "application/cloudevents+json")])).told == MISSING
    assert (await door.send(deep, [("content-type", "text/plain")])).told == MISSING
    assert (await door.send(deep, street.shop.headers(b"{}"))).told == INVALID


async def test_what_is_signed_is_refused_for_its_media_type_before_its_content(door: Door, street: Street) -> None:
    """W09: the order of the steps is the order of DESIGN section 8."""
    assert (await door.post(b"[" * 20_000, street.shop, media_type="text/plain")).status == 415
    other = street.market.placed(source="/elsewhere", data__total_minor=1)
    assert (await door.post(other, street.market)).told == (422, "invalid-order")
    assert (await door.post(street.market.placed(source="/elsewhere"), street.market)).status == 403


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
async def test_a_header_that_comes_twice_is_refused_in_either_order(door: Door, street: Street, name: str) -> None:
    """W11: nothing depends on which of the two is taken."""
    other = {"webhook-id": "msg_2", "webhook-timestamp": str(int(time.time()) - 7), "webhook-signature": "v1,AAAA"}
    told = []
    for place in (0, 3):
        body = as_bytes(street.shop.placed())
        headers = street.shop.headers(body)
        headers.insert(place, (name, other[name]))
        told.append((await door.send(body, headers)).told)
    assert told[0] == told[1]
    assert told[0][0] in (400, 401)


async def test_no_header_chooses_the_secret(door: Door, street: Street) -> None:
    """W11: whoever says they are somebody else stays who signed."""
    names = ["x-caller", "x-orderflow-caller", "webhook-key", "x-webhook-id", "svix-id", "authorization"]
    body = as_bytes(street.shop.placed())
    claims = [(name, "market") for name in names]
    assert (await door.send(body, [*claims, *street.shop.headers(body)])).told == (202, "new")
    stranger = Sender("shop", "/shop")
    claimed = [(name, "shop") for name in names]
    assert (await door.send(body, [*claimed, *stranger.headers(body)])).told == INVALID


async def test_a_delivery_that_is_sent_again_as_it_was_is_a_replay(doors: tuple[Door, Door], street: Street) -> None:
    """W05: at this door and at another one over the same ledger; while a delivery of its own stays welcome."""
    body = as_bytes(street.shop.placed())
    captured = street.shop.headers(body, stamp=int(time.time()) + 50)
    assert (await doors[0].send(body, captured)).told == (202, "new")
    again = await asyncio.gather(*(door.send(body, captured) for door in doors))
    assert [answer.told for answer in again] == [(409, "replayed")] * 2
    assert (await doors[1].post(body, street.shop)).told == (200, "duplicate")


async def test_a_nonce_is_not_used_up_by_somebody_else(door: Door, street: Street) -> None:
    """DESIGN 8: it is the pair with the caller, and a repeated webhook-id alone is a retry, no replay."""
    second = int(time.time())
    for sender in (street.shop, street.kiosk):
        assert (await door.post(sender.placed(), sender, webhook_id="msg_same", stamp=second)).told == (202, "new")
    event = street.shop.placed()
    told = [(await door.post(event, street.shop, webhook_id="msg_other", stamp=second - age)).told for age in (1, 2)]
    assert told == [(202, "new"), (200, "duplicate")]
