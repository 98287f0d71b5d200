"""Converts rows of deliveries, explanations, batches, queues, topics and API keys to domain values. Messages are in `message_rows.py`.

A row is read by position, in the order of its `*_COLUMNS`. Statements name those columns as `@tombstone` and so on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

from app.domain.access import ApiKey, ReadKey
from app.domain.archive import ArchiveBatch, RemovalCause
from app.domain.explanation import EndedMessage, MessageFacts
from app.domain.history import Event, MessageEvent
from app.domain.message import MessageState
from app.domain.move_task import MoveState, MoveTask
from app.domain.queue import Queue
from app.domain.settlement import LockedMessage, LockToken, Outcome, Tombstone
from app.domain.topic import Route, Subscription, SubscriptionSettings, Topic, TopicSettings
from app.store.shared.json_columns import (
    read_labels,
    read_move_request,
    read_names,
    read_properties,
    read_rights,
    read_settings,
)

Row: TypeAlias = Sequence[Any]
"""One row as a driver returns it, read by position."""

STATES: Mapping[int, MessageState] = {state.value: state for state in MessageState}
IS_OFFERED = 8
"""The value of column `home_state` in a message whose sender waits for the settlement: it returns to no state."""

HOME_STATES: Mapping[int, MessageState] = {**STATES, IS_OFFERED: MessageState.AVAILABLE}
OUTCOMES: Mapping[str, Outcome] = {outcome.value: outcome for outcome in Outcome}

# ---- deliveries ------------------------------------------------------------------------------------------------------

LOCKED_COLUMNS = (
    "sequence_number",
    "lock_token",
    "queue_id",
    "lock_generation",
    "locked_until",
    "home_state",
    "delivery_count",
    "failure_count",
    "properties",
    "in_group",
    "in_transaction",
    "read_at",
)


def locked_message(row: Row) -> LockedMessage:
    """Convert a row of `LOCKED_COLUMNS`."""
    number, secret, queue_id, generation, until, home_state, *counts, properties, in_group, in_transaction, read_at = (
        row
    )
    deliveries, failures = counts
    return LockedMessage(
        LockToken(number, secret),
        queue_id,
        generation,
        until,
        HOME_STATES[home_state],
        deliveries,
        failures,
        read_properties(properties),
        in_group is not None,
        in_transaction is not None,
        read_at,
        home_state == IS_OFFERED,
    )


TOMBSTONE_COLUMNS = ("sequence_number", "lock_token", "queue_id", "outcome", "state", "settled_at")


def tombstone(row: Row) -> Tombstone:
    """Convert a row of `TOMBSTONE_COLUMNS`. The archive has null for `state`."""
    number, secret, queue_id, outcome, state, settled_at = row
    return Tombstone(
        LockToken(number, secret), queue_id, OUTCOMES[outcome], None if state is None else STATES[state], settled_at
    )


# ---- explanations ----------------------------------------------------------------------------------------------------

FACTS_COLUMNS = tuple(field.name for field in fields(MessageFacts) if field.name != "is_offered")


def message_facts(row: Row) -> MessageFacts:
    """Convert a row of `FACTS_COLUMNS`."""
    number, queue_id, state, home_state, *others = row
    return MessageFacts(
        number, queue_id, STATES[state], HOME_STATES[home_state], *others, is_offered=home_state == IS_OFFERED
    )


def ended_message(row: Row) -> EndedMessage:
    """Convert a row of the outcome, the time and the receiver."""
    outcome, settled_at, receiver_id = row
    return EndedMessage(OUTCOMES[outcome], settled_at, receiver_id)


# ---- histories -------------------------------------------------------------------------------------------------------

EVENT_COLUMNS = ("id", "happened_at", "event", "state", "outcome", "receiver_id", "reason", "delivery_count")


def message_event(row: Row) -> MessageEvent:
    """Convert a row of `EVENT_COLUMNS`."""
    number, happened_at, event, state, outcome, receiver_id, reason, delivery_count = row
    return MessageEvent(
        number,
        happened_at,
        Event(event),
        None if state is None else STATES[state],
        None if outcome is None else OUTCOMES[outcome],
        receiver_id,
        reason,
        delivery_count,
    )


# ---- archive batches -------------------------------------------------------------------------------------------------

BATCH_COLUMNS = ("number", "row_count", "digest", "sealed_at", "remove_at", "removed_at", "removal", "digest_version")


def batch(row: Row) -> ArchiveBatch:
    """Convert a row of `BATCH_COLUMNS`."""
    number, row_count, digest, sealed_at, remove_at, removed_at, removal, digest_version = row
    cause = None if removal is None else RemovalCause(removal)
    return ArchiveBatch(number, row_count, digest, sealed_at, remove_at, removed_at, cause, digest_version)


# ---- queues ----------------------------------------------------------------------------------------------------------

QUEUE_COLUMNS = ("id", "name", "settings", "version", "created_at", "updated_at", "lock_purges", "feature_level")


def queue(row: Row) -> Queue:
    """Convert a row of `QUEUE_COLUMNS`."""
    queue_id, name, settings, version, created_at, updated_at, lock_purges, feature_level = row
    return Queue(queue_id, name, read_settings(settings), version, created_at, updated_at, lock_purges, feature_level)


# ---- topics ----------------------------------------------------------------------------------------------------------

TOPIC_COLUMNS = ("id", "name", "description", "labels", "version", "created_at", "updated_at")


def topic(row: Row) -> Topic:
    """Convert a row of `TOPIC_COLUMNS`."""
    topic_id, name, description, labels, *others = row
    return Topic(topic_id, name, TopicSettings(description, read_labels(labels)), *others)


SUBSCRIPTION_COLUMNS = (
    "id",
    "topic_id",
    "name",
    "target_queue",
    "filter",
    "set_properties",
    "remove_properties",
    "labels",
    "version",
    "created_at",
    "updated_at",
)


def subscription(row: Row) -> Subscription:
    """Convert a row of `SUBSCRIPTION_COLUMNS`."""
    number, topic_id, name, target_queue, source, set_properties, removed, labels, *others = row
    settings = SubscriptionSettings(
        target_queue, source, set_properties.encode(), read_names(removed), read_labels(labels)
    )
    return Subscription(number, topic_id, name, settings, *others)


def route(row: Row) -> Route:
    """Convert a row of a subscription and its target queue, which is null if it does not exist."""
    end = len(SUBSCRIPTION_COLUMNS)
    return Route(subscription(row[:end]), None if row[end] is None else queue(row[end:]))


# ---- API keys --------------------------------------------------------------------------------------------------------

API_KEY_COLUMNS = (
    "id",
    "principal",
    "secret_hash",
    "rights",
    "created_at",
    "expires_at",
    "last_used_at",
    "revoked_at",
)


def api_key(row: Row) -> ApiKey:
    """Convert a row of `API_KEY_COLUMNS`."""
    key_id, principal, secret_hash, rights, created_at, expires_at, last_used_at, revoked_at = row
    return ApiKey(key_id, principal, secret_hash, read_rights(rights), created_at, expires_at, last_used_at, revoked_at)


def read_key(row: Row) -> ReadKey:
    """Convert a row of `API_KEY_COLUMNS` and the time."""
    *columns, read_at = row
    return ReadKey(api_key(columns), read_at)


# ---- move tasks ------------------------------------------------------------------------------------------------------

MOVE_TASK_COLUMNS = (
    "id",
    "queue_id",
    "request",
    "state",
    "position",
    "last_number",
    "found",
    "moved",
    "started_at",
    "progressed_at",
    "next_at",
    "ended_at",
    "reason",
    "read_at",
)


def move_task(row: Row) -> MoveTask:
    """Convert a row of `MOVE_TASK_COLUMNS`."""
    task_id, queue_id, request, state, *others = row
    return MoveTask(task_id, queue_id, read_move_request(request), MoveState(state), *others)
