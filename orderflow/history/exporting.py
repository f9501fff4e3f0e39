"""Histories from Temporal: every run that a query finds, as it is stored (encrypted payloads stay encrypted)."""

from collections.abc import AsyncIterator

from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from orderflow.client import UnknownOrder
from orderflow.client.connection import reachable
from orderflow.domain.errors import InvalidInput
from orderflow.history.replaying import WORKFLOWS

EVERYTHING = " OR ".join(f'WorkflowType = "{kind}"' for kind in sorted(WORKFLOWS))
"""Temporal's query for every workflow of ours."""


def of_order(order: str) -> str:
    """Temporal's query for every run of one order: continued and reset ones too."""
    return f'WorkflowId = "{order}"'


async def histories(client: Client, query: str) -> AsyncIterator[WorkflowHistory]:
    """Give the history of each workflow of ours that `query` finds, open or closed.

    Raises:
        InvalidInput: if Temporal does not understand the query.
    """
    with reachable(client):
        try:
            async for run in client.list_workflows(f"({query}) AND ({EVERYTHING})"):
                handle = client.get_workflow_handle(run.id, run_id=run.run_id)
                yield await handle.fetch_history()
        except RPCError as error:
            if error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise InvalidInput(f"--query is not understood by Temporal: {error.message}") from None
            raise


async def runs_of(client: Client, order: str) -> AsyncIterator[WorkflowHistory]:
    """Give every run of `order`, also of one so new that no list has it yet. Raises `UnknownOrder`."""
    seen = False
    async for history in histories(client, of_order(order)):
        seen = True
        yield history
    if seen:
        return
    with reachable(client):
        try:
            yield await client.get_workflow_handle(order).fetch_history()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise UnknownOrder(f"{order}: Temporal knows no such workflow (any more)") from None
            raise
