"""The search attributes of an order. A namespace has to know them, or the first order that sets one hangs (T41)."""

import asyncio
import time
from collections.abc import Mapping

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from orderflow.client.connection import address_of, reachable
from orderflow.client.temporal_cli import register_command
from orderflow.contracts import REASON_ATTRIBUTE, STAGE_ATTRIBUTE
from orderflow.domain.errors import InvalidSettings

STAGE = SearchAttributeKey.for_keyword(STAGE_ATTRIBUTE)
REASON = SearchAttributeKey.for_keyword(REASON_ATTRIBUTE)

_KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
_NOT_OURS = frozenset({RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED})
_PAUSE = 0.1


async def ensure_search_attributes(client: Client, *, patience: float = 30) -> None:
    """Register the search attributes unless they are there, and wait until the server takes them; safe to repeat.

    A server that keeps no list of them, as the time-skipping test server, is left alone.

    Raises:
        InvalidSettings: if they are missing and may not be registered (with the command that somebody else has to run),
            if one has another type, or if the server does not take them within `patience` seconds.
        ServerUnreachable: if the server does not answer.
    """
    with reachable(client):
        known = await _known(client)
        if known is None:
            if not await _are_usable(client):
                raise missing_attributes(client, "and cannot be registered with the rights we have")
            return
        _refuse_other_types(known)
        if not {STAGE.name, REASON.name} <= known.keys():
            await _register(client)
        await _until_usable(client, patience)


async def _known(client: Client) -> Mapping[str, int] | None:
    """The namespace's own attributes and their types; `None` if we may not ask."""
    try:
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
    except RPCError as error:
        if error.status in _NOT_OURS:
            return None
        raise
    return dict(listed.custom_attributes)


async def _register(client: Client) -> None:
    wanted = {STAGE.name: _KEYWORD, REASON.name: _KEYWORD}
    try:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=wanted)
        )
    except RPCError as error:
        if error.status in _NOT_OURS:
            raise missing_attributes(client, f"and registering them was refused ({error.message})") from None
        if error.status is not RPCStatusCode.ALREADY_EXISTS:  # somebody else was faster
            raise


async def _until_usable(client: Client, patience: float) -> None:
    give_up_at = time.monotonic() + patience
    while not await _are_usable(client):
        if time.monotonic() > give_up_at:
            raise missing_attributes(
                client, f"or the server has not taken them up within {patience:.0f} s of their registration"
            )
        await asyncio.sleep(_PAUSE)


async def _are_usable(client: Client) -> bool:
    """Whether the server takes queries about them: its caches lag behind its own list."""
    try:
        await client.count_workflows(f'{STAGE.name} = "-" AND {REASON.name} = "-"')
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            return False
        if error.status is not RPCStatusCode.UNIMPLEMENTED:
            raise
    return True


def _refuse_other_types(known: Mapping[str, int]) -> None:
    for key in (STAGE, REASON):
        if known.get(key.name, _KEYWORD) != _KEYWORD:
            raise InvalidSettings(
                f"the search attribute {key.name} of the namespace is no Keyword: remove it, or use another namespace"
            )


def missing_attributes(client: Client, why: str) -> InvalidSettings:
    """The error that says so, why, and which command registers them."""
    command = register_command(address_of(client), client.namespace)
    return InvalidSettings(f"the search attributes of orders are missing, {why}; run: {command}")
