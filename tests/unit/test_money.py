"""Amounts are whole minor units of a known currency, at every boundary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from orderflow.domain import events, intents, money
from orderflow.domain.money import EXPONENTS, AmountMinor, Currency, Money
from orderflow.domain.strict_json import MAX_INTEGER


@pytest.mark.parametrize(
    ("amount_minor", "currency", "text"),
    [
        (500, "JPY", "JPY 500"),
        (1234, "KWD", "KWD 1.234"),
        (1099, "USD", "USD 10.99"),
        (5, "USD", "USD 0.05"),
        (0, "EUR", "EUR 0.00"),
        (7, "TND", "TND 0.007"),
        (MAX_INTEGER, "USD", "USD 90071992547409.91"),
    ],
)
def test_money_is_shown_with_the_decimals_of_its_currency(amount_minor: int, currency: str, text: str) -> None:
    """M01: never a hundred for every currency."""
    assert str(Money(amount_minor=amount_minor, currency=currency)) == text


@given(amount_minor=st.integers(0, MAX_INTEGER), currency=st.sampled_from(sorted(EXPONENTS)))
def test_money_survives_json_and_its_text_holds_exactly_its_digits(amount_minor: int, currency: str) -> None:
    """M01, M03: no division on the way out hides a multiplication on the way in."""
    amount = Money(amount_minor=amount_minor, currency=currency)
    assert Money.model_validate_json(amount.model_dump_json()) == amount
    code, digits = str(amount).split(" ")
    assert (code, int(digits.replace(".", ""))) == (currency, amount_minor)
    assert len(digits.partition(".")[2]) == amount.exponent


@pytest.mark.parametrize(
    ("exponent", "codes"),
    [
        (
            0,
            {
                "BIF",
                "CLP",
                "DJF",
                "GNF",
                "ISK",
                "JPY",
                "KMF",
                "KRW",
                "PYG",
                "RWF",
                "UGX",
                "VND",
                "VUV",
                "XAF",
                "XOF",
                "XPF",
            },
        ),
        (3, {"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"}),
    ],
)
def test_the_currencies_without_two_decimals_are_these(exponent: int, codes: set[str]) -> None:
    """M01: ISO 4217 List One; every other code of the table has two."""
    assert {code for code, decimals in EXPONENTS.items() if decimals == exponent} == codes
    assert set(EXPONENTS.values()) == {0, 2, 3}
    assert len(EXPONENTS) == 155


@pytest.mark.parametrize(
    "code",
    [
        "XXX",
        "XTS",
        "XAU",
        "XDR",
        "CLF",
        "UYW",
        "USN",
        "BGN",
        "usd",
        "Usd",
        "US",
        "USDX",
        "USD ",
        "",
        "\uff35\uff33\uff24",
        None,
        840,
    ],
)
def test_a_code_that_is_no_active_currency_is_refused(code: object) -> None:
    """M01: unknown, lower-case, historic, funds, metal and test codes."""
    with pytest.raises(ValidationError):
        TypeAdapter(Currency).validate_python(code)


@pytest.mark.parametrize("text", ["true", '"100"', "100.0", "1e2", "-5", "null", "100.5", str(MAX_INTEGER + 1), "[]"])
def test_an_amount_is_never_coerced(text: str) -> None:
    """M02: from JSON text and from Python values alike."""
    adapter = TypeAdapter(AmountMinor)
    with pytest.raises(ValidationError):
        adapter.validate_json(text)
    with pytest.raises(ValidationError):
        adapter.validate_python({"true": True, "null": None, "[]": []}.get(text, text))


def test_money_is_frozen_and_takes_no_other_member() -> None:
    """What was approved stays what is charged."""
    amount = Money(amount_minor=1, currency="EUR")
    with pytest.raises(ValidationError, match="frozen"):
        amount.amount_minor = 2  # type: ignore[misc]  # the assignment is what is tested
    with pytest.raises(ValidationError, match="Extra inputs"):
        Money.model_validate({"amount_minor": 1, "currency": "EUR", "amount": 1})


def test_no_model_of_the_domain_holds_a_float_or_a_decimal() -> None:
    """M03: checked on the schemas, so that a nested model counts too."""
    models = [
        model
        for module in (events, intents, money)
        for model in vars(module).values()
        if isinstance(model, type) and issubclass(model, BaseModel) and model is not BaseModel
    ]
    assert Money in models
    for model in models:
        assert '"number"' not in str(model.model_json_schema()).replace("'", '"'), model
