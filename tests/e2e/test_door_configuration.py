"""How a door is configured: no secret, no door; what changes in the callers file counts without a restart."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.command_line import Ran
from tests.support.door import INGRESS, Door
from tests.support.observing import eventually
from tests.support.processes import bare_environment, run
from tests.support.senders import Sender, new_secret, write_json
from tests.support.servers import DevServer
from tests.support.street import AGES_AGO, TYPE, Street, door_on

NOWHERE: Final = "orders.example.com:7233"


def _caller(**changes: Any) -> dict[str, Any]:
    return {
        "name": "shop", "secrets": [{"file": "secret"}], "sources": ["/shop"], "types": [TYPE], "limits": {"EUR": 1000},
        **changes,
    }  # fmt: skip


UNUSABLE: Final[dict[str, tuple[str | None, dict[str, Any]]]] = {
    "empty": ("", {}),
    "white space": (" \n\t", {}),
    "not there": (None, {}),
    "no secret": ("hunter2hunter2hunter2", {}),
    "an unset variable": (new_secret(), {"secrets": [{"env": "NOBODY_SET_THIS"}]}),
    "an empty variable": (new_secret(), {"secrets": [{"env": "EMPTY_SECRET"}]}),
    "ended": (new_secret(), {"secrets": [{"file": "secret", "until": AGES_AGO}]}),
}


async def test_a_door_without_a_usable_secret_does_not_open(tmp_path: Path, dev_server: DevServer) -> None:
    """W10: it ends with 2 and one sentence that says where, and never repeats a secret; any kind of unusable."""
    ended = await asyncio.gather(*(_started(tmp_path / kind, dev_server, *how) for kind, how in UNUSABLE.items()))
    for kind, (secret, _), ran in zip(UNUSABLE, UNUSABLE.values(), ended, strict=True):
        told = ran.out + ran.err
        assert ran.code == 2, (kind, ran)
        assert "callers" in told, kind
        assert "Traceback" not in told, kind
        assert not (secret or "").strip() or str(secret) not in told, kind


def _furnish(folder: Path, secret: str | None, changes: dict[str, Any]) -> None:
    folder.mkdir()
    if secret is not None:
        (folder / "secret").write_text(secret)
    write_json(folder / "callers.json", {"callers": [_caller(**changes)]})


async def _started(folder: Path, server: DevServer, secret: str | None, changes: dict[str, Any]) -> Ran:
    _furnish(folder, secret, changes)
    environment = bare_environment(
        TEMPORAL_ADDRESS=server.address,
        ORDERFLOW_STATE_DIR=str(folder),
        ORDERFLOW_CALLERS_FILE=str(folder / "callers.json"),
        EMPTY_SECRET=" ",
    )
    return await run(*INGRESS, "--port", "0", folder=folder, environment=environment)


async def test_a_door_to_orders_elsewhere_makes_no_caller_up(tmp_path: Path) -> None:
    """W10, DESIGN 10: with nothing configured only a Temporal on this machine gets a development caller."""
    environment = bare_environment(
        TEMPORAL_ADDRESS=NOWHERE, ORDERFLOW_STATE_DIR=str(tmp_path), ORDERFLOW_WAIT_FOR_SERVER="0"
    )
    ran = await run(*INGRESS, "--port", "0", folder=tmp_path, environment=environment)
    assert ran.code in (2, 3), ran
    assert not (tmp_path / "callers").exists()


@pytest.fixture
async def own_door(own_street: Street, dev_server: DevServer) -> AsyncIterator[Door]:
    """A door on it."""
    async with door_on(own_street, dev_server) as door:
        yield door


async def test_a_secret_is_rotated_without_a_restart_and_without_a_refusal(own_door: Door, own_street: Street) -> None:
    """W03: added, used, the old one removed; while somebody sends all the time."""
    old, new = own_street.shop, Sender("shop", "/shop", token=own_street.shop.token)
    rotated = own_street.folder / "secrets" / "shop.new"

    async def is_taken(sender: Sender) -> bool:
        return (await own_door.post(sender.placed(), sender)).status == 202

    async def is_refused(sender: Sender) -> bool:
        return (await own_door.post(sender.placed(), sender)).told == (401, "signature-invalid")

    assert await is_refused(new)
    rotated.with_name("shop.old").write_text(str(new.secret))
    await eventually(lambda: is_taken(new))
    assert await is_taken(old)
    rotated.write_text(new_secret())
    await eventually(lambda: is_refused(old))
    assert await is_taken(new)


async def test_a_callers_file_that_is_broken_changes_nothing(own_door: Door, own_street: Street) -> None:
    """Issue 4: what was good stays in force, and readiness says so until it is put right; where, is for the log."""
    own_street.callers_file.write_text('{"callers": [')
    await eventually(lambda: _callers_are(own_door, good=False))
    assert (await own_door.post(own_street.shop.placed(), own_street.shop)).status == 202
    assert str(own_street.callers_file) in own_door.child.said
    own_street.admit()
    await eventually(lambda: _callers_are(own_door, good=True))


async def _callers_are(door: Door, *, good: bool) -> bool:
    answer = await door.ask("/readyz")
    assert b".json" not in answer.body
    return answer.status == 200 and (answer.json["checks"]["callers"] == "ok") is good


async def test_who_is_taken_out_of_the_file_is_nobody_any_more(own_door: Door, own_street: Street) -> None:
    """Issue 4: for deliveries and questions alike, within seconds."""
    order = (await own_door.post(own_street.market.placed(data__total_minor=3399), own_street.market)).order
    assert (await own_door.order(order, own_street.market)).status == 200
    admitted = [caller for caller in own_street.callers() if caller["name"] != "market"]
    write_json(own_street.callers_file, {"callers": admitted})

    async def is_nobody() -> bool:
        return (await own_door.order(order, own_street.market)).status == 401

    await eventually(is_nobody)
    assert (await own_door.post(own_street.market.placed(), own_street.market)).status == 401
    assert (await own_door.post(own_street.shop.placed(), own_street.shop)).status == 202


async def test_a_caller_who_sends_too_often_is_slowed_down_alone(own_street: Street, dev_server: DevServer) -> None:
    """Issue 4: 429 with Retry-After for it, nothing for the others."""
    busy = Sender("busy", "/busy")
    entry = {
        "name": "busy", "secrets": [own_street.kept("busy", str(busy.secret))], "sources": ["/busy"], "types": [TYPE],
        "limits": {"EUR": 10_000}, "rate": {"per_second": 1, "burst": 3},
    }  # fmt: skip
    own_street.admit(entry)
    async with door_on(own_street, dev_server) as door:
        answers = await asyncio.gather(*(door.post(busy.placed(), busy) for _ in range(10)))
        limited = [answer for answer in answers if answer.status == 429]
        assert len(limited) >= 5
        assert {answer.told for answer in limited} == {(429, "rate-limited")}
        assert all(1 <= int(answer.headers["retry-after"]) <= 2 for answer in limited)
        assert (await door.post(own_street.shop.placed(), own_street.shop)).told == (202, "new")


def test_nothing_of_the_street_is_readable_for_others(own_street: Street) -> None:
    """The tests keep secrets as the documentation says."""
    modes = [os.stat(path).st_mode & 0o077 for path in (own_street.folder / "secrets").iterdir()]
    assert set(modes) == {0}
