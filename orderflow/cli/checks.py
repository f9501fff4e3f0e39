"""The checks of `doctor`: each looks, changes nothing, and says in a sentence what it found or what to do."""

import os
import platform
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Final

import httpx2
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

import orderflow
from orderflow.approvers import DEVELOPMENT_APPROVERS
from orderflow.backends import doubts, open_ledger
from orderflow.callers import CALLERS_FILE, CallerRegistry, development_folder
from orderflow.catalogue import load_catalogue
from orderflow.cli.keys import approvers_in, approvers_set
from orderflow.cli.simulated_world import LocalWorld
from orderflow.client import address_of, connect, list_orders, reachable
from orderflow.definitions import load_published
from orderflow.domain.errors import OrderflowError
from orderflow.domain.intake import ALL_DOORS
from orderflow.domain.orders import Stage
from orderflow.embedded import find_program, find_temporal
from orderflow.ledger.events import IntakeRecord
from orderflow.settings import Settings, SqliteTarget, load_settings

RECENT: Final = timedelta(seconds=70)
"""A worker that polls is seen at least once a minute; the server remembers one that is gone for five."""

TIMEOUT: Final = 5.0


class Health(StrEnum):
    """What a check came to."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One finding: about what, how bad, and a sentence that says what is or what to do."""

    name: str
    health: Health
    says: str


async def examine() -> list[Check]:
    """Make every check that can be made; one that fails keeps only those from being made that build on it."""
    checks = list(_program())
    try:
        settings = load_settings()
    except OrderflowError as error:
        return [*checks, Check("settings", Health.FAIL, error.message)]
    checks.append(Check("settings", Health.OK, f"state in {settings.state_dir}, task queue {settings.task_queue}"))
    checks += [_definitions(settings), _approvers(settings), _callers(settings)]
    checks += [*[check async for check in _ledger(settings)], await _providers(settings)]
    return [*checks, *[check async for check in _temporal(settings)]]


def _program() -> Iterator[Check]:
    python = f"Python {platform.python_version()}, temporalio {version('temporalio')}"
    yield Check("orderflow", Health.OK, f"{orderflow.__version__} on {python}")


def _definitions(settings: Settings) -> Check:
    try:
        published = load_published(load_catalogue(), settings.definitions_dir)
    except OrderflowError as error:
        return Check("definitions", Health.FAIL, error.message)
    names = (f"{definition.name} {definition.version}" for definition in published.values())
    return Check("definitions", Health.OK, ", ".join(names))


def _approvers(settings: Settings) -> Check:
    try:
        set_file = approvers_set(settings)
        members = approvers_in(set_file)
    except OrderflowError as error:
        return Check("approvers", Health.FAIL, error.message)
    valid = [member for member in members if not member.revoked]
    if settings.approvers_file is not None:
        if not valid:
            advice = "`orderflow keys new NAME --role ROLE` adds one"
            return Check("approvers", Health.FAIL, f"nobody can approve: {set_file} holds no valid key; {advice}")
        return Check("approvers", Health.OK, f"{len(valid)} valid keys in {set_file}")
    names = ", ".join(name for name, _ in DEVELOPMENT_APPROVERS)
    when = f"in {set_file}" if members else "made when a worker first starts"
    return Check("approvers", Health.WARN, f"development keys ({names}), {when}; not for production")


def _callers(settings: Settings) -> Check:
    file = settings.callers_file or development_folder(settings) / CALLERS_FILE
    if settings.callers_file is None and not file.exists():
        return Check(
            "callers", Health.WARN, "a development caller is made when a door first starts; not for production"
        )
    warnings: list[str] = []
    try:
        CallerRegistry(file, warnings.append)
    except OrderflowError as error:
        return Check("callers", Health.FAIL, error.message)
    if settings.callers_file is None:
        return Check("callers", Health.WARN, f"a development caller, in {file}; not for production")
    return Check("callers", Health.WARN if warnings else Health.OK, "; ".join(warnings) or f"those in {file}")


async def _ledger(settings: Settings) -> AsyncIterator[Check]:
    target = settings.ledger
    if isinstance(target, SqliteTarget) and not target.path.exists():
        folder = _nearest(target.path.parent)
        if not os.access(folder, os.W_OK | os.X_OK):
            yield Check("ledger", Health.FAIL, f"{target.path} cannot be made: {folder} is not writable for this user")
        else:
            yield _doubted(settings, f"{target.path} will be made when a worker first starts")
        return
    try:
        ledger = await open_ledger(settings)
        try:
            yield _doubted(settings, await ledger.check())
            yield intake_check(await ledger.intake(), datetime.now(UTC))
        finally:
            await ledger.aclose()
    except OrderflowError as error:
        yield Check("ledger", Health.FAIL, error.message)


