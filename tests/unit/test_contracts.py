"""What crosses Temporal: one model in, one model out, arriving as it was sent, and no floats where money stands."""

import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import ModuleType, NoneType
from typing import Any, Final, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from temporalio.common import RawValue

from orderflow import contracts
from orderflow.activities import OrderActivities
from orderflow.announcements import AnnouncementActivities
from orderflow.catalogue import BUILT_IN, RESERVED, load_catalogue
from orderflow.client import data_converter
from orderflow.domain import approvals, audit, definition, effects, events, money, operations, orders
from orderflow.domain.approvals import Verdict
from orderflow.domain.definition import INLINE_ACTIVITIES, Definition, RetryPolicy
from orderflow.domain.durations import Duration
from orderflow.domain.events import OrderEvent
from orderflow.domain.operations import Operation, OperationClaims, OperationVerdict, Resolution
from orderflow.domain.orders import Standing
from orderflow.reconcile.run import ReconcileActivities
from orderflow.review import ReviewActivities
from orderflow.signing import operation_on
from orderflow.subscribers import Subscribers
from tests.definitions import SHIPPED, load, shipped
from tests.order_events import ABSENT, accepted


def models(*modules: ModuleType) -> list[type[BaseModel]]:
    """The models that these modules know, without the bases that only share a configuration."""
    found = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    return list(dict.fromkeys(value for value in found if issubclass(value, BaseModel) and value.model_fields))


MESSAGES: Final = [*models(contracts), Verdict, OperationVerdict]
"""What crosses Temporal, by itself or as a part."""

EVERY_MODEL: Final = models(contracts, approvals, audit, definition, effects, events, money, operations, orders)

_PARTS: Final = cast(
    Any, {"effects": None, "providers": {}, "catalogue": load_catalogue([]), "verify": None, "worker": "test"}
)

ACTIVITIES: Final = [
    *OrderActivities(published=(), **_PARTS).all(),
    *ReviewActivities(ledger=cast(Any, None), fate_of=cast(Any, None), tell_again=cast(Any, None), **_PARTS).all(),
    *AnnouncementActivities(
        ledger=cast(Any, None),
        effects=cast(Any, None),
        subscribers=Subscribers,
        client=cast(Any, None),
        announced=cast(Any, None),
        worker="test",
    ).all(),
    *ReconcileActivities(
        ledger=cast(Any, None), providers={}, catalogue=load_catalogue([]), orders=cast(Any, None), worker="test"
    ).all(),
]
"""What a worker registers; none of them is called here."""


def test_all_activities_of_the_catalogue_are_registered() -> None:
    """So that the checks below miss none: the steps, their undos, what only looks, and the one for unknown names."""
    names = {act.__temporal_activity_definition.name for act in ACTIVITIES}  # type: ignore[attr-defined]  # Temporal's own
    undos = {kind.compensation for kind in BUILT_IN if kind.compensation}
    assert names == {kind.activity for kind in BUILT_IN} | undos | (RESERVED - INLINE_ACTIVITIES) | {None}


@pytest.mark.parametrize("act", ACTIVITIES, ids=lambda act: act.__temporal_activity_definition.name or "any other name")
def test_an_activity_takes_one_model_and_gives_one(act: Callable[..., Any]) -> None:
    """T17: Temporal drops all type hints when the number of arguments differs."""
    hints = typing.get_type_hints(act)
    (parameter,) = inspect.signature(act).parameters.values()
    assert parameter.default is inspect.Parameter.empty
    if hints[parameter.name] == Sequence[RawValue]:  # the one for every name that the worker does not know
        assert hints["return"] is NoneType
        return
    assert issubclass(hints[parameter.name], BaseModel)
    assert issubclass(hints["return"], BaseModel)


def shape(value: object) -> object:
    """The types of a value and of all that is in it."""
    inside: list[object] = []
    if isinstance(value, BaseModel):
        inside = [(name, shape(getattr(value, name))) for name in type(value).model_fields]
    elif isinstance(value, dict):
        inside = [(shape(key), shape(member)) for key, member in value.items()]
    elif isinstance(value, list | tuple):
        inside = [shape(member) for member in value]
    return type(value), inside


OFFSETS: Final = st.just(UTC) | st.integers(-840, 840).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES: Final = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 30), timezones=OFFSETS)  # noqa: DTZ001 - bounds
PARTS: Final[dict[Any, st.SearchStrategy[Any]]] = {
    datetime: TIMES,
    Duration: st.timedeltas(timedelta(seconds=1), timedelta(days=3650)).map(Duration.of),
    OrderEvent: st.builds(
        accepted, id=st.sampled_from(["1", "é", "e\u0301", "😀"]), data__note=st.sampled_from([None, "ü\n", ABSENT])
    ),
    OperationClaims: st.builds(
        operation_on,
        st.sampled_from(
            [
                Standing(step="charge", key="o.charge.do", amount_minor=m, currency=c, error="x")
                for m, c in ((None, None), (900, "EUR"))
            ]
        ),
        st.just("o"),
        st.just(Operation.RESOLVE),
        st.just("carol"),
        TIMES.map(lambda time: min(time, datetime(9998, 1, 1, tzinfo=UTC))),
        reason=st.sampled_from(["r", "ü😀"]),
        outcome=st.sampled_from(Resolution),
        evidence=st.just("e"),
    ),
    RetryPolicy: st.sampled_from([step.retry for step in load(SHIPPED).steps if step.retry is not None]),
    Definition: st.sampled_from([load(SHIPPED), load(shipped({"$.steps[4].deadline": ABSENT}))]),
}


def drawn(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of an annotated type; of a model every member is drawn, the optional ones too."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in PARTS:
        return PARTS[annotation]
    if annotation in EVERY_MODEL:
        members = {name: drawn(field.annotation) for name, field in annotation.model_fields.items()}
        return st.builds(annotation, **members)
    if origin is dict:
        return st.dictionaries(drawn(arguments[0]), drawn(arguments[1]), max_size=2)
    if origin in (tuple, list):
        return st.lists(drawn(arguments[0]), max_size=2).map(origin)
    if NoneType in arguments:
        return st.none() | drawn(arguments[0])
    return st.from_type(annotation)


@pytest.mark.parametrize("model", MESSAGES, ids=lambda model: model.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_a_message_arrives_as_it_was_sent(model: type[BaseModel], data: st.DataObject) -> None:
    """T36: aware times, enums, unions, tuples, None: same value, same types, and nothing is guessed."""
    sent = data.draw(drawn(model))
    converter = data_converter().payload_converter
    [arrived] = converter.from_payloads(converter.to_payloads([sent]), [model])
    assert arrived == sent
    assert shape(arrived) == shape(sent)


def leaves(annotation: Any) -> Iterator[object]:
    """The types that an annotation is made of."""
    arguments = typing.get_args(annotation)
    if not arguments:
        yield annotation
    for argument in arguments:
        yield from leaves(argument)


@pytest.mark.parametrize("model", EVERY_MODEL, ids=lambda model: model.__name__)
def test_money_is_whole_minor_units_wherever_it_stands(model: type[BaseModel]) -> None:
    """M03: no float, Decimal or Any; the one float is a pause in seconds, which is no money and is never recorded."""
    for name, field in model.model_fields.items():
        made_of = set(leaves(field.annotation))
        assert made_of.isdisjoint({Decimal, complex, Any}), name
        assert float not in made_of or name == "retry_after", name
        if name.endswith("_minor"):
            assert made_of <= {int, NoneType}, name
