"""Topics: a list, the picture of each, and a test that shows which subscriptions copy a message."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse

from app.broker import topics as verbs
from app.broker.publish import EVALUATION_BATCH_SIZE
from app.broker.range_pages import page_of_ranges
from app.broker.subscription_filter import check_filter, compiled, input_of
from app.console.access import needs
from app.console.forms import faults_of, typed
from app.console.message_forms import new_message_of
from app.console.pages import CurrentPage, PageRequest
from app.console.topic_picture import branches
from app.domain.access import Right
from app.domain.refusals import Refusal
from app.domain.sending import NewMessage
from app.domain.topic import Route, Topic, check_evaluations

PAGE_SIZE = 100
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

router = APIRouter(prefix="/console/topics")
may_browse = Depends(needs(Right.BROWSE, "topic", "topic"))


@dataclass(frozen=True, slots=True)
class FilterTest:
    """Whether each subscription copies the message, by its name; `candidate` is the result of a filter that was typed."""

    matches: Mapping[str, bool]
    candidate: bool | None


@router.get("")
async def list_topics(page: CurrentPage) -> HTMLResponse:
    """Show the topics that the visitor may browse, by name."""
    ranges = page.visitor.principal.grant.ranges(Right.BROWSE)
    store = page.context.broker.topics.topics
    topics, more = await page_of_ranges(store.page, ranges, page.query("after"), PAGE_SIZE)
    return page.render("topics.html", topics=topics, after=page.query("after"), more=more)


@router.get("/{topic}", dependencies=[may_browse])
async def show_topic(page: CurrentPage, topic: str) -> HTMLResponse:
    """Show the picture of a topic, and the form of the test."""
    found = await _topic(page, topic)
    return await _page(page, found, await _routes(page, found), NEW)


@router.post("/{topic}/test", dependencies=[may_browse])
async def test_filters(page: CurrentPage, topic: str) -> HTMLResponse:
    """Show which subscriptions would copy a message, and whether a filter matches it. Nothing is stored."""
    fields = await typed(page.request)
    found = await _topic(page, topic)
    routes = await _routes(page, found)
    try:
        expression = fields.get("filter", "").strip() or None
        check_filter(expression)
        result = await _test(page, routes, new_message_of(fields), expression)
    except Refusal as refusal:
        return await _page(page, found, routes, fields, refusal=refusal)
    return await _page(page, found, routes, fields, result)


async def _topic(page: PageRequest, name: str) -> Topic:
    return await verbs.read(verbs.all_topics(page.context.broker.topics), name)


async def _routes(page: PageRequest, topic: Topic) -> Sequence[Route]:
    return await page.context.broker.topics.topics.routes(topic)


async def _test(page: PageRequest, routes: Sequence[Route], message: NewMessage, expression: str | None) -> FilterTest:
    """Evaluate all filters as a publish does. Refuses with `MessageTooLarge` a test that would take too long."""
    check_evaluations([len(routes) + 1], [message])
    tested, turnstile = input_of(message), page.context.broker.publishing.turnstile
    matches: dict[str, bool] = {}
    for number, route in enumerate(routes):
        if number % EVALUATION_BATCH_SIZE == 0:
            await turnstile.enter()
        matches[route.subscription.name] = compiled(route.subscription.settings.filter)(tested)
    return FilterTest(matches, None if expression is None else compiled(expression)(tested))


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
        result=result,
    )
