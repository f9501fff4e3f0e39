"""`orderflow callers list`, `check` and `new`."""

import json
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orderflow.callers import CallerRegistry
from orderflow.webhooks import read_secret, signed_headers, verify
from tests.support.command_line import orderflow, unconfigure

DEVELOPMENT = Path(".orderflow") / "callers"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in, with nothing configured."""
    unconfigure(tmp_path, monkeypatch)
    monkeypatch.delenv("TEMPORAL_ADDRESS")
    return tmp_path


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a callers file that does not exist yet."""
    monkeypatch.setenv("ORDERFLOW_CALLERS_FILE", "door/callers.json")
    return Path("door")


def write(folder: Path, *callers: object) -> Path:
    """Write a callers file."""
    file = folder / "callers.json"
    file.write_text(json.dumps({"callers": callers}))
    return file


def signer(file: Path, secret: str) -> str:
    """Who a delivery is from, for those who read `file`."""
    registry, now = CallerRegistry(file, lambda _: None), datetime.now(UTC)
    headers = signed_headers(read_secret(secret), "msg_1", b"{}", now)
    raw = [(name.encode(), text.encode()) for name, text in headers.items()]
    return verify(raw, b"{}", registry.keys, now).caller


@pytest.mark.parametrize("kind", [[], ["--ed25519"]])
def test_what_new_shows_is_what_the_file_needs(kind: list[str], configured: Path) -> None:
    """W03: written as shown, the new caller can send, and its token names it."""
    told = orderflow("callers", "new", "mill", "--source", "/mill", *kind, "--json").json
    assert told["known"] is False
    file = write(configured, told["fragment"])
    assert orderflow("callers", "check", file, "--json").json == {
        "file": str(file),
        "callers": ["mill"],
        "secrets": True,
    }
    secret, token = (Path(path) for path in told["written"])
    assert signer(file, secret.read_text()) == "mill"
    owner = CallerRegistry(file, lambda _: None).by_token(token.read_text().strip())
    assert owner is not None
    assert owner.sources == ("/mill",)


def test_a_secret_is_changed_as_the_page_says(configured: Path) -> None:
    """W03: docs/callers.md, both secrets count for a while."""
    first = orderflow("callers", "new", "mill", "--json").json
    write(configured, first["fragment"])
    second = orderflow("callers", "new", "mill", "--no-token", "--json").json
    assert (second["known"], second["fragment"]) == (True, {"secrets": [{"file": "mill-2.whsec"}]})
    both = [*first["fragment"]["secrets"], *second["fragment"]["secrets"]]
    file = write(configured, first["fragment"] | {"secrets": both})
    for told in (first, second):
        assert signer(file, Path(told["written"][0]).read_text()) == "mill"


def test_a_secret_is_shown_to_nobody(configured: Path) -> None:
    """O01: neither printed nor readable for others, and never overwritten."""
    seen = ""
    for options in ([], ["--json"], ["--ed25519"]):
        ran = orderflow("callers", "new", "mill", *options)
        assert ran.code == 0
        seen += ran.out + ran.err
    written = sorted(configured.iterdir())
    assert len(written) == 6
    for path in written:
        assert path.read_text().strip()[6:20] not in seen
        if sys.platform != "win32":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("arguments", [["../mill"], ["Mill"], ["mill", "--source", "not a uri"]])
def test_what_could_not_stand_in_the_file_is_not_made(arguments: list[str], configured: Path) -> None:
    """W10: nothing is written before it is known to be right."""
    ran = orderflow("callers", "new", *arguments, "--json")
    assert ran.code == 2
    assert ran.error["problems"][0]["path"].startswith("$.callers[0].")
    assert not configured.exists()


def test_secrets_may_lie_elsewhere(configured: Path, folder: Path) -> None:
    """The file names them by their whole path then."""
    told = orderflow("callers", "new", "mill", "--no-token", "--out", "vault", "--json").json
    assert told["fragment"]["secrets"] == [{"file": str(folder / "vault" / "mill.whsec")}]
    configured.mkdir()
    assert orderflow("callers", "check", write(configured, told["fragment"])).code == 0


