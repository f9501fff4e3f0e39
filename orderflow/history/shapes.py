"""The JSON of a history, in each shape that Temporal's CLI, the UI and the SDKs write, as the one that protobuf reads.

Walked along Temporal's own message descriptors: enums as `EVENT_TYPE_…` or in CamelCase, payloads in base64 or as the
value that a UI or the CLI decoded (then they count as `json/plain`), integers as numbers or as strings (T30).
"""

import base64
import json
import re
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from temporalio.api.common.v1 import Payload, Payloads

from orderflow.domain.errors import InvalidInput

_PAYLOAD: Final = Payload.DESCRIPTOR.full_name
_PAYLOADS: Final = Payloads.DESCRIPTOR.full_name
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def normal(value: Any, shape: Descriptor, path: str = "$") -> Any:
    """Give `value` as JSON that protobuf takes for `shape`. Raises `InvalidInput` where it cannot be one."""
    if shape.full_name == _PAYLOAD:
        return _payload(value)
    if shape.full_name == _PAYLOADS:
        return _payloads(value)
    if shape.full_name.startswith("google.protobuf."):
        return value
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} is no object, as a history has there", path=path)
    fields = {name: field for field in shape.fields for name in (field.name, field.json_name)}
    known = {key: fields[key] for key in value if key in fields and value[key] is not None}
    return {key: _member(value[key], field, f"{path}.{key}") for key, field in known.items()}


def _member(value: Any, field: FieldDescriptor, path: str) -> Any:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if not isinstance(value, dict):
            raise InvalidInput(f"{path} is no object, as a history has there", path=path)
        held = entry.fields_by_name["value"]
        return {key: _single(each, held, f"{path}.{key}") for key, each in value.items()}
    if field.is_repeated:
        if not isinstance(value, list):
            raise InvalidInput(f"{path} is no list, as a history has there", path=path)
        return [_single(each, field, f"{path}[{index}]") for index, each in enumerate(value)]
    return _single(value, field, path)


def _single(value: Any, field: FieldDescriptor, path: str) -> Any:
    if field.message_type is not None:
        return normal(value, field.message_type, path)
    if field.enum_type is not None:
        return _enum(value, field.enum_type, path)
    return value


def _enum(value: Any, kind: EnumDescriptor, path: str) -> Any:
    if isinstance(value, int) or (isinstance(value, str) and value in kind.values_by_name):
        return value
    prefix = kind.values[0].name.removesuffix("UNSPECIFIED")
    name = prefix + _HUMP.sub("_", str(value)).upper()
    if name not in kind.values_by_name:
        raise InvalidInput(f"{path} is {str(value)[:60]!r}, which is no {kind.name} of Temporal's", path=path)
    return name


def _payloads(value: Any) -> dict[str, Any]:
    held = value.get("payloads", []) if isinstance(value, dict) and value.keys() <= {"payloads"} else value
    return {"payloads": [_payload(each) for each in (held if isinstance(held, list) else [held])]}


def _payload(value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and isinstance(value.get("metadata"), dict) and value.keys() <= {"metadata", "data"}:
        return value
    encoding = b"binary/null" if value is None else b"json/plain"
    data = b"" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return {"metadata": {"encoding": _base64(encoding)}, "data": _base64(data)}


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
