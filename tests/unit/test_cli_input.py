"""O01: whatever a verb is given, it answers with one line a problem and exit code 2, and starts nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.order_events import EXAMPLE
from tests.support.command_line import PATIENCE, PROGRAM, Ran, orderflow, run_process, unconfigure

ORDER = "order-0123456789abcdef0123456789abcdef"

FILES: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n\t ",
    "binary": bytes(range(256)),
    "long_number": b"1" * 5000,
    "long_number_inside": b'{"id": ' + b"9" * 5000 + b"}",
    "deep_arrays": b"[" * 100_000,
    "deep_objects": b'{"a":' * 50_000,
    "too_large": b'"' + b"x" * 1_000_000 + b'"',
    "bom_alone": b"\xef\xbb\xbf",
    "utf_16": EXAMPLE.decode().encode("utf-16"),
    "text": b"hello",
    "string": b'"hello"',
    "nan": b"NaN",
    "null": b"null",
    "key_twice": b'{"id": 1, "\\u0069d": 2}',
    "unclosed": EXAMPLE[:-3],
    "list": b"[" + EXAMPLE + b"]",
    "escape": b"\x1b[2J\x1b]0;title\x07",
}
VERBS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "validate": lambda file: ("validate", file),
    "graph": lambda file: ("graph", file),
    "submit": lambda file: ("submit", file, "--direct"),
    "submit --print": lambda file: ("submit", file, "--direct", "--print"),
    "submit --definition": lambda file: ("submit", "event.json", "--direct", "--definition", file),
    "approve --file": lambda file: ("approve", ORDER, "--file", file),
    "reject --file": lambda file: ("reject", ORDER, "--file", file),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in; Temporal is nowhere, so a verb that connects before it has looked exits with 3."""
    unconfigure(tmp_path, monkeypatch)
    Path("event.json").write_bytes(EXAMPLE)
    return tmp_path


def assert_refused(ran: Ran) -> None:
    """Bad input, told in lines for people that steer no terminal, and nothing begun."""
    assert ran.code == 2, ran
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert 1 <= len(lines) <= 60
    assert all(line.startswith("orderflow: ") and line.isprintable() and len(line) < 700 for line in lines), lines
    assert "Traceback" not in ran.err
    assert not Path(".orderflow").exists()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("content", FILES)
def test_a_file_that_cannot_be_used_is_told_by_its_name(verb: str, content: str) -> None:
    """O01, W13-W18: one reader for every verb."""
    Path("given.json").write_bytes(FILES[content])
    ran = orderflow(*VERBS[verb]("given.json"))
    assert_refused(ran)
    assert all("given.json: " in line for line in ran.err.splitlines())


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("content", ["empty", "binary", "deep_arrays", "too_large", "long_number"])
def test_standard_input_is_read_as_strictly_as_a_file(verb: str, content: str) -> None:
    """O01: `-` is a file too."""
    ran = orderflow(*VERBS[verb]("-"), stdin=FILES[content])
    assert_refused(ran)
    assert "standard input: " in ran.err


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("file", ["missing.json", ".", "", "event.json/x", "x" * 300, "a\nb", "a\0b", "nowhere/x"])
def test_a_path_that_is_no_file_is_told(verb: str, file: str) -> None:
    """O01: missing, a folder, impossible."""
    assert_refused(orderflow(*VERBS[verb](file)))


@pytest.mark.parametrize("verb", VERBS)
def test_with_json_the_error_is_json_too(verb: str) -> None:
    """O01: programs read the same answer on standard output."""
    Path("given.json").write_bytes(b"{")
    ran = orderflow(*VERBS[verb]("given.json"), "--json")
    assert ran.code == 2
    assert ran.error["exit_code"] == 2
    assert "given.json" in ran.error["message"]
    assert ran.err.startswith("orderflow: given.json: not JSON")


@given(raw=st.binary(max_size=200))
@settings(max_examples=60)
def test_no_bytes_at_all_lead_to_a_traceback(raw: bytes) -> None:
    """O01: generated, as a definition, as an event and as a decision."""
    for arguments in (("validate", "-"), ("submit", "-", "--direct"), ("approve", ORDER, "--file", "-")):
        ran = orderflow(*arguments, stdin=raw)
        assert ran.code == 2
        assert "Traceback" not in ran.err
        assert ran.err.isprintable() or ran.err.replace("\n", "").isprintable()


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    )
)
@settings(max_examples=60)
def test_no_json_value_at_all_leads_to_a_traceback(value: object) -> None:
    """O01: well-formed and meaningless."""
    raw = json.dumps(value).encode()
    for arguments in (("validate", "-"), ("submit", "-", "--direct"), ("reject", ORDER, "--file", "-")):
        assert orderflow(*arguments, stdin=raw).code == 2