def test_unconfigured_the_development_caller_is_made_first() -> None:
    """A file without it would look complete to the door."""
    orderflow("callers", "new", "mill")
    [shop] = orderflow("callers", "list", "--json").json
    assert shop["name"] == "shop"
    assert signer(DEVELOPMENT / "callers.json", (DEVELOPMENT / "shop.whsec").read_text()) == "shop"
    assert sorted(path.name for path in DEVELOPMENT.iterdir() if path.suffix != ".lock") == [
        "callers.json", "mill.token", "mill.whsec", "shop.token", "shop.whsec"
    ]  # fmt: skip


def caller(**changes: object) -> dict[str, Any]:
    """What stands in a file for a caller."""
    return {
        "name": "mill",
        "secrets": [{"file": "mill.whsec", "until": "2026-03-01T00:00:00+01:00"}, {"env": "MILL_SECRET"}],
        "public_keys": [{"key": "whpk_5wMdvYN67QDxJnxe1GmA0cJ1U/RKpdrPE8fIzFg3Wcg="}],
        "sources": ["/mill"],
        "types": ["dev.orderflow.order.placed.v1"],
        "limits": {"KWD": 1_234, "JPY": 500},
        **changes,
    }


def test_list_says_who_may_send_what_until_when(configured: Path) -> None:
    """W03, M01: ends in UTC, amounts as people write them; without looking at any secret."""
    configured.mkdir()
    write(configured, caller())
    ran = orderflow("callers", "list")
    assert ran.code == 0
    for words in ("mill", "file mill.whsec until 2026-02-28 23:00:00Z", "env MILL_SECRET", "KWD 1.234", "JPY 500"):
        assert words in ran.out
    [listed] = orderflow("callers", "list", "--json").json
    assert listed["secrets"][0] == {"file": "mill.whsec", "until": "2026-03-01T00:00:00+01:00"}
    assert listed["limits"] == {"KWD": 1_234, "JPY": 500}


def test_list_without_a_file_says_what_to_do() -> None:
    """W10."""
    assert "orderflow callers new" in orderflow("callers", "list").out
    assert orderflow("callers", "list", "--json").json == []
    assert not DEVELOPMENT.exists()


@pytest.mark.parametrize("verb", [["list"], ["new", "mill"]])
def test_with_temporal_elsewhere_the_file_has_to_be_named(verb: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """W10."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example.com:7233")
    ran = orderflow("callers", *verb)
    assert (ran.code, "ORDERFLOW_CALLERS_FILE" in ran.err) == (2, True)


def test_check_tells_every_fault_on_a_line_of_its_own(folder: Path) -> None:
    """W10: exit code 2, JSON paths, the file's name once."""
    file = write(folder, caller(name="Mill", limits={"usd": 1}))
    ran = orderflow("callers", "check", file)
    assert ran.code == 2
    lines = ran.err.splitlines()
    assert [line.split(": ")[2] for line in lines] == ["$.callers[0].name", "$.callers[0].limits.usd"]
    problems = orderflow("callers", "check", file, "--json").error["problems"]
    assert [problem["path"] for problem in problems] == ["$.callers[0].name", "$.callers[0].limits.usd"]


def test_check_looks_for_the_secrets_unless_they_are_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W10."""
    monkeypatch.delenv("MILL_SECRET", raising=False)
    file = write(folder, caller())
    paths = [problem["path"] for problem in orderflow("callers", "check", file, "--json").error["problems"]]
    assert paths == ["$.callers[0].secrets[0].file", "$.callers[0].secrets[1].env"]
    assert orderflow("callers", "check", file, "--without-secrets").code == 0
    assert orderflow("callers", "check", "-", stdin=file.read_bytes()).code == 0
