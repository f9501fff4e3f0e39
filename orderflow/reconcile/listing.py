"""What providers say they did, against what the ledger knows: the direction that finds what a restore forgot."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from orderflow.catalogue import Catalogue
from orderflow.domain.effects import STANDING, EffectState, Listed, Provider, capabilities_of
from orderflow.domain.errors import UnreadableRow
from orderflow.domain.events import is_order_id
from orderflow.domain.intents import Direction, Key, idempotency_key, read_key
from orderflow.ledger.review import Ledger

AT_ONCE: Final = 10
"""How much is looked at at the same time."""

_DENIED: Final = frozenset({EffectState.VOIDED, EffectState.DECLINED})


@dataclass(frozen=True)
class Row:
    """One act that a provider listed: where, under which of our keys, and what it says of it."""

    provider: str
    key: Key
    listed: Listed


@dataclass
class Listing:
    """What all providers listed. `unlisted` could not say, or did not; `foreign` counts keys that are none of ours."""

    rows: list[Row] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    foreign: int = 0


async def ask_providers(providers: Mapping[str, Provider], catalogue: Catalogue, since: datetime) -> Listing:
    """Ask each provider of `catalogue` that does effects what it did since `since`."""
    listing = Listing()
    effects = {kind.provider for kind in catalogue.kinds.values() if kind.effect}
    for name, provider in sorted(providers.items()):
        if name not in effects:
            continue
        listed = await provider.list(since)
        if listed is None or not capabilities_of(provider).lists:
            listing.unlisted.append(name)
        for row in listed or ():
            key = read_key(row.key)
            if key is None or not is_order_id(key.workflow_id):
                listing.foreign += 1
            elif not _is_check(catalogue, name, row.operation):
                listing.rows.append(Row(name, key, row))
    return listing


async def differences(ledger: Ledger, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Give, by order, the rows that the ledger does not know, or denies. Raises `LedgerUnavailable`."""
    found: dict[str, list[Row]] = defaultdict(list)
    for some in _slices(rows):
        strange = await asyncio.gather(*(_is_strange(ledger, row) for row in some))
        for row, is_strange in zip(some, strange, strict=True):
            if is_strange:
                found[row.key.workflow_id].append(row)
    return found


async def _is_strange(ledger: Ledger, row: Row) -> bool:
    order, step, direction = row.key
    try:
        record = await ledger.get(idempotency_key(order, step, Direction.DO))
    except UnreadableRow:  # whoever looks at its order tells of it
        return True
    if record is None:
        return True
    if direction is Direction.DO:
        return record.state in _DENIED
    return record.state in STANDING and await _is_forgotten(ledger, row.listed.key)


async def _is_forgotten(ledger: Ledger, undo_key: str) -> bool:
    """Whether nobody is about to write down that this undo was done."""
    record = await ledger.get(undo_key)
    return record is None or (record.state is EffectState.PENDING and not await ledger.is_held(undo_key))


def _is_check(catalogue: Catalogue, provider: str, operation: str) -> bool:
    kinds = catalogue.kinds_at(provider, operation)
    return bool(kinds) and not any(kind.effect for kind in kinds)


def _slices(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), AT_ONCE):
        yield rows[start : start + AT_ONCE]
