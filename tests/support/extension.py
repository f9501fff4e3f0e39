"""The example package of `examples/ship_extension`, built and unpacked as an installer would do it."""

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from hatchling.build import build_wheel

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "ship_extension"


def install(site: Path) -> Path:
    """Install the example into the folder `site`, for `sys.path` or PYTHONPATH; gives its folder of definitions."""
    before = Path.cwd()
    os.chdir(EXAMPLE)  # where a build backend has to be called (PEP 517)
    try:
        with tempfile.TemporaryDirectory() as wheels, zipfile.ZipFile(Path(wheels) / build_wheel(wheels)) as wheel:
            wheel.extractall(site)
    finally:
        os.chdir(before)
    return site / "orderflow_ship" / "definitions"
