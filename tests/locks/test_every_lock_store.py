"""What every lock store promises, whether or not it keeps records."""

import asyncio

from app.broker.ports import LockRecord, LockStore, NotRenewed
from app.domain.instant import MINUTE, SECOND
from app.domain.settlement import NO_EXPIRED_GENERATION
from tests.locks.conftest import NewToken
from tests.locks.lock_records import EDITION, PROMISED_UNTIL

DURATION = 30 * SECOND
FAR_FUTURE = 4_000_000_000 * SECOND


async def test_leaves_a_lock_it_has_not_recorded_to_sql(locks: LockStore, new_token: NewToken) -> None:
    answer = await locks.renew(new_token(), DURATION, EDITION)
    assert isinstance(answer, NotRenewed)
    assert answer.expired_generation == NO_EXPIRED_GENERATION


async def test_has_no_evidence_against_deliveries_it_does_not_know(locks: LockStore, new_token: NewToken) -> None:
    assert (
        await locks.expired_generations([new_token(number) for number in (1, 500, 90_000)])
        == [NO_EXPIRED_GENERATION] * 3
    )


async def test_answers_questions_about_nothing(locks: LockStore) -> None:
    assert await locks.expired_generations([]) == []
    assert await locks.delete_records([]) is None
    assert await locks.expired_records(100) == []


async def test_forgets_what_it_never_knew(locks: LockStore, new_token: NewToken) -> None:
    await locks.delete_records([(new_token(), 1), (new_token(), 1)])
    assert await locks.expired_records(100) == []


async def test_has_no_evidence_against_a_lock_that_was_just_renewed(locks: LockStore, new_token: NewToken) -> None:
    token = new_token()
    await locks.write_record(token, LockRecord(1, DURATION, FAR_FUTURE, PROMISED_UNTIL, EDITION))
    assert await locks.expired_generations([token]) == [NO_EXPIRED_GENERATION]
    assert await locks.expired_records(100) == []


async def test_answers_many_callers_at_once(locks: LockStore, new_token: NewToken) -> None:
    tokens = [new_token(number) for number in range(300)]
    await asyncio.gather(
        *(locks.write_record(token, LockRecord(1, MINUTE, FAR_FUTURE, PROMISED_UNTIL, EDITION)) for token in tokens)
    )
    answers = await asyncio.gather(*(locks.expired_generations([token]) for token in tokens))
    assert answers == [[NO_EXPIRED_GENERATION]] * len(tokens)


async def test_says_what_state_it_is_in(locks: LockStore) -> None:
    assert (locks.state, locks.is_shared) in {("ok", True), ("none", False)}
