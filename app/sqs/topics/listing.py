"""Lists of subscriptions, of one topic or of all topics that the client may browse."""

from app.broker.administration.range_pages import page_of_ranges
from app.broker.topics import topics as verbs
from app.domain.access import Right
from app.domain.name_ranges import NameRange
from app.domain.queue import is_valid_name
from app.domain.refusals import InvalidRequest
from app.domain.topic import Subscription, Topic
from app.sqs.call import Call
from app.sqs.queue_names import ACCOUNT, arn_of
from app.sqs.shapes import topics as shapes
from app.sqs.topic_names import subscription_arn, topic_arn

_MAX_SUBSCRIPTION_BYTES = 32 << 10
"""Bytes of a subscription that is read for a page: its filter, its labels, and the properties that it sets and removes."""
_MAX_TOPICS = 100
"""Topics that are read for one page. A page may have fewer subscriptions than fit, or none, and a NextToken."""
_SEPARATOR = ":"
"""Between the topic and the subscription in a NextToken. Names do not have it."""


async def list_subscriptions_by_topic(call: Call[shapes.ListSubscriptionsByTopic]) -> shapes.SubscriptionList:
    """List the subscriptions of a topic by name. Refuses with `TopicNotFound`."""
    after = call.body.next_token
    if after and not is_valid_name(after):
        raise _foreign_token()
    topic = await verbs.read(verbs.all_topics(call.broker.topics), call.topic_name)
    async with call.request.reserve_page(shapes.MAX_PAGE, _MAX_SUBSCRIPTION_BYTES):
        found = await call.broker.topics.store.subscriptions(topic).page(after, shapes.MAX_PAGE + 1)
    page = found[: shapes.MAX_PAGE]
    more = page[-1].name if len(found) > shapes.MAX_PAGE else None
    listed = tuple(_listed(topic.name, subscription, call.region) for subscription in page)
    return shapes.SubscriptionList(subscriptions=listed, next_token=more)


async def list_subscriptions(call: Call[shapes.ListSubscriptions]) -> shapes.SubscriptionList:
    """List the subscriptions of the topics that the client may browse, by topic and name."""
    ranges = call.request.principal.grant.ranges(Right.BROWSE)
    after_topic, _, after = call.body.next_token.partition(_SEPARATOR)
    ends = [found.end for found in ranges]
    if any(name and not is_valid_name(name) and name not in ends for name in (after_topic, after)):
        raise _foreign_token()
    async with call.request.reserve_page(shapes.MAX_PAGE, _MAX_SUBSCRIPTION_BYTES):
        found = await _begun_topic(call, ranges, after_topic, after)
        store = call.broker.topics.store
        more: str | None = after_topic
        topics, more = await page_of_ranges(store.page, ranges, after_topic, _MAX_TOPICS)
        for topic in topics:
            found += await _page(call, topic, "", shapes.MAX_PAGE + 1 - len(found))
            if len(found) > shapes.MAX_PAGE:
                break
    page = found[: shapes.MAX_PAGE]
    if len(found) > shapes.MAX_PAGE:
        last_topic, last = page[-1]
        more = f"{last_topic}{_SEPARATOR}{last.name}"
    listed = tuple(_listed(topic, subscription, call.region) for topic, subscription in page)
    return shapes.SubscriptionList(subscriptions=listed, next_token=more)


async def _begun_topic(
    call: Call[shapes.ListSubscriptions], ranges: tuple[NameRange, ...], name: str, after: str
) -> list[tuple[str, Subscription]]:
    """Return the rest of the topic whose subscriptions the last page has begun."""
    if not after or not any(candidate.contains(name) for candidate in ranges):
        return []
    topic = await call.broker.topics.store.find(name)
    return [] if topic is None else await _page(call, topic, after, shapes.MAX_PAGE + 1)


async def _page(
    call: Call[shapes.ListSubscriptions], topic: Topic, after: str, limit: int
) -> list[tuple[str, Subscription]]:
    found = await call.broker.topics.store.subscriptions(topic).page(after, limit)
    return [(topic.name, subscription) for subscription in found]


def _listed(topic: str, subscription: Subscription, region: str) -> shapes.ListedSubscription:
    return shapes.ListedSubscription(
        subscription_arn=subscription_arn(topic, subscription.name, region),
        owner=ACCOUNT,
        protocol="sqs",
        endpoint=arn_of(subscription.settings.target_queue, region),
        topic_arn=topic_arn(topic, region),
    )


def _foreign_token() -> InvalidRequest:
    return InvalidRequest("This NextToken did not come from this list.")
