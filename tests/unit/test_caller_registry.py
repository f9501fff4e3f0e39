"""The callers in force: read at the start, again when something changed, and a development caller on loopback only."""

import json
import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from orderflow.callers import CallerRegistry, caller_registry, sender_secret
from orderflow.callers.development import development_folder, ensure_development_caller
from orderflow.domain.callers import permit
from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.domain.errors import InvalidSettings
from orderflow.settings import Settings
from orderflow.webhooks import SigningSecret, new_key_pair, new_secret, signed_headers, verify
from tests.order_events import accepted
from tests.support.webhooks import NOW, OTHER_SECRET, SECRET, headers_of, said

HERE, ELSEWHERE = "localhost:7233", "temporal.example.com:7233"
TOKEN = "t" * 24


class Door:
    """A callers file in a folder, and a registry over it whose clocks a test moves."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "callers.json"
        self.said: list[str] = []
        self.steady = 0.0
        self.now = NOW
        (folder / "shop.whsec").write_text(f"{SECRET}\n")
        (folder / "shop.token").write_text(f"{TOKEN}\n")

    def write(self, *callers: dict[str, object]) -> None:
        """Write a file of these callers."""
        self.file.write_text(json.dumps({"callers": callers}))

    def open(self) -> CallerRegistry:
        """Read it for the first time."""
        return CallerRegistry(self.file, self.said.append, steady=lambda: self.steady, now=lambda: self.now)

    def later(self, seconds: float = 1.0) -> None:
        """Let time go by."""
        self.steady += seconds
        self.now += timedelta(seconds=seconds)


def caller(name: str = "shop", **changes: object) -> dict[str, object]:
    """What stands in the file for a caller."""
    return {
        "name": name,
        "secrets": [{"file": f"{name}.whsec"}],
        "sources": [f"/{name}"],
        "types": ["dev.orderflow.order.placed.v1"],
        "limits": {"EUR": 5_000},
        **changes,
    }


@pytest.fixture
def door(tmp_path: Path) -> Door:
    """A file with the caller `shop`."""
    made = Door(tmp_path)
    made.write(caller())
    return made


def takes(registry: CallerRegistry, secret: str) -> bool:
    """Whether what `secret` signs now is genuine."""
    return not isinstance(said(headers_of(b"{}", secret), keys=registry.keys), Cause)


def fault_of(registry: CallerRegistry) -> str:
    """What has to be put right; empty for nothing."""
    return registry.fault or ""


def faults(door: Door) -> list[str]:
    """Where a file that cannot be used is wrong."""
    with pytest.raises(InvalidSettings) as refused:
        door.open()
    return [problem.path for problem in refused.value.problems]


def test_secrets_come_from_files_beside_the_callers_file_and_from_the_environment(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W03: several of one caller, and a public key; each counts."""
    private, public = new_key_pair()
    monkeypatch.setenv("MILL_SECRET", OTHER_SECRET)
    door.write(caller(secrets=[{"file": "shop.whsec"}, {"env": "MILL_SECRET"}], public_keys=[{"key": public}]))
    registry = door.open()
    assert [takes(registry, secret) for secret in (SECRET, OTHER_SECRET, private, new_secret())] == [True] * 3 + [False]
    assert fault_of(registry) == ""
    assert door.said == []


@pytest.mark.parametrize("content", ["", " ", "\n", "whsec_", "whsec_c2hvcnQ=", "secret", "\ufffd", None])
def test_a_secret_that_is_none_refuses_the_start(content: str | None, door: Door) -> None:
    """W10: empty, white space, too short, not there."""
    path = door.file.parent / "shop.whsec"
    path.unlink()
    if content is not None:
        path.write_text(content, "utf-8")
    assert faults(door) == [f"$.callers[0].secrets[0]{'' if content is not None else '.file'}"]


