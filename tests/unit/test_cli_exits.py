"""How a command ends: exit codes that scripts rely on, one line for a person, JSON for a program."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import orderflow as package
from orderflow.cli import definitions
from orderflow.cli.exits import ExitCode, InvalidFile, NotReachable, Refused, exit_code, lines
from orderflow.domain.errors import (
    InvalidDefinition,
    InvalidInput,
    InvalidSettings,
    LedgerUnavailable,
    OrderflowError,
    Problem,
)
from tests.support.command_line import PATIENCE, PROGRAM, orderflow, unconfigure

VERBS = ["demo", "dev", "worker", "submit", "list", "show", "approve", "reject", "validate", "graph", "doctor",
         "db upgrade", "db current", "keys new", "keys list", "simulator", "simulator log", "simulator fault",
         "simulator reset"]  # fmt: skip


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unconfigure(tmp_path, monkeypatch)


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `validate` meet this error."""

    def fail() -> None:
        raise error

    monkeypatch.setattr(definitions, "load_catalogue", fail)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("no"), 2),
        (InvalidSettings("no"), 2),
        (InvalidFile("a.json", InvalidInput("no")), 2),
        (Refused("no"), 1),
        (OrderflowError("no"), 1),
        (NotReachable("no"), 3),
        (LedgerUnavailable("no"), 3),
        (TypeError("no"), 70),
        (OSError("no"), 70),
        (OSError(errno.ENOSPC, "No space left on device"), 3),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: Exception, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 done, 1 refused, 2 bad input, 3 not reachable; a bug is none of these."""
    assert exit_code(error) == code
    failing(monkeypatch, error)
    ran = orderflow("validate")
    assert ran.code == code
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1
    as_json = orderflow("validate", "--json")
    assert (as_json.code, as_json.error["exit_code"]) == (code, code)


def test_a_bug_says_that_it_is_one_and_shows_where_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """O01: no traceback ever, except for whoever wants it."""
    failing(monkeypatch, TypeError("not what I\nexpected"))
    ran = orderflow("validate")
    assert (
        ran.err == "orderflow: a bug in orderflow: TypeError: not what I expected (`orderflow --debug …` shows where)\n"
    )
    assert "Traceback" in orderflow("--debug", "validate").err


def test_ctrl_c_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever pressed it knows; the exit code is the shell's own."""
    failing(monkeypatch, KeyboardInterrupt())
    ran = orderflow("validate")
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_every_problem_of_a_file_is_a_line() -> None:
    """Several faults are put right in one round."""
    problems = (Problem("$.a", "is bad"), Problem("", "is worse"))
    error = InvalidDefinition("summary", problems=problems)
    assert list(lines(error)) == ["summary"]
    assert list(lines(InvalidFile("f.json", error))) == ["f.json: $.a: is bad", "f.json: is worse"]


def test_a_very_long_message_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line stays one line."""
    failing(monkeypatch, InvalidInput("x" * 10_000))
    assert len(orderflow("validate").err) < 700


def test_facts_of_a_refusal_are_members_of_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script need not read sentences."""
    failing(monkeypatch, Refused("already closed: completed", stage="completed"))
    assert orderflow("validate", "--json").error["stage"] == "completed"


def test_without_a_verb_the_help_is_shown() -> None:
    """Whoever types the bare name wants to know what there is; a script that does has a mistake."""
    ran = orderflow()
    assert ran.code == ExitCode.BAD_INPUT
    for verb in ("submit", "list", "show", "approve", "reject", "keys", "validate", "graph", "worker", "simulator"):
        assert f"  {verb} " in ran.out


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_is_no_error(verb: str) -> None:
    """And it fits a narrow screen."""
    ran = orderflow(*verb.split(), "--help")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_speaks_json(verb: str) -> None:
    """DESIGN section 10."""
    assert "--json" in orderflow(*verb.split(), "--help").out


def test_the_version_is_told() -> None:
    """For bug reports."""
    assert orderflow("--version").out == f"{package.__version__}\n"


def piped(arguments: str, shell: str) -> subprocess.CompletedProcess[str]:
    """Run a command from a POSIX shell, as `shell` says with `$O` in its place."""
    return subprocess.run(
        ["bash", "-c", shell.replace("$O", f'"$@" {arguments}'), "orderflow", *PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture
def long_log() -> None:
    """A simulator's log that no pipe's buffer can hold."""
    Path(".orderflow").mkdir()
    at = "2026-01-01T00:00:00+00:00"
    injected = {"operation": "charge", "kind": "decline", "times": 1}
    faults = [{"seq": seq, "at": at, "kind": "fault", "injected": injected} for seq in range(1, 2001)]
    text = "".join(json.dumps(fault) + "\n" for fault in faults)
    Path(".orderflow/simulator.jsonl").write_text(text, encoding="utf-8")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", ["validate", "simulator log", "simulator log --json"])
@pytest.mark.usefixtures("long_log")
def test_a_full_disk_is_one_line_and_no_bug(arguments: str) -> None:
    """Whether the output is written at its end or on the way."""
    ran = piped(arguments, "$O >/dev/full")
    assert ran.returncode == 3
    assert ran.stderr == (
        "orderflow: the output cannot be written (No space left on device); make room, or write elsewhere\n"
    )


@pytest.mark.parametrize("arguments", ["simulator log", "simulator log --json"])
@pytest.mark.usefixtures("long_log")
def test_a_reader_that_goes_away_is_no_error(arguments: str) -> None:
    """`| head -1`: silence, and the exit code that a shell gives to any program whose reader has gone."""
    ran = piped(arguments, "set -o pipefail; $O | head -1")
    assert (ran.returncode, ran.stderr) == (141, "")
    assert len(ran.stdout.splitlines()) == 1


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_as_good_as_none(closing: str) -> None:
    """The verb does its work; nobody is told."""
    ran = piped("validate", f"$O {closing}")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_closed_standard_input_is_an_empty_one() -> None:
    """Bad input, in one line."""
    ran = piped("validate -", "$O <&-")
    assert ran.returncode == 2
    assert "standard input: is empty" in ran.stderr
