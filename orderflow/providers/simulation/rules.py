"""What a simulated provider does: each function looks at the books, appends to the log and gives a reply.

A provider acts once under a key, whatever goes wrong with its answer. Inventory runs out of stock, a risk check has a
result, payments refund what remains; every other provider, such as an extension's, just remembers that it acted.
"""

from typing import Final

from orderflow.domain.effects import Absent, Act, Busy, Done, Found, Handle, Pending, Refused, Undone, Unknown
from orderflow.domain.strict_json import JsonValue
from orderflow.providers.simulation.books import Books, Entry, EntryState
from orderflow.providers.simulation.faults import LOOKUP, SETTLED_KINDS, Fault, Waiting
from orderflow.providers.simulation.journal import Line, Turn
from orderflow.providers.simulation.replies import Reply, delivered, held_back, tell

_SCORES: Final = {"approve": 80, "manual_review": 550, "decline": 920}
"""Risk score by decision, in permille."""

_DECLINE_CODES: Final = {"reserve": "out_of_stock", "charge": "card_declined", "notify": "undeliverable"}


def perform(turn: Turn[Books], act: Act, started: int | None = None) -> Reply:
    """Do `act` once. `started`: the delay that began with that log line is over."""
    base = _line_of(act)
    if act.provider == "inventory":
        items = _items(act.intent)
        if items is None:
            return Reply(tell(turn, base, Refused(code="invalid_items"), "refused"))
        base["items"] = items
    return _call(turn, base, started)


def undo(turn: Turn[Books], act: Act, of: Act, started: int | None = None) -> Reply:
    """Take back once, under the key of `act`, what still stands of `of`, found by its key or by our reference."""
    return _call(turn, {**_line_of(act), "of": turn.state.key_of(of) or of.key}, started)


def lookup(turn: Turn[Books], act: Act, started: int | None = None, by: Handle = Handle.KEY) -> Reply:
    """Say what became of `act`; a pending act settles after as many lookups as its fault says."""
    base = {**_line_of(act), "kind": "lookup"}
    if by is Handle.MERCHANT_REFERENCE:
        base |= {"key": turn.state.key_of(act) or act.key, "by": by.value}
    waiting = None if started else _strike(turn, base, LOOKUP)
    if waiting is None:
        return Reply(_looked_up(turn, base))
    base |= _mark(waiting)
    return held_back(turn, base, waiting.fault, begins=False) or delivered(_looked_up(turn, base), waiting.fault)


def refund_by_hand(turn: Turn[Books], charge: Entry, amount_minor: int) -> Line:
    """Give back a part of `charge` as an operator would: outside our keys (M04)."""
    kept = ("kind", "provider", "workflow_id", "step", "currency")
    return turn.append(
        {
            **{name: charge.line[name] for name in kept if name in charge.line},
            "operation": "refund",
            "key": f"by-hand-{turn.next_seq}",
            "of": charge.line["key"],
            "amount_minor": amount_minor,
            "outcome": "done",
            "reference": f"refund-{turn.next_seq}",
            "by_hand": True,
        }
    )


def _line_of(act: Act) -> Line:
    money: Line = {"amount_minor": act.amount_minor, "currency": act.currency}
    return {
        "kind": "act",
        "provider": act.provider,
        "operation": act.operation,
        "key": act.key,
        "workflow_id": act.workflow_id,
        "step": act.step,
        "intent_digest": act.intent_digest,
        **{name: value for name, value in money.items() if value is not None},
    }


def _items(intent: dict[str, JsonValue]) -> dict[str, JsonValue] | None:
    """Give the quantity by SKU, or `None` if the intent holds no usable items."""
    found: dict[str, JsonValue] = {}
    items = intent.get("items")
    for item in items if isinstance(items, list) else ():
        sku, quantity = (item.get("sku"), item.get("quantity")) if isinstance(item, dict) else (None, None)
        if not isinstance(sku, str) or type(quantity) is not int or quantity < 1:
            return None
        before = found.get(sku, 0)
        found[sku] = quantity + (before if isinstance(before, int) else 0)
    return found or None


def _call(turn: Turn[Books], base: Line, started: int | None) -> Reply:
    entry = turn.state.entry(str(base["provider"]), str(base["key"]))
    if started is not None:
        return Reply(_awake(turn, base, entry, started))
    if entry is not None and entry.line.get("intent_digest", base["intent_digest"]) != base["intent_digest"]:
        return Reply(tell(turn, base, Refused(code="idempotency_conflict"), "refused"))
    if entry is not None and entry.is_in_flight(turn.now):
        return Reply(tell(turn, base, Busy(), "busy"))
    return _strike_or_act(turn, base, None if entry and entry.state is EntryState.STARTED else entry)


def _awake(turn: Turn[Books], base: Line, entry: Entry | None, started: int) -> Found:
    """Act after a delay, unless the key has been voided or used meanwhile."""
    if entry is None:
        return tell(turn, base, Unknown(detail="superseded"), "lost")
    if entry.state is EntryState.STARTED and entry.line["seq"] == started:
        return _first(turn, base)
    return _again(turn, base, entry)


