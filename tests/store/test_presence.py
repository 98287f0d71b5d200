"""The lock of those who serve a database: refused, held, lost and taken again, whatever the engine."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.refusals import StoreUnavailable
from app.store.database import Work
from app.store.presence import DatabaseInUse, Presence


class Connection:
    """A connection that takes the lock where the server lets it."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self.is_whole = True
        self.is_open = True
        self.has_left = False

    async def fetch(self, name: str, /, **_values: Any) -> Sequence[Sequence[Any]]:
        self._server.asked.append(name)
        await asyncio.sleep(0)
        if self._server.is_away:
            raise StoreUnavailable("The server is away.")
        return [(not self._server.is_taken,)]

    async def change(self, _name: str, /, **_values: Any) -> int:
        raise NotImplementedError

    async def transact(self, work: Work[Any]) -> Any:
        return await work(self)

    async def leave(self) -> None:
        self.has_left = True

    def cut(self) -> None:
        self.is_open = False


class Server:
    """Makes connections; somebody else may have the lock, or the server may be away."""

    def __init__(self) -> None:
        self.is_taken = False
        self.is_away = False
        self.asked: list[str] = []
        self.connections: list[Connection] = []

    async def connect(self) -> Connection:
        self.connections.append(Connection(self))
        return self.connections[-1]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def presence(server: Server) -> Presence:
    return Presence(server.connect)


async def test_the_lock_is_held_by_one_connection_as_long_as_that_is_whole(server: Server, presence: Presence) -> None:
    await presence.take("claim_alone")
    await presence.keep()
    assert server.asked == ["claim_alone"]
    assert [connection.is_open for connection in server.connections] == [True]


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ("claim_alone", "Another process serves this database, and this one has no Redis."),
        ("claim_shared", "A process without Redis serves this database."),
    ],
)
async def test_a_lock_that_another_process_has_is_refused_and_not_asked_for_again(
    server: Server, presence: Presence, claim: str, reason: str
) -> None:
    server.is_taken = True
    with pytest.raises(DatabaseInUse, match=reason):
        await presence.take(claim)
    await presence.keep()
    assert server.asked == [claim]
    assert not server.connections[0].is_open


async def test_a_lock_whose_connection_was_lost_is_taken_again_once(server: Server, presence: Presence) -> None:
    await presence.take("claim_shared")
    server.connections[0].is_whole = False
    await asyncio.gather(presence.keep(), presence.keep())
    assert server.asked == ["claim_shared"] * 2
    assert [connection.is_open for connection in server.connections] == [False, True]


async def test_the_store_is_unavailable_until_a_faster_process_is_gone(server: Server, presence: Presence) -> None:
    await presence.take("claim_alone")
    server.connections[0].is_whole = False
    server.is_taken = True
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="Another process serves this database"):
            await presence.keep()
    server.is_taken = False
    await presence.keep()
    assert [connection.is_open for connection in server.connections] == [False, False, False, True]


async def test_a_connection_on_which_the_lock_cannot_be_asked_for_is_closed(server: Server, presence: Presence) -> None:
    server.is_away = True
    with pytest.raises(StoreUnavailable, match="away"):
        await presence.take("claim_alone")
    assert not server.connections[0].is_open


@pytest.mark.parametrize("is_whole", [True, False])
async def test_leaving_says_goodbye_on_a_whole_connection_and_takes_no_lock_again(
    server: Server, presence: Presence, is_whole: bool
) -> None:
    await presence.take("claim_alone")
    (connection,) = server.connections
    connection.is_whole = is_whole
    await presence.leave()
    await presence.keep()
    assert (connection.has_left, connection.is_open) == (is_whole, False)
    assert server.asked == ["claim_alone"]


async def test_leaving_without_a_lock_changes_nothing(server: Server, presence: Presence) -> None:
    await presence.leave()
    assert server.connections == []
