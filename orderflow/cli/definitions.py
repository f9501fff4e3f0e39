"""`orderflow validate` and `orderflow graph`: check a definition, and draw it."""

from enum import StrEnum
from typing import Annotated

import typer

from orderflow.catalogue import load_catalogue
from orderflow.cli.arguments import AsJson, name_of, read_document
from orderflow.cli.exits import InvalidFile
from orderflow.cli.output import print_json, print_line
from orderflow.definitions import load_published, packaged_definitions
from orderflow.domain.definition import MAX_BYTES, Definition, load_definition
from orderflow.domain.errors import InvalidDefinition, OrderflowError
from orderflow.drawing import mermaid, svg

PACKAGED = "the packaged definition"

File = Annotated[
    str | None,
    typer.Argument(metavar="[FILE]", help="A definition, - for standard input; else the packaged one."),
]


class Drawing(StrEnum):
    """What `graph` can draw."""

    MERMAID = "mermaid"
    SVG = "svg"


def validate(file: File = None, as_json: AsJson = False) -> None:
    """Check a definition and print its name, version and fingerprint."""
    definition = definition_of(file)
    if as_json:
        print_json(
            {
                "file": file,
                "name": definition.name,
                "version": definition.version,
                "fingerprint": definition.fingerprint,
                "steps": [step.id for step in definition.steps],
            }
        )
    else:
        print_line(f"{definition.name} {definition.version} {definition.fingerprint}")


def graph(
    file: File = None,
    drawing: Annotated[Drawing, typer.Option("--format", help="What to draw.")] = Drawing.MERMAID,
    as_json: AsJson = False,
) -> None:
    """Draw a definition's steps, approvals and compensations."""
    definition = definition_of(file)
    drawn = svg(definition) if drawing is Drawing.SVG else mermaid(definition)
    if as_json:
        print_json({"file": file, "format": drawing.value, "drawing": drawn})
    else:
        print(drawn, end="" if drawn.endswith("\n") else "\n")


def definition_of(file: str | None) -> Definition:
    """The definition in `file`, or the packaged one. Raises `InvalidFile` with every problem found, by JSON path."""
    raw = packaged_definitions()[-1] if file is None else read_document(file, max_bytes=MAX_BYTES)
    catalogue = load_catalogue()
    try:
        return load_definition(raw, catalogue)
    except InvalidDefinition as error:
        raise InvalidFile(PACKAGED if file is None else name_of(file), error) from error


def unpublished(definition: Definition) -> str | None:
    """Why a worker with the settings of this machine would refuse to start an order with `definition`, if it would."""
    from orderflow.settings import load_settings  # the settings, see orderflow.cli

    folder = load_settings().definitions_dir
    try:
        published = load_published(load_catalogue(), folder)
    except OrderflowError as error:
        return f"nobody can say whether workers publish this definition: {error.message}"
    if definition.fingerprint in published:
        return None
    return (
        f"{definition.name} {definition.version} is neither packaged nor in ORDERFLOW_DEFINITIONS_DIR"
        f" ({folder or 'not set'} here): a worker that does not publish it refuses the order"
    )
