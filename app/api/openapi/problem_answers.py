"""The answers of an operation that are problems, each with an example for every code that it may have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from app.api.openapi.schemas import reference
from app.domain.instant import Instant
from app.domain.refusals import (
    AlreadySettled,
    BackendUnavailable,
    InvalidRequest,
    LockLost,
    Refusal,
    StoreUnavailable,
)
from app.domain.state_refusals import VersionConflict
from app.domain.transaction_refusals import RollbackCause, TransactionRolledBack
from app.http.operation import Operation
from app.http.problems import TITLES, problem_of, status_of
from app.http.response import PROBLEM
from app.wire.problems import Problem

Refused: TypeAlias = Refusal | BackendUnavailable
Kinds: TypeAlias = Iterable[type[Refused]]

NAMED_PROBLEMS = frozenset({404, 409, 410, 412, 504})
"""The statuses by which a client decides what to do next. Every other problem is the default answer of its operation."""

OTHER_PROBLEM_HEADERS = ("WWW-Authenticate", "Accept-Encoding", "Retry-After")
"""Headers that some other problems have."""

SHOWN_OF_EVERY_OPERATION = (InvalidRequest, StoreUnavailable)
"""The problems of every operation that its default answer shows: a fault of the request, and one of the server."""

INSTANCES: Mapping[type[Refused], Callable[[], Refused]] = {
    AlreadySettled: lambda: AlreadySettled("completed"),
    LockLost: lambda: LockLost(lost_at=Instant(1_795_350_600_000_000), delivered_again=True),
    TransactionRolledBack: lambda: TransactionRolledBack(RollbackCause.TIMEOUT),
    VersionConflict: lambda: VersionConflict("The state order.17 has version 4, not version 3.", 4),
}
"""The refusals that say more than their class."""

TRACKING_ID = "f74c8b70653a1e13"


def problem_answers(operation: Operation) -> dict[str, Any]:
    """Return the answers of an operation that are problems, by their status in the document."""
    named = sorted(NAMED_PROBLEMS & {status_of(kind) for kind in operation.problems})
    others = [kind for kind in operation.problems if status_of(kind) not in named]
    return {
        **{
            str(status): _answer(f"{TITLES[status]}.", [one for one in operation.problems if status_of(one) == status])
            for status in named
        },
        "default": _answer(_own_codes(operation), [*others, *SHOWN_OF_EVERY_OPERATION], OTHER_PROBLEM_HEADERS),
    }


def problem_examples(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return an example of each problem that the answers of these operations show, by its code."""
    shown = {*SHOWN_OF_EVERY_OPERATION, *(kind for operation in operations for kind in operation.problems)}
    kinds = {kind.code: _kind_of_code(kind) for kind in shown}
    return {code: {"value": _example(kind)} for code, kind in sorted(kinds.items())}


def header_references(names: Iterable[str]) -> dict[str, Any]:
    """Return references to headers in the document."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _answer(description: str, kinds: Kinds, headers: Sequence[str] = ()) -> dict[str, Any]:
    codes = sorted({kind.code for kind in kinds})
    examples = {code: {"$ref": f"#/components/examples/{code}"} for code in codes}
    return {
        "description": description,
        "headers": header_references(["X-Request-Id", *headers]),
        "content": {PROBLEM.decode(): {"schema": reference(Problem), "examples": examples}},
    }


def _own_codes(operation: Operation) -> str:
    """Return the description of the answer that stands for every problem, with the codes of the operation by status."""
    kinds = operation.problems
    lines = [
        f"- {status}: {', '.join(sorted({f'`{kind.code}`' for kind in kinds if status_of(kind) == status}))}"
        for status in sorted({status_of(kind) for kind in kinds})
    ]
    listed = ["A problem. Its `code` is one that every operation may answer, or one of these:", "", *lines]
    return "\n".join(listed) if lines else "A problem. Its `code` is one that every operation may answer."


def _kind_of_code(kind: type[Refused]) -> type[Refused]:
    """Return the class that declares the code of a refusal. Others have it from there."""
    return next(base for base in kind.__mro__ if "code" in vars(base))


def _example(kind: type[Refused]) -> dict[str, Any]:
    example: dict[str, Any] = msgspec.to_builtins(problem_of(INSTANCES.get(kind, kind)(), TRACKING_ID))
    return example
