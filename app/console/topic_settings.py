"""Forms that create topics and subscriptions and change their settings."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, Response

from app.broker.precondition import Precondition
from app.broker.topics import topics as verbs
from app.broker.topics.subscription_filter import check_filter
from app.console import property_rows
from app.console.access import needs
from app.console.form_fields import form_pairs, form_texts
from app.console.forms import FormFaults, decoded, faults_of, status_of_form
from app.console.names import check_new_name, check_somewhere, name_taken
from app.console.pages import CurrentPage, PageRequest
from app.console.property_rows import PropertyRow
from app.console.results import result_page
from app.console.setting_fields import (
    SettingField,
    meanings,
    read_settings,
    setting_field,
    setting_texts,
)
from app.domain.access import Right
from app.domain.queue import is_valid_name
from app.domain.refusals import PreconditionFailed, Refusal, SubscriptionNotFound
from app.domain.topic import Subscription, SubscriptionSettings, Topic, TopicSettings, default_target
from app.http.request import ANY_TAG
from app.wire.topics import SubscriptionSettingsBody, SubscriptionView, TopicSettingsBody

TOPIC_FIELDS = (
    setting_field(TopicSettingsBody, "description", "What is this topic for?"),
    setting_field(TopicSettingsBody, "labels", "What do operators and programs note about this topic?", "json"),
)
SETTING_FIELDS: Mapping[str, SettingField] = {
    field.name: field
    for field in (
        setting_field(SubscriptionSettingsBody, "target_queue", "Which queue gets the copies?"),
        # A form has no room for the grammar of filters. The documentation of the API has it.
        setting_field(SubscriptionView, "filter", "Which messages does it copy?"),
        setting_field(
            SubscriptionSettingsBody,
            "remove_properties",
            "Which properties are removed from each copy, one per line?",
            "lines",
        ),
        setting_field(SubscriptionSettingsBody, "labels", "What do operators and programs note about it?", "json"),
    )
}
SUBSCRIPTION_FIELDS = (*SETTING_FIELDS, "more_rows")
"""The fields beside the rows of properties. `more_rows` is the button that adds rows to the form."""

MORE_ROWS = 5
TOPIC_TEXTS = tuple(field.name for field in TOPIC_FIELDS)
NEW_SUBSCRIPTION: Mapping[str, str] = dict.fromkeys(("name", *SETTING_FIELDS), "")
NewFields: TypeAlias = Annotated[
    Sequence[tuple[str, str]], Depends(form_pairs(("name", *SUBSCRIPTION_FIELDS), property_rows.FIELDS))
]
ChangedFields: TypeAlias = Annotated[
    Sequence[tuple[str, str]], Depends(form_pairs(("etag", *SUBSCRIPTION_FIELDS), property_rows.FIELDS))
]

router = APIRouter(prefix="/console")
may_browse = Depends(needs(Right.BROWSE, "topic", "topic"))
may_manage = Depends(needs(Right.MANAGE, "topic", "topic"))


def check_subscription_name(name: str) -> None:
    """Refuse with `SubscriptionNotFound` what is no name of a subscription: not every store can look for such a text."""
    if not is_valid_name(name):
        raise SubscriptionNotFound("This is not the name of a subscription.")


# ---- topics ----------------------------------------------------------------------------------------------------------


@router.get("/new-topic")
async def show_new_topic(page: CurrentPage) -> HTMLResponse:
    """Show the form that creates a topic. Refuses with `Forbidden` a visitor who may manage none."""
    check_somewhere(page.visitor, Right.MANAGE)
    return _topic_page(page, None, {"name": page.query("name")})


@router.post("/new-topic")
async def create_topic(
    page: CurrentPage, fields: Annotated[Mapping[str, str], Depends(form_texts("name", *TOPIC_TEXTS))]
) -> Response:
    """Create the topic, and go to its page. A topic that exists stays as it is."""
    check_somewhere(page.visitor, Right.MANAGE)
    try:
        faults = FormFaults()
        with faults.collected():
            name = check_new_name(fields)
        with faults.collected():
            settings = _topic_settings(fields)
        faults.check()
        page.visitor.require(Right.MANAGE, name, "topic")
        await verbs.put(_topics(page), name, settings, Precondition(None, ANY_TAG))
    except PreconditionFailed:
        return _topic_page(page, None, fields, name_taken(fields, "topic"))
    except Refusal as refusal:
        return _topic_page(page, None, fields, refusal)
    return result_page(f"/console/topics/{name}", "create-topic", name)


@router.get("/topics/{topic}/settings", dependencies=[may_manage])
async def show_topic(page: CurrentPage, topic: str) -> HTMLResponse:
    """Show the form that changes a topic."""
    found = await verbs.read(_topics(page), topic)
    return _topic_page(page, found, {**_topic_texts(found), "etag": found.etag})


@router.post("/topics/{topic}/settings", dependencies=[may_manage])
async def change_topic(
    page: CurrentPage, topic: str, fields: Annotated[Mapping[str, str], Depends(form_texts("etag", *TOPIC_TEXTS))]
) -> Response:
    """Change a topic that is still as its page has shown it."""
    found = await verbs.read(_topics(page), topic)
    try:
        settings = _topic_settings(fields)
        await verbs.change(_topics(page), topic, lambda _: settings, Precondition({fields.get("etag", "")}))
    except Refusal as refusal:
        return _topic_page(page, found, fields, refusal)
    return result_page(f"/console/topics/{topic}", "change-settings", topic)


def _topics(page: PageRequest) -> verbs.Collection[Topic, Any]:
    return verbs.all_topics(page.context.broker.topics)


def _topic_texts(topic: Topic) -> dict[str, str]:
    """Return what the fields of the form contain for a topic."""
    return setting_texts(TOPIC_FIELDS, {"description": topic.settings.description, "labels": topic.settings.labels})


def _topic_settings(fields: Mapping[str, str]) -> TopicSettings:
    """Return the settings in a form. Refuses with `InvalidRequest` that names every wrong field."""
    faults = FormFaults()
    given = read_settings(TopicSettingsBody, TOPIC_FIELDS, fields, faults)
    with faults.collected():
        settings = decoded(TopicSettingsBody, given).settings()
    faults.check()
    return settings


def _topic_page(
    page: PageRequest, topic: Topic | None, fields: Mapping[str, str], refusal: Refusal | None = None
) -> HTMLResponse:
    return page.render(
        "topic_settings.html",
        status_of_form(refusal),
        topic=topic,
        setting_fields=TOPIC_FIELDS,
        fields=fields,
        faults=faults_of(refusal) if refusal else {},
    )


# ---- subscriptions ---------------------------------------------------------------------------------------------------


@router.get("/topics/{topic}/new-subscription", dependencies=[may_manage])
async def show_new_subscription(page: CurrentPage, topic: str) -> HTMLResponse:
    """Show the form that creates a subscription of a topic."""
    return _subscription_page(page, await verbs.read(_topics(page), topic), None, NEW_SUBSCRIPTION, ())


@router.post("/topics/{topic}/new-subscription", dependencies=[may_manage])
async def create_subscription(page: CurrentPage, topic: str, sent: NewFields) -> Response:
    """Create the subscription, and go to the page of its topic. One that exists stays as it is."""
    fields, rows = dict(sent), property_rows.sent_rows(sent)
    found = await verbs.read(_topics(page), topic)
    if "more_rows" in fields:
        return _subscription_page(page, found, None, fields, rows)
    try:
        faults, name = FormFaults(), fields.get("name", "").strip()
        with faults.collected():
            check_new_name(fields)
        with faults.collected():
            settings = _subscription_settings(fields, rows, found, name)
        faults.check()
        subscriptions = verbs.subscriptions_of(page.context.broker.topics, found)
        # Only a subscription that will be created gets a queue.
        if await subscriptions.store.find(name) is not None:
            raise name_taken(fields, "subscription")
        await _prepare_target(page, settings, is_given=bool(fields.get("target_queue", "").strip()))
        await verbs.put(subscriptions, name, settings, Precondition(None, ANY_TAG))
    except PreconditionFailed:
        return _subscription_page(page, found, None, fields, rows, name_taken(fields, "subscription"))
    except Refusal as refusal:
        return _subscription_page(page, found, None, fields, rows, refusal)
    return result_page(f"/console/topics/{topic}", "create-subscription", name)


@router.get("/topics/{topic}/subscriptions/{subscription}", dependencies=[may_browse])
async def show_subscription(page: CurrentPage, topic: str, subscription: str) -> HTMLResponse:
    """Show a subscription. Visitors with the right to manage its topic get a form that changes it."""
    found, one = await _subscription(page, topic, subscription)
    rows = property_rows.property_rows(one.settings.set_properties)
    return _subscription_page(page, found, one, {**_subscription_texts(one), "etag": one.etag}, rows)


@router.post("/topics/{topic}/subscriptions/{subscription}", dependencies=[may_manage])
async def change_subscription(page: CurrentPage, topic: str, subscription: str, sent: ChangedFields) -> Response:
    """Change a subscription that is still as its page has shown it."""
    fields, rows = dict(sent), property_rows.sent_rows(sent)
    found, one = await _subscription(page, topic, subscription)
    if "more_rows" in fields:
        return _subscription_page(page, found, one, fields, rows)
    try:
        settings = _subscription_settings(fields, rows, found, subscription)
        condition = Precondition({fields.get("etag", "")})
        condition.check("subscription", subscription, one.etag)
        if settings.target_queue != one.settings.target_queue:
            await _prepare_target(page, settings, is_given=bool(fields.get("target_queue", "").strip()))
        subscriptions = verbs.subscriptions_of(page.context.broker.topics, found)
        await verbs.change(subscriptions, subscription, lambda _: settings, condition)
    except Refusal as refusal:
        return _subscription_page(page, found, one, fields, rows, refusal)
    return result_page(f"/console/topics/{topic}", "change-settings", subscription)


async def _subscription(page: PageRequest, topic: str, name: str) -> tuple[Topic, Subscription]:
    check_subscription_name(name)
    found = await verbs.read(_topics(page), topic)
    return found, await verbs.read(verbs.subscriptions_of(page.context.broker.topics, found), name)


def _subscription_texts(subscription: Subscription) -> dict[str, str]:
    """Return what the fields of the form contain for a subscription."""
    settings = subscription.settings
    return {
        "target_queue": settings.target_queue,
        "filter": settings.filter or "",
        "remove_properties": "\n".join(settings.remove_properties),
        **setting_texts([SETTING_FIELDS["labels"]], {"labels": settings.labels}),
    }


def _subscription_settings(
    fields: Mapping[str, str], rows: Sequence[PropertyRow], topic: Topic, name: str
) -> SubscriptionSettings:
    """Return the settings in a form. Refuses with `InvalidRequest` that names every wrong field."""
    faults = FormFaults()
    given: dict[str, object] = {
        "target_queue": fields.get("target_queue", "").strip(),
        "filter": fields.get("filter", "").strip(),
        "remove_properties": [line for line in fields.get("remove_properties", "").split("\n") if line.strip()],
    }
    with faults.collected():
        check_filter(fields.get("filter", "").strip() or None)
    with faults.collected():
        given["set_properties"] = property_rows.json_of(rows)
    given |= read_settings(SubscriptionSettingsBody, [SETTING_FIELDS["labels"]], fields, faults)
    with faults.collected():
        settings = decoded(SubscriptionSettingsBody, given).settings(topic.name, name)
    faults.check()
    return settings


async def _prepare_target(page: PageRequest, settings: SubscriptionSettings, *, is_given: bool) -> None:
    """Check the right on the target queue as the API does, and create the default one if the form names none."""
    page.visitor.require(Right.SEND if is_given else Right.MANAGE, settings.target_queue)
    if not is_given:
        await verbs.create_target(page.context.broker.topics, settings.target_queue)


def _subscription_page(
    page: PageRequest,
    topic: Topic,
    subscription: Subscription | None,
    fields: Mapping[str, str],
    rows: Sequence[PropertyRow],
    refusal: Refusal | None = None,
) -> HTMLResponse:
    empty = MORE_ROWS if "more_rows" in fields else 1
    may_manage = page.visitor.may(Right.MANAGE, topic.name)
    return page.render(
        "subscription.html",
        status_of_form(refusal),
        topic=topic,
        subscription=subscription,
        setting_fields=SETTING_FIELDS,
        set_properties_meaning=meanings(SubscriptionSettingsBody)["set_properties"],
        default_target=default_target(topic.name, "NAME"),
        may_manage=may_manage,
        rows=[*rows, *[PropertyRow()] * empty] if may_manage else rows,
        property_types=property_rows.TYPES,
        fields=fields,
        faults=faults_of(refusal) if refusal else {},
    )
