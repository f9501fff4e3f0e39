"""What every provider must do, asked of the simulated world in process and over HTTP alike."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from orderflow.domain.effects import (
    Absent,
    Act,
    Busy,
    Done,
    Found,
    Pending,
    Performed,
    Refused,
    Unavailable,
    Undone,
    Unknown,
)
from tests.support.providers import FORWARD, OPERATIONS, UNDO_OF, Backend, act, do, seen, within


async def prepared(backend: Backend, operation: str, order: str) -> Act:
    """The act to try; for an undo, what it takes back is done first."""
    if (forward := UNDO_OF.get(operation)) is not None:
        assert isinstance(await do(backend, act(forward, order)), Done)
    return act(operation, order)


async def settled(backend: Backend, asked: Act) -> Found:
    """What a careful caller does after an answer that left it open: look first, ask again when proven absent."""
    answer: Found = Unknown()
    for _ in range(8):
        answer = await within(backend.of(asked).lookup(asked))
        if isinstance(answer, Absent):
            answer = await do(backend, asked)
        if isinstance(answer, Done | Refused | Undone):
            return answer
    return answer


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_same_key_twice_acts_once(backend: Backend, order: str, operation: str) -> None:
    """A repeated call is answered like the first and stands in the log as replayed (I04)."""
    asked = await prepared(backend, operation, order)

    first, second = await do(backend, asked), await do(backend, asked)

    assert first == second
    assert isinstance(first, Done)
    assert backend.outcomes(asked) == ["done", "replayed"]
    assert await within(backend.of(asked).lookup(asked)) == first


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_same_key_at_the_same_time_acts_once(backend: Backend, order: str, operation: str) -> None:
    """Ten calls at once under one key give one act and ten equal answers."""
    asked = await prepared(backend, operation, order)

    answers = await within(asyncio.gather(*(do(backend, asked) for _ in range(10))))

    assert [answer for answer in answers if answer != answers[0]] == []
    assert sorted(map(str, backend.outcomes(asked))) == ["done"] + ["replayed"] * 9


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_same_key_with_another_intent_is_a_conflict(backend: Backend, order: str, operation: str) -> None:
    """A key that was used is never used for something else (I01)."""
    asked = await prepared(backend, operation, order)
    await do(backend, asked)

    answer = await do(backend, asked.model_copy(update={"intent_digest": "sha256:other"}))

    assert answer == Refused(code="idempotency_conflict")
    assert backend.outcomes(asked) == ["done", "refused"]


async def hangs(backend: Backend, asked: Act) -> None:
    """Ask, and see that it acts (or never will) and does not answer."""
    call = asyncio.create_task(do(backend, asked))
    await seen(lambda: [line for line in backend.lines(asked) if line.get("fault") == "hang"])
    await asyncio.sleep(0.05)
    assert not call.done()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


FIRST_ANSWER: dict[str, type[Performed]] = {
    "decline": Refused,
    "unavailable": Unavailable,
    "busy": Busy,
    "pending": Pending,
    "lost_reply": Unknown,
    "delay": Done,
}
FAULTS: list[tuple[str, dict[str, object]]] = [
    ("decline", {}),
    ("unavailable", {"milliseconds": 50}),
    ("busy", {"times": 2}),
    ("pending", {"times": 2}),
    ("lost_reply", {}),
    ("lost_reply", {"commit": False}),
    ("hang", {}),
    ("hang", {"commit": False}),
    ("delay", {"milliseconds": 30}),
]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("kind", "more"), FAULTS, ids=lambda value: str(value) if value else "-")
async def test_whatever_goes_wrong_a_careful_caller_acts_once(
    backend: Backend, order: str, operation: str, kind: str, more: dict[str, object]
) -> None:
    """Each fault at each operation: the answer says what is known, and looking before asking again acts once (I06)."""
    asked = await prepared(backend, operation, order)
    backend.fault(kind, operation, order, **more)

    if kind == "hang":
        await hangs(backend, asked)
    else:
        answer = await do(backend, asked)
        declined_check = kind == "decline" and operation == "check"
        assert isinstance(answer, Done if declined_check else FIRST_ANSWER[kind])
    final = await settled(backend, asked)

    definitive_no = kind == "decline" and operation in FORWARD and operation != "check"
    assert isinstance(final, Refused if definitive_no else Done)
    assert backend.outcomes(asked).count("done") == (0 if definitive_no else 1)


async def test_unavailable_and_busy_say_when_to_come_back(backend: Backend, order: str) -> None:
    """The time to come back is in whole seconds, rounded up (I08)."""
    backend.fault("unavailable", "charge", order, milliseconds=1500)
    backend.fault("busy", "charge", order, milliseconds=0)
    backend.fault("busy", "charge", order)
    asked = act("charge", order)

    answers = [await do(backend, asked) for _ in range(4)]

    assert answers[:3] == [Unavailable(retry_after=2), Busy(retry_after=0), Busy()]
    assert isinstance(answers[3], Done)


@pytest.mark.parametrize("kind", ["unavailable", "busy", "lost_reply", "hang", "delay"])
@pytest.mark.parametrize("asking", ["again", "lookup"])
async def test_faults_strike_settled_keys_without_undoing_them(
    backend: Backend, order: str, kind: str, asking: str
) -> None:
    """A fault at a repeated call or at a lookup hides the answer once and changes nothing."""
    asked = act("charge", order)
    done = await do(backend, asked)
    more = {"milliseconds": 20} if kind == "delay" else {}
    backend.fault(kind, "charge" if asking == "again" else "lookup", order, **more)

    async def ask() -> Found:
        return await (do(backend, asked) if asking == "again" else within(backend.of(asked).lookup(asked)))

    if kind == "hang":
        call = asyncio.create_task(ask())
        await seen(lambda: [line for line in backend.world.log() if line.get("key") == asked.key and "fault" in line])
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    else:
        first = await ask()
        expected = {"unavailable": Unavailable, "busy": Busy, "lost_reply": Unknown, "delay": Done}
        assert isinstance(first, expected[kind])
    assert await ask() == done
    assert backend.world.net_charged(order) == 10_00
    assert backend.outcomes(asked).count("done") == 1


@pytest.mark.parametrize("kind", ["decline", "pending"])
async def test_what_is_done_is_neither_declined_nor_pending_later(backend: Backend, order: str, kind: str) -> None:
    """Such a fault passes over a repeated call and waits for a key that is new."""
    first, second = act("charge", order), act("charge", order, step="second")
    done = await do(backend, first)
    backend.fault(kind, "charge", order)

    assert await do(backend, first) == done
    assert isinstance(await do(backend, second), FIRST_ANSWER[kind])


async def test_pending_settles_after_as_many_lookups_as_ordered(backend: Backend, order: str) -> None:
    """Pending is never done by itself: nothing is charged until a lookup says so, under one reference."""
    backend.fault("pending", "charge", order, times=2)
    asked = act("charge", order)

    pending = await do(backend, asked)
    again = await do(backend, asked)
    charged = [backend.world.net_charged(order)]
    looked = []
    for _ in range(4):
        looked.append(await within(backend.of(asked).lookup(asked)))
        charged.append(backend.world.net_charged(order))

    assert isinstance(pending, Pending)
    done = Done(reference=pending.reference, amount_minor=10_00)
    assert [again, *looked] == [pending, pending, pending, done, done]
    assert charged == [0, 0, 0, 10_00, 10_00]
    assert backend.outcomes(asked).count("done") == 1
    assert isinstance(await do(backend, act("charge", order, step="second")), Done)  # its times are lookups, not acts


async def test_a_pending_reservation_holds_its_stock(backend: Backend, order: str) -> None:
    """What is promised to one order is not promised to the next."""
    backend.fault("pending", "reserve", order)
    first = act("reserve", order, quantity=600)

    await do(backend, first)

    assert backend.world.stock(f"sku-{order}") == 400
    assert await do(backend, act("reserve", order, quantity=600, step="second")) == Refused(code="out_of_stock")


async def test_inventory_declines_what_is_not_in_stock(backend: Backend, order: str) -> None:
    """More than there is, is a definitive no under that key; nothing is held."""
    asked = act("reserve", order, quantity=1001)

    assert await do(backend, asked) == Refused(code="out_of_stock")
    assert await within(backend.of(asked).lookup(asked)) == Refused(code="out_of_stock")
    assert backend.world.stock(f"sku-{order}") == 1000


@pytest.mark.parametrize(
    ("kind", "decision"), [(None, "approve"), ("decline", "decline"), ("manual_review", "manual_review")]
)
async def test_risk_answers_a_decision(backend: Backend, order: str, kind: str | None, decision: str) -> None:
    """A check is done whatever it finds; the decision and a score in permille are its result."""
    if kind:
        backend.fault(kind, "check", order)

    answer = await do(backend, act("check", order))

    assert isinstance(answer, Done)
    assert answer.result["decision"] == decision
    assert isinstance(answer.result["score"], int)
    assert 0 <= answer.result["score"] <= 1000


async def test_a_message_is_recorded_without_personal_data(backend: Backend, order: str) -> None:
    """The log says whose message was sent and never to which address (O01)."""
    await do(backend, act("notify", order))

    assert [line["workflow_id"] for line in backend.world.messages(order)] == [order]
    assert "canary" not in json.dumps(backend.world.log())


@pytest.mark.parametrize("amount", [500, 1234, 1099, 2**53 - 1])
async def test_amounts_arrive_as_they_were_sent(backend: Backend, order: str, amount: int) -> None:
    """Minor units, whatever the currency's decimals (M01)."""
    asked = act("charge", order, amount=amount)

    answer = await do(backend, asked)

    assert isinstance(answer, Done)
    assert answer.amount_minor == amount
    assert [(line["amount_minor"], line["currency"]) for line in backend.lines(asked)] == [(amount, "EUR")]


