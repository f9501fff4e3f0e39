"""One subscriber, through the effect store: whatever it answers, it is told until it took it, and never after."""

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderflow.domain.announcements import Announcement, telling_act
from orderflow.domain.effects import EffectState
from orderflow.domain.errors import Declined, EffectBusy, OrderflowError, OutcomeUnknown, ProviderUnavailable
from orderflow.domain.orders import Stage
from orderflow.ledger import Claim
from orderflow.ledger.effects import EffectStore
from orderflow.ledger.sqlite import SqliteLedger
from orderflow.providers.http import open_client
from orderflow.providers.webhook import WebhookProvider
from orderflow.webhooks import read_secret
from tests.support.ledger import LONG
from tests.support.scripted_door import Received, Reply, scripted_door
from tests.support.subscribers import SECRET, event_of, receiver

ANNOUNCEMENT: Final = Announcement(
    order=f"order-{'0' * 32}",
    event_source="/shop",
    event_id="1",
    stage=Stage.COMPLETED,
    definition="order 1.0.0",
    at=datetime(2026, 1, 1, tzinfo=UTC),
)
ACT: Final = telling_act(ANNOUNCEMENT, "warehouse")

CUT: Final = 0
"""Stands for a connection that is closed without an answer."""

STATUSES: Final = st.sampled_from([CUT, 301, 307, 400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 500, 502, 503, 504])
LAST: Final = st.sampled_from([200, 202, 204, 410])


def means(status: int) -> type[OrderflowError] | None:
    """The oracle: what an answer comes to, `None` for told."""
    if 200 <= status < 300:
        return None
    if status == 410:
        return Declined
    if status in (429, 503):
        return EffectBusy
    return OutcomeUnknown if status in (CUT, 408) or status >= 500 else ProviderUnavailable


def reply(status: int) -> Reply:
    """That answer; a redirect leads to the very same place, where it would be counted."""
    if status == CUT:
        return Reply(raw=b"")
    return Reply(status, b"x" * 70_000, (("Location", "/elsewhere"), ("Retry-After", "7")))


@settings(max_examples=40, deadline=None)
@given(before=st.lists(STATUSES, max_size=4), last=LAST)
def test_whatever_it_answers_it_is_sent_the_same_until_it_took_it_and_never_after(before: list[int], last: int) -> None:
    """Issue 4 item 7: one id, the same bytes, a signature of its own each time; 2xx and 410 are the end of it."""
    asyncio.run(tells([*before, last]))


async def tells(statuses: list[int]) -> None:
    """Tell a receiver that answers so, once more than that."""

    def script(received: Received) -> Reply:
        event_of(received)
        return reply(statuses[received.number - 1])

    with tempfile.TemporaryDirectory() as folder, scripted_door(script) as door:
        ledger = await SqliteLedger.open(Path(folder) / "ledger.db")
        async with open_client() as client:
            provider = WebhookProvider(client, door.url, read_secret(SECRET))
            came = [await come_of(ledger, provider) for _ in [*statuses, "again"]]
        record = await ledger.get(ACT.key)
        await ledger.aclose()
    assert came == [*map(means, statuses), means(statuses[-1])]
    assert record is not None
    assert record.state is (EffectState.DECLINED if statuses[-1] == 410 else EffectState.COMMITTED)
    assert len(door.received) == len(statuses)
    assert len({(each.headers["webhook-id"], each.body, each.path) for each in door.received}) == 1


async def come_of(ledger: SqliteLedger, provider: WebhookProvider) -> type[OrderflowError] | None:
    """What one attempt comes to."""
    try:
        await EffectStore(ledger).perform(ACT, provider, holder="test", lease=LONG, patience=timedelta(0))
    except OrderflowError as error:
        return type(error)
    return None


async def test_killed_between_sending_and_writing_it_down_it_is_sent_again_under_the_same_id(tmp_path: Path) -> None:
    """I05, Standard Webhooks: at least once; the receiver knows it by its webhook-id."""
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    with receiver() as heard:
        async with open_client() as client:
            provider = WebhookProvider(client, heard.door.url, read_secret(SECRET))
            assert isinstance(await ledger.claim(ACT, holder="dies", lease=timedelta(0)), Claim)
            await provider.perform(ACT)
            assert await come_of(ledger, provider) is None
        first, second = heard.door.received
    await ledger.aclose()
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == ANNOUNCEMENT.id
    assert first.body == second.body


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://127.0.0.1:9/hook"])
async def test_one_that_is_never_reached_is_unavailable_and_says_so(tmp_path: Path, url: str) -> None:
    """I06: nothing can have arrived."""
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    async with open_client() as client:
        provider = WebhookProvider(client, url, read_secret(SECRET))
        assert await come_of(ledger, provider) is ProviderUnavailable
    await ledger.aclose()
    assert provider.answered == "not_reached"
