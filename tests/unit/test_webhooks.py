"""Who signed a delivery: Standard Webhooks on the receiver's side, with the clock and the keys given."""

import base64
import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.domain.errors import InvalidInput
from orderflow.webhooks import (
    HEADERS,
    MAX_CANDIDATES,
    Signed,
    VerifyingKey,
    new_key_pair,
    new_secret,
    read_secret,
    signed_headers,
    verify,
)
from tests.support.webhooks import NOW, OTHER_SECRET, SECRET, WEBHOOK_ID, Headers, headers_of, key, replaced, said

GENUINE = Signed("shop", WEBHOOK_ID, int(NOW.timestamp()))
PAIR = new_key_pair()
UNAUTHENTIC = {Cause.SIGNATURE_MISSING, Cause.SIGNATURE_INVALID, Cause.TIMESTAMP_OUTSIDE_WINDOW}
BODIES = [
    b"{}",
    b"",
    b'\t{"b" :1,\r\n"a":\t"\\u00e9\\/"}\n',
    '{"é": "☃"}'.encode(),
    b"\xff\x00 not text",
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("pair", [(SECRET, SECRET), PAIR], ids=["v1", "v1a"])
def test_the_bytes_that_were_signed_are_taken_as_they_stand(body: bytes, pair: tuple[str, str]) -> None:
    """W01: neither spacing, order of keys nor escapes matter, and nothing has to be JSON."""
    assert said(headers_of(body, pair[0]), body, [key(pair[1])]) == GENUINE


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("pair", [(SECRET, SECRET), PAIR], ids=["v1", "v1a"])
def test_a_byte_added_after_signing_is_noticed(body: bytes, pair: tuple[str, str]) -> None:
    """W01: one space, at either end."""
    headers = headers_of(body, pair[0])
    assert said(headers, body + b" ", [key(pair[1])]) is Cause.SIGNATURE_INVALID
    assert said(headers, b" " + body, [key(pair[1])]) is Cause.SIGNATURE_INVALID


@pytest.mark.parametrize(
    "junk",
    [
        b"\xe9",
        b"v1,\xe9\xe9\xe9",
        b"v1a,\xe9",
        bytes(range(1, 256)),
        b"v1," + b"\xff" * 5_000,
        b"x" * 10_240,
        b"",
        b" ",
        b"v1",
        b"v1,",
        b"v1=",
        b"v1a,",
        b"v1,abc",
        b"v1," + b"AB" * 31 + b"A",
        b"V1,AAAA",
        b"v2,AAAA",
        b"v1," + b"A" * 44,
        b"v1a," + b"A" * 88,
        b"v1a," + base64.b64encode(bytes(64)),
        b"v1a," + base64.b64encode(bytes(63)),
    ],
)
def test_junk_for_a_signature_is_no_signature(junk: bytes) -> None:
    """W02: bytes that are not ASCII, not base64, too many or too few; with keys of either kind."""
    keys = [key(), key(PAIR[1], "mill")]
    assert said(replaced(headers_of(b"{}"), b"webhook-signature", junk), keys=keys) is Cause.SIGNATURE_INVALID


def test_a_signature_in_hex_is_not_taken_in_either_case() -> None:
    """W02: the policy is base64 with padding, the one form that the standard has."""
    raw = base64.b64decode(dict(headers_of(b"{}"))[b"webhook-signature"].removeprefix(b"v1,"))
    for text in (raw.hex().encode(), raw.hex().upper().encode(), base64.b64encode(raw).rstrip(b"=")):
        headers = replaced(headers_of(b"{}"), b"webhook-signature", b"v1," + text)
        assert said(headers) is Cause.SIGNATURE_INVALID


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*HEADERS, *(name.title() for name in HEADERS)]) | st.binary(max_size=20),
            st.binary(max_size=300) | st.sampled_from([value for _, value in headers_of(b"{}", SECRET, PAIR[0])]),
        ),
        max_size=6,
    ),
    st.binary(max_size=100),
)
def test_whatever_the_bytes_are_the_answer_is_a_refusal(headers: Headers, body: bytes) -> None:
    """W02: any other exception would be a 5xx for everybody who asks for one."""
    answer = said(headers, body, [key(), key(PAIR[1], "mill")])
    assert answer in UNAUTHENTIC or (body == b"{}" and isinstance(answer, Signed))


