"""`orderflow callers list`, `check` and `new`: who may send events to the door, and secrets for them."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from orderflow.cli.arguments import STANDARD_INPUT, AsJson, name_of, read_document
from orderflow.cli.exits import InvalidFile
from orderflow.cli.output import as_json as json_text
from orderflow.cli.output import money, print_fields, print_json, print_line, print_table, when
from orderflow.domain.callers import MAX_CALLERS_BYTES, Caller, read_callers
from orderflow.domain.errors import InvalidSettings

if TYPE_CHECKING:
    from orderflow.settings import Settings

app = typer.Typer(name="callers", help="Who may send events to the door.", rich_markup_mode=None)

_SHOWN_OF_A_KEY: Final = 15

_TO_BE_EDITED: Final = {"EUR": 100_000}
"""The limits of a new caller, until somebody writes what was agreed."""


@app.command("list")
def list_callers(as_json: AsJson = False) -> None:
    """List the callers and what each may send; no secret is shown."""
    from orderflow.settings import load_settings  # the settings, see orderflow.cli

    file = callers_file_in_use(load_settings())
    callers = _callers_in(file)
    if as_json:
        print_json([caller.model_dump(mode="json", exclude_none=True) for caller in callers])
    elif callers:
        print_table(("name", "signs with", "reads with", "sources", "types", "up to"), map(_row, callers))
    else:
        print_line(f"no callers in {file}; `orderflow callers new NAME` makes a secret for one")


@app.command("check")
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A callers file; - for standard input, without secrets.")],
    without_secrets: Annotated[
        bool, typer.Option("--without-secrets", help="Do not look for the secrets it names: they are elsewhere.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a callers file and the secrets it names; every fault by its JSON path."""
    from orderflow.callers.reading import Reading  # the settings, see orderflow.cli

    raw = read_document(file, max_bytes=MAX_CALLERS_BYTES)
    with_secrets = not without_secrets and file != STANDARD_INPUT
    try:
        callers = read_callers(raw, name_of(file))
        if with_secrets:
            Reading(Path(file)).load()
    except InvalidSettings as error:
        raise InvalidFile(name_of(file), error) from None
    names = [caller.name for caller in callers]
    if as_json:
        print_json({"file": file, "callers": names, "secrets": with_secrets})
    else:
        print_line(f"{name_of(file)} can be used: {', '.join(names)}")


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The caller, new or in the file already.")],
    sources: Annotated[
        list[str] | None, typer.Option("--source", metavar="SOURCE", help="What it may name as source; repeatable.")
    ] = None,
    ed25519: Annotated[bool, typer.Option("--ed25519", help="A key pair instead of a shared secret.")] = False,
    no_token: Annotated[bool, typer.Option("--no-token", help="No bearer token, only what it signs with.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the secrets, else the file's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a caller's secret and bearer token, and show what to add to the callers file."""
    from orderflow.callers.development import (  # the settings, see orderflow.cli
        caller_entry,
        ensure_development_caller,
        new_token,
        write_secret,
    )
    from orderflow.settings import load_settings
    from orderflow.webhooks import new_key_pair, new_secret

    settings = load_settings()
    file = callers_file_in_use(settings)
    if settings.callers_file is None:
        ensure_development_caller(file.parent)
    private, public = new_key_pair() if ed25519 else (new_secret(), None)
    secret, token = (_free(out or file.parent, name, kind) for kind in ("whsk" if public else "whsec", "token"))
    proof = {"public_keys": [{"key": public}]} if public else {"secrets": [{"file": _seen_from(file, secret)}]}
    texts = {secret: private}
    if not no_token:
        proof["tokens"] = [{"file": _seen_from(file, token)}]
        texts[token] = new_token()
    entry = caller_entry(name, proof, sources or [f"/{name}"], _TO_BE_EDITED)
    read_callers(json.dumps({"callers": [entry]}).encode(), "the new caller")  # before anything is written
    known = name in [caller.name for caller in _callers_in(file)]
    for path, text in texts.items():
        write_secret(path, text)
    _tell(file, [*texts], proof if known else entry, known=known, as_json=as_json)


def callers_file_in_use(settings: "Settings") -> Path:
    """Where the callers file in use lies: the configured one, or that of the development caller.

    Raises `InvalidSettings` if none is configured and Temporal is on another machine.
    """
    from orderflow.callers import file_in_use
    from orderflow.cli.connection import temporal_target

    address, _ = temporal_target()
    return file_in_use(settings, address)


def _callers_in(file: Path) -> tuple[Caller, ...]:
    """The callers of a file; none if there is no such file. Raises `InvalidSettings` for one that cannot be used."""
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InvalidSettings(f"the callers file {file} cannot be read ({error.strerror})") from None
    return read_callers(raw, str(file))


def _row(caller: Caller) -> tuple[object, ...]:
    keys = [(f"{key.key[:_SHOWN_OF_A_KEY]}…", key.until) for key in caller.public_keys]
    signs = [(str(place), place.until) for place in caller.secrets]
    reads = [(str(place), place.until) for place in caller.tokens]
    limits = [money(amount, currency) for currency, amount in caller.limits.items()]
    return (caller.name, _with_ends([*signs, *keys]), _with_ends(reads), caller.sources, caller.types, (*limits,))


def _with_ends(places: Iterable[tuple[str, datetime | None]]) -> tuple[str, ...]:
    return tuple(place if until is None else f"{place} until {when(until)}" for place, until in places) or ("-",)


def _free(folder: Path, name: str, kind: str) -> Path:
    """Where the next secret of this kind of `name` goes: `shop.whsec`, then `shop-2.whsec`, …"""
    numbered = (folder / f"{name}{'' if number == 1 else f'-{number}'}.{kind}" for number in count(1))
    return next(path for path in numbered if not path.exists())


def _seen_from(file: Path, secret: Path) -> str:
    """How the callers file names a secret: relative to its own folder where it lies below that."""
    try:
        return secret.absolute().relative_to(file.absolute().parent).as_posix()
    except ValueError:
        return str(secret.absolute())


def _tell(file: Path, written: list[Path], fragment: Mapping[str, object], *, known: bool, as_json: bool) -> None:
    if as_json:
        print_json({"callers_file": str(file), "written": [*map(str, written)], "known": known, "fragment": fragment})
        return
    for path in written:
        print_fields({"written": path})
    where = "to the lists of this caller" if known else 'to "callers"'
    print_line(f"add {where} in {file}, then run `orderflow callers check {file}`; it counts within a second:")
    print_line()
    print(json_text(fragment))
