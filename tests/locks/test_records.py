"""What a record in Redis does: prolong a lock inside its bound, and be evidence once it has expired."""

import asyncio

import pytest

from app.broker.ports import Edition, LockRecord, NotRenewed, Renewed
from app.domain.instant import MINUTE, SECOND
from app.domain.settlement import NO_EVIDENCE, LockToken
from app.locks.connect import connect
from app.locks.keys import BUCKETS, Keys, bucket_of
from app.locks.link import Link
from app.locks.redis_locks import RedisLocks
from app.runtime.clock import SystemClock
from tests.bounds import bounded
from tests.locks.conftest import NewToken
from tests.locks.records import EDITION, PROMISED, Records
from tests.servers import RedisServer

D = 30 * SECOND


@pytest.fixture
async def token(redis_locks: RedisLocks, records: Records, new_token: NewToken) -> LockToken:
    """A delivery with a record of generation 1 whose bound lies two minutes ahead."""
    token = new_token()
    await redis_locks.record(token, LockRecord(1, D, await records.now() + 2 * MINUTE, PROMISED, EDITION))
    return token


# ---- renewing --------------------------------------------------------------------------------------------------------


async def test_a_living_record_prolongs_its_lock(redis_locks: RedisLocks, records: Records, token: LockToken) -> None:
    await records.pass_time(token, by=20 * SECOND)
    before = await records.now()
    answer = await redis_locks.renew(token, D, EDITION)
    assert isinstance(answer, Renewed)
    assert before + D <= answer.locked_until <= await records.now() + D
    assert answer.remaining == D
    assert (await records.read(token)).deadline == answer.locked_until
    assert await redis_locks.evidence([token]) == [NO_EVIDENCE]


