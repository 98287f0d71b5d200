"""Named statements are read from SQL files and rendered for each driver."""

import re

import pytest

from app.store.shared.statements import Statement, parse, render
from app.store.url import EngineName
from tests.dialects import DIALECTS
from tests.dialects import statements as statements_of

MACRO = re.compile(
    r"@(now|in\(|for_update|skip_locked|index\(|then_join|unindexed\(|delete_first\(|metadata_of\(|entries\(|([a-z]+\.)?(message|metadata|archived|locked_message|tombstone|queue|api_key))|--"
)
TEXT = """
-- A file begins with what it holds.

-- ---- a part of it ----

-- first: does one thing
SELECT a, :b
FROM t
WHERE c = :c  -- fence: token
  AND d = :b;

-- second: does another
UPDATE t SET e = @now WHERE f LIKE '%';
"""


def test_a_file_is_a_sequence_of_named_statements() -> None:
    first, second = parse(TEXT, DIALECTS[EngineName.SQLITE])
    assert (first.name, first.purpose) == ("first", "does one thing")
    assert first.text == "SELECT a, :b\nFROM t\nWHERE c = :c\n  AND d = :b"
    assert second.text == "UPDATE t SET e = :now WHERE f LIKE '%'"


def test_a_name_used_twice_in_a_file_is_refused() -> None:
    with pytest.raises(ValueError, match="named twice"):
        parse(TEXT + TEXT, DIALECTS[EngineName.SQLITE])


SHARED = """
-- first: does one thing
WITH a AS (SELECT :b)
@ending;

-- @ending: reads what a statement has named
SELECT @now, @ending_variable FROM a  -- the end

-- second: does another
WITH a AS (SELECT :c)
@ending;
"""


def test_statements_of_a_file_share_a_block_of_text() -> None:
    first, second = parse(SHARED, DIALECTS[EngineName.SQLITE])
    assert (first.name, first.text) == ("first", "WITH a AS (SELECT :b)\nSELECT :now, @ending_variable FROM a")
    assert (second.name, second.text) == ("second", "WITH a AS (SELECT :c)\nSELECT :now, @ending_variable FROM a")


def test_numbered_parameters_are_named_once() -> None:
    assert parse(TEXT, DIALECTS[EngineName.POSTGRESQL])[0].with_numbered_params() == (
        "SELECT a, $1\nFROM t\nWHERE c = $2\n  AND d = $1",
        ("b", "c"),
    )


def test_formatted_parameters_are_named_as_often_as_they_occur() -> None:
    first, second = parse(TEXT, DIALECTS[EngineName.MYSQL])
    assert first.with_format_params() == ("SELECT a, %s\nFROM t\nWHERE c = %s\n  AND d = %s", ("b", "c", "b"))
    assert second.with_format_params()[0].endswith("f LIKE '%%'")


ENTRIES = """
-- first: does one thing to many rows
SELECT entry.entry_index
FROM @entries(
    a bigint, b text
) AS entry
WHERE entry.a = 1;  -- fence: token
"""


def test_a_statement_over_entries_has_a_form_for_a_single_one() -> None:
    many, one = parse(ENTRIES, DIALECTS[EngineName.POSTGRESQL])
    assert (many.name, one.name) == ("first", "first_one")
    assert many.text == (
        "SELECT entry.entry_index\nFROM (SELECT "
        "CASE cardinality(:a::bigint[]) WHEN 1 THEN (:a::bigint[])[1] ELSE a END AS a, "
        "CASE cardinality(:b::text[]) WHEN 1 THEN (:b::text[])[1] ELSE b END AS b, "
        "entry_index FROM unnest(:a::bigint[], :b::text[]) WITH ORDINALITY AS unnested (a, b, entry_index)) AS entry\n"
        "WHERE entry.a = 1"
    )
    assert one.text == (
        "SELECT entry.entry_index\nFROM (SELECT :a::bigint AS a, :b::text AS b, 1 AS entry_index) AS entry\nWHERE entry.a = 1"
    )


def test_a_table_of_entries_alone_has_no_second_form() -> None:
    (only,) = parse(ENTRIES.replace("@entries", "@table"), DIALECTS[EngineName.POSTGRESQL])
    many, _ = parse(ENTRIES, DIALECTS[EngineName.POSTGRESQL])
    assert only == many


def test_a_cast_is_no_parameter() -> None:
    statement = Statement("name", "purpose", "SELECT :a::bigint, '{}'::text[]")
    assert statement.with_numbered_params() == ("SELECT $1::bigint, '{}'::text[]", ("a",))


