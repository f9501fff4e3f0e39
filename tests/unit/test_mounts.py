"""A ledger file on another machine's file system is found in the table of mounts, and called no good place (D02)."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from orderflow.backends import doubts, open_working_ledger
from orderflow.ledger import mounts
from orderflow.ledger.mounts import network_file_system
from orderflow.settings import Settings
from tests.support.command_line import orderflow, unconfigure


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of mounts to write into; this machine's own does not count."""
    monkeypatch.setattr(mounts, "_TABLE", tmp_path / "mounts")
    return tmp_path / "mounts"


def write(table: Path, *mounted: tuple[object, str]) -> None:
    """Mount file systems of these types on these folders, one after the other."""
    root = [("/", "ext4"), ("/proc", "proc")]
    table.write_text("".join(f"server:/x {folder} {kind} rw,relatime 0 0\n" for folder, kind in [*root, *mounted]))


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "virtiofs", "ceph"])
def test_a_file_on_a_network_file_system_is_found(table: Path, tmp_path: Path, kind: str) -> None:
    """However deep below the mount, and before it or its folder is made."""
    write(table, (tmp_path, kind))
    assert network_file_system(tmp_path / "state" / "orderflow" / "ledger.db") == kind


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "apfs", "overlay", "tmpfs", "fuse.mergerfs", "nfsd"])
def test_a_file_on_a_local_one_is_fine(table: Path, tmp_path: Path, kind: str) -> None:
    """No false alarms."""
    write(table, (tmp_path, kind))
    assert network_file_system(tmp_path / "ledger.db") is None


def test_the_innermost_and_latest_mount_counts(table: Path, tmp_path: Path) -> None:
    """A local disk below a network one, and the other way round; what was mounted last covers what was there."""
    write(table, (tmp_path, "nfs4"), (tmp_path / "disk", "ext4"), (tmp_path / "disk" / "share", "autofs"))
    assert network_file_system(tmp_path / "disk" / "ledger.db") is None
    assert network_file_system(tmp_path / "disks" / "ledger.db") == "nfs4"
    write(table, (tmp_path, "autofs"), (tmp_path, "nfs4"))
    assert network_file_system(tmp_path / "ledger.db") == "nfs4"


def test_a_folder_with_a_space_and_a_way_through_a_link_are_understood(table: Path, tmp_path: Path) -> None:
    """The table escapes the one, and knows nothing of the other."""
    (tmp_path / "a share").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a share")
    write(table, (str(tmp_path / "a share").replace(" ", "\\040"), "cifs"))
    assert network_file_system(tmp_path / "a share" / "ledger.db") == "cifs"
    assert network_file_system(tmp_path / "link" / "ledger.db") == "cifs"


@pytest.mark.parametrize("text", [None, "", "\n", "one\n", "a b\n"])
def test_where_no_table_can_be_read_nobody_is_warned(table: Path, tmp_path: Path, text: str | None) -> None:
    """Other systems have none."""
    if text is not None:
        table.write_text(text)
    assert network_file_system(tmp_path / "ledger.db") is None


def test_doctor_warns(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says what to do (D02); everything else about the ledger is well."""
    unconfigure(tmp_path, monkeypatch)
    write(table, (tmp_path, "nfs4"))
    (check,) = [check for check in orderflow("doctor", "--json").json["checks"] if check["name"] == "ledger"]
    assert check["health"] == "warn"
    assert "ledger.db is on a nfs4 file system" in check["says"]
    assert "or use PostgreSQL (ORDERFLOW_LEDGER_URL)" in check["says"]


async def test_a_worker_warns_when_it_starts(table: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And goes on: whoever has one process on one host may know better."""
    said: list[str] = []
    settings = Settings(state_dir=tmp_path, ledger_url="")
    write(table, (tmp_path, "nfs4"))
    async with AsyncExitStack() as opened:
        await open_working_ledger(settings, opened, said.append)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "is on a nfs4 file system" in caplog.text
    assert [line.startswith("SQLite ") for line in said] == [True]


def test_a_ledger_on_postgres_raises_no_doubts(table: Path, tmp_path: Path) -> None:
    """Whatever this machine has mounted."""
    write(table, (tmp_path, "nfs4"))
    assert doubts(Settings(ledger_url="postgresql://u@h/d", state_dir=tmp_path)) is None