async def test_a_prolonged_lock_leaves_no_trace_of_its_old_deadline(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    await records.pass_time(token, by=20 * SECOND)
    await redis_locks.renew(token, D, EDITION)
    await records.pass_time(token, by=D - SECOND)
    assert await redis_locks.expired(100) == []


async def test_a_lock_is_never_prolonged_past_its_bound(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    before = await records.read(token)
    answer = await redis_locks.renew(token, 2 * MINUTE + SECOND, EDITION)
    assert isinstance(answer, NotRenewed)
    assert answer.asked_at is not None
    assert answer.evidence == NO_EVIDENCE
    assert await records.read(token) == before


async def test_renewals_end_at_the_bound_however_often_they_come(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    for _ in range(4):
        assert isinstance(await redis_locks.renew(token, D, EDITION), Renewed)
        await records.pass_time(token, by=D - SECOND)
    assert isinstance(await redis_locks.renew(token, D, EDITION), NotRenewed)


async def test_an_expired_record_is_evidence_and_stays_expired(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    await records.pass_time(token, by=D)
    for _ in range(2):
        answer = await redis_locks.renew(token, D, EDITION)
        assert isinstance(answer, NotRenewed)
        assert answer.asked_at is not None
        assert answer.evidence == 1


async def test_a_missing_record_proves_nothing(redis_locks: RedisLocks, records: Records, token: LockToken) -> None:
    await records.evict(token)
    before = await records.now()
    answer = await redis_locks.renew(token, D, EDITION)
    assert isinstance(answer, NotRenewed)
    assert before <= answer.asked_at <= await records.now()
    assert answer.evidence == NO_EVIDENCE


async def test_a_shorter_renewal_leaves_the_longer_promise_standing(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    assert isinstance(await redis_locks.renew(token, SECOND, EDITION), Renewed)
    await records.pass_time(token, by=2 * SECOND)
    assert await redis_locks.evidence([token]) == [NO_EVIDENCE]


@pytest.mark.parametrize(
    "other", [Edition(EDITION.queue_id, EDITION.version + 1), Edition(EDITION.queue_id + 1, EDITION.version)]
)
async def test_a_record_prolongs_nothing_for_another_queue_or_another_version_of_it(
    redis_locks: RedisLocks, records: Records, token: LockToken, other: Edition
) -> None:
    before = await records.read(token)
    answer = await redis_locks.renew(token, D, other)
    assert isinstance(answer, NotRenewed)
    assert answer.evidence == NO_EVIDENCE
    assert await records.read(token) == before
    await redis_locks.record(token, LockRecord(2, D, before.bound, PROMISED, other))
    assert isinstance(await redis_locks.renew(token, D, other), Renewed)


async def test_an_expired_record_is_evidence_for_every_version(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    await records.pass_time(token, by=D)
    answer = await redis_locks.renew(token, D, Edition(EDITION.queue_id, EDITION.version + 1))
    assert isinstance(answer, NotRenewed)
    assert answer.evidence == 1


async def test_a_record_of_an_older_form_is_not_seen(redis_locks: RedisLocks, records: Records, keys: Keys) -> None:
    """A server of the version before writes under other names, and sees none of these."""
    token = LockToken(7, bytes(16))
    far = await records.now() + MINUTE
    await records.redis.set(f"{keys.prefix}{{{bucket_of(token)}}}:{token}", f"1 {far} {far}")
    answer = await redis_locks.renew(token, D, EDITION)
    assert isinstance(answer, NotRenewed)
    assert answer.evidence == NO_EVIDENCE


# ---- recording -------------------------------------------------------------------------------------------------------


async def test_the_deadline_counts_from_the_moment_of_writing(
    redis_locks: RedisLocks, records: Records, new_token: NewToken
) -> None:
    token, before = new_token(), await records.now()
    await redis_locks.record(token, LockRecord(3, D, before + MINUTE, PROMISED, EDITION))
    record = await records.read(token)
    assert before + D <= record.deadline <= await records.now() + D
    assert (record.generation, record.bound) == (3, before + MINUTE)


async def test_a_record_written_late_cannot_replace_a_newer_one(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    now = await records.now()
    await redis_locks.record(token, LockRecord(5, D, now + MINUTE, PROMISED, EDITION))
    newest = await records.read(token)
    await redis_locks.record(token, LockRecord(4, D, now + 5 * MINUTE, PROMISED, EDITION))
    assert await records.read(token) == newest


async def test_a_record_that_comes_after_its_promise_has_ended_is_not_written(
    redis_locks: RedisLocks, records: Records, new_token: NewToken
) -> None:
    """Its row may have been freed and locked by another since; the dead token must not come back to life."""
    token, now = new_token(), await records.now()
    await redis_locks.record(token, LockRecord(1, D, now + MINUTE, now, EDITION))
    assert await records.read(token) is None


async def test_a_newer_record_replaces_an_expired_one(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    await records.pass_time(token, by=D)
    await redis_locks.record(token, LockRecord(2, D, await records.now() + MINUTE, PROMISED, EDITION))
    assert await redis_locks.evidence([token]) == [NO_EVIDENCE]
    assert await redis_locks.expired(100) == []
    await records.pass_time(token, by=D)
    assert await redis_locks.evidence([token]) == [2]


async def test_a_newer_record_keeps_a_longer_promise(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    await redis_locks.record(token, LockRecord(2, SECOND, await records.now() + MINUTE, PROMISED, EDITION))
    await records.pass_time(token, by=2 * SECOND)
    assert await redis_locks.evidence([token]) == [NO_EVIDENCE]


async def test_records_outlive_their_use_and_then_go_by_themselves(
    redis_locks: RedisLocks, records: Records, keys: Keys, token: LockToken
) -> None:
    left = (await records.read(token)).bound - await records.now()
    assert left + 4 * MINUTE < await records.life(token) < left + 6 * MINUTE
    assert await records.redis.ttl(keys.index(bucket_of(token))) > 12 * 3600
    await redis_locks.renew(token, D, EDITION)
    assert left + 4 * MINUTE < await records.life(token) < left + 6 * MINUTE


# ---- evidence --------------------------------------------------------------------------------------------------------


async def test_only_expired_records_are_evidence_each_with_its_own_generation(
    redis_locks: RedisLocks, records: Records, new_token: NewToken
) -> None:
    tokens = [new_token(64 * number) for number in range(2 * BUCKETS)]
    bound = await records.now() + MINUTE
    await asyncio.gather(
        *(
            redis_locks.record(token, LockRecord(place, D, bound, PROMISED, EDITION))
            for place, token in enumerate(tokens)
        )
    )
    await records.pass_time(*tokens[::3], by=D)
    expected = [NO_EVIDENCE if place % 3 else place for place in range(len(tokens))]
    assert await redis_locks.evidence(tokens) == expected
    assert await asyncio.gather(*(redis_locks.evidence([token]) for token in tokens)) == [[one] for one in expected]


async def test_expired_locks_are_named_until_they_are_dropped(
    redis_locks: RedisLocks, records: Records, new_token: NewToken
) -> None:
    tokens = [new_token(64 * number) for number in range(1, BUCKETS + 1)]
    bound = await records.now() + MINUTE
    await asyncio.gather(*(redis_locks.record(token, LockRecord(2, D, bound, PROMISED, EDITION)) for token in tokens))
    await records.pass_time(*tokens[:10], by=D)
    for _ in range(2):
        assert set(await redis_locks.expired(100)) == {(token, 2) for token in tokens[:10]}
    await redis_locks.drop([(token, 9) for token in tokens[:4]])
    assert set(await redis_locks.expired(100)) == {(token, 2) for token in tokens[4:10]}


@pytest.mark.parametrize("most", [1, BUCKETS, 30])
async def test_no_more_expired_locks_are_named_than_asked_for(
    redis_locks: RedisLocks, records: Records, new_token: NewToken, most: int
) -> None:
    tokens = [new_token(3 * number) for number in range(1, 65)]
    bound = await records.now() + MINUTE
    await asyncio.gather(*(redis_locks.record(token, LockRecord(1, D, bound, PROMISED, EDITION)) for token in tokens))
    await records.pass_time(*tokens, by=D)
    assert len(await redis_locks.expired(most)) == most, "no rest before all are done"
    seen: set[LockToken] = set()
    for _ in bounded("no record is left", len(tokens) + 1):
        found = await redis_locks.expired(most)
        assert len(found) <= most
        if not found:
            break
        seen.update(token for token, _ in found)
        await redis_locks.drop(found)
    assert seen == set(tokens)


async def test_an_evicted_record_is_no_evidence_and_leaves_nothing_behind(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    await records.pass_time(token, by=D)
    await records.evict(token)
    assert await redis_locks.expired(100) == []
    assert await records.indexed() == 0


async def test_the_record_of_a_renewal_since_is_not_dropped(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    await redis_locks.record(token, LockRecord(2, D, await records.now() + MINUTE, PROMISED, EDITION))
    await redis_locks.drop([(token, 1)])
    assert isinstance(await redis_locks.renew(token, D, EDITION), Renewed)
    await redis_locks.drop([(token, 2)])
    assert await records.read(token) is None
    assert await records.indexed() == 0


async def test_a_dropped_record_leaves_nothing_behind(
    redis_locks: RedisLocks, records: Records, keys: Keys, token: LockToken
) -> None:
    await redis_locks.drop([(token, 9)])
    assert [name async for name in records.redis.scan_iter(f"{keys.prefix}*")] == []


# ---- what Redis may do -----------------------------------------------------------------------------------------------


async def test_scripts_that_redis_has_forgotten_are_taught_anew(
    redis_locks: RedisLocks, records: Records, token: LockToken
) -> None:
    await records.redis.script_flush()
    assert isinstance(await redis_locks.renew(token, D, EDITION), Renewed)


async def test_other_prefixes_are_other_brokers(redis_locks: RedisLocks, redis_url: str, token: LockToken) -> None:
    link = Link(connect(redis_url, patience_seconds=10.0), SystemClock(), _fail)
    other = RedisLocks(link, Keys("elsewhere:"))
    await other.drop([(token, 9)])
    assert isinstance(await redis_locks.renew(token, D, EDITION), Renewed)
    await other.close()
    await link.close()


def test_a_prefix_cannot_take_the_place_of_the_bucket() -> None:
    with pytest.raises(ValueError, match="hash tag"):
        Keys("{shop}:")


async def test_flushall_is_no_evidence(private_server, keys: Keys, new_token: NewToken) -> None:
    server = private_server(RedisServer)
    link = Link(connect(server.url, patience_seconds=10.0), SystemClock(), _fail)
    locks, records = RedisLocks(link, keys), Records(connect(server.url, patience_seconds=10.0), keys)
    token = new_token()
    await locks.record(token, LockRecord(1, D, await records.now() + MINUTE, PROMISED, EDITION))
    await records.pass_time(token, by=D)
    assert await locks.evidence([token]) == [1]
    await records.redis.flushall()
    assert await locks.evidence([token]) == [NO_EVIDENCE]
    assert await locks.expired(100) == []
    await locks.close()
    await link.close()
    await records.redis.aclose()


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error
