"""The steps of transactions on MariaDB and MySQL."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.broker.ports import Extension
from app.domain.refusals import MessageTooLarge
from app.runtime.clock import Clock
from app.store.mysql import settling
from app.store.mysql.session import MysqlSession, StatementTooLarge


async def add_members(session: MysqlSession, members: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows of members. Refuses with `MessageTooLarge` if one is larger than the server accepts."""
    try:
        for insert in session.render_inserts("add_member", members):
            await session.execute(insert)
    except StatementTooLarge as error:
        raise MessageTooLarge(f"The database accepts at most {error.largest} bytes at a time.") from error


async def extend(session: MysqlSession, extensions: Sequence[Extension], clock: Clock) -> list[bool]:
    """Extend locks. Return whether each fence held."""
    extended = await settling.extend(session, clock, extensions, session.execute)
    return [lock is not None for lock in extended]
