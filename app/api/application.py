"""The rooms' front: every operation behind one table, and the framework behind that."""

from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from app.api import access_lines
from app.api.bodies import ASGI
from app.api.desk import Desk
from app.api.dispatch import Dispatcher
from app.api.document import openapi_document
from app.api.operation import PROBLEM, encode
from app.api.problems import plain_problem
from app.api.routes import OPERATIONS

CODES = {404: "not-found", 405: "method-not-allowed"}


def build(desk: Desk) -> ASGI:
    """The application that answers at a desk. Its requests come through a `Front`, which gives them their id."""
    dispatcher = Dispatcher((operation.application(desk) for operation in OPERATIONS), _Framework())
    return access_lines.AccessLines(dispatcher) if access_lines.are_wanted() else dispatcher


class _Framework(FastAPI):
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
    problem = plain_problem(status, CODES.get(status, "refused"), detail, request.state.request_id)
    return Response(encode(problem), status, headers, media_type=PROBLEM.decode())
