"""`orderflow payload-keys`: the keys that payloads are encrypted with; a set can be looked at and grow."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from orderflow.cli.arguments import AsJson
from orderflow.cli.output import print_json, print_line
from orderflow.domain.errors import InvalidSettings
from orderflow.private_files import create_private

app = typer.Typer(name="payload-keys", help="Keys that payloads are encrypted with.", rich_markup_mode=None)


@app.command("new")
def new(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the key, such as 2026-12; it is no secret.")],
    first: Annotated[
        bool, typer.Option("--first", help="Put it before the others: it is read with, and does not encrypt yet.")
    ] = False,
    file: Annotated[Path | None, typer.Option("--file", help="The set; ORDERFLOW_PAYLOAD_KEYS_FILE otherwise.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add a new random key to the set, which is made if there is none; the last key of it encrypts."""
    from orderflow.keyring import KeyRing, with_new_key  # cryptography and the settings, see orderflow.cli
    from orderflow.settings import load_settings

    target = file or load_settings().payload_keys_file
    if target is None:
        raise InvalidSettings("no file to put the key into: set ORDERFLOW_PAYLOAD_KEYS_FILE, or give --file")
    changed = with_new_key(_read(target), key_id, str(target), first=first)
    _replace(target, changed)
    ring = KeyRing.from_jwks(changed, str(target))
    if as_json:
        print_json({"file": str(target), "encrypts": ring.newest, "key_ids": ring.key_ids})
    else:
        print_line(f"{target}: {ring.newest} encrypts; read with {', '.join(ring.key_ids)}")
        print_line("keep a copy: what is encrypted under a lost key can never be read again")


@app.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """List the ids of the keys in force, never the keys."""
    from orderflow.client.converter import key_ring
    from orderflow.settings import load_settings

    ring = key_ring(load_settings())
    ids = ring.key_ids if ring else ()
    if as_json:
        print_json({"encrypts": ring.newest if ring else None, "key_ids": ids})
    elif ring:
        print_line(f"{ring.newest} encrypts; read with {', '.join(ids)}")
    else:
        print_line("none: payloads are not encrypted; `orderflow payload-keys new ID` makes a key")


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidSettings(f"{file} cannot be read ({error.strerror})") from None


def _replace(file: Path, changed: bytes) -> None:
    """Write the set at once and for its owner alone; a set that is there stays whole if that fails."""
    written = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        with create_private(written) as opened:
            opened.write(changed)
            opened.flush()
            os.fsync(opened.fileno())
        written.replace(file)
    except OSError as error:
        with suppress(OSError):
            written.unlink()
        raise InvalidSettings(f"{file} cannot be written ({error.strerror})") from None
