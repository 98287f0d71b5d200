"""Send, receive, renew and settle with the SDK that openapi-python-client makes."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import httpx
from peeklock_sdk import Client, models
from peeklock_sdk.api.locks import (
    abandon_lock,
    complete_lock,
    dead_letter_lock,
    defer_lock,
    renew_lock,
    settle_messages,
)
from peeklock_sdk.api.messages import browse_messages, receive_messages, send_batch, send_message
from peeklock_sdk.api.queues import put_queue
from peeklock_sdk.api.transactions import commit_transaction, start_transaction

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
Kind = TypeVar("Kind")

# Its default timeout of 5 seconds is shorter than the wait of a receive.
connection = Client(base_url=url, timeout=httpx.Timeout(60.0))


def answer(kind: type[Kind], value: object) -> Kind:
    """Return an answer of this type. Another one is a problem."""
    if isinstance(value, kind):
        return value
    raise SystemExit(f"no {kind.__name__}: {value}")


def send(message: models.SendMessage) -> models.SendAnswer:
    return answer(models.SendAnswer, send_message.sync(queue, client=connection, body=message))


def receive(wanted: models.ReceiveMessages) -> list[models.ReceivedMessage]:
    received = receive_messages.sync(queue, client=connection, body=wanted)
    return answer(models.ReceivedMessages, received).messages


def summary(result: object) -> list[str]:
    if isinstance(result, models.RefusedResult):
        return [result.result, result.problem.code]
    return [result.result, result.outcome.value] if isinstance(result, models.SettledResult) else ["renewed"]


put_queue.sync(queue, client=connection, body=models.QueueSettingsBody(lock_duration_seconds=600))
sent = send(models.SendMessage(body=BODY, properties=models.Properties.from_dict(PROPERTIES)))
(received,) = receive(models.ReceiveMessages(wait_seconds=20))
token = received.lock_token
renewal = renew_lock.sync(queue, token, client=connection, body=models.RenewLock(lock_seconds=3600))
renewed = answer(models.LockRenewed, renewal)
completed = answer(models.SettlementDone, complete_lock.sync(queue, token, client=connection))
problem = answer(models.Problem, abandon_lock.sync(queue, token, client=connection))
newer = answer(models.Problem, abandon_lock.sync(queue, token, client=Client(base_url=newer_url)))

numbers = [models.MessageToSend(body=number) for number in range(4)]
send_batch.sync(queue, client=connection, body=models.SendBatch(messages=numbers))
tokens = [message.lock_token for message in receive(models.ReceiveMessages(max_messages=4, wait_seconds=20))]
tried = models.Properties.from_dict({"tried": True})
batch = models.SettleMessages(
    settlements=[
        models.CompleteSettlement(lock_token=tokens[0]),
        models.AbandonSettlement(lock_token=tokens[1], delay_seconds=600, properties=tried),
        models.DeadLetterSettlement(lock_token=tokens[2], reason="no-such-article"),
        models.RenewSettlement(lock_token=tokens[3], lock_seconds=60),
        models.DeferSettlement(lock_token=token),
    ]
)
settled = answer(models.SettlementResults, settle_messages.sync(queue, client=connection, body=batch))

with ThreadPoolExecutor() as threads:
    none = receive(models.ReceiveMessages(wait_seconds=0.1))
    waiting = threads.submit(receive, models.ReceiveMessages(wait_seconds=20))
    send(models.SendMessage(body="wake"))
    (woken,) = waiting.result()
unreadable = models.DeadLetterLock(reason="unreadable")
dead_lettered = answer(
    models.SettlementDone, dead_letter_lock.sync(queue, woken.lock_token, client=connection, body=unreadable)
)
dead_letters = browse_messages.sync(queue, client=connection, state=[models.MessageState("dead_lettered")])
browsed = answer(models.MessagePage, dead_letters)

send(models.SendMessage(body="later"))
(early,) = receive(models.ReceiveMessages(wait_seconds=20))
deferred = answer(models.SettlementDone, defer_lock.sync(queue, early.lock_token, client=connection))
(late,) = receive(models.ReceiveMessages(sequence_numbers=[early.sequence_number]))

transaction = answer(models.TransactionView, start_transaction.sync(client=connection)).id
completion = models.CompleteLock(transaction_id=transaction)
pending = answer(models.SettlementDone, complete_lock.sync(queue, late.lock_token, client=connection, body=completion))
uncommitted = send(models.SendMessage(body="paid", transaction_id=transaction))
committed = answer(models.CommittedTransaction, commit_transaction.sync(transaction, client=connection))
(paid,) = receive(models.ReceiveMessages(wait_seconds=20))

print(
    json.dumps(
        {
            "same_message": sent.sequence_number == received.sequence_number,
            "properties": answer(models.Properties, received.properties).to_dict(),
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
