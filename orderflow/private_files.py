"""Files that only their owner can read: secrets and keys."""

import os
from pathlib import Path
from typing import BinaryIO


def create_private(path: Path) -> BinaryIO:
    """Open a new file for writing, in a folder that is made if need be.

    Raises `FileExistsError` if there is one already, `OSError` if it cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
