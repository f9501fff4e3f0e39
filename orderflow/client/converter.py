"""How values become payloads and back, the same for client, worker, replayer and command line (T31)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import DataConverter


class OrderPayloadConverter(PydanticPayloadConverter):
    """Pydantic models as JSON; what has no declared type and cannot be decoded is handed over as it came.

    An order's `run` declares no type: it takes anything and says itself what is wrong. A payload that does not decode
    would otherwise fail the workflow task, and leave a bad start Running for ever (T55).
    """

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Decode `payloads`; raises only where a type is declared."""
        try:
            return super().from_payloads(payloads, type_hints)
        except (KeyError, RuntimeError, ValueError):
            if type_hints:
                raise
            return [RawValue(payload) for payload in payloads]


DATA_CONVERTER: Final = replace(pydantic_data_converter, payload_converter_class=OrderPayloadConverter)


def data_converter() -> DataConverter:
    """Give the one converter there is.

    Failures keep their message and stack trace readable (`encode_common_attributes` is off): without a payload codec
    that switch would hide them from people and protect nothing.
    """
    return DATA_CONVERTER
