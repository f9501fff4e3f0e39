"""An OpenAPI 3.1 document as a judge: whether an answer is one that it announces."""

import re
from functools import cached_property
from typing import Any, Final

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from tests.support.answers import Answer

_BASE: Final = "urn:document"


class Document:
    """One document."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    def faults(self, method: str, path: str, answer: Answer) -> list[str]:
        """What this answer has that was not announced; `path` is the target without its query."""
        found = self._operation(method, path)
        if found is None:
            return self._against(["components", "schemas", "Problem"], answer)
        steps, operation = found
        response = operation["responses"].get(str(answer.status))
        if response is None:
            return [f"{method} {path} does not announce {answer.status}"]
        missing = [
            name
            for name, each in response.get("headers", {}).items()
            if each.get("required") and name not in answer.headers
        ]
        if missing:
            return [f"{answer.status} without {missing}"]
        media_type = answer.headers.get_content_type()
        if media_type not in response["content"]:
            return [f"{answer.status} is {media_type}, not {[*response['content']]}"]
        return self._against([*steps, "responses", str(answer.status), "content", media_type, "schema"], answer)

    def accepts(self, schema: str, value: object) -> bool:
        """Whether a value is one of a named schema."""
        return self._validator(["components", "schemas", schema]).is_valid(value)

    def _operation(self, method: str, path: str) -> tuple[list[str], dict[str, Any]] | None:
        for template, operations in self.content["paths"].items():
            pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))
            if re.fullmatch(pattern, path) and method.lower() in operations:
                return ["paths", template, method.lower()], operations[method.lower()]
        return None

    def _against(self, steps: list[str], answer: Answer) -> list[str]:
        return [error.message for error in self._validator(steps).iter_errors(answer.json)]

    def _validator(self, steps: list[str]) -> Draft202012Validator:
        pointer = "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)
        return Draft202012Validator({"$ref": f"{_BASE}#/{_quoted(pointer)}"}, registry=self._registry)

    @cached_property
    def _registry(self) -> "Registry[Any]":
        resource = Resource.from_contents(self.content, default_specification=DRAFT202012)
        registry: Registry[Any] = Registry().with_resource(_BASE, resource)
        return registry


def _quoted(pointer: str) -> str:
    return pointer.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
