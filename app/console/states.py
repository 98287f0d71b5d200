"""Versioned states: a list, the versions of each, a value, and what has changed between two versions."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, Response

from app.broker.administration import states as verbs
from app.console.access import needs
from app.console.bodies import BodyView, body_view
from app.console.differences import Difference, differences
from app.console.form_fields import form_texts
from app.console.pages import CurrentPage, PageRequest
from app.console.results import result_page
from app.domain.access import Right
from app.domain.message import BodyKind
from app.domain.state import NO_VERSION, LoadedState
from app.domain.state_refusals import StateNotFound

PAGE_SIZE = 100
VERSIONS = 50
"""Versions on a page, the newest."""

EMPTY_VALUE = b"null"
"""The value of version 0."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two versions, or a sentence that says why nothing is shown."""

    differences: Sequence[Difference]
    has_more: bool
    obstacle: str


router = APIRouter(prefix="/console/states")
may_browse = Depends(needs(Right.BROWSE, "key", "state"))
may_manage = Depends(needs(Right.MANAGE, "key", "state"))


@router.get("")
async def list_states(page: CurrentPage) -> HTMLResponse:
    """Show the states that the visitor may browse, by key."""
    ranges = page.visitor.principal.grant.ranges(Right.BROWSE)
    after = page.query("after")
    states, more = await verbs.list_states(page.context.broker.store.states, ranges, after, PAGE_SIZE)
    return page.render("states.html", states=states, after=after, more=more)


@router.get("/{key}", dependencies=[may_browse])
async def show_state(page: CurrentPage, key: str) -> HTMLResponse:
    """Show the versions of a state. Visitors who may listen see a value, and what it has changed."""
    store = page.context.broker.store.states
    newest = (await verbs.load_state(store, key)).version
    if newest is None:
        raise StateNotFound(f"Key {key} has no state.")
    before = _number(page.query("before")) or newest.number + 1
    listed = await verbs.state_history(store, key, max(before - 1 - VERSIONS, NO_VERSION), VERSIONS)
    versions = [version for version in reversed(listed) if version.number < before]
    number = _number(page.query("version")) or newest.number
    base = _number(page.query("with")) if page.query("with") else number - 1
    may_read = page.visitor.may(Right.LISTEN, key)
    value, comparison = await _value(page, key, number, base) if may_read else (None, None)
    return page.render(
        "state.html",
        key=key,
        newest=newest.number,
        versions=versions,
        older=versions[-1].number if len(versions) == VERSIONS and versions[-1].number > 1 else None,
        number=number,
        base=base,
        value=value,
        comparison=comparison,
    )


@router.post("/{key}/delete", dependencies=[may_manage, Depends(form_texts())])
async def delete_state(page: CurrentPage, key: str) -> Response:
    """Delete a state with all its versions."""
    await verbs.delete_state(page.context.broker.store.states, key)
    return result_page("/console/states", "delete-state", key)


async def _value(page: PageRequest, key: str, number: int, base: int) -> tuple[BodyView, Comparison]:
    """Return the value of a version, and what differs from the base."""
    value = _bytes(await verbs.load_state(page.context.broker.store.states, key, number))
    view = body_view(value, BodyKind.JSON, page.query("body"))
    try:
        before = _bytes(await verbs.load_state(page.context.broker.store.states, key, base))
    except StateNotFound:
        return view, Comparison((), has_more=False, obstacle=f"Version {base} is not kept any more.")
    found = differences(before, value)
    if found is None:
        return view, Comparison((), has_more=False, obstacle="These versions are too large to be compared on a page.")
    return view, Comparison(*found, obstacle="" if found[0] else "Both versions have the same value.")


def _bytes(loaded: LoadedState) -> bytes:
    return EMPTY_VALUE if loaded.version is None else loaded.version.value


def _number(text: str) -> int:
    """Return the number of a version in the address, 0 for other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else NO_VERSION
