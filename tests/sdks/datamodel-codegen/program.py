"""Send, receive, renew and settle with httpx and the models that datamodel-codegen makes."""

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import httpx
import peeklock_models as models
from pydantic import BaseModel

url, queue, newer_url = sys.argv[1:]
PROPERTIES = {
    "text": "007",
    "letters": "grün ☕",
    "time": "2026-11-24T03:48:19.123456Z",
    "small": 17,
    "beyond_double": 9007199254740993,
    "greatest": 9223372036854775807,
    "least": -9223372036854775808,
    "fraction": 0.1,
    "large": 1e300,
    "yes": True,
    "no": False,
    "nothing": None,
}
BODY = {"order": 17, "lines": [{"article": "007", "count": 9007199254740993}], "note": None}
Answer = TypeVar("Answer", bound=BaseModel)

connection = httpx.Client(base_url=url, timeout=60.0)


def call(kind: type[Answer], path: str, body: BaseModel | None = None, method: str = "POST") -> Answer:
    """Send a request, and return its answer. A field that is not set is not sent."""
    content = None if body is None else body.model_dump_json(exclude_unset=True)
    headers = {} if body is None else {"Content-Type": "application/json"}
    return kind.model_validate_json(connection.request(method, path, content=content, headers=headers).content)


def send(message: models.SendMessage) -> models.SendAnswer:
    return call(models.SendAnswer, f"/v1/queues/{queue}/messages", message)


def receive(wanted: models.ReceiveMessages) -> Sequence[models.ReceivedMessage]:
    return call(models.ReceivedMessages, f"/v1/queues/{queue}/messages/receive", wanted).messages


def settle(step: str, lock_token: str, body: BaseModel | None = None) -> models.SettlementDone:
    return call(models.SettlementDone, f"/v1/queues/{queue}/locks/{lock_token}/{step}", body)


def summary(result: models.SettledResult | models.RenewedResult | models.RefusedResult) -> list[str]:
    if isinstance(result, models.RefusedResult):
        return [result.result, result.problem.code]
    return [result.result, result.outcome] if isinstance(result, models.SettledResult) else [result.result]


call(models.QueueView, f"/v1/queues/{queue}", models.QueueSettingsBody(lock_duration_seconds=600), "PUT")
sent = send(models.SendMessage(body=BODY, properties=PROPERTIES))
(received,) = receive(models.ReceiveMessages(wait_seconds=20))
token = received.lock_token
lock = f"/v1/queues/{queue}/locks/{token}"
renewed = call(models.LockRenewed, f"{lock}/renew", models.RenewLock(lock_seconds=3600))
completed = settle("complete", token)
problem = call(models.Problem, f"{lock}/abandon")
newer = call(models.Problem, f"{newer_url}{lock}/abandon")

numbers = [models.MessageToSend(body=number) for number in range(4)]
call(models.SendResults, f"/v1/queues/{queue}/messages/batch", models.SendBatch(messages=numbers))
tokens = [message.lock_token for message in receive(models.ReceiveMessages(max_messages=4, wait_seconds=20))]
batch = models.SettleMessages(
    settlements=[
        models.CompleteSettlement(action="complete", lock_token=tokens[0]),
        models.AbandonSettlement(action="abandon", lock_token=tokens[1], delay_seconds=600, properties={"tried": True}),
        models.DeadLetterSettlement(action="dead_letter", lock_token=tokens[2], reason="no-such-article"),
        models.RenewSettlement(action="renew", lock_token=tokens[3], lock_seconds=60),
        models.DeferSettlement(action="defer", lock_token=token),
    ]
)
settled = call(models.SettlementResults, f"/v1/queues/{queue}/settle", batch)

with ThreadPoolExecutor() as threads:
    none = receive(models.ReceiveMessages(wait_seconds=0.1))
    waiting = threads.submit(receive, models.ReceiveMessages(wait_seconds=20))
    send(models.SendMessage(body="wake"))
    (woken,) = waiting.result()
dead_lettered = settle("dead-letter", woken.lock_token, models.DeadLetterLock(reason="unreadable"))
browsed = call(models.MessagePage, f"/v1/queues/{queue}/messages?state=dead_lettered", method="GET")

send(models.SendMessage(body="later"))
(early,) = receive(models.ReceiveMessages(wait_seconds=20))
deferred = settle("defer", early.lock_token)
(late,) = receive(models.ReceiveMessages(sequence_numbers=[early.sequence_number]))

transaction = call(models.TransactionView, "/v1/transactions").id
pending = settle("complete", late.lock_token, models.CompleteLock(transaction_id=transaction))
uncommitted = send(models.SendMessage(body="paid", transaction_id=transaction))
committed = call(models.CommittedTransaction, f"/v1/transactions/{transaction}/commit")
(paid,) = receive(models.ReceiveMessages(wait_seconds=20))

print(
    json.dumps(
        {
            "same_message": sent.sequence_number == received.sequence_number,
            "properties": received.properties,
            "body": received.body,
            "renewed": renewed.lock_remaining_ms > 600_000,
            "completed": completed.outcome,
            "problem": [problem.status, problem.code, problem.retryable],
            "results": [summary(result) for result in settled.results],
            "none": len(none),
            "woken": woken.body,
            "dead_lettered": dead_lettered.outcome,
            "browsed": [[message.body, message.dead_letter_reason] for message in browsed.items],
            "deferred": [deferred.outcome, late.body],
            "transaction": [pending.pending, uncommitted.state, committed.state, paid.body],
            "newer": [newer.status, newer.code, newer.title, newer.detail, newer.retryable, newer.retry_after],
        }
    )
)
