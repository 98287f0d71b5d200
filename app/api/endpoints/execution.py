"""Work units over HTTP: settlements and sends in one request, which take effect together."""

from collections.abc import Sequence

from app.api.endpoints.lock_actions import settlement_request
from app.api.http.authorize import authorize
from app.api.http.operation import operation
from app.api.http.request import Request
from app.api.http.response import REPLAYED_HEADERS, Response
from app.broker.execute import UnitRequest, UnitSend, UnitSettlement, execute
from app.domain.access import ANY_RIGHT, Right
from app.domain.message import Durability
from app.domain.refusals import Refusal, invalid_at
from app.domain.settlement import LockToken
from app.domain.work_unit import WorkUnitResult
from app.wire.execution import Execute, Executed, SendEntry, SettleEntry
from app.wire.sending import sent_message
from app.wire.settlements import settlement_done


@operation(
    "POST", "/v1/transactions/execute", right=ANY_RIGHT, tag="transactions",
    body=Execute, responses={200: Executed}, refusals=(404, 409, 410, 413, 422, 507),
    headers=("Idempotency-Key", "traceparent"),
    example={
        "settlements": [
            {"queue": "orders", "lock_token": "17.00112233445566778899aabbccddeeff", "action": "complete"}
        ],
        "sends": [{"queue": "invoices", "body": {"order": 17}}],
    },
)  # fmt: skip
async def execute_unit(request: Request[Execute]) -> Response:
    """Settle deliveries and send messages in one transaction: all take effect, or none.

    The settlements come first, then the sends in their order, to any number of queues. A settlement without effect
    refuses the request, with a pointer to it. The API key needs `listen` on the queues of the settlements and `send` on
    those of the sends. Send an Idempotency-Key if you may repeat the request: without one, a repeat is refused, because
    its deliveries have ended.
    """
    body = request.body
    if not body.settlements and not body.sends:
        raise invalid_at("", "Give at least one settlement or send.")
    _authorize(request)
    settlements = await _settlements(request, body.settlements)
    sends = [unit_send(entry, index, request.traceparent()) for index, entry in enumerate(body.sends)]
    once = await execute(
        request.broker.executing, UnitRequest(settlements, sends), request.idempotent_attempt("execute")
    )
    return Response(_executed(once.result), headers=REPLAYED_HEADERS if once.replayed else ())


def _authorize(request: Request[Execute]) -> None:
    """Refuse with `Forbidden` a client that lacks a right on one of the queues."""
    for name in {entry.queue for entry in request.body.settlements}:
        authorize(request.principal, Right.LISTEN, name)
    for name in {entry.queue for entry in request.body.sends}:
        authorize(request.principal, Right.SEND, name)


async def _settlements(request: Request[Execute], entries: Sequence[SettleEntry]) -> list[UnitSettlement]:
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
    pointer = f"/sends/{index}"
    if entry.durability is not Durability.DURABLE:
        raise invalid_at(f"{pointer}/durability", "A message of a transaction is always durable.")
    return UnitSend(entry.queue, entry.new_message(traceparent, lambda name: pointer + name))


def _executed(result: WorkUnitResult) -> Executed:
    return Executed(
        [settlement_done(settled) for settled in result.settled], [sent_message(receipt) for receipt in result.receipts]
    )
