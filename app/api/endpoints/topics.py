"""Topics and subscriptions over HTTP: create, read, change, delete and test them."""

from collections.abc import Sequence
from typing import Any

from app.api.endpoints.batch_entries import all_messages, read_entries
from app.broker.administration.browse import try_filter
from app.broker.administration.range_pages import page_of_ranges
from app.broker.filtering.filters import BATCH_SIZE, parse_filter
from app.broker.precondition import Precondition
from app.broker.topics import topics as verbs
from app.broker.topics.subscription_filter import check_filter, compiled, input_of
from app.domain.access import Right
from app.domain.queue import MAX_LABELS_BYTES, is_valid_name
from app.domain.refusals import (
    QueueNotFound,
    SubscriptionNotFound,
    TargetQueueTaken,
    TooManyQueues,
    TooManySubscriptions,
    TooManyTopics,
    TopicNotFound,
    invalid_at,
)
from app.domain.topic import Subscription, Topic
from app.http.asgi import Headers
from app.http.authorize import authorize
from app.http.operation import operation
from app.http.request import Request, invalid_path, name_cursor
from app.http.response import MERGE_PATCH, Response, location
from app.wire.field_types import Page
from app.wire.topics import (
    MAX_TESTED,
    SubscriptionPage,
    SubscriptionPatch,
    SubscriptionSettingsBody,
    SubscriptionTest,
    SubscriptionTestResults,
    SubscriptionView,
    TopicPage,
    TopicPatch,
    TopicSettingsBody,
    TopicView,
    subscription_view,
    topic_view,
)

TOPIC = "/v1/topics/{topic}"
SUBSCRIPTIONS = TOPIC + "/subscriptions"
SUBSCRIPTION = SUBSCRIPTIONS + "/{subscription}"
_MAX_TOPIC_BYTES = (8 << 10) + MAX_LABELS_BYTES
"""Bytes of a topic on a page: a description of 1024 characters, of up to 6 bytes of JSON each, and labels."""
_MAX_SUBSCRIPTION_BYTES = (16 << 10) + MAX_LABELS_BYTES
"""Bytes of a subscription on a page: a filter of 1 KiB, 4 KiB of names and of properties each, with escapes, and labels."""
INVALID_NAME = "A subscription's name has the form of a queue's name."


@operation(
    "PUT", TOPIC, right=Right.MANAGE, tag="topics",
    body=TopicSettingsBody, responses={200: TopicView, 201: TopicView}, has_location=True, refusals=(TooManyTopics,),
    headers=("If-Match", "If-None-Match"), etag_statuses=(200, 201), example={"description": "Everything about orders."},
)  # fmt: skip
async def put_topic(request: Request[TopicSettingsBody]) -> Response:
    """Create a topic, or replace its settings with these. Equal settings change nothing."""
    topics = verbs.all_topics(request.broker.topics)
    topic, is_created = await verbs.put(
        topics, request.path["topic"], request.body.settings(), _precondition_of_put(request)
    )
    return _topic_response(topic, is_created=is_created)


@operation(
    "GET", "/v1/topics", right=Right.BROWSE, tag="topics", responses={200: TopicPage}, query=Page,
    lists_own=True,
)  # fmt: skip
async def list_topics(request: Request[None]) -> Response:
    """List the topics by name.

    A key whose patterns are names, or prefixes such as `orders.*`, lists the topics that it may browse.
    """
    page: Page = request.query
    ranges = request.principal.grant.ranges(Right.BROWSE)
    after = name_cursor(page, ranges)
    async with request.reserve_page(page.limit, _MAX_TOPIC_BYTES):
        items, more = await page_of_ranges(request.broker.topics.store.page, ranges, after, page.limit)
        return Response(TopicPage([topic_view(topic) for topic in items], more))


@operation(
    "GET", TOPIC, right=Right.BROWSE, tag="topics", responses={200: TopicView, 304: None}, refusals=(TopicNotFound,), headers=("If-None-Match",), etag_statuses=(200, 304),
)  # fmt: skip
async def get_topic(request: Request[None]) -> Response:
    """Get a topic."""
    return _topic_response(await _topic(request))


@operation(
    "PATCH", TOPIC, right=Right.MANAGE, tag="topics",
    body=TopicPatch, responses={200: TopicView}, refusals=(TopicNotFound,), headers=("If-Match",), etag_statuses=(200,),
    request_media_type=MERGE_PATCH, example={"description": None},
)  # fmt: skip
async def patch_topic(request: Request[TopicPatch]) -> Response:
    """Change some settings of a topic, by a merge patch (RFC 7396). Null restores a default."""
    topics = verbs.all_topics(request.broker.topics)
    precondition = Precondition(request.if_match())
    return _topic_response(await verbs.change(topics, request.path["topic"], request.body.merged, precondition))


