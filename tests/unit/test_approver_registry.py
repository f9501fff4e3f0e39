"""Who may approve: the configured set, or development keys, and those nowhere but beside a Temporal on this machine."""

import multiprocessing
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orderflow.approvers import (
    DEVELOPMENT_APPROVERS,
    approver_key,
    approver_registry,
    development_set,
    ensure_development_keys,
    key_file,
    publish_key,
)
from orderflow.domain.errors import InvalidInput, InvalidSettings
from orderflow.settings import Settings
from orderflow.signing import ApproverKey, KeyRegistry
from tests.approval_requests import claims

HERE = "localhost:7233"


def unheard(sentence: str) -> None:
    """A warning that is not expected."""
    raise AssertionError(sentence)


def settings_in(folder: Path, **others: Path) -> Settings:
    """Settings whose state lies below `folder`."""
    return Settings(state_dir=folder / "state", **others)  # type: ignore[arg-type]  # only folders are set here


def test_development_keys_are_made_on_first_use_with_a_warning(tmp_path: Path) -> None:
    """DESIGN section 10: alice and bob of finance, carol the operator."""
    settings, said = settings_in(tmp_path), list[str]()
    registry = approver_registry(settings, HERE, said.append)
    assert [(member.name, *member.roles) for member in registry.members] == list(DEVELOPMENT_APPROVERS)
    assert "development keys" in said[0]
    assert "alice (finance), bob (finance), carol (operator)" in said[0]
    for name, role in DEVELOPMENT_APPROVERS:
        verdict = registry.verify(approver_key(settings, name).sign(claims(approver=name)))
        assert (verdict.approver, verdict.roles) == (name, (role,))


def test_development_keys_stay_the_same(tmp_path: Path) -> None:
    """A restart must not make open approvals worthless; the warning comes each time."""
    settings, said = settings_in(tmp_path), list[str]()
    first, second = (approver_registry(settings, HERE, said.append) for _ in range(2))
    assert first.members == second.members
    assert len(said) == 2


@pytest.mark.parametrize("address", ["temporal:7233", "10.0.0.1:7233", "orders.example.com:443"])
def test_against_any_other_server_nothing_is_made_up(address: str, tmp_path: Path) -> None:
    """W10: the refusal says what to provide, and no file appears."""
    with pytest.raises(InvalidSettings, match=r"ORDERFLOW_APPROVERS_FILE.*orderflow keys new"):
        approver_registry(settings_in(tmp_path), address, unheard)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", [HERE, "temporal:7233"])
def test_a_configured_set_counts_alone(address: str, tmp_path: Path) -> None:
    """No development key beside it, wherever the server is."""
    dana = ApproverKey.new("dana", ["finance"])
    publish_key(tmp_path / "approvers.json", dana)
    settings = settings_in(tmp_path, approvers_file=tmp_path / "approvers.json")
    registry = approver_registry(settings, address, unheard)
    assert [member.name for member in registry.members] == ["dana"]
    assert not settings.state_dir.exists()


@pytest.mark.parametrize("content", [None, "", '{"keys": []}', "{}"], ids=str)
def test_a_configured_set_that_cannot_be_used_is_refused(content: str | None, tmp_path: Path) -> None:
    """W10: missing or empty is not "then nobody", and not "then the development keys" either."""
    path = tmp_path / "approvers.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidSettings, match=r"approvers\.json"):
        approver_registry(settings_in(tmp_path, approvers_file=path), HERE, unheard)


def test_keys_that_are_there_already_are_kept(tmp_path: Path) -> None:
    """A process that died half way left some of them; they are used, and the rest is made."""
    settings = settings_in(tmp_path)
    ApproverKey.new("bob", ["finance"]).save(key_file(settings.private_keys, "bob"))
    before = key_file(settings.private_keys, "bob").read_bytes()
    registry = approver_registry(settings, HERE, lambda _: None)
    assert key_file(settings.private_keys, "bob").read_bytes() == before
    assert registry.verify(approver_key(settings, "bob").sign(claims(approver="bob"))).genuine


@pytest.fixture
def threads_take_turns() -> Iterator[None]:
    """Otherwise the first thread is done before the second begins."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_take_turns")
def test_of_many_processes_and_threads_that_start_at_once_one_makes_the_keys(tmp_path: Path) -> None:
    """A worker, a second one and a command line, started together on a fresh folder."""
    with multiprocessing.get_context("spawn").Pool(3) as processes, ThreadPoolExecutor(8) as threads:
        processes.map(int, range(30))  # they are up
        for attempt in range(5):
            settings = settings_in(tmp_path / str(attempt))
            where = (settings.private_keys, development_set(settings))
            elsewhere = processes.starmap_async(ensure_development_keys, [where] * 6)
            here = [threads.submit(approver_registry, settings, HERE, lambda _: None) for _ in range(16)]
            elsewhere.get(timeout=60)
            (made,) = {started.result(timeout=60).as_jwks() for started in here}
            registry = KeyRegistry.from_jwks(made, "made")
            assert [member.name for member in registry.members] == ["alice", "bob", "carol"]
            assert registry.verify(approver_key(settings, "carol").sign(claims(approver="carol"))).genuine


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_development_keys_are_private_too(tmp_path: Path) -> None:
    """Whoever reads them can approve."""
    settings = settings_in(tmp_path)
    approver_registry(settings, HERE, lambda _: None)
    assert {stat.S_IMODE(path.stat().st_mode) for path in settings.private_keys.iterdir()} == {0o600}


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """One line that says which variable moves it."""
    (tmp_path / "state").write_text("a file")
    with pytest.raises(InvalidSettings, match="ORDERFLOW_STATE_DIR"):
        approver_registry(settings_in(tmp_path), HERE, unheard)


def test_published_keys_add_up(tmp_path: Path) -> None:
    """One JWK set for all approvers; the same key twice is refused."""
    path = tmp_path / "new" / "approvers.json"
    dana, erin = (ApproverKey.new(name, ["finance"]) for name in ("dana", "erin"))
    publish_key(path, dana)
    publish_key(path, erin)
    with pytest.raises(InvalidInput, match="already"):
        publish_key(path, dana)
    registry = approver_registry(settings_in(tmp_path, approvers_file=path), HERE, unheard)
    assert [member.name for member in registry.members] == ["dana", "erin"]


@pytest.mark.parametrize("name", ["../alice", "a/b", "a\\b", "..", "/etc/passwd", ""], ids=repr)
def test_a_name_never_leads_out_of_the_folder_of_keys(name: str, tmp_path: Path) -> None:
    """`approve --as` takes any text."""
    with pytest.raises(InvalidInput):
        approver_key(settings_in(tmp_path), name)
