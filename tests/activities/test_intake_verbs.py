"""`orderflow intake` on both backends; Temporal is nowhere (issue 4: the intake gate)."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from orderflow.backends import open_ledger
from orderflow.ledger.events import Arrival, Delivery
from orderflow.ledger.review import Ledger
from orderflow.settings import load_settings
from tests.support.command_line import Ran, orderflow, unconfigure
from tests.support.postgres import Postgres

T = TypeVar("T")

Sql = Callable[[str], None]


@pytest.fixture(params=["sqlite", "postgres"], autouse=True)
def sql(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sql:
    """A shell in an empty folder, in front of an empty ledger that exists; gives what runs SQL in it."""
    unconfigure(tmp_path, monkeypatch)
    if request.param == "sqlite":
        monkeypatch.setenv("ORDERFLOW_LEDGER_URL", "sqlite:///ledger.db")
    else:
        server: Postgres = request.getfixturevalue("postgres")
        server.emptied()
        monkeypatch.setenv("ORDERFLOW_LEDGER_URL", server.url())
    asyncio.run(_with_ledger(lambda ledger: ledger.intake()))

    def run(statement: str) -> None:
        if request.param == "postgres":
            server.run(statement)
        else:
            with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as connection:
                connection.execute(statement)

    return run


async def _with_ledger(work: Callable[[Ledger], Awaitable[T]]) -> T:
    async with aclosing(await open_ledger(load_settings())) as ledger:
        return await work(ledger)


def arrival(number: int = 1) -> Arrival:
    """What the ledger says of the delivery of an event."""
    delivery = Delivery("shop", f"msg_{number}", 1_800_000_000, "/shop", f"e-{number}", "fp1:0", f"order-{number}")
    return asyncio.run(_with_ledger(lambda ledger: ledger.receive(delivery)))


def done(*arguments: object) -> Any:
    """What a verb answers that is done."""
    ran = orderflow("intake", *arguments, "--json")
    assert ran.code == 0, ran
    return ran.json


def test_a_pause_holds_from_the_moment_it_returns_until_it_is_lifted() -> None:
    """W: nothing is stored meanwhile: the event is new afterwards."""
    assert done("pause", "--reason", "the warehouse moves", "--by", "carol")["paused"] is True
    assert arrival() is Arrival.PAUSED
    assert done("resume", "--by", "carol")["paused"] is False
    assert arrival() is Arrival.NEW


def test_a_pause_names_who_when_and_why() -> None:
    """An operator's act can be put down to somebody."""
    told = done("pause", "--reason", "the warehouse  moves", "--by", "carol")
    assert (told["changed"], told["by"], told["reason"]) == (True, "carol", "the warehouse moves")
    shown = done("status")
    assert {key: shown[key] for key in ("paused", "by", "reason", "since")} == {
        key: told[key] for key in ("paused", "by", "reason", "since")
    }
    page = orderflow("intake", "status").out
    assert all(word in page for word in ("paused", "carol", "the warehouse moves"))


def test_a_second_pause_leaves_to_the_first_who_said_so_and_why() -> None:
    """Nobody's words appear under another's name."""
    first = done("pause", "--reason", "the warehouse moves", "--by", "carol")
    second = done("pause", "--reason", "lunch", "--by", "oscar")
    assert second == first | {"changed": False}
    assert "carol" in orderflow("intake", "pause", "--reason", "lunch", "--by", "oscar").out


def test_resuming_what_is_open_changes_nothing() -> None:
    """Also in a ledger in which nobody ever paused anything."""
    assert done("resume")["changed"] is False
    assert done("status")["paused"] is False
    assert "already" in orderflow("intake", "resume").out


@pytest.mark.parametrize("given", ["", "  ", "x" * 501, "a\x1b[2Jb"])
def test_a_reason_is_one_line_that_can_be_read(given: str) -> None:
    """It is shown on other people's terminals."""
    ran = orderflow("intake", "pause", "--reason", given, "--by", "carol")
    assert ran.code == 2
    assert "--reason" in ran.err
    assert done("status")["paused"] is False


def test_a_pause_without_a_reason_is_bad_input() -> None:
    """Whoever looks at the status at night has to know."""
    assert orderflow("intake", "pause").code == 2


