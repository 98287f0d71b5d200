"""Topics: a list, the picture of each, and a test that shows which subscriptions copy a message."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse

from app.broker.administration.range_pages import page_of_ranges
from app.broker.topics import topics as verbs
from app.broker.topics.publish import EVALUATION_BATCH_SIZE
from app.broker.topics.subscription_filter import SubscriptionFilter, check_filter, compiled, input_of
from app.broker.topics.topic_cache import COMPILE_BATCH
from app.console.access import needs
from app.console.form_fields import form_texts
from app.console.forms import faults_of
from app.console.message_forms import new_message_of
from app.console.overview import browsable_rows
from app.console.pages import CurrentPage, PageRequest
from app.console.snippets import curl_first_topic, page_url
from app.console.summaries import QueueSummary
from app.console.topic_picture import branches
from app.domain.access import Right
from app.domain.instant import Duration
from app.domain.refusals import Refusal
from app.domain.sending import NewMessage
from app.domain.topic import FilterCounts, Route, Topic, check_evaluations

PAGE_SIZE = 50
MAX_LISTED_ROUTES = 2_000
"""Subscriptions that one list reads. Topics after these have no figures in it; their own pages have them."""

SHOWN_BRANCHES = 100
"""Subscriptions in one picture. A name in the address finds the others."""

TESTED_FIELDS = (
    ("subject", "Subject", "text"),
    ("priority", "Priority, 0 to 9", "number"),
    ("message_id", "Message id", "text"),
    ("group_id", "Group", "text"),
)
"""The fields of the message to test, beside its body and its properties."""

NEW = {"properties": '{"region": "eu"}', "priority": "5"}
"""What the form has at first."""

TestFields: TypeAlias = Annotated[
    Mapping[str, str], Depends(form_texts("body", "properties", "filter", *(name for name, _, _ in TESTED_FIELDS)))
]

router = APIRouter(prefix="/console/topics")
may_browse = Depends(needs(Right.BROWSE, "topic", "topic"))


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in the list, with the sums over the queues of its subscriptions that the visitor may browse.

    `subscriptions` is None, and the sums are 0, if a page has read too many subscriptions of other topics before.
    """

    topic: Topic
    subscriptions: int | None
    available: int
    locked: int
    dead_lettered: int
    oldest: Duration | None
    rate_in: float
    rate_out: float


@dataclass(frozen=True, slots=True)
class FilterTest:
    """Whether each subscription copies the message, by its name; `candidate` is the result of a filter that was typed."""

    matches: Mapping[str, bool]
    candidate: bool | None


@router.get("")
async def list_topics(page: CurrentPage) -> HTMLResponse:
    """Show the topics that the visitor may browse, by name."""
    ranges = page.visitor.principal.grant.ranges(Right.BROWSE)
    store = page.context.broker.topics.store
    topics, more = await page_of_ranges(store.page, ranges, page.query("after"), PAGE_SIZE)
    curl = curl_first_topic(page_url(page.request), page.visitor.is_signed_in)
    rows = await _summaries(page, topics)
    return page.render("topics.html", rows=rows, after=page.query("after"), more=more, curl=curl)


@router.get("/{topic}", dependencies=[may_browse])
async def show_topic(page: CurrentPage, topic: str) -> HTMLResponse:
    """Show the picture of a topic, and the form of the test."""
    found = await _topic(page, topic)
    return await _page(page, found, await _routes(page, found), NEW)


@router.post("/{topic}/test", dependencies=[may_browse])
async def test_filters(page: CurrentPage, topic: str, fields: TestFields) -> HTMLResponse:
    """Show which subscriptions would copy a message, and whether a filter matches it. Nothing is stored."""
    found = await _topic(page, topic)
    routes = await _routes(page, found)
    try:
        expression = fields.get("filter", "").strip() or None
        check_filter(expression)
        result = await _test(page, routes, new_message_of(fields), expression)
    except Refusal as refusal:
        return await _page(page, found, routes, fields, refusal=refusal)
    return await _page(page, found, routes, fields, result)


async def _summaries(page: PageRequest, topics: Sequence[Topic]) -> list[TopicSummary]:
    """Return the topics with their figures, as far as few enough subscriptions are read."""
    context, found, read = page.context, list[TopicSummary](), 0
    await context.activity.refresh(context.statistics)
    by_name = {row.name: row for row in browsable_rows(context, page.visitor)}
    for topic in topics:
        routes = await _routes(page, topic) if read < MAX_LISTED_ROUTES else None
        read += len(routes or ())
        queues = {route.subscription.settings.target_queue for route in routes or ()}
        found.append(
            _summary(topic, None if routes is None else len(routes), [by_name[one] for one in queues & by_name.keys()])
        )
    return found


def _summary(topic: Topic, subscriptions: int | None, queues: Sequence[QueueSummary]) -> TopicSummary:
    return TopicSummary(
        topic,
        subscriptions,
        sum(queue.available for queue in queues),
        sum(queue.locked for queue in queues),
        sum(queue.dead_lettered for queue in queues),
        max((queue.oldest for queue in queues if queue.oldest is not None), default=None),
        sum(queue.rate_in for queue in queues),
        sum(queue.rate_out for queue in queues),
    )


async def _topic(page: PageRequest, name: str) -> Topic:
    return await verbs.read(verbs.all_topics(page.context.broker.topics), name)


async def _routes(page: PageRequest, topic: Topic) -> Sequence[Route]:
    return await page.context.broker.topics.store.routes(topic)


async def _test(page: PageRequest, routes: Sequence[Route], message: NewMessage, expression: str | None) -> FilterTest:
    """Evaluate all filters as a publish does. Refuses with `MessageTooLarge` a test that would take too long."""
    filters = await _compiled(routes)
    candidate = None if expression is None else compiled(expression)
    of_body = sum(one.reads_body for one in (*filters, *([candidate] if candidate else ())))
    check_evaluations([FilterCounts(len(routes) + 1, of_body)], [message])
    tested, gate = input_of(message), page.context.broker.topics.gate
    matches: dict[str, bool] = {}
    for number, (route, one) in enumerate(zip(routes, filters, strict=True)):
        if number % EVALUATION_BATCH_SIZE == 0:
            await gate.enter()
        matches[route.subscription.name] = one.matches(tested)
    return FilterTest(matches, candidate and candidate.matches(tested))


async def _compiled(routes: Sequence[Route]) -> list[SubscriptionFilter]:
    """Return the filters of subscriptions. Other requests run in between."""
    filters: list[SubscriptionFilter] = []
    for number, route in enumerate(routes):
        if number % COMPILE_BATCH == 0:
            await asyncio.sleep(0)
        filters.append(compiled(route.subscription.settings.filter))
    return filters


async def _page(
    page: PageRequest,
    topic: Topic,
    routes: Sequence[Route],
    fields: Mapping[str, str],
    result: FilterTest | None = None,
    refusal: Refusal | None = None,
) -> HTMLResponse:
    await page.context.activity.refresh(page.context.statistics)
    queues = {listed.queue.name: listed for listed in page.context.activity.queues}
    find = page.query("find").lower()
    named = [route for route in routes if find in route.subscription.name.lower()]
    shown = named[:SHOWN_BRANCHES]
    return page.render(
        "topic.html",
        200 if refusal is None else 422,
        topic=topic,
        branches=branches(shown, queues, lambda name: page.visitor.may(Right.BROWSE, name)),
        count=len(routes),
        found=len(named),
        find=page.query("find"),
        fields=fields,
        faults=faults_of(refusal) if refusal else {},
        tested_fields=TESTED_FIELDS,
        tested=result,
    )
