"""Deletes queues, topics and subscriptions, and revokes keys. A page first shows what that does, and asks for the name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, Response

from app.broker.access.keys import revoke_key
from app.broker.administration import queues as queue_verbs
from app.broker.precondition import Precondition
from app.broker.topics import topics as topic_verbs
from app.console.access import needs
from app.console.durations import duration_text
from app.console.form_fields import form_texts
from app.console.formats import format_number, format_time
from app.console.forms import faults_of, status_of_form
from app.console.keys import forget_cached, has_manager
from app.console.names import check_typed_name
from app.console.pages import CurrentPage, PageRequest
from app.console.results import result_page
from app.console.topic_settings import check_subscription_name
from app.domain.access import ApiKey, Right
from app.domain.plurals import count_of
from app.domain.queue import QueueCounts, QueueSettings
from app.domain.refusals import KeyNotFound, Refusal
from app.domain.topic import Route

MAX_NAMED = 20
"""Queues or subscriptions that a page names. It counts the others."""

LAST_MANAGER = (
    "It is the last key with the right manage on every name: keys can then not be created or revoked over HTTP. "
    "Only peeklock key create --principal admin, in the folder of the stopped server, makes another one."
)

REFUSED_FORWARDS = "Sends that they forward here are refused from then on, and their dead letters stay."
UNSEEN_FORWARDS = "Queues that you may not browse may forward to it too."

STATES = ("available", "locked", "scheduled", "deferred", "blocked", "dead_lettered")

router = APIRouter(prefix="/console")
may_manage_queue = Depends(needs(Right.MANAGE, "queue"))
may_manage_topic = Depends(needs(Right.MANAGE, "topic", "topic"))
may_manage_keys = Depends(needs(Right.MANAGE))

Confirmation: TypeAlias = Annotated[Mapping[str, str], Depends(form_texts("name", "etag"))]
"""The form of each page: the name that was typed, and the ETag of what the page has shown."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a page deletes or revokes: its kind as a noun, its name, its ETag, and the paths of this page and of the one before.

    `effects` are sentences about what the deletion does, and `refusal` says why it cannot be done now.
    """

    kind: str
    name: str
    etag: str
    path: str
    back: str
    effects: Sequence[str]
    refusal: Refusal | None = None
    verb: str = "Delete"


@router.get("/queues/{queue}/delete", dependencies=[may_manage_queue])
async def show_queue(page: CurrentPage, queue: str) -> HTMLResponse:
    """Show what the deletion of a queue does."""
    return _page(page, await _queue(page, queue))


@router.post("/queues/{queue}/delete", dependencies=[may_manage_queue])
async def delete_queue(page: CurrentPage, queue: str, fields: Confirmation) -> Response:
    """Delete a queue whose settings are as the page has shown them."""
    ports = page.context.broker.administration
    found = await queue_verbs.reload_queue(ports, queue)
    try:
        check_typed_name(fields, queue, "queue")
        await queue_verbs.delete_queue(ports, found, Precondition({fields.get("etag", "")}))
    except Refusal as refusal:
        return _page(page, await _queue(page, queue), fields, refusal)
    page.context.statistics.forget()
    return result_page("/console", "delete-queue", queue)


@router.get("/topics/{topic}/delete", dependencies=[may_manage_topic])
async def show_topic(page: CurrentPage, topic: str) -> HTMLResponse:
    """Show what the deletion of a topic does."""
    return _page(page, await _topic(page, topic))


@router.post("/topics/{topic}/delete", dependencies=[may_manage_topic])
async def delete_topic(page: CurrentPage, topic: str, fields: Confirmation) -> Response:
    """Delete a topic whose settings are as the page has shown them, and its subscriptions."""
    try:
        check_typed_name(fields, topic, "topic")
        topics = topic_verbs.all_topics(page.context.broker.topics)
        await topic_verbs.delete(topics, topic, Precondition({fields.get("etag", "")}))
    except Refusal as refusal:
        return _page(page, await _topic(page, topic), fields, refusal)
    return result_page("/console/topics", "delete-topic", topic)


@router.get("/topics/{topic}/subscriptions/{subscription}/delete", dependencies=[may_manage_topic])
async def show_subscription(page: CurrentPage, topic: str, subscription: str) -> HTMLResponse:
    """Show what the deletion of a subscription does."""
    return _page(page, await _subscription(page, topic, subscription))


@router.post("/topics/{topic}/subscriptions/{subscription}/delete", dependencies=[may_manage_topic])
async def delete_subscription(page: CurrentPage, topic: str, subscription: str, fields: Confirmation) -> Response:
    """Delete a subscription whose settings are as the page has shown them."""
    subject = await _subscription(page, topic, subscription)
    ports = page.context.broker.topics
    try:
        check_typed_name(fields, subscription, "subscription")
        found = await topic_verbs.read(topic_verbs.all_topics(ports), topic)
        condition = Precondition({fields.get("etag", "")})
        await topic_verbs.delete(topic_verbs.subscriptions_of(ports, found), subscription, condition)
    except Refusal as refusal:
        return _page(page, subject, fields, refusal)
    return result_page(f"/console/topics/{topic}", "delete-subscription", subscription)


@router.get("/keys/{key_id}/revoke", dependencies=[may_manage_keys])
async def show_key(page: CurrentPage, key_id: str) -> HTMLResponse:
    """Show what the revocation of a key does."""
    return _page(page, await _key(page, key_id))


@router.post("/keys/{key_id}/revoke", dependencies=[may_manage_keys])
async def revoke(page: CurrentPage, key_id: str, fields: Confirmation) -> Response:
    """Revoke a key. Every server refuses it within seconds."""
    subject = await _key(page, key_id)
    try:
        check_typed_name(fields, subject.name, "principal")
    except Refusal as refusal:
        return _page(page, subject, fields, refusal)
    await revoke_key(page.context.broker.store.keys, key_id)
    forget_cached(page, key_id)
    return result_page("/console/keys", "revoke-key", key_id)


async def _queue(page: PageRequest, name: str) -> Subject:
    ports = page.context.broker.administration
    listed = await queue_verbs.get_queue(ports, name)
    queue, refusal = listed.queue, None
    try:
        await queue_verbs.check_deletable(ports, queue, Precondition())
    except Refusal as found:
        refusal = found
    forwarding = await _forwarding(page, name)
    effects = [*_message_effects(listed.counts, queue.settings), *forwarding]
    path = f"/console/queues/{name}"
    return Subject("queue", name, queue.etag, f"{path}/delete", f"{path}/settings", effects, refusal)


def _message_effects(counts: QueueCounts, settings: QueueSettings) -> list[str]:
    """Return what becomes of the messages of a queue that is deleted."""
    if not counts.total:
        found = ["The queue holds no message."]
    else:
        states = [
            f"{format_number(getattr(counts, state))} {state.replace('_', '-')}"
            for state in STATES
            if getattr(counts, state)
        ]
        found = [f"{count_of(counts.total, 'message leaves', 'messages leave')} the queue: {', '.join(states)}."]
        if settings.archive_retention:
            found.append(
                f"The archive keeps messages of this queue for {duration_text(settings.archive_retention)}. Until then, a restore into "
                "a new queue of this name can bring them back."
            )
        else:
            found.append("This queue keeps no archive, so they are lost.")
    if counts.locked:
        found.append("Receivers lose the locks that they hold.")
    if counts.uncommitted:
        found.append(f"{count_of(counts.uncommitted, 'message')} of open transactions cannot be committed.")
    return found


async def _forwarding(page: PageRequest, name: str) -> list[str]:
    """Return sentences about the queues that forward to this one: those that the visitor may browse, and that others may."""
    await page.context.activity.refresh(page.context.statistics)
    settings = [(listed.queue.name, listed.queue.settings) for listed in page.context.activity.queues]
    found = [
        other
        for other, its in settings
        if name in (its.forward_to, its.forward_dead_letters_to) and page.visitor.may(Right.BROWSE, other)
    ]
    sentences = [] if page.visitor.may(Right.BROWSE) else [UNSEEN_FORWARDS]
    if found:
        count = count_of(len(found), "queue forwards", "queues forward")
        sentences.insert(0, f"{count} to it: {', '.join(found[:MAX_NAMED])}. {REFUSED_FORWARDS}")
    return sentences


async def _topic(page: PageRequest, name: str) -> Subject:
    ports = page.context.broker.topics
    topic = await topic_verbs.read(topic_verbs.all_topics(ports), name)
    routes = await ports.store.routes(topic)
    effects = ["Publishes to this topic are refused from then on."]
    if routes:
        count = count_of(len(routes), "subscription ends", "subscriptions end")
        effects.append(
            f"{count}: {', '.join(route.subscription.name for route in routes[:MAX_NAMED])}{_others(routes)}."
        )
        effects.append("Their queues stay, with their messages.")
    else:
        effects.append("It has no subscription.")
    path = f"/console/topics/{name}"
    return Subject("topic", name, topic.etag, f"{path}/delete", path, effects)


def _others(routes: Sequence[Route]) -> str:
    return f" and {format_number(len(routes) - MAX_NAMED)} more" if len(routes) > MAX_NAMED else ""


async def _subscription(page: PageRequest, topic_name: str, name: str) -> Subject:
    check_subscription_name(name)
    ports = page.context.broker.topics
    topic = await topic_verbs.read(topic_verbs.all_topics(ports), topic_name)
    found = await topic_verbs.read(topic_verbs.subscriptions_of(ports, topic), name)
    target = found.settings.target_queue
    effects = [
        f"Messages that are published to {topic_name} from then on are not copied to queue {target} by this subscription.",
        f"Queue {target} stays{await _with_messages(page, target)}.",
    ]
    path = f"/console/topics/{topic_name}/subscriptions/{name}"
    return Subject("subscription", name, found.etag, f"{path}/delete", path, effects)


async def _with_messages(page: PageRequest, queue: str) -> str:
    """Return how many messages a queue has, empty if the visitor may not browse it."""
    found = await page.context.broker.store.queues.by_name(queue) if page.visitor.may(Right.BROWSE, queue) else None
    if found is None:
        return ""
    total = await page.context.broker.store.queues.total(found.id)
    return f", with {count_of(total, 'message')}"


async def _key(page: PageRequest, key_id: str) -> Subject:
    keys, now = await page.context.broker.store.keys.list_all(), await page.context.broker.store.now()
    key = next((key for key in keys if key.id == key_id), None)
    if key is None or not key.is_live(now):
        raise KeyNotFound("No live API key has this id.")
    effects = ["Programs that use this key are refused within seconds.", _last_use(key), f"It may {_rights(key)}."]
    if key.id == page.visitor.principal.key_id:
        effects.append("You are signed in with it, and your session ends too.")
    if has_manager([key], now) and not has_manager([other for other in keys if other.id != key_id], now):
        effects.append(LAST_MANAGER)
    return Subject("key", key.principal, "", f"/console/keys/{key.id}/revoke", "/console/keys", effects, verb="Revoke")


def _last_use(key: ApiKey) -> str:
    return "It was never used." if key.last_used_at is None else f"It was last used at {format_time(key.last_used_at)}."


def _rights(key: ApiKey) -> str:
    return f"{', '.join(sorted(key.grant.rights))} on {' '.join(key.grant.patterns)}"


def _page(
    page: PageRequest, subject: Subject, fields: Mapping[str, str] | None = None, refusal: Refusal | None = None
) -> HTMLResponse:
    shown = fields or {"etag": subject.etag}
    faults = faults_of(refusal) if refusal else {}
    return page.render("delete.html", status_of_form(refusal), subject=subject, fields=shown, faults=faults)
