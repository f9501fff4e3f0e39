"""`orderflow callers list`, `check` and `new`: who may send events to the door, and secrets for them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orderflow.cli.arguments import AsJson, name_of, read_document
from orderflow.cli.exits import InvalidFile
from orderflow.cli.output import as_json as json_text
from orderflow.cli.output import money, print_fields, print_json, print_line, print_table, when
from orderflow.domain.callers import MAX_CALLERS_BYTES, Caller, PublicKey, SecretPlace, read_callers
from orderflow.domain.errors import InvalidInput, InvalidSettings, Problem

if TYPE_CHECKING:
    from orderflow.settings import Settings

app = typer.Typer(name="callers", help="Who may send events to the door.", rich_markup_mode=None)


@app.command("list")
def list_callers(as_json: AsJson = False) -> None:
    """List the callers and what each may send; no secret is shown."""
    from orderflow.settings import load_settings  # the settings, see orderflow.cli

    file = callers_file_in_use(load_settings())
    callers = _callers_in(file)
    if as_json:
        print_json([caller.model_dump(mode="json", exclude_none=True) for caller in callers])
    elif callers:
        print_table(("name", "signs with", "tokens", "sources", "types", "up to"), map(_row, callers))
    else:
        print_line(f"no callers in {file}; `orderflow callers new NAME` makes a secret for one")


@app.command("check")
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A callers file, - for standard input.")],
    without_secrets: Annotated[
        bool, typer.Option("--without-secrets", help="Do not look for the secrets it names: they are elsewhere.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a callers file and the secrets it names; every fault by JSON path."""
    from orderflow.callers import read_with_secrets  # the settings, see orderflow.cli

    raw = read_document(file, max_bytes=MAX_CALLERS_BYTES)
    try:
        callers = read_callers(raw, name_of(file))
        if not without_secrets:
            if file == "-":
                raise InvalidInput("secrets are looked for beside a file; give one, or --without-secrets")
            read_with_secrets(Path(file))
    except InvalidSettings as error:
        raise InvalidFile(name_of(file), error) from None
    names = [caller.name for caller in callers]
    if as_json:
        print_json({"file": file, "callers": names, "secrets": not without_secrets})
    else:
        print_line(f"{name_of(file)} can be used: {', '.join(names)}")
