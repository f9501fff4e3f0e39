"""`orderflow validate` and `graph`."""

import json
import re
from pathlib import Path

import pytest

from orderflow.definitions import packaged_definitions
from tests.definitions import load, shipped
from tests.order_events import EXAMPLE
from tests.support.command_line import orderflow, run_process, unconfigure


def written(folder: Path, value: object, prefix: bytes = b"") -> Path:
    """A file that holds `value`."""
    path = folder / "definition.json"
    path.write_bytes(prefix + json.dumps(value).encode())
    return path


def test_validate_prints_name_version_and_fingerprint_of_the_packaged_definition() -> None:
    """Issue: `orderflow validate` prints `order 1.0.0 sha256:…`."""
    ran = orderflow("validate")
    assert ran.code == 0
    assert re.fullmatch(r"order 1\.0\.0 sha256:[0-9a-f]{64}\n", ran.out)


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_validate_takes_a_file_or_standard_input(prefix: bytes, tmp_path: Path) -> None:
    """W13: the same reader, with or without a byte order mark."""
    value = shipped({"$.version": "2.0.0"})
    path = written(tmp_path, value, prefix)
    expected = f"order 2.0.0 {load(value).fingerprint}\n"
    assert orderflow("validate", path).out == expected
    assert orderflow("validate", "-", stdin=path.read_bytes()).out == expected


def test_validate_as_json() -> None:
    """For programs."""
    told = orderflow("validate", "--json").json
    fingerprint = load(json.loads(packaged_definitions()[-1])).fingerprint
    assert (told["name"], told["version"], told["fingerprint"]) == ("order", "1.0.0", fingerprint)
    assert told["steps"] == ["validate", "reserve_inventory", "risk_check", "charge", "notify"]


def test_validate_tells_every_fault_by_its_path(tmp_path: Path) -> None:
    """Issue: several at once, each by JSON path and in one sentence; nothing on standard output."""
    faults = {"$.steps[1].activity": "reserve", "$.steps[3].depends_on[0]": "nobody", "$.steps[4].retry.attempts": 0}
    path = written(tmp_path, shipped(faults))
    ran = orderflow("validate", path)
    assert (ran.code, ran.out) == (2, "")
    for fault in faults:
        assert f"{path}: {fault}: " in ran.err
    problems = orderflow("validate", path, "--json").error["problems"]
    assert {problem["path"] for problem in problems} >= set(faults)


def test_graph_draws_mermaid_and_svg() -> None:
    """The same definition, for a README and for a browser."""
    assert "flowchart" in orderflow("graph").out
    assert orderflow("graph", "--format", "svg").out.rstrip().endswith("</svg>")
    told = orderflow("graph", "--json").json
    assert told["format"] == "mermaid"
    assert told["drawing"] == orderflow("graph").out


def installed(site: Path) -> None:
    """A team's package in the folder `site`, with one step that no other package has."""
    kind = """StepKind(
    activity="page_customer", provider="paging", operation="page", intent=lambda order: {"order_id": order.order_id}
)"""
    (site / "team_step.py").write_text(f"from orderflow.catalogue import StepKind\n\nPAGE = {kind}\n")
    metadata = site / "team_step-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: team-step\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[orderflow.steps]\npage = team_step:PAGE\n")


async def test_steps_of_installed_packages_are_known(tmp_path: Path) -> None:
    """A team's own step is checked like ours; without its package it is unknown."""
    site = tmp_path / "site"
    site.mkdir()
    installed(site)
    file = written(tmp_path, shipped({"$.version": "2.0.0", "$.steps[4].activity": "page_customer"}))
    refused = await run_process("validate", file)
    assert (refused.code, "$.steps[4].activity" in refused.err) == (2, True)
    ran = await run_process("validate", file, path=site)
    assert (ran.code, ran.err) == (0, "")
    assert (await run_process("graph", file, path=site)).code == 0


def test_a_definition_that_workers_may_not_publish_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the order starts, which a worker would refuse; none for a definition that this machine publishes."""
    unconfigure(tmp_path, monkeypatch)
    (tmp_path / "event.json").write_bytes(EXAMPLE)
    (tmp_path / "published").mkdir()
    file = written(tmp_path / "published", shipped({"$.version": "2.0.0"}))
    submit = ("submit", "event.json", "--direct", "--print", "--definition", file)
    ran = orderflow(*submit)
    assert (ran.code, len(ran.out.splitlines()), len(ran.err.splitlines())) == (0, 1, 1)
    assert "order 2.0.0 is neither packaged nor in ORDERFLOW_DEFINITIONS_DIR (not set here)" in ran.err
    monkeypatch.setenv("ORDERFLOW_DEFINITIONS_DIR", "published")
    assert orderflow(*submit).err == ""
    (tmp_path / "published" / "other.json").write_text("{}")
    broken = orderflow(*submit)
    assert (broken.code, "other.json" in broken.err) == (0, True)
