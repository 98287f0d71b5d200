"""A record in Redis prolongs a lock inside its bound, and ends it once the record has expired."""

import asyncio
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from app.broker.ports.lock_store import NOT_WRITTEN, LockRecord, NotRenewed, QueueVersion, Renewed
from app.domain.instant import MINUTE, SECOND
from app.domain.settlement import NO_EXPIRED_GENERATION, LockToken
from app.locks.connect import connect
from app.locks.redis_connection import RedisConnection
from app.locks.redis_keys import BUCKETS, RedisKeys, bucket_of
from app.locks.redis_lock_store import RedisLockStore
from app.runtime.clock import SystemClock
from tests.bounds import bounded
from tests.locks.conftest import NewToken
from tests.locks.lock_records import DURATION, EDITION, IN_TIME, LockRecords, write_first_record
from tests.servers import RedisServer


@pytest.fixture
async def token(redis_locks: RedisLockStore, records: LockRecords, new_token: NewToken) -> LockToken:
    """A delivery with a record of generation 1 whose bound lies two minutes ahead."""
    token = new_token()
    await write_first_record(redis_locks, records, token)
    return token


# ---- renewing --------------------------------------------------------------------------------------------------------


@pytest.mark.fence("deadline")
async def test_a_live_record_prolongs_its_lock(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    await records.pass_time(token, by=20 * SECOND)
    before = await records.now()
    answer = await redis_locks.renew(token, DURATION, EDITION)
    assert isinstance(answer, Renewed)
    assert before + DURATION <= answer.locked_until <= await records.now() + DURATION
    assert answer.remaining == DURATION
    assert (await records.read(token)).deadline == answer.locked_until
    assert await redis_locks.expired_generations([token]) == [NO_EXPIRED_GENERATION]


async def test_a_prolonged_lock_leaves_no_trace_of_its_old_deadline(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    await records.pass_time(token, by=20 * SECOND)
    await redis_locks.renew(token, DURATION, EDITION)
    await records.pass_time(token, by=DURATION - SECOND)
    assert await redis_locks.expired_records(100) == []


@pytest.mark.fence("bound")
async def test_a_lock_is_never_prolonged_past_its_bound(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    before = await records.read(token)
    answer = await redis_locks.renew(token, 2 * MINUTE + SECOND, EDITION)
    assert isinstance(answer, NotRenewed)
    assert answer.asked_at is not None
    assert answer.expired_generation == NO_EXPIRED_GENERATION
    assert await records.read(token) == before


async def test_repeated_renewals_end_at_the_bound(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    for _ in range(4):
        assert isinstance(await redis_locks.renew(token, DURATION, EDITION), Renewed)
        await records.pass_time(token, by=DURATION - SECOND)
    assert isinstance(await redis_locks.renew(token, DURATION, EDITION), NotRenewed)


async def test_a_record_tells_its_promise_and_stays_as_it_is(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken, new_token: NewToken
) -> None:
    before, asked_at = await records.read(token), await records.now()
    promise, none = await redis_locks.promises([token, new_token()])
    assert none is None
    assert promise is not None
    assert promise.generation == 1
    assert 0 < promise.remaining <= before.deadline - asked_at
    assert await records.read(token) == before


async def test_the_promise_of_an_expired_record_has_ended(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    await records.pass_time(token, by=DURATION + SECOND)
    (promise,) = await redis_locks.promises([token])
    assert promise is not None
    assert promise.remaining <= -SECOND


async def test_an_expired_record_ends_its_lock_and_stays_expired(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    await records.pass_time(token, by=DURATION)
    for _ in range(2):
        answer = await redis_locks.renew(token, DURATION, EDITION)
        assert isinstance(answer, NotRenewed)
        assert answer.asked_at is not None
        assert answer.expired_generation == 1


async def test_a_missing_record_proves_nothing(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    await records.evict(token)
    before = await records.now()
    answer = await redis_locks.renew(token, DURATION, EDITION)
    assert isinstance(answer, NotRenewed)
    assert before <= answer.asked_at <= await records.now()
    assert answer.expired_generation == NO_EXPIRED_GENERATION


@pytest.mark.fence("longer")
async def test_a_shorter_renewal_keeps_the_longer_promise(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    assert isinstance(await redis_locks.renew(token, SECOND, EDITION), Renewed)
    await records.pass_time(token, by=2 * SECOND)
    assert await redis_locks.expired_generations([token]) == [NO_EXPIRED_GENERATION]


@pytest.mark.fence("queue", "version")
@pytest.mark.parametrize(
    "other", [QueueVersion(EDITION.queue_id, EDITION.version + 1), QueueVersion(EDITION.queue_id + 1, EDITION.version)]
)
async def test_a_record_prolongs_nothing_for_another_queue_or_another_version_of_it(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken, other: QueueVersion
) -> None:
    before = await records.read(token)
    answer = await redis_locks.renew(token, DURATION, other)
    assert isinstance(answer, NotRenewed)
    assert answer.expired_generation == NO_EXPIRED_GENERATION
    assert await records.read(token) == before
    await redis_locks.write_record(token, LockRecord(2, DURATION, before.bound, IN_TIME, other))
    assert isinstance(await redis_locks.renew(token, DURATION, other), Renewed)


async def test_an_expired_record_ends_its_lock_under_every_version(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    await records.pass_time(token, by=DURATION)
    answer = await redis_locks.renew(token, DURATION, QueueVersion(EDITION.queue_id, EDITION.version + 1))
    assert isinstance(answer, NotRenewed)
    assert answer.expired_generation == 1


async def test_a_record_of_an_older_format_is_not_found(
    redis_locks: RedisLockStore, records: LockRecords, keys: RedisKeys
) -> None:
    """A server of the previous version writes under other names, and finds none of these."""
    token = LockToken(7, bytes(16))
    far = await records.now() + MINUTE
    await records.redis.set(f"{keys.prefix}{{{bucket_of(token)}}}:{token}", f"1 {far} {far}")
    answer = await redis_locks.renew(token, DURATION, EDITION)
    assert isinstance(answer, NotRenewed)
    assert answer.expired_generation == NO_EXPIRED_GENERATION


# ---- recording -------------------------------------------------------------------------------------------------------


async def test_the_deadline_counts_from_the_moment_of_writing(
    redis_locks: RedisLockStore, records: LockRecords, new_token: NewToken
) -> None:
    token, before = new_token(), await records.now()
    await redis_locks.write_record(token, LockRecord(3, DURATION, before + MINUTE, IN_TIME, EDITION))
    record = await records.read(token)
    assert before + DURATION <= record.deadline <= await records.now() + DURATION
    assert (record.generation, record.bound) == (3, before + MINUTE)


@pytest.mark.fence("generation")
async def test_a_record_written_late_cannot_replace_a_newer_one(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    now = await records.now()
    await redis_locks.write_record(token, LockRecord(5, DURATION, now + MINUTE, IN_TIME, EDITION))
    newest = await records.read(token)
    await redis_locks.write_record(token, LockRecord(4, DURATION, now + 5 * MINUTE, IN_TIME, EDITION))
    assert await records.read(token) == newest


@pytest.mark.fence("late")
async def test_a_record_that_is_written_late_extends_nothing(
    redis_locks: RedisLockStore, records: LockRecords, new_token: NewToken
) -> None:
    """Another receiver may hold the row by now; the dead token must not become valid again."""
    token, now = new_token(), await records.now()
    await redis_locks.write_record(token, LockRecord(1, DURATION, now + MINUTE, now, EDITION))
    assert isinstance(await redis_locks.renew(token, SECOND, EDITION), NotRenewed)
    await records.pass_time(token, by=DURATION)
    assert await redis_locks.expired_generations([token]) == [1], "it still tells when the lock ends"


async def test_a_written_record_answers_its_deadline(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    record = LockRecord(2, DURATION, await records.now() + MINUTE, IN_TIME, EDITION)
    assert await redis_locks.write_record(token, record) == (await records.read(token)).deadline
    assert await redis_locks.write_record(token, replace(record, generation=1)) == NOT_WRITTEN


async def test_the_clock_is_read_without_extending_a_lock(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    before, stored = await records.now(), await records.read(token)
    answer = await redis_locks.ask(token)
    assert answer.asked_at is not None
    assert before <= answer.asked_at <= await records.now()
    assert answer.expired_generation == NO_EXPIRED_GENERATION
    assert await records.read(token) == stored
    await records.pass_time(token, by=DURATION)
    assert (await redis_locks.ask(token)).expired_generation == 1


async def test_a_newer_record_replaces_an_expired_one(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    await records.pass_time(token, by=DURATION)
    await redis_locks.write_record(token, LockRecord(2, DURATION, await records.now() + MINUTE, IN_TIME, EDITION))
    assert await redis_locks.expired_generations([token]) == [NO_EXPIRED_GENERATION]
    assert await redis_locks.expired_records(100) == []
    await records.pass_time(token, by=DURATION)
    assert await redis_locks.expired_generations([token]) == [2]


async def test_a_newer_record_ends_earlier_if_its_duration_says_so(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    """The duration of a renewal covers every earlier promise, and that of a change ends it."""
    await redis_locks.write_record(token, LockRecord(2, SECOND, await records.now() + MINUTE, IN_TIME, EDITION))
    await records.pass_time(token, by=2 * SECOND)
    assert await redis_locks.expired_generations([token]) == [2]


async def test_records_outlive_their_use_and_then_expire(
    redis_locks: RedisLockStore, records: LockRecords, keys: RedisKeys, token: LockToken
) -> None:
    left = (await records.read(token)).bound - await records.now()
    assert left + 4 * MINUTE < await records.ttl(token) < left + 6 * MINUTE
    assert await records.redis.ttl(keys.index(bucket_of(token))) > 12 * 3600
    await redis_locks.renew(token, DURATION, EDITION)
    assert left + 4 * MINUTE < await records.ttl(token) < left + 6 * MINUTE


# ---- expired generations --------------------------------------------------------------------------------------------------------


@pytest.mark.fence("deadline")
async def test_only_expired_records_are_returned_each_with_its_own_generation(
    redis_locks: RedisLockStore, records: LockRecords, new_token: NewToken
) -> None:
    tokens = [new_token(64 * number) for number in range(2 * BUCKETS)]
    bound = await records.now() + MINUTE
    await asyncio.gather(
        *(
            redis_locks.write_record(token, LockRecord(position, DURATION, bound, IN_TIME, EDITION))
            for position, token in enumerate(tokens)
        )
    )
    await records.pass_time(*tokens[::3], by=DURATION)
    expected = [NO_EXPIRED_GENERATION if position % 3 else position for position in range(len(tokens))]
    assert await redis_locks.expired_generations(tokens) == expected
    assert await asyncio.gather(*(redis_locks.expired_generations([token]) for token in tokens)) == [
        [token] for token in expected
    ]


async def test_expired_records_are_returned_until_they_are_deleted(
    redis_locks: RedisLockStore, records: LockRecords, new_token: NewToken
) -> None:
    tokens = [new_token(64 * number) for number in range(1, BUCKETS + 1)]
    bound = await records.now() + MINUTE
    await asyncio.gather(
        *(redis_locks.write_record(token, LockRecord(2, DURATION, bound, IN_TIME, EDITION)) for token in tokens)
    )
    await records.pass_time(*tokens[:10], by=DURATION)
    for _ in range(2):
        assert set(await redis_locks.expired_records(100)) == {(token, 2) for token in tokens[:10]}
    await redis_locks.delete_records([(token, 9) for token in tokens[:4]])
    assert set(await redis_locks.expired_records(100)) == {(token, 2) for token in tokens[4:10]}


@pytest.mark.parametrize("skip", [1, BUCKETS, 30])
async def test_the_first_expired_records_may_be_skipped(
    redis_locks: RedisLockStore, records: LockRecords, new_token: NewToken, skip: int
) -> None:
    tokens = [new_token(7 * number) for number in range(1, 41)]
    bound = await records.now() + MINUTE
    await asyncio.gather(
        *(redis_locks.write_record(token, LockRecord(1, DURATION, bound, IN_TIME, EDITION)) for token in tokens)
    )
    await records.pass_time(*tokens, by=DURATION)
    first, rest = await redis_locks.expired_records(skip), await redis_locks.expired_records(100, skip)
    assert {token for token, _ in (*first, *rest)} == set(tokens)
    assert (len(first), len(rest)) == (skip, len(tokens) - skip)
    assert await redis_locks.expired_records(100, len(tokens)) == []


@pytest.mark.parametrize("limit", [1, BUCKETS, 30])
async def test_no_more_expired_records_are_returned_than_the_limit(
    redis_locks: RedisLockStore, records: LockRecords, new_token: NewToken, limit: int
) -> None:
    tokens = [new_token(3 * number) for number in range(1, 65)]
    bound = await records.now() + MINUTE
    await asyncio.gather(
        *(redis_locks.write_record(token, LockRecord(1, DURATION, bound, IN_TIME, EDITION)) for token in tokens)
    )
    await records.pass_time(*tokens, by=DURATION)
    assert len(await redis_locks.expired_records(limit)) == limit, "a full page while records are left"
    found_tokens: set[LockToken] = set()
    for _ in bounded("no record is left", len(tokens) + 1):
        found = await redis_locks.expired_records(limit)
        assert len(found) <= limit
        if not found:
            break
        found_tokens.update(token for token, _ in found)
        await redis_locks.delete_records(found)
    assert found_tokens == set(tokens)


async def test_an_evicted_record_proves_nothing_and_its_index_entry_is_removed(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    await records.pass_time(token, by=DURATION)
    await records.evict(token)
    assert await redis_locks.expired_records(100) == []
    assert await records.indexed() == 0


@pytest.mark.fence("generation")
async def test_the_record_of_a_later_renewal_is_not_deleted(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    await redis_locks.write_record(token, LockRecord(2, DURATION, await records.now() + MINUTE, IN_TIME, EDITION))
    await redis_locks.delete_records([(token, 1)])
    assert isinstance(await redis_locks.renew(token, DURATION, EDITION), Renewed)
    await redis_locks.delete_records([(token, 2)])
    assert await records.read(token) is None
    assert await records.indexed() == 0


async def test_a_deleted_record_leaves_no_key(
    redis_locks: RedisLockStore, records: LockRecords, keys: RedisKeys, token: LockToken
) -> None:
    await redis_locks.delete_records([(token, 9)])
    assert [name async for name in records.redis.scan_iter(f"{keys.prefix}*")] == []


# ---- what Redis may do -----------------------------------------------------------------------------------------------


async def test_scripts_that_redis_has_forgotten_are_loaded_again(
    redis_locks: RedisLockStore, records: LockRecords, token: LockToken
) -> None:
    await records.redis.script_flush()
    assert isinstance(await redis_locks.renew(token, DURATION, EDITION), Renewed)


async def test_records_under_another_prefix_are_not_deleted(
    redis_locks: RedisLockStore, redis_url: str, token: LockToken
) -> None:
    connection = RedisConnection(connect(redis_url, timeout_seconds=10.0), SystemClock(), _fail)
    other = RedisLockStore(connection, RedisKeys("elsewhere:"))
    await other.delete_records([(token, 9)])
    assert isinstance(await redis_locks.renew(token, DURATION, EDITION), Renewed)
    await other.close()
    await connection.close()


def test_a_prefix_cannot_replace_the_bucket_as_hash_tag() -> None:
    with pytest.raises(ValueError, match="hash tag"):
        RedisKeys("{shop}:")


async def test_flushall_proves_nothing(private_server, keys: RedisKeys, new_token: NewToken) -> None:
    server = private_server(RedisServer)
    connection = RedisConnection(connect(server.url, timeout_seconds=10.0), SystemClock(), _fail)
    locks, records = RedisLockStore(connection, keys), LockRecords(Redis.from_url(server.url), keys)
    token = new_token()
    await locks.write_record(token, LockRecord(1, DURATION, await records.now() + MINUTE, IN_TIME, EDITION))
    await records.pass_time(token, by=DURATION)
    assert await locks.expired_generations([token]) == [1]
    await records.redis.flushall()
    assert await locks.expired_generations([token]) == [NO_EXPIRED_GENERATION]
    assert await locks.expired_records(100) == []
    await locks.close()
    await connection.close()
    await records.redis.aclose()


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error
