"""Join: add a send, a publish or a settlement to a transaction, where it waits for the commit.

Sends and publishes are checked when they join, as if they were stored then. A settlement joins under the fence of a
renewal, which extends its lock beyond the deadline of the transaction and raises the generation. Then neither evidence
of an earlier renewal nor an earlier read of the row can end the lock.

Crash windows: before the SQL transaction ends nothing has joined. After it the members are stored; the client finds them
in the transaction, and a repeat is recognised by its Idempotency-Key or, for a settlement, by its lock token.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from app.broker.attempts import first_result
from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.sending.send import create_drafts
from app.broker.settling.settle import (
    MAX_TRIES,
    SettlementRequest,
    build_settlements,
    pause_before_retry,
    release_lost,
    resolve_late,
)
from app.broker.topics.publish import draft_all, message_ids, route, uncommitted_results, with_ids
from app.broker.transactions.ports import TransactionPorts
from app.domain.message import Draft, Durability
from app.domain.queue import Queue
from app.domain.refusals import AlreadySettled, InvalidRequest, MessageBusy, Refusal, SynchronousMessage
from app.domain.sending import NewMessage
from app.domain.settlement import NO_EXPIRED_GENERATION, LockedMessage, LockToken, Settlement
from app.domain.topic import Published
from app.domain.transaction import Intent, JoinedIntent, TransactionKey
from app.domain.transaction_refusals import RollbackCause

NamedDraft: TypeAlias = tuple[str, Draft]
"""A draft, and the name of its queue."""

JoinedSettlement: TypeAlias = JoinedIntent | Refusal | MessageBusy


async def join_sends(
    ports: TransactionPorts,
    key: TransactionKey,
    name: str,
    new_messages: Sequence[NewMessage],
    attempt: Attempt | None = None,
) -> AttemptResult[list[str]]:
    """Add all messages, or none; return their ids in order. With an attempt, a repeat gets the first result.

    Refuses as `create_drafts` does, and with `TransactionNotFound`, `TransactionEnded`, `TransactionRolledBack` or
    `TransactionFull`.
    """

    _check_durable(new_messages)

    async def create_sends() -> list[NamedDraft]:
        queue = await ports.sending.queue_cache.by_name_for_send(name, new_messages)
        return [(queue.name, draft) for draft in await create_drafts(ports.sending, queue, new_messages)]

    return await _join(ports, key, create_sends, attempt)


async def join_publishes(
    ports: TransactionPorts,
    key: TransactionKey,
    topic: str,
    new_messages: Sequence[NewMessage],
    attempt: Attempt | None = None,
) -> AttemptResult[list[Published]]:
    """Add a copy of each message for each subscription that matches now, or none; return how many matched.

    Later changes of the topic have no effect on these copies. Refuses as `route`, `draft_all` and `join_sends` do.
    """
    _check_durable(new_messages)
    identified = with_ids(new_messages, message_ids(ports.topics, attempt))

    async with ports.topics.budget.reserve_more() as held:

        async def create_copies() -> list[NamedDraft]:
            routed = await route(ports.topics, [(topic, new_message) for new_message in identified], held)
            drafts = await draft_all(ports.sending, routed)
            return [(queue.name, draft) for (queue, _), draft in zip(routed, drafts, strict=True)]

        joined = await _join(ports, key, create_copies, attempt)
    return AttemptResult(uncommitted_results(identified, joined.result), joined.replayed)


def _check_durable(new_messages: Sequence[NewMessage]) -> None:
    """Refuse with `InvalidRequest` what no transaction takes."""
    if any(new_message.durability is Durability.VOLATILE for new_message in new_messages):
        raise InvalidRequest("A message of a transaction is always durable.")


async def _join(
    ports: TransactionPorts,
    key: TransactionKey,
    create_sends: Callable[[], Awaitable[list[NamedDraft]]],
    attempt: Attempt | None,
) -> AttemptResult[list[str]]:
    """Create sends and add them. A repeat of an attempt gets the ids of the first try, even if it would be refused now."""
    try:
        await _check_joinable(ports, key)
        return await ports.store.join_sends(key, await create_sends(), attempt)
    except Refusal:
        if (first := await first_result(attempt, ports.store.find_join_result)) is None:
            raise
        return first


async def _check_joinable(ports: TransactionPorts, key: TransactionKey) -> None:
    """Refuse as `Transaction.check_joinable` does. An overdue transaction is rolled back first, so its cause is known."""
    transaction = await ports.store.find(key)
    if transaction.is_overdue:
        transaction = await ports.store.roll_back(key, RollbackCause.TIMEOUT)
    transaction.check_joinable()


async def join_settlements(
    ports: TransactionPorts, key: TransactionKey, queue: Queue, requests: Sequence[SettlementRequest]
) -> list[JoinedSettlement]:
    """Add settlements of one queue; return a result for each, in order. No two have the same token.

    Refuses as `join_sends` does. The result of a delivery that has ended is that of a late settlement.
    """
    await _check_joinable(ports, key)
    built = await build_settlements(ports.settling, queue, requests)
    results: dict[int, JoinedSettlement] = {}
    waiting: dict[int, Settlement] = {}
    for index, (request, settlement) in enumerate(zip(requests, built, strict=True)):
        if settlement is None:
            results[index] = await _late(ports, queue, request)
        elif isinstance(settlement, Refusal):
            results[index] = settlement
        else:
            waiting[index] = replace(settlement, keeps_history=queue.settings.history)
    for try_number in range(MAX_TRIES):
        if not waiting:
            break
        if try_number:
            await pause_before_retry(ports.settling.clock, try_number - 1)
        joined = await _try_join(ports, key, queue, waiting)
        results |= joined
        waiting = {index: settlement for index, settlement in waiting.items() if index not in joined}
    return [results.get(index, MessageBusy()) for index in range(len(requests))]


async def _try_join(
    ports: TransactionPorts, key: TransactionKey, queue: Queue, settlements: dict[int, Settlement]
) -> dict[int, JoinedSettlement]:
    """Return the results that are known after one try. The others are tried again."""
    results: dict[int, JoinedSettlement] = {}
    intents: dict[int, Intent] = {}
    rows = await ports.settling.store.locked_messages([settlement.token for settlement in settlements.values()])
    expired_generations = await _expired_generations(ports, rows)
    for (index, settlement), row in zip(settlements.items(), rows, strict=True):
        if row is None or row.queue_id != queue.id:
            results[index] = await _late(ports, queue, settlement)
            continue
        if row.is_offered:
            results[index] = SynchronousMessage()
            continue
        expired_generation = expired_generations.get(row.token, NO_EXPIRED_GENERATION)
        if row.is_live and row.lock_generation != expired_generation:
            intents[index] = Intent(settlement, expired_generation)
        elif lost := await release_lost(ports.settling, row, expired_generation):
            results[index] = lost
    joined = await ports.store.join_settlements(key, queue.name, list(intents.values()))
    return results | {index: result for index, result in zip(intents, joined, strict=True) if result is not None}


async def _expired_generations(ports: TransactionPorts, rows: Sequence[LockedMessage | None]) -> dict[LockToken, int]:
    """Return the expired generation of each lock that was renewed, by token."""
    renewed = [row.token for row in rows if row is not None and row.lock_generation]
    if not renewed:
        return {}
    return dict(zip(renewed, await ports.settling.lock_store.expired_generations(renewed), strict=True))


async def _late(ports: TransactionPorts, queue: Queue, request: SettlementRequest) -> Refusal:
    """Return the refusal of a delivery that has ended."""
    ended = await resolve_late(ports.settling, queue, request.token, None)
    return ended if isinstance(ended, Refusal) else AlreadySettled(ended.outcome)
