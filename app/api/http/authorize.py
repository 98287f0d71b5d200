"""The guard at every operation: who is it, and may they?"""

from dataclasses import dataclass

from app.api.http.asgi import Headers
from app.api.http.local_access import LocalAccessPolicy
from app.broker.keys import Authenticator
from app.domain.access import ANONYMOUS, Principal, Right
from app.domain.refusals import Forbidden, Unauthenticated

BEARER_PREFIX = b"bearer "


@dataclass(frozen=True, slots=True)
class Authorization:
    """Stands before one operation: who holds the right may call it (None: anyone may).

    `doorkeeper` None means that no key is needed; `local_access_policy` is what is then asked of a request.
    """

    authenticator: Authenticator | None
    right: Right | None
    local_access_policy: LocalAccessPolicy

    async def check(self, name: str | None, headers: Headers) -> Principal:
        """Who is speaking, once it is sure that they hold the right on the name (None: on everything).

        Refuses with `Unauthenticated` or `Forbidden`.
        """
        if self.right is None:
            return ANONYMOUS
        principal = (
            ANONYMOUS if self.authenticator is None else await self.authenticator.authenticate(bearer_token(headers))
        )
        if principal is ANONYMOUS and (violation := self.local_access_policy.violation(headers)):
            raise Forbidden(violation)
        authorize(principal, self.right, name)
        return principal


def authorize(principal: Principal, right: Right, name: str | None) -> None:
    """Refuse with `Forbidden` whoever does not hold the right on the name."""
    if not principal.grant.allows(right, name):
        where = f"queue {name}" if name else "all names"
        raise Forbidden(f"This API key does not hold the right {right} on {where}.")


def bearer_token(headers: Headers) -> str | None:
    """The token of the Authorization header (RFC 6750, 2.1), None without one.

    Refuses with `Unauthenticated` any other scheme, and two headers: another server on the way may go by the other one.
    """
    given = [value for name, value in headers if name == b"authorization"]
    if not given:
        return None
    if len(given) > 1:
        raise Unauthenticated("A request has one Authorization header; this one has more.")
    if given[0][: len(BEARER_PREFIX)].lower() != BEARER_PREFIX:
        raise Unauthenticated
    return given[0][len(BEARER_PREFIX) :].strip().decode("latin-1")
