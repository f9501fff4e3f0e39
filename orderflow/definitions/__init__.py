"""The definitions that a process publishes: those shipped in this package and those of a configured folder."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType

from orderflow.domain.definition import Definition, StepCatalogue, load_definition
from orderflow.domain.errors import InvalidDefinition, InvalidInput, InvalidSettings


def packaged_definitions() -> tuple[bytes, ...]:
    """The JSON text of every definition that is shipped in this package, in the order of the files' names."""
    return tuple(file.read_bytes() for file in _json_files(files(__name__)))


def load_packaged(catalogue: StepCatalogue) -> Definition:
    """The definition that this package ships for orders: the default wherever none is named."""
    return _load(next(_json_files(files(__name__))), catalogue)


def load_chosen(catalogue: StepCatalogue, file: Path | None = None, folder: Path | None = None) -> Definition:
    """The definition that new orders get: that of `file`, which has to be published, or the default.

    Raises `InvalidSettings` when it is not published, else as `load_published` does.
    """
    if file is None:
        return load_packaged(catalogue)
    chosen = _load(file, catalogue)
    if chosen.fingerprint not in load_published(catalogue, folder):
        raise InvalidSettings(
            f"ORDERFLOW_ORDER_DEFINITION: {file} is neither packaged nor in ORDERFLOW_DEFINITIONS_DIR, so that workers"
            " would refuse its orders; put it there, for workers too"
        )
    return chosen


def load_published(catalogue: StepCatalogue, folder: Path | None = None) -> Mapping[str, Definition]:
    """Every shipped definition and every `*.json` of `folder`, by fingerprint.

    Raises `InvalidDefinition`, naming the file, for one that is refused, and naming both files when two different ones
    call themselves the same name and version; `InvalidInput` when the folder or a file cannot be read.
    """
    published: dict[str, Definition] = {}
    origins: dict[tuple[str, str], tuple[str, str]] = {}
    for file in (*_json_files(files(__name__)), *(_json_files(folder) if folder else ())):
        definition = _load(file, catalogue)
        identity = (definition.name, definition.version)
        fingerprint, origin = origins.setdefault(identity, (definition.fingerprint, str(file)))
        if fingerprint != definition.fingerprint:
            message = (
                f"{origin} and {file} are two different definitions of {' '.join(identity)}; give one a new version"
            )
            raise InvalidDefinition(message)
        published[fingerprint] = definition
    return MappingProxyType(published)


def _json_files(folder: Traversable) -> Iterator[Traversable]:
    try:
        found = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    except OSError as error:
        raise InvalidInput(f"the folder of definitions {folder} cannot be read: {error.strerror}") from error
    yield from found


def _load(file: Traversable, catalogue: StepCatalogue) -> Definition:
    try:
        return load_definition(file.read_bytes(), catalogue)
    except OSError as error:
        raise InvalidInput(f"the definition {file} cannot be read: {error.strerror}") from error
    except InvalidDefinition as error:
        raise InvalidDefinition(f"{file}: {error.message}", path=error.path, problems=error.problems) from error
