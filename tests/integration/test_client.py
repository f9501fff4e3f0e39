"""The client against real servers: connecting, and registering search attributes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orderflow.client import (
    ServerUnreachable,
    address_of,
    connect,
    ensure_search_attributes,
)
from orderflow.domain.errors import InvalidSettings
from orderflow.embedded import free_port
from orderflow.settings import Settings
from tests.support.servers import DevServer, time_skipping_binary

PATIENCE = 30.0


pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def fresh(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server on which nobody has registered anything."""
    async with DevServer(tmp_path, plain=True) as running:
        yield await connect(address=running.address, use_profile=False)


async def test_no_server_is_said_with_address_and_what_to_run() -> None:
    """Exit 3 of a command line is this sentence."""
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ServerUnreachable) as error:
        await connect(address=address, use_profile=False)
    assert error.value.message == (
        f"Temporal cannot be used at {address} (Connection refused);"
        " start one with `temporal server start-dev`, or set TEMPORAL_ADDRESS"
    )


@pytest.mark.parametrize("address", ["no port", "a:b:c", "::1:7233"])
async def test_an_address_that_is_none_is_refused_at_once(address: str) -> None:
    """However long we would wait for a server."""
    with pytest.raises(InvalidSettings, match="TEMPORAL_ADDRESS"):
        await connect(Settings(wait_for_server=None), address=address, use_profile=False)


async def test_a_server_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    """The worker may be started first; it says once that it waits."""
    said: list[str] = []
    server = DevServer(tmp_path)
    heard = asyncio.Event()

    def say(line: str) -> None:
        said.append(line)
        heard.set()

    waiting = asyncio.create_task(
        connect(Settings(wait_for_server=None), address=server.address, use_profile=False, say=say)
    )
    await heard.wait()
    async with server:
        client = await waiting
        assert address_of(client) == server.address
    assert len(said) == 1
    assert server.address in said[0]


async def test_a_server_that_does_not_come_is_given_up_as_asked() -> None:
    """`ORDERFLOW_WAIT_FOR_SERVER` seconds, then exit 3."""
    with pytest.raises(ServerUnreachable):
        await connect(Settings(wait_for_server=1), address=f"127.0.0.1:{free_port()}", use_profile=False)


async def test_address_and_namespace_come_from_temporals_own_variables(
    dev_server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is asked for in code counts more."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", dev_server.address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "of-the-variable")
    configured = await connect()
    assert (address_of(configured), configured.namespace) == (dev_server.address, "of-the-variable")
    assert (await connect(namespace="asked-for")).namespace == "asked-for"


@pytest.mark.parametrize("profile", ["x", "[profile.default.tls]\nserver_ca_cert_path = '/no/such/file'"], ids=repr)
async def test_a_profile_that_cannot_be_used_is_one_line(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal's own TOML file, or a certificate that it names."""
    (tmp_path / "temporal.toml").write_text(profile)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "temporal.toml"))
    with pytest.raises(InvalidSettings, match="profile") as error:
        await connect()
    assert "\n" not in error.value.message


async def registered(client: Client) -> dict[str, int]:
    """The namespace's own search attributes."""
    request = ListSearchAttributesRequest(namespace=client.namespace)
    return dict((await client.operator_service.list_search_attributes(request)).custom_attributes)


async def test_search_attributes_are_registered_once_however_many_workers_start(fresh: Client) -> None:
    """T41: on a plain dev server, at once and again."""
    assert await registered(fresh) == {}
    await asyncio.gather(*(ensure_search_attributes(fresh) for _ in range(8)))
    await ensure_search_attributes(fresh)
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    assert await registered(fresh) == {"OrderStage": keyword, "OrderReason": keyword}


async def test_a_search_attribute_of_another_type_is_refused(fresh: Client) -> None:
    """Setting it would fail every workflow task."""
    text = {"OrderStage": IndexedValueType.INDEXED_VALUE_TYPE_TEXT}
    await fresh.operator_service.add_search_attributes(
        AddSearchAttributesRequest(namespace=fresh.namespace, search_attributes=text)
    )
    with pytest.raises(InvalidSettings, match="OrderStage of the namespace is no Keyword"):
        await ensure_search_attributes(fresh)


async def test_a_namespace_that_does_not_exist_is_named_with_what_to_run(dev_server: DevServer) -> None:
    """A typing error in `TEMPORAL_NAMESPACE`."""
    client = await connect(address=dev_server.address, namespace="nowhere", use_profile=False)
    with pytest.raises(InvalidSettings, match=r"namespace nowhere .*temporal operator namespace create"):
        await ensure_search_attributes(client)


async def test_the_time_skipping_server_is_left_alone(tmp_path: Path) -> None:
    """T41: it keeps no list of search attributes, and takes any."""
    port = free_port()
    with (tmp_path / "server.log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(time_skipping_binary(), str(port), stdout=log, stderr=log)
    try:
        client = await connect(Settings(wait_for_server=30), address=f"127.0.0.1:{port}", use_profile=False)
        await ensure_search_attributes(client)
    finally:
        server.kill()
        await server.wait()


@pytest.mark.parametrize("refused_at", ["list", "add"])
async def test_without_the_right_to_register_the_command_is_printed(refused_at: str, client: Client) -> None:
    """T41: somebody else has to run it, exactly so."""
    denied = RPCError("no rights", RPCStatusCode.PERMISSION_DENIED, b"")

    async def nothing_listed(_: object) -> object:
        if refused_at == "list":
            raise denied
        return SimpleNamespace(custom_attributes={})

    async def refuse(_: object) -> object:
        raise denied

    async def count(_: str) -> object:
        raise RPCError("invalid search attribute", RPCStatusCode.INVALID_ARGUMENT, b"")

    powerless = SimpleNamespace(
        namespace="orders",
        service_client=SimpleNamespace(config=SimpleNamespace(target_host="temporal:7233")),
        operator_service=SimpleNamespace(list_search_attributes=nothing_listed, add_search_attributes=refuse),
        count_workflows=count,
    )
    with pytest.raises(InvalidSettings) as error:
        await ensure_search_attributes(cast(Client, powerless))
    assert error.value.message.endswith(
        "run: temporal operator search-attribute create --address temporal:7233 --namespace orders"
        " --name OrderStage --name OrderReason --type Keyword"
    )
