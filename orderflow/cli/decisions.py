"""`orderflow approve` and `reject`: show what is asked, sign exactly that, deliver it, and say what came of it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from orderflow.cli.arguments import AsJson, EventId, Order, Source, name_of, order_reference, read_document
from orderflow.cli.exits import ExitCode, InvalidFile, Refused
from orderflow.cli.output import print_fields, print_json, print_line, shortened
from orderflow.contracts import DoorAnswer
from orderflow.domain.approvals import Claims, Decision, Refusal, read_claims
from orderflow.domain.compact_jws import MAX_TOKEN_LENGTH
from orderflow.domain.errors import InvalidInput
from orderflow.domain.strict_json import read_json

if TYPE_CHECKING:
    from temporalio.client import Client

    from orderflow.settings import Settings
    from orderflow.signing import ApproverKey

MAX_FILE_BYTES = 4 * MAX_TOKEN_LENGTH

As = Annotated[str | None, typer.Option("--as", metavar="NAME", help="Whose key signs.")]
KeysDir = Annotated[Path | None, typer.Option("--keys-dir", help="Where NAME's private key lies.")]
OnlyPrint = Annotated[bool, typer.Option("--print", help="Print the `temporal workflow signal` command instead.")]
BySignal = Annotated[bool, typer.Option("--signal", help="Deliver by signal, then watch for the verdict.")]
FromFile = Annotated[str | None, typer.Option("--file", help="Deliver the signed decision in this file, or - .")]
Payload = Annotated[str | None, typer.Option("--payload", help='Deliver this: {"approval": "<JWS>"}, or the JWS.')]


@dataclass(frozen=True)
class Choice:
    """What the command line asked for. `signer` is the key to sign with, or a decision that was signed before."""

    decision: Decision
    order: str
    signer: "ApproverKey | str"
    by_signal: bool
    only_print: bool
    as_json: bool


def _verb(decision: Decision, sentence: str) -> Callable[..., ExitCode]:
    def verb(
        order: Order = None,
        source: Source = None,
        event_id: EventId = None,
        approver: As = None,
        keys_dir: KeysDir = None,
        only_print: OnlyPrint = False,
        by_signal: BySignal = False,
        file: FromFile = None,
        payload: Payload = None,
        as_json: AsJson = False,
    ) -> ExitCode:
        reference = order_reference(order, source, event_id)
        signer = ready_token(approver, file, payload, decision) or _key_of(approver or "", keys_dir)
        return _carry_out(Choice(decision, reference, signer, by_signal, only_print, as_json))

    verb.__name__, verb.__doc__ = decision, sentence
    return verb


approve = _verb(Decision.APPROVE, "Approve what is pending.")
reject = _verb(Decision.REJECT, "Reject what is pending.")


def _key_of(approver: str, keys_dir: Path | None) -> "ApproverKey":
    from orderflow.cli.keys import private_key  # joserfc and the settings, see orderflow.cli
    from orderflow.settings import load_settings

    return private_key(load_settings(), approver, keys_dir)


def ready_token(approver: str | None, file: str | None, payload: str | None, decision: Decision) -> str | None:
    """Give the decision that was signed before, from `file` or `payload`; `None` if NAME's key is to sign one.

    Raises `InvalidInput` unless exactly one of the three is given, and for what is no signed `decision`.
    """
    if sum(given is not None for given in (approver, file, payload)) != 1:
        raise InvalidInput("say who decides with --as NAME, or give a signed decision with --file or --payload")
    if file is not None:
        try:
            return _token(read_document(file, max_bytes=MAX_FILE_BYTES), decision)
        except InvalidFile:
            raise
        except InvalidInput as error:
            raise InvalidFile(name_of(file), error) from None
    if payload is not None:
        return _inline_token(payload, decision)
    return None


def _inline_token(payload: str, decision: Decision) -> str:
    try:
        return _token(payload.encode("utf-8", "surrogateescape"), decision)
    except InvalidInput as error:
        raise InvalidInput(
            f"--payload: {error.message}; some shells take the quotes out of JSON (PowerShell does): put it into a file"
            " and use --file, or pipe it to --file -"
        ) from None


def _token(raw: bytes, decision: Decision) -> str:
    """The JWS in `raw`, bare or as `{"approval": …}`; nothing is repaired (T52)."""
    text = raw.removeprefix(b"\xef\xbb\xbf").strip()
    token = text.decode("ascii", "replace") if _is_bare(text) else _approval_in(raw)
    claims = read_claims(token)
    if isinstance(claims, Refusal):
        raise InvalidInput(f"holds no signed decision ({claims}); it must be a compact JWS as `--print` shows it")
    if claims.decision is not decision:
        raise InvalidInput(f"the decision in it says {claims.decision}; use `orderflow {claims.decision}`")
    return token


def _is_bare(text: bytes) -> bool:
    return not text.startswith((b"{", b"[", b'"'))


def _approval_in(raw: bytes) -> str:
    value = read_json(raw, max_bytes=MAX_FILE_BYTES, allow_bom=True)
    token = value.get("approval") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(token, str):
        raise InvalidInput('must be {"approval": "<JWS>"} with nothing else in it', path="$")
    return token


def _carry_out(choice: Choice) -> ExitCode:
    from orderflow.cli.connection import with_temporal

    if choice.only_print:
        return with_temporal(lambda client, settings: _print_command(client, settings, choice))
    answer = with_temporal(lambda client, _: _deliver(client, choice))
    if not answer.accepted:
        refusal = answer.refusal or "no reason given"
        raise Refused(f"refused: {refusal}; the order stays {answer.stage}", **answer.model_dump(mode="json"))
    if choice.as_json:
        print_json({"order": choice.order, "decision": choice.decision, **answer.model_dump(mode="json")})
    else:
        print_line(f"accepted: {choice.decision}; `orderflow show {choice.order}` tells what follows")
    return ExitCode.DONE


async def _deliver(client: "Client", choice: Choice) -> DoorAnswer:
    from orderflow.cli.delivery import deliver, deliver_by_signal

    token = await _signed(client, choice, sys.stdout)
    if not choice.by_signal:
        return await deliver(client, choice.order, token)
    return await deliver_by_signal(client, choice.order, token, _claims(token))


async def _print_command(client: "Client", settings: "Settings", choice: Choice) -> ExitCode:
    """Print the command alone on standard output, so that a shell can run it; what is signed goes to standard error."""
    from orderflow.cli.connection import runnable
    from orderflow.client import address_of, codec_of, signal_command

    token = await _signed(client, choice, sys.stderr)
    target = {"address": address_of(client), "namespace": client.namespace}
    sent = signal_command(choice.order, token, codec=codec_of(client), **target)
    command = runnable(sent, settings)
    if choice.as_json:
        claims = _claims(token).model_dump(mode="json")
        print_json({"order": choice.order, "command": command, "payload": {"approval": token}, "claims": claims})
    else:
        print(command)
        print(f'payload: {{"approval": "{token}"}}', file=sys.stderr)
    return ExitCode.DONE


async def _signed(client: "Client", choice: Choice, shown_on: TextIO) -> str:
    from orderflow.cli.delivery import pending_request, signed
    from orderflow.cli.order_page import event_fields, request_fields

    if isinstance(choice.signer, str):
        return choice.signer
    request, event = await pending_request(client, choice.order)
    if not choice.as_json:
        print_line(f"{choice.signer.name} signs: {choice.decision}", shown_on)
        print_fields(event_fields(event) | request_fields(request), indent=2, stream=shown_on)
    return signed(request, choice.decision, choice.signer)


def _claims(token: str) -> Claims:
    claims = read_claims(token)
    if isinstance(claims, Refusal):
        raise InvalidInput(f"no signed decision: {shortened(claims)}")
    return claims
