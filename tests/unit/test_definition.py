import json
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter

from orderflow.definitions import load_chosen, load_published, packaged_definitions
from orderflow.domain.definition import Definition, check_definition, load_definition
from orderflow.domain.errors import PERMANENT_TYPES, InvalidDefinition, InvalidInput, InvalidSettings
from orderflow.domain.intents import digest
from tests.definitions import CATALOGUE, SHIPPED, graph, load, shipped


def test_the_shipped_definition_is_order_1_0_0() -> None:
    """What a worker publishes without any setting."""
    (definition,) = load_published(CATALOGUE).values()
    assert (definition.name, definition.version) == ("order", "1.0.0")
    assert [step.id for step in definition.steps] == ["validate", "reserve_inventory", "risk_check", "charge", "notify"]


def test_no_shipped_retry_repeats_a_permanent_error() -> None:
    """Every policy, also of compensations, lists every type that no retry can help, and none that one can (T18)."""
    policies = [policy.retry for step in load(SHIPPED).steps for policy in (step, step.compensation) if policy]
    for retry in filter(None, policies):
        assert set(retry.non_retryable) == PERMANENT_TYPES


def test_the_fingerprint_depends_on_meaning_not_on_layout() -> None:
    """Order of keys, white space and spelled-out defaults are no difference."""
    spelled_out = shipped(
        {"$.steps[0].depends_on": [], "$.steps[0].retry": None, "$.steps[3].on_failure": "compensate"}
    )
    turned = dict(reversed(spelled_out.items()))
    raw = json.dumps(turned, indent=3).encode()
    assert load_definition(raw, CATALOGUE).fingerprint == load(SHIPPED).fingerprint
    assert load(SHIPPED).fingerprint.startswith("sha256:")


def test_the_fingerprint_is_the_digest_of_what_is_not_default() -> None:
    """So an optional field that a later release adds does not change it for the definitions of today."""
    definition = graph({"only": []})
    del definition["steps"][0]["depends_on"]
    assert load(definition).fingerprint == digest(definition)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.version", "1.0.1"),
        ("$.steps[3].approval.approvers", 2),
        ("$.steps[4].deadline", "PT2H"),
        ("$.steps", SHIPPED["steps"][::-1]),
    ],
    ids=["version", "approvers", "deadline", "order of steps"],
)
def test_any_change_changes_the_fingerprint(path: str, value: object) -> None:
    """The order of the steps counts too: it is the order of results."""
    assert load(shipped({path: value})).fingerprint != load(SHIPPED).fingerprint


def test_a_definition_crosses_temporal_unchanged() -> None:
    """The converter of the pydantic contrib gives back an equal model with the same fingerprint."""
    definition = load(SHIPPED)
    converter = pydantic_data_converter.payload_converter
    back = converter.from_payload(converter.to_payload(definition), Definition)
    assert back == definition
    assert back.fingerprint == definition.fingerprint


def test_a_file_with_a_byte_order_mark_is_read() -> None:
    """Some editors start a file with one (W13)."""
    raw = b"\xef\xbb\xbf" + packaged_definitions()[0]
    assert load_definition(raw, CATALOGUE) == load(SHIPPED)


def test_a_parsed_definition_can_be_checked_again() -> None:
    """A worker asks at its start whether it knows every name that it publishes."""
    definition = load(SHIPPED)
    foreign = definition.steps[4].model_copy(update={"activity": "ship_order"})
    changed = definition.model_copy(update={"steps": (*definition.steps[:4], foreign)})
    assert check_definition(definition, CATALOGUE) == ()
    assert [problem.path for problem in check_definition(changed, CATALOGUE)] == ["$.steps[4].activity"]


def test_the_time_needed_counts_every_attempt_and_pause() -> None:
    """Pauses grow by the backoff up to their maximum; there is none after the last attempt (T23)."""
    compensation = load(SHIPPED).step("charge").compensation
    assert compensation is not None
    needed = compensation.retry.time_needed(compensation.start_to_close)
    assert needed == timedelta(seconds=10 * 15 + (1 + 2 + 4 + 8 + 16 + 32 + 60 + 60 + 60))


def test_a_schedule_to_close_that_just_holds_the_retries_is_accepted() -> None:
    """The needed minimum itself is enough (T23)."""
    assert load(shipped({"$.steps[3].schedule_to_close": "PT1M30S"})).step("charge").schedule_to_close == "PT1M30S"


def test_an_unknown_step_is_a_key_error() -> None:
    """A wrong id is a bug of the caller."""
    with pytest.raises(KeyError, match="ship"):
        load(SHIPPED).step("ship")


def test_a_folder_adds_its_definitions_to_the_shipped_ones(tmp_path: Path) -> None:
    """Every `*.json` of the configured folder is published by its fingerprint; other files are left alone."""
    own = graph({"only": []})
    (tmp_path / "own.json").write_text(json.dumps(own))
    (tmp_path / "copy_of_own.json").write_text(json.dumps(own, indent=2))
    (tmp_path / "notes.txt").write_text("not a definition")
    assert set(load_published(CATALOGUE, tmp_path)) == {load(SHIPPED).fingerprint, load(own).fingerprint}


def test_two_different_definitions_of_one_version_are_refused_naming_both_files(tmp_path: Path) -> None:
    """A running order and an approval name a version: it must mean one thing."""
    (tmp_path / "mine.json").write_text(json.dumps(shipped({"$.steps[4].deadline": "PT2H"})))
    with pytest.raises(InvalidDefinition, match=r"order\.v1\.json and .*mine\.json are two different .* order 1\.0\.0"):
        load_published(CATALOGUE, tmp_path)


def test_a_refused_file_is_named(tmp_path: Path) -> None:
    """The problems stay a list; the line in front says which file."""
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(InvalidDefinition, match=r"broken\.json: not a valid definition") as error:
        load_published(CATALOGUE, tmp_path)
    assert [problem.path for problem in error.value.problems] == ["$.name", "$.version", "$.steps"]


@pytest.mark.parametrize("name", ["missing", "file.json"])
def test_what_is_no_folder_is_one_clear_line(tmp_path: Path, name: str) -> None:
    """A typing error in a setting must not start a worker without the definitions meant."""
    (tmp_path / "file.json").write_text("{}")
    with pytest.raises(InvalidInput, match=rf"folder of definitions .*{name} cannot be read: \w+"):
        load_published(CATALOGUE, tmp_path / name)


def test_a_definition_for_new_orders_has_to_be_one_that_workers_publish(tmp_path: Path) -> None:
    """A door that starts orders which every worker refuses would lose each of them."""
    own = tmp_path / "own.json"
    own.write_text(json.dumps(shipped({"$.version": "1.0.1"})))
    with pytest.raises(InvalidSettings, match=r"ORDERFLOW_ORDER_DEFINITION: .*own\.json is neither packaged nor in"):
        load_chosen(CATALOGUE, own)
    assert load_chosen(CATALOGUE, own, tmp_path).version == "1.0.1"
    assert load_chosen(CATALOGUE).version == "1.0.0"
