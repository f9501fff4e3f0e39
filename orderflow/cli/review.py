"""`orderflow review list|show|retry|resolve`: the queue for people, and the operations that are allowed on it."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from orderflow.cli.arguments import AsJson
from orderflow.cli.exits import ExitCode, Refused
from orderflow.cli.output import age, money, print_fields, print_json, print_line, print_table
from orderflow.domain.announcements import announced_order
from orderflow.domain.approvals import Refusal
from orderflow.domain.operations import Operation, Resolution, read_operation

if TYPE_CHECKING:
    from temporalio.client import Client

    from orderflow.cli.operations import Came, Wanted
    from orderflow.ledger.review import Ledger, ReviewItem
    from orderflow.settings import Settings

T = TypeVar("T")

app = typer.Typer(name="review", help="What waits for people.", rich_markup_mode=None)

Item = Annotated[str, typer.Argument(metavar="ITEM", help="The effect's key, or an ORDER of which one effect waits.")]
As = Annotated[str, typer.Option("--as", metavar="NAME", help="Whose key signs.")]
Why = Annotated[str, typer.Option("--reason", help="Why; it is kept with the signature.")]
KeysDir = Annotated[Path | None, typer.Option("--keys-dir", help="Where NAME's private key lies.")]
OnlyPrint = Annotated[bool, typer.Option("--print", help="Print Temporal's command instead.")]


@app.command("list")
def list_items(
    closed: Annotated[bool, typer.Option("--all", help="Closed ones too, the latest first.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the effects that wait for a person, the oldest first."""
    items = _with_ledger(lambda ledger, _: ledger.review_items(closed=closed, limit=limit)) if _has_ledger() else []
    if as_json:
        print_json([_plain(item) for item in items])
    elif items:
        now = datetime.now(UTC)
        print_table(("effect", "amount", "why", "since", "state"), [_row(item, now) for item in items])
    else:
        print_line("nothing waits for people")


@app.command("show")
def show(item: Item, as_json: AsJson = False) -> None:
    """Show one effect: what stands, what was tried, what people said."""
    page = _with_ledger(lambda ledger, _: _page(ledger, item))
    if as_json:
        print_json(page)
        return
    print_fields({name: value for name, value in page.items() if not isinstance(value, list)})
    said = ("operator", "operation", "outcome", "reason", "evidence")
    for name, columns in (("tried", ("holder", "started_at", "ended")), ("said", said)):
        if page[name]:
            print_line()
            print_table((name, *columns[1:]), [[row.get(column) for column in columns] for row in page[name]])


