"""`orderflow demo`: what it prints of the chains, and when it exits with 0."""

import json
from pathlib import Path

import pytest

from orderflow import demo
from orderflow.demo import Chain
from tests.support.command_line import orderflow, unconfigure

HOLDS = Chain("one reservation", ["simulator log: 1 reservation"])
BROKEN = Chain("one charge", ["NOT SO: 1 charge"], holds=False)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unconfigure(tmp_path, monkeypatch)


def proving(monkeypatch: pytest.MonkeyPatch, *chains: Chain) -> None:
    """Let the demo come to these chains; none is a wait without end."""

    async def run_demo(tell: demo.Tell) -> list[Chain]:
        tell("a worker was killed")
        if not chains:
            raise TimeoutError
        return list(chains)

    monkeypatch.setattr(demo, "run_demo", run_demo)


@pytest.mark.parametrize(("chains", "code"), [((HOLDS,), 0), ((HOLDS, BROKEN), 1), ((BROKEN,), 1)])
def test_exit_code_0_means_that_every_chain_holds(
    chains: tuple[Chain, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue: exit code 0 only when all hold; the evidence is shown either way."""
    proving(monkeypatch, *chains)
    ran = orderflow("demo")
    assert ran.code == code
    for chain in chains:
        assert chain.claim in ran.out
        assert chain.evidence[0] in ran.out


def test_as_json_the_progress_is_out_of_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is one document."""
    proving(monkeypatch, HOLDS, BROKEN)
    ran = orderflow("demo", "--json")
    assert [chain["holds"] for chain in json.loads(ran.out)] == [True, False]
    assert "a worker was killed" in ran.err


def test_a_demo_that_waits_too_long_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no bug."""
    proving(monkeypatch)
    ran = orderflow("demo")
    assert (ran.code, len(ran.err.splitlines())) == (3, 1)
