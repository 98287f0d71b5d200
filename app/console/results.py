"""What a form has done, as the next page says it. The address of that page names the action."""

from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse

from app.domain.plurals import count_of
from app.domain.queue import is_valid_name

OF_MESSAGES = {"redrive": "redriven", "resubmit": "resubmitted", "purge": "purged"}
"""The actions on selected messages. The address has their number."""

OF_ONE = {
    "create-queue": "Queue {} was created.",
    "create-topic": "Topic {} was created.",
    "create-subscription": "Subscription {} was created.",
    "change-settings": "The settings were changed.",
    "delete-queue": "Queue {} was deleted.",
    "delete-topic": "Topic {} was deleted.",
    "delete-subscription": "Subscription {} was deleted.",
    "delete-state": "State {} was deleted.",
    "roll-back": "The transaction was rolled back.",
    "revoke-key": "The key was revoked.",
}
"""The other actions. The address has the name of what they changed."""

NOTHING_SELECTED = "Select at least one message."


@dataclass(frozen=True, slots=True)
class Result:
    """A sentence, and the address of the page that undoes a purge, empty for another action."""

    text: str
    undo: str = ""


def result_page(path: str, action: str, name: str) -> RedirectResponse:
    """Lead to a page that says what an action has done."""
    assert action in OF_ONE
    return RedirectResponse(f"{path}?{urlencode({'action_name': action, 'done': name})}", 303)


def result_of(request: Request) -> Result | None:
    """Return the result that the address of a page names, None without one."""
    action, done = request.query_params.get("action_name", ""), request.query_params.get("done", "")
    if action == "none":
        return Result(NOTHING_SELECTED)
    if action in OF_ONE:
        return Result(OF_ONE[action].format(done)) if is_valid_name(done) else None
    if action not in OF_MESSAGES or not (done.isascii() and done.isdigit() and len(done) < 10):
        return None
    messages = count_of(int(done), "message was", "messages were")
    return Result(f"{messages} {OF_MESSAGES[action]}.", _undo(request) if action == "purge" else "")


def _undo(request: Request) -> str:
    queue, since = request.path_params.get("queue", ""), request.query_params.get("since", "")
    return f"/console/queues/{queue}/dead-letters/restore?{urlencode({'since': since})}" if queue and since else ""
