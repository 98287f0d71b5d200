"""Topics and subscriptions in named statements, the same for every engine.

A transaction that adds a subscription locks its topic, then its target queue. The deletion of a queue locks the queue
before it looks for subscriptions. So no subscription begins to target a queue that is being deleted.
"""

from collections.abc import Sequence

from app.domain.queue import SHARED_BODIES_LEVEL, is_valid_name
from app.domain.refusals import QueueNotFound, TargetQueueTaken, TooManySubscriptions, TooManyTopics, TopicNotFound
from app.domain.topic import Route, Subscription, SubscriptionSettings, Topic, TopicSettings
from app.store.shared import rows
from app.store.shared.database import Database, ReplicatedRecords, SqlSession
from app.store.shared.json_columns import write_labels, write_names


class TopicRecords(ReplicatedRecords):
    """`TopicStore` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, name: str, settings: TopicSettings, limit: int | None = None) -> Topic | None:
        """See `TopicStore`. Creations run one at a time, so two at once cannot exceed the limit."""

        async def work(session: SqlSession) -> Topic | None:
            await session.fetch("serialize_queue_creation")
            if await _find_topic(session, name):
                return None
            ((count,),) = await session.fetch("count_topics")
            if limit is not None and count >= limit:
                raise TooManyTopics(f"A server has at most {limit} topics.")
            await session.change("create_topic", name=name, **_topic_columns(settings))
            return await _find_topic(session, name)

        return await self._database.transaction(work)

    async def find(self, name: str) -> Topic | None:
        """See `TopicStore`. Only a valid name reaches the database, as for queues."""
        return await _find_topic(self._database, name) if is_valid_name(name) else None

    async def page(self, after: str, limit: int) -> list[Topic]:
        """See `TopicStore`."""
        return [rows.topic(row) for row in await self._database.fetch("page_of_topics", after=after, limit=limit)]

    async def change(self, entity: Topic, settings: TopicSettings) -> Topic | None:
        """See `TopicStore`."""

        async def work(session: SqlSession) -> Topic | None:
            values = {"id": entity.id, "version": entity.version, **_topic_columns(settings)}
            return await _find_topic(session, entity.name) if await session.change("change_topic", **values) else None

        return await self._database.transaction(work)

    async def delete(self, entity: Topic) -> bool:
        """See `TopicStore`. The lock of the topic comes first, so that no subscription is added meanwhile."""

        async def work(session: SqlSession) -> bool:
            if not await session.change("delete_topic", id=entity.id, version=entity.version):
                return False
            await session.change("delete_subscriptions", topic_id=entity.id)
            return True

        return await self._database.transaction(work)

    def subscriptions(self, topic: Topic) -> "SubscriptionRecords":
        """See `TopicStore`."""
        return SubscriptionRecords(self._database, topic)

    async def count_subscriptions(self, topic: Topic) -> int:
        """See `TopicStore`."""
        ((count,),) = await self._database.fetch("count_subscriptions", topic_id=topic.id)
        return int(count)

    async def routes(self, topic: Topic) -> Sequence[Route]:
        """See `TopicStore`."""
        return [rows.route(row) for row in await self._database.fetch("routes", topic_id=topic.id)]


class SubscriptionRecords(ReplicatedRecords):
    """`SubscriptionStore` over a database."""

    def __init__(self, database: Database, topic: Topic) -> None:
        self._database = database
        self._topic = topic

    async def create(self, name: str, settings: SubscriptionSettings, limit: int | None = None) -> Subscription | None:
        """See `SubscriptionStore`."""

        async def work(session: SqlSession) -> Subscription | None:
            await self._lock_topic(session)
            if await self._find(session, name):
                return None
            ((count,),) = await session.fetch("count_subscriptions", topic_id=self._topic.id)
            if limit is not None and count >= limit:
                raise TooManySubscriptions(f"A topic has at most {limit} subscriptions.")
            target_id = await self._lock_target(session, name, settings.target_queue)
            await session.change(
                "add_subscription", topic_id=self._topic.id, name=name, **_subscription_columns(settings)
            )
            await _let_share_bodies(session, target_id)
            return await self._find(session, name)

        return await self._database.transaction(work)

    async def find(self, name: str) -> Subscription | None:
        """See `SubscriptionStore`."""
        return await self._find(self._database, name) if is_valid_name(name) else None

    async def page(self, after: str, limit: int) -> list[Subscription]:
        """See `SubscriptionStore`."""
        found = await self._database.fetch("page_of_subscriptions", topic_id=self._topic.id, after=after, limit=limit)
        return [rows.subscription(row) for row in found]

    async def change(self, entity: Subscription, settings: SubscriptionSettings) -> Subscription | None:
        """See `SubscriptionStore`."""

        async def work(session: SqlSession) -> Subscription | None:
            await self._lock_topic(session)
            target_id = await self._lock_target(session, entity.name, settings.target_queue)
            values = {"id": entity.id, "version": entity.version, **_subscription_columns(settings)}
            if not await session.change("change_subscription", **values):
                return None  # and the target stays as it is
            await _let_share_bodies(session, target_id)
            return await self._find(session, entity.name)

        return await self._database.transaction(work)

    async def delete(self, entity: Subscription) -> bool:
        """See `SubscriptionStore`."""
        return bool(await self._database.change("delete_subscription", id=entity.id, version=entity.version))

    async def _lock_topic(self, session: SqlSession) -> None:
        if not await session.fetch("topic_for_update", id=self._topic.id):
            raise TopicNotFound(f"There is no topic named {self._topic.name}.")

    async def _lock_target(self, session: SqlSession, name: str, target_queue: str) -> int:
        """Lock the target queue and return its id. Refuse one that another subscription has, or that does not exist."""
        others = await session.fetch("subscription_with_target", topic_id=self._topic.id, target_queue=target_queue)
        for (other,) in others:
            if other != name:
                raise TargetQueueTaken(f"Subscription {other} of this topic has the target queue {target_queue}.")
        locked = await session.fetch("queue_for_update", name=target_queue)
        if not locked:
            raise QueueNotFound(f"There is no queue named {target_queue}.")
        return locked[0][0]

    async def _find(self, session: SqlSession, name: str) -> Subscription | None:
        found = await session.fetch("find_subscription", topic_id=self._topic.id, name=name)
        return rows.subscription(found[0]) if found else None


async def _let_share_bodies(session: SqlSession, queue_id: int) -> None:
    await session.change("need_level", id=queue_id, feature_level=SHARED_BODIES_LEVEL)


async def _find_topic(session: SqlSession, name: str) -> Topic | None:
    found = await session.fetch("find_topic", name=name)
    return rows.topic(found[0]) if found else None


def _topic_columns(settings: TopicSettings) -> dict[str, str | None]:
    return {"description": settings.description, "labels": write_labels(settings.labels)}


def _subscription_columns(settings: SubscriptionSettings) -> dict[str, str | None]:
    return {
        "target_queue": settings.target_queue,
        "filter": settings.filter,
        "set_properties": settings.set_properties.decode(),
        "remove_properties": write_names(settings.remove_properties),
        "labels": write_labels(settings.labels),
    }
