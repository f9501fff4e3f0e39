"""The events in `examples/` get the answers that are written beside them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from orderflow.callers import caller_registry
from orderflow.domain.callers import Caller, permit
from orderflow.domain.deliveries import DeliveryRefused
from orderflow.domain.errors import InvalidEvent, InvalidJson, Problem
from orderflow.domain.events import check_order, order_problems, payload_fingerprint, validate_event, workflow_id
from orderflow.domain.strict_json import read_json
from orderflow.settings import Settings
from tests.order_events import accepted

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
REFUSED: Final = EXAMPLES / "refused"
ANSWERS: Final[dict[str, dict[str, Any]]] = json.loads((REFUSED / "answers.json").read_text("utf-8"))
STATUSES: Final = {"invalid-json": 400, "invalid-event": 400, "invalid-order": 422}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Caller:
    """The development caller, whom whoever tries the examples is."""
    folder = tmp_path_factory.mktemp("state")
    return caller_registry(Settings(state_dir=folder), "127.0.0.1:7233", lambda _: None).caller("shop")


def refusal(raw: bytes, shop: Caller) -> tuple[str, tuple[Problem, ...]]:
    """Why an event of `shop` is refused, step by step as the door goes; the paths that are told."""
    try:
        value = read_json(raw)
    except InvalidJson as error:
        return "invalid-json", error.problems
    try:
        event = validate_event(value)
    except InvalidEvent as error:
        return "invalid-event", error.problems
    if problems := order_problems(event.data):
        return "invalid-order", problems
    with pytest.raises(DeliveryRefused) as caught:
        permit(shop, event)
    return caught.value.cause, ()


@pytest.mark.parametrize("file", ANSWERS)
def test_each_bad_example_is_refused_as_is_written_beside_it(file: str, shop: Caller) -> None:
    """W13-W18, C01-C08, M01, M02: by status, type and JSON path."""
    answer = ANSWERS[file]
    cause, problems = refusal((REFUSED / file).read_bytes(), shop)
    assert answer["type"] == f"urn:orderflow:problem:{cause}"
    assert answer["status"] == STATUSES.get(cause, 403)
    assert answer.get("path", "") in {problem.path for problem in problems} | ({""} if not problems else set())


def test_every_bad_example_has_its_answer_and_its_row() -> None:
    """A file without an answer would be tested by nobody; the table for people says what the one for programs does."""
    assert sorted(ANSWERS) == sorted(path.name for path in REFUSED.glob("*.json") if path.name != "answers.json")
    assert len(ANSWERS) >= 20
    assert sorted(rows()) == sorted(
        (file, str(answer["status"]), answer["type"].rpartition(":")[2], answer.get("path", ""))
        for file, answer in ANSWERS.items()
    )


def rows() -> Iterator[tuple[str, str, str, str]]:
    """File, status, type and path of each row of the page."""
    for line in (REFUSED / "README.md").read_text("utf-8").splitlines():
        if line.startswith("| [`"):
            cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
            yield cells[0].partition("`](")[0].removeprefix("[`"), cells[1], cells[2], cells[3]


def test_the_conflicting_example_is_a_good_event_of_the_same_identity_with_another_amount(shop: Caller) -> None:
    """I11: by itself it passes; beside `order.json` it is a conflict."""
    event, order = validate_event(read_json((EXAMPLES / "conflicting-amount.json").read_bytes())), accepted()
    check_order(event)
    permit(shop, event)
    assert workflow_id(event.source, event.id) == workflow_id(order.source, order.id)
    assert event.data.total_minor != order.data.total_minor
    assert payload_fingerprint(event) != payload_fingerprint(order)
