"""Topics and their subscriptions."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

from app.domain.topic import Route, Subscription, SubscriptionSettings, Topic, TopicSettings

Entity = TypeVar("Entity")
SettingsT_contra = TypeVar("SettingsT_contra", contravariant=True)


class EntityStore(Protocol[Entity, SettingsT_contra]):
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

    async def await_replication(self) -> None:
        """Return once the standbys have all that was read before, at once if there are none.

        An answer that a change is already made needs this: its first try may have ended before the standbys had it.
        """
        ...


SubscriptionStore: TypeAlias = EntityStore[Subscription, SubscriptionSettings]
"""The subscriptions of one topic.

`create` and `change` refuse with `QueueNotFound` a target queue that does not exist, and with `TargetQueueTaken` one that
another subscription of the topic has. `create` refuses with `TopicNotFound` once the topic is deleted, and with
`TooManySubscriptions`.
"""


class TopicStore(EntityStore[Topic, TopicSettings], Protocol):
    """The topics.

    `create` refuses with `TooManyTopics`. `delete` also deletes the subscriptions of the topic; their queues stay.
    """

    def subscriptions(self, topic: Topic) -> SubscriptionStore:
        """Return the subscriptions of this topic."""
        ...

    async def count_subscriptions(self, topic: Topic) -> int:
        """Return the number of subscriptions of the topic, without reading them."""
        ...

    async def routes(self, topic: Topic) -> Sequence[Route]:
        """Return all subscriptions of the topic by name, each with its target queue."""
        ...