@given(
    st.sampled_from([b"webhook-id", b"webhook-timestamp", b"webhook-signature"]),
    st.binary(max_size=500),
    st.sampled_from([(SECRET, SECRET), PAIR]),
)
def test_any_bytes_in_one_header_of_a_genuine_delivery_are_refused(
    name: bytes, junk: bytes, pair: tuple[str, str]
) -> None:
    """W02: also where the other two are right."""
    genuine = headers_of(b"{}", pair[0])
    if junk != dict(genuine)[name]:
        assert said(replaced(genuine, name, junk), keys=[key(pair[1])]) in UNAUTHENTIC


@given(st.binary(max_size=2_000), st.from_regex(r"\A[!-\-/-~]{1,256}\Z"), st.integers(0, 10**11))
def test_what_was_signed_verifies(body: bytes, webhook_id: str, seconds: int) -> None:
    """Any body, any id that has the form, at any time, with either kind of key."""
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    for private, public in ((SECRET, SECRET), PAIR):
        headers = headers_of(body, private, now=now, webhook_id=webhook_id)
        assert said(headers, body, [key(public)], now) == Signed("shop", webhook_id, seconds)


@given(st.data(), st.binary(min_size=1, max_size=200), st.sampled_from([(SECRET, SECRET), PAIR]))
def test_any_flipped_bit_is_refused(data: st.DataObject, body: bytes, pair: tuple[str, str]) -> None:
    """W01: in the body or in any of the three headers; also the bits of base64 that stand for nothing."""
    genuine = headers_of(body, pair[0])
    parts = [body, *(value for _, value in genuine)]
    place = data.draw(st.integers(0, len(parts) - 1))
    bit = data.draw(st.integers(0, len(parts[place]) * 8 - 1))
    flipped = bytearray(parts[place])
    flipped[bit // 8] ^= 1 << bit % 8
    parts[place] = bytes(flipped)
    headers = [(name, value) for (name, _), value in zip(genuine, parts[1:], strict=True)]
    assert said(headers, parts[0], [key(pair[1])]) in UNAUTHENTIC


@pytest.mark.parametrize("pair", [(SECRET, SECRET), PAIR], ids=["v1", "v1a"])
def test_a_signature_has_one_form_only(pair: tuple[str, str]) -> None:
    """W01: every bit of it, and every other last character, which can stand for the same bytes in base64."""
    genuine = headers_of(b"{}", pair[0])
    value = dict(genuine)[b"webhook-signature"]
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
    ending = len(value.rstrip(b"=")) - 1
    others = {value[:ending] + bytes([last]) + value[ending + 1 :] for last in alphabet} - {value}
    for bit in range(len(value) * 8):
        flipped = bytearray(value)
        flipped[bit // 8] ^= 1 << bit % 8
        others.add(bytes(flipped))
    for other in others:
        assert said(replaced(genuine, b"webhook-signature", other), keys=[key(pair[1])]) is Cause.SIGNATURE_INVALID


def test_of_several_signatures_one_good_one_is_enough() -> None:
    """W03: old and new while a secret is changed, in either order, among versions that nobody knows."""
    for secrets in itertools.permutations((OTHER_SECRET, SECRET, PAIR[0])):
        for known in (SECRET, OTHER_SECRET, PAIR[1]):
            assert said(headers_of(b"{}", *secrets), keys=[key(known)]) == GENUINE
    good = dict(headers_of(b"{}"))[b"webhook-signature"]
    for beside in (b"v1,AAAA", b"v2,AAAA", b"", b"v1", b"v1a,AAAA", b"\xff"):
        for value in (b" ".join((good, beside)), b" ".join((beside, good))):
            assert said(replaced(headers_of(b"{}"), b"webhook-signature", value)) == GENUINE


def test_a_secret_counts_until_its_end_and_not_a_moment_longer() -> None:
    """W03: [bad, good(new)], [good(old)], [good(retired)]."""
    old, new = key(OTHER_SECRET, until=NOW + timedelta(seconds=1)), key(SECRET)
    assert said(headers_of(b"{}", new_secret(), SECRET), keys=[old, new]) == GENUINE
    assert said(headers_of(b"{}", OTHER_SECRET), keys=[old, new]) == GENUINE
    for ended in (NOW, NOW - timedelta(days=1)):
        retired = key(OTHER_SECRET, until=ended)
        assert said(headers_of(b"{}", OTHER_SECRET), keys=[retired, new]) is Cause.SIGNATURE_INVALID
        assert said(headers_of(b"{}", PAIR[0]), keys=[key(PAIR[1], until=ended)]) is Cause.SIGNATURE_INVALID


def test_more_signatures_than_anybody_needs_are_refused_before_any_is_tried() -> None:
    """W03: also with a good one among them; a thousand cost nothing."""
    good, bad = dict(headers_of(b"{}"))[b"webhook-signature"], b"v1,AAAA"
    for number, expected in ((MAX_CANDIDATES, GENUINE), (MAX_CANDIDATES + 1, Cause.SIGNATURE_INVALID)):
        value = b" ".join([*[bad] * (number - 1), good])
        assert said(replaced(headers_of(b"{}"), b"webhook-signature", value)) == expected
    thousand = replaced(headers_of(b"{}"), b"webhook-signature", b" ".join([good] * 1000))
    assert said(thousand) is Cause.SIGNATURE_INVALID


def test_costly_signatures_are_limited_to_those_of_one_change_of_keys() -> None:
    """W03: Ed25519 is thirty times the work of HMAC."""
    pairs = [new_key_pair() for _ in range(3)]
    for number, expected in ((2, GENUINE), (3, Cause.SIGNATURE_INVALID)):
        headers = headers_of(b"{}", *(private for private, _ in pairs[:number]))
        assert said(headers, keys=[key(pairs[1][1])]) == expected


def test_the_caller_is_whose_key_verifies_wherever_it_stands() -> None:
    """W11: nothing else chooses; a header that names another caller is just a header."""
    keys = [key(OTHER_SECRET, "mill"), key(SECRET, "shop"), key(PAIR[1], "farm")]
    claimed = [(b"x-caller", b"mill"), (b"webhook-caller", b"mill"), (b"authorization", b"Bearer mill")]
    for order in itertools.permutations(keys):
        for secret, caller in ((OTHER_SECRET, "mill"), (SECRET, "shop"), (PAIR[0], "farm")):
            answer = said([*claimed, *headers_of(b"{}", secret)], keys=order)
            assert isinstance(answer, Signed)
            assert answer.caller == caller


def test_signatures_of_two_callers_are_those_of_neither() -> None:
    """W11: who it is must not depend on the order of keys."""
    keys = [key(OTHER_SECRET, "mill"), key(SECRET, "shop")]
    for order in itertools.permutations(keys):
        for secrets in itertools.permutations((OTHER_SECRET, SECRET)):
            assert said(headers_of(b"{}", *secrets), keys=order) is Cause.SIGNATURE_INVALID
    both_of_one = [key(OTHER_SECRET, "shop"), key(SECRET, "shop")]
    assert said(headers_of(b"{}", OTHER_SECRET, SECRET), keys=both_of_one) == GENUINE


def test_without_keys_nothing_is_genuine() -> None:
    """W10: no secret is not "no check"."""
    assert said(headers_of(b"{}"), keys=[]) is Cause.SIGNATURE_INVALID


@pytest.mark.parametrize("name", HEADERS)
def test_each_header_must_be_there_once_whatever_the_others_say(name: bytes) -> None:
    """W11: missing, good then bad, bad then good, the same twice: one answer, and it names the header."""
    genuine = headers_of(b"{}")
    pair = next(pair for pair in genuine if pair[0] == name)
    upper = (name.upper(), b"1")
    cases = [
        [other for other in genuine if other != pair],
        [*genuine, pair],
        [*genuine, upper],
        [upper, *genuine],
        [*genuine, (name, b"")],
    ]
    for headers in cases:
        with pytest.raises(DeliveryRefused, match=name.decode()) as refused:
            verify(headers, b"{}", [key()], NOW)
        assert refused.value.cause is Cause.SIGNATURE_MISSING


def test_names_of_headers_are_the_same_in_any_case() -> None:
    """RFC 9110, section 5.1: HTTP/2 has them in lower case, others as they like."""
    for change in (bytes.upper, bytes.title, bytes.lower):
        assert said([(change(name), value) for name, value in headers_of(b"{}")]) == GENUINE


@pytest.mark.parametrize(
    ("age", "taken"), [(299, True), (300, True), (300.001, False), (301, False), (-59, True), (-60, True), (-61, False)]
)
@pytest.mark.parametrize("pair", [(SECRET, SECRET), PAIR], ids=["v1", "v1a"])
def test_a_delivery_is_taken_while_it_is_fresh(age: float, taken: bool, pair: tuple[str, str]) -> None:
    """W04: at most 300 s old and 60 s ahead, the two sides each with its own limit."""
    now = NOW + timedelta(seconds=age)
    answer = said(headers_of(b"{}", pair[0]), keys=[key(pair[1])], now=now)
    assert answer == (GENUINE if taken else Cause.TIMESTAMP_OUTSIDE_WINDOW)


SECONDS = str(int(NOW.timestamp()))


@pytest.mark.parametrize(
    "stamp",
    [
        "1e9", "123abc", f" {SECONDS}", f"{SECONDS} ", f"+{SECONDS}", f"-{SECONDS}", "-1", "NaN", "inf", "", " ",
        f"{SECONDS}000", f"{SECONDS}.0", f"{SECONDS}.", "0x6979a1c0", "1_769_860_800", "2026-01-31T12:00:00Z",
        f"{SECONDS}\n", "9" * 400, "١٧٦٩٨٦٠٨٠٠", f"{SECONDS},{SECONDS}",
    ],
)  # fmt: skip
def test_a_timestamp_is_decimal_seconds_and_nothing_else(stamp: str) -> None:
    """W04: each of these is truly signed, so that nothing but its form can be the reason."""
    assert said(headers_of(b"{}", timestamp=stamp.encode())) is Cause.SIGNATURE_INVALID


@pytest.mark.parametrize("stamp", ["0", "1", "999999999999", "000000000001"])
def test_a_number_far_away_is_out_of_the_window_and_not_out_of_range(stamp: str) -> None:
    """W04: beyond what a date can hold."""
    assert said(headers_of(b"{}", timestamp=stamp.encode())) is Cause.TIMESTAMP_OUTSIDE_WINDOW


def test_an_honest_sender_with_a_wrong_clock_is_told_how_wrong() -> None:
    """W04: how far it is off, on which side, and the limits."""
    for seconds, words in ((3_600, "3600 s old"), (-90, "90 s in the future")):
        with pytest.raises(DeliveryRefused) as refused:
            verify(headers_of(b"{}"), b"{}", [key()], NOW + timedelta(seconds=seconds))
        for word in (words, "300 s old", "60 s ahead", "clock"):
            assert word in refused.value.message


@pytest.mark.parametrize(("age", "words"), [(300.1, "301 s old"), (-60.1, "61 s in the future")])
def test_a_delivery_just_outside_the_window_is_not_told_that_it_is_inside(age: float, words: str) -> None:
    """W04: 300.1 s old is not "300 s old; at most 300 s old is taken"."""
    with pytest.raises(DeliveryRefused) as refused:
        verify(headers_of(b"{}"), b"{}", [key()], NOW + timedelta(seconds=age))
    assert f"is {words};" in refused.value.message


def test_whoever_has_no_secret_learns_nothing_of_time_and_callers() -> None:
    """W11: stale or fresh, known caller or ended, the answer to a bad signature is the same."""
    keys = [key(OTHER_SECRET, "mill"), key(new_secret(), "old", NOW - timedelta(days=1))]
    texts = set()
    for now in (NOW, NOW + timedelta(days=1), NOW - timedelta(days=1)):
        for body in (b"{}", b"other"):
            with pytest.raises(DeliveryRefused) as refused:
                verify(headers_of(b"{}", now=NOW), body, keys, now)
            texts.add((refused.value.cause, refused.value.message))
    assert len(texts) == 1
    assert "mill" not in str(texts)


@pytest.mark.parametrize("webhook_id", ["", " ", "a b", "a.b", "é", "a\n", "x" * 257, "\x7f", "a\x00"])
def test_an_id_that_could_be_read_in_two_ways_is_no_id(webhook_id: str) -> None:
    """The standard: an id holds no full stop, which separates what is signed."""
    headers = replaced(headers_of(b"{}"), b"webhook-id", webhook_id.encode())
    stamp = dict(headers)[b"webhook-timestamp"]
    signature = read_secret(SECRET).sign(b".".join((webhook_id.encode(), stamp, b"{}"))).encode()
    assert said(replaced(headers, b"webhook-signature", signature)) is Cause.SIGNATURE_INVALID
    with pytest.raises(InvalidInput, match="webhook-id"):
        signed_headers(read_secret(SECRET), webhook_id, b"{}", NOW)


def test_a_time_without_an_offset_is_refused() -> None:
    """It could mean any hour."""
    with pytest.raises(ValueError, match="aware"):
        signed_headers(read_secret(SECRET), "msg_1", b"{}", NOW.replace(tzinfo=None))


@given(st.binary(min_size=24, max_size=64).filter(any), st.text(st.characters(codec="utf-8"), max_size=200))
def test_what_the_library_of_the_standard_signs_is_taken(raw: bytes, body: str) -> None:
    """Interop: their sender, our receiver."""
    secret = f"whsec_{base64.b64encode(raw).decode()}"
    signature = Webhook(secret).sign(WEBHOOK_ID, NOW, body)
    headers = replaced(headers_of(b"{}"), b"webhook-signature", signature.encode())
    assert said(headers, body.encode(), [key(secret)]) == GENUINE


@given(st.binary(min_size=24, max_size=64).filter(any), st.text(st.characters(codec="utf-8"), max_size=200))
def test_what_we_sign_the_library_of_the_standard_takes(raw: bytes, body: str) -> None:
    """Interop: our sender, their receiver, which looks at the machine's clock."""
    secret = f"whsec_{base64.b64encode(raw).decode()}"
    headers = signed_headers(read_secret(secret), WEBHOOK_ID, body.encode(), datetime.now(UTC))
    Webhook(secret).verify(body, headers, json_parse=False)


def test_the_ed25519_vector_of_the_standard_holds() -> None:
    """Interop: the key, message and signature of the test of the standard's library for Go."""
    secret = read_secret("whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=")
    signed = b'msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}'
    signature = "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
    assert secret.sign(signed) == signature


def test_keys_show_nothing_of_themselves() -> None:
    """O01: neither a log line nor a traceback with values prints a secret."""
    shown = f"{key()!r} {key(PAIR[1])!r} {read_secret(SECRET)!r} {read_secret(PAIR[0])!r}"
    for text in (SECRET, *PAIR):
        raw = base64.b64decode(text.partition("_")[2])
        assert text.partition("_")[2][:12] not in shown
        assert repr(raw)[2:12] not in shown


def test_the_same_key_has_the_same_fingerprint_however_it_is_written() -> None:
    """W03: uniqueness is that of values; a public key and a secret of the same bytes are two keys."""
    raw = base64.b64encode(b"\x01" + bytes(30) + b"\x09").decode()
    keys: list[VerifyingKey] = [key(), key(f" {SECRET}\n", "mill"), key(f"whsec_{raw}"), key(f"whpk_{raw}")]
    prints = [each.fingerprint for each in keys]
    assert prints[0] == prints[1]
    assert len({*prints}) == 3