def intake_check(gates: Iterable[IntakeRecord], now: datetime) -> Check:
    """Whether new events are taken in: by order of operators, and as far as doors said lately."""
    recent = now - RECENT
    closed = [gate for gate in gates if gate.paused and (gate.scope == ALL_DOORS or gate.seen_at > recent)]
    if not closed:
        return Check("intake", Health.OK, "new events are taken in")
    who = (f"{gate.scope}: {gate.reason}" for gate in closed)
    return Check("intake", Health.WARN, f"new events are refused; {'; '.join(who)} (`orderflow intake status`)")


def _doubted(settings: Settings, well: str) -> Check:
    doubt = doubts(settings)
    return Check("ledger", Health.WARN, doubt) if doubt else Check("ledger", Health.OK, well)


def _nearest(folder: Path) -> Path:
    """The first folder at or above `folder` that exists."""
    return next(found for found in (folder.absolute(), *folder.absolute().parents) if found.exists())


async def _providers(settings: Settings) -> Check:
    if settings.providers == "simulated":
        return _simulated(settings)
    url = f"{settings.providers_url.rstrip('/')}/health"
    try:
        async with httpx2.AsyncClient(timeout=TIMEOUT) as http:
            answer = await http.get(url)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        advice = "check ORDERFLOW_PROVIDERS_URL, or start `orderflow simulator`"
        return Check("providers", Health.FAIL, f"{url} does not answer ({type(error).__name__}); {advice}")
    if answer.is_success:
        return Check("providers", Health.OK, f"{settings.providers_url} answers")
    return Check("providers", Health.WARN, f"{url} answers {answer.status_code}; it has no health check of ours")


def _simulated(settings: Settings) -> Check:
    try:
        lines = LocalWorld(settings).log()
    except OrderflowError as error:
        return Check("providers", Health.FAIL, f"simulated in the worker: {error.message}")
    return Check("providers", Health.OK, f"simulated in the worker, {len(lines)} lines in {settings.simulator_log}")


async def _temporal(settings: Settings) -> AsyncIterator[Check]:
    for check in _binaries(settings):
        yield check
    try:
        client = await connect()
        with reachable(client):
            [_ async for _ in list_orders(client, limit=1)]
    except (OrderflowError, RPCError) as error:
        yield Check("temporal", Health.FAIL, str(error))
        return
    yield Check("temporal", Health.OK, f"namespace {client.namespace} at {address_of(client)}")
    yield await _search_attributes(client)
    yield await _worker(client, settings)


def _binaries(settings: Settings) -> Iterator[Check]:
    try:
        yield Check("temporal program", Health.OK, str(find_temporal(settings.temporal_binary)))
    except OrderflowError as error:
        yield Check("temporal program", Health.WARN, f"{error.message} (only `dev` and `demo` need it)")
    test_server = find_program("temporal-test-server")
    missing = "not found; only the tests need it: `pip install 'orderflow[dev-server]'`"
    yield Check("test server", Health.OK if test_server else Health.WARN, str(test_server or missing))


async def _search_attributes(client: Client) -> Check:
    try:
        [_ async for _ in list_orders(client, stage=Stage.RUNNING, limit=1)]
    except (OrderflowError, RPCError) as error:
        return Check("search attributes", Health.FAIL, f"{error} (a worker that starts registers them too)")
    return Check("search attributes", Health.OK, "OrderStage and OrderReason are registered")


async def _worker(client: Client, settings: Settings) -> Check:
    try:
        described = await client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=client.namespace,
                task_queue=TaskQueue(name=settings.task_queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            )
        )
    except RPCError as error:
        return Check("worker", Health.WARN, f"the server does not say who polls ({error.message})")
    polling = alive(described.pollers, datetime.now(UTC))
    if not polling:
        advice = "start one with `orderflow worker`"
        return Check("worker", Health.FAIL, f"nobody polls the task queue {settings.task_queue}; {advice}")
    return Check("worker", Health.OK, f"{len(polling)} on {settings.task_queue}: {', '.join(polling)}")


def alive(pollers: Iterable[PollerInfo], now: datetime) -> list[str]:
    """Give the workers among `pollers` that polled within `RECENT`, by name."""
    return sorted(p.identity for p in pollers if now - p.last_access_time.ToDatetime(tzinfo=UTC) <= RECENT)
