"""Whether a file lies on another machine's file system, where nobody can rely on SQLite's locks and its WAL (D02)."""

import re
from pathlib import Path

_TABLE = Path("/proc/self/mounts")  # Linux; elsewhere nobody is warned
_OF_OTHER_MACHINES = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|virtiofs|ceph|glusterfs|lustre|gpfs|afs|ncpfs|beegfs|vboxsf|prl_fs|drvfs"
    r"|fuse\.(sshfs|glusterfs|ceph\w*|s3fs|gcsfuse|rclone|vmhgfs-fuse)"
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def network_file_system(path: Path) -> str | None:
    """Give the type of the network or shared file system that `path` lies on; `None` for a local or unknown one."""
    found = _mounted_at(path.expanduser().resolve())
    return found if found and _OF_OTHER_MACHINES.fullmatch(found) else None


def _mounted_at(path: Path) -> str | None:
    """The type of the innermost mount that holds `path`; of several on one folder the last one counts."""
    try:
        lines = _TABLE.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    mounts = {Path(_plain(fields[1])): fields[2] for line in lines if len(fields := line.split(" ")) > 2}
    holding = [folder for folder in mounts if path.is_relative_to(folder)]
    return mounts[max(holding, key=lambda folder: len(folder.parts))] if holding else None


def _plain(field: str) -> str:
    """The table writes a space in a name as `\\040`."""
    return _OCTAL.sub(lambda digits: chr(int(digits[1], 8)), field)
