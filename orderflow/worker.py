"""`python -m orderflow.worker`: wires concrete backends together, runs them, and drains on SIGTERM."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial

from temporalio.client import Client
from temporalio.worker import Worker

from orderflow.activities import Activity, OrderActivities
from orderflow.announcements import AnnouncementActivities
from orderflow.announcing import AnnounceWorkflow
from orderflow.approvers import approver_registry
from orderflow.backends import open_working_ledger
from orderflow.catalogue import Catalogue, load_catalogue, load_providers
from orderflow.client import address_of, connect, ensure_search_attributes
from orderflow.client.fates import TemporalOrders
from orderflow.definitions import load_published
from orderflow.domain.effects import Capabilities, Provider
from orderflow.domain.errors import InvalidSettings
from orderflow.ledger.effects import EffectStore
from orderflow.providers.declared import declared
from orderflow.providers.http import Timeouts, open_client, open_http_providers
from orderflow.providers.simulated import PROVIDERS, SIMULATED, SimulatedWorld
from orderflow.reconcile.run import ReconcileActivities
from orderflow.reconciling import ReconcileWorkflow
from orderflow.repairing import RepairWorkflow
from orderflow.review import ReviewActivities
from orderflow.settings import ProvidersSettings, Settings, is_loopback, provider_settings
from orderflow.stopping import exit_code_of, leave, stopped_by_signals, unless_stopped
from orderflow.subscribers import load_subscribers
from orderflow.workflows import OrderWorkflow

log = logging.getLogger(__name__)

Say = Callable[[str], None]

LAST_RESORT = 30.0
"""Seconds after the graceful time in which a draining worker has to be gone."""

EXIT_NOT_DRAINED = 70

FAIL_OVER_WITHIN = timedelta(seconds=5)
"""How long an order waits for the worker that has it in its cache before any other worker may go on with it."""


def make_worker(
    client: Client,
    activities: Sequence[Activity],
    *,
    task_queue: str,
    max_cached_workflows: int = 1000,
    max_concurrent_activities: int = 100,
    graceful_shutdown: timedelta = timedelta(seconds=60),
) -> Worker:
    """A worker; the same one in production and in tests. Workflow code stays in the sandbox (T36)."""
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[OrderWorkflow, ReconcileWorkflow, RepairWorkflow, AnnounceWorkflow],
        activities=activities,
        max_cached_workflows=max_cached_workflows,
        max_concurrent_activities=max_concurrent_activities,
        graceful_shutdown_timeout=graceful_shutdown,
        sticky_queue_schedule_to_start_timeout=FAIL_OVER_WITHIN,
    )


async def run_worker(
    settings: Settings,
    *,
    stop: asyncio.Event | None = None,
    ready: Callable[[], None] | None = None,
    say: Say = log.info,
) -> None:
    """Run until `stop` is set or SIGTERM or SIGINT comes, then finish what runs and close everything.

    `ready` is called once the worker polls; `say` gets a line for a person now and then.

    Raises:
        InvalidSettings: something has to be provided first; the message says what.
        ServerUnreachable: Temporal is not there, or stopped being there.
        LedgerUnavailable: the ledger's database is not there.
    """
    stopping = stop or asyncio.Event()
    with stopped_by_signals(stopping):
        client = await unless_stopped(stopping, _reach_temporal(settings, say))
        if client is None:
            return
        async with _open_activities(settings, client, say) as activities:
            worker = make_worker(
                client,
                activities,
                task_queue=settings.task_queue,
                max_cached_workflows=settings.max_cached_workflows,
                max_concurrent_activities=settings.max_concurrent_activities,
                graceful_shutdown=timedelta(seconds=settings.graceful_shutdown),
            )
            async with worker:
                say(f"worker ready: {client.namespace} at {address_of(client)}, task queue {settings.task_queue}")
                if ready is not None:
                    ready()
                await stopping.wait()
                say("worker draining: no new tasks, finishing what runs")
                watchdog = asyncio.get_running_loop().call_later(settings.graceful_shutdown + LAST_RESORT, _give_up)
            watchdog.cancel()
    say("worker stopped")


def _give_up() -> None:
    """End a process that cannot drain: the SDK may wait for ever for a workflow task that it had to abandon."""
    log.error("the worker could not drain in time and ends here; Temporal hands its tasks to other workers")
    logging.shutdown()
    os._exit(EXIT_NOT_DRAINED)


async def _reach_temporal(settings: Settings, say: Say) -> Client:
    client = await connect(settings, say=say)
    await ensure_search_attributes(client)
    return client


@asynccontextmanager
async def _open_activities(settings: Settings, client: Client, say: Say) -> AsyncIterator[list[Activity]]:
    catalogue = load_catalogue()
    given = given_to_providers(catalogue)
    published = load_published(catalogue, settings.definitions_dir)
    address = address_of(client)
    registry = approver_registry(settings, address, say)
    require_chosen_providers(settings, address)
    subscribers = load_subscribers(settings)
    async with AsyncExitStack() as opened:
        ledger = await open_working_ledger(settings, opened, say)
        providers = await open_providers(settings, given, opened)
        effects, worker = EffectStore(ledger), f"{socket.gethostname()}-{os.getpid()}"
        orders = OrderActivities(
            effects=effects,
            providers=providers,
            catalogue=catalogue,
            verify=registry.verify,
            published=published.keys(),
            worker=worker,
        )
        known = TemporalOrders(client)
        reconciliation = ReconcileActivities(
            ledger=ledger, providers=providers, catalogue=catalogue, orders=known, worker=worker
        )
        announcements = AnnouncementActivities(
            ledger=ledger,
            effects=effects,
            subscribers=lambda: subscribers,
            client=await opened.enter_async_context(open_client()),
            announced=known.announced,
            worker=worker,
        )
        review = ReviewActivities(
            ledger=ledger,
            effects=effects,
            providers=providers,
            catalogue=catalogue,
            verify=partial(registry.verify_operation, alone_up_to=settings.resolve_alone_up_to),
            fate_of=known.fate,
            tell_again=announcements.tell_again,
            worker=worker,
        )
        yield [*orders.all(), *review.all(), *announcements.all(), *reconciliation.all()]


def require_chosen_providers(settings: Settings, address: str) -> None:
    """Simulated providers are a default only beside a Temporal on this machine. Raises `InvalidSettings` elsewhere."""
    if "providers" not in settings.model_fields_set and not is_loopback(address):
        raise InvalidSettings(
            f"ORDERFLOW_PROVIDERS is not set and Temporal is at {address}: set http, with ORDERFLOW_PROVIDERS_URL,"
            " or simulated, if nothing is to be done outside"
        )


def given_to_providers(catalogue: Catalogue) -> ProvidersSettings:
    """The settings of each provider that the catalogue names. Raises `InvalidSettings` for those of any other."""
    return provider_settings(sorted({kind.provider for kind in catalogue.kinds.values()}))


async def open_providers(
    settings: Settings, given: ProvidersSettings, opened: AsyncExitStack
) -> Mapping[str, Provider]:
    """Open a provider for each name in `given`: brought by an extension, simulated, or over HTTP.

    `opened` closes them. Raises `InvalidSettings` when nothing provides one.
    """
    brought = {name: make(given[name]) for name, make in load_providers(given.keys()).items()}
    configured = _configured(settings, {name: given[name] for name in given if name not in brought})
    providers = {**configured, **brought}
    for provider in providers.values():
        opened.push_async_callback(provider.aclose)
    return providers


def _configured(settings: Settings, given: ProvidersSettings) -> Mapping[str, Provider]:
    names = list(given)
    http = settings.providers == "http"
    otherwise = Capabilities() if http else SIMULATED
    capabilities = {name: declared(name, given[name], otherwise) for name in names}
    if http:
        timeouts = Timeouts(read=settings.providers_timeout)
        return open_http_providers(settings.providers_url, names, timeouts, capabilities)
    if strange := [name for name in names if name not in PROVIDERS]:
        raise InvalidSettings(
            f"nothing provides {', '.join(strange)}: install a package with an entry point orderflow.providers for it"
        )
    world = SimulatedWorld(settings.simulator_log)
    return {name: world.provider(name, capabilities[name]) for name in names}


def main() -> int:
    """Run a worker with the settings of the environment; gives the exit code, see `exit_code_of`."""
    return exit_code_of(run_worker)


if __name__ == "__main__":
    leave(main())
