"""What a server offers, as JSON: its versions, how safe its messages are, and its limits."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from app.domain.instant import to_seconds
from app.domain.message import (
    MAX_BATCH_COUNT,
    MAX_FILTER_BYTES,
    MAX_PRIORITY,
    MAX_PROPERTIES,
    MAX_PROPERTIES_BYTES,
    MAX_RECEIVE_COUNT,
)
from app.domain.queue import MAX_LOCK_DURATION, MAX_MESSAGE_BYTES, MAX_NAME_LENGTH, MAX_TTL, MIN_LOCK_DURATION
from app.domain.retry import MAX_DELAY
from app.domain.transaction import MAX_MEMBERS
from app.wire.field_types import LockStoreState

API_VERSION: Final = "v1"
OPENAPI_VERSION: Final = "3.1.0"


class Versions(msgspec.Struct):
    """The versions of the server, of its HTTP interface, of the OpenAPI document, and of the tables."""

    server: str
    schema: str | None
    api: Literal["v1"] = API_VERSION
    openapi: Literal["3.1.0"] = OPENAPI_VERSION


StoreEngine: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["sqlite", "postgresql", "mysql"]})]


class StoreCapabilities(msgspec.Struct):
    """The database of the server."""

    engine: StoreEngine
    durable: bool
    replicated: bool
    accepts_durable_messages: bool
    risks: list[str]


class LockStoreCapabilities(msgspec.Struct):
    """How server processes share lock renewals and wake-ups. Without Redis, one process serves the database."""

    shared: bool
    state: LockStoreState


class ServerLimits(msgspec.Struct, kw_only=True):
    """The limits of requests. The first five are settings of the server."""

    max_request_bytes: int
    max_answer_bytes: int
    max_queues: int | None
    max_wait_seconds: float
    max_transactions_per_principal: int
    max_transaction_members: int = MAX_MEMBERS
    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_batch_messages: int = MAX_BATCH_COUNT
    max_batch_settlements: int = MAX_BATCH_COUNT
    max_receive_messages: int = MAX_RECEIVE_COUNT
    min_lock_seconds: float = to_seconds(MIN_LOCK_DURATION)
    max_lock_seconds: float = to_seconds(MAX_LOCK_DURATION)
    max_delay_seconds: float = to_seconds(MAX_DELAY)
    max_ttl_seconds: float = to_seconds(MAX_TTL)
    max_priority: int = MAX_PRIORITY
    max_properties: int = MAX_PROPERTIES
    max_properties_bytes: int = MAX_PROPERTIES_BYTES
    max_filter_bytes: int = MAX_FILTER_BYTES
    max_name_length: int = MAX_NAME_LENGTH


class Capabilities(msgspec.Struct, kw_only=True):
    """What a server offers."""

    versions: Versions
    store: StoreCapabilities
    lock_store: LockStoreCapabilities
    transactions: bool = True
    synchronous_delivery: bool = True
    limits: ServerLimits
