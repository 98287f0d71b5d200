"""The trail of a message: itself in every queue that had it, what was sent because of it, and what shares its trace."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from app.console.messages import after_cursor
from app.console.pages import CurrentPage, PageRequest
from app.console.trail_filter import Relation, trail_filter
from app.console.trail_search import Place, TrailSearch
from app.domain.message import MAX_ID_LENGTH

router = APIRouter(prefix="/console/trail")


@router.get("")
async def show_trail(page: CurrentPage) -> HTMLResponse:
    """Show the messages that have to do with an id of a message or of a trace, in the order of their sending."""
    wanted, context = _wanted(page), page.context
    start, steps, next_place = _start(page), (), None
    if wanted:
        await context.activity.refresh(context.statistics)
        search = TrailSearch(context, page.visitor.principal, trail_filter(wanted))
        steps, next_place = await search.run(start)
    return page.render(
        "trail.html",
        wanted=wanted,
        steps=steps,
        itself=Relation.IS_IT,
        next_place=next_place,
        is_first=start == Place(),
    )


def _wanted(page: PageRequest) -> str:
    """Return the id in the address with the spaces at its ends, which an id may have; empty if there is nothing else."""
    return page.request.query_params.get("id", "")[:MAX_ID_LENGTH] if page.query("id") else ""


def _start(page: PageRequest) -> Place:
    """Return the place in the address. Refuses with `InvalidRequest` one that is none."""
    before = after_cursor(page.query("before"))
    return Place(before=before) if before else Place(page.query("queue"), after_cursor(page.query("after")))
