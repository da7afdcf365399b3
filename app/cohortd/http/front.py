"""The front door: campaign prefixes come off here, and the hot route goes past the router (DESIGN 3)."""

from __future__ import annotations

from typing import Any, Final

from litestar import Litestar

from cohortd.http.access import CAMPAIGN
from cohortd.http.state import HttpState
from cohortd.http.verify import verify

PREFIX: Final = "/campaigns/"
GYM_ROUTES: Final = ("/verify", "/compare", "/seed_session", "/reverify_mode", "/aggregate_metrics")


class Front:
    """The ASGI application: Gym's routes serve a campaign under its prefix and the default one without."""

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
                scope[CAMPAIGN] = campaign
                path = scope["path"] = route
        if scope["type"] == "http" and (path == "/verify" or path.rstrip("/") == "/verify"):
            await verify(self._state, scope, receive, send)
        else:
            await self.app(scope, receive, send)
