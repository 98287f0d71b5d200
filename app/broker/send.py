"""Send: a message is in its queue, durably, before its sender hears so.

Crash windows: before the commit nothing was stored and the sender got no answer; after it the
message is there and a repeat is recognised by its Idempotency-Key or, where the queue looks for
duplicates, its message id. The wake-up that follows may be lost: receivers look again by themselves.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain, repeat

from app.broker.announce import announce_sent
from app.broker.broker import Broker
from app.broker.fullness import allow_more, full, how_many_fit
from app.broker.ports import Attempt, Once
from app.broker.present import where_present
from app.domain.message import Draft, Receipt
from app.domain.queue import Queue, allow_send
from app.domain.refusals import Refusal
from app.domain.sending import Letter, accept


async def send(broker: Broker, queue: Queue, letters: Sequence[Letter]) -> list[Receipt]:
    """Store all letters or none; receipts in order. Refuses as `admit` does."""

    async def store(present: Queue) -> list[Receipt]:
        drafts = await admit(broker, present, letters)
        receipts = await broker.store.send(drafts)
        announce_sent(broker, drafts, receipts)
        return receipts

    return await where_present(broker, queue, store, partial(broker.catalogue.named_for_send, letters=letters))


async def send_once(broker: Broker, name: str, letters: Sequence[Letter], attempt: Attempt) -> Once[list[Receipt]]:
    """`send` to the queue of this name, with effect only the first time the attempt is made.

    A repeat hears the first answer, also where its queue has since become full, closed to senders or gone.
    """

    async def store(present: Queue) -> Once[list[Receipt]]:
        drafts = await admit(broker, present, letters)
        once = await broker.store.send_once(drafts, attempt)
        if not once.replayed:
            announce_sent(broker, drafts, once.answer)
        return once

    look_up = partial(broker.catalogue.named_for_send, letters=letters)
    try:
        return await where_present(broker, await look_up(name), store, look_up)
    except Refusal:
        receipts = await broker.store.sent_before(attempt)
        if receipts is None:
            raise
        return Once(receipts, replayed=True)


async def send_each(broker: Broker, queue: Queue, letters: Sequence[Letter]) -> list[Receipt | Refusal]:
    """Store those letters that are admitted; each has its own receipt or refusal.

    Where there is room for some only, it is for the first of them. Refuses with `SendDisabled`.
    """

    async def store(present: Queue) -> list[Receipt | Refusal]:
        allow_send(present)
        accepted = [_accepted(broker, present, letter) for letter in letters]
        drafts = [one for one in accepted if isinstance(one, Draft)]
        fitting = drafts[: await how_many_fit(broker, present, len(drafts))]
        receipts = await broker.store.send(fitting) if fitting else []
        announce_sent(broker, fitting, receipts)
        answers = chain(receipts, repeat(full(present)))
        return [next(answers) if isinstance(one, Draft) else one for one in accepted]

    return await where_present(broker, queue, store, broker.catalogue.named_for_send)


async def post(broker: Broker, queue: Queue, letter: Letter) -> str:
    """Take a volatile letter: answered before it is stored (S1.8). Its message id."""
    (draft,) = await admit(broker, queue, [letter])
    broker.outbox.put(draft, queue.name)
    return draft.envelope.message_id


async def admit(broker: Broker, queue: Queue, letters: Sequence[Letter]) -> list[Draft]:
    """The drafts of letters that the queue takes now.

    Refuses with `SendDisabled`, `MessageTooLarge` or `QueueFull`.
    """
    allow_send(queue)
    drafts = [_draft(broker, queue, letter) for letter in letters]
    await allow_more(broker, queue, len(drafts))
    return drafts


def _draft(broker: Broker, queue: Queue, letter: Letter) -> Draft:
    return accept(letter, queue, letter.envelope.message_id or broker.new_id())


def _accepted(broker: Broker, queue: Queue, letter: Letter) -> Draft | Refusal:
    try:
        return _draft(broker, queue, letter)
    except Refusal as refusal:
        return refusal
