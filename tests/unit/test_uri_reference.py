"""A source is what RFC 3986 calls a URI-reference, no more and no less."""

import ipaddress

import pytest
from abnf import ParseError
from abnf.grammars import rfc3986
from hypothesis import given, settings
from hypothesis import strategies as st

from orderflow.domain.errors import InvalidEvent
from orderflow.domain.uri_reference import is_uri_reference
from tests.order_events import accepted

URI_SAMPLES = [
    "/orders", "/orders/", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "https://ex.com/a?b#c", "//host/x", "a",
    "?q", "#f", "http://[::1]:80/", "http://[v1.a:b]/", "http://u:p@h:/", "mailto:a@b.c", "%C3%A9", "a/b:c", "./a:b",
    "x:", "//", "///x", "http://1.2.3.4.5/",
]  # fmt: skip


@pytest.mark.parametrize("source", URI_SAMPLES)
def test_a_uri_reference_is_a_source_and_stays_as_it_is(source: str) -> None:
    """C06: nothing is fetched or normalised."""
    assert accepted(source=source).source == source


@pytest.mark.parametrize(
    "source",
    ["", " ", "a b", "http://[::1", "%zz", "%", "http://exa<mple", "/a\nb", "/a\n", "1:2", ":a", "//[1.2.3.4]",
     "//h:8x/", "a#b#c", "/é", "\\", "{x}", "a^b", '"', "/" + "x" * 1024, None, 1],
)  # fmt: skip
def test_what_is_no_uri_reference_is_no_source(source: object) -> None:
    """C06: nor is the empty string, which the grammar alone would allow."""
    with pytest.raises(InvalidEvent, match=r"\$\.source: must "):
        accepted(source=source)


def grammar_accepts(text: str) -> bool:
    """Ask the RFC's own ABNF."""
    try:
        rfc3986.Rule("URI-reference").parse_all(text)
    except ParseError:
        return False
    return True


uri_pieces = st.lists(
    st.sampled_from(
        [
            *URI_SAMPLES,
            *"abzAF019:/?#[]@!$&'()*+,;=-._~% <>\\^`{|}\"é\n",
            "//",
            "::",
            "%4",
            "%e9",
            "[::",
            "v1.",
            "256",
            "ffff:",
        ]
    ),
    max_size=8,
).map("".join)


@settings(deadline=None, max_examples=400)
@given(text=uri_pieces)
def test_the_expression_agrees_with_the_grammar(text: str) -> None:
    """C06: RFC 3986 Appendix A is the oracle."""
    assert is_uri_reference(text) == grammar_accepts(text)


def is_ipv6(text: str) -> bool:
    """Ask the standard library."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


groups = st.lists(st.sampled_from(["0", "f", "12ab", "FFFF"]), max_size=7)
ipv6_like = st.builds(
    lambda left, gap, right, last: ":".join(left) + gap + ":".join(right + last),
    groups, st.sampled_from(["::", ":"]), groups, st.sampled_from([[], ["1.2.3.4"], ["255.249.199.99"], ["1.2.3.256"]]),
)  # fmt: skip
noise = st.lists(st.sampled_from(["0", "12ab", "fffff", ":", "::", "1.2.3.4"]), max_size=10).map("".join)


@settings(max_examples=600)
@given(text=ipv6_like | noise)
def test_the_expression_knows_ipv6_addresses(text: str) -> None:
    """C06: RFC 3986's host agrees with the standard library's parser on what is in the brackets."""
    assert is_uri_reference(f"//[{text}]") == is_ipv6(text)
