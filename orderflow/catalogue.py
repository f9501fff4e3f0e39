"""What a step may do: each kind of step names its activity, the provider that does it, and what it means to do.

The built-in kinds are joined by those of installed packages (entry points `orderflow.steps`); their providers come
from `orderflow.providers`. See docs/extending.md.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final

from orderflow.contracts import OWN_ACTIVITIES
from orderflow.domain.definition import INLINE_ACTIVITIES
from orderflow.domain.effects import Provider
from orderflow.domain.errors import ErrorType, InvalidInput, UnknownActivity
from orderflow.domain.events import OrderData
from orderflow.domain.money import Money
from orderflow.domain.steps import NAME
from orderflow.domain.strict_json import JsonValue

STEPS_GROUP: Final = "orderflow.steps"
PROVIDERS_GROUP: Final = "orderflow.providers"

RESERVED: Final = INLINE_ACTIVITIES | OWN_ACTIVITIES
"""Names of activities that every worker has besides the kinds of step."""

ProviderFactory = Callable[[Mapping[str, str]], Provider]
"""Makes a provider of its own settings: text by lower-case name."""


def no_amount(order: OrderData) -> Money | None:
    """No money moves."""
    return None


@dataclass(frozen=True)
class StepKind:
    """One kind of step, and how it is undone.

    `activity` and `compensation` are names that definitions use; `operation` and `undo_operation` the provider's verbs.
    `intent` gives what is to be done for an order, as JSON without floats: whatever it holds is what the idempotency
    key stands for. `amount` is the money that moves. A kind without `effect` is a check: it answers with a decision,
    changes nothing outside and is not booked in the ledger. Raises `InvalidInput` for a kind that contradicts itself.
    """

    activity: str
    provider: str
    operation: str
    intent: Callable[[OrderData], dict[str, JsonValue]]
    compensation: str | None = None
    undo_operation: str | None = None
    effect: bool = True
    amount: Callable[[OrderData], Money | None] = no_amount

    def __post_init__(self) -> None:
        optional = [name for name in (self.compensation, self.undo_operation) if name is not None]
        for name in (self.activity, self.provider, self.operation, *optional):
            if not NAME.fullmatch(name):
                raise InvalidInput(f"{name!r} cannot name a part of a step; use a lower-case name such as 'ship_order'")
        if len(optional) == 1:
            raise InvalidInput(f"'{self.activity}' needs both a compensation and an undo_operation, or neither")
        if self.operation == self.undo_operation:
            raise InvalidInput(f"'{self.activity}' needs an undo_operation other than its operation '{self.operation}'")
        if optional and not self.effect:
            raise InvalidInput(f"'{self.activity}' is a check: it changes nothing, so it takes no compensation")


@dataclass(frozen=True)
class Catalogue:
    """Every kind of step that this process knows, by the name of its activity."""

    kinds: Mapping[str, StepKind]

    @cached_property
    def activities(self) -> frozenset[str]:
        """The forward activities, inline ones left out."""
        return frozenset(self.kinds)

    @cached_property
    def checks(self) -> frozenset[str]:
        """The forward activities that only answer with a decision."""
        return frozenset(name for name, kind in self.kinds.items() if not kind.effect)

    @cached_property
    def compensations(self) -> frozenset[str]:
        """The activities that undo one of the others."""
        return frozenset(kind.compensation for kind in self.kinds.values() if kind.compensation is not None)

    @cached_property
    def error_types(self) -> frozenset[str]:
        """The type strings that a retry policy may name (T18)."""
        return frozenset(error_type.value for error_type in ErrorType)

    def kind_for(self, activity: str) -> StepKind:
        """The kind whose forward activity this is; `KeyError` when there is none."""
        return self.kinds[activity]

    def kinds_at(self, provider: str, operation: str) -> tuple[StepKind, ...]:
        """The kinds of step that `provider` does by `operation`."""
        return tuple(kind for kind in self.kinds.values() if (kind.provider, kind.operation) == (provider, operation))

    def undoing(self, provider: str, operation: str) -> StepKind:
        """The kind of step that tells how `operation` at `provider` is undone. Raises `UnknownActivity` for none."""
        for kind in self.kinds_at(provider, operation):
            if kind.undo_operation is not None:
                return kind
        raise UnknownActivity(f"this worker knows no way to take back {operation} at {provider}; install its package")

    def compensation_of(self, activity: str) -> str | None:
        """The name of the activity that undoes `activity`, where there is one; `KeyError` for an unknown one."""
        return self.kinds[activity].compensation


def load_catalogue(extensions: Iterable[EntryPoint] | None = None) -> Catalogue:
    """The built-in kinds and those of `extensions`, by default every installed entry point `orderflow.steps`.

    Each loads a `StepKind` or an iterable of them. Raises `InvalidInput`, naming the entry point, for one that cannot
    be loaded, is something else, or uses a name that is taken.
    """
    kinds = {kind.activity: kind for kind in BUILT_IN}
    for entry_point in entry_points(group=STEPS_GROUP) if extensions is None else extensions:
        for kind in _kinds_of(entry_point):
            _require_free(kind, kinds, entry_point)
            kinds[kind.activity] = kind
    return Catalogue(MappingProxyType(kinds))


def load_providers(
    names: Collection[str] | None = None, extensions: Iterable[EntryPoint] | None = None
) -> Mapping[str, ProviderFactory]:
    """Factories of providers by name, from the installed entry points `orderflow.providers`; only `names`, if given.

    A factory with the name of a built-in provider is meant to take its place. Raises `InvalidInput`, naming the entry
    point, for one that cannot be loaded, cannot be called, or has the name of another.
    """
    factories: dict[str, ProviderFactory] = {}
    for entry_point in entry_points(group=PROVIDERS_GROUP) if extensions is None else extensions:
        if names is not None and entry_point.name not in names:
            continue
        if entry_point.name in factories:
            raise _refusal(entry_point, f"another package provides '{entry_point.name}' too; uninstall one of them")
        factory = _load(entry_point)
        if not callable(factory):
            raise _refusal(entry_point, f"is a {type(factory).__name__}; it must be a function of the settings")
        factories[entry_point.name] = factory
    return MappingProxyType(factories)


def _kinds_of(entry_point: EntryPoint) -> tuple[StepKind, ...]:
    loaded = _load(entry_point)
    kinds = (loaded,) if isinstance(loaded, StepKind) or not isinstance(loaded, Iterable) else tuple(loaded)
    for kind in kinds:
        if not isinstance(kind, StepKind):
            raise _refusal(entry_point, f"holds a {type(kind).__name__}; it must be a StepKind or several of them")
    return kinds


def _load(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except Exception as error:  # importing another team's module can raise anything
        raise _refusal(entry_point, f"cannot be loaded: {type(error).__name__}: {error}") from error


def _require_free(kind: StepKind, kinds: Mapping[str, StepKind], entry_point: EntryPoint) -> None:
    taken = {*RESERVED, *kinds, *(other.compensation for other in kinds.values())}
    own = [name for name in (kind.activity, kind.compensation) if name is not None]
    for name in own:
        if name in taken or own.count(name) > 1:
            raise _refusal(entry_point, f"the name '{name}' is already taken; give the activity another one")


def _refusal(entry_point: EntryPoint, message: str) -> InvalidInput:
    package = f" of {entry_point.dist.name}" if entry_point.dist else ""
    return InvalidInput(f"entry point {entry_point.group}:{entry_point.name}{package} ({entry_point.value}): {message}")


def _payment(order: OrderData) -> dict[str, JsonValue]:
    return {
        "order_id": order.order_id,
        "customer_id": order.customer.id,
        "amount_minor": order.total_minor,
        "currency": order.currency,
    }


def _reservation(order: OrderData) -> dict[str, JsonValue]:
    items: list[JsonValue] = [{"sku": item.sku, "quantity": item.quantity} for item in order.items]
    return {"order_id": order.order_id, "items": items}


def _notification(order: OrderData) -> dict[str, JsonValue]:
    return {"order_id": order.order_id, "email": order.customer.email, "template": "order_completed"}


def _total(order: OrderData) -> Money | None:
    return Money(amount_minor=order.total_minor, currency=order.currency)


BUILT_IN: Final = (
    StepKind(
        activity="reserve_inventory",
        provider="inventory",
        operation="reserve",
        intent=_reservation,
        compensation="release_inventory",
        undo_operation="release",
    ),
    StepKind(activity="check_risk", provider="risk", operation="check", intent=_payment, effect=False),
    StepKind(
        activity="charge_payment",
        provider="payments",
        operation="charge",
        intent=_payment,
        compensation="refund_payment",
        undo_operation="refund",
        amount=_total,
    ),
    StepKind(activity="notify_customer", provider="notifications", operation="notify", intent=_notification),
)
"""The kinds of step that need nothing installed."""
