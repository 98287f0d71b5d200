"""Acts on the messages that are selected in a list: redrive, resubmit and purge.

The plan is shown first: which messages change, and why the others stay. The form of the plan has its digest. If a message has
changed since, nothing is done, and the page shows the new plan.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias
from urllib.parse import urlencode

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from msgspec.structs import replace

from app.broker.administration.browse import read_message, read_named
from app.broker.administration.dead_letter_groups import EarlierDeadLetters, dead_since
from app.broker.administration.purge import purge
from app.broker.administration.queues import reload_queue
from app.broker.administration.redrive import redrive
from app.broker.administration.resubmit import resubmit
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll, check_length
from app.console.access import needs
from app.console.form_fields import form_pairs
from app.console.forms import faults_of, status_of_form
from app.console.messages import PAGE_SIZE, STATES, number_of
from app.console.pages import CurrentPage, PageRequest
from app.console.plan_digest import plan_digest
from app.console.results import NOTHING_SELECTED
from app.domain.access import Right
from app.domain.message import Message, MessageMetadata, MessageState
from app.domain.plan import MessageSummary, summarize
from app.domain.plurals import count_of
from app.domain.queue import Queue
from app.domain.refusals import Conflict, MessageNotFound, Refusal, invalid_at
from app.domain.sending import NewMessage
from app.wire.times import to_wire

MAX_SELECTED = PAGE_SIZE
"""Messages of one action: those of one page of a list."""

STEP_SECONDS = 10.0
"""How long a redrive or a purge of so few messages may take. What is left then is planned again."""

RECEIVER = "console"
UNLOCKED = tuple(state for state in MessageState if state is not MessageState.LOCKED)
OUTDATED = "Messages have changed since this plan was made, and nothing was done. This is the new plan."
TOO_MANY = f"At most {MAX_SELECTED} messages can be selected at a time."
LISTED_FIELDS = ("number", "state")
"""Fields that a form may give several times."""

Fields: TypeAlias = Annotated[
    Sequence[tuple[str, str]], Depends(form_pairs(("action_name", "list", "plan", "filter"), LISTED_FIELDS))
]
LISTS = ("dead_letters", "messages", "message")

router = APIRouter(prefix="/console/queues/{queue}/selected")
may_browse = Depends(needs(Right.BROWSE, "queue"))

Perform: TypeAlias = Callable[[PageRequest, Queue, "SelectionPlan"], Awaitable["Done"]]


@dataclass(frozen=True, slots=True)
class Done:
    """How many messages an action has changed, and why not all if some are left."""

    count: int
    why_not_all: str = "The others have changed meanwhile."


@dataclass(frozen=True, slots=True)
class Action:
    """What is done to selected messages in these states, and the rights that it needs besides `browse`."""

    label: str
    done: str
    meaning: str
    states: Sequence[MessageState]
    rights: Sequence[Right]
    perform: Perform


@dataclass(frozen=True, slots=True)
class WantedAction:
    """What a form asks for: an action, the numbers of the selected messages, and the list to return to with its query."""

    name: str
    action: Action
    numbers: Sequence[int]
    origin: str
    query: Sequence[tuple[str, str]]

    @property
    def states(self) -> Sequence[MessageState]:
        """The states of the messages that change. What was selected as a dead letter changes as one, or not at all."""
        return self.action.states if self.origin == "messages" else (MessageState.DEAD_LETTERED,)


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """What an action would do now. `changed` are the messages that it changes, and `kept` says why others stay, by number."""

    changed: Sequence[MessageMetadata]
    kept: Sequence[tuple[int, str]]
    digest: str

    @property
    def sample(self) -> Sequence[MessageSummary]:
        """The messages that change, as a page shows them."""
        return [summarize(message) for message in self.changed]

    @property
    def bytes(self) -> int:
        """The bytes of their bodies and properties."""
        return sum(message.body_bytes + len(message.envelope.properties) for message in self.changed)


@router.get("", dependencies=[may_browse])
async def show_plan(page: CurrentPage, queue: str) -> Response:
    """Show what an action would do to the selected messages. With none selected, return to the list, which says so."""
    fields = page.request.query_params.multi_items()
    if not any(name == "number" for name, _ in fields):
        return RedirectResponse(
            _list_address(queue, *_origin_of(fields), [("action_name", "none"), ("done", "0")]), 303
        )
    wanted = _wanted(page, queue, fields)
    found = await reload_queue(page.context.broker.administration, queue)
    return await _show(page, found, wanted)


@router.post("", dependencies=[may_browse])
async def perform_plan(page: CurrentPage, queue: str, sent: Fields) -> Response:
    """Do what the plan of the form says, if it is still the plan, and return to the list."""
    wanted = _wanted(page, queue, sent)
    found = await reload_queue(page.context.broker.administration, queue)
    plan = await _plan(page, found, wanted)
    if dict(sent).get("plan") != plan.digest:
        return await _show(page, found, wanted, Conflict(OUTDATED))
    if not plan.changed:
        return await _show(page, found, wanted)
    since = await page.context.broker.store.now()
    try:
        done = await wanted.action.perform(page, found, plan)
    except Refusal as refusal:
        return await _show(page, found, wanted, refusal)
    if done.count < len(plan.changed):
        messages = count_of(len(plan.changed), "message was", "messages were")
        text = f"{done.count} of {messages} {wanted.action.done}. {done.why_not_all}"
        return await _show(page, found, wanted, Conflict(text))
    return RedirectResponse(_target(queue, wanted, done.count, to_wire(since)), 303)


# ---- what is wanted ---------------------------------------------------------------------------------------------------


def _wanted(page: PageRequest, queue: str, fields: Sequence[tuple[str, str]]) -> WantedAction:
    """Return what a form asks for. Refuses with `InvalidRequest`, and with `Forbidden` a visitor without the rights."""
    name = dict(fields).get("action_name", "")
    action = ACTIONS.get(name)
    if action is None:
        raise invalid_at("/action_name", f"This is not one of the actions: {', '.join(ACTIONS)}.")
    for right in action.rights:
        page.visitor.require(right, queue)
    return WantedAction(
        name, action, _numbers([text for name, text in fields if name == "number"]), *_origin_of(fields)
    )


def _origin_of(fields: Sequence[tuple[str, str]]) -> tuple[str, Sequence[tuple[str, str]]]:
    """Return the list that a form came from, and the query of the list. Refuses with `InvalidRequest`."""
    single = dict(fields)
    origin = single.get("list", "dead_letters")
    if origin not in LISTS:
        raise invalid_at("/list", "This is not a list of messages.")
    check_length(single.get("filter", ""), "/filter")
    states = dict.fromkeys(text for name, text in fields if name == "state" and text in STATES)
    query = [("state", state) for state in states]
    return origin, query + ([("filter", single["filter"])] if single.get("filter") else [])


def _numbers(texts: Sequence[str]) -> Sequence[int]:
    if not texts:
        raise invalid_at("/number", NOTHING_SELECTED)
    if len(texts) > MAX_SELECTED:
        raise invalid_at("/number", TOO_MANY)
    try:
        return sorted({number_of(text) for text in texts})
    except MessageNotFound as fault:
        raise invalid_at("/number", fault.detail) from None


# ---- the plan ----------------------------------------------------------------------------------------------------------


async def _plan(page: PageRequest, queue: Queue, wanted: WantedAction) -> SelectionPlan:
    messages = await read_named(page.context.broker.administration, queue, wanted.numbers)
    held = {message.sequence_number: message for message in messages}
    kept = [
        (number, _why_kept(held.get(number), wanted.action))
        for number in wanted.numbers
        if number not in held or held[number].state not in wanted.states
    ]
    changed = [message for message in messages if message.state in wanted.states]
    return SelectionPlan(changed, kept, plan_digest(wanted.name, queue, messages))


def _why_kept(message: MessageMetadata | None, action: Action) -> str:
    if message is None:
        return "has left the queue"
    if message.state is MessageState.LOCKED:
        return "is locked: a receiver holds it"
    return f"is {message.state.label.replace('_', '-')}: only dead letters are {action.done}"


async def _show(page: PageRequest, queue: Queue, wanted: WantedAction, refusal: Refusal | None = None) -> HTMLResponse:
    plan = await _plan(page, queue, wanted)
    return page.render(
        "selection.html",
        status_of_form(refusal),
        name=queue.name,
        tab="dead_letters" if wanted.origin == "dead_letters" else "messages",
        wanted=wanted,
        plan=plan,
        faults=faults_of(refusal) if refusal else {},
        back=_target(queue.name, wanted),
        keeps_archive=queue.settings.archive_retention > 0,
    )


def _target(queue: str, wanted: WantedAction, done: int | None = None, since: str = "") -> str:
    """Return the address of the page that an action came from. A list says how many messages were changed."""
    if wanted.origin == "message":
        return f"/console/queues/{queue}/messages/{wanted.numbers[0]}"
    result = [] if done is None else [("action_name", wanted.name), ("done", str(done)), ("since", since)]
    return _list_address(queue, wanted.origin, wanted.query, result)


def _list_address(queue: str, origin: str, query: Sequence[tuple[str, str]], result: Sequence[tuple[str, str]]) -> str:
    path = f"/console/queues/{queue}/{'messages' if origin == 'message' else origin.replace('_', '-')}"
    return f"{path}?{urlencode([*query, *result])}" if query or result else path


# ---- the actions -------------------------------------------------------------------------------------------------------


async def _redrive(page: PageRequest, queue: Queue, plan: SelectionPlan) -> Done:
    ports = page.context.broker.administration
    return Done(await redrive(ports, queue, queue, _selection(plan), None, STEP_SECONDS))


async def _purge(page: PageRequest, queue: Queue, plan: SelectionPlan) -> Done:
    return Done(await purge(page.context.broker.administration, queue, _selection(plan), STEP_SECONDS))


async def _resubmit(page: PageRequest, queue: Queue, plan: SelectionPlan) -> Done:
    """Resubmit each message. After the first one, a refusal ends it: the others stay dead letters."""
    ports, count = page.context.broker.administration, 0
    for planned in plan.changed:
        try:
            message = await read_message(ports, queue, planned.sequence_number)
            if plan_digest("", queue, [message]) == plan_digest("", queue, [planned]):
                await resubmit(ports, queue, message.sequence_number, message.etag, _copy_of(message), RECEIVER)
                count += 1
        except MessageNotFound:
            continue
        except Refusal as refusal:
            if not count:
                raise
            return Done(count, refusal.detail)
    return Done(count)


def _copy_of(message: Message) -> NewMessage:
    """Return the message as its sender gave it, for a new id."""
    return NewMessage(replace(message.envelope, message_id=""), message.body, message.body_kind, message.priority)


def _selection(plan: SelectionPlan) -> MessageSelection:
    """Select the messages of the plan. One that was dead-lettered again since is left out."""
    states = {message.state for message in plan.changed}
    newest = max((dead_since(message) for message in plan.changed), default=0)
    numbers = [message.sequence_number for message in plan.changed]
    return MessageSelection(sorted(states), EarlierDeadLetters(MatchAll(), newest), numbers=numbers)


ACTIONS: Mapping[str, Action] = {
    "redrive": Action(
        "Redrive",
        "redriven",
        "Receivers get these messages again, with counts of 0.",
        (MessageState.DEAD_LETTERED,),
        (Right.MANAGE,),
        _redrive,
    ),
    "resubmit": Action(
        "Resubmit",
        "resubmitted",
        "Each is completed, and sent again as a new message with a new id. Receivers get it once.",
        (MessageState.DEAD_LETTERED,),
        (Right.LISTEN, Right.SEND),
        _resubmit,
    ),
    "purge": Action("Purge", "purged", "These messages are removed from the queue.", UNLOCKED, (Right.MANAGE,), _purge),
}
