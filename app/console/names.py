"""The names of queues, topics and subscriptions in forms: of new ones, and of those to delete."""

from collections.abc import Mapping

from app.console.access import Visitor
from app.domain.access import Right
from app.domain.queue import MAX_NAME_LENGTH, is_valid_name
from app.domain.refusals import Conflict, Forbidden, Refusal, invalid_at

NO_NAME = "Write a name."
NOT_A_NAME = f"A name has 1 to {MAX_NAME_LENGTH} letters, digits, dots, underscores or hyphens, with a letter or a digit at both ends."


def check_somewhere(visitor: Visitor, right: Right) -> None:
    """Refuse with `Forbidden` a visitor who holds the right on no name."""
    if not visitor.may_somewhere(right):
        raise Forbidden(f"This API key does not hold the right {right} on any name.")


def check_new_name(fields: Mapping[str, str]) -> str:
    """Return the name in a form. Refuses with `InvalidRequest` what is no name of a queue, a topic or a subscription."""
    name = fields.get("name", "").strip()
    if not is_valid_name(name):
        raise invalid_at("/name", NOT_A_NAME if name else NO_NAME)
    return name


def name_taken(fields: Mapping[str, str], kind: str) -> Refusal:
    """Return the refusal of a new name that is in use. `kind` is a noun, such as `queue`."""
    return Conflict(f"There is a {kind} named {fields['name'].strip()} already.").located_at("/name")


def check_typed_name(fields: Mapping[str, str], name: str, kind: str) -> None:
    """Refuse with `InvalidRequest` a form without the name that confirms it. `kind` is a noun, such as `queue`."""
    if fields.get("name", "").strip() != name:
        raise invalid_at("/name", f"This is not the name of the {kind}. Nothing has changed.")
