import dataclasses
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from orderflow.catalogue import BUILT_IN, PROVIDERS_GROUP, STEPS_GROUP, StepKind, load_catalogue, load_providers
from orderflow.domain.effects import Provider
from orderflow.domain.errors import ErrorType, InvalidInput, OrderflowError
from orderflow.domain.intents import digest
from orderflow.domain.money import Money
from tests.order_events import accepted

ORDER = accepted().data
SHIP = StepKind("ship_order", "shipping", "ship", lambda order: {"order_id": order.order_id})
SEVERAL = [SHIP, dataclasses.replace(SHIP, activity="pack_order")]
UNDONE = dataclasses.replace(SHIP, compensation="cancel_shipment", undo_operation="cancel")
SAME_UNDO = [UNDONE, dataclasses.replace(UNDONE, activity="send_order")]
TAKEN = dataclasses.replace(SHIP, activity="charge_payment")
INLINE = dataclasses.replace(SHIP, activity="validate_order")
OWN = dataclasses.replace(SHIP, activity="settle_effect")
UNDO_TAKEN = dataclasses.replace(UNDONE, compensation="refund_payment")
OWN_UNDO = dataclasses.replace(UNDONE, compensation="ship_order")
NOT_A_KIND = "ship_order"
NOT_KINDS = [SHIP, 3]


def open_shipping(settings: Mapping[str, str]) -> Provider:
    """A factory of providers, which is no kind of step."""
    raise NotImplementedError


def step(attribute: str, name: str = "ship") -> EntryPoint:
    """An entry point `orderflow.steps` that loads an attribute of this module."""
    return EntryPoint(name, f"{__name__}:{attribute}", STEPS_GROUP)


def provider(attribute: str, name: str = "shipping") -> EntryPoint:
    """An entry point `orderflow.providers` that loads an attribute of this module."""
    return EntryPoint(name, f"{__name__}:{attribute}", PROVIDERS_GROUP)


def test_the_built_in_kinds_are_the_four_of_an_order() -> None:
    """Each names its provider and verbs; a check has no undo and no effect."""
    assert [
        (kind.activity, kind.provider, kind.operation, kind.compensation, kind.undo_operation) for kind in BUILT_IN
    ] == [
        ("reserve_inventory", "inventory", "reserve", "release_inventory", "release"),
        ("check_risk", "risk", "check", None, None),
        ("charge_payment", "payments", "charge", "refund_payment", "refund"),
        ("notify_customer", "notifications", "notify", None, None),
    ]
    assert load_catalogue([]).checks == {"check_risk"}


def test_an_intent_is_what_is_meant_and_can_be_digested() -> None:
    """Stock is reserved by item, money moves by amount and currency, the customer is told by e-mail."""
    intents = {kind.activity: kind.intent(ORDER) for kind in BUILT_IN}
    payment = {"order_id": "1001", "customer_id": "c-42", "amount_minor": 3399, "currency": "EUR"}
    assert intents == {
        "reserve_inventory": {
            "order_id": "1001",
            "items": [{"sku": "mug-blue", "quantity": 2}, {"sku": "tea-green", "quantity": 1}],
        },
        "check_risk": payment,
        "charge_payment": payment,
        "notify_customer": {"order_id": "1001", "email": "sam@example.com", "template": "order_completed"},
    }
    assert all(digest(intent).startswith("sha256:") for intent in intents.values())


def test_only_the_charge_moves_money() -> None:
    """The amount of a charge is the order's total."""
    amounts = {kind.activity: kind.amount(ORDER) for kind in BUILT_IN}
    assert amounts.pop("charge_payment") == Money(amount_minor=3399, currency="EUR")
    assert set(amounts.values()) == {None}


def test_a_kind_is_found_by_what_it_does() -> None:
    """And says what undoes it; what is no forward activity leads to a `KeyError`."""
    catalogue = load_catalogue([])
    assert catalogue.compensation_of("charge_payment") == "refund_payment"
    assert catalogue.compensation_of("notify_customer") is None
    assert catalogue.compensations == {"release_inventory", "refund_payment"}
    with pytest.raises(KeyError):
        catalogue.kind_for("refund_payment")


def test_every_error_that_can_be_raised_can_be_named_in_a_policy() -> None:
    """One list of type strings serves raising and policies (T18)."""
    known = load_catalogue([]).error_types
    assert known == {*map(str, ErrorType)}
    assert {error.type for error in every_error(OrderflowError)} <= known


