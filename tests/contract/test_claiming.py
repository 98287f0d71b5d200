"""A claim locks the next messages in order for one receiver, and nobody else gets them meanwhile."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import compress

import pytest

from app.broker.ports import Attempt, Store
from app.domain.delivery import AHEAD_OF_ALL
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.settlement import SECRET_BYTES, Move, Outcome
from tests.bounds import bounded
from tests.contract.subject import (
    LOCK,
    Subject,
    abandonment,
    bodies,
    claim,
    completion,
    draft,
    is_close,
    numbers,
    token,
)
from tests.servers import GLANCE, PATIENCE


@pytest.mark.behaviour("S2.2", "S2.12", "S3.14", "S0.3")
async def test_a_claimed_message_carries_its_lock(subject: Subject, queue: Queue) -> None:
    (number,) = await subject.send(queue, b"body")
    now = await subject.store.now()
    (message,) = await subject.claim(queue, receiver_id="worker 7", lock_duration=MINUTE)
    assert message.sequence_number == number
    assert (message.state, message.home_state) == (MessageState.LOCKED, MessageState.AVAILABLE)
    assert message.lock_token is not None
    assert len(message.lock_token) == SECRET_BYTES
    assert is_close(message.locked_until, now + MINUTE)
    assert is_close(message.read_at, now)
    assert is_close(message.last_delivered_at, now)
    assert (message.lock_generation, message.receiver_id) == (0, "worker 7")
    assert (message.delivery_count, message.failure_count) == (1, 0)


@pytest.mark.behaviour("S3.13", "S3.16")
async def test_a_locked_message_is_hidden_and_others_come_instead(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, b"first", b"second", b"third")
    assert bodies(await subject.claim(queue, 1)) == [b"first"]
    assert bodies(await subject.claim(queue, 1)) == [b"second"]
    assert bodies(await subject.claim(queue)) == [b"third"]
    assert await subject.claim(queue) == []


async def test_a_claim_takes_at_most_what_it_asks_for(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, *(b"%d" % place for place in range(7)))
    assert [len(await subject.claim(queue, most)) for most in (3, 100, 1)] == [3, 4, 0]


async def test_every_claim_gets_tokens_of_its_own(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, *[b"body"] * 20)
    first = await subject.claim(queue)
    await subject.store.move([abandonment(message) for message in first])
    second = await subject.claim(queue)
    assert len({message.lock_token for message in first + second}) == 40
    assert {message.delivery_count for message in second} == {2}


async def test_only_what_is_available_is_claimed(subject: Subject, queue: Queue) -> None:
    set_aside = await subject.locked(queue)
    await subject.store.move([abandonment(set_aside, outcome=Outcome.DEFERRED, state=MessageState.DEFERRED)])
    await subject.send(queue, b"scheduled", delay=10 * SECOND)
    await subject.send(queue, b"available")
    await subject.pass_time(20)
    assert bodies(await subject.claim(queue)) == [b"available"]


async def test_an_expired_message_is_not_claimed(subject: Subject, queue: Queue) -> None:
    await subject.store.send([draft(queue, b"short", ttl=10 * SECOND), draft(queue, b"long", ttl=MINUTE)])
    await subject.pass_time(11)
    assert bodies(await subject.claim(queue)) == [b"long"]


@pytest.mark.parametrize("way_to_claim", ["claim", "claim_these", "claim_once", "filter"])
async def test_a_clock_that_is_set_back_hides_no_available_message(
    subject: Subject, queue: Queue, way_to_claim: str
) -> None:
    (number,) = await subject.send(queue, b"body")
    await subject.pass_time(-60)
    store, wish = subject.store, claim(queue)
    match way_to_claim:
        case "claim":
            found = await store.claim(wish)
        case "claim_these":
            found = await store.claim_these(wish, [number])
        case "claim_once":
            found = (await store.claim_once(wish, Attempt(b"k" * 32, b"f" * 32, HOUR))).answer
        case _:
            seen = await store.candidates(queue.id, MessageState.AVAILABLE, AHEAD_OF_ALL, 10)
            found = await store.claim_these(wish, [one.sequence_number for one in seen])
    assert bodies(found) == [b"body"]


@pytest.mark.behaviour("S3.19")
async def test_dead_letters_are_claimed_by_number_and_return_there(subject: Subject, queue: Queue) -> None:
    sent = await subject.send(queue, b"low", priority=0)
    sent += await subject.send(queue, b"high", priority=9, ttl=10 * SECOND)
    moves = [
        abandonment(message, state=MessageState.DEAD_LETTERED, outcome=Outcome.DEAD_LETTERED, dead_letter_reason="why")
        for message in await subject.claim(queue)
    ]
    assert await subject.store.move(moves) == [True, True]
    await subject.pass_time(20)
    assert await subject.claim(queue) == []
    first = await subject.claim(queue, 1, source=MessageState.DEAD_LETTERED)
    second = await subject.claim(queue, source=MessageState.DEAD_LETTERED)
    assert numbers(first + second) == sorted(sent)
    assert {message.home_state for message in first + second} == {MessageState.DEAD_LETTERED}
    assert {message.dead_letter_reason for message in first + second} == {"why"}
    assert await subject.claim(queue, source=MessageState.DEAD_LETTERED) == []


async def test_first_and_last_delivery_are_noted(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.pass_time(20)
    assert await subject.store.move([abandonment(message)]) == [True]
    (again,) = await subject.claim(queue)
    await subject.store.remove([completion(queue, again)])
    ((first, last),) = await subject.archived(message.sequence_number, "first_delivered_at", "last_delivered_at")
    assert last == again.last_delivered_at
    assert is_close(first, last - 20 * SECOND)


# ---- chosen by number ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S3.25")
async def test_chosen_messages_come_in_the_order_asked_for(subject: Subject, queue: Queue) -> None:
    sent = await subject.send(queue, b"a", b"b", b"c", b"d")
    await subject.store.move(
        [abandonment(m, outcome=Outcome.DEFERRED, state=MessageState.DEFERRED) for m in await subject.claim(queue)]
    )
    deferred = claim(queue, 3, source=MessageState.DEFERRED)
    received = await subject.store.claim_these(deferred, [sent[2], sent[0]])
    assert bodies(received) == [b"c", b"a"]
    assert {(message.home_state, message.delivery_count) for message in received} == {(MessageState.DEFERRED, 2)}
    assert len({message.lock_token for message in received}) == 2
    assert bodies(await subject.store.claim_these(deferred, sent)) == [b"b", b"d"]


async def test_what_is_not_there_is_left_out_of_the_chosen(subject: Subject, queue: Queue) -> None:
    other = await subject.queue()
    available, locked, short = await subject.send(queue, b"available", b"locked", b"short")
    (elsewhere,) = await subject.send(other, b"elsewhere")
    (late,) = await subject.send(queue, b"late", delay=HOUR)
    (expired,) = await subject.send(queue, b"expired", ttl=SECOND)
    await subject.store.claim_these(claim(queue), [locked])
    await subject.pass_time(2)
    chosen = [10**15, elsewhere, short, late, expired, locked, available, available]
    assert bodies(await subject.store.claim_these(claim(queue), chosen)) == [b"short", b"available"]
    assert await subject.store.claim_these(claim(queue), []) == []


async def test_the_chosen_are_at_most_what_the_claim_asks_for(subject: Subject, queue: Queue) -> None:
    first, *rest = await subject.send(queue, b"a", b"b", b"c")
    await subject.store.claim_these(claim(queue), [first])
    assert bodies(await subject.store.claim_these(claim(queue, 1), [first, *rest])) == [b"b"]


# ---- side by side ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S2.25", "S3.13")
async def test_receivers_side_by_side_never_hold_the_same_message(
    subject: Subject, stores: list[Store], queue: Queue
) -> None:
    sent = await subject.send(queue, *(b"%d" % place for place in range(300)))
    received: list[Message] = []

    async def receive(place: int) -> None:
        for _ in bounded("a claim finds nothing", len(sent) + 1):
            messages = await stores[place % 2].claim(claim(queue, 1 + place % 7))
            if not messages:
                break
            received.extend(messages)

    await asyncio.gather(*(receive(place) for place in range(64)))
    # A claim may come back empty while others hold what it looked at; another look finds the rest.
    received.extend(await subject.claim(queue, 1000))
    assert Counter(numbers(received)) == Counter(sent)
    assert len({message.lock_token for message in received}) == 300


async def test_claims_of_several_queues_at_once_keep_apart(subject: Subject, stores: list[Store]) -> None:
    queues = [await subject.queue() for _ in range(8)]
    for queue in queues:
        await subject.send(queue, *(b"%d" % queue.id for _ in range(10)))
    claims = [(queue, stores[place % 2].claim(claim(queue, 2))) for place in range(3) for queue in queues]
    answers = await asyncio.gather(*(answer for _, answer in claims))
    for (queue, _), messages in zip(claims, answers, strict=True):
        assert {message.queue_id for message in messages} <= {queue.id}
        assert numbers(messages) == sorted(numbers(messages))
    taken = [number for messages in answers for number in numbers(messages)]
    assert len(taken) == len(set(taken))


@pytest.mark.behaviour("S3.28")
async def test_what_nobody_waits_for_any_more_is_given_back_uncounted(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, *[b"body"] * 40)
    for turns in range(40):
        claiming = asyncio.ensure_future(subject.claim(queue, 1))
        for _ in range(turns):
            await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.wait([claiming])
        if not claiming.cancelled():
            await subject.store.move([abandonment(m, outcome=Outcome.RELEASED, failures=0) for m in claiming.result()])
    messages = await _everything(subject, queue, 40)
    assert len(set(numbers(messages))) == 40
    assert {message.failure_count for message in messages} == {0}


async def test_each_message_that_a_store_gives_back_by_itself_is_announced(subject: Subject, queue: Queue) -> None:
    given_back: list[int] = []
    heard = asyncio.Event()
    kept: set[int] = set()

    def hear(moves: Sequence[Move], effective: Sequence[bool]) -> None:
        given_back.extend(move.token.sequence_number for move in compress(moves, effective))
        heard.set()

    subject.store.on_moved = hear
    await subject.send(queue, *[b"body"] * 40)
    for turns in range(40):
        claiming = asyncio.ensure_future(subject.claim(queue, 1))
        for _ in range(turns):
            await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.wait([claiming])
        if not claiming.cancelled():
            kept.update(numbers(claiming.result()))
    messages = await _everything(subject, queue, 40 - len(kept))
    expected = Counter({message.sequence_number: message.delivery_count - 1 for message in messages})
    async with asyncio.timeout(PATIENCE):
        # The store's own caller may be a moment behind the commit that its messages were claimed after.
        while Counter(number for number in given_back if number not in kept) != expected:
            heard.clear()
            await heard.wait()


async def _everything(subject: Subject, queue: Queue, count: int) -> list[Message]:
    """Receive until there are so many, since a store gives back behind its callers' backs."""
    messages: list[Message] = []
    async with asyncio.timeout(PATIENCE):
        while len(messages) < count:
            messages += await subject.claim(queue)
            await asyncio.sleep(GLANCE)
    return messages


async def test_the_lock_of_a_claim_is_seen_by_others(subject: Subject, stores: list[Store], queue: Queue) -> None:
    message = await subject.locked(queue)
    (held,) = await stores[1].held([token(message)])
    assert held is not None
    assert held.locked_until == message.locked_until
    assert is_close(held.locked_until, await subject.store.now() + LOCK)