def test_without_a_name_it_is_the_user_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a name has to give one."""
    monkeypatch.setattr("getpass.getuser", lambda: "dana")
    assert done("pause", "--reason", "why not")["by"] == "dana"

    def nameless() -> str:
        raise OSError("no user name")

    monkeypatch.setattr("getpass.getuser", nameless)
    ran = orderflow("intake", "resume")
    assert (ran.code, "--by" in ran.err) == (2, True)


def test_a_temporal_that_is_away_is_shown_and_no_error() -> None:
    """That is when an operator looks."""
    ran = orderflow("intake", "status", "--json")
    assert ran.code == 0
    assert ran.json["temporal"]["fault"]
    assert ran.json["temporal"]["oldest_task_seconds"] is None
    assert "away" in orderflow("intake", "status").out


def test_each_door_is_shown_with_what_it_found_out() -> None:
    """And is not mistaken for an operator's word."""

    async def doors(ledger: Ledger) -> None:
        await ledger.set_intake("shop-1", paused=True, reason="no answer", changed_by="shop-1")
        await ledger.set_intake("shop-2", paused=False, reason="", changed_by="shop-2")

    asyncio.run(_with_ledger(doors))
    told = done("status")
    assert told["paused"] is False
    shown = [(door["door"], door["open"], door["reason"], door["gone"]) for door in told["doors"]]
    assert shown == [("shop-1", False, "no answer", False), ("shop-2", True, None, False)]
    assert arrival() is Arrival.NEW
    page = orderflow("intake", "status").out
    assert "closed" in page
    assert "no answer" in page


def test_a_door_that_says_nothing_any_more_is_gone_and_then_forgotten(sql: Sql) -> None:
    """Whoever reads the list must not wait for it to open."""
    asyncio.run(_with_ledger(lambda ledger: ledger.set_intake("shop-1", paused=True, reason="x", changed_by="shop-1")))
    sql("UPDATE intake SET seen_at = seen_at - 180000")
    assert [door["gone"] for door in done("status")["doors"]] == [True]
    assert "gone" in orderflow("intake", "status").out
    sql("UPDATE intake SET seen_at = seen_at - 86400000")
    assert done("status")["doors"] == []


def test_a_pause_is_never_forgotten(sql: Sql) -> None:
    """Nobody says again every 20 s that it stands."""
    done("pause", "--reason", "the warehouse moves", "--by", "carol")
    sql("UPDATE intake SET seen_at = seen_at - 864000000")
    assert done("status")["paused"] is True
    assert arrival() is Arrival.PAUSED


def test_events_that_wait_for_their_order_are_counted(sql: Sql) -> None:
    """Those of the last minute are about to get theirs."""
    arrival()
    assert done("status")["events_without_order"] == 0
    sql("UPDATE events SET received_at = received_at - 61000")
    assert done("status")["events_without_order"] == 1
    assert "1 older than 1m0s" in orderflow("intake", "status").out


@pytest.mark.parametrize("sql", ["postgres"], indirect=True)
def test_operators_may_pause_and_readers_may_not(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Access to the ledger is what authorises it: on PostgreSQL, the role."""
    server: Postgres = request.getfixturevalue("postgres")
    monkeypatch.setenv("ORDERFLOW_LEDGER_URL", server.url(user=server.member("orderflow_reader")))
    refused = orderflow("intake", "pause", "--reason", "x")
    assert (refused.code, "permission denied for table intake" in refused.err) == (3, True)
    monkeypatch.setenv("ORDERFLOW_LEDGER_URL", server.url(user=server.member("orderflow_operator")))
    assert done("pause", "--reason", "x")["paused"] is True
    assert done("status")["paused"] is True
    assert done("resume")["paused"] is False


def test_a_ledger_that_does_not_exist_is_not_made(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause in the wrong folder would pause nothing."""
    monkeypatch.setenv("ORDERFLOW_LEDGER_URL", "sqlite:///elsewhere.db")
    for verb in (("status",), ("pause", "--reason", "x"), ("resume",)):
        ran: Ran = orderflow("intake", *verb)
        assert ran.code == 2
        assert "elsewhere.db" in ran.err
    assert not (tmp_path / "elsewhere.db").exists()