LONG = "1" * 5000
USAGE: dict[str, tuple[str, ...]] = {
    "no such verb": ("frobnicate",),
    "no such option": ("validate", "--frobnicate"),
    "too many arguments": ("show", ORDER, ORDER),
    "option without value": ("list", "--stage"),
    "no such stage": ("list", "--stage", "sleeping"),
    "limit 0": ("list", "--limit", "0"),
    "limit no number": ("list", "--limit", "many"),
    "limit of 5000 digits": ("list", "--limit", LONG),
    "no such format": ("graph", "--format", "png"),
    "no order": ("show",),
    "source alone": ("show", "--source", "/shop"),
    "id alone": ("show", "--id", "1"),
    "order and event": ("show", ORDER, "--source", "/shop", "--id", "1"),
    "order of 5000 digits": ("show", LONG),
    "empty order": ("show", ""),
    "order with a line break": ("show", "order\n1"),
    "order in JSON": ("show", "{order_id:A}"),
    "lone surrogate": ("show", "--source", "/shop", "--id", "\ud800"),
    "nobody": ("approve", ORDER),
    "somebody twice": ("approve", ORDER, "--as", "alice", "--file", "event.json"),
    "somebody unknown": ("approve", ORDER, "--as", "alice"),
    "somebody elsewhere": ("reject", ORDER, "--as", "../alice"),
    "somebody of 5000 digits": ("reject", ORDER, "--as", LONG),
    "submit nothing": ("submit",),
    "submit a file and lines": ("submit", "event.json", "--jsonl", "event.json"),
    "submit in 65 lanes": ("submit", "--jsonl", "event.json", "--parallel", "65"),
    "submit without an attempt": ("submit", "event.json", "--attempts", "0"),
    "submit to no address": ("submit", "event.json", "--url", "ftp://127.0.0.1"),
    "submit in the clear": ("submit", "event.json", "--url", "http://orders.example.com"),
    "submit without a file": ("submit", "--direct"),
    "keys without a verb": ("keys",),
    "key without a role": ("keys", "new", "zoe"),
    "key without a name": ("keys", "new", "--role", "finance"),
    "key of an impossible name": ("keys", "new", "../zoe", "--role", "finance"),
    "key of an impossible role": ("keys", "new", "zoe", "--role", "Finance!"),
    "key of 5000 digits": ("keys", "new", LONG, "--role", "finance"),
    "fault without a kind": ("simulator", "fault", "--operation", "charge"),
    "no such fault": ("simulator", "fault", "--operation", "charge", "--kind", "earthquake"),
    "fault that never happens": ("simulator", "fault", "--operation", "charge", "--kind", "decline", "--times", "0"),
    "fault at no operation": ("simulator", "fault", "--operation", "Charge!", "--kind", "decline"),
    "delay of no length": ("simulator", "fault", "--operation", "charge", "--kind", "delay"),
    "delay of nothing sensible": ("simulator", "fault", "--operation", "charge", "--kind", "delay", "--seconds", "nan"),
    "decline that takes time": ("simulator", "fault", "--operation", "charge", "--kind", "decline", "--seconds", "1"),
    "port out of range": ("simulator", "--port", "70000"),
    "dev on no port": ("dev", "--port", "0"),
    "worker with arguments": ("worker", "now"),
    "doctor with arguments": ("doctor", "now"),
    "demo with arguments": ("demo", "now"),
}


@pytest.mark.parametrize("arguments", USAGE.values(), ids=USAGE)
def test_a_command_that_cannot_be_meant_is_one_line_and_exit_code_2(arguments: tuple[str, ...]) -> None:
    """Issue: bad input at each command says what, where and what to do; nothing is started."""
    ran = orderflow(*arguments)
    assert_refused(ran)
    assert len(ran.err.splitlines()) == 1


def test_a_stage_that_does_not_exist_is_answered_with_those_that_do() -> None:
    """Nobody knows the names by heart."""
    err = orderflow("list", "--stage", "sleeping").err
    assert "awaiting_approval" in err
    assert "failed_compensated" in err


