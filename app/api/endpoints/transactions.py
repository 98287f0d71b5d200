"""Open transactions over HTTP: open, read, commit and roll back. Members join by their own operations."""

from typing import Any

from app.broker.transactions.open_transactions import commit, open_transaction, read_transaction, roll_back
from app.domain.access import ANY_RIGHT
from app.domain.refusals import StoreNotDurable
from app.domain.transaction import MAX_MEMBERS, TransactionKey
from app.domain.transaction_refusals import (
    TooManyTransactions,
    TransactionEnded,
    TransactionNotFound,
    TransactionRolledBack,
)
from app.http.operation import EmptyBody, operation
from app.http.request import Request, invalid_cursor
from app.http.response import Response, location
from app.wire.transactions import (
    BrowseMembers,
    CommittedTransaction,
    EndTransaction,
    OpenTransaction,
    TransactionDetails,
    TransactionView,
    committed_transaction,
    transaction_details,
    transaction_view,
)

TRANSACTION = "/v1/transactions/{transaction_id}"
BEFORE_THE_FIRST = -1
_MAX_MEMBER_BYTES = 1 << 10
"""Bytes of a member on a page: the name of a queue, and a message id of 128 characters, of up to 4 bytes each."""


@operation(
    "POST", "/v1/transactions", right=ANY_RIGHT, tag="transactions",
    body=OpenTransaction, empty_body=EmptyBody.USUAL, responses={201: TransactionView}, has_location=True, refusals=(TooManyTransactions,),
    example={"timeout_seconds": 60},
)  # fmt: skip
async def start_transaction(request: Request[OpenTransaction]) -> Response:
    """Open a transaction.

    Sends and settlements join it by their `transaction_id`, and take effect together at its commit. Only the principal
    that opened it can use it.
    """
    transaction = await open_transaction(request.broker.transactions, request.principal.name, request.body.duration())
    view = transaction_view(transaction)
    return Response(view, 201, headers=location(f"/v1/transactions/{view.id}"))


@operation(
    "GET", TRANSACTION, right=ANY_RIGHT, tag="transactions",
    responses={200: TransactionDetails}, refusals=(TransactionNotFound,), query=BrowseMembers,
)  # fmt: skip
async def get_transaction(request: Request[None]) -> Response:
    """Get a transaction and its members. The outcome of one that has ended is kept for an hour."""
    query: BrowseMembers = request.query
    key, after = _key(request), _after(query.cursor)
    async with request.reserve_page(query.limit, _MAX_MEMBER_BYTES):
        found, members = await read_transaction(request.broker.transactions, key, after, query.limit + 1)
        return Response(transaction_details(found, members, query.limit))


@operation(
    "POST", TRANSACTION + "/commit", right=ANY_RIGHT, tag="transactions",
    body=EndTransaction, empty_body=EmptyBody.USUAL, responses={200: CommittedTransaction}, refusals=(TransactionNotFound, TransactionRolledBack, StoreNotDurable),
)  # fmt: skip
async def commit_transaction(request: Request[EndTransaction]) -> Response:
    """Commit: all members take effect, first the settlements, then the sends in their order.

    If one cannot, none does: the transaction is rolled back, and the problem names the cause and the member. A repeat
    gets the first answer for an hour.
    """
    return Response(committed_transaction(await commit(request.broker.transactions, _key(request))))


@operation(
    "POST", TRANSACTION + "/rollback", right=ANY_RIGHT, tag="transactions",
    body=EndTransaction, empty_body=EmptyBody.USUAL, responses={200: TransactionView}, refusals=(TransactionNotFound, TransactionEnded),
)  # fmt: skip
async def rollback_transaction(request: Request[EndTransaction]) -> Response:
    """Roll back: no member takes effect. Messages stay locked by their receivers."""
    return Response(transaction_view(await roll_back(request.broker.transactions, _key(request))))


def _key(request: Request[Any]) -> TransactionKey:
    """Return the transaction in the path. Refuses with `TransactionNotFound` an id that no server gives."""
    transaction_id = request.path["transaction_id"]
    if not (transaction_id.isascii() and transaction_id.replace("-", "").isalnum()):
        raise TransactionNotFound
    return TransactionKey(transaction_id, request.principal.name)


def _after(cursor: str | None) -> int:
    """Return the position after which a page begins. Refuses with `InvalidRequest` a text that is no cursor."""
    if cursor is None:
        return BEFORE_THE_FIRST
    if not (cursor.isascii() and cursor.isdecimal() and int(cursor) < MAX_MEMBERS):
        raise invalid_cursor()
    return int(cursor)
