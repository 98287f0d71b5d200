"""An operation among the routes of the application."""

from starlette.routing import Match, Route

from app.http.asgi import Scope
from app.http.operation_handler import OperationHandler


class OperationRoute(Route):
    """The route of an operation. `OperationIndex` finds it for a request."""

    def __init__(self, handler: OperationHandler, *, include_in_schema: bool = True) -> None:
        self.handler = handler
        operation = handler.operation
        super().__init__(
            operation.path,
            handler,
            methods=[operation.method],
            name=operation.name,
            include_in_schema=include_in_schema,
        )

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match nothing, because the framework's router reads an escaped slash as a separator."""
        return Match.NONE, {}
