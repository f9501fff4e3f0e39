"""What a provider did for an order and the ledger does not know, or denies: adopted, or put before a person."""

from collections.abc import Mapping, Sequence

from orderflow.acts import forward_act, recorded_act
from orderflow.catalogue import Catalogue
from orderflow.contracts import OrderInput, UndoRequest
from orderflow.domain.effects import Absent, Act, Done, EffectState, Listed, Refused, Undone
from orderflow.domain.errors import InvalidInput, OrderflowError, OutcomeUnknown
from orderflow.domain.events import workflow_id
from orderflow.domain.intents import Direction, idempotency_key
from orderflow.domain.orders import Standing
from orderflow.domain.reconciliation import CONTRADICTS_THE_LEDGER, UNKNOWN_TO_THE_LEDGER, What
from orderflow.ledger import EffectRecord
from orderflow.ledger.review import Ledger
from orderflow.reconcile import Orders
from orderflow.reconcile.acting import Hand
from orderflow.reconcile.dossier import Dossier
from orderflow.reconcile.listing import Row


class Strays:
    """Brings what providers listed into the ledger, where it can be told what it belongs to."""

    def __init__(self, ledger: Ledger, catalogue: Catalogue, orders: Orders, hand: Hand) -> None:
        self._ledger = ledger
        self._catalogue = catalogue
        self._orders = orders
        self._hand = hand

    async def look_at(self, dossier: Dossier, rows: Sequence[Row]) -> None:
        """Adopt what the rows of one order show. Later steps come first, as they have to be taken back first."""
        steps: dict[str, dict[Direction, Row]] = {}
        for row in sorted(rows, key=lambda row: row.listed.at, reverse=True):
            steps.setdefault(row.key.step, {})[row.key.direction] = row
        for item in dossier.open_items():
            if item.error in (UNKNOWN_TO_THE_LEDGER, CONTRADICTS_THE_LEDGER):
                steps.setdefault(item.step, {})
        for step, listed in steps.items():
            key = idempotency_key(dossier.order, step, Direction.DO)
            with dossier.guarding(key):
                await self._look_at_step(dossier, key, step, listed)

    async def _look_at_step(self, dossier: Dossier, key: str, step: str, listed: Mapping[Direction, Row]) -> None:
        if dossier.decided_by_people(key):
            return
        record = await self._ledger.get(key)
        if record is None:
            await self._unknown(dossier, key, step, listed)
        elif record.state in (EffectState.VOIDED, EffectState.DECLINED):
            await self._denied(dossier, record)
        elif Direction.UNDO in listed and isinstance(await self._found(recorded_act(record)), Undone):
            dossier.tell_of(await self._hand.undo(record))

    async def _unknown(self, dossier: Dossier, key: str, step: str, listed: Mapping[Direction, Row]) -> None:
        if not listed:  # an open item, and no provider tells of it this time
            dossier.keep(key)
            return
        row = listed.get(Direction.DO) or listed[Direction.UNDO]
        act = await self._act(dossier, step, row)
        if act is None:
            await self._unexplained(dossier, key, step, row)
            return
        match await self._found(act):
            case Done() as done:
                dossier.tell_of(await self._hand.adopt(act, done))
            case Undone() if Direction.DO in listed:
                adopted = await self._hand.adopt(act, _as_done(listed[Direction.DO].listed))
                dossier.tell_of(await self._hand.undo(adopted))
            case Undone():
                await self._hand.void(act)
                dossier.tell(What.VOIDED, key)
            case _:
                raise InvalidInput(f"{row.provider} lists {key}, and then says that it never did it")

    async def _unexplained(self, dossier: Dossier, key: str, step: str, row: Row) -> None:
        """Nobody knows the order, or not this step of it: a person has to find out what it stands for."""
        bare = Act(
            key=key,
            workflow_id=dossier.order,
            step=step,
            provider=row.provider,
            operation=row.listed.operation,
            intent={},
            intent_digest="",
            amount_minor=row.listed.amount_minor,
        )
        if row.key.direction is Direction.DO and isinstance(await self._found(bare), Done):
            amount = row.listed.amount_minor
            dossier.leave(_left(step, key, amount, UNKNOWN_TO_THE_LEDGER, row.listed.operation))

    async def _denied(self, dossier: Dossier, record: EffectRecord) -> None:
        if isinstance(await self._found(recorded_act(record)), Done):
            left = _left(record.step, record.key, record.amount_minor, CONTRADICTS_THE_LEDGER, record.state)
            dossier.leave(left.model_copy(update={"currency": record.currency}))

    async def _act(self, dossier: Dossier, step: str, row: Row) -> Act | None:
        """What the order meant to do in that step; `None` when nobody can tell."""
        if not dossier.is_known or (placed := await self._orders.placed(dossier.order)) is None:
            return None
        if workflow_id(placed.event.source, placed.event.id) != dossier.order:
            return None
        act = self._meant(placed, dossier.order, step)
        undone = row.key.direction is Direction.UNDO
        same = act is not None and (act.provider == row.provider) and (undone or act.operation == row.listed.operation)
        return act if same else None

    def _meant(self, placed: OrderInput, order: str, step_id: str) -> Act | None:
        for step in placed.definition.steps:
            if step.id == step_id and step.activity in self._catalogue.kinds:
                request = UndoRequest(workflow_id=order, step=step.id, activity=step.activity, event=placed.event)
                return _intended(self._catalogue, request)
        return None

    async def _found(self, act: Act) -> Done | Refused | Absent | Undone:
        found = await self._hand.found(act)
        if isinstance(found, Done | Refused | Absent | Undone):
            return found
        raise OutcomeUnknown(f"{act.provider} does not say now what became of {act.key}", answer=found.answer)


def _intended(catalogue: Catalogue, request: UndoRequest) -> Act:
    """The act of a step. What a package's own function raises is that package's fault, and of this order alone."""
    try:
        return forward_act(catalogue.kind_for(request.activity), request)
    except OrderflowError:
        raise
    except Exception as error:
        fault = type(error).__name__
        raise InvalidInput(f"{request.activity} cannot say what it means to do for this order: {fault}") from error


def _as_done(listed: Listed) -> Done:
    return Done(reference=listed.reference, amount_minor=listed.amount_minor)


def _left(step: str, key: str, amount: int | None, error: str, detail: str) -> Standing:
    return Standing(step=step, key=key, amount_minor=amount, currency=None, error=error, detail=detail)
