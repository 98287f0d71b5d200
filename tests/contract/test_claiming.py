"""A claim locks the next messages in order for one receiver. No other receiver gets them while they are locked."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import compress

import pytest

from app.broker.ports.attempts import Attempt
from app.broker.ports.store import Store
from app.domain.delivery import START_POSITION
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.settlement import SECRET_BYTES, Move, Outcome
from tests.bounds import bounded
from tests.contract.store_fixture import (
    LOCK_DURATION,
    StoreFixture,
    abandonment,
    bodies,
    claim,
    completion,
    draft,
    numbers,
    token,
)
from tests.servers import POLL_SECONDS, TIMEOUT_SECONDS

REQUESTS = [("worker", MINUTE), (None, HOUR), ("worker", MINUTE), ("other", MINUTE), (None, MINUTE)]


@pytest.mark.parametrize("first", range(len(REQUESTS)))
async def test_concurrent_claims_keep_their_own_receivers_and_durations(
    store_fixture: StoreFixture, queue: Queue, first: int
) -> None:
    requests = (REQUESTS[first:] + REQUESTS[:first])[:3]
    await store_fixture.send(queue, b"1", b"2", b"3")
    claims = [
        store_fixture.claim(queue, 1, receiver_id=receiver, lock_duration=duration) for receiver, duration in requests
    ]
    for (receiver, duration), (message,) in zip(requests, await asyncio.gather(*claims), strict=True):
        assert message.receiver_id == receiver
        assert message.locked_until is not None
        assert message.last_delivered_at is not None
        assert message.locked_until - message.last_delivered_at == duration


@pytest.mark.behaviour("S2.2", "S2.12", "S3.14", "S0.3")
async def test_a_claimed_message_carries_its_lock(store_fixture: StoreFixture, queue: Queue) -> None:
    (number,) = await store_fixture.send(queue, b"body")
    now = await store_fixture.store.now()
    (message,) = await store_fixture.claim(queue, receiver_id="worker 7", lock_duration=MINUTE)
    assert message.sequence_number == number
    assert (message.state, message.home_state) == (MessageState.LOCKED, MessageState.AVAILABLE)
    assert message.lock_token is not None
    assert len(message.lock_token) == SECRET_BYTES
    assert store_fixture.is_close(message.locked_until, now + MINUTE)
    assert store_fixture.is_close(message.read_at, now)
    assert store_fixture.is_close(message.last_delivered_at, now)
    assert message.first_delivered_at == message.last_delivered_at
    assert (message.lock_generation, message.receiver_id) == (0, "worker 7")
    assert (message.delivery_count, message.failure_count) == (1, 0)


@pytest.mark.behaviour("S3.13", "S3.16")
async def test_a_locked_message_is_hidden_and_others_are_delivered(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"first", b"second", b"third")
    assert bodies(await store_fixture.claim(queue, 1)) == [b"first"]
    assert bodies(await store_fixture.claim(queue, 1)) == [b"second"]
    assert bodies(await store_fixture.claim(queue)) == [b"third"]
    assert await store_fixture.claim(queue) == []


async def test_a_claim_locks_at_most_what_it_requests(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, *(b"%d" % index for index in range(7)))
    assert [len(await store_fixture.claim(queue, most)) for most in (3, 100, 1)] == [3, 4, 0]


async def test_every_claim_gets_its_own_tokens(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, *[b"body"] * 20)
    first = await store_fixture.claim(queue)
    await store_fixture.store.move([abandonment(message) for message in first])
    second = await store_fixture.claim(queue)
    assert len({message.lock_token for message in first + second}) == 40
    assert {message.delivery_count for message in second} == {2}


async def test_only_available_messages_are_claimed(store_fixture: StoreFixture, queue: Queue) -> None:
    set_aside = await store_fixture.locked(queue)
    await store_fixture.store.move([abandonment(set_aside, outcome=Outcome.DEFERRED, state=MessageState.DEFERRED)])
    await store_fixture.send(queue, b"scheduled", delay=10 * SECOND)
    await store_fixture.send(queue, b"available")
    await store_fixture.advance_time(20)
    assert bodies(await store_fixture.claim(queue)) == [b"available"]


@pytest.mark.fence("time")
async def test_an_expired_message_is_not_claimed(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.store.send([draft(queue, b"short", ttl=10 * SECOND), draft(queue, b"long", ttl=HOUR)])
    await store_fixture.advance_time(11)
    assert bodies(await store_fixture.claim(queue)) == [b"long"]


@pytest.mark.parametrize("claim_method", ["claim", "claim_by_number", "claim_or_replay", "filter"])
async def test_a_clock_that_is_set_back_hides_no_available_message(
    store_fixture: StoreFixture, queue: Queue, claim_method: str
) -> None:
    (number,) = await store_fixture.send(queue, b"body")
    await store_fixture.advance_time(-60)
    store, one_claim = store_fixture.store, claim(queue)
    match claim_method:
        case "claim":
            found = await store.claim(one_claim)
        case "claim_by_number":
            found = await store.claim_by_number(one_claim, [number])
        case "claim_or_replay":
            found = (await store.claim_or_replay(one_claim, Attempt(b"k" * 32, b"f" * 32, HOUR))).result
        case _:
            listed = await store.candidates(queue.id, MessageState.AVAILABLE, START_POSITION, 10)
            found = await store.claim_by_number(one_claim, [item.sequence_number for item in listed])
    assert bodies(found) == [b"body"]


@pytest.mark.behaviour("S1.64")
@pytest.mark.parametrize("source", [MessageState.AVAILABLE, MessageState.DEAD_LETTERED])
async def test_what_a_claim_left_is_the_first_candidate(
    store_fixture: StoreFixture, queue: Queue, source: MessageState
) -> None:
    first, second = await store_fixture.send(queue, b"1", b"2", ttl=HOUR)
    await store_fixture.send(queue, b"mortal", ttl=MINUTE)
    if source is MessageState.DEAD_LETTERED:
        moves = [
            abandonment(message, state=source, outcome=Outcome.DEAD_LETTERED)
            for message in await store_fixture.claim(queue, 2)
        ]
        await store_fixture.store.move(moves)
    await store_fixture.advance_time(61)
    for number, left in ((first, [second]), (second, [])):
        assert numbers(await store_fixture.claim(queue, 1, source=source)) == [number]
        candidates = await store_fixture.store.candidates(queue.id, source, START_POSITION, 1)
        assert [candidate.sequence_number for candidate in candidates] == left


@pytest.mark.behaviour("S3.19")
async def test_dead_letters_are_claimed_by_number_and_return_there(store_fixture: StoreFixture, queue: Queue) -> None:
    sent = await store_fixture.send(queue, b"low", priority=0)
    sent += await store_fixture.send(queue, b"high", priority=9, ttl=MINUTE)
    moves = [
        abandonment(message, state=MessageState.DEAD_LETTERED, outcome=Outcome.DEAD_LETTERED, dead_letter_reason="why")
        for message in await store_fixture.claim(queue)
    ]
    assert await store_fixture.store.move(moves) == [True, True]
    await store_fixture.advance_time(61)
    assert await store_fixture.claim(queue) == []
    first = await store_fixture.claim(queue, 1, source=MessageState.DEAD_LETTERED)
    second = await store_fixture.claim(queue, source=MessageState.DEAD_LETTERED)
    assert numbers(first + second) == sorted(sent)
    assert {message.home_state for message in first + second} == {MessageState.DEAD_LETTERED}
    assert {message.dead_letter_reason for message in first + second} == {"why"}
    assert await store_fixture.claim(queue, source=MessageState.DEAD_LETTERED) == []


@pytest.mark.parametrize("state", [MessageState.AVAILABLE, MessageState.DEFERRED, MessageState.DEAD_LETTERED])
async def test_a_message_keeps_the_time_of_its_first_delivery(
    store_fixture: StoreFixture, queue: Queue, state: MessageState
) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.advance_time(20)
    assert await store_fixture.store.move([abandonment(message, state=state)]) == [True]
    wanted = claim(queue, source=state)
    if state is MessageState.DEFERRED:
        (again,) = await store_fixture.store.claim_by_number(wanted, [message.sequence_number])
    else:
        (again,) = await store_fixture.claim(queue, source=state)
    assert again.last_delivered_at is not None
    assert store_fixture.is_close(again.first_delivered_at, again.last_delivered_at - 20 * SECOND)
    read = await store_fixture.store.read(queue.id, message.sequence_number)
    assert read is not None
    assert read.first_delivered_at == again.first_delivered_at
    await store_fixture.store.remove([completion(queue, again)])
    ((first, last),) = await store_fixture.archived(message.sequence_number, "first_delivered_at", "last_delivered_at")
    assert (first, last) == (again.first_delivered_at, again.last_delivered_at)


# ---- chosen by number ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S3.25")
async def test_a_claim_by_number_returns_the_requested_order(store_fixture: StoreFixture, queue: Queue) -> None:
    sent = await store_fixture.send(queue, b"a", b"b", b"c", b"d")
    await store_fixture.store.move(
        [
            abandonment(m, outcome=Outcome.DEFERRED, state=MessageState.DEFERRED)
            for m in await store_fixture.claim(queue)
        ]
    )
    deferred = claim(queue, 3, source=MessageState.DEFERRED)
    received = await store_fixture.store.claim_by_number(deferred, [sent[2], sent[0]])
    assert bodies(received) == [b"c", b"a"]
    assert {(message.home_state, message.delivery_count) for message in received} == {(MessageState.DEFERRED, 2)}
    assert len({message.lock_token for message in received}) == 2
    assert bodies(await store_fixture.store.claim_by_number(deferred, sent)) == [b"b", b"d"]


@pytest.mark.fence("queue", "state", "time")
async def test_a_claim_by_number_leaves_out_missing_messages(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    available, locked, short = await store_fixture.send(queue, b"available", b"locked", b"short")
    (elsewhere,) = await store_fixture.send(other, b"elsewhere")
    (late,) = await store_fixture.send(queue, b"late", delay=HOUR)
    (expired,) = await store_fixture.send(queue, b"expired", ttl=SECOND)
    await store_fixture.store.claim_by_number(claim(queue), [locked])
    await store_fixture.advance_time(2)
    chosen = [10**15, elsewhere, short, late, expired, locked, available, available]
    assert bodies(await store_fixture.store.claim_by_number(claim(queue), chosen)) == [b"short", b"available"]
    assert await store_fixture.store.claim_by_number(claim(queue), []) == []


async def test_a_claim_by_number_locks_at_most_what_it_requests(store_fixture: StoreFixture, queue: Queue) -> None:
    first, *rest = await store_fixture.send(queue, b"a", b"b", b"c")
    await store_fixture.store.claim_by_number(claim(queue), [first])
    assert bodies(await store_fixture.store.claim_by_number(claim(queue, 1), [first, *rest])) == [b"b"]


# ---- side by side ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S2.25", "S3.13")
async def test_concurrent_receivers_never_lock_the_same_message(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    sent = await store_fixture.send(queue, *(b"%d" % index for index in range(300)))
    received: list[Message] = []

    async def receive(index: int) -> None:
        for _ in bounded("a claim finds nothing", len(sent) + 1):
            messages = await stores[index % 2].claim(claim(queue, 1 + index % 7))
            if not messages:
                break
            received.extend(messages)

    await asyncio.gather(*(receive(index) for index in range(64)))
    # A claim may be empty while others hold the rows that it scanned. Another claim finds the rest.
    received.extend(await store_fixture.claim(queue, 1000))
    assert Counter(numbers(received)) == Counter(sent)
    assert len({message.lock_token for message in received}) == 300


async def test_concurrent_claims_of_several_queues_stay_separate(
    store_fixture: StoreFixture, stores: list[Store]
) -> None:
    queues = [await store_fixture.queue() for _ in range(8)]
    for queue in queues:
        await store_fixture.send(queue, *(b"%d" % queue.id for _ in range(10)))
    claims = [(queue, stores[index % 2].claim(claim(queue, 2))) for index in range(3) for queue in queues]
    answers = await asyncio.gather(*(answer for _, answer in claims))
    for (queue, _), messages in zip(claims, answers, strict=True):
        assert {message.queue_id for message in messages} <= {queue.id}
        assert numbers(messages) == sorted(numbers(messages))
    taken = [number for messages in answers for number in numbers(messages)]
    assert len(taken) == len(set(taken))


@pytest.mark.behaviour("S3.28")
async def test_messages_of_a_cancelled_claim_are_released_uncounted(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, *[b"body"] * 40)
    for turns in range(40):
        claiming = asyncio.ensure_future(store_fixture.claim(queue, 1))
        for _ in range(turns):
            await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.wait([claiming])
        if not claiming.cancelled():
            await store_fixture.store.move(
                [abandonment(m, outcome=Outcome.RELEASED, failures=0) for m in claiming.result()]
            )
    messages = await _everything(store_fixture, queue, 40)
    assert len(set(numbers(messages))) == 40
    assert {message.failure_count for message in messages} == {0}


async def test_each_message_that_a_store_releases_for_a_cancelled_claim_is_notified(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    given_back: list[int] = []
    notified = asyncio.Event()
    kept: set[int] = set()

    def record_releases(moves: Sequence[Move], effective: Sequence[bool]) -> None:
        given_back.extend(move.token.sequence_number for move in compress(moves, effective))
        notified.set()

    store_fixture.store.on_moved = record_releases
    await store_fixture.send(queue, *[b"body"] * 40)
    for turns in range(40):
        claiming = asyncio.ensure_future(store_fixture.claim(queue, 1))
        for _ in range(turns):
            await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.wait([claiming])
        if not claiming.cancelled():
            kept.update(numbers(claiming.result()))
    await _everything(store_fixture, queue, 40 - len(kept))
    released = await store_fixture.execute("SELECT sequence_number FROM settlement WHERE outcome = 'released'")
    expected = Counter(number for (number,) in released)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        # The store may notify a moment after the commit of a release.
        while Counter(given_back) != expected:
            notified.clear()
            await notified.wait()


async def _everything(store_fixture: StoreFixture, queue: Queue, count: int) -> list[Message]:
    """Receive until `count` messages have arrived: a store releases those of cancelled claims in the background."""
    messages: list[Message] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(messages) < count:
            messages += await store_fixture.claim(queue)
            await asyncio.sleep(POLL_SECONDS)
    return messages


async def test_another_process_sees_the_lock_of_a_claim(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    (locked,) = await stores[1].locked_messages([token(message)])
    assert locked is not None
    assert locked.locked_until == message.locked_until
    assert store_fixture.is_close(locked.locked_until, await store_fixture.store.now() + LOCK_DURATION)
