"""Give back: free what was claimed for a receiver who has gone before it heard of it."""

from collections.abc import Sequence

from app.broker.announce import announce_moved
from app.broker.broker import Broker
from app.domain.message import Message
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import given_back


async def give_back(broker: Broker, messages: Sequence[Message]) -> None:
    """Free these messages, uncounted and in their old place; whoever waits for such hears of it.

    What the store cannot free comes back when its lock runs out, as it does where the process dies before.
    """
    moves = [given_back(message) for message in messages if message.lock_token is not None]
    try:
        moved = await broker.store.move(moves) if moves else []
    except StoreUnavailable:
        return
    announce_moved(broker, moves, moved)
