"""`orderflow history` with a real Temporal server: what is exported, in whichever way, replays."""

import json
from typing import Any

import pytest

from orderflow.domain.orders import Stage
from tests.support.command_line import Ran
from tests.support.counter import Counter
from tests.support.processes import TemporalCli

pytestmark = pytest.mark.timeout(60)

SECRETS = ("someone@example.com", "dana", "alice")


def verdicts(ran: Ran) -> list[str]:
    """What a replay came to."""
    assert ran.code == 0, ran
    return [each["verdict"] for each in ran.json["histories"]]


async def test_an_order_is_exported_redacted_and_replayed(open_counter: Counter) -> None:
    """Issue 5: by order, by query and all of them; an open one and a closed one; nothing of the customer is left."""
    done, waiting = await open_counter.pending(), await open_counter.pending()
    assert (await open_counter("approve", done.id, "--as", "alice")).code == 0
    await done.until(Stage.COMPLETED)
    await done.result()
    for order in (done, waiting):
        assert (await open_counter("history", "export", order.id, "--dir", "two")).code == 0
    query = f'WorkflowId = "{done.id}"'
    told = (await open_counter("history", "export", "--query", query, "--dir", "one", "--json")).json
    assert len(told["files"]) <= 1  # a list may lag behind
    assert (await open_counter("history", "export", "--all", "--dir", "all")).code == 0
    assert (await open_counter("history", "redact", "two", "--out", "redacted")).code == 0
    assert verdicts(await open_counter("history", "replay", "two", "redacted", "--json")) == ["ok"] * 4
    made = list((open_counter.folder / "redacted").iterdir())
    assert len(made) == 2
    for file in made:
        text = file.read_text()
        assert done.id not in text
        assert waiting.id not in text
        assert not any(secret in text for secret in SECRETS)


async def test_what_temporals_own_command_line_writes_replays(open_counter: Counter, cli: TemporalCli) -> None:
    """T30: `temporal workflow show --output json`, with payloads as they are and in shorthand."""
    order = await open_counter.pending()
    for name, options in {"raw": ("--no-json-shorthand-payloads",), "shorthand": ()}.items():
        shown: Any = await cli.json("show", "--workflow-id", order.id, *options)
        (open_counter.folder / f"{name}.json").write_text(json.dumps(shown))
    assert verdicts(await open_counter("history", "replay", "raw.json", "shorthand.json", "--json")) == ["ok", "ok"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("order-1", "--all"), 2),
        (("--query", "no such thing ="), 2),
        (("order-00000000000000000000000000000000",), 1),
    ],
)
async def test_what_cannot_be_exported_is_said(arguments: tuple[str, ...], code: int, counter: Counter) -> None:
    """O01: one line; exit code 2 for a bad call, 1 for an order that Temporal does not know."""
    ran = await counter("history", "export", *arguments)
    assert (ran.code, len(ran.err.splitlines())) == (code, 1), ran
