"""Commit: complete a message, send its results and add a version to a state, in one transaction.

The processor of a message loads the state as it was before the message (`load_state`), runs, and commits. A duplicate
runs on the version of the first processing, adds none, sends nothing and gets the receipts of the first processing: they
were stored in the transaction that sent the messages, so none can be missing (S4.5, S4.6, S4.8).

Crash windows: before the commit nothing has changed, and the message is delivered again. After it, a repeat with the
same lock token gets the first result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from app.broker.complete import complete
from app.broker.execute import ExecutePorts, UnitRequest, UnitSend, UnitSettlement, execute
from app.broker.ports import Attempt, AttemptResult, CommitStore
from app.domain.message import MAX_ID_LENGTH
from app.domain.queue import Queue
from app.domain.refusals import AlreadySettled, KeyReused, Refusal
from app.domain.settlement import LockToken, Outcome
from app.domain.state import NextState, derived_id, state_change
from app.domain.work_unit import WorkUnitResult


@dataclass(frozen=True, slots=True)
class CommitPorts:
    """What commits use."""

    messages: CommitStore
    executing: ExecutePorts


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """The results of processing a message: what is sent, and the next version of a state."""

    sends: Sequence[UnitSend] = ()
    state: NextState | None = None


async def commit(
    ports: CommitPorts, queue: Queue, token: LockToken, request: CommitRequest, attempt: Attempt
) -> AttemptResult[WorkUnitResult]:
    """Carry out all of it, or nothing. The attempt belongs to the lock token, so a repeat gets the first result.

    Sends without an id get one that follows from the id of the processed message. Refuses as `execute` does, with
    `VersionConflict` or `ResultDiffers`, and with `AlreadySettled` if another commit was made under this token.
    """
    # Without an id the delivery has ended. Then the unit fails, or is a repeat.
    message_id = await ports.messages.locked_message_id(queue.id, token)
    sends = _with_ids(request.sends, message_id)
    named = [(send.queue, send.new_message) for send in sends]
    states = () if request.state is None else (state_change(request.state, message_id, named),)
    settlement = UnitSettlement(queue, complete(queue, token))
    try:
        return await execute(ports.executing, UnitRequest([settlement], sends, states=states), attempt)
    except KeyReused:
        raise AlreadySettled(Outcome.COMPLETED) from None
    except Refusal as refusal:
        # The settlement is no member of this request.
        refusal.field_errors = tuple(
            fault for fault in refusal.field_errors if not fault.pointer.startswith("/settlements/")
        )
        raise


def _with_ids(sends: Sequence[UnitSend], message_id: str | None) -> list[UnitSend]:
    """Return the sends with an id for each that has none (S4.14)."""
    if message_id is None:
        return list(sends)
    return [_with_id(send, derived_id(message_id, place, MAX_ID_LENGTH)) for place, send in enumerate(sends)]


def _with_id(send: UnitSend, default_id: str) -> UnitSend:
    if send.new_message.envelope.message_id:
        return send
    envelope = msgspec.structs.replace(send.new_message.envelope, message_id=default_id)
    return replace(send, new_message=msgspec.structs.replace(send.new_message, envelope=envelope))
