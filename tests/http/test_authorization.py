"""The access check of one operation: whom it refuses, and what it says of the right."""

from __future__ import annotations

import pytest

from app.domain.access import Grant, Principal, Right
from app.domain.refusals import Forbidden
from app.http.authorize import Authorization
from app.http.local_access import LocalAccessPolicy
from app.http.request_headers import RequestHeaders

POLICY = LocalAccessPolicy(requires_local_host=False, requires_json=False, requires_admin_header=False)


def to_browse(rights: set[Right], *, lists_own: bool = False) -> Authorization:
    """The check of the right to browse for a client that holds these rights now."""

    async def authenticate(credential: str) -> Principal:
        return Principal(credential, Grant(frozenset(rights), ("orders",)))

    return Authorization(authenticate, Right.BROWSE, POLICY, lists_own=lists_own)


async def test_a_client_that_has_lost_its_right_since_it_was_accepted_is_refused() -> None:
    rights = {Right.BROWSE}
    authorization = to_browse(rights)
    assert await authorization.accept("client", "orders", RequestHeaders([]), {}) == await authorization.check(
        "orders", "client"
    )
    rights.remove(Right.BROWSE)
    with pytest.raises(Forbidden, match="does not hold the right browse on queue orders"):
        await authorization.check("orders", "client")


async def test_a_client_without_the_right_to_list_learns_which_right_it_lacks() -> None:
    with pytest.raises(Forbidden, match="does not hold the right browse on any name"):
        await to_browse({Right.SEND}, lists_own=True).accept("client", None, RequestHeaders([]), {})
