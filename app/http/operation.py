"""The declaration of one HTTP operation."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum, auto
from typing import Any, Concatenate, ParamSpec, TypeAlias

import msgspec

from app.domain.access import RequiredRight
from app.domain.refusals import BackendUnavailable, KeyReused, PreconditionFailed, Refusal, RequestInProgress
from app.http.context import AppContext
from app.http.local_access import LOCAL_ADMIN, LocalAccessPolicy
from app.http.request import Request
from app.http.response import JSON, Response

Endpoint: TypeAlias = Callable[[Request[Any]], Awaitable[Response]]
Refused: TypeAlias = Refusal | BackendUnavailable
Declared = ParamSpec("Declared")

REFUSALS_OF_HEADERS: Mapping[str, tuple[type[Refused], ...]] = {
    "Idempotency-Key": (KeyReused, RequestInProgress),
    "If-Match": (PreconditionFailed,),
}
"""What an operation refuses because it reads a header."""


RESOURCES = {"queue": "queue", "topic": "topic", "key": "state"}
"""The path parameters that name a resource, with the kind of the resource. Patterns of rights match these names."""


class EmptyBody(Enum):
    """What a client means by an empty body, or by `null`, where an operation takes an object."""

    USUAL = auto()
    """Every default. The document says that the body is optional."""
    ACCEPTED = auto()
    """Every default. The document says that the body is required, so that generated clients take it as an argument."""
    REFUSED = auto()
    """Probably nothing: a file that is missing, or a variable that is not set."""


@dataclass(frozen=True, slots=True)
class Operation:
    """The declaration of one operation: it drives the requests to it and its part of the OpenAPI document.

    `right` None means that no API key is needed, `ANY_RIGHT` that any API key is enough. `responses` maps
    a status to the struct of its body: None for no body, `bytes` for bytes of any type. `body` None means that the operation has no body, `bytes` that it accepts any content
    type. `refusals` are its own: others follow from `headers`, and `COMMON_CODES` has those of every operation. `query` is the struct of its query parameters; `headers` are the request headers that it reads. Other parameters, and headers that would change what it does, are refused unless it `is_tolerant`.
    `etag_statuses` are the statuses whose answers have an ETag, and `has_location` says that those with 201 name what was
    created. `request_media_type` and `response_media_type` are
    the media types of the body and of the answers. `example` is one of the body.
    `answer_bytes` are the bytes that an answer may have: they are reserved while it is read. 0 reserves none, because
    answers are small, or because the verb reserves what it reads. `empty_body` says what an empty JSON
    body means. `lists_own` means that a key lists those names that it has the right on.
    """

    endpoint: Endpoint
    method: str
    path: str
    _: KW_ONLY
    right: RequiredRight
    tag: str
    responses: Mapping[int, Any]
    body: Any = None
    refusals: tuple[type[Refused], ...] = ()
    query: type[msgspec.Struct] | None = None
    headers: tuple[str, ...] = ()
    etag_statuses: tuple[int, ...] = ()
    has_location: bool = False
    request_media_type: bytes = JSON
    response_media_type: bytes = JSON
    example: Mapping[str, Any] | None = None
    answer_bytes: int = 0
    empty_body: EmptyBody = EmptyBody.ACCEPTED
    lists_own: bool = False
    is_tolerant: bool = False

    @property
    def name(self) -> str:
        """The operation id, which is the name of the function."""
        return self.endpoint.__name__

    @property
    def name_parameter(self) -> str | None:
        """The path parameter that names the resource of the operation, None if it is not about one."""
        return next((name for name in RESOURCES if f"{{{name}}}" in self.path), None)

    @property
    def kind(self) -> str:
        """The kind of the resource that the operation is about."""
        return RESOURCES[self.name_parameter or "queue"]

    @property
    def problems(self) -> frozenset[type[Refused]]:
        """The refusals of the operation, without those of every operation."""
        of_headers = (kind for name in self.headers for kind in REFUSALS_OF_HEADERS.get(name, ()))
        return frozenset((*self.refusals, *of_headers))

    def local_access_policy(self, context: AppContext) -> LocalAccessPolicy:
        """Return the checks of a request where the server needs no API key."""
        requires_json = self.body not in (None, bytes)
        return LocalAccessPolicy(
            context.is_loopback, requires_json, LOCAL_ADMIN in self.headers, context.allowed_origins
        )


def _declaring(
    declaration: Callable[Concatenate[Endpoint, Declared], Operation],
) -> Callable[Declared, Callable[[Endpoint], Operation]]:
    """Return the decorator of endpoints that takes the arguments of the declaration but the first."""

    def decorator(*arguments: Declared.args, **options: Declared.kwargs) -> Callable[[Endpoint], Operation]:
        return lambda endpoint: declaration(endpoint, *arguments, **options)

    return decorator


operation = _declaring(Operation)
"""Declare an endpoint. `Operation` describes the arguments, of which all after the path are given by name."""
