"""Requests of one verb that are gathered apart, because they need further statements in their transaction."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from app.domain.message import Draft
from app.domain.settlement import Move, Removal
from app.store.shared.database import StoreCoalescer

AnyRequest = TypeVar("AnyRequest", Draft, Move, Removal)
Result = TypeVar("Result")


class Lanes(Generic[AnyRequest, Result]):
    """The coalescers of one verb.

    A group that another transaction holds makes a whole batch wait, and a history makes each batch dearer. So requests
    that may need neither share no batch with those that do.
    """

    def __init__(self, new_coalescer: Callable[[], StoreCoalescer[AnyRequest, Result]]) -> None:
        self._plain = new_coalescer()
        self._groups = new_coalescer()
        self._histories = new_coalescer()

    def of(self, requests: Sequence[AnyRequest]) -> StoreCoalescer[AnyRequest, Result]:
        """Return the coalescer for these requests."""
        coalescer = self._plain
        for request in requests:
            if request.is_in_group:
                return self._groups
            if request.keeps_history:
                coalescer = self._histories
        return coalescer

    async def close(self) -> None:
        """Close the coalescers."""
        for coalescer in (self._plain, self._groups, self._histories):
            await coalescer.close()
