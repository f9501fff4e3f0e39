"""The simulated providers as an HTTP server of their own, over the same world and log as in process.

Besides the providers' protocol (see `orderflow.providers.http`) it answers `GET /health`, `GET /log`,
`GET /stock/{sku}`, `POST /faults` (a `Fault`), `POST /reset` and `POST /payments/refunds-by-hand`. It has no
authentication: it belongs on loopback or in a private network.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from orderflow.domain.effects import Act, Busy, Found, Handle, Unavailable
from orderflow.domain.errors import InvalidInput, InvalidSettings
from orderflow.domain.problems import problems_in, summary
from orderflow.domain.strict_json import MAX_BYTES, read_json
from orderflow.providers.simulated import Fault, Reply, SimulatedWorld
from orderflow.serving import Limits, listen, run_server, served, url_of
from orderflow.stopping import stopped_by_signals

_STATUS: Final = {
    "done": 200,
    "pending": 202,
    "absent": 404,
    "busy": 409,
    "undone": 410,
    "declined": 422,
    "unavailable": 503,
    "unknown": 504,
}

LIMITS: Final = Limits(in_flight=1)
"""Calls that hang must not keep it from ending."""

_QUIET: Final = "critical"
"""A cut connection is an error to uvicorn, and on purpose here."""

ModelT = TypeVar("ModelT", bound=BaseModel)


class _UndoBody(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    undo: Act
    of: Act


class _RefundBody(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    workflow_id: str = Field(max_length=200)
    amount_minor: int = Field(ge=1)


class _NoAnswer(Response):
    """Keeps the connection open and silent until the client gives up."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


class _CutConnection(Response):
    """Begins an answer and ends without its body, upon which the server closes the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})


class _Endpoints:
    """The routes over one world. What is wrong with a request is raised, and becomes a problem document."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    def routes(self) -> list[Route]:
        return [
            Route("/health", self.health, methods=["GET"]),
            Route("/log", self.log, methods=["GET"]),
            Route("/stock/{sku}", self.stock, methods=["GET"]),
            Route("/faults", self.faults, methods=["POST"]),
            Route("/reset", self.reset, methods=["POST"]),
            Route("/payments/refunds-by-hand", self.refund_by_hand, methods=["POST"]),
            Route("/{provider}/acts", self.perform, methods=["POST"]),
            Route("/{provider}/acts", self.acts, methods=["GET"]),
            Route("/{provider}/undo", self.undo, methods=["POST"]),
            Route("/{provider}/lookup", self.lookup, methods=["POST"]),
        ]

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def log(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(self._world.log))

    async def stock(self, request: Request) -> Response:
        sku = request.path_params["sku"]
        return JSONResponse({"sku": sku, "available": await asyncio.to_thread(self._world.stock, sku)})

    async def faults(self, request: Request) -> Response:
        fault = await _body(request, Fault)
        return JSONResponse(await asyncio.to_thread(self._world.add_fault, fault), 201)

    async def reset(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(self._world.reset))

    async def refund_by_hand(self, request: Request) -> Response:
        body = await _body(request, _RefundBody)
        line = await asyncio.to_thread(self._world.refund_by_hand, body.workflow_id, body.amount_minor)
        return JSONResponse(line, 201)

    async def perform(self, request: Request) -> Response:
        act = await _body(request, Act)
        _require_addressed(request, act)
        return _delivered(await self._world.perform(act))

    async def undo(self, request: Request) -> Response:
        body = await _body(request, _UndoBody)
        _require_addressed(request, body.undo)
        if body.of.provider != body.undo.provider:
            raise InvalidInput("must be the same as in undo", path="$.of.provider")
        return _delivered(await self._world.undo(body.undo, body.of))

    async def lookup(self, request: Request) -> Response:
        act = await _body(request, Act)
        _require_addressed(request, act)
        return _delivered(await self._world.lookup(act, _handle(request.query_params.get("by", Handle.KEY))))

    async def acts(self, request: Request) -> Response:
        since = _time(request.query_params.get("since", ""))
        acts = await asyncio.to_thread(self._world.acts, request.path_params["provider"], since)
        return JSONResponse([act.model_dump(mode="json") for act in acts])


