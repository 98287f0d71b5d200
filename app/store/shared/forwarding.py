"""The check of settings that forward messages, in the transaction that stores them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.queue import LEVEL_OF_SETTING, MAX_FORWARDING_HOPS, QueueSettings
from app.domain.refusals import ForwardingCycle, ForwardingTooLong, invalid_at
from app.store.shared.database import SqlSession
from app.store.shared.json_columns import read_settings

FORWARDS: Mapping[str, str] = {"forward_to": "forwards to", "forward_dead_letters_to": "forwards dead letters to"}
"""What a queue does with each of these settings."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A queue forwards to another one."""

    source: str
    verb: str
    target: str


async def check_forwarding(session: SqlSession, name: str, settings: QueueSettings, before: QueueSettings) -> None:
    """Refuse with `InvalidRequest` a target that does not exist, with `ForwardingCycle` a way back to the queue of this
    name, and with `ForwardingTooLong` too many hops of a way over this queue, even if the way begins at another one.
    Unchanged settings are not checked.

    These checks run one at a time, so changes cannot make a cycle or too many hops together.
    """
    changed = [setting for setting in FORWARDS if getattr(settings, setting) not in (None, getattr(before, setting))]
    if not changed:
        return
    await session.fetch("serialize_queue_creation")
    hops = await _read_hops(session, name, settings)
    after = _longest_way_from(name, hops)
    if after[-1].target == name:
        raise ForwardingCycle(f"{_text(after)}.")
    way = _longest_way_to(name, hops) + after
    if len(way) > MAX_FORWARDING_HOPS:
        raise ForwardingTooLong(f"A message is forwarded at most {MAX_FORWARDING_HOPS} times: {_text(way)}.")
    for setting in changed:
        if not await session.fetch("find_queue", name=getattr(settings, setting)):
            raise invalid_at(f"/{setting}", f"There is no queue named {getattr(settings, setting)}.")


async def _read_hops(session: SqlSession, name: str, settings: QueueSettings) -> list[Hop]:
    """Return the hops of all queues, with these settings for the queue of this name."""
    level = min(LEVEL_OF_SETTING[setting] for setting in FORWARDS)
    found = await session.fetch("forwarding_queues", level=level)
    settings_of = {source: read_settings(stored) for source, stored in found} | {name: settings}
    return [
        Hop(source, verb, target)
        for source, its_settings in settings_of.items()
        for setting, verb in FORWARDS.items()
        if (target := getattr(its_settings, setting)) is not None
    ]


def _longest_way_from(name: str, hops: Sequence[Hop]) -> list[Hop]:
    """Return the way from a queue with the most hops, up to one more than are allowed. A way back to it is preferred."""
    by_source: defaultdict[str, list[Hop]] = defaultdict(list)
    for hop in hops:
        by_source[hop.source].append(hop)
    longest: list[Hop] = []
    ways = {name: longest}
    while ways and len(longest) <= MAX_FORWARDING_HOPS:
        ways = {hop.target: [*way, hop] for last, way in ways.items() for hop in by_source[last]}
        if name in ways:
            return ways[name]
        longest = next(iter(ways.values()), longest)
    return longest


def _longest_way_to(name: str, hops: Sequence[Hop]) -> list[Hop]:
    """Return the way to a queue with the most hops, up to one more than are allowed."""
    reverse = [Hop(hop.target, hop.verb, hop.source) for hop in hops]
    return [Hop(hop.target, hop.verb, hop.source) for hop in reversed(_longest_way_from(name, reverse))]


def _text(way: Sequence[Hop]) -> str:
    return f"Queue {way[0].source}" + "".join(f" {hop.verb} {hop.target}" for hop in way)