def every_error(root: type[OrderflowError]) -> set[type[OrderflowError]]:
    """The whole tree below and with `root`."""
    return {root}.union(*map(every_error, root.__subclasses__()))


@pytest.mark.parametrize(
    ("attribute", "activities"), [("SHIP", {"ship_order"}), ("SEVERAL", {"ship_order", "pack_order"})]
)
def test_an_entry_point_adds_one_kind_or_several(attribute: str, activities: set[str]) -> None:
    """The built-in kinds stay."""
    catalogue = load_catalogue([step(attribute)])
    assert catalogue.activities == {kind.activity for kind in BUILT_IN} | activities


@pytest.mark.parametrize(
    ("entry_points", "sentence"),
    [
        ([step("TAKEN")], "the name 'charge_payment' is already taken"),
        ([step("INLINE")], "the name 'validate_order' is already taken"),
        ([step("OWN")], "the name 'settle_effect' is already taken"),
        ([step("UNDO_TAKEN")], "the name 'refund_payment' is already taken"),
        ([step("OWN_UNDO")], "the name 'ship_order' is already taken"),
        ([step("SAME_UNDO")], "the name 'cancel_shipment' is already taken"),
        ([step("SHIP", name="first"), step("SHIP")], "the name 'ship_order' is already taken"),
        ([step("NOT_A_KIND")], "holds a str; it must be a StepKind"),
        ([step("NOT_KINDS")], "holds a int; it must be a StepKind"),
        ([step("open_shipping")], "holds a function; it must be a StepKind"),
        ([step("missing")], "cannot be loaded: AttributeError"),
        ([EntryPoint("ship", "no_such_module_here:SHIP", STEPS_GROUP)], "cannot be loaded: ModuleNotFoundError"),
    ],
    ids=lambda value: None if isinstance(value, str) else ",".join(point.value.split(":")[1] for point in value),
)
def test_a_step_that_cannot_be_used_is_refused_naming_its_entry_point(
    entry_points: list[EntryPoint], sentence: str
) -> None:
    """The person who installed the package learns which one and why."""
    with pytest.raises(InvalidInput) as error:
        load_catalogue(entry_points)
    assert str(error.value).startswith("entry point orderflow.steps:ship (")
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"activity": "Ship"}, "'Ship' cannot name"),
        ({"provider": ""}, "'' cannot name"),
        ({"compensation": "cancel_shipment"}, "both a compensation and an undo_operation"),
        ({"undo_operation": "cancel"}, "both a compensation and an undo_operation"),
        ({"compensation": "cancel_shipment", "undo_operation": "cancel", "effect": False}, "is a check"),
        ({"compensation": "cancel_shipment", "undo_operation": "ship"}, "other than its operation 'ship'"),
    ],
    ids=str,
)
def test_a_kind_that_contradicts_itself_cannot_be_made(changes: dict[str, str], sentence: str) -> None:
    """The fault shows where the kind is written."""
    with pytest.raises(InvalidInput, match=sentence):
        dataclasses.replace(SHIP, **changes)  # type: ignore[arg-type]  # bools among them


def test_providers_are_loaded_by_name_and_only_those_asked_for() -> None:
    """A broken provider that nobody uses does no harm."""
    installed = [provider("open_shipping"), provider("missing", name="spare")]
    factories = load_providers({"shipping"}, installed)
    assert list(factories) == ["shipping"]
    assert factories["shipping"] is open_shipping


@pytest.mark.parametrize(
    ("entry_points", "sentence"),
    [
        ([provider("open_shipping"), provider("open_shipping")], "another package provides 'shipping' too"),
        ([provider("NOT_A_KIND")], "is a str; it must be a function of the settings"),
        ([provider("missing")], "cannot be loaded: AttributeError"),
    ],
    ids=["twice", "no function", "missing"],
)
def test_a_provider_that_cannot_be_used_is_refused_naming_its_entry_point(
    entry_points: list[EntryPoint], sentence: str
) -> None:
    """Two packages for one name would make it chance which system an order talks to."""
    with pytest.raises(InvalidInput) as error:
        load_providers(extensions=entry_points)
    assert str(error.value).startswith("entry point orderflow.providers:shipping (")
    assert sentence in str(error.value)


def test_the_package_of_an_entry_point_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed is found by itself, and a fault says whom to ask."""
    info = tmp_path / "orderflow_dance-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: orderflow-dance\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[orderflow.steps]\ndance = orderflow_dance:DANCE\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInput, match=r"entry point orderflow\.steps:dance of orderflow-dance \(orderflow_dance:"):
        load_catalogue()
