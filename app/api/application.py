"""The rooms' front: every operation behind one table, and the framework behind that."""

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
    """The application that answers at a desk. Its requests come through a `RequestIdMiddleware`, which gives them their id."""
    dispatcher = Dispatcher((OperationHandler(operation, context) for operation in OPERATIONS), _FallbackApplication())
    return access_log.AccessLog(dispatcher) if access_log.is_enabled() else dispatcher


class _FallbackApplication(FastAPI):
    """What answers when no operation does: the document, and unknown paths.

    It holds no operation, because it reads a path otherwise: it takes an escaped slash for one that separates parts.
    """

    def __init__(self) -> None:
        super().__init__(openapi_url="/openapi.json", docs_url=None, redoc_url=None, redirect_slashes=False)
        self.add_exception_handler(HTTPException, _problem)

    def openapi(self) -> dict[str, Any]:
        """The document that is published."""
        return openapi_document()


async def _problem(request: Request, error: Exception) -> Response:
    """An unknown path or method as a problem document."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    detail = (
        f"There is nothing at {request.url.path}." if status == 404 else f"{request.method} is not among its methods."
    )
    problem = make_problem(status, FRAMEWORK_CODES.get(status, "refused"), detail, request.state.request_id)
    return Response(encode(problem), status, headers, media_type=PROBLEM.decode())
