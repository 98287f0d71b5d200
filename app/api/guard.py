"""The guard at every operation: who is it, and may they?"""

from app.broker.keys import Doorkeeper
from app.domain.access import OPEN_HOUSE, Principal, Right
from app.domain.refusals import Forbidden, Unauthenticated

BEARER = b"bearer "


async def admit(
    doorkeeper: Doorkeeper | None, right: Right | None, name: str | None, headers: list[tuple[bytes, bytes]]
) -> Principal:
    """Who is speaking, once it is sure that they hold the right on the name (None: on everything).

    Without a doorkeeper the house is open. Refuses with `Unauthenticated` or `Forbidden`.
    """
    if doorkeeper is None or right is None:
        return OPEN_HOUSE
    principal = await doorkeeper.recognise(_secret(headers))
    if not principal.grant.allows(right, name):
        where = f"queue {name}" if name else "all names"
        raise Forbidden(f"This API key does not hold the right {right} on {where}.")
    return principal


def _secret(headers: list[tuple[bytes, bytes]]) -> str | None:
    for key, value in headers:
        if key == b"authorization":
            if value[: len(BEARER)].lower() != BEARER:
                raise Unauthenticated
            return value[len(BEARER) :].strip().decode("latin-1")
    return None
