"""What the door writes into its log."""

import logging

import pytest

from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.ingress.telling import Teller, Whose


def test_strangers_get_one_line_a_second_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """O01: whoever floods the door does not flood the log."""
    now = [0.0]
    teller = Teller(lambda: now[0])
    caplog.set_level(logging.INFO)
    for at in (0.0, 0.1, 0.2, 0.9, 1.0, 1.5):
        now[0] = at
        teller.refused(Cause.SIGNATURE_INVALID, Whose())
    assert [record.times for record in caplog.records] == [1, 4]  # type: ignore[attr-defined]  # extra


@pytest.mark.parametrize(("cause", "level"), [(Cause.CONFLICT, "WARNING"), (Cause.INVALID_JSON, "INFO")])
def test_each_refusal_of_a_caller_is_told_and_a_conflict_aloud(
    cause: Cause, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """I01: the same identity with another payload is a security event, with the caller's name and the order's id."""
    teller = Teller()
    caplog.set_level(logging.INFO)

    def refuse() -> None:
        with teller.refusals() as whose:
            whose.caller, whose.order = "shop", "order-1"
            raise DeliveryRefused(cause, "never told: it may quote what came in")

    with pytest.raises(DeliveryRefused):
        refuse()
    [record] = caplog.records
    assert (record.levelname, record.message) == (level, "delivery_refused")
    told = {name: getattr(record, name) for name in ("cause", "caller", "order")}
    assert told == {"cause": cause, "caller": "shop", "order": "order-1"}
