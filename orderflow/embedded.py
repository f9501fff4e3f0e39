"""A Temporal dev server as a process of our own, for `demo`, `dev` and tests.

The program comes with `orderflow[dev-server]`. Where there is none, as on Windows, Temporal's SDK downloads its own.
"""

import asyncio
import os
import shutil
import socket
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from contextlib import suppress
from pathlib import Path
from typing import Self

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from orderflow.client import ServerUnreachable, connect, data_converter
from orderflow.domain.errors import InvalidSettings

HOST = "127.0.0.1"
START_WITHIN = 60.0
"""Seconds until the server has to answer."""

_STOP_WITHIN = 10.0
_PAUSE = 0.1
_FAST = ("--dynamic-config-value", "history.transferProcessorMaxPollRPS=2000")
_FAST_FILE = ("--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal")


def find_program(name: str) -> Path | None:
    """Look for a program beside this Python, then on PATH."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    return Path(found) if found else None


def find_temporal(configured: Path | None = None) -> Path:
    """Give the path of the `temporal` program: the one configured, else beside this Python, else on PATH.

    Raises `InvalidSettings` if there is none; says what to install.
    """
    if configured is not None and not (configured.is_file() and os.access(configured, os.X_OK)):
        raise InvalidSettings(f"ORDERFLOW_TEMPORAL_BINARY: {configured} is not a program")
    if (found := configured or find_program("temporal")) is None:
        raise InvalidSettings(
            "the `temporal` program was found neither beside Python nor on PATH: `pip install 'orderflow[dev-server]'`,"
            " or set ORDERFLOW_TEMPORAL_BINARY to it"
        )
    return found


def free_port() -> int:
    """Give a TCP port of this machine that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _require_free(port: int) -> None:
    """Otherwise the server of somebody else would answer in the place of ours."""
    with socket.socket() as probe:
        if os.name == "posix":  # a port that was left a moment ago is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            message = f"port {port} cannot be used for a Temporal dev server ({error.strerror})"
            raise ServerUnreachable(f"{message}; stop what listens there, or choose another port") from None


class EmbeddedServer:
    """`async with EmbeddedServer(...) as server`: a dev server at `server.address`, stopped at the end.

    `binary` is the program, `None` lets the SDK download one. `port` 0 takes a free one. `database` keeps the state in
    a file; without it the state dies with the server. `ui_port` shows Temporal's Web UI there. `plain` leaves out the
    flags that make it faster. Its output goes to `log`, for the error if it does not come up.
    """

    def __init__(
        self,
        *,
        binary: Path | None,
        port: int = 0,
        ui_port: int | None = None,
        database: Path | None = None,
        plain: bool = False,
        log: Path,
    ) -> None:
        self._binary = binary
        self._port = port or free_port()
        self._ui_port = ui_port
        self._database = database
        self._plain = plain
        self._log = log
        self._running: Process | WorkflowEnvironment | None = None

    @property
    def address(self) -> str:
        """`host:port` of the server."""
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id of the server; `None` if the SDK keeps it."""
        return self._running.pid if isinstance(self._running, Process) else None

    async def __aenter__(self) -> Self:
        """Start the server. Raises `ServerUnreachable` with its last words if it does not come up."""
        for port in filter(None, (self._port, self._ui_port)):
            _require_free(port)
        if self._binary is None:
            self._running = await self._download_and_start()
        else:
            self._running = await self._start(self._binary)
            try:
                await self._until_ready(self._running)
            except BaseException:  # a cancellation too: no server is left behind
                await self._stop(self._running)
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the server, and wait until it is gone."""
        if isinstance(self._running, Process):
            await self._stop(self._running)
        elif self._running is not None:
            await self._running.shutdown()
        self._running = None

    async def _start(self, binary: Path) -> Process:
        if self._database is not None:
            self._database.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as output:
            # a session of its own: Ctrl+C is for us, who still need the server while we stop
            return await asyncio.create_subprocess_exec(
                *(str(binary), "server", "start-dev", "--ip", HOST, "--port", str(self._port)),
                *self._flags(),
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
                start_new_session=True,
            )

    def _flags(self) -> list[str]:
        flags = ["--headless"] if self._ui_port is None else ["--ui-port", str(self._ui_port)]
        if self._database is not None:
            flags += ["--db-filename", str(self._database)]
        if not self._plain:
            flags += ["--log-level", "error", *_FAST, *(_FAST_FILE if self._database else ())]
        return flags

    async def _download_and_start(self) -> WorkflowEnvironment:
        try:
            return await WorkflowEnvironment.start_local(
                data_converter=data_converter(),
                ip=HOST,
                port=self._port,
                ui=self._ui_port is not None,
                ui_port=self._ui_port,
                dev_server_database_filename=str(self._database) if self._database else None,
                dev_server_log_level="error",
                dev_server_extra_args=[] if self._plain else [*_FAST, *(_FAST_FILE if self._database else ())],
            )
        except RuntimeError as error:
            raise ServerUnreachable(f"no Temporal dev server could be downloaded and started: {error}") from None

    async def _until_ready(self, process: Process) -> None:
        """Wait until the server answers for its namespace `default`, or has died, or had its time."""
        answers, dies = asyncio.create_task(self._answer()), asyncio.create_task(process.wait())
        try:
            await asyncio.wait((answers, dies), timeout=START_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            if not answers.done():
                raise self._silent()
            answers.result()
        finally:
            answers.cancel()
            dies.cancel()

    async def _answer(self) -> None:
        while True:
            with suppress(ServerUnreachable, RPCError):
                client = await connect(address=self.address, namespace="default", use_profile=False)
                await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
                return
            await asyncio.sleep(_PAUSE)

    async def _stop(self, process: Process) -> None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_WITHIN):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def _silent(self) -> ServerUnreachable:
        lines = self._log.read_text(errors="replace").split("\n")
        said = " ".join(line.strip() for line in lines if line.strip())[-500:]
        return ServerUnreachable(
            f"the Temporal dev server did not come up at {self.address}: {said or 'it said nothing'}"
        )
