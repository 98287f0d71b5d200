"""Give back: free what was claimed for a receiver who has gone before it heard of it."""

from collections import Counter
from collections.abc import Sequence

from app.broker.broker import Broker
from app.domain.delivery import line_of
from app.domain.message import Message, MessageState
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
    freed = [move for move, effective in zip(moves, moved, strict=True) if effective]
    # Nobody waits for deferred messages, which are asked for by number.
    lines = Counter(line_of(move.queue_id, move.state) for move in freed if move.state is not MessageState.DEFERRED)
    for line, count in lines.items():
        broker.bells.ring(line, count)
