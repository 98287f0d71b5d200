"""Work units over HTTP: settlements, sends and publishes in one request, which take effect together."""

from collections.abc import Sequence

from app.api.endpoints.lock_actions import settlement_request
from app.api.endpoints.refusals import UNIT_REFUSALS
from app.broker.topics.publish import message_ids, published_results
from app.broker.transactions.execute import UnitPublish, UnitRequest, UnitSend, UnitSettlement, execute, identified
from app.domain.access import ANY_RIGHT, Right
from app.domain.message import Durability
from app.domain.refusals import Refusal, TopicNotFound, invalid_at
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken
from app.domain.state import StateChange, state_change
from app.domain.state_refusals import VersionConflict
from app.domain.work_unit import WorkUnitResult
from app.http.authorize import authorize
from app.http.operation import operation
from app.http.request import Request
from app.http.response import REPLAYED_HEADERS, Response
from app.wire.execution import AddedState, ExecutedWorkUnit, ExecuteWorkUnit, PublishEntry, SendEntry, SettleEntry
from app.wire.message_fields import MessageToSend
from app.wire.sending import SentMessage
from app.wire.settlements import settlement_done
from app.wire.state_values import StateBody
from app.wire.topics import published_message


@operation(
    "POST", "/v1/transactions/execute", right=ANY_RIGHT, tag="transactions",
    body=ExecuteWorkUnit, responses={200: ExecutedWorkUnit}, refusals=(*UNIT_REFUSALS, TopicNotFound, VersionConflict),
    headers=("Idempotency-Key", "traceparent"),
    example={
        "settlements": [
            {"queue": "orders", "lock_token": "17.00112233445566778899aabbccddeeff", "action": "complete"}
        ],
        "sends": [{"queue": "invoices", "body": {"order": 17}}],
        "publishes": [{"topic": "events", "body": {"completed": 17}}],
        "states": [{"key": "order.17", "if_version": 3, "value": {"paid": True}}],
    },
)  # fmt: skip
async def execute_unit(request: Request[ExecuteWorkUnit]) -> Response:
    """Settle deliveries, add versions to states, send and publish messages in one transaction: all of it, or nothing.

    The settlements come first, then the states, the sends in their order, and the publishes, to any number of queues and
    topics. A settlement that has no effect refuses the request, and so does a state that has a newer version than
    `if_version`; the problem points to it. The API key needs `listen` on the queues of the settlements and on the keys of
    the states, and `send` on the queues of the sends and on the topics of the publishes. Send an Idempotency-Key if you
    may repeat the request: without one a repeat is refused, because its deliveries have ended.
    """
    body = request.body
    if not (body.settlements or body.sends or body.publishes or body.states):
        raise invalid_at("", "Give at least one settlement, send, publish or state.")
    _authorize(request)
    attempt = request.idempotent_attempt("execute")
    settlements = await _settlements(request, body.settlements)
    sends = [unit_send(entry, index, request.traceparent()) for index, entry in enumerate(body.sends)]
    publishes = [unit_publish(entry, index, request.traceparent()) for index, entry in enumerate(body.publishes)]
    publishes = identified(publishes, message_ids(request.broker.topics, attempt))
    unit = UnitRequest(settlements, sends, publishes, _states(body.states))
    done = await execute(request.broker.transactions, unit, attempt)
    return Response(_executed(done.result, unit), headers=REPLAYED_HEADERS if done.replayed else ())


def _authorize(request: Request[ExecuteWorkUnit]) -> None:
    """Refuse with `Forbidden` a client that lacks a right on one of the queues, topics or states: the first in the request."""
    body = request.body
    # A dictionary keeps the order of its keys, and a set does not.
    for name in dict.fromkeys(entry.queue for entry in body.settlements):
        authorize(request.principal, Right.LISTEN, name)
    for key in dict.fromkeys(entry.key for entry in body.states):
        authorize(request.principal, Right.LISTEN, key, "state")
    for name in dict.fromkeys([*(entry.queue for entry in body.sends), *(entry.topic for entry in body.publishes)]):
        authorize(request.principal, Right.SEND, name)


async def _settlements(request: Request[ExecuteWorkUnit], entries: Sequence[SettleEntry]) -> list[UnitSettlement]:
    """Return the settlements. Refuses with a pointer to one that is invalid or repeats a token."""
    indexes: dict[LockToken, int] = {}
    settlements: list[UnitSettlement] = []
    for index, entry in enumerate(entries):
        pointer = f"/settlements/{index}"
        try:
            queue = await request.broker.queue_cache.by_name(entry.queue)
            token = LockToken.parse(entry.lock_token)
            settlements.append(UnitSettlement(queue, settlement_request(queue, token, entry)))
        except Refusal as refusal:
            raise refusal.located_at(pointer) from None
        if indexes.setdefault(token, index) != index:
            detail = f"Settlement {indexes[token]} of this request, counted from 0, has the same lock token."
            raise invalid_at(f"{pointer}/lock_token", detail)
    return settlements


def unit_send(entry: SendEntry, index: int, traceparent: str | None) -> UnitSend:
    """Return a send of a request with several. Refuses with a pointer to it."""
    return UnitSend(entry.queue, _new_message(entry, f"/sends/{index}", traceparent))


def unit_publish(entry: PublishEntry, index: int, traceparent: str | None) -> UnitPublish:
    """Return a publish of a request with several. Refuses with a pointer to it."""
    return UnitPublish(entry.topic, _new_message(entry, f"/publishes/{index}", traceparent))


def _states(entries: Sequence[StateBody]) -> list[StateChange]:
    """Return the changes of states. Refuses with a pointer to one that is too large or repeats a key."""
    indexes: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if indexes.setdefault(entry.key, index) != index:
            detail = f"State {indexes[entry.key]} of this request, counted from 0, has the same key."
            raise invalid_at(f"/states/{index}/key", detail)
    return [state_change(entry.next_state(f"/states/{index}"), None) for index, entry in enumerate(entries)]


def _new_message(entry: MessageToSend, pointer: str, traceparent: str | None) -> NewMessage:
    if entry.durability is not Durability.DURABLE:
        raise invalid_at(f"{pointer}/durability", "A message of a transaction is always durable.")
    return entry.new_message(traceparent, lambda name: pointer + name)


def _executed(result: WorkUnitResult, unit: UnitRequest) -> ExecutedWorkUnit:
    sent, copied = result.receipts[: len(unit.sends)], result.receipts[len(unit.sends) :]
    published = published_results([entry.new_message for entry in unit.publishes], copied)
    return ExecutedWorkUnit(
        [settlement_done(settled) for settled in result.settled],
        [SentMessage.of(receipt) for receipt in sent],
        [published_message(one) for one in published],
        [AddedState(state.key, added.number) for state, added in zip(unit.states, result.versions, strict=True)],
    )
