"""A filter is a CEL expression over `message`, and none that could hold the server up."""

import pytest

from app.broker.filters import CelFilter
from app.domain.instant import HOUR
from app.domain.message import Envelope, MessageState, Outline
from app.domain.refusals import InvalidRequest

SENT = 1_800_000_000_000_000
"""2027-01-15T08:00:00Z."""

NESTED = ".map(message, message.map(message, [1, 2, 3, 4, 5, 6, 7, 8, 9]))"


def outline(subject: str = "s", properties: bytes = b"") -> Outline:
    """A message that is available."""
    envelope = Envelope("id", subject=subject, properties=properties)
    return Outline(
        1, 1, envelope, 0, MessageState.AVAILABLE, 4, SENT, SENT + HOUR, None, 0, 0, None, None, None, None, None
    )


async def matches(source: str, message: Outline) -> bool:
    """Whether the filter lets the message through."""
    return await CelFilter(source).select([message]) == [message]


@pytest.mark.parametrize(
    "source",
    [
        "[1, 2].map(message, message) == [1]",
        "[1, 2]. //\nmap(message, [1, 2]. //\nmap(message, message)) == []",
        "[1, 2].// it's over there\r\nmap(message, message) == []",
        "[1, 2]\n.\tmap\f(message, true, message) == []",
        "[1, 2] . exists (message, true)",
        "[1, 2].all(message, true)",
        "[1, 2].exists_one(message, true)",
        "[1, 2].existsOne(message, true)",
        "message.properties.filter(message, true) == []",
        f"'it\\'s' == \"'\" || [1]{NESTED} == []",
        f"r'\\' == 'x' || [1]{NESTED} == [r'\\']",
        f"R\"\\\" == 'x' || [1]{NESTED} == ['\"']",
        f"b'\\'' == bR'\\' || [1]{NESTED} == [b'']",
        f"'''it's''' == '' || [1]{NESTED} == ['''\n''']",
        f"r'''\\''' == '' || [1]{NESTED} == [''' \\'''' ]",
        f'"""\\"""" == \'\' || [1]{NESTED} == []',
        f"has(message.a) && {{'a': -size([1]{NESTED})}}['a'] < 0",
        f"'http://' == '' || [1]{NESTED} == ['//']",
    ],
)
def test_macros_are_refused_wherever_they_stand_and_whatever_their_variable_is_called(source: str) -> None:
    with pytest.raises(InvalidRequest, match="macros"):
        CelFilter(source)


@pytest.mark.parametrize(
    ("source", "subject"),
    [
        ("message.subject == 'see.map(x)'", "see.map(x)"),
        ('message.subject == "it\'s.map(x)"', "it's.map(x)"),
        ("message.subject == 'it\\'s.map(x)'", "it's.map(x)"),
        ("message.subject == r'\\.map(x)'", "\\.map(x)"),
        ("message.subject == r'\\' + '.map(x)'", "\\.map(x)"),
        ("message.subject == '''it's\n.map(x)'''", "it's\n.map(x)"),
        ('message.subject == """say "x".map(x)"""', 'say "x".map(x)'),
        ("message.subject == 'http://a.map(x)'", "http://a.map(x)"),
        ("bytes(message.subject) == b'.all(x)'", ".all(x)"),
        ("message.subject == 's' // not .map(x), it's said", "s"),
        ("message.properties.map == 'here' && message.properties.filter == 1", "s"),
    ],
)
async def test_the_names_of_macros_may_stand_in_texts_comments_and_properties(source: str, subject: str) -> None:
    assert await matches(source, outline(subject, b'{"map":"here","filter":1}'))


@pytest.mark.parametrize("source", [r"message.subject.matches(r'\w{1000}')", "'a' . matches ( message.subject )"])
def test_regular_expressions_are_refused(source: str) -> None:
    """Their pattern would be read anew for every message, and reading one may take a third of a second."""
    with pytest.raises(InvalidRequest, match="matches"):
        CelFilter(source)


def test_no_other_name_than_message_is_known() -> None:
    with pytest.raises(InvalidRequest, match="only the name message"):
        CelFilter("subject == 's'")


@pytest.mark.parametrize("source", ["message.subject ==", "'", "message.subject == 's", "message . // all gone"])
def test_what_is_no_expression_is_refused(source: str) -> None:
    with pytest.raises(InvalidRequest, match="no CEL expression"):
        CelFilter(source)


@pytest.mark.parametrize(
    "expression",
    [
        "message.properties.missing == 1",
        "message.properties['missing'] == 1",
        "message.subject > 1",
        "message.priority / 0 == 1",
        "message.priority % 0 == 1",
        "message.sequence_number * 9223372036854775807 * 2 > 0",
        "[1][message.priority] == 1",
        "duration(message.subject) == duration('1s')",
        "message.subject.unheard_of()",
    ],
)
async def test_what_cannot_be_evaluated_for_a_message_does_not_match_it(expression: str) -> None:
    assert not await matches(expression, outline())


@pytest.mark.parametrize(
    "source",
    [
        "message.enqueued_at == timestamp('2027-01-15T08:00:00Z')",
        "message.enqueued_at < timestamp('2027-01-15T08:00:00.000001Z')",
        "timestamp(message.enqueued_at) > timestamp('2027-01-01T00:00:00+01:00')",
        "message.available_at - message.enqueued_at == duration('1h')",
        "message.enqueued_at.getFullYear() == 2027",
        "message.expires_at == null && message.dead_lettered_at == null",
        "!message.redelivered",
    ],
)
async def test_times_are_timestamps(source: str) -> None:
    assert await matches(source, outline())


async def test_a_time_that_is_not_there_is_no_match() -> None:
    assert not await matches("message.expires_at > timestamp('2000-01-01T00:00:00Z')", outline())
