"""Telling others that an order has finished, on the worker's side: who wants to hear of it, and sending it.

`AnnounceWorkflow` has it done while it runs; for one that is gone a repair does it, on an operator's signed word.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import Final

import httpx2
from temporalio import activity

from orderflow.activities import Activity, boundary, require_own_books
from orderflow.attempts import Attempt, heartbeats
from orderflow.contracts import ANNOUNCE, END_ORDER, Ended, EndRequest
from orderflow.domain.announcements import (
    Announcement,
    AnnounceRequest,
    Heard,
    Subscription,
    Telling,
    is_announcement,
    telling_act,
    told_by,
)
from orderflow.domain.errors import Declined, EffectReversed, LedgerUnavailable, TransientError
from orderflow.ledger.effects import EffectStore
from orderflow.ledger.review import Ledger
from orderflow.providers.webhook import NoSubscriber, WebhookProvider
from orderflow.subscribers import Subscribers

NOTED_WITHIN: Final = 5.0
"""Seconds that noting an ending may take; who wants to hear of it is told whether it could be noted or not."""

NOT_REMEMBERED: Final = "not_remembered"
"""Temporal does not know any more what was to be announced: nothing can be sent again."""


class AnnouncementActivities:
    """The activities at the end of an order, over a ledger and the subscribers.

    `subscribers` is asked each time; `client` sends, and the caller closes it; `announced` gives what an announcement
    was started with, as far as Temporal knows; `worker` names this process in the record of attempts.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        effects: EffectStore,
        subscribers: Callable[[], Subscribers],
        client: httpx2.AsyncClient,
        announced: Callable[[str], Awaitable[AnnounceRequest | None]],
        worker: str,
    ) -> None:
        self._ledger = ledger
        self._effects = effects
        self._subscribers = subscribers
        self._client = client
        self._announced = announced
        self._worker = worker

    def all(self) -> list[Activity]:
        """What a worker registers."""
        return [
            activity.defn(name=END_ORDER)(boundary(self.end_order)),
            activity.defn(name=ANNOUNCE)(boundary(self.announce)),
        ]

    async def end_order(self, request: EndRequest) -> Ended:
        """Remember how an order, or an announcement, ended; say who wants to hear of it, noted or not."""
        require_own_books(request.workflow_id)
        hearing = self._hearing(request)
        try:
            async with asyncio.timeout(NOTED_WITHIN):
                await self._ledger.end_order(request.workflow_id, request.stage)
        except (LedgerUnavailable, TimeoutError):
            if not hearing:
                raise
            activity.logger.warning(
                "how %s ended could not be noted; it is announced all the same", request.workflow_id
            )
        if not hearing:
            return Ended()
        now = activity.info().started_time.astimezone(UTC)
        return Ended(subscriptions=hearing, source=self._subscribers().source, at=now)

    async def announce(self, request: Telling) -> Heard:
        """Tell one subscriber once; what it was told before is not sent again.

        Raises:
            EffectBusy, OutcomeUnknown, ProviderUnavailable, ClaimLost, LedgerUnavailable: later, and not sooner than
                the subscription's own pause, whatever its receiver asks for.
        """
        require_own_books(request.announcement.id)
        attempt = Attempt.current(self._worker)
        try:
            async with heartbeats():
                return await self._tell(request.announcement, request.subscription.name, attempt)
        except TransientError as error:
            if error.retry_after is not None:
                pause = request.subscription.retry.pause_after(activity.info().attempt)
                error.retry_after = max(error.retry_after, pause.total_seconds())
            raise

    async def tell_again(self, announcement_id: str, step: str, attempt: Attempt) -> str | None:
        """Tell the subscriber of `step`, for an announcement whose workflow is gone; gives why that cannot be.

        Raises as `announce` does.
        """
        request = await self._announced(announcement_id)
        if request is None or request.announcement.id != announcement_id:
            return NOT_REMEMBERED
        await self._tell(request.announcement, told_by(step), attempt)
        return None

    def _hearing(self, request: EndRequest) -> tuple[Subscription, ...]:
        if is_announcement(request.workflow_id):
            return ()
        return self._subscribers().hearing(request.stage, request.source)

    async def _tell(self, announcement: Announcement, name: str, attempt: Attempt) -> Heard:
        provider = self._provider(name)
        try:
            await self._effects.perform(telling_act(announcement, name), provider, **attempt.terms())
        except Declined as error:
            return Heard(refused=error.detail)
        except EffectReversed as error:  # people said that it need not
            return Heard(refused=error.type)
        except TransientError as error:
            error.detail = error.detail or provider.answered
            raise
        return Heard()

    def _provider(self, name: str) -> WebhookProvider:
        endpoint = self._subscribers().endpoints.get(name)
        return NoSubscriber() if endpoint is None else WebhookProvider(self._client, endpoint.url, endpoint.secret)
