"""The picture of a topic: the way of its messages through filters to queues, and on to those that these forward to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.broker.administration.queues import QueueWithCounts
from app.domain.queue import MAX_FORWARDING_HOPS
from app.domain.topic import Route


@dataclass(frozen=True, slots=True)
class Stop:
    """A queue on the way. `waiting` and `dead_lettered` are None for a queue that the visitor may not browse."""

    queue: str
    waiting: int | None
    dead_lettered: int | None


@dataclass(frozen=True, slots=True)
class Branch:
    """A subscription with its filter, the queues that its copies pass, and the queue that gets their dead letters."""

    subscription: str
    filter: str | None
    stops: Sequence[Stop]
    dead_letters: Stop | None


def branches(
    routes: Sequence[Route], queues: Mapping[str, QueueWithCounts], may_browse: Callable[[str], bool]
) -> list[Branch]:
    """Return a branch for each subscription. What lies behind a queue that the visitor may not browse is left out."""
    visible = {name: listed for name, listed in queues.items() if may_browse(name)}
    return [_branch(route, visible) for route in routes]


def _branch(route: Route, visible: Mapping[str, QueueWithCounts]) -> Branch:
    subscription = route.subscription
    stops = [_stop(subscription.settings.target_queue, visible)]
    last = visible.get(stops[0].queue)
    # A change between two reads of the queues could make a chain look longer than it may be.
    while last is not None and last.queue.settings.forward_to is not None and len(stops) <= MAX_FORWARDING_HOPS:
        stops.append(_stop(last.queue.settings.forward_to, visible))
        last = visible.get(stops[-1].queue)
    dead_letters = None if last is None else last.queue.settings.forward_dead_letters_to
    end = None if dead_letters is None else _stop(dead_letters, visible)
    return Branch(subscription.name, subscription.settings.filter, stops, end)


def _stop(name: str, visible: Mapping[str, QueueWithCounts]) -> Stop:
    listed = visible.get(name)
    if listed is None:
        return Stop(name, None, None)
    return Stop(name, listed.counts.available + listed.counts.blocked, listed.counts.dead_lettered)