def _strike_or_act(turn: Turn[Books], base: Line, entry: Entry | None) -> Reply:
    waiting = _strike(turn, base, str(base["operation"]), None if entry is None else SETTLED_KINDS)
    if waiting is None:
        return Reply(_again(turn, base, entry) if entry else _first(turn, base))
    fault, base = waiting.fault, base | _mark(waiting)
    if (reply := held_back(turn, base, fault, begins=entry is None)) is not None:
        return reply
    return delivered(_again(turn, base, entry) if entry else _first(turn, base, fault), fault)


def _strike(turn: Turn[Books], base: Line, operation: str, kinds: frozenset[str] | None = None) -> Waiting | None:
    return turn.state.faults.match(str(base["provider"]), operation, str(base["workflow_id"]), kinds)


def _mark(waiting: Waiting) -> Line:
    return {"fault": waiting.fault.kind, "fault_seq": waiting.seq}


def _first(turn: Turn[Books], base: Line, fault: Fault | None = None) -> Found:
    """Act, or refuse to, under a key that is new."""
    if (code := _refusal(turn.state, base, fault)) is not None:
        return tell(turn, base, Refused(code=code), "declined")
    if base["operation"] == "check":
        decision = fault.kind if fault and fault.kind in _SCORES else "approve"
        base = {**base, "result": {"decision": decision, "score": _SCORES[decision]}}
    if fault and fault.kind == "pending":
        reference = f"{base['operation']}-{turn.next_seq}"
        turn.append({**base, "outcome": "pending", "reference": reference, "polls": fault.times})
        return Pending(reference=reference)
    return _complete(turn, base)


def _refusal(books: Books, base: Line, fault: Fault | None) -> str | None:
    operation = str(base["operation"])
    if fault and fault.kind == "decline" and operation != "check":
        return fault.code or _DECLINE_CODES.get(operation, "declined")
    items = base.get("items")
    short = isinstance(items, dict) and any(
        isinstance(quantity, int) and quantity > books.in_stock(sku) for sku, quantity in items.items()
    )
    return "out_of_stock" if short else None


def _complete(turn: Turn[Books], base: Line) -> Done:
    """Do it: an act as it was asked for, an undo as far as there is something to take back."""
    change = _taken_back(turn.state, base) if "of" in base else {"outcome": "done"}
    reference = base.get("reference", f"{base['operation']}-{turn.next_seq}")
    return _done(turn.append({**base, **change, "reference": reference}))


def _taken_back(books: Books, base: Line) -> Line:
    target = books.entry(str(base["provider"]), str(base["of"]))
    if target is None or target.state in (EntryState.STARTED, EntryState.PENDING, EntryState.DECLINED):
        return {"outcome": "voided", "amount_minor": 0}
    if target.state is not EntryState.DONE:
        return {"outcome": "already_undone", "amount_minor": 0}
    remaining: Line = {} if target.remaining_minor is None else {"amount_minor": target.remaining_minor}
    items: Line = {"items": {**target.items}} if target.items else {}
    return {"outcome": "done", **remaining, **items}


def _again(turn: Turn[Books], base: Line, entry: Entry) -> Found:
    """Answer what it came to when the key was used before."""
    answer = _known(entry)
    if isinstance(answer, Undone):
        return tell(turn, base, Refused(code=entry.state), "refused")
    shown: Line = {name: entry.line[name] for name in ("reference", "amount_minor") if name in entry.line}
    return tell(turn, base | shown, answer, "replayed")


def _looked_up(turn: Turn[Books], base: Line) -> Found:
    answer = _found(turn, turn.state.entry(str(base["provider"]), str(base["key"])))
    return tell(turn, base, answer, answer.answer)


def _found(turn: Turn[Books], entry: Entry | None) -> Found:
    if entry is None:
        return Absent()
    if entry.state is EntryState.STARTED:
        return Busy() if entry.is_in_flight(turn.now) else Absent()
    if entry.state is EntryState.PENDING and not entry.polls_left:
        told = ("seq", "at", "outcome", "polls", "fault", "fault_seq")
        return _complete(turn, {name: value for name, value in entry.line.items() if name not in told})
    return _known(entry)


def _known(entry: Entry) -> Done | Pending | Refused | Undone:
    match entry.state:
        case EntryState.DONE:
            return _done(entry.line)
        case EntryState.PENDING:
            return Pending(reference=str(entry.line["reference"]))
        case EntryState.DECLINED:
            return Refused(code=str(entry.line["code"]))
        case _:
            return Undone(reference=str(entry.line.get("reference", "")), amount_minor=entry.refunded_minor)


def _done(line: Line) -> Done:
    amount, result = line.get("amount_minor"), line.get("result")
    return Done(
        reference=str(line["reference"]),
        amount_minor=amount if isinstance(amount, int) else None,
        result=result if isinstance(result, dict) else {},
    )
