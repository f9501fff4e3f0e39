"""RFC 3986 Appendix A as one regular expression; nothing is fetched, decoded or normalised (C06)."""

import re
from typing import Final

_HEX = "[0-9A-Fa-f]"
_H16 = f"{_HEX}{{1,4}}"
_UNRESERVED_AND_SUB_DELIMS = r"A-Za-z0-9\-._~!$&'()*+,;="


def _characters(also: str = "") -> str:
    return f"(?:[{_UNRESERVED_AND_SUB_DELIMS}{also}]|%{_HEX}{{2}})"


def _groups(more: int) -> str:
    """`[ *<more>( h16 ":" ) h16 ]`: what may stand before the `::` of an IPv6 address."""
    return f"(?:(?:{_H16}:){{0,{more}}}{_H16})?"


_PCHAR = _characters(":@")
_SEGMENTS = f"(?:/{_PCHAR}*)*"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_LS32 = rf"(?:{_H16}:{_H16}|{_OCTET}(?:\.{_OCTET}){{3}})"
_IPV6 = "|".join(
    (
        f"(?:{_H16}:){{6}}{_LS32}",
        f"::(?:{_H16}:){{5}}{_LS32}",
        *(f"{_groups(n)}::(?:{_H16}:){{{4 - n}}}{_LS32}" for n in range(5)),
        f"{_groups(5)}::{_H16}",
        f"{_groups(6)}::",
    )
)
_IP_LITERAL = rf"\[(?:{_IPV6}|v{_HEX}+\.[{_UNRESERVED_AND_SUB_DELIMS}:]+)\]"
_HOST = f"(?:{_IP_LITERAL}|{_characters()}*)"  # an IPv4 address is also a reg-name
_AUTHORITY = f"(?:{_characters(':')}*@)?{_HOST}(?::[0-9]*)?"

_ROOTED = f"//{_AUTHORITY}{_SEGMENTS}|/(?:{_PCHAR}+{_SEGMENTS})?"
_ABSOLUTE = rf"[A-Za-z][A-Za-z0-9+\-.]*:(?:{_ROOTED}|(?:{_PCHAR}+{_SEGMENTS})?)"
_RELATIVE = f"(?:{_ROOTED}|(?:{_characters('@')}+{_SEGMENTS})?)"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"

_URI_REFERENCE: Final = re.compile(f"(?:{_ABSOLUTE}|{_RELATIVE}){_TAIL}")


def is_uri_reference(text: str) -> bool:
    """Tell whether the whole of `text` is a URI-reference; the empty string is one, by the grammar."""
    return _URI_REFERENCE.fullmatch(text) is not None
