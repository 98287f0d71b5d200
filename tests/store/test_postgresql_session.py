"""The address of a PostgreSQL database, and the meaning of its errors."""

import asyncpg
import pytest

from app.store.postgresql.dialect import DIALECT
from app.store.postgresql.session import MAX_PREPARED, connect, parse_address, translate_errors
from app.store.records.database import LockWaitTimeout
from app.store.server.pool import TransactionConflict
from app.store.url import BadStoreUrl


def test_a_connection_keeps_every_statement_prepared() -> None:
    assert len(DIALECT.statements) < MAX_PREPARED


@pytest.mark.parametrize(("options", "is_pooled"), [("", False), ("?statement_cache_size=0", True)])
def test_a_url_without_a_statement_cache_declares_a_pooler(options: str, is_pooled: bool) -> None:
    server_address = parse_address(f"postgresql://host/database{options}")
    assert (server_address.url, server_address.is_pooled) == ("postgresql://host/database", is_pooled)


@pytest.mark.parametrize(
    ("error", "expected_error"),
    [
        (asyncpg.LockNotAvailableError("lock timeout"), LockWaitTimeout),
        (asyncpg.DeadlockDetectedError("deadlock"), TransactionConflict),
        (asyncpg.SerializationError("serialization"), TransactionConflict),
    ],
)
def test_a_server_error_becomes_an_error_of_the_store(error: Exception, expected_error: type[Exception]) -> None:
    with pytest.raises(expected_error), translate_errors():
        raise error


async def test_an_invalid_option_of_the_url_is_refused() -> None:
    with pytest.raises(BadStoreUrl, match="an option has an invalid value"):
        await connect(parse_address("postgresql://127.0.0.1/database?sslmode=sometimes"))
