"""The promises of every lock store, with or without records."""

import asyncio

from app.broker.ports.lock_store import LockRecord, LockStore, NotRenewed
from app.domain.instant import MINUTE, SECOND
from app.domain.settlement import NO_EXPIRED_GENERATION
from tests.locks.conftest import NewToken
from tests.locks.lock_records import EDITION, IN_TIME

DURATION = 30 * SECOND
FAR_FUTURE = 4_000_000_000 * SECOND


async def test_a_lock_without_a_record_is_left_to_sql(locks: LockStore, new_token: NewToken) -> None:
    answer = await locks.renew(new_token(), DURATION, EDITION)
    assert isinstance(answer, NotRenewed)
    assert answer.expired_generation == NO_EXPIRED_GENERATION


async def test_unknown_deliveries_have_no_expired_generation(locks: LockStore, new_token: NewToken) -> None:
    assert (
        await locks.expired_generations([new_token(number) for number in (1, 500, 90_000)])
        == [NO_EXPIRED_GENERATION] * 3
    )


async def test_locks_without_a_record_have_no_recorded_promise(locks: LockStore, new_token: NewToken) -> None:
    assert await locks.promises([new_token(number) for number in (1, 500, 90_000)]) == [None] * 3


async def test_empty_calls_are_answered(locks: LockStore) -> None:
    assert await locks.promises([]) == []
    assert await locks.expired_generations([]) == []
    assert await locks.delete_records([]) is None
    assert await locks.expired_records(100) == []


async def test_a_record_that_does_not_exist_is_deleted_without_effect(locks: LockStore, new_token: NewToken) -> None:
    await locks.delete_records([(new_token(), 1), (new_token(), 1)])
    assert await locks.expired_records(100) == []


async def test_a_renewed_lock_has_no_expired_generation(locks: LockStore, new_token: NewToken) -> None:
    token = new_token()
    await locks.write_record(token, LockRecord(1, DURATION, FAR_FUTURE, IN_TIME, EDITION))
    assert await locks.expired_generations([token]) == [NO_EXPIRED_GENERATION]
    assert await locks.expired_records(100) == []


async def test_many_concurrent_callers_are_answered(locks: LockStore, new_token: NewToken) -> None:
    tokens = [new_token(number) for number in range(300)]
    await asyncio.gather(
        *(locks.write_record(token, LockRecord(1, MINUTE, FAR_FUTURE, IN_TIME, EDITION)) for token in tokens)
    )
    answers = await asyncio.gather(*(locks.expired_generations([token]) for token in tokens))
    assert answers == [[NO_EXPIRED_GENERATION]] * len(tokens)


async def test_the_state_is_reported(locks: LockStore) -> None:
    assert (locks.state, locks.is_shared) in {("ok", True), ("none", False)}