def create_app(world: SimulatedWorld) -> Starlette:
    """Make the ASGI application over `world`; it closes nothing of it."""
    return Starlette(
        routes=_Endpoints(world).routes(),
        exception_handlers={
            InvalidInput: _bad_request,
            HTTPException: _http_problem,
            InvalidSettings: _log_unusable,
            OSError: _log_unusable,
        },
    )


@asynccontextmanager
async def serving(world: SimulatedWorld, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve `world` on the running loop and give its base URL; port 0 takes a free one.

    Raises:
        InvalidSettings: when the address cannot be listened on.
    """
    try:
        async with served(create_app(world), listen(host, port), LIMITS, log_level=_QUIET) as url:
            yield url
    finally:
        await world.aclose()


def run_simulator(host: str, port: int, path: Path, ready: Callable[[str], None] | None = None) -> None:
    """Serve the world at `path` until SIGTERM or SIGINT, then return; `ready` is called with the base URL.

    Raises:
        InvalidSettings: when the address cannot be listened on.
        OSError: when the folder of the log cannot be made.
    """
    asyncio.run(_run(SimulatedWorld(path), listen(host, port), ready))


async def _run(world: SimulatedWorld, listener: socket.socket, ready: Callable[[str], None] | None) -> None:
    stopping = asyncio.Event()
    with stopped_by_signals(stopping):
        if ready is not None:
            ready(url_of(listener))
        await run_server(create_app(world), listener, LIMITS, stopping, log_level=_QUIET)


async def _body(request: Request, model: type[ModelT]) -> ModelT:
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send application/json")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise HTTPException(415, "send the body without a content encoding")
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BYTES:
            raise HTTPException(413, f"send at most {MAX_BYTES} bytes")
    read_json(bytes(raw))
    try:
        return model.model_validate_json(bytes(raw))
    except ValidationError as error:
        problems = problems_in(error)
        raise InvalidInput(summary(problems), problems=problems) from None


def _require_addressed(request: Request, act: Act) -> None:
    if act.provider != request.path_params["provider"]:
        raise InvalidInput("is not the provider in the path", path="$.provider")
    if request.headers.get("Idempotency-Key") != act.key:
        raise InvalidInput("is not what the header Idempotency-Key says", path="$.key")


def _handle(text: str) -> Handle:
    try:
        return Handle(text)
    except ValueError:
        raise InvalidInput(f"the query parameter by must be {' or '.join(Handle)}") from None


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidInput("the query parameter since must be a time with its offset (ISO 8601)")
    return time


def _delivered(reply: Reply) -> Response:
    match reply.delivery:
        case "lost":
            return _CutConnection()
        case "never":
            return _NoAnswer()
        case "sent":
            return _answered(reply.answer)


def _answered(answer: Found) -> Response:
    headers = {}
    if isinstance(answer, Busy | Unavailable) and answer.retry_after is not None:
        headers["Retry-After"] = f"{answer.retry_after:.0f}"
    # Strict JSON has no fractions: the time to come back stands in the header alone.
    body = answer.model_dump(mode="json", exclude={"retry_after"})
    return JSONResponse(body, _STATUS[answer.answer], headers)


def _problem(status: int, title: str, detail: str) -> Response:
    """Make a problem document (RFC 9457)."""
    content = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return JSONResponse(content, status, media_type="application/problem+json")


async def _bad_request(request: Request, error: Exception) -> Response:
    detail = summary(error.problems) if isinstance(error, InvalidInput) else ""
    return _problem(400, "Bad request", detail)


async def _http_problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    response = _problem(error.status_code, "Refused", error.detail)
    response.headers.update(error.headers or {})
    return response


async def _log_unusable(request: Request, error: Exception) -> Response:
    return _problem(503, "Unavailable", "the simulator's log cannot be read or written")
