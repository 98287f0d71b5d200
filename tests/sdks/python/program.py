"""Send, receive, renew and settle with the SDK that openapi-generator makes for Python."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import peeklock_sdk as sdk
from peeklock_sdk.exceptions import ApiException
from peeklock_sdk.models import settlement

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

connection = sdk.ApiClient(sdk.Configuration(host=url))
messages, locks = sdk.MessagesApi(connection), sdk.LocksApi(connection)
queues, transactions = sdk.QueuesApi(connection), sdk.TransactionsApi(connection)


def receive(wanted: sdk.ReceiveMessages) -> list[sdk.ReceivedMessage]:
    return messages.receive_messages(queue, wanted).messages


def refusal(api: sdk.LocksApi, token: str) -> sdk.Problem:
    """Return the problem with which a server refuses to abandon a delivery."""
    try:
        api.abandon_lock(queue, token)
    except ApiException as refused:
        match refused:
            case ApiException(data=sdk.Problem() as problem):
                return problem
            case ApiException(body=str(text)) if decoded := sdk.Problem.from_json(text):
                return decoded
            case _:
                raise
    raise SystemExit("the delivery was abandoned")


def summary(result: object) -> list[str]:
    if isinstance(result, sdk.RefusedResult):
        return [result.result, result.problem.code]
    return [result.result, result.outcome] if isinstance(result, sdk.SettledResult) else ["renewed"]


queues.put_queue(queue, sdk.QueueSettingsBody(lock_duration_seconds=600))
sent = messages.send_message(queue, sdk.SendMessage(body=BODY, properties=PROPERTIES))
(received,) = receive(sdk.ReceiveMessages(wait_seconds=20))
token = received.lock_token
renewed = locks.renew_lock(queue, token, sdk.RenewLock(lock_seconds=3600))
completed = locks.complete_lock(queue, token)
problem = refusal(locks, token)
newer = refusal(sdk.LocksApi(sdk.ApiClient(sdk.Configuration(host=newer_url))), token)

messages.send_batch(queue, sdk.SendBatch(messages=[sdk.MessageToSend(body=number) for number in range(4)]))
tokens = [message.lock_token for message in receive(sdk.ReceiveMessages(max_messages=4, wait_seconds=20))]
entries = [
    sdk.CompleteSettlement(action="complete", lock_token=tokens[0]),
    sdk.AbandonSettlement(action="abandon", lock_token=tokens[1], delay_seconds=600, properties={"tried": True}),
    sdk.DeadLetterSettlement(action="dead_letter", lock_token=tokens[2], reason="no-such-article"),
    sdk.RenewSettlement(action="renew", lock_token=tokens[3], lock_seconds=60),
    sdk.DeferSettlement(action="defer", lock_token=token),
]
batch = sdk.SettleMessages(settlements=[settlement.Settlement(entry) for entry in entries])
results = [result.actual_instance for result in locks.settle_messages(queue, batch).results]

with ThreadPoolExecutor() as threads:
    none = receive(sdk.ReceiveMessages(wait_seconds=0.1))
    waiting = threads.submit(receive, sdk.ReceiveMessages(wait_seconds=20))
    messages.send_message(queue, sdk.SendMessage(body="wake"))
    (woken,) = waiting.result()
dead_lettered = locks.dead_letter_lock(queue, woken.lock_token, sdk.DeadLetterLock(reason="unreadable"))
browsed = messages.browse_messages(queue, state=[sdk.MessageState("dead_lettered")])

messages.send_message(queue, sdk.SendMessage(body="later"))
(early,) = receive(sdk.ReceiveMessages(wait_seconds=20))
deferred = locks.defer_lock(queue, early.lock_token)
(late,) = receive(sdk.ReceiveMessages(sequence_numbers=[early.sequence_number]))

transaction = transactions.start_transaction().id
pending = locks.complete_lock(queue, late.lock_token, sdk.CompleteLock(transaction_id=transaction))
uncommitted = messages.send_message(queue, sdk.SendMessage(body="paid", transaction_id=transaction))
committed = transactions.commit_transaction(transaction)
(paid,) = receive(sdk.ReceiveMessages(wait_seconds=20))

print(
    json.dumps(
        {
            "same_message": sent.sequence_number == received.sequence_number,
            "properties": received.properties,
            "body": received.body,
            "renewed": renewed.lock_remaining_ms > 600_000,
            "completed": completed.outcome,
            "problem": [problem.status, problem.code, problem.retryable],
            "results": [summary(result) for result in results],
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
