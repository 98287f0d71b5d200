"""Commit: complete a message, send and publish its results and add a version to a state, in one transaction.

The processor of a message loads the state as it was before the message (`load_state`), runs, and commits. A duplicate
runs on the version of the first processing, adds none, sends nothing and gets the receipts of the first processing: they
were stored in the transaction that sent the messages, so none can be missing (S4.5, S4.6, S4.8).

Crash windows: before the commit nothing has changed, and the message is delivered again. After it, a repeat with the
same lock token gets the first result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import msgspec

from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.settling.outcomes import complete
from app.broker.transactions.execute import UnitPublish, UnitRequest, UnitSend, UnitSettlement, execute, identified
from app.broker.transactions.ports import TransactionPorts
from app.domain.message import MAX_ID_LENGTH
from app.domain.queue import Queue
from app.domain.refusals import AlreadySettled, KeyReused, Refusal
from app.domain.settlement import LockToken, Outcome
from app.domain.state import NamedSend, NextState, derived_id, output_id, state_change
from app.domain.work_unit import WorkUnitResult

Entry = TypeVar("Entry", UnitSend, UnitPublish)


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """The results of processing a message: what is sent and published, and the next version of a state."""

    sends: Sequence[UnitSend] = ()
    publishes: Sequence[UnitPublish] = ()
    state: NextState | None = None


async def commit(
    ports: TransactionPorts, queue: Queue, token: LockToken, request: CommitRequest, attempt: Attempt
) -> AttemptResult[WorkUnitResult]:
    """Complete the message, send, publish and add the version, or do nothing. A repeat with the token gets the first result.

    Sends and publishes without an id get one that follows from the queue and the id of the processed message. Refuses as `execute`
    does, with `VersionConflict` or `ResultDiffers`, and with `AlreadySettled` if another commit was made under this token.
    """
    # Without an id the delivery has ended. Then the unit fails, or is a repeat.
    message_id = ports.delivered_ids.take(queue.id, token)
    if message_id is None:
        message_id = await ports.settling.store.locked_message_id(queue.id, token)
    states = () if request.state is None else (state_change(request.state, message_id, _named(request, message_id)),)
    name = None if message_id is None else partial(output_id, queue.name, message_id, max_length=MAX_ID_LENGTH)
    sends = _with_ids(request.sends, name, 0)
    publishes = _with_ids(request.publishes, name, len(sends))
    publishes = identified(publishes, ports.sending.new_id)
    unit = UnitRequest([UnitSettlement(queue, complete(queue, token))], sends, publishes, states)
    try:
        return await execute(ports, unit, attempt)
    except KeyReused:
        raise AlreadySettled(Outcome.COMPLETED) from None
    except Refusal as refusal:
        # The settlement is no member of this request.
        refusal.field_errors = tuple(
            fault for fault in refusal.field_errors if not fault.pointer.startswith("/settlements/")
        )
        raise


def _named(request: CommitRequest, message_id: str | None) -> list[NamedSend]:
    """Return each message with the name of its target, to compare results.

    `topic ` marks a topic, because no queue has a space in its name. A message without an id gets one that does not name
    the queue of its origin. Otherwise a duplicate would differ from a first processing by an older server.
    """
    name = None if message_id is None else partial(derived_id, message_id, max_length=MAX_ID_LENGTH)
    sends = _with_ids(request.sends, name, 0)
    named = [(entry.queue, entry.new_message) for entry in sends]
    publishes = _with_ids(request.publishes, name, len(sends))
    return named + [(f"topic {entry.topic}", entry.new_message) for entry in publishes]


def _with_ids(entries: Sequence[Entry], name: Callable[[int], str] | None, first_index: int) -> list[Entry]:
    """Return the entries with an id for each that has none, by its index (S4.14)."""
    if name is None:
        return list(entries)
    return [_with_id(entry, name(index)) for index, entry in enumerate(entries, first_index)]


def _with_id(entry: Entry, default_id: str) -> Entry:
    if entry.new_message.envelope.message_id:
        return entry
    envelope = msgspec.structs.replace(entry.new_message.envelope, message_id=default_id)
    return replace(entry, new_message=msgspec.structs.replace(entry.new_message, envelope=envelope))
