"""The application: its routes, how errors are answered, and its schema."""

from __future__ import annotations

from litestar import Litestar, MediaType
from litestar.datastructures import State
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from cohortd import __version__
from cohortd.http import health, metrics, problems, session
from cohortd.http.front import Front
from cohortd.http.state import HttpState


def create_app(state: HttpState) -> Front:
    """The routes over these parts of the service."""
    app = Litestar(
        route_handlers=[
            session.seed_session,
            session.reverify_mode,
            session.aggregate_metrics,
            health.live,
            health.ready,
            health.judge,
            metrics.metrics,
        ],
        state=State({"http": state}),
        exception_handlers={Exception: problems.handle},
        openapi_config=OpenAPIConfig(
            title="cohortd",
            version=__version__,
            path="/schema",
            render_plugins=[JsonRenderPlugin(path="/", media_type=MediaType.JSON)],
        ),
        request_max_body_size=None,
        logging_config=None,
    )
    return Front(app, state)