@app.command("retry")
def retry(
    item: Item,
    name: As,
    reason: Why = "try again",
    keys_dir: KeysDir = None,
    only_print: OnlyPrint = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Have the compensation tried again, or the announcement sent again."""
    from orderflow.cli.operations import Wanted

    return _operate(item, name, keys_dir, Wanted(Operation.RETRY, reason), only_print, as_json)


@app.command("resolve")
def resolve(
    item: Item,
    name: As,
    outcome: Annotated[Resolution, typer.Option("--outcome", help="taken_back: outside, by hand. kept: it may stand.")],
    reason: Annotated[str, typer.Option("--reason", help="Why it is settled; kept with the signature.")],
    evidence: Annotated[str, typer.Option("--evidence", help="What proves it: a receipt's number, a ticket.")],
    keys_dir: KeysDir = None,
    only_print: OnlyPrint = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Say that it is settled outside. Above ORDERFLOW_RESOLVE_ALONE_UP_TO a second operator has to say the same."""
    from orderflow.cli.operations import Wanted

    wanted = Wanted(Operation.RESOLVE, reason, outcome, evidence)
    return _operate(item, name, keys_dir, wanted, only_print, as_json)


def _operate(
    item: str, name: str, keys_dir: Path | None, wanted: "Wanted", only_print: bool, as_json: bool
) -> ExitCode:
    from orderflow.cli.connection import with_temporal
    from orderflow.cli.keys import private_key
    from orderflow.cli.operations import claims_for, deliver, standing_of

    found = _with_ledger(lambda ledger, _: _found(ledger, item))

    async def carry_out(client: "Client", settings: "Settings") -> "Came | None":
        key = private_key(settings, name, keys_dir)
        left = await standing_of(client, found)
        claims = claims_for(left, found.workflow_id, wanted, key.name)
        if not as_json:
            shown = claims.model_dump(mode="json", exclude={"iat", "expires_at", "jti", "operation", "operator"})
            print_line(f"{key.name} signs: {wanted.operation}", sys.stderr if only_print else sys.stdout)
            print_fields(shown, indent=2, stream=sys.stderr if only_print else sys.stdout)
        if only_print:
            _print_command(client, settings, found, (key.sign(claims), claims.jti), as_json)
            return None
        return await deliver(client, found, claims, key, settings.task_queue)

    came = with_temporal(carry_out)
    return _tell(found, came, as_json) if came is not None else ExitCode.DONE


def _print_command(
    client: "Client", settings: "Settings", item: "ReviewItem", signed: tuple[str, str], as_json: bool
) -> None:
    from orderflow.cli.connection import runnable
    from orderflow.client import address_of, codec_of, operate_command, repair_command

    token, jti = signed
    codec, target = codec_of(client), {"address": address_of(client), "namespace": client.namespace}
    if item.opened_by == "order":
        sent = operate_command(item.workflow_id, token, codec=codec, **target)
    else:
        sent = repair_command(token, jti, codec=codec, **target, task_queue=settings.task_queue)
    command = runnable(sent, settings)
    if as_json:
        print_json({"key": item.key, "command": command, "payload": {"operation": token}})
    else:
        print(command)


def _tell(item: "ReviewItem", came: "Came", as_json: bool) -> ExitCode:
    facts = {"key": item.key, "order": item.workflow_id, **asdict(came)}
    if not came.settled and not came.said:
        why = came.error + (f" ({came.detail})" if came.detail else "") if came.error else "nobody could say why"
        raise Refused(f"still stands: {item.key}: {why}", **facts)
    if as_json:
        print_json(facts)
    elif came.settled:
        order = announced_order(item.workflow_id) or item.workflow_id
        print_line(f"settled: {item.key}; `orderflow show {order}` tells what follows")
    else:
        print_line(f"noted: {' and '.join(came.said)} said so; a second operator has to say the same")
    return ExitCode.DONE


def _has_ledger() -> bool:
    """Whether any worker ever made the ledger; if none did, that is said, and nothing waits."""
    from orderflow.backends import WHERE_IT_IS, missing_ledger
    from orderflow.settings import load_settings

    path = missing_ledger(load_settings())
    if path is not None:
        print(f"orderflow: there is no ledger at {path} yet; if there should be, {WHERE_IT_IS}", file=sys.stderr)
    return path is None


def _with_ledger(work: "Callable[[Ledger, Settings], Awaitable[T]]") -> T:
    from orderflow.backends import open_existing_ledger  # the settings and database drivers, see orderflow.cli
    from orderflow.settings import load_settings

    async def run() -> T:
        settings = load_settings()
        async with aclosing(await open_existing_ledger(settings)) as ledger:
            return await work(ledger, settings)

    return asyncio.run(run())


async def _found(ledger: "Ledger", item: str) -> "ReviewItem":
    """The open item that is meant. Raises `Refused` if there is none, or several of one order."""
    one = await ledger.review_item(item)
    items = [one] if one else await ledger.reviews_of(item)
    waiting = [each for each in items if each.closed_at is None]
    if len(waiting) == 1:
        return waiting[0]
    if waiting:
        keys = ", ".join(each.key for each in waiting)
        raise Refused(f"several effects of {item} wait: name one of {keys}", items=[each.key for each in waiting])
    closed = f" any more: {items[0].closed_as}" if items else "; `orderflow review list` shows what does"
    raise Refused(f"{item} does not wait for people{closed}", item=item)


async def _page(ledger: "Ledger", item: str) -> dict[str, Any]:
    one = await ledger.review_item(item) or await _found(ledger, item)
    stem = one.key.rpartition(".")[0]
    tried = [attempt for attempt in await ledger.attempts(one.workflow_id) if attempt.key.rpartition(".")[0] == stem]
    record = await ledger.get(one.key)
    return {
        **_plain(one),
        "state": record.state.value if record else None,
        "tried": [_plain(attempt) for attempt in tried],
        "said": [_plain(said) | _grounds(said.token) for said in await ledger.operations(one.key)],
    }


def _grounds(token: str) -> dict[str, str | None]:
    """Why somebody said it, as it was signed."""
    claims = read_operation(token)
    return {} if isinstance(claims, Refusal) else {"reason": claims.reason, "evidence": claims.evidence}


def _plain(record: Any) -> dict[str, Any]:
    fields = asdict(record).items()
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in fields}


def _row(item: "ReviewItem", now: datetime) -> tuple[object, ...]:
    amount = money(item.amount_minor, item.currency)
    return item.key, amount, _why(item), age(item.opened_at, now), item.closed_as or "open"


def _why(item: "ReviewItem") -> str:
    return item.error + (f": {item.detail}" if item.detail else "")
