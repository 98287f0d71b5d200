"""What every lock store promises, whether or not it keeps records."""

import asyncio

from app.broker.ports import LockRecord, Locks, NotRenewed
from app.domain.instant import MINUTE, SECOND
from app.domain.settlement import NO_EVIDENCE
from tests.locks.conftest import NewToken
from tests.locks.records import EDITION, PROMISED

D = 30 * SECOND
FAR = 4_000_000_000 * SECOND


async def test_leaves_a_lock_it_has_not_recorded_to_sql(locks: Locks, new_token: NewToken) -> None:
    answer = await locks.renew(new_token(), D, EDITION)
    assert isinstance(answer, NotRenewed)
    assert answer.evidence == NO_EVIDENCE


async def test_has_no_evidence_against_deliveries_it_does_not_know(locks: Locks, new_token: NewToken) -> None:
    assert await locks.evidence([new_token(number) for number in (1, 500, 90_000)]) == [NO_EVIDENCE] * 3


async def test_answers_questions_about_nothing(locks: Locks) -> None:
    assert await locks.evidence([]) == []
    assert await locks.drop([]) is None
    assert await locks.expired(100) == []


async def test_forgets_what_it_never_knew(locks: Locks, new_token: NewToken) -> None:
    await locks.drop([(new_token(), 1), (new_token(), 1)])
    assert await locks.expired(100) == []


async def test_has_no_evidence_against_a_lock_that_was_just_renewed(locks: Locks, new_token: NewToken) -> None:
    token = new_token()
    await locks.record(token, LockRecord(1, D, FAR, PROMISED, EDITION))
    assert await locks.evidence([token]) == [NO_EVIDENCE]
    assert await locks.expired(100) == []


async def test_answers_many_callers_at_once(locks: Locks, new_token: NewToken) -> None:
    tokens = [new_token(number) for number in range(300)]
    await asyncio.gather(*(locks.record(token, LockRecord(1, MINUTE, FAR, PROMISED, EDITION)) for token in tokens))
    answers = await asyncio.gather(*(locks.evidence([token]) for token in tokens))
    assert answers == [[NO_EVIDENCE]] * len(tokens)


async def test_says_what_state_it_is_in(locks: Locks) -> None:
    assert (locks.state, locks.is_shared) in {("ok", True), ("none", False)}
