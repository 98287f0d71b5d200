"""Send, receive, renew and settle with the SDK that openapi-generator makes for Python."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import peeklock_sdk as sdk
from peeklock_sdk.exceptions import ConflictException
from peeklock_sdk.models import settlement

url, queue = sys.argv[1:]
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

with sdk.ApiClient(sdk.Configuration(host=url)) as connection, ThreadPoolExecutor() as threads:
    messages, locks, queues = sdk.MessagesApi(connection), sdk.LocksApi(connection), sdk.QueuesApi(connection)
    queues.put_queue(queue, sdk.QueueSettingsBody(lock_duration_seconds=600))

    sent = messages.send_message(queue, sdk.SendMessage(body=BODY, properties=PROPERTIES))
    (received,) = messages.receive_messages(queue, sdk.ReceiveMessages(wait_seconds=20)).messages
    token = received.lock_token
    renewed = locks.renew_lock(queue, token, sdk.RenewLock(lock_seconds=3600))
    completed = locks.complete_lock(queue, token)
    try:
        locks.abandon_lock(queue, token)
        raise SystemExit("a delivery that has ended was abandoned")
    except ConflictException as refused:
        problem = refused.data
    assert isinstance(problem, sdk.Problem)

    messages.send_batch(queue, sdk.SendBatch(messages=[sdk.MessageToSend(body=number) for number in range(4)]))
    locked = messages.receive_messages(queue, sdk.ReceiveMessages(max_messages=4, wait_seconds=20)).messages
    tokens = [message.lock_token for message in locked]
    entries = [
        sdk.CompleteSettlement(action="complete", lock_token=tokens[0]),
        sdk.AbandonSettlement(action="abandon", lock_token=tokens[1], delay_seconds=600, properties={"tried": True}),
        sdk.DeadLetterSettlement(action="dead_letter", lock_token=tokens[2], reason="no-such-article"),
        sdk.RenewSettlement(action="renew", lock_token=tokens[3], lock_seconds=60),
        sdk.DeferSettlement(action="defer", lock_token=token),
    ]
    batch = sdk.SettleMessages(settlements=[settlement.Settlement(entry) for entry in entries])
    results = [result.actual_instance for result in locks.settle_messages(queue, batch).results]

    none = messages.receive_messages(queue, sdk.ReceiveMessages(wait_seconds=0.1)).messages
    waiting = threads.submit(messages.receive_messages, queue, sdk.ReceiveMessages(wait_seconds=20))
    messages.send_message(queue, sdk.SendMessage(body="wake"))
    (woken,) = waiting.result().messages


def summary(result: object) -> list[str]:
    if isinstance(result, sdk.RefusedResult):
        return [result.result, result.problem.code]
    return [result.result, result.outcome] if isinstance(result, sdk.SettledResult) else ["renewed"]


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
        }
    )
)
