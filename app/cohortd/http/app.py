"""The application: its routes, how errors are answered, and its schema."""

from __future__ import annotations

from litestar import Litestar
from litestar.datastructures import State
from litestar.openapi import OpenAPIConfig

from cohortd import __version__
from cohortd.http import compare, health, problems, schema, session, verify
from cohortd.http.state import HttpState


def create_app(state: HttpState) -> Litestar:
    """The routes over these parts of the service."""
    return Litestar(
        route_handlers=[
            verify.verify,
            compare.compare,
            session.seed_session,
            session.reverify_mode,
            session.aggregate_metrics,
            health.live,
            health.ready,
            health.judge,
            schema.openapi,
        ],
        state=State({"http": state}),
        exception_handlers={Exception: problems.handle},
        openapi_config=OpenAPIConfig(title="cohortd", version=__version__, path="/unused", enabled_endpoints=set()),
        request_max_body_size=None,
        logging_config=None,
    )
