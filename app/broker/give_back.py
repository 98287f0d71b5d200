"""Give back: free what was claimed for a receiver who has gone before it heard of it."""

from collections.abc import Sequence

from app.broker.broker import Broker
from app.domain.message import Message
from app.domain.settlement import LockToken, Move, Outcome


async def give_back(broker: Broker, messages: Sequence[Message]) -> None:
    """Free these messages, uncounted and in their old place; whoever waits for such hears of it.

    A process that dies before has changed nothing: the messages come back when their locks run out.
    """
    moves = [
        Move(
            LockToken(message.sequence_number, message.lock_token),
            message.queue_id,
            Outcome.RELEASED,
            message.home_state,
        )
        for message in messages
        if message.lock_token is not None
    ]
    if moves:
        await broker.store.move(moves)
        broker.bells.ring(messages[0].queue_id, len(moves))
