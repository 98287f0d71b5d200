"""The messages of one response weigh at most its budget, unless it is a single message. The rest stays in the queue."""

import asyncio
import secrets

from app.broker.ports.attempts import Attempt
from app.broker.ports.store import Store
from app.domain.instant import HOUR
from app.domain.message import Envelope, Message, MessageState
from app.domain.queue import Queue
from app.domain.settlement import Outcome
from app.domain.weight import MESSAGE_OVERHEAD_BYTES, count_that_fit, weight_of
from tests.contract.store_fixture import StoreFixture, abandonment, claim, draft, numbers

KIB = 1 << 10
BODY = 100 * KIB
THREE = 3 * (BODY + MESSAGE_OVERHEAD_BYTES)


async def _is_untouched(store_fixture: StoreFixture, queue: Queue, sent: list[int], state: MessageState) -> None:
    for number in sent:
        message = await store_fixture.store.read(queue.id, number)
        assert message is not None
        assert (message.state, message.lock_token) == (state, None)


async def test_a_claim_locks_what_fits_its_budget(store_fixture: StoreFixture, queue: Queue) -> None:
    sent = await store_fixture.send(queue, *[b"x" * BODY] * 7)
    first = await store_fixture.claim(queue, 100, max_bytes=THREE)
    assert numbers(first) == sent[:3]
    await _is_untouched(store_fixture, queue, sent[3:], MessageState.AVAILABLE)
    assert numbers(await store_fixture.claim(queue, 2, max_bytes=THREE)) == sent[3:5]
    rest = await store_fixture.claim(queue, 100, max_bytes=THREE)
    assert numbers(rest) == sent[5:]
    assert {(message.delivery_count, len(message.body)) for message in first + rest} == {(1, BODY)}


async def test_a_message_larger_than_the_budget_is_delivered_alone(store_fixture: StoreFixture, queue: Queue) -> None:
    sent = await store_fixture.send(queue, b"small", b"x" * BODY, b"small", b"small")
    assert numbers(await store_fixture.claim(queue, 100, max_bytes=10 * KIB)) == sent[:1]
    assert numbers(await store_fixture.claim(queue, 100, max_bytes=10 * KIB)) == sent[1:2]
    assert numbers(await store_fixture.claim(queue, 100, max_bytes=10 * KIB)) == sent[2:]


async def test_properties_count_and_are_delivered_whole(store_fixture: StoreFixture, queue: Queue) -> None:
    properties = b'{"p":"%s"}' % (b"\xc3\xa9" * 10 * KIB)
    envelopes = [Envelope(secrets.token_hex(8), properties=properties) for _ in range(4)]
    await store_fixture.store.send([draft(queue, b"tiny", envelope=envelope) for envelope in envelopes])
    messages = await store_fixture.claim(queue, 100, max_bytes=2 * len(properties) + 3 * MESSAGE_OVERHEAD_BYTES)
    assert [message.envelope for message in messages] == envelopes[:2]
    assert [message.body for message in messages] == [b"tiny"] * 2


async def test_a_claim_of_dead_letters_locks_what_fits_its_budget(store_fixture: StoreFixture, queue: Queue) -> None:
    sent = await store_fixture.send(queue, *[b"x" * BODY] * 5)
    await _set_aside(store_fixture, queue, MessageState.DEAD_LETTERED, Outcome.DEAD_LETTERED)
    dead = claim(queue, 100, source=MessageState.DEAD_LETTERED, max_bytes=THREE)
    assert numbers(await store_fixture.store.claim(dead)) == sent[:3]
    await _is_untouched(store_fixture, queue, sent[3:], MessageState.DEAD_LETTERED)
    assert numbers(await store_fixture.store.claim(dead)) == sent[3:]


async def test_a_claim_by_number_locks_what_fits_its_budget(store_fixture: StoreFixture, queue: Queue) -> None:
    sent = await store_fixture.send(queue, *[b"x" * BODY] * 5)
    await _set_aside(store_fixture, queue, MessageState.DEFERRED, Outcome.DEFERRED)
    deferred = claim(queue, 100, source=MessageState.DEFERRED, max_bytes=THREE)
    wanted = [sent[4], sent[0], sent[3], sent[1]]
    assert numbers(await store_fixture.store.claim_by_number(deferred, wanted)) == wanted[:3]
    await _is_untouched(store_fixture, queue, [sent[1], sent[2]], MessageState.DEFERRED)


async def test_a_repeated_receive_gets_the_same_messages_within_the_budget(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    sent = await store_fixture.send(queue, *[b"x" * BODY] * 5)
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)
    first = await store_fixture.store.claim_or_replay(claim(queue, 100, max_bytes=THREE), attempt)
    again = await store_fixture.store.claim_or_replay(claim(queue, 100, max_bytes=THREE), attempt)
    assert numbers(first.result) == numbers(again.result) == sent[:3]
    await _is_untouched(store_fixture, queue, sent[3:], MessageState.AVAILABLE)


async def test_concurrent_claims_share_one_budget_and_each_gets_a_message(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    other = await store_fixture.queue()
    sent = await store_fixture.send(queue, *[b"x" * BODY] * 10) + await store_fixture.send(other, *[b"x" * BODY] * 10)
    claims = [
        store_fixture.store.claim(claim(source, 2, max_bytes=THREE)) for _ in range(5) for source in (queue, other)
    ]
    answers = await asyncio.gather(*claims)
    assert all(answers), "a claim that the others left no room for is served after them"
    assert all(sum(map(weight_of, answer)) <= THREE for answer in answers)
    taken = [number for answer in answers for number in numbers(answer)]
    taken += numbers(await _all(store_fixture.store, queue)) + numbers(await _all(store_fixture.store, other))
    assert sorted(taken) == sorted(sent)


async def test_small_messages_after_large_ones_are_claimed_together_again(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await store_fixture.send(queue, *[b"x" * BODY] * 4)
    small = await store_fixture.send(queue, *[b"small"] * 100)
    assert len(await store_fixture.claim(queue, 3, max_bytes=BODY)) == 1
    assert len(await store_fixture.claim(queue, 3, max_bytes=THREE)) == 3
    assert numbers(await store_fixture.claim(queue, 100, max_bytes=THREE)) == small


async def test_messages_of_any_size_are_claimed_by_the_rule(store_fixture: StoreFixture, queue: Queue) -> None:
    sizes = [0, 5, 30, 200, 7, 90, 90, 90, 1, 1, 1, 400, 2, 64, 64, 64, 64, 8]
    sent = await store_fixture.send(queue, *[b"x" * size * KIB for size in sizes])
    while sizes:
        weights = [size * KIB + MESSAGE_OVERHEAD_BYTES for size in sizes]
        count = count_that_fit(weights, 200 * KIB)
        assert numbers(await store_fixture.claim(queue, 100, max_bytes=200 * KIB)) == sent[:count]
        sizes, sent = sizes[count:], sent[count:]


async def test_a_thousand_small_messages_are_delivered_at_once(store_fixture: StoreFixture, queue: Queue) -> None:
    sent = await store_fixture.send(queue, *[b"x" * KIB] * 1000)
    assert numbers(await store_fixture.claim(queue, 1000)) == sent


async def _set_aside(store_fixture: StoreFixture, queue: Queue, state: MessageState, outcome: Outcome) -> None:
    messages = await store_fixture.claim(queue)
    await store_fixture.store.move([abandonment(message, state=state, outcome=outcome) for message in messages])


async def _all(store: Store, queue: Queue) -> list[Message]:
    found: list[Message] = []
    while messages := await store.claim(claim(queue)):
        found += messages
    return found
