"""Changes of messages of many groups, some of which other transactions may hold.

All messages are tried in one transaction first. If a group is held, each group has a transaction of its own. So a held
group delays its own messages alone, and is waited for once, however many messages it has.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from app.store.shared.database import GroupInUse, SqlSession
from app.store.shared.groups import GroupKey

AnyGroup: TypeAlias = tuple[int, str | None]
"""A group, or with None the messages of a queue that have no group."""

Change: TypeAlias = Callable[[Sequence[int]], Awaitable[Iterable[int]]]
"""Changes the messages with these indexes in one transaction. Returns the indexes of those that it has changed. Raises
`GroupInUse` if a group of them is held."""


class HeldGroups:
    """The groups that a pass of a background loop has found held.

    The next pass leaves them out, so that their messages do not take the place of all others. The one after it tries
    them again.
    """

    def __init__(self) -> None:
        self._found: set[GroupKey] = set()

    def add(self, group: AnyGroup) -> None:
        """Leave out this group in the next pass."""
        queue_id, group_id = group
        if group_id is not None:
            self._found.add((queue_id, group_id))

    def take(self) -> list[GroupKey]:
        """Return the groups that this pass leaves out."""
        found, self._found = self._found, set()
        return sorted(found)


async def change_apart(
    session: SqlSession, messages: Mapping[int, tuple[int, int]], change: Change, held: HeldGroups
) -> set[int]:
    """Change these messages, but those of held groups. Return the indexes of those that have changed.

    `messages` has for each index the queue whose group the message leaves or enters, and its sequence number.
    """
    try:
        return set(await change(list(messages)))
    except GroupInUse:
        groups = await _by_group(session, messages)
    changed: set[int] = set()
    for group, indexes in groups.items():
        if len(groups) == 1:
            # This transaction has just waited for it.
            held.add(group)
            break
        try:
            changed.update(await change(indexes))
        except GroupInUse:
            held.add(group)
    return changed


async def _by_group(session: SqlSession, messages: Mapping[int, tuple[int, int]]) -> Mapping[AnyGroup, list[int]]:
    numbers = sorted({number for _, number in messages.values()})
    group_ids = {row[0]: row[1] for row in await session.fetch("group_ids", numbers=numbers)}
    groups: defaultdict[AnyGroup, list[int]] = defaultdict(list)
    for index, (queue_id, number) in messages.items():
        groups[queue_id, group_ids.get(number)].append(index)
    return groups
