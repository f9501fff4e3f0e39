"""The one JSON reader refuses what two parsers could read in two ways."""

import json
from contextlib import suppress
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orderflow.domain.errors import InvalidJson
from orderflow.domain.strict_json import MAX_INTEGER, JsonValue, read_json, require_profile

BOM = b"\xef\xbb\xbf"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


def refusal(raw: bytes, *, max_depth: int = 32, max_bytes: int = 262_144, allow_bom: bool = False) -> InvalidJson:
    """Give the error that `raw` is refused with."""
    with pytest.raises(InvalidJson) as caught:
        read_json(raw, max_depth=max_depth, max_bytes=max_bytes, allow_bom=allow_bom)
    return caught.value


@settings(deadline=None)
@given(value=json_values, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]))
def test_every_value_of_the_profile_is_read_back_from_any_of_its_texts(
    value: JsonValue, ascii_only: bool, indent: int | None
) -> None:
    """Spacing and escapes do not matter."""
    assert read_json(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()) == value


@settings(deadline=None)
@given(raw=st.binary(max_size=60) | st.text('[]{}",:\\u0189eE.+-dfnultrs \x00é', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused_and_nothing_else_happens(raw: bytes) -> None:
    """W13-W18: no exception but our own leaves the reader, and what passes is plain JSON."""
    with suppress(InvalidJson):
        assert read_json(raw) == json.loads(raw)


@pytest.mark.parametrize("raw", [b"", b" \n", BOM], ids=repr)
def test_an_empty_document_is_refused(raw: bytes) -> None:
    """Nothing is no value."""
    assert "not JSON: Expecting value at line" in refusal(raw, allow_bom=True).message


@pytest.mark.parametrize(
    "raw", [b"{} x", b"{}{}", b"1 2", b"[1,]", b'{"a":1,}', b"01", b"+1", b"'a'", b'"a\nb"', b"{1:2}"]
)
def test_what_is_not_json_is_refused_with_line_and_column(raw: bytes) -> None:
    """Trailing garbage, trailing commas, single quotes, raw line breaks."""
    assert " at line 1 column " in refusal(raw).message


def test_a_byte_order_mark_is_refused_unless_it_is_allowed() -> None:
    """W13: one documented rule; files may start with one."""
    assert "byte order mark" in refusal(BOM + b"{}").message
    assert read_json(BOM + b"{}", allow_bom=True) == {}
    assert "line 1 column 1" in refusal(BOM + BOM + b"{}", allow_bom=True).message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
def test_only_utf_8_is_decoded(encoding: str) -> None:
    """W13: the encoding is never guessed."""
    refusal('{"a":"é"}'.encode(encoding), allow_bom=True)


@pytest.mark.parametrize(
    ("raw", "path", "key"),
    [
        (b'{"amount_minor":100,"x":0,"amount_minor":1}', "$", '"amount_minor"'),
        (b'{"id":"a","\\u0069d":"b"}', "$", '"id"'),
        (b'{"data":{"items":[{},{"sku":"a","sku":"a"}]}}', "$.data.items[1]", '"sku"'),
        (b'{"odd key":{"":1,"":1}}', '$["odd key"]', '""'),
    ],
)
def test_a_key_given_twice_is_refused_and_named(raw: bytes, path: str, key: str) -> None:
    """W14: at every depth, after unescaping, also when both values agree."""
    error = refusal(raw)
    assert error.path == path
    assert error.message == f"the key {key} appears more than once"


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1.0", "1e2", "0.5", "-0.0", "-0"]
)
@pytest.mark.parametrize("where", ['{"a":{"b":[0,%s]}}', "%s"])
def test_a_number_that_is_not_whole_is_refused(number: str, where: str) -> None:
    """W15, I11: no floats at all, and zero has one sign."""
    assert refusal((where % number).encode()).path == ("$.a.b[1]" if "a" in where else "$")


@pytest.mark.parametrize(
    "number", [str(2**53), str(-(2**53)), str(2**53 + 1), str(2**63), str(10**30), "9" * 5000, "-" + "9" * 5000]
)
def test_a_number_beyond_two_to_the_53_is_refused(number: str) -> None:
    """W17: no plain ValueError leaks for 5000 digits."""
    error = refusal(b'{"n":%s}' % number.encode())
    assert (error.path, error.message) == ("$.n", "a number is beyond ±(2^53-1)")


@pytest.mark.parametrize("number", [MAX_INTEGER, -MAX_INTEGER, 0])
def test_the_bounds_themselves_are_read(number: int) -> None:
    """W17: ±(2^53-1) are in."""
    assert read_json(str(number).encode()) == number


@pytest.mark.parametrize("depth", [33, 900, 2000, 20_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]"), ("[", "")])
def test_deep_nesting_is_refused_before_the_parser_recurses(depth: int, opening: str, closing: str) -> None:
    """W16: arrays, objects, mixed and unclosed."""
    assert "deeper than 32 levels" in refusal((opening * depth + "1" + closing * depth).encode()).message


def test_the_depth_limit_counts_only_brackets_outside_strings() -> None:
    """W16: 32 levels pass, a string full of brackets is no level, an escaped quote does not end a string."""
    text = "[" * 31 + '["\\"[[[[{{{{\\\\"]' + "]" * 31
    assert read_json(text.encode()) == json.loads(text)
    assert "deeper than 31 levels" in refusal(text.encode(), max_depth=31).message


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (rb'"\ud800"', "$"),
        (rb'{"id":"\ude00\ud83d"}', "$.id"),
        (rb'{"a":[1,"x\uDBFFx"]}', "$.a[1]"),
        (rb'{"a":{"\udc00":1}}', "$.a"),
    ],
)
def test_a_lone_surrogate_is_refused(raw: bytes, path: str) -> None:
    """W18: in values and in keys; it would break the fingerprint later."""
    error = refusal(raw)
    assert error.path == path
    assert "lone surrogate" in error.message


def test_a_surrogate_pair_is_one_character() -> None:
    """W18: an escaped pair is valid Unicode."""
    assert read_json(rb'"\ud83d\ude00"') == "😀"


def test_a_document_over_the_limit_is_refused_by_its_size() -> None:
    """The limit is in bytes, and is a parameter."""
    assert read_json(b'"abc"', max_bytes=5) == "abc"
    assert "has 6 bytes; at most 5" in refusal('"abé"'.encode(), max_bytes=5).message


def test_a_refusal_never_repeats_a_value_and_keeps_keys_short_and_printable() -> None:
    """O01: what is refused may be somebody's personal data, or an escape sequence for a terminal."""
    error = refusal(b'{"%s\x1b":1.5}'.replace(b"\x1b", b"\\u001b") % (b"k" * 500))
    assert len(error.path) < 80
    assert error.path.isprintable()
    assert "1.5" not in error.message


@pytest.mark.parametrize(
    "value", [1.0, float("nan"), 2**53, b"x", {1: 2}, {"a": {3}}, ["\ud800"], {"\ud800": 1}], ids=repr
)
def test_python_values_outside_the_profile_are_refused(value: object) -> None:
    """The same rules for values that were never text."""
    with pytest.raises(InvalidJson):
        require_profile(value)


@settings(deadline=None)
@given(
    value=st.recursive(
        st.sampled_from([1.5, 2**53, -(2**53), "\ud800", b"x", {1: 2}, {"\udfff": None}]),
        lambda faulty: st.tuples(json_values, faulty).map(list) | faulty.map(lambda inner: {"a": 1, "b": inner}),
        max_leaves=6,
    )
)
def test_one_fault_anywhere_in_a_value_is_found(value: object) -> None:
    """W17, W18: the quick look that nearly all values pass lets no fault through."""
    with pytest.raises(InvalidJson):
        require_profile(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    """W16: the walk is bounded too."""
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidJson, match="deeper than 32"):
        require_profile(value)


def test_json_value_is_a_type_for_a_field_of_a_strict_model() -> None:
    """Models hold values of the profile; a float is none."""

    class Holder(BaseModel):
        model_config = ConfigDict(strict=True)
        value: Annotated[dict[str, JsonValue], Field(max_length=3)]

    text = '{"value":{"a":[1,true,null,{"b":"c"}]}}'
    assert Holder.model_validate_json(text).model_dump() == json.loads(text)
    with pytest.raises(ValidationError):
        Holder.model_validate_json('{"value":{"a":[1.5]}}')