@operation(
    "DELETE", TOPIC, right=Right.MANAGE, tag="topics", responses={204: None}, refusals=(TopicNotFound,), headers=("If-Match",),
)  # fmt: skip
async def delete_topic(request: Request[None]) -> Response:
    """Delete a topic and its subscriptions. Their queues stay, with their messages."""
    topics = verbs.all_topics(request.broker.topics)
    await verbs.delete(topics, request.path["topic"], Precondition(request.if_match()))
    return Response(status=204)


@operation(
    "PUT", SUBSCRIPTION, right=Right.MANAGE, tag="topics",
    body=SubscriptionSettingsBody, responses={200: SubscriptionView, 201: SubscriptionView}, has_location=True, refusals=(TopicNotFound, QueueNotFound, TargetQueueTaken, TooManySubscriptions, TooManyQueues),
    headers=("If-Match", "If-None-Match"), etag_statuses=(200, 201),
    example={"filter": "message.properties.region == 'eu'", "set_properties": {"from": "orders"}},
)  # fmt: skip
async def put_subscription(request: Request[SubscriptionSettingsBody]) -> Response:
    """Create a subscription of a topic, or replace its settings with these.

    It copies the messages that are published from now on. A target queue needs the right to send to it. Without one,
    `{topic}.{subscription}` is the target. It is created if it does not exist, which needs the right to manage it. Two
    subscriptions of a topic have different target queues.
    """
    topic = await _topic(request)
    name = _subscription_name(request)
    settings = request.body.settings(topic.name, name)
    check_filter(settings.filter)
    precondition = _precondition_of_put(request)
    await _prepare_target(request, settings.target_queue, is_given=request.body.target_queue is not None)
    subscriptions = verbs.subscriptions_of(request.broker.topics, topic)
    subscription, is_created = await verbs.put(subscriptions, name, settings, precondition)
    return _subscription_response(topic, subscription, is_created=is_created)


@operation(
    "GET", SUBSCRIPTIONS, right=Right.BROWSE, tag="topics",
    responses={200: SubscriptionPage}, refusals=(TopicNotFound,), query=Page,
)  # fmt: skip
async def list_subscriptions(request: Request[None]) -> Response:
    """List the subscriptions of a topic by name."""
    page: Page = request.query
    topic = await _topic(request)
    async with request.reserve_page(page.limit, _MAX_SUBSCRIPTION_BYTES):
        listed = await request.broker.topics.store.subscriptions(topic).page(name_cursor(page), page.limit + 1)
        views = [subscription_view(topic, subscription) for subscription in listed[: page.limit]]
        return Response(SubscriptionPage(views, _next_cursor(listed, page)))


@operation(
    "GET", SUBSCRIPTION, right=Right.BROWSE, tag="topics",
    responses={200: SubscriptionView, 304: None}, refusals=(TopicNotFound, SubscriptionNotFound), headers=("If-None-Match",), etag_statuses=(200, 304),
)  # fmt: skip
async def get_subscription(request: Request[None]) -> Response:
    """Get a subscription of a topic."""
    topic = await _topic(request)
    return _subscription_response(topic, await _subscription(request, topic))


@operation(
    "PATCH", SUBSCRIPTION, right=Right.MANAGE, tag="topics",
    body=SubscriptionPatch, responses={200: SubscriptionView}, refusals=(TopicNotFound, SubscriptionNotFound, QueueNotFound, TargetQueueTaken), headers=("If-Match",),
    etag_statuses=(200,), request_media_type=MERGE_PATCH, example={"filter": None},
)  # fmt: skip
async def patch_subscription(request: Request[SubscriptionPatch]) -> Response:
    """Change some settings of a subscription, by a merge patch (RFC 7396). Null restores a default.

    Another target queue needs the rights that `put_subscription` names.
    """
    topic = await _topic(request)
    subscription = await _subscription(request, topic)
    body = request.body
    settings = body.merged(topic.name, subscription)
    check_filter(settings.filter)
    if settings.target_queue != subscription.settings.target_queue:
        await _prepare_target(request, settings.target_queue, is_given=isinstance(body.target_queue, str))
    changed = await verbs.change(
        verbs.subscriptions_of(request.broker.topics, topic),
        subscription.name,
        lambda current: body.merged(topic.name, current),
        Precondition(request.if_match()),
    )
    return _subscription_response(topic, changed)


