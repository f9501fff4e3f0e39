import asyncio
import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orderflow.catalogue import load_catalogue, load_providers
from orderflow.definitions import load_published
from orderflow.domain.definition import Step, load_definition
from orderflow.domain.effects import Absent, Act, Done, Provider, Refused, Undone, Unknown
from orderflow.domain.errors import InvalidDefinition, InvalidSettings
from orderflow.domain.intents import Direction, digest, idempotency_key
from tests.definitions import CATALOGUE
from tests.order_events import accepted
from tests.support.extension import EXAMPLE, install

GUIDE = (EXAMPLE.parents[1] / "docs" / "extending.md").read_text()
ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def definitions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The example, installed for the tests of this file; the value is its folder of definitions."""
    site = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        folder = install(site)
        patch.syspath_prepend(site)
        yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "orderflow_ship"]:
        del sys.modules[name]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Where the provider keeps its books."""
    return tmp_path / "books" / "shipping.db"


def shipping(database: Path) -> Provider:
    """The provider, made as a worker makes it."""
    return load_providers({"shipping"})["shipping"]({"database": str(database)})


def act(direction: Direction = Direction.DO, order: str = "order-1", quantity: int = 1) -> Act:
    """The shipment of an order, or its cancellation."""
    intent = load_catalogue().kind_for("ship_order").intent(accepted(data__items__0__quantity=quantity).data)
    return Act(
        key=idempotency_key(order, "ship", direction),
        workflow_id=order,
        step="ship",
        provider="shipping",
        operation="ship" if direction is Direction.DO else "cancel",
        intent=intent,
        intent_digest=digest(intent),
    )


SHIP, CANCEL = Direction.DO, Direction.UNDO


async def log(provider: Provider) -> list[str]:
    """What the provider really did, in order."""
    return [entry.operation for entry in await provider.list(ALWAYS) or []]


def test_the_installed_step_joins_the_catalogue() -> None:
    """Nothing is configured: the entry point is enough."""
    kind = load_catalogue().kind_for("ship_order")
    assert (kind.provider, kind.operation, kind.compensation, kind.undo_operation) == (
        *("shipping", "ship"),
        *("cancel_shipment", "cancel"),
    )
    assert kind.intent(accepted().data) == {
        "order_id": "1001",
        "customer_id": "c-42",
        "items": [{"sku": "mug-blue", "quantity": 2}, {"sku": "tea-green", "quantity": 1}],
    }


def test_its_definition_is_published_beside_the_shipped_one(definitions: Path) -> None:
    """The shipped order, with `ship` between `charge` and `notify`."""
    published = {definition.name: definition for definition in load_published(load_catalogue(), definitions).values()}
    assert set(published) == {"order", "order_with_shipping"}
    ids = [step.id for step in published["order_with_shipping"].steps]
    assert ids == ["validate", "reserve_inventory", "risk_check", "charge", "ship", "notify"]


def test_without_the_package_its_definition_is_refused(definitions: Path) -> None:
    """A worker that lacks the step says so when it starts, with the path of each unknown name."""
    with pytest.raises(InvalidDefinition, match=r"order_with_shipping\.v1\.json") as error:
        load_published(CATALOGUE, definitions)
    assert [problem.path for problem in error.value.problems] == [
        "$.steps[4].activity",
        "$.steps[4].compensation.activity",
    ]


def test_a_provider_without_its_setting_says_what_to_provide() -> None:
    """Nothing is made up."""
    with pytest.raises(InvalidSettings, match="needs the setting 'database'"):
        load_providers({"shipping"})["shipping"]({})


async def test_one_key_ships_once_whoever_asks_and_however_often(database: Path) -> None:
    """Two workers and a restart make one shipment, and get the same reference."""
    workers = [shipping(database), shipping(database)]
    answers = await asyncio.gather(*(worker.perform(act()) for worker in workers * 5))
    again = await shipping(database).perform(act())
    assert {answer.reference for answer in [*answers, again] if isinstance(answer, Done)} == {
        answer.reference for answer in answers[:1] if isinstance(answer, Done)
    }
    assert await log(workers[0]) == ["ship"]


async def test_another_parcel_under_the_same_key_is_refused(database: Path) -> None:
    """A key stands for one intent (I01)."""
    provider = shipping(database)
    await provider.perform(act(quantity=1))
    assert await provider.perform(act(quantity=2)) == Refused(code="other_parcel_for_this_key")
    assert await log(provider) == ["ship"]


async def test_a_shipment_is_cancelled_once(database: Path) -> None:
    """The second cancellation is the first one; what is cancelled is never shipped again."""
    provider = shipping(database)
    await provider.perform(act())
    first = await provider.undo(act(CANCEL), act())
    assert isinstance(first, Done)
    assert first.amount_minor is None
    assert await provider.undo(act(CANCEL), act()) == first
    assert await provider.perform(act()) == Refused(code="cancelled")
    assert isinstance(await provider.lookup(act()), Undone)
    assert isinstance(await provider.lookup(act(CANCEL)), Done)
    assert await log(provider) == ["ship", "cancel"]


async def test_a_cancellation_that_comes_first_forbids_the_shipment(database: Path) -> None:
    """A late attempt of a compensated step must not ship after all (T02)."""
    provider = shipping(database)
    undone = await provider.undo(act(CANCEL), act())
    assert isinstance(undone, Done)
    assert undone.amount_minor == 0
    assert await provider.undo(act(CANCEL), act()) == undone
    assert await provider.perform(act()) == Refused(code="cancelled")
    assert await log(provider) == ["cancel"]


async def test_a_lookup_tells_what_became_of_a_key_and_changes_nothing(database: Path) -> None:
    """Absent before, done after; another order's key stays absent."""
    provider = shipping(database)
    assert await provider.lookup(act()) == Absent()
    done = await provider.perform(act())
    assert await provider.lookup(act()) == done
    assert await provider.lookup(act(order="order-2")) == Absent()


async def test_books_that_cannot_be_opened_leave_the_outcome_unknown(database: Path) -> None:
    """A provider answers, it does not raise: the engine looks the effect up before it tries again (I06)."""
    provider = shipping(database)
    make_unusable(database)
    assert await provider.perform(act()) == Unknown(detail="SQLITE_CANTOPEN")


def make_unusable(database: Path) -> None:
    """Put a folder where the file was."""
    database.unlink()
    database.mkdir()


def blocks(*languages: str) -> list[str]:
    """The fenced blocks of the guide in these languages."""
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def test_the_guide_quotes_the_example_as_it_is() -> None:
    """Every Python and TOML block of docs/extending.md stands in the example's files, word for word."""
    sources = [path.read_text() for pattern in ("*.toml", "*/*.py") for path in EXAMPLE.glob(pattern)]
    quoted = blocks("python", "toml")
    assert len(quoted) == 5
    assert [block for block in quoted if not any(block in source for source in sources)] == []


def test_the_step_that_the_guide_shows_can_be_loaded(definitions: Path) -> None:
    """The JSON block is a whole step of a definition."""
    (step,) = map(json.loads, blocks("json"))
    definition = json.loads((definitions / "order_with_shipping.v1.json").read_text())
    definition["steps"][4] = step
    assert load_definition(json.dumps(definition).encode(), load_catalogue()).step("ship").compensation is not None


def test_the_guide_explains_every_field_of_a_step() -> None:
    """No field without a row, no row without a field."""
    table = GUIDE.split("| field of a step | meaning |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(Step.model_fields)
