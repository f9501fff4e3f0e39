"""The wheel that people install holds all that the package needs at run time."""

import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import orderflow
from tests.architecture.product import PACKAGE, ROOT, name_of


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from the working tree."""
    built = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"]))
    return zipfile.ZipFile(built)


def test_the_wheel_holds_each_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    """Definitions, SQL and py.typed included."""
    needed = {name_of(path) for path in PACKAGE.rglob("*") if path.is_file() and path.parent.name != "__pycache__"}
    assert "orderflow/py.typed" in needed
    assert needed <= set(wheel.namelist())


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    """No tests, no state, no keys."""
    assert {Path(name).parts[0] for name in wheel.namelist()} == {
        "orderflow",
        f"orderflow-{orderflow.__version__}.dist-info",
    }


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    """Version, licence and the command come from the project's own files."""
    info = f"orderflow-{orderflow.__version__}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert (metadata["Name"], metadata["Version"]) == ("orderflow", orderflow.__version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("MIT", ">=3.11")
    assert "orderflow = orderflow.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()
