"""The Temporal dev server that `demo`, `dev` and tests start: found or missed loudly, fast, and gone afterwards."""

import asyncio
import socket
import sys
from pathlib import Path

import psutil
import pytest

from orderflow.client import ServerUnreachable, address_of, connect, ensure_search_attributes, order_status, start_order
from orderflow.domain.errors import InvalidSettings
from orderflow.embedded import HOST, EmbeddedServer, find_temporal, free_port
from tests.definitions import SHIPPED, load
from tests.order_events import accepted
from tests.support.servers import TEST_SERVER_VARIABLE, temporal_binary, time_skipping_binary

pytestmark = pytest.mark.timeout(60)


def server_in(folder: Path, **options: object) -> EmbeddedServer:
    """A server whose log lies in `folder`."""
    return EmbeddedServer(binary=temporal_binary(), log=folder / "temporal.log", **options)  # type: ignore[arg-type]  # passed on


async def test_what_a_database_holds_survives_the_server(tmp_path: Path) -> None:
    """`orderflow dev` is stopped in the evening and started in the morning."""
    options = {"database": tmp_path / "state" / "temporal.db", "port": free_port()}
    async with server_in(tmp_path, **options) as server:
        client = await connect(address=server.address, use_profile=False)
        await ensure_search_attributes(client)
        started = await start_order(client, accepted(), load(SHIPPED))
    async with server_in(tmp_path, **options) as server:
        client = await connect(address=server.address, use_profile=False)
        status = await order_status(client, started.order)
    assert (status.run_id, status.stage) == (started.run_id, "running")


async def test_a_stopped_server_is_gone(tmp_path: Path) -> None:
    """`orderflow demo` leaves nothing behind: no process, no port."""
    async with server_in(tmp_path) as server:
        assert server.pid is not None
        process = psutil.Process(server.pid)
    assert not process.is_running()
    with socket.socket() as probe:
        probe.bind((HOST, int(server.address.rpartition(":")[2])))


async def test_a_server_that_is_killed_can_still_be_left(tmp_path: Path) -> None:
    """Whoever killed it."""
    async with server_in(tmp_path) as server:
        psutil.Process(server.pid).kill()


async def test_a_server_is_stopped_when_what_it_served_fails(tmp_path: Path) -> None:
    """An error passes on, the server does not stay."""
    server = server_in(tmp_path)
    seen: list[psutil.Process] = []

    async def fail() -> None:
        async with server:
            seen.append(psutil.Process(server.pid))
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    (process,) = seen
    assert not process.is_running()


async def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """Its own last words: here, that its database is none."""
    with pytest.raises(ServerUnreachable, match=r"did not come up at .*(database|sqlite)"):
        async with server_in(tmp_path, database=tmp_path):
            pytest.fail("it came up")


async def test_no_other_server_answers_in_the_place_of_ours(tmp_path: Path) -> None:
    """Somebody has the port: that is said before anything starts."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        with pytest.raises(ServerUnreachable, match=r"port \d+ .*in use"):
            async with server_in(tmp_path, port=taken.getsockname()[1]):
                pytest.fail("it came up")


async def test_the_web_ui_is_there_if_asked_for(tmp_path: Path) -> None:
    """On the port that was asked for."""
    port = free_port()
    async with server_in(tmp_path, ui_port=port):
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                await writer.wait_closed()
                return


async def test_our_own_server_is_reached_whatever_temporals_variables_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS and an API key for the company's server do not get in the way of a demo."""
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example.com:7233")
    async with server_in(tmp_path) as server:
        assert address_of(await connect(address=server.address, use_profile=False)) == server.address


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Neither beside Python nor on PATH is there any server."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("ORDERFLOW_TEMPORAL_BINARY", TEST_SERVER_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


async def test_a_missing_server_is_loud_and_says_what_to_install(nothing_installed: Path) -> None:
    """T40: never a download, never a skip."""
    with pytest.raises(InvalidSettings, match=r"orderflow\[dev-server\].*ORDERFLOW_TEMPORAL_BINARY"):
        temporal_binary()
    with pytest.raises(FileNotFoundError, match=rf"orderflow\[dev-server\].*{TEST_SERVER_VARIABLE}"):
        time_skipping_binary()


async def test_a_server_is_found_beside_python_on_path_or_as_configured(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T40: in that order, the configured one first."""
    places = [nothing_installed / name for name in ("configured", "beside", "on-path")]
    for place in places:
        place.mkdir()
        (place / "temporal").write_text("#!/bin/sh\n")
        (place / "temporal").chmod(0o755)
    configured, beside, on_path = places
    monkeypatch.setenv("PATH", str(on_path))
    assert find_temporal() == on_path / "temporal"
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    assert find_temporal() == beside / "temporal"
    assert find_temporal(configured / "temporal") == configured / "temporal"


async def test_a_configured_server_that_is_no_program_is_refused(tmp_path: Path) -> None:
    """Not replaced by another one silently."""
    with pytest.raises(InvalidSettings, match="ORDERFLOW_TEMPORAL_BINARY"):
        find_temporal(tmp_path / "temporal")