@pytest.mark.parametrize("content", ["", "  ", None])
def test_a_variable_without_a_secret_refuses_the_start(
    content: str | None, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W10: set to nothing, to blanks, or not set."""
    monkeypatch.delenv("SHOP_SECRET", raising=False)
    if content is not None:
        monkeypatch.setenv("SHOP_SECRET", content)
    door.write(caller(secrets=[{"env": "SHOP_SECRET"}]))
    assert faults(door) == [f"$.callers[0].secrets[0]{'' if content is not None else '.env'}"]


def test_a_key_stands_for_one_caller_only(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """W03, W11: found by value, however it is written and wherever it comes from."""
    public = new_key_pair()[1]
    monkeypatch.setenv("MILL_SECRET", f"  {SECRET}  ")
    monkeypatch.setenv("MILL_TOKEN", f"{TOKEN}\r\n")
    door.write(
        caller(public_keys=[{"key": public}], tokens=[{"file": "shop.token"}]),
        caller("mill", secrets=[{"env": "MILL_SECRET"}], public_keys=[{"key": public}], tokens=[{"env": "MILL_TOKEN"}]),
    )
    assert faults(door) == [f"$.callers[1].{at}" for at in ("secrets[0]", "public_keys[0].key", "tokens[0]")]


@pytest.mark.parametrize("token", ["", "short", "t" * 23, "t" * 257, "t" * 24 + " t", "é" * 24])
def test_a_token_that_could_be_guessed_or_not_be_sent_is_none(token: str, door: Door) -> None:
    """W10: 24 characters of what a header may hold."""
    (door.file.parent / "shop.token").write_text(token, "utf-8")
    door.write(caller(tokens=[{"file": "shop.token"}]))
    assert faults(door) == ["$.callers[0].tokens[0]"]


def test_too_many_keys_are_refused_before_they_make_forgeries_costly(door: Door) -> None:
    """W03: 16 of Ed25519 at most, in all."""
    keys = [{"key": new_key_pair()[1]} for _ in range(17)]
    names = ("a", "b", "c")
    door.write(*(caller(n, secrets=[], public_keys=keys[at * 6 : at * 6 + 6]) for at, n in enumerate(names)))
    assert faults(door) == ["$.callers"]
    door.write(*(caller(n, secrets=[], public_keys=keys[at * 5 : at * 5 + 5]) for at, n in enumerate(names)))
    assert len(door.open().keys) == 15


def test_the_owner_of_a_token_is_known_until_its_end(door: Door) -> None:
    """A bearer token is compared whole; any text may be asked about."""
    end = (NOW + timedelta(seconds=5)).isoformat()
    door.write(caller(tokens=[{"file": "shop.token", "until": end}]))
    registry = door.open()
    owner = registry.by_token(TOKEN)
    assert owner is not None
    assert owner.name == "shop"
    for other in ("", TOKEN[:-1], f"{TOKEN}t", TOKEN.upper(), f"{TOKEN}\n", "é", "\udc80", "\x00", SECRET):
        assert registry.by_token(other) is None
    door.later(5)
    assert registry.by_token(TOKEN) is None


def test_new_content_counts_within_a_second_and_files_are_not_read_more_often(door: Door) -> None:
    """W03: a secret is changed without a restart."""
    registry = door.open()
    (door.file.parent / "shop.whsec").write_text(OTHER_SECRET)
    door.later(0.9)
    assert (takes(registry, SECRET), takes(registry, OTHER_SECRET)) == (True, False)
    door.later(0.1)
    assert (takes(registry, SECRET), takes(registry, OTHER_SECRET)) == (False, True)
    door.write(caller(limits={"USD": 7}))
    door.later()
    assert dict(registry.caller("shop").limits) == {"USD": 7}
    assert door.said == []


def test_content_that_changed_behind_the_same_size_and_time_is_seen(door: Door) -> None:
    """W03: what a mounted volume or `cp -p` leaves behind."""
    path = door.file.parent / "shop.whsec"
    registry, before = door.open(), path.stat()
    path.write_text(f"{OTHER_SECRET}\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    door.later()
    assert takes(registry, OTHER_SECRET)


@pytest.mark.parametrize("content", ["", "{", '{"callers": []}', None, "\x00" * 2_000_000])
def test_content_that_cannot_be_used_changes_nothing_and_is_told_once(content: str | None, door: Door) -> None:
    """W10: half a file, no file, too long a file."""
    registry, good = door.open(), door.file.read_text()
    door.file.unlink() if content is None else door.file.write_text(content)
    for _ in range(3):
        door.later()
        assert takes(registry, SECRET)
    assert str(door.file) in fault_of(registry)
    assert door.said == [fault_of(registry)]
    door.file.write_text(good)
    door.later()
    assert fault_of(registry) == ""
    assert len(door.said) == 1


def test_a_secret_that_a_new_file_misses_may_come_later(door: Door) -> None:
    """W03: first the file was changed, then the secret was brought; both in two steps, and nothing is lost."""
    registry = door.open()
    door.write(caller(), caller("mill"))
    door.later()
    assert "$.callers[1].secrets[0].file" in fault_of(registry)
    assert takes(registry, SECRET)
    (door.file.parent / "mill.whsec").write_text(OTHER_SECRET)
    door.later()
    assert fault_of(registry) == ""
    assert takes(registry, OTHER_SECRET)


def test_a_caller_whose_secrets_have_ended_is_told_and_stops_nobody_else(door: Door) -> None:
    """W03: at the start, and while the door runs."""
    end = (NOW + timedelta(seconds=10)).isoformat()
    (door.file.parent / "mill.whsec").write_text(OTHER_SECRET)
    door.write(caller(), caller("mill", secrets=[{"file": "mill.whsec", "until": end}]))
    registry = door.open()
    assert fault_of(registry) == ""
    door.later(10)
    for _ in range(3):
        assert "mill" in fault_of(registry)
        door.later()
    assert door.said == [fault_of(registry)]
    assert takes(registry, SECRET)
    again = door.open()
    assert again.fault == fault_of(registry)
    assert len(door.said) == 2


def test_when_every_secret_has_ended_there_is_no_start(door: Door) -> None:
    """W10: but a running door goes on without callers, for that may be what was wanted."""
    registry = door.open()
    door.write(caller(secrets=[{"file": "shop.whsec", "until": NOW.isoformat()}]))
    door.later()
    assert not takes(registry, SECRET)
    assert fault_of(registry)
    with pytest.raises(InvalidSettings, match=r"has ended; .*orderflow callers new"):
        door.open()


def test_a_caller_that_was_taken_out_meanwhile_is_refused_and_no_bug(door: Door) -> None:
    """W02: between its signature and its permissions the file may change."""
    (door.file.parent / "mill.whsec").write_text(OTHER_SECRET)
    door.write(caller(), caller("mill"))
    registry = door.open()
    signed = verify(headers_of(b"{}", OTHER_SECRET), b"{}", registry.keys, NOW)
    door.write(caller())
    door.later()
    with pytest.raises(DeliveryRefused) as refused:
        registry.caller(signed.caller)
    assert refused.value.cause is Cause.SIGNATURE_INVALID


@given(content=st.binary(max_size=300))
def test_any_bytes_for_a_secret_are_used_or_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """W10: a file of secrets may hold anything."""
    door = Door(tmp_path_factory.mktemp("door"))
    door.write(caller(tokens=[{"file": "shop.token"}]))
    (door.file.parent / "shop.token").write_bytes(content)
    (door.file.parent / "shop.whsec").write_bytes(content)
    with suppress(InvalidSettings):
        door.open()


def unconfigured(folder: Path, **others: object) -> Settings:
    """Settings whose state lies below `folder`."""
    return Settings(state_dir=folder / "state", **others)  # type: ignore[arg-type]  # each of its own type


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings from the environment of whoever runs the tests."""
    for name in ("CALLERS_FILE", "CALLER_SECRET", "INGRESS_URL", "STATE_DIR"):
        monkeypatch.delenv(f"ORDERFLOW_{name}", raising=False)


@pytest.mark.usefixtures("unset")
def test_unconfigured_on_this_machine_the_shop_may_send_the_example(tmp_path: Path) -> None:
    """DESIGN section 8: a development caller is made, with a warning; what `submit` signs with is its secret."""
    settings, told = unconfigured(tmp_path), list[str]()
    registry = caller_registry(settings, HERE, told.append)
    assert len(told) == 1
    assert "development caller" in told[0]
    now = datetime.now(UTC)
    headers = signed_headers(sender_secret(settings), "msg_1", b"{}", now)
    raw = [(name.encode(), text.encode()) for name, text in headers.items()]
    signed = verify(raw, b"{}", registry.keys, now)
    permit(registry.caller(signed.caller), accepted())
    token = (development_folder(settings) / "shop.token").read_text().strip()
    owner = registry.by_token(token)
    assert owner is not None
    assert owner.name == signed.caller == "shop"


@pytest.mark.usefixtures("unset")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_nobody_else_can_read_what_was_made(tmp_path: Path) -> None:
    """W10: the folder and each file."""
    settings = unconfigured(tmp_path)
    caller_registry(settings, HERE, lambda _: None)
    folder = development_folder(settings)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.suffix != ".lock"}
    assert modes == dict.fromkeys(("callers.json", "shop.whsec", "shop.token"), 0o600)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.usefixtures("unset")