@operation(
    "DELETE", SUBSCRIPTION, right=Right.MANAGE, tag="topics", responses={204: None}, refusals=(TopicNotFound, SubscriptionNotFound), headers=("If-Match",),
)  # fmt: skip
async def delete_subscription(request: Request[None]) -> Response:
    """Delete a subscription of a topic. Its queue stays, with its messages."""
    subscriptions = verbs.subscriptions_of(request.broker.topics, await _topic(request))
    await verbs.delete(subscriptions, _subscription_name(request), Precondition(request.if_match()))
    return Response(status=204)


@operation(
    "POST", SUBSCRIPTION + "/test", right=Right.BROWSE, tag="topics",
    body=SubscriptionTest, responses={200: SubscriptionTestResults}, refusals=(TopicNotFound, SubscriptionNotFound, QueueNotFound),
    example={"messages": [{"properties": {"region": "eu"}}, {"properties": {"region": "us"}}]},
)  # fmt: skip
async def check_subscription(request: Request[SubscriptionTest]) -> Response:
    """Test which messages the subscription would copy: these messages, or the newest of a queue. Nothing is stored.

    The messages of a queue need the right to browse it.
    """
    subscription = await _subscription(request, await _topic(request))
    body = request.body
    if body.messages is None:
        return Response(await _test_newest(request, subscription, body.queue or subscription.settings.target_queue))
    if body.queue is not None:
        raise invalid_at("/queue", "Give either messages or a queue.")
    messages = all_messages(read_entries(body.messages, None))
    matches = compiled(subscription.settings.filter).matches
    results: list[bool] = []
    for message in messages:
        results.append(matches(input_of(message)))
        if len(results) % BATCH_SIZE == 0:
            await request.broker.topics.gate.enter()
    return Response(SubscriptionTestResults(results))


async def _test_newest(
    request: Request[SubscriptionTest], subscription: Subscription, name: str
) -> SubscriptionTestResults:
    authorize(request.principal, Right.BROWSE, name)
    if compiled(subscription.settings.filter).reads_body:
        raise invalid_at("/messages", "The filter of this subscription reads bodies. Give the messages to test.")
    queue = await request.broker.queue_cache.by_name(name)
    message_filter = parse_filter(subscription.settings.filter)
    matches = await try_filter(request.broker.administration, queue, message_filter, MAX_TESTED)
    return SubscriptionTestResults([*matches.values()], [*matches])


async def _topic(request: Request[Any]) -> Topic:
    """Return the topic in the path, from the store. Refuses with `TopicNotFound`."""
    return await verbs.read(verbs.all_topics(request.broker.topics), request.path["topic"])


async def _subscription(request: Request[Any], topic: Topic) -> Subscription:
    """Return the subscription in the path, from the store. Refuses with `SubscriptionNotFound`."""
    return await verbs.read(verbs.subscriptions_of(request.broker.topics, topic), _subscription_name(request))


def _subscription_name(request: Request[Any]) -> str:
    name = request.path["subscription"]
    if not is_valid_name(name):
        raise invalid_path("subscription", INVALID_NAME)
    return name


async def _prepare_target(request: Request[Any], name: str, *, is_given: bool) -> None:
    """Check the right on the target queue, and create the default one if the request names none.

    Without the check, the manager of a topic could send to every queue.
    """
    authorize(request.principal, Right.SEND if is_given else Right.MANAGE, name)
    if not is_given:
        await verbs.create_target(request.broker.topics, name)


def _precondition_of_put(request: Request[Any]) -> Precondition:
    return Precondition(request.if_match(), request.if_none_match() or ())


def _next_cursor(listed: Sequence[Subscription], page: Page) -> str | None:
    return listed[page.limit - 1].name if len(listed) > page.limit else None


def _topic_response(topic: Topic, *, is_created: bool = False) -> Response:
    path = TOPIC.format(topic=topic.name)
    return _tagged_response(topic_view(topic), topic.etag, path if is_created else None)


def _subscription_response(topic: Topic, subscription: Subscription, *, is_created: bool = False) -> Response:
    path = SUBSCRIPTION.format(topic=topic.name, subscription=subscription.name)
    return _tagged_response(subscription_view(topic, subscription), subscription.etag, path if is_created else None)


def _tagged_response(view: TopicView | SubscriptionView, etag: str, created_path: str | None) -> Response:
    headers: Headers = ((b"etag", b'"%s"' % etag.encode()),)
    if created_path is None:
        return Response(view, headers=headers)
    return Response(view, 201, headers=(*headers, *location(created_path)))
