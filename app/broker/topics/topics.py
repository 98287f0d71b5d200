"""Topics and subscriptions: create, change and delete them, under the precondition of the request.

Both are named entities with settings and a version, so one set of verbs serves both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.broker.ports.topics import EntityStore
from app.broker.precondition import MAX_TRIES, UNCONDITIONAL, Precondition
from app.broker.topics.ports import TopicPorts
from app.domain.queue import QueueSettings
from app.domain.refusals import NotFound, StoreUnavailable, SubscriptionNotFound, TopicNotFound
from app.domain.topic import (
    MAX_SUBSCRIPTIONS,
    MAX_TOPICS,
    Subscription,
    SubscriptionSettings,
    Topic,
    TopicSettings,
)

TOO_MANY_CHANGES_DETAIL = "Too many concurrent changes; this request changed nothing."

SettingsT = TypeVar("SettingsT")
EntityT = TypeVar("EntityT", Topic, Subscription)


@dataclass(frozen=True, slots=True)
class Collection(Generic[EntityT, SettingsT]):
    """All topics, or the subscriptions of one topic. `limit` is the largest number of them."""

    ports: TopicPorts
    store: EntityStore[EntityT, SettingsT]
    limit: int
    kind: str
    not_found: type[NotFound]

    def missing(self, name: str) -> NotFound:
        """Build the refusal for a name that no entity has."""
        return self.not_found(f"There is no {self.kind} named {name}.")

    def report_change(self) -> None:
        """Make this process and the others read the topics again."""
        self.ports.topic_cache.clear()
        self.ports.notifier.queues_changed()


def all_topics(ports: TopicPorts) -> Collection[Topic, TopicSettings]:
    """Return the topics."""
    return Collection(ports, ports.store, MAX_TOPICS, "topic", TopicNotFound)


def subscriptions_of(ports: TopicPorts, topic: Topic) -> Collection[Subscription, SubscriptionSettings]:
    """Return the subscriptions of a topic."""
    store = ports.store.subscriptions(topic)
    return Collection(ports, store, MAX_SUBSCRIPTIONS, "subscription", SubscriptionNotFound)


async def read(collection: Collection[EntityT, SettingsT], name: str) -> EntityT:
    """Return the entity of this name. Refuses with `TopicNotFound` or `SubscriptionNotFound`."""
    entity = await collection.store.find(name)
    if entity is None:
        raise collection.missing(name)
    return entity


async def put(
    collection: Collection[EntityT, SettingsT],
    name: str,
    settings: SettingsT,
    precondition: Precondition = UNCONDITIONAL,
) -> tuple[EntityT, bool]:
    """Create the entity or replace its settings; return it and whether it was created.

    Equal settings change nothing. Refuses with `PreconditionFailed`, and as the store does.
    """
    for _ in range(MAX_TRIES):
        entity = await collection.store.find(name)
        if entity is not None:
            if changed := await _try_change(collection, entity, settings, precondition):
                return changed, False
        else:
            precondition.check_absent(collection.kind, name)
            if created := await collection.store.create(name, settings, collection.limit):
                collection.report_change()
                return created, True
    raise StoreUnavailable(TOO_MANY_CHANGES_DETAIL)


async def change(
    collection: Collection[EntityT, SettingsT],
    name: str,
    change_settings: Callable[[EntityT], SettingsT],
    precondition: Precondition = UNCONDITIONAL,
) -> EntityT:
    """Replace the settings with the result of `change_settings`, which is applied again after a concurrent change.

    Refuses as `put` and `read` do.
    """
    for _ in range(MAX_TRIES):
        entity = await read(collection, name)
        if changed := await _try_change(collection, entity, change_settings(entity), precondition):
            return changed
    raise StoreUnavailable(TOO_MANY_CHANGES_DETAIL)


async def delete(
    collection: Collection[EntityT, SettingsT], name: str, precondition: Precondition = UNCONDITIONAL
) -> None:
    """Delete the entity. No queue is deleted with it. Refuses as `read` does, and with `PreconditionFailed`."""
    for _ in range(MAX_TRIES):
        entity = await _reload(collection, name)
        precondition.check(collection.kind, entity.name, entity.etag)
        if await collection.store.delete(entity):
            collection.report_change()
            return
    raise StoreUnavailable(TOO_MANY_CHANGES_DETAIL)


async def create_target(ports: TopicPorts, name: str) -> None:
    """Create the queue that a subscription without a target queue gets, unless it exists. Refuses with `TooManyQueues`."""
    await ports.sending.queue_cache.create(name, QueueSettings())


async def _reload(collection: Collection[EntityT, SettingsT], name: str) -> EntityT:
    """Return the entity of this name, before it is deleted. Refuses as `read` does, once synchronous standbys agree."""
    entity = await collection.store.find(name)
    if entity is None:
        await collection.store.await_replication()
        raise collection.missing(name)
    return entity


async def _try_change(
    collection: Collection[EntityT, SettingsT], entity: EntityT, settings: SettingsT, precondition: Precondition
) -> EntityT | None:
    """Return the changed entity, or None if another request has changed it meanwhile."""
    precondition.check(collection.kind, entity.name, entity.etag)
    if settings == entity.settings:
        await collection.store.await_replication()
        return entity
    changed = await collection.store.change(entity, settings)
    if changed is not None:
        collection.report_change()
    return changed
