"""Where ledger, reference and bank do not agree, in sentences; nothing is said when they do."""

from collections.abc import Iterator, Mapping

from orderflow.domain.effects import EffectState
from tests.model.bank import Entry
from tests.model.calls import World
from tests.model.reference import Row

_S = EffectState


def disagreements(world: World, rows: Mapping[str, Row]) -> Iterator[str]:
    """After any step; `rows` are the ledger's."""
    yield from (*world.wrong, *world.bank.wrong, *world.reference.illegal)
    if rows != world.reference.rows:
        yield f"the ledger holds {rows}, and has to hold {world.reference.rows}"
    for key, row in rows.items():
        charge = world.bank.entry(key)
        if charge.is_charge:
            yield from _of_a_charge(row, charge, world.bank.undo_of(charge))
    for entry in world.bank.entries:
        if len(entry.moved) > 1:
            yield f"{entry.key} was applied {len(entry.moved)} times: {entry.moved}"
        if entry.is_charge and entry.left < 0:
            yield f"{entry.key}: more was given back than was taken: {entry}"


def left_over(world: World) -> Iterator[str]:
    """At the end, when everything was finished and then taken back."""
    if world.bank.in_flight:
        yield f"still on their way: {world.bank.in_flight}"
    for key, row in world.reference.rows.items():
        charge = world.bank.entry(key)
        if row.state in {_S.PENDING, _S.REVERSING}:
            yield f"{key} is still {row.state}"
        if charge.is_charge and charge.left:
            yield f"money stands at the bank: {charge}"


def _of_a_charge(row: Row, charge: Entry, undo: Entry) -> Iterator[str]:
    match row.state:
        case _S.COMMITTED:
            so = charge.moved == [row.captured] and not charge.closed
        case _S.DECLINED:
            so = charge.refused and not charge.moved
        case _S.VOIDED:
            so = not charge.moved
        case _S.REVERSED:
            # Where the charge's own outcome was never known, at least what was given back had been captured.
            captured = row.captured in {sum(charge.moved), row.refunded}
            so = charge.closed and charge.left == 0 and undo.moved == [row.refunded] and captured
        case _:
            so = True
    if not so:
        yield f"{charge.key} is {row} in the ledger; the bank: {charge}, {undo}"
