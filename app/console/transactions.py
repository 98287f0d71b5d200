"""Open transactions: who opened them, what waits in each for the commit, and their rollback."""

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, Response

from app.broker.transactions.open_transactions import list_open_transactions, read_transaction, roll_back
from app.console.form_fields import form_texts
from app.console.pages import CurrentPage, PageRequest
from app.console.results import result_page
from app.domain.access import Right
from app.domain.transaction import MAX_OPEN_TRANSACTIONS, OwnedTransaction
from app.domain.transaction_refusals import TransactionNotFound

SHOWN_MEMBERS = 200
BEFORE_THE_FIRST = -1

router = APIRouter(prefix="/console/transactions")


@router.get("")
async def list_transactions(page: CurrentPage) -> HTMLResponse:
    """Show the open transactions, those whose deadline comes first: all of them, or those that the visitor has opened."""
    return page.render("transactions.html", opened=await _visible(page), now=await page.context.broker.store.now())


@router.get("/{transaction_id}")
async def show_transaction(page: CurrentPage, transaction_id: str) -> HTMLResponse:
    """Show the first members of an open transaction."""
    found = await _find(page, transaction_id)
    ports = page.context.broker.transactions
    transaction, members = await read_transaction(ports, found.key, BEFORE_THE_FIRST, SHOWN_MEMBERS)
    return page.render(
        "transaction.html", transaction=transaction, principal=found.principal, members=members, now=transaction.read_at
    )


@router.post("/{transaction_id}/rollback", dependencies=[Depends(form_texts())])
async def end_transaction(page: CurrentPage, transaction_id: str) -> Response:
    """Roll back a transaction: no member takes effect."""
    await roll_back(page.context.broker.transactions, (await _find(page, transaction_id)).key)
    return result_page("/console/transactions", "roll-back", transaction_id)


async def _visible(page: PageRequest) -> list[OwnedTransaction]:
    """Return the transactions that the visitor may see: who may manage everything sees those of others."""
    opened = await list_open_transactions(page.context.broker.transactions, 2 * MAX_OPEN_TRANSACTIONS)
    if page.visitor.may(Right.MANAGE):
        return opened
    return [one for one in opened if one.principal == page.visitor.principal.name]


async def _find(page: PageRequest, transaction_id: str) -> OwnedTransaction:
    """Return an open transaction. Refuses with `TransactionNotFound` one that has ended or that the visitor may not see."""
    for one in await _visible(page):
        if one.transaction.id == transaction_id:
            return one
    raise TransactionNotFound("No open transaction has this id. It may have ended.")
