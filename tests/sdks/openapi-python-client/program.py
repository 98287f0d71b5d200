"""Send, receive, renew and settle with the SDK that openapi-python-client makes."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
from peeklock_sdk import Client, models
from peeklock_sdk.api.locks import abandon_lock, complete_lock, renew_lock, settle_messages
from peeklock_sdk.api.messages import receive_messages, send_batch, send_message
from peeklock_sdk.api.queues import put_queue

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


def receive(connection: Client, **wanted: float) -> list[models.ReceivedMessage]:
    body = models.ReceiveMessages.from_dict(wanted)
    received = receive_messages.sync(queue, client=connection, body=body)
    assert isinstance(received, models.ReceivedMessages)
    return received.messages


# Its default timeout of 5 seconds is shorter than the wait of a receive.
with Client(base_url=url, timeout=httpx.Timeout(60.0)) as connection, ThreadPoolExecutor() as threads:
    put_queue.sync(queue, client=connection, body=models.QueueSettingsBody(lock_duration_seconds=600))

    properties = models.Properties.from_dict(PROPERTIES)
    message = models.SendMessage(body=BODY, properties=properties)
    sent = send_message.sync(queue, client=connection, body=message)
    assert isinstance(sent, models.SendAnswer)
    (received,) = receive(connection, wait_seconds=20)
    token = received.lock_token
    renewed = renew_lock.sync(queue, token, client=connection, body=models.RenewLock(lock_seconds=3600))
    assert isinstance(renewed, models.LockRenewed)
    completed = complete_lock.sync(queue, token, client=connection)
    assert isinstance(completed, models.SettlementDone)
    problem = abandon_lock.sync(queue, token, client=connection)
    assert isinstance(problem, models.Problem)

    numbers = [models.MessageToSend(body=number) for number in range(4)]
    send_batch.sync(queue, client=connection, body=models.SendBatch(messages=numbers))
    tokens = [message.lock_token for message in receive(connection, max_messages=4, wait_seconds=20)]
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
    settled = settle_messages.sync(queue, client=connection, body=batch)
    assert isinstance(settled, models.SettlementResults)

    none = receive(connection, wait_seconds=0.1)
    waiting = threads.submit(receive, connection, wait_seconds=20)
    send_message.sync(queue, client=connection, body=models.SendMessage(body="wake"))
    (woken,) = waiting.result()


def summary(result: object) -> list[str]:
    if isinstance(result, models.RefusedResult):
        return [result.result, result.problem.code]
    return [result.result, result.outcome.value] if isinstance(result, models.SettledResult) else ["renewed"]


assert isinstance(received.properties, models.Properties)
print(
    json.dumps(
        {
            "same_message": sent.sequence_number == received.sequence_number,
            "properties": received.properties.to_dict(),
            "body": received.body,
            "renewed": renewed.lock_remaining_ms > 600_000,
            "completed": completed.outcome,
            "problem": [problem.status, problem.code, problem.retryable],
            "results": [summary(result) for result in settled.results],
            "none": len(none),
            "woken": woken.body,
        }
    )
)
