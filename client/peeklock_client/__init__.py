"""A client of Peeklock: send, receive under a lock and settle messages, and run workers."""

from peeklock_client.client import Client, Queue, Topic
from peeklock_client.connection import RetryLimits
from peeklock_client.errors import (
    AlreadySettled,
    InDoubt,
    LockLost,
    NotConnected,
    PeeklockError,
    Refusal,
    VersionConflict,
)
from peeklock_client.events import CloudEvent, NoEvent, event_of
from peeklock_client.messages import Message, NewMessage
from peeklock_client.receive_context import ReceiveContext, ReceiveState, WrongState
from peeklock_client.sender import PendingSend, Sender
from peeklock_client.transaction import Transaction
from peeklock_client.worker.options import AckPolicy, SubscriberOptions
from peeklock_client.worker.replay import HandlerContext
from peeklock_client.worker.retry import ConstantRetry, ExponentialRetry, LinearRetry, NoRetry
from peeklock_client.worker.worker import Worker

__all__ = [
    "AckPolicy",
    "AlreadySettled",
    "Client",
    "CloudEvent",
    "ConstantRetry",
    "ExponentialRetry",
    "HandlerContext",
    "InDoubt",
    "LinearRetry",
    "LockLost",
    "Message",
    "NewMessage",
    "NoEvent",
    "NoRetry",
    "NotConnected",
    "PeeklockError",
    "PendingSend",
    "Queue",
    "ReceiveContext",
    "ReceiveState",
    "Refusal",
    "RetryLimits",
    "Sender",
    "SubscriberOptions",
    "Topic",
    "Transaction",
    "VersionConflict",
    "Worker",
    "WrongState",
    "event_of",
]
