"""Pages of the queues or topics whose names are in given ranges, with a bounded number of statements."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from app.domain.name_ranges import NameRange

_MAX_STATEMENTS = 8
"""The largest number of statements for one page. A key may have 64 ranges, and each may be empty."""


class Named(Protocol):
    """A queue or a topic."""

    @property
    def name(self) -> str:
        """Its name, by which pages are sorted."""
        ...


Entity = TypeVar("Entity", bound=Named)


async def page_of_ranges(
    page: Callable[[str, int], Awaitable[Sequence[Entity]]], ranges: Sequence[NameRange], after: str, limit: int
) -> tuple[Sequence[Entity], str | None]:
    """Return up to `limit` entities after `after` whose names are in the ranges, and the cursor of the next page.

    `page` reads a page from the store. The cursor is a name in a range, or the end of a range, so it reveals no other name.
    """

    def is_listable(name: str) -> bool:
        return any(candidate.contains(name) for candidate in ranges)

    found: list[Entity] = []
    for _ in range(_MAX_STATEMENTS):
        current = next((candidate for candidate in ranges if candidate.end > after), None)
        if current is None:
            return found, None
        wanted = limit + 1 - len(found) if current.is_prefix else 1
        read = await page(current.resume(after), wanted)
        found += [entity for entity in read if is_listable(entity.name)]
        if len(found) > limit:
            return found[:limit], found[limit - 1].name
        if len(read) < wanted:
            return found, None
        last = read[-1].name
        # A name outside of the ranges must not be the cursor. Every range that ends before it has been read.
        after = last if is_listable(last) else max(done.end for done in ranges if done.end < last)
    return found, after if ranges[-1].end > after else None
