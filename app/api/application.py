"""The HTTP application: a dispatcher over every operation, with FastAPI as its fallback."""

from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from app.api.endpoints.routes import OPERATIONS
from app.api.http import access_log
from app.api.http.asgi import ASGI
from app.api.http.context import AppContext
from app.api.http.dispatch import Dispatcher
from app.api.http.operation_handler import OperationHandler
from app.api.http.problems import make_problem
from app.api.http.response import PROBLEM, encode
from app.api.openapi.document import openapi_document

FRAMEWORK_CODES = {404: "not-found", 405: "method-not-allowed"}


def build_application(context: AppContext) -> ASGI:
    """Return the application of a server. A `RequestIdMiddleware` must wrap it, because requests need their id."""
    dispatcher = Dispatcher((OperationHandler(operation, context) for operation in OPERATIONS), _FallbackApplication())
    return access_log.AccessLog(dispatcher) if access_log.is_enabled() else dispatcher


class _FallbackApplication(FastAPI):
    """Answer requests that no operation answers: the document, and unknown paths.

    It has no operations, because its router treats an escaped slash in a path as a separator.
    """

    def __init__(self) -> None:
        super().__init__(openapi_url="/openapi.json", docs_url=None, redoc_url=None, redirect_slashes=False)
        self.add_exception_handler(HTTPException, _problem)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document of this server."""
        return openapi_document()


async def _problem(request: Request, error: Exception) -> Response:
    """Answer an unknown path or method with a problem document."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    detail = (
        f"There is nothing at {request.url.path}." if status == 404 else f"{request.method} is not among its methods."
    )
    problem = make_problem(status, FRAMEWORK_CODES.get(status, "refused"), detail, request.state.request_id)
    return Response(encode(problem), status, headers, media_type=PROBLEM.decode())