def test_an_event_with_many_faults_gets_a_line_for_each() -> None:
    """One round to put all of them right."""
    event = json.loads(EXAMPLE) | {"specversion": "2.0", "colour": "red"}
    event["data"]["currency"] = "euro"
    ran = orderflow("submit", "-", "--direct", stdin=json.dumps(event).encode())
    assert_refused(ran)
    lines = ran.err.splitlines()
    for path in ("$.specversion", "$.colour", "$.data.currency"):
        assert sum(f"standard input: {path}: " in line for line in lines) == 1


def test_an_event_that_breaks_a_rule_is_refused_before_anything_is_started() -> None:
    """The total must be the sum of the items; the order would only fail."""
    event = json.loads(EXAMPLE)
    event["data"]["total_minor"] += 1
    ran = orderflow("submit", "-", "--direct", stdin=json.dumps(event).encode())
    assert_refused(ran)
    assert "$.data.total_minor" in ran.err


def test_the_values_of_a_refused_event_are_not_repeated() -> None:
    """O01: an event holds personal data, and a terminal's log is nobody's vault."""
    event = json.loads(EXAMPLE)
    event["data"]["customer"]["email"] = "canary at example"
    ran = orderflow("submit", "-", "--direct", "--json", stdin=json.dumps(event).encode())
    assert ran.code == 2
    assert "canary" not in ran.out + ran.err


@pytest.mark.parametrize("file", ["event.json", "-"])
def test_a_byte_order_mark_is_taken(file: str) -> None:
    """W13, T52: PowerShell 5 writes one; the command is complete although no Temporal is there."""
    raw = b"\xef\xbb\xbf" + EXAMPLE
    Path("event.json").write_bytes(raw)
    ran = orderflow("submit", file, "--direct", "--print", stdin=raw)
    assert ran.code == 0
    assert "workflow start" in ran.out


@pytest.mark.parametrize("payload", ["{order_id:A}", "{approval:eyJ.x.y}", "'{}'", "{", "5", '{"approval": 1}', "{}"])
def test_inline_json_that_cannot_be_read_names_the_shell_as_suspect(payload: str) -> None:
    """T52: it is not repaired, and the way out is told."""
    ran = orderflow("approve", ORDER, "--payload", payload)
    assert_refused(ran)
    assert "shells" in ran.err
    assert "--file" in ran.err


@pytest.mark.parametrize("verb", ["list", "show", "doctor", "submit", "approve"])
def test_temporal_that_is_not_there_is_exit_code_3(verb: str) -> None:
    """The one line says where it was looked for and what to start."""
    assert orderflow("keys", "new", "zoe", "--role", "finance").code == 0
    more = {"show": (ORDER,), "submit": ("event.json", "--direct"), "approve": (ORDER, "--as", "zoe")}
    ran = orderflow(verb, *more.get(verb, ()))
    assert ran.code == 3
    assert "temporal server start-dev" in ran.out + ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("setting", ["ORDERFLOW_PROVIDERS=carrier pigeon", "ORDERFLOW_STATE_DIRR=x"])
@pytest.mark.parametrize("verb", ["list", "worker", "dev", "simulator", "keys list", "simulator log"])
def test_a_setting_that_cannot_be_used_is_told_by_its_name(
    verb: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O01: configuration is input too."""
    name, _, value = setting.partition("=")
    monkeypatch.setenv(name, value)
    ran = orderflow(*verb.split())
    assert_refused(ran)
    assert name in ran.err


async def test_the_program_itself_ends_so_too() -> None:
    """O01: as a real process, whose exit code a script sees."""
    for arguments in (["validate", "missing.json"], ["submit", ".", "--direct"], ["frobnicate"], ["show", "a b"]):
        assert_refused(await run_process(*arguments))
    deep = await run_process("validate", "-", stdin=FILES["deep_arrays"])
    assert_refused(deep)
    assert (await run_process("list")).code == 3


def test_a_reader_that_has_gone_is_no_traceback() -> None:
    """`orderflow graph | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with os.fdopen(writing, "wb") as closed:
        ran = subprocess.run(
            [*PROGRAM, "graph"], stdout=closed, stderr=subprocess.PIPE, env=environment, timeout=PATIENCE, check=False
        )
    assert ran.stderr == b""
    assert ran.returncode == 141
