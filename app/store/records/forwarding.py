"""The check of settings that forward messages, in the transaction that stores them."""

from collections import deque
from collections.abc import Mapping

from app.domain.queue import MAX_FORWARDING_HOPS, Queue, QueueSettings
from app.domain.refusals import ForwardingCycle, ForwardingTooLong, invalid_at
from app.store.records import rows
from app.store.records.database import SqlSession

FORWARDS: Mapping[str, str] = {"forward_to": "forwards to", "forward_dead_letters_to": "forwards dead letters to"}
"""What a queue does with each of these settings."""


async def check_forwarding(session: SqlSession, name: str, settings: QueueSettings, before: QueueSettings) -> None:
    """Refuse with `InvalidRequest` a target that does not exist, with `ForwardingCycle` a way back to the queue of this
    name, and with `ForwardingTooLong` too many hops. Unchanged settings are not checked.

    These checks run one at a time, so two changes cannot make a cycle together. A queue before this one may make a way
    too long; what is sent there is refused.
    """
    changed = [setting for setting in FORWARDS if getattr(settings, setting) not in (None, getattr(before, setting))]
    if not changed:
        return
    await session.fetch("serialize_queue_creation")
    ways = deque(_ways(settings, f"Queue {name}", 1))
    targets: dict[str, Queue | None] = {}
    while ways:
        target, way, hops = ways.popleft()
        if target == name:
            raise ForwardingCycle(f"{way}.")
        if hops > MAX_FORWARDING_HOPS:
            raise ForwardingTooLong(f"A message is forwarded at most {MAX_FORWARDING_HOPS} times: {way}.")
        if target not in targets:
            targets[target] = queue = await _find(session, target)
            if queue is not None:
                ways.extend(_ways(queue.settings, way, hops + 1))
    for setting in changed:
        if targets[getattr(settings, setting)] is None:
            raise invalid_at(f"/{setting}", f"There is no queue named {getattr(settings, setting)}.")


def _ways(settings: QueueSettings, way: str, hops: int) -> list[tuple[str, str, int]]:
    """Return each queue to which these settings forward, with the way to it and its hops."""
    forwarding = [(verb, getattr(settings, setting)) for setting, verb in FORWARDS.items()]
    return [(target, f"{way} {verb} {target}", hops) for verb, target in forwarding if target is not None]


async def _find(session: SqlSession, name: str) -> Queue | None:
    found = await session.fetch("find_queue", name=name)
    return rows.queue(found[0]) if found else None