def test_of_several_that_start_at_once_one_makes_the_development_caller(tmp_path: Path) -> None:
    """W03: a restart, or a second process, must not make the secret of the first worthless."""
    with ThreadPoolExecutor(8) as threads:
        for attempt in range(10):
            settings, together = unconfigured(tmp_path / str(attempt)), Barrier(8)

            def start(settings: Settings = settings, together: Barrier = together) -> str:
                together.wait()
                [known] = caller_registry(settings, HERE, lambda _: None).keys
                return known.fingerprint

            prints = [each.result() for each in [threads.submit(start) for _ in range(8)]]
            assert len({*prints}) == 1


@pytest.mark.usefixtures("unset")
def test_one_that_was_killed_in_the_middle_is_made_anew(tmp_path: Path) -> None:
    """W06: `callers.json` comes last, so without it nothing counts."""
    folder = tmp_path / "callers"
    folder.mkdir()
    for name in ("shop.whsec", "shop.token", "callers.new"):
        (folder / name).write_text("half of i")
    ensure_development_caller(folder)
    assert CallerRegistry(folder / "callers.json", lambda _: None).fault is None


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("address", [ELSEWHERE, "10.0.0.1:7233", "temporal:7233"])
def test_against_any_other_server_nothing_is_made_up(address: str, tmp_path: Path) -> None:
    """W10: the setting is named, and how to make a secret."""
    with pytest.raises(InvalidSettings, match=r"ORDERFLOW_CALLERS_FILE is not set.*orderflow callers new"):
        caller_registry(unconfigured(tmp_path), address, lambda _: None)
    assert not (tmp_path / "state").exists()


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("address", [HERE, ELSEWHERE])
def test_a_configured_file_is_used_wherever_temporal_is(address: str, door: Door, tmp_path: Path) -> None:
    """W10: and no development caller beside it."""
    registry = caller_registry(unconfigured(tmp_path, callers_file=door.file), address, door.said.append)
    assert takes(registry, SECRET)
    assert door.said == []
    assert not (tmp_path / "state").exists()


