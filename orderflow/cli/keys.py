"""`orderflow keys new` and `keys list`: approvers' key pairs, and the JWK set of those who may approve."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orderflow.cli.arguments import AsJson
from orderflow.cli.output import print_fields, print_json, print_line, print_table
from orderflow.domain.errors import InvalidInput, InvalidSettings

if TYPE_CHECKING:
    from orderflow.settings import Settings
    from orderflow.signing import ApproverKey, PublicKey

app = typer.Typer(name="keys", help="Approvers' keys.", rich_markup_mode=None)


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The person, as events give it in requested_by.")],
    roles: Annotated[list[str], typer.Option("--role", metavar="ROLE", help="What NAME may decide on; repeatable.")],
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the private key.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key pair; the public half goes into the JWK set of approvers."""
    from orderflow.approvers import (  # joserfc and the settings, see orderflow.cli
        ensure_development_keys,
        key_file,
        publish_key,
    )
    from orderflow.settings import load_settings
    from orderflow.signing import ApproverKey

    settings = load_settings()
    key, path = ApproverKey.new(name, roles), key_file(out or settings.private_keys, name)
    set_file = approvers_set(settings)
    if settings.approvers_file is None:  # first the development keys: a set without them looks complete to a worker
        ensure_development_keys(settings.private_keys, set_file)
    key.save(path)
    try:
        publish_key(set_file, key)
    except InvalidInput:
        path.unlink()  # a private key whose public half nobody knows is of no use
        raise
    _tell(key, path, set_file, as_json)


def _tell(key: "ApproverKey", path: Path, set_file: Path, as_json: bool) -> None:
    public = key.public_jwk()
    if as_json:
        print_json({"name": key.name, "private_key": str(path), "approvers": str(set_file), "public_jwk": public})
        return
    print_fields({"private key": path, "approvers": set_file, "kid": public["kid"]})
    print_line(f"keep the private key with {key.name}; deploy the approvers' set to every worker and restart it")


@app.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """List who may approve: the public keys in the JWK set."""
    from orderflow.settings import load_settings

    set_file = approvers_set(load_settings())
    members = approvers_in(set_file)
    if as_json:
        print_json([member.model_dump(mode="json") for member in members])
    elif members:
        rows = [(m.name, ", ".join(m.roles), "revoked" if m.revoked else "valid", m.kid) for m in members]
        print_table(("name", "roles", "state", "kid"), rows)
    else:
        print_line(f"no approvers in {set_file}; `orderflow keys new NAME --role ROLE` adds one")


def approvers_in(set_file: Path) -> "tuple[PublicKey, ...]":
    """The keys in a JWK set; none if there is no such file. Raises `InvalidSettings` for one that cannot be used."""
    from orderflow.signing import KeyRegistry

    try:
        raw = set_file.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InvalidSettings(f"the approvers' JWK set {set_file} cannot be read ({error.strerror})") from None
    return KeyRegistry.from_jwks(raw, str(set_file)).members


def approvers_set(settings: "Settings") -> Path:
    """Where the JWK set in use lies: the configured one, or that of the development keys.

    Raises `InvalidSettings` if none is configured and Temporal is on another machine.
    """
    from orderflow.approvers import development_set
    from orderflow.cli.connection import temporal_target
    from orderflow.settings import is_loopback

    if settings.approvers_file is not None:
        return settings.approvers_file
    address, _ = temporal_target()
    if not is_loopback(address):
        raise InvalidSettings(
            f"ORDERFLOW_APPROVERS_FILE is not set and Temporal is at {address}: set it to the file of the JWK set"
        )
    return development_set(settings)


def private_key(settings: "Settings", name: str, folder: Path | None) -> "ApproverKey":
    """Give NAME's private key from `folder`, by default the configured one. Raises `InvalidInput` if there is none."""
    from orderflow.approvers import key_file
    from orderflow.signing import ApproverKey

    return ApproverKey.load(key_file(folder or settings.private_keys, name))