async def test_list_tells_what_was_done_since(backend: Backend, order: str) -> None:
    """Acts and undos that changed the world are listed once, refusals and voids never."""
    before = datetime.now(UTC)
    charge, refund = act("charge", order), act("refund", order)
    await do(backend, charge)
    await do(backend, charge)
    await do(backend, refund)
    never = act("charge", f"{order}-never")
    await within(backend.of(never).undo(act("refund", f"{order}-never"), never))

    listed = await within(backend.of(charge).list(before))
    later = await within(backend.of(charge).list(datetime.now(UTC)))

    assert listed is not None
    assert [(row.key, row.operation, row.amount_minor) for row in listed] == [
        (charge.key, "charge", 10_00),
        (refund.key, "refund", 10_00),
    ]
    assert later == []


async def test_a_fault_is_for_its_order_and_for_as_many_calls_as_ordered(backend: Backend, order: str) -> None:
    """Others are served meanwhile, and after `times` calls so is this one; the oldest fault strikes first."""
    backend.fault("unavailable", "notify", order, times=2)
    backend.fault("busy", "notify", order)
    mine, other = act("notify", order), act("notify", f"{order}-other")

    assert isinstance(await do(backend, other), Done)
    assert [type(await do(backend, mine)) for _ in range(4)] == [Unavailable, Unavailable, Busy, Done]
