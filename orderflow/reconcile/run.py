"""One reconciliation from its request to its report, as the activity that `ReconcileWorkflow` calls."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from temporalio import activity

from orderflow.activities import Activity, boundary
from orderflow.attempts import Attempt, heartbeats
from orderflow.catalogue import Catalogue
from orderflow.client import ServerUnreachable
from orderflow.contracts import RECONCILE, Finding, ReconcileReport, ReconcileRequest
from orderflow.domain.effects import Provider
from orderflow.domain.errors import LedgerUnavailable, OrderflowError, TransientError, UnreadableRow
from orderflow.domain.reconciliation import CHANGES, What
from orderflow.ledger.review import Ledger
from orderflow.reconcile import Orders
from orderflow.reconcile.acting import ActingHand, IdleHand
from orderflow.reconcile.cases import Cases, would_be
from orderflow.reconcile.listing import AT_ONCE, Row, ask_providers, differences
from orderflow.reconcile.patience import PatientProvider

MOST_FINDINGS: Final = 200
ANSWERS_WITHIN: Final = timedelta(seconds=20)

_PAGE: Final = 2000
_MOST_ITEMS: Final = 10_000

_FOR_PEOPLE_FIRST: Final = (What.FAILED, What.OPENED, What.UNDONE, What.ADOPTED, What.POSTPONED, What.IN_REVIEW)


class ReconcileActivities:
    """The activity `reconcile` over a ledger, providers and Temporal's orders.

    `within` is how long a provider may take for one answer; `worker` names this process in the record of attempts.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        providers: Mapping[str, Provider],
        catalogue: Catalogue,
        orders: Orders,
        worker: str,
        within: timedelta = ANSWERS_WITHIN,
    ) -> None:
        self._ledger = ledger
        self._providers = providers
        self._catalogue = catalogue
        self._orders = orders
        self._worker = worker
        self._within = within

    def all(self) -> list[Activity]:
        """What a worker registers."""
        return [activity.defn(name=RECONCILE)(boundary(self.reconcile))]

    async def reconcile(self, request: ReconcileRequest) -> ReconcileReport:
        """Reconcile once. Raises `LedgerUnavailable` and `ServerUnreachable`: then the same again, from its start."""
        attempt = Attempt.current(self._worker)
        tally = Tally(request.dry_run)
        providers = {name: PatientProvider(each, self._within) for name, each in self._providers.items()}
        cases = self._cases(providers, attempt, dry_run=request.dry_run)
        since = attempt.now() - request.since.timedelta
        async with heartbeats(tally.progress):
            listing = await ask_providers(providers, self._catalogue, since)
            strays = await differences(self._ledger, listing.rows)
            async for some in _in_groups(self._to_be_seen(strays)):
                for findings in await _all_of([_safely(cases, order, strays.get(order, ())) for order in some]):
                    tally.add(findings)
        return tally.report(since, listing.unlisted, listing.foreign)

    def _cases(self, providers: Mapping[str, Provider], attempt: Attempt, *, dry_run: bool) -> Cases:
        hand = (
            IdleHand(self._ledger, providers, self._catalogue)
            if dry_run
            else ActingHand(
                self._ledger, providers, self._catalogue, holder=attempt.holder, lease=self._within + attempt.lease
            )
        )
        return Cases(self._ledger, self._catalogue, self._orders, hand, attempt.now())

    async def _to_be_seen(self, strays: Mapping[str, Sequence[Row]]) -> AsyncIterator[str]:
        """Every order about which something may have to be done, once."""
        seen: set[str] = set()
        async for order in self._candidates(strays):
            if order not in seen:
                seen.add(order)
                yield order

    async def _candidates(self, strays: Mapping[str, Sequence[Row]]) -> AsyncIterator[str]:
        for order in strays:
            yield order
        for item in await self._ledger.review_items(closed=False, limit=_MOST_ITEMS):
            yield item.workflow_id
        after = ""
        while (page := await self._ledger.unsettled(after, _PAGE)).last is not None:
            for order in page.orders.values():
                yield order
            after = page.last


class Tally:
    """Counts what is found, and keeps what people should see of it."""

    def __init__(self, dry_run: bool) -> None:
        self._dry_run = dry_run
        self._orders = 0
        self._counts: Counter[str] = Counter()
        self._kept: dict[str, list[Finding]] = {}

    def add(self, findings: Sequence[Finding]) -> None:
        """Count one more order and what was found about it. How an order ended is counted, and not told."""
        self._orders += 1
        for finding in findings:
            self._counts[finding.what] += 1
            kept = self._kept.setdefault(finding.what, [])
            if len(kept) < MOST_FINDINGS and finding.what != What.ENDED:
                kept.append(finding)

    def progress(self) -> list[object]:
        """What a heartbeat tells."""
        return [{"orders": self._orders, **self._counts}]

    def report(self, since: datetime, unlisted: Sequence[str], foreign: int) -> ReconcileReport:
        """What it all came to."""
        rest = [what for what in self._kept if what not in _FOR_PEOPLE_FIRST]
        findings = [finding for what in (*_FOR_PEOPLE_FIRST, *rest) for finding in self._kept.get(what, ())]
        told = {
            f"would_be_{what}" if self._dry_run and what in CHANGES else what: n for what, n in self._counts.items()
        }
        return ReconcileReport(
            dry_run=self._dry_run,
            since=since,
            orders=self._orders,
            changes=0 if self._dry_run else sum(self._counts[what] for what in CHANGES),
            counts={str(what): number for what, number in sorted(told.items())},
            findings=tuple(would_be(each) if self._dry_run else each for each in findings[:MOST_FINDINGS]),
            unlisted=tuple(unlisted),
            foreign=foreign,
        )


async def _safely(cases: Cases, order: str, rows: Sequence[Row]) -> list[Finding]:
    """One order must not stop the others; without ledger or Temporal there is nothing to be known of any."""
    try:
        return await cases.reconcile(order, rows)
    except UnreadableRow as error:
        return [Finding(what=What.FAILED, order=order, detail=error.message[:200])]
    except (LedgerUnavailable, ServerUnreachable):
        raise
    except OrderflowError as error:
        what = What.POSTPONED if isinstance(error, TransientError) else What.FAILED
        return [Finding(what=what, order=order, detail=f"{error.type}: {error.message}"[:200])]


async def _all_of(asked: Sequence[Awaitable[list[Finding]]]) -> list[list[Finding]]:
    """Await all to their end, then raise what the first of them raised."""
    results = await asyncio.gather(*asked, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


async def _in_groups(orders: AsyncIterator[str]) -> AsyncIterator[list[str]]:
    group: list[str] = []
    async for order in orders:
        group.append(order)
        if len(group) == AT_ONCE:
            yield group
            group = []
    if group:
        yield group
