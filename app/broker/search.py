"""Search: claim the next messages that a filter lets through, looking along the order of delivery.

Crash window: what was claimed in the looks before is locked and, if nobody hears of it, comes back
when its locks run out.
"""

from asyncio import CancelledError
from collections.abc import AsyncIterator
from dataclasses import replace

from app.broker.broker import Broker
from app.broker.filters import Filter
from app.broker.give_back import give_back
from app.broker.ports import Store
from app.domain.delivery import AHEAD_OF_ALL, Claim, place_in_order
from app.domain.message import Message
from app.domain.refusals import StoreUnavailable

LARGEST_LOOK = 500
"""Messages without their bodies that are read at a time."""


async def claim_matching(broker: Broker, claim: Claim, matching: Filter) -> list[Message]:
    """The next messages that match, in order; none only where others hold everything that does.

    What was claimed is answered although a later look fails, and given back where the caller goes meanwhile.
    """
    taken: list[Message] = []
    try:
        async for matches in _matches(broker.store, claim, matching):
            # All of them are asked for, so that one which somebody else was faster with makes room for the next.
            missing = replace(claim, most=claim.most - len(taken))
            taken += await broker.store.claim_these(missing, matches)
            if len(taken) == claim.most:
                break
    except StoreUnavailable:
        if not taken:
            raise
    except CancelledError:
        await give_back(broker, taken)
        raise
    return taken


async def _matches(store: Store, claim: Claim, matching: Filter) -> AsyncIterator[list[int]]:
    """The numbers of what matches, a look at a time, from the front of the queue to its end."""
    after = AHEAD_OF_ALL
    while True:
        seen = await store.candidates(claim.queue_id, claim.source, after, LARGEST_LOOK)
        if matches := [one.sequence_number for one in await matching.select(seen)]:
            yield matches
        if len(seen) < LARGEST_LOOK:
            return
        after = place_in_order(seen[-1])
