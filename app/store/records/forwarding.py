"""The check of a setting that forwards messages, in the transaction that stores it."""

from app.domain.queue import MAX_FORWARDING_HOPS, Queue
from app.domain.refusals import ForwardingCycle, ForwardingTooLong, invalid_at
from app.store.records import rows
from app.store.records.database import SqlSession


async def check_forwarding(session: SqlSession, name: str, forward_to: str) -> None:
    """Refuse with `InvalidRequest` a target that does not exist, with `ForwardingCycle` a way back to the queue of this
    name, and with `ForwardingTooLong` too many hops.

    These checks run one at a time, so two changes cannot make a cycle together. A queue before this one in a chain may
    make the chain too long; its sends are refused.
    """
    await session.fetch("serialize_queue_creation")
    chain, target = [name], forward_to
    while target != name:
        queue = await _find(session, target)
        if queue is None and len(chain) == 1:
            raise invalid_at("/forward_to", f"There is no queue named {target}.")
        if queue is None or queue.settings.forward_to is None:
            return
        chain.append(target)
        if len(chain) > MAX_FORWARDING_HOPS:
            raise ForwardingTooLong(
                f"A message is forwarded at most {MAX_FORWARDING_HOPS} times: {' to '.join(chain)}."
            )
        target = queue.settings.forward_to
    raise ForwardingCycle(f"Queue {' forwards to '.join([*chain, name])}.")


async def _find(session: SqlSession, name: str) -> Queue | None:
    found = await session.fetch("find_queue", name=name)
    return rows.queue(found[0]) if found else None
