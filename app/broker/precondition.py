"""The precondition of a request that changes a named entity, such as a queue."""

from collections.abc import Container
from dataclasses import dataclass

from app.domain.refusals import PreconditionFailed


@dataclass(frozen=True, slots=True)
class Precondition:
    """What the ETag of the entity must satisfy: it is in `if_match` (None: any ETag) and not in `if_none_match`."""

    if_match: Container[str] | None = None
    if_none_match: Container[str] = ()

    def check(self, kind: str, name: str, etag: str) -> None:
        """Refuse with `PreconditionFailed` if the entity does not satisfy it. `kind` is a noun, such as `queue`."""
        if self.if_match is not None and etag not in self.if_match:
            raise PreconditionFailed(
                f'{kind.capitalize()} {name} was changed or made again: its ETag is now "{etag}", in quotes.'
            )
        if etag in self.if_none_match:
            raise PreconditionFailed(f'There is a {kind} named {name} already: its ETag is now "{etag}", in quotes.')

    def check_absent(self, kind: str, name: str) -> None:
        """Refuse with `PreconditionFailed` if the entity, which does not exist, must exist."""
        if self.if_match is not None:
            raise PreconditionFailed(f"There is no {kind} named {name}.")


UNCONDITIONAL = Precondition()

MAX_TRIES = 100
"""How often a change is retried after a concurrent change. Each time, another request has made progress. It limits
no request."""
