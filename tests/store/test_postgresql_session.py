"""The address of a PostgreSQL database, and what its errors mean."""

import asyncpg
import pytest

from app.store.postgresql.session import parse_address, translate_errors
from app.store.server.pool import LockWaitTimeout, TransactionConflict


@pytest.mark.parametrize(("options", "is_pooled"), [("", False), ("?statement_cache_size=0", True)])
def test_a_url_without_a_cache_of_statements_names_a_pooler(options: str, is_pooled: bool) -> None:
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
def test_an_error_of_the_server_has_a_meaning(error: Exception, expected_error: type[Exception]) -> None:
    with pytest.raises(expected_error), translate_errors():
        raise error