@pytest.mark.parametrize("engine", list(EngineName))
def test_every_macro_is_expanded(engine: EngineName) -> None:
    statements = statements_of(engine)
    assert not [name for name, statement in statements.items() if MACRO.search(statement.text)]
    assert not [name for name, statement in statements.items() if ";" in statement.text]


def test_columns_may_have_the_prefix_of_a_table() -> None:
    assert render("SELECT @q.queue FROM queue AS q", DIALECTS[EngineName.SQLITE]).startswith("SELECT q.id, q.name")
    assert render("SELECT @locked_message", DIALECTS[EngineName.SQLITE]).endswith("AS in_transaction, :now AS read_at")


def test_a_weight_may_have_the_prefix_of_a_table() -> None:
    weight = "2048 + COALESCE({0}shared_body_bytes, LENGTH({0}body)) + COALESCE(LENGTH(CAST({0}properties AS BLOB)), 0)"
    assert render("SELECT @weight", DIALECTS[EngineName.SQLITE]) == f"SELECT {weight.format('')}"
    assert render("SELECT @m.weight", DIALECTS[EngineName.SQLITE]) == f"SELECT {weight.format('m.')}"


HINTS = """UPDATE t @index(PRIMARY)
SET a = 1
WHERE b = :b
  AND @unindexed(c) = 2"""


@pytest.mark.parametrize(
    ("engine", "lines"),
    [
        (EngineName.MYSQL, ["UPDATE t FORCE INDEX (PRIMARY)", "  AND c = 2"]),
        (EngineName.POSTGRESQL, ["UPDATE t", "  AND COALESCE(c, 0) = 2"]),
        (EngineName.SQLITE, ["UPDATE t", "  AND COALESCE(c, 0) = 2"]),
    ],
)
def test_an_index_is_named_where_the_engine_takes_hints(engine: EngineName, lines: list[str]) -> None:
    text = render(HINTS, DIALECTS[engine]).splitlines()
    assert [text[0], text[3]] == lines


DELETION = """@delete_first(t, a, b)
WHERE c <= :c
ORDER BY c
LIMIT 9;"""


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        (
            EngineName.MYSQL,
            "DELETE t FROM (SELECT a, b FROM t WHERE c <= :c ORDER BY c LIMIT 9 FOR UPDATE SKIP LOCKED) AS first_rows "
            "STRAIGHT_JOIN t FORCE INDEX (PRIMARY) ON t.a = first_rows.a AND t.b = first_rows.b",
        ),
        (
            EngineName.POSTGRESQL,
            "DELETE FROM t WHERE ctid = ANY(ARRAY( "
            "SELECT ctid FROM t WHERE c <= :c ORDER BY c LIMIT 9 FOR UPDATE SKIP LOCKED ))",
        ),
        (EngineName.SQLITE, "DELETE FROM t WHERE (a, b) IN ( SELECT a, b FROM t WHERE c <= :c ORDER BY c LIMIT 9 )"),
    ],
)
def test_the_first_rows_are_deleted_by_their_key(engine: EngineName, text: str) -> None:
    assert " ".join(render(DELETION, DIALECTS[engine]).split()) == text


@pytest.mark.parametrize("engine", list(EngineName))
def test_metadata_statements_equal_message_statements_without_the_body(engine: EngineName) -> None:
    browse, metadata = (statements_of(engine)[name] for name in ("browse", "browse_metadata"))
    assert re.findall(r"\bbody\b", metadata.text) == ["body"]
    assert "COALESCE(shared_body_bytes, " in metadata.text.replace("m.", "")
    assert metadata.text.partition("\nFROM ")[2] == browse.text.partition("\nFROM ")[2]


@pytest.mark.parametrize("engine", list(EngineName))
def test_the_statements_of_an_engine_replace_the_common_ones(engine: EngineName) -> None:
    statements = statements_of(engine)
    assert {"read", "browse", "unlocked_for_update", "find_queue", "send"} <= set(statements)
    assert ("FOR UPDATE" in statements["unlocked_for_update"].text) is (engine is not EngineName.SQLITE)


def test_a_statement_that_only_reads_may_run_beside_a_writer() -> None:
    reads = {name for name, statement in statements_of(EngineName.SQLITE).items() if statement.is_read_only}
    assert {"read", "browse", "locked_messages", "now", "count_messages", "find_queue"} <= reads
    assert not reads & {"send", "lock", "end_lock", "extend", "create_queue", "forget_orphans"}
