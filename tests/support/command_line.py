"""The command line as tests use it: in this process, or as a process of its own."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from orderflow.cli import app
from tests.support.servers import temporal_binary

PROGRAM: Final = (sys.executable, "-c", "import sys; sys.argv[0] = 'orderflow'; from orderflow.cli import main; main()")
"""`orderflow`, also where no script of that name is installed; its arguments follow."""

PATIENCE: Final = 60.0
KEPT: Final = "ORDERFLOW_PAYLOAD_KEYS"
NOWHERE: Final = "127.0.0.1:9"
"""An address at which no Temporal is: a verb that gets as far as connecting exits with 3."""


@dataclass(frozen=True)
class Ran:
    """How a command ended: exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error that it printed as JSON."""
        return self.json["error"]


def unconfigure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let commands run in `folder` with nothing configured, and with a Temporal that is nowhere.

    `KEPT` stays, so that the suite can also be run with encrypted payloads.
    """
    for name in [name for name in os.environ if name.startswith(("ORDERFLOW_", "TEMPORAL_")) and name != KEPT]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_ADDRESS", NOWHERE)
    monkeypatch.chdir(folder)
    return folder


def orderflow(*arguments: object, stdin: bytes = b"") -> Ran:
    """Run a command in this process, on a thread of its own because verbs run event loops of their own."""
    words = [str(argument) for argument in arguments]
    with ThreadPoolExecutor(max_workers=1) as thread:
        result = thread.submit(CliRunner().invoke, app, words, input=stdin).result(PATIENCE)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


async def run_process(
    *arguments: object, environment: Mapping[str, str] | None = None, path: Path | None = None, stdin: bytes = b""
) -> Ran:
    """Run a command as a process of its own, with `environment` besides that of this process.

    Packages are also found in the folder `path`.
    """
    search = os.pathsep.join([*([str(path)] if path else []), *sys.path])
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *map(str, arguments),
        env={**os.environ, "PYTHONPATH": search, **(environment or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate(stdin)
    except BaseException:
        process.kill()
        raise
    return Ran(process.returncode or 0, out.decode(), err.decode())


def in_a_shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a person would paste it."""
    path = os.pathsep.join([str(temporal_binary().parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        command, shell=True, check=True, capture_output=True, text=True, env=environment, timeout=PATIENCE
    )
