"""Messages that join an open transaction, by a send or by a publish."""

from collections.abc import Sequence
from typing import Any

from app.domain.message import Durability
from app.domain.refusals import InvalidRequest
from app.domain.sending import NewMessage
from app.domain.transaction import TransactionKey
from app.http.request import Request


def joined_transaction(
    request: Request[Any], transaction_id: str, new_messages: Sequence[NewMessage]
) -> TransactionKey:
    """Return the transaction that these messages join. Refuses with `InvalidRequest` what no transaction takes."""
    if any(new_message.durability is Durability.VOLATILE for new_message in new_messages):
        raise InvalidRequest("A message of a transaction is always durable.")
    return TransactionKey(transaction_id, request.principal.name)
