"""The routes: what is asked of the door, and every exception as the answer that it means."""

from collections.abc import Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.ingress.answers import answer, problem
from orderflow.ingress.availability import unavailable
from orderflow.ingress.door import Door
from orderflow.ingress.openapi import document
from orderflow.ingress.readiness import OK
from orderflow.ingress.telling import Whose, log

_UNREAD: Final = frozenset({Cause.NOT_FOUND, Cause.METHOD_NOT_ALLOWED, Cause.BODY_TOO_LARGE, Cause.BODY_TOO_SLOW})
"""Refusals that may come while a body is still on its way: the connection is closed behind them."""


class _Endpoints:
    """The routes over one door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> list[Route]:
        return [
            Route("/v1/events", self.events, methods=["POST"]),
            Route("/v1/orders/{order}", self.orders, methods=["GET"]),
            Route("/livez", self.livez, methods=["GET"]),
            Route("/readyz", self.readyz, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
        ]

    async def events(self, request: Request) -> Response:
        taken = await self._door.take(request.headers.raw, request.stream())
        accepted = HTTPStatus.ACCEPTED if taken.new else HTTPStatus.OK
        return answer({"order": taken.order, "duplicate": not taken.new}, accepted)

    async def orders(self, request: Request) -> Response:
        return answer(asdict(await self._door.look(request.headers.raw, request.path_params["order"])))

    async def livez(self, request: Request) -> Response:
        return answer({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        checks = await self._door.readiness.checks()
        ready = checks["ledger"] == checks["temporal"] == OK
        return answer(
            {"status": "ready" if ready else "not ready", "checks": checks},
            HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE,
        )

    async def openapi(self, request: Request) -> Response:
        return answer(document())

    async def refused(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, DeliveryRefused):
            raise error
        return _refusal(error)

    async def not_routed(self, request: Request, error: Exception) -> Response:
        """What the router itself refuses: an unknown path, or a method that a path does not take."""
        if not isinstance(error, HTTPException):
            raise error
        allowed = (error.headers or {}).get("Allow")
        refused = (
            DeliveryRefused(Cause.METHOD_NOT_ALLOWED, f"this path takes {allowed}")
            if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED
            else DeliveryRefused(Cause.NOT_FOUND, "events go to POST /v1/events; /openapi.json has the rest")
        )
        self._door.teller.refused(refused.cause, Whose())
        return _refusal(refused, {"Allow": allowed} if allowed else {})

    async def gone(self, request: Request, error: Exception) -> Response:
        """The sender went away in the middle of its body: nobody reads this answer."""
        return Response(status_code=HTTPStatus.BAD_REQUEST, headers={"Connection": "close"})

    async def bug(self, request: Request, error: Exception) -> Response:
        """Whatever nobody expected costs the sender a retry, never the event; the log has its traceback."""
        log.error("unexpected error at the door", exc_info=error)
        return _refusal(unavailable())


def create_app(door: Door) -> ASGIApp:
    """Make the ASGI application over `door`; it opens and closes nothing."""
    endpoints = _Endpoints(door)
    app = Starlette(
        routes=endpoints.routes(),
        exception_handlers={
            DeliveryRefused: endpoints.refused,
            HTTPException: endpoints.not_routed,
            ClientDisconnect: endpoints.gone,
            Exception: endpoints.bug,
        },
    )
    app.router.redirect_slashes = False
    return _as_sent(app)


def _as_sent(app: ASGIApp) -> ASGIApp:
    """Route by the path as it was sent: no two spellings of one path, of which a proxy's rules may know only one."""

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "path": scope["raw_path"].decode("latin-1")}, receive, send)

    return routed


def _refusal(error: DeliveryRefused, headers: Mapping[str, Any] | None = None) -> Response:
    return problem(error, {**(headers or {}), **({"Connection": "close"} if error.cause in _UNREAD else {})})