@pytest.mark.usefixtures("unset")
def test_a_configured_file_that_is_not_there_refuses_the_start(tmp_path: Path) -> None:
    """W10: never the development caller instead."""
    with pytest.raises(InvalidSettings, match="ORDERFLOW_CALLERS_FILE"):
        caller_registry(unconfigured(tmp_path, callers_file=tmp_path / "none.json"), HERE, lambda _: None)


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("text", [" ", "whsec_", "whpk_5wMdvYN67QDxJnxe1GmA0cJ1U/RKpdrPE8fIzFg3Wcg=", "secret"])
def test_a_senders_secret_that_is_none_is_named_and_not_repeated(text: str, tmp_path: Path) -> None:
    """W10: the setting, and what one looks like."""
    with pytest.raises(InvalidSettings, match=r"^ORDERFLOW_CALLER_SECRET: ") as refused:
        sender_secret(unconfigured(tmp_path, caller_secret=SecretStr(text)))
    assert "5wMdvYN67" not in str(refused.value)


@pytest.mark.usefixtures("unset")
def test_the_development_secret_is_for_the_door_on_this_machine_only(door: Door, tmp_path: Path) -> None:
    """W10: for any other door the sender has to have its own, and before `dev` ran there is none."""
    with pytest.raises(InvalidSettings, match="orderflow dev"):
        sender_secret(unconfigured(tmp_path))
    caller_registry(unconfigured(tmp_path), HERE, lambda _: None)
    assert isinstance(sender_secret(unconfigured(tmp_path)), SigningSecret)
    for others in ({"ingress_url": "https://orders.example.com"}, {"callers_file": door.file}):
        with pytest.raises(InvalidSettings, match="ORDERFLOW_CALLER_SECRET is not set"):
            sender_secret(unconfigured(tmp_path, **others))
