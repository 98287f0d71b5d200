"""What the operations of one HTTP interface have in common: credentials, and the form of errors."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.domain.access import Principal, RequiredRight
from app.http.request_handler import ErrorResponse
from app.http.request_headers import RequestHeaders

Credential = TypeVar("Credential")


@dataclass(frozen=True, slots=True)
class Interface(Generic[Credential]):
    """How clients of an interface authenticate, and how it answers errors.

    `read_credential` reads the credential of a client from the headers of its request, and `authenticate` returns the
    principal that has it. Both refuse with `Unauthenticated`. `authenticate` None means that the server needs no credential.
    `error_response` gets a `Refusal`, a `BackendUnavailable` or an unexpected error, and the id of the request.
    """

    read_credential: Callable[[RequestHeaders], Credential]
    authenticate: Callable[[Credential], Awaitable[Principal]] | None
    error_response: ErrorResponse

    def credential_reader(self, right: RequiredRight) -> Callable[[RequestHeaders], Credential | None]:
        """Return the function that reads the credential of a request for this right. It returns None if none is needed."""
        return _read_none if right is None or self.authenticate is None else self.read_credential


def _read_none(_headers: RequestHeaders) -> None:
    """Return no credential."""
