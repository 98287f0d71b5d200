"""The guard at every operation: who is it, and may they?"""

from app.api.bodies import Headers
from app.broker.keys import Doorkeeper
from app.domain.access import OPEN_HOUSE, Principal, Right
from app.domain.refusals import Forbidden, Unauthenticated

BEARER = b"bearer "
ELSEWHERE = (b"cross-site", b"same-site")


async def admit(doorkeeper: Doorkeeper | None, right: Right | None, name: str | None, headers: Headers) -> Principal:
    """Who is speaking, once it is sure that they hold the right on the name (None: on everything).

    Refuses with `Unauthenticated` or `Forbidden`. Where nobody needs a key, a request that a browser makes for
    some other site's page is refused all the same: that page would speak for whoever is looking at it.
    """
    if right is None:
        return OPEN_HOUSE
    principal = OPEN_HOUSE if doorkeeper is None else await doorkeeper.recognise(_secret(headers))
    if principal is OPEN_HOUSE and _is_from_elsewhere(headers):
        raise Forbidden("This server needs no API key, so pages of other sites may not use it.")
    allow(principal, right, name)
    return principal


def allow(principal: Principal, right: Right, name: str | None) -> None:
    """Refuse with `Forbidden` whoever does not hold the right on the name."""
    if not principal.grant.allows(right, name):
        where = f"queue {name}" if name else "all names"
        raise Forbidden(f"This API key does not hold the right {right} on {where}.")


def _secret(headers: Headers) -> str | None:
    """The key of the Authorization header, None without one. Refuses with `Unauthenticated` any other scheme."""
    for key, value in headers:
        if key == b"authorization":
            if value[: len(BEARER)].lower() != BEARER:
                raise Unauthenticated
            return value[len(BEARER) :].strip().decode("latin-1")
    return None


def _is_from_elsewhere(headers: Headers) -> bool:
    return any(key == b"sec-fetch-site" and value in ELSEWHERE for key, value in headers)
