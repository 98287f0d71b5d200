"""The address of a PostgreSQL database, and the meaning of its errors."""

import asyncpg
import pytest

from app.domain.refusals import StoreUnavailable
from app.store.pooled.pool import TransactionConflict
from app.store.postgresql.connect import MAX_PREPARED, connect, parse_address
from app.store.postgresql.dialect import DIALECT
from app.store.postgresql.session import PostgresqlSession, translate_errors
from app.store.shared.database import LockWaitTimeout
from app.store.url import BadStoreUrl, read_url


def test_a_connection_keeps_every_statement_prepared() -> None:
    assert len(DIALECT.statements) < MAX_PREPARED


@pytest.mark.parametrize(("options", "is_pooled"), [("", False), ("?statement_cache_size=0", True)])
def test_a_url_without_a_statement_cache_declares_a_pooler(options: str, is_pooled: bool) -> None:
    server_address = parse_address(f"postgresql://host/database{options}")
    assert (server_address.hosts, server_address.is_pooled) == ({"host": "postgresql://host/database"}, is_pooled)


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://me:pw@a:1,b/db", {"a:1": "postgresql://me:pw@a:1/db", "b": "postgresql://me:pw@b/db"}),
        (
            "postgresql://[::1]:1,[::2]:2/db",
            {"[::1]:1": "postgresql://[::1]:1/db", "[::2]:2": "postgresql://[::2]:2/db"},
        ),
        (
            "postgresql://me@/db?host=a,b&port=1,2",
            {"a:1": "postgresql://me@/db?host=a&port=1", "b:2": "postgresql://me@/db?host=b&port=2"},
        ),
        (
            "postgresql://me@/db?host=a,b&port=1",
            {"a:1": "postgresql://me@/db?host=a&port=1", "b:1": "postgresql://me@/db?host=b&port=1"},
        ),
        ("postgresql://me@/db?host=/run/pg", {"/run/pg": "postgresql://me@/db?host=%2Frun%2Fpg"}),
    ],
)
def test_each_host_has_a_url_of_its_own(url: str, hosts: dict[str, str]) -> None:
    assert parse_address(url).hosts == hosts


def test_the_option_connect_timeout_limits_each_host() -> None:
    assert parse_address("postgresql://host/database?connect_timeout=7").connect_seconds == 7


@pytest.mark.parametrize("seconds", ["0", "-1", "2.5", "soon", "5000"])
def test_another_connect_timeout_is_refused(seconds: str) -> None:
    with pytest.raises(BadStoreUrl, match="whole seconds, from 1 to 600"):
        parse_address(f"postgresql://host/database?connect_timeout={seconds}")


def test_a_password_with_an_at_sign_must_be_percent_encoded() -> None:
    with pytest.raises(BadStoreUrl, match="its password is not percent-encoded") as raised:
        read_url("postgresql://me:secret@word@host/database")
    assert "secret" not in str(raised.value)


def test_hosts_and_ports_of_different_numbers_are_refused() -> None:
    with pytest.raises(BadStoreUrl, match="several ports, but not one for each host"):
        parse_address("postgresql:///database?host=a,b,c&port=1,2")


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


async def test_a_commit_on_a_connection_that_was_closed_before_it_is_unavailable(postgres_url: str) -> None:
    session = PostgresqlSession(await connect(parse_address(postgres_url)), {})
    await session.begin()
    session.terminate()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await session.commit()


async def test_an_invalid_option_of_the_url_is_refused() -> None:
    with pytest.raises(BadStoreUrl, match="an option has an invalid value"):
        await connect(parse_address("postgresql://127.0.0.1/database?sslmode=sometimes"))
