"""The address of a PostgreSQL database, and what its errors mean."""

import asyncpg
import pytest

from app.store.pool import Collision, LockWaitEnded
from app.store.postgresql_session import address, translated


@pytest.mark.parametrize(("options", "is_pooled"), [("", False), ("?statement_cache_size=0", True)])
def test_a_url_without_a_cache_of_statements_names_a_pooler(options: str, is_pooled: bool) -> None:
    where = address(f"postgresql://host/database{options}")
    assert (where.url, where.is_pooled) == ("postgresql://host/database", is_pooled)


@pytest.mark.parametrize(
    ("error", "meant"),
    [
        (asyncpg.LockNotAvailableError("lock timeout"), LockWaitEnded),
        (asyncpg.DeadlockDetectedError("deadlock"), Collision),
        (asyncpg.SerializationError("serialization"), Collision),
    ],
)
def test_an_error_of_the_server_has_a_meaning(error: Exception, meant: type[Exception]) -> None:
    with pytest.raises(meant), translated():
        raise error
