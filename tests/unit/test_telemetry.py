"""What is logged, and where."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import structlog

from orderflow.domain.audit import SafeEvent, Told
from orderflow.telemetry import configure_logging

EVENT = SafeEvent(at=datetime(2026, 1, 31, 12, tzinfo=UTC), told=Told.STAGE_CHANGED, subject="running", detail="start")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Leave no configuration behind."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def test_a_safe_event_is_one_line_of_json_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """O01: what is logged is what the model holds, with the order's id; stdout is left to answers."""
    configure_logging("json")
    extra = {"order": "order-1", **EVENT.model_dump(mode="json"), "customer": "someone"}
    logging.getLogger("temporalio.workflow").info(EVENT.told, extra=extra)
    out, err = capsys.readouterr()
    line = json.loads(err)
    assert out == ""
    assert {key: line[key] for key in ("event", "order", "subject", "detail", "at")} == {
        "event": "stage_changed",
        "order": "order-1",
        "subject": "running",
        "detail": "start",
        "at": "2026-01-31T12:00:00Z",
    }
    assert "customer" not in line


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_library_logs_in_the_same_form_without_local_variables(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """O01: a traceback shows code, never the values that it ran with."""
    configure_logging("json" if log_format == "json" else "console")
    secret = "@".join(["someone", "example.com"])
    try:
        raise LookupError("boom")
    except LookupError:
        logging.getLogger("temporalio").exception("it failed")
    err = capsys.readouterr().err
    assert "it failed" in err
    assert "LookupError: boom" in err
    assert secret not in err


def test_unless_told_otherwise_lines_are_json_where_no_person_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """`auto`: stderr is no terminal here."""
    configure_logging("auto")
    logging.getLogger("temporalio").warning("count %s", 1)
    assert json.loads(capsys.readouterr().err)["event"] == "count 1"
