"""The store of topics and subscriptions."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from app.broker.ports.replicated_store import ReplicatedStore
from app.domain.topic import Route, Subscription, SubscriptionSettings, Topic, TopicSettings

Entity = TypeVar("Entity")
SettingsT_contra = TypeVar("SettingsT_contra", contravariant=True)


class EntityStore(ReplicatedStore, Protocol[Entity, SettingsT_contra]):
    """Named entities of one kind, each with settings and a version that grows with every change."""

    async def create(self, name: str, settings: SettingsT_contra, limit: int | None = None) -> Entity | None:
        """Create the entity; return None if one of this name exists. `limit` is the largest number of entities."""
        ...

    async def find(self, name: str) -> Entity | None:
        """Return the entity of this name, or None."""
        ...

    async def page(self, after: str, limit: int) -> list[Entity]:
        """Return entities with names above `after`, ascending by code point."""
        ...

    async def change(self, entity: Entity, settings: SettingsT_contra) -> Entity | None:
        """Replace the settings of the entity; return None if its version has changed since it was read."""
        ...

    async def delete(self, entity: Entity) -> bool:
        """Delete the entity; return False if its version has changed since it was read."""
        ...


class SubscriptionStore(EntityStore[Subscription, SubscriptionSettings], Protocol):
    """The subscriptions of one topic.

    `create` and `change` refuse with `QueueNotFound` a target queue that does not exist, and with `TargetQueueTaken`
    one that another subscription of the topic has. `create` refuses with `TopicNotFound` once the topic is deleted, and
    with `TooManySubscriptions`.
    """


class TopicStore(EntityStore[Topic, TopicSettings], Protocol):
    """The topics.

    `create` refuses with `TooManyTopics`. `delete` also deletes the subscriptions of the topic; their queues stay.
    """

    def subscriptions(self, topic: Topic) -> SubscriptionStore:
        """Return the subscriptions of this topic."""
        ...

    async def routes(self, topic: Topic) -> Sequence[Route]:
        """Return all subscriptions of the topic by name, each with its target queue."""
        ...
