"""What is found out about one order in one reconciliation: what to tell, and what is to stand before people."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from orderflow.client import ServerUnreachable
from orderflow.contracts import Finding
from orderflow.domain.effects import EffectState
from orderflow.domain.errors import LedgerUnavailable, OrderflowError, TransientError, UnreadableRow
from orderflow.domain.operations import Resolution
from orderflow.domain.orders import Standing
from orderflow.domain.reconciliation import Fate, What
from orderflow.ledger import EffectRecord
from orderflow.ledger.review import ReviewItem

_TOLD: Final = {
    EffectState.COMMITTED: What.ADOPTED,
    EffectState.VOIDED: What.VOIDED,
    EffectState.DECLINED: What.DECLINED,
    EffectState.REVERSED: What.UNDONE,
}

_LONGEST_DETAIL: Final = 200


class Dossier:
    """One order's: its fate, its items in the queue, and all that is found out in this run.

    `is_known` is whether Temporal itself knows the order; else its fate is what the ledger remembers.
    """

    def __init__(self, order: str, fate: Fate, is_known: bool, items: Iterable[ReviewItem]) -> None:
        self.order = order
        self.fate = fate
        self.is_known = is_known
        self.items = {item.key: item for item in items}
        self.standing: dict[str, Standing] = {}
        self.learned: dict[str, EffectRecord] = {}
        self.findings: list[Finding] = []

    def open_items(self) -> list[ReviewItem]:
        """Its items that wait for people."""
        return [item for item in self.items.values() if item.closed_at is None]

    def open_item(self, key: str) -> ReviewItem | None:
        """The item of one effect, if it waits for people."""
        item = self.items.get(key)
        return item if item is not None and item.closed_at is None else None

    def decided_by_people(self, key: str) -> bool:
        """Whether a person's word has ended the matter: it is not brought up again."""
        item = self.items.get(key)
        return item is not None and item.closed_as in {*Resolution}

    def tell(self, what: What, key: str | None = None, detail: str | None = None) -> None:
        """Note a finding."""
        told = detail and detail[:_LONGEST_DETAIL]
        self.findings.append(Finding(what=what, order=self.order, key=key, detail=told))

    def tell_of(self, record: EffectRecord) -> None:
        """Note what the ledger learned about an effect; in a dry run only this dossier knows it."""
        self.learned[record.key] = record
        amount = record.amount_minor if record.captured_minor is None else record.captured_minor
        finding = Finding(
            what=_TOLD[record.state],
            order=self.order,
            key=record.key,
            amount_minor=amount,
            currency=record.currency,
        )
        self.findings.append(finding)

    def leave(self, left: Standing) -> None:
        """Put an effect before people; one that is there already stays as it is, with what became of it there."""
        shown = self.open_item(left.key)
        self.standing[left.key] = left if shown is None or shown.opened_by == "order" else shown.standing

    def keep(self, key: str | None) -> None:
        """Leave an effect before people if it is there: nothing new is known of it."""
        if key is not None and (shown := self.open_item(key)) is not None:
            self.standing[key] = shown.standing

    @contextmanager
    def guarding(self, key: str | None) -> Iterator[None]:
        """Around what is done about one effect, or all of the order: what goes wrong is told, and stops nothing else.

        Raises `LedgerUnavailable` and `ServerUnreachable`: without them nothing can be known of any order.
        """
        try:
            yield
        except UnreadableRow as error:
            self.tell(What.FAILED, key, error.message)
            self.keep(key)
        except (LedgerUnavailable, ServerUnreachable):
            raise
        except TransientError as error:
            self.tell(What.POSTPONED, key, f"{error.type}: {error.message}")
            self.keep(key)
        except OrderflowError as error:
            self.tell(What.FAILED, key, f"{error.type}: {error.message}")
            self.keep(key)
