"""Statements of MariaDB and MySQL with their values written in, and the meaning of both servers' errors."""

import pytest
from asyncmy import errors

from app.domain.refusals import StoreUnavailable
from app.store.mysql.session import NullViolation, StatementFailed, as_store_error, translate_errors
from app.store.mysql.templates import literal, template, templates
from app.store.pooled.pool import TransactionConflict
from app.store.shared.database import DiskNotWritable, LockWaitTimeout
from app.store.shared.statements import Statement


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, b"NULL"),
        (-7, b"-7"),
        (True, b"1"),
        ("it's 5%", rb"'it\'s 5%'"),
        ("a \\", rb"'a \\'"),
        ("\N{CRAB}", b"'\xf0\x9f\xa6\x80'"),
        (b"\x00'\xff", b"_binary'\x00\\'\xff'"),
        ([1, -2], b"(1,-2)"),
    ],
)
def test_a_value_has_a_literal(value: object, text: bytes) -> None:
    assert literal(value) == text


def test_a_statement_gets_its_values_in_the_order_of_its_parameters() -> None:
    rendered = template(Statement("name", "purpose", "SELECT :b, :a FROM t WHERE c LIKE '%' AND d @ :b"))
    assert rendered.render({"a": 1, "b": "two"}) == b"SELECT 'two', 1 FROM t WHERE c LIKE '%' AND d @ 'two'"


def test_every_statement_of_the_engine_has_a_template() -> None:
    assert b"message" in templates()["send"].text


@pytest.mark.parametrize(
    ("number", "kind", "sentence"),
    [
        (1213, TransactionConflict, "as the driver says"),
        (1205, LockWaitTimeout, "Another transaction has locked a row that this one needs."),
        (1048, NullViolation, "as the driver says"),
        (2006, StoreUnavailable, "The database cannot be reached."),
        (1045, StoreUnavailable, "The database refuses access."),
        (1114, DiskNotWritable, "The disk of the database is full."),
        (1064, StatementFailed, "as the driver says"),
    ],
)
def test_a_server_error_becomes_an_error_of_the_store(number: int, kind: type[Exception], sentence: str) -> None:
    expected_error = as_store_error(errors.OperationalError(number, "as the driver says"))
    assert type(expected_error) is kind
    assert sentence in str(expected_error)


@pytest.mark.parametrize("lost", [errors.InterfaceError(), errors.InterfaceError("(0, '')")])
def test_a_driver_error_without_a_number_is_a_lost_connection(lost: errors.MySQLError) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"), translate_errors():
        raise lost


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError()])
def test_a_timeout_means_that_the_database_does_not_answer(error: Exception) -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"), translate_errors():
        raise error
