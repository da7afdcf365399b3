"""The front door: campaign prefixes come off here, and the routes that wait go past the router (DESIGN 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from litestar import Litestar

from cohortd.http import access, raw
from cohortd.http.body import Disconnected
from cohortd.http.compare import compare
from cohortd.http.problems import refusal_of
from cohortd.http.state import HttpState
from cohortd.http.verify import verify
from cohortd.service.waiters import Stopping

PREFIX: Final = "/campaigns/"
GYM_ROUTES: Final = ("/verify", "/compare", "/seed_session", "/reverify_mode", "/aggregate_metrics")
SCHEMA: Final = ("/schema", "/schema/openapi.json")
Handler = Callable[[HttpState, str, Any, Any, int | None], Awaitable[None]]
WAITING: Final[dict[str, Handler]] = {"/verify": verify, "/compare": compare}


class Front:
    """The ASGI application: Gym's routes serve a campaign under its prefix and the default one without.

    Litestar cannot route a path with parameters to a raw ASGI handler, and costs as much again as the hot route.
    """

    def __init__(self, app: Litestar, state: HttpState) -> None:
        self.app: Final = app
        self._state: Final = state

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        path = scope["path"]
        if path.startswith(PREFIX):
            campaign, slash, rest = path[len(PREFIX) :].partition("/")
            route = slash + rest.rstrip("/")
            if route in GYM_ROUTES:
                scope[access.CAMPAIGN] = campaign
                path = scope["path"] = route
        handler = WAITING.get(path) or WAITING.get(path.rstrip("/"))
        if path.startswith("/schema/") and path.rstrip("/") not in SCHEMA:
            await raw.reply_problem(send, "not_found", "There is nothing at this path.")  # not Litestar's own page
        elif handler is None or scope["type"] != "http":
            await self.app(scope, receive, send)
        elif self._state.settings.service.role == "judge":
            await raw.reply_problem(send, "not_found", "This process only judges. Send it to one that takes requests.")
        else:
            await self._wait(handler, scope, receive, send)

    async def _wait(self, handler: Handler, scope: Any, receive: Any, send: Any) -> None:
        """Run a route whose client may wait long: leave with the client, and close without a reply at the end (R26)."""
        try:
            campaign = access.check(scope, self._state, method="POST")
            if self._state.service.stopping:
                raise Stopping
            await handler(self._state, campaign, receive, send, access.content_length(scope))
        except Disconnected:
            return
        except Stopping:
            if self._state.settings.service.shutdown_reply == "close" and await raw.close_without_reply(scope, receive):
                return
            await raw.reply_problem(send, "shutting_down", "The service is stopping; nothing is lost.")
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  (every failure becomes a problem document)
            refusal = refusal_of(error)
            await raw.reply_problem(send, refusal.code, refusal.detail, allow="POST")
