"""The interface of the two protocols of AWS: each reads an action with its members, and writes answers and errors."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from app.http.asgi import Headers
from app.http.request_headers import RequestHeaders
from app.http.response import Response
from app.sqs.errors import AwsError
from app.sqs.shapes.members import AnswerStruct

MembersOf: TypeAlias = Callable[[type[msgspec.Struct]], bytes]


QUEUES = "sqs"
"""The name of the service of queues, as signatures have it."""
TOPICS = "sns"
"""The name of the service of topics."""


class NamedAction(msgspec.Struct, frozen=True):
    """The action of a service that a request names.

    `members` returns its members as JSON for the struct of that action.
    """

    service: str
    name: str
    members: MembersOf


class AwsProtocol(Protocol):
    """Reads requests and writes answers in one of the protocols of AWS."""

    def read(self, headers: RequestHeaders, raw: bytes, query: bytes) -> NamedAction:
        """Return the action of a request with this body and query string. Refuses with `InvalidRequest`."""
        ...

    def answer(self, action: NamedAction, answer: AnswerStruct, request_id: str) -> Response:
        """Return the answer of an action."""
        ...

    def error(self, service: str, error: AwsError, message: str, request_id: str) -> Response:
        """Return the answer to a refused request to a service."""
        ...


def request_id_header(request_id: str) -> Headers:
    """Return the header with the id of a request, which answers of both protocols have."""
    return ((b"x-amzn-requestid", request_id.encode()),)
