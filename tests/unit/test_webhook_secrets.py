"""Secrets and keys of Standard Webhooks as text: what is one, and what is said of all else."""

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderflow.domain.errors import InvalidInput
from orderflow.webhooks import new_key_pair, new_secret, read_secret, read_verifying_key
from tests.support.webhooks import SECRET, headers_of, key, said


def encoded(prefix: str, raw: bytes) -> str:
    """`raw` as the standard writes it."""
    return prefix + base64.b64encode(raw).decode()


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "whsec_", "whsk_", "whpk_", "whsec_ ", "\ufeff", "\x00"])
def test_a_blank_secret_is_no_secret(text: str) -> None:
    """W10: whatever kind of nothing it is."""
    for read in (read_secret, lambda text: read_verifying_key(text, "shop", None)):
        with pytest.raises(InvalidInput):
            read(text)


@pytest.mark.parametrize(("size", "taken"), [(1, False), (23, False), (24, True), (64, True), (65, False)])
def test_a_shared_secret_has_24_to_64_bytes(size: int, taken: bool) -> None:
    """W10: the bounds of the standard, 192 to 512 bits."""
    text = encoded("whsec_", b"\x5a" * size)
    if taken:
        assert said(headers_of(b"{}", text), keys=[key(text)])
    else:
        with pytest.raises(InvalidInput, match=f"24 to 64 .* not {size}"):
            read_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        SECRET.removeprefix("whsec_"),
        SECRET.replace("whsec_", "whsec-"),
        SECRET.replace("whsec_", "WHSEC_"),
        SECRET.rstrip("="),
        SECRET.replace("K", "-"),
        SECRET[:20] + " " + SECRET[20:],
        f'"{SECRET}"',
        SECRET + "é",
        SECRET[:-2],
    ],
)
def test_what_is_nearly_a_secret_is_refused_without_being_repeated(text: str) -> None:
    """W10, O01: the message is for a log."""
    with pytest.raises(InvalidInput) as refused:
        read_secret(text)
    assert SECRET[10:20] not in str(refused.value)


def test_white_space_around_a_secret_is_no_part_of_it() -> None:
    """Files end with a line break."""
    assert said(headers_of(b"{}", f"  {SECRET}\r\n"), keys=[key(f"{SECRET}\n")])


def test_placeholders_are_refused() -> None:
    """W10: zeros are what a template holds before somebody fills it in."""
    for text in (encoded("whsec_", bytes(32)), encoded("whpk_", bytes(32))):
        with pytest.raises(InvalidInput, match="zeros"):
            read_verifying_key(text, "shop", None)


P = 2**255 - 19
ORDER_8 = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")


@pytest.mark.parametrize("y", [0, 1, P - 1, P, P + 1, ORDER_8, P - ORDER_8])
@pytest.mark.parametrize("sign", [0, 1 << 255])
def test_a_public_key_that_anybody_could_sign_for_is_refused(y: int, sign: int) -> None:
    """W10: with y = 1, `R = 1, S = 0` is a signature of every message."""
    with pytest.raises(InvalidInput, match="anybody"):
        read_verifying_key(encoded("whpk_", (y | sign).to_bytes(32, "little")), "shop", None)


@pytest.mark.parametrize("size", [0, 31, 33, 63, 65])
def test_an_ed25519_key_has_32_bytes(size: int) -> None:
    """W03: a private one may be followed by its public one, 64 in all."""
    for prefix in ("whsk_", "whpk_"):
        with pytest.raises(InvalidInput):
            read_verifying_key(encoded(prefix, b"\x07" * size), "shop", None)
        with pytest.raises(InvalidInput):
            read_secret(encoded(prefix, b"\x07" * size))


def test_a_private_key_may_bring_its_public_half() -> None:
    """W03: as libsodium keeps it, and some senders' libraries with it; another's half is refused."""
    private, public = new_key_pair()
    halves = [base64.b64decode(text.partition("_")[2]) for text in (private, public)]
    assert said(headers_of(b"{}", encoded("whsk_", b"".join(halves))), keys=[key(public)])
    with pytest.raises(InvalidInput, match="belong together"):
        read_secret(encoded("whsk_", halves[0] + halves[0]))


def test_a_key_is_taken_only_where_it_belongs() -> None:
    """W03: a private key never comes to the receiver, a public one never signs."""
    private, public = new_key_pair()
    with pytest.raises(InvalidInput, match="whsec_ or whpk_"):
        read_verifying_key(private, "shop", None)
    with pytest.raises(InvalidInput, match="whsec_ or whsk_"):
        read_secret(public)


def test_new_secrets_are_usable_and_never_the_same() -> None:
    """W03: what `orderflow callers new` writes."""
    secrets = {new_secret() for _ in range(20)} | {private for private, _ in (new_key_pair() for _ in range(20))}
    assert len(secrets) == 40
    for secret in sorted(secrets):
        read_secret(secret)


@given(st.text(max_size=100) | st.from_regex(r"(whsec|whsk|whpk)_[A-Za-z0-9+/=]{0,90}", fullmatch=True))
def test_any_text_is_a_secret_or_is_refused(text: str) -> None:
    """W10: a file of secrets may hold anything."""
    for read in (read_secret, lambda text: read_verifying_key(text, "shop", None)):
        with suppress(InvalidInput):
            read(text)
