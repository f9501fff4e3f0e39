"""docs/http.md says what is so: its examples work as they stand, and its table is that of the code."""

import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from orderflow.domain.deliveries import MAX_EVENT_BYTES, Cause
from orderflow.ingress.answers import MEANINGS
from tests.architecture.markdown import blocks, inline_code, rows, section
from tests.architecture.product import ROOT
from tests.support.door import Door, open_door
from tests.support.processes import bare_environment, run
from tests.support.servers import DevServer
from tests.support.street import PATIENT

PAGE: Final = ROOT / "docs" / "http.md"
ADDRESS: Final = "http://127.0.0.1:8080"
ORDER: Final = "order-2ef951e1b56934c780c034adc1f2cbdd"
"""That of `examples/order.json`."""


def _block(language: str, word: str) -> str:
    (found,) = [block.text for block in blocks(PAGE) if block.language == language and word in block.text]
    return found


@pytest.fixture(scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory, dev_server: DevServer) -> AsyncIterator[tuple[Path, Door]]:
    """A folder as the reader of the page sits in, with the examples, and a door with nothing configured."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "examples").symlink_to(ROOT / "examples")
    settings = {**PATIENT, "TEMPORAL_ADDRESS": dev_server.address}
    async with open_door(folder / ".orderflow", settings) as door:
        yield folder, door


async def _typed(home: tuple[Path, Door], *command: str) -> str:
    folder, door = home
    ran = await run(
        *command[:-1], command[-1].replace(ADDRESS, door.url), folder=folder, environment=bare_environment()
    )
    assert ran.code == 0, ran.err
    return ran.out


async def test_the_examples_of_the_page_work_as_they_stand(home: tuple[Path, Door]) -> None:
    """Issue 4: Python starts the order, the shell hears of the duplicate, and the question is answered."""
    first = await _typed(home, sys.executable, "-c", _block("python", "standardwebhooks"))
    assert (first[:3], json.loads(first[3:])) == ("202", {"order": ORDER, "duplicate": False})
    second = await _typed(home, "sh", "-euc", _block("sh", "openssl dgst"))
    assert json.loads(second) == {"order": ORDER, "duplicate": True}
    asked = json.loads(await _typed(home, "sh", "-euc", _block("sh", "Bearer")))
    shown = json.loads(_block("json", "awaiting_approval"))
    assert {**asked, "stage": shown["stage"]} == shown


async def test_the_refusal_that_is_shown_is_what_comes_back(home: tuple[Path, Door]) -> None:
    """Issue 4: word for word."""
    folder, _ = home
    event = json.loads((ROOT / "examples" / "order.json").read_text())
    event["data"]["currency"] = "usd"
    (folder / "event.json").write_text(json.dumps(event))
    told = await _typed(home, "sh", "-euc", _block("sh", "openssl dgst").replace("examples/order.json", "event.json"))
    assert json.loads(told) == json.loads(_block("json", "problems"))


def test_the_table_of_refusals_is_that_of_the_code() -> None:
    """Issue 4: each cause in the order in which the door looks, with its status and whether a retry can help."""
    told = [(inline_code(row[0])[0], int(row[1]), row[4]) for row in rows(section(PAGE, "## Refusals"))]
    coded = [(cause, MEANINGS[cause].status, "yes" if MEANINGS[cause].retry else "no") for cause in Cause]
    assert told == coded


def test_the_limits_are_those_of_the_code() -> None:
    """Issue 4: somebody will rely on the number."""
    assert f"{MAX_EVENT_BYTES} bytes" in section(PAGE, "### Limits")
    assert set(re.findall(r"\b6\d{4}\b", PAGE.read_text("utf-8"))) == {str(MAX_EVENT_BYTES)}


def test_every_endpoint_of_the_page_is_in_the_document() -> None:
    """Issue 4: and every one of the document is on the page."""
    document = json.loads((ROOT / "docs" / "openapi.json").read_text("utf-8"))
    endpoints = {f"{method.upper()} {path}" for path, operations in document["paths"].items() for method in operations}
    table = PAGE.read_text("utf-8").partition("## Sending")[0]
    assert {code for code in inline_code(table) if re.match(r"(GET|POST) ", code)} == endpoints
