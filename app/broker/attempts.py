"""A request with an Idempotency-Key takes effect once: a repeat gets the first result, even if it would be refused now."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.broker.ports.attempts import Attempt, AttemptResult

Result = TypeVar("Result")


async def first_result(
    attempt: Attempt | None, find: Callable[[Attempt], Awaitable[Result | None]]
) -> AttemptResult[Result] | None:
    """Return what an earlier try of a refused request has stored, or None.

    A request may be refused because its first try took effect: it filled the queue, or settled the deliveries.
    """
    result = None if attempt is None else await find(attempt)
    return None if result is None else AttemptResult(result, replayed=True)
