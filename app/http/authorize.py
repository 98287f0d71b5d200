"""Authenticate the client of a request and check its right."""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from app.domain.access import ANONYMOUS, ANY_RIGHT, Principal, RequiredRight, Right
from app.domain.refusals import Forbidden, Unauthenticated
from app.http.local_access import LocalAccessPolicy
from app.http.request_headers import RequestHeaders

DEFAULT_RIGHT = Right.MANAGE
"""The right on all queues that a route needs if it is no operation."""

IS_AUTHENTICATED = "is_authenticated"
"""The entry of a request's state if its client has shown a valid key, or needs none. At the limit of connections, the server
keeps the connection of such a client."""

NOT_LISTABLE = (
    "This API key cannot list what it may browse: a list needs patterns that are names, or end with their only wildcard "
    "as in `orders.*`."
)


@dataclass(frozen=True, slots=True)
class Authorization:
    """The access check of one operation.

    `authenticate` returns the principal that has a credential, or refuses with `Unauthenticated`; None means that the server needs none.
    `local_access_policy` then decides which requests are accepted. `right` None means that every client may call it,
    `ANY_RIGHT` every client with a key. `kind` is what the operation is about: `queue` or `state`. With `lists_own` the
    right on a part of the names is enough.
    """

    authenticate: Callable[[Any], Awaitable[Principal]] | None
    right: RequiredRight
    local_access_policy: LocalAccessPolicy
    kind: str = "queue"
    lists_own: bool = False

    async def accept(
        self, credential: Any, name: str | None, headers: RequestHeaders, state: MutableMapping[str, Any]
    ) -> Principal:
        """Return the principal of a new request, who holds the right on the resource `name` (None: on all queues).

        Refuses with `Unauthenticated` or `Forbidden`. Sets `IS_AUTHENTICATED` in the state of the request, even if the right
        is missing, but not if the operation needs none.
        """
        if self.right is None:
            return ANONYMOUS
        principal = ANONYMOUS if self.authenticate is None else await self.authenticate(credential)
        if principal is ANONYMOUS and (violation := self.local_access_policy.violation(headers.values)):
            raise Forbidden(violation)
        state[IS_AUTHENTICATED] = True
        self._check_right(principal, name)
        return principal

    async def check(self, name: str | None, credential: Any) -> Principal:
        """Return the principal of a request that was accepted before, if it still holds the right on the resource `name`.

        Refuses with `Unauthenticated` or `Forbidden`.
        """
        if self.right is None:
            return ANONYMOUS
        principal = ANONYMOUS if self.authenticate is None else await self.authenticate(credential)
        self._check_right(principal, name)
        return principal

    def _check_right(self, principal: Principal, name: str | None) -> None:
        if self.right is None or self.right == ANY_RIGHT or principal.grant.allows(self.right, name):
            return
        if not (self.lists_own and self.right in principal.grant.rights):
            raise _lacks(self.right, "any name") if self.lists_own else _lacks(self.right, _where(name, self.kind))
        if not principal.grant.ranges(self.right):
            raise Forbidden(NOT_LISTABLE)


def authorize(principal: Principal, right: Right, name: str | None, kind: str = "queue") -> None:
    """Refuse with `Forbidden` a principal that lacks the right on the queue or other resource `name` (None: on all)."""
    if not principal.grant.allows(right, name):
        raise _lacks(right, _where(name, kind))


def _where(name: str | None, kind: str) -> str:
    return f"{kind} {name}" if name else "all queues"


def _lacks(right: Right, where: str) -> Forbidden:
    return Forbidden(f"This API key does not hold the right {right} on {where}.")


def bearer_token(headers: RequestHeaders) -> str | None:
    """Return the token of the Authorization header (RFC 6750, 2.1), None without that header.

    Refuses with `Unauthenticated` any other scheme, and two headers, because a proxy may have read the other one.
    """
    credentials = headers.values.get(b"authorization")
    if credentials is None:
        return None
    if b"authorization" in headers.repeated:
        raise Unauthenticated("A request has one Authorization header; this one has more.")
    scheme, space, token = credentials.partition(b" ")
    if scheme.lower() != b"bearer" or not space:
        raise Unauthenticated
    return token.strip().decode("latin-1")
