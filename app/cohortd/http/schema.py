"""`GET /schema`: the OpenAPI document."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get

from cohortd.http.replies import encode


@get("/schema", include_in_schema=False, sync_to_thread=False)
def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The OpenAPI 3.1 document of this service."""
    return Response(encode(request.app.openapi_schema.to_schema()), media_type="application/json")
