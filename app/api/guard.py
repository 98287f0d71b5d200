"""The guard at every operation: who is it, and may they?"""

from dataclasses import dataclass

from app.api.bodies import Headers
from app.api.open_access import OpenAccess
from app.broker.keys import Doorkeeper
from app.domain.access import OPEN_HOUSE, Principal, Right
from app.domain.refusals import Forbidden, Unauthenticated

BEARER = b"bearer "


@dataclass(frozen=True, slots=True)
class Guard:
    """Stands before one operation: who holds the right may call it (None: anyone may).

    `doorkeeper` None means that no key is needed; `open_access` is what is then asked of a request.
    """

    doorkeeper: Doorkeeper | None
    right: Right | None
    open_access: OpenAccess

    async def admit(self, name: str | None, headers: Headers) -> Principal:
        """Who is speaking, once it is sure that they hold the right on the name (None: on everything).

        Refuses with `Unauthenticated` or `Forbidden`.
        """
        if self.right is None:
            return OPEN_HOUSE
        principal = OPEN_HOUSE if self.doorkeeper is None else await self.doorkeeper.recognise(bearer(headers))
        if principal is OPEN_HOUSE and (objection := self.open_access.objection(headers)):
            raise Forbidden(objection)
        allow(principal, self.right, name)
        return principal


def allow(principal: Principal, right: Right, name: str | None) -> None:
    """Refuse with `Forbidden` whoever does not hold the right on the name."""
    if not principal.grant.allows(right, name):
        where = f"queue {name}" if name else "all names"
        raise Forbidden(f"This API key does not hold the right {right} on {where}.")


def bearer(headers: Headers) -> str | None:
    """The token of the Authorization header (RFC 6750, 2.1), None without one.

    Refuses with `Unauthenticated` any other scheme, and two headers: another server on the way may go by the other one.
    """
    given = [value for name, value in headers if name == b"authorization"]
    if not given:
        return None
    if len(given) > 1:
        raise Unauthenticated("A request has one Authorization header; this one has more.")
    if given[0][: len(BEARER)].lower() != BEARER:
        raise Unauthenticated
    return given[0][len(BEARER) :].strip().decode("latin-1")
