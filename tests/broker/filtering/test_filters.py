"""A filter is a CEL expression over `message`, limited so that it cannot block the server."""

import asyncio

import pytest

from app.broker.filtering.filters import _MAX_CONTEXTS, BATCH_SIZE, FIELDS, CelFilter, FilterInput, MatchAll
from app.domain.instant import HOUR
from app.domain.message import MAX_FILTER_BYTES, Envelope, MessageHeaders, MessageMetadata, MessageState
from app.domain.refusals import InvalidRequest

SENT = 1_800_000_000_000_000
"""2027-01-15T08:00:00Z."""

NESTED = ".map(message, message.map(message, [1, 2, 3, 4, 5, 6, 7, 8, 9]))"


def metadata(subject: str = "s", properties: bytes = b"") -> MessageMetadata:
    """Return an available message."""
    envelope = Envelope("id", MessageHeaders(subject=subject), properties=properties)
    return MessageMetadata(
        1, 1, envelope, 0, MessageState.AVAILABLE, 4, SENT, SENT + HOUR, None, 0, 0, None, None, None, None, None, None
    )


async def matches(source: str, message: MessageMetadata) -> bool:
    """Return whether the filter matches the message."""
    return await CelFilter(source).select([message]) == [message]


@pytest.mark.parametrize(
    "source",
    [
        "message.to.map(message, message) == [1]",
        "message.to. //\nmap(message, message.to. //\nmap(message, message)) == []",
        "message.to.// it's over there\r\nmap(message, message) == []",
        "message.to\n.\tmap\f(message, true, message) == []",
        "message.to . exists (message, true)",
        "message.to.all(message, true)",
        "message.to.exists_one(message, true)",
        "message.to.existsOne(message, true)",
        "message.to.filter(message, true) == []",
        f"'it\\'s' == \"'\" || message.to{NESTED} == []",
        f"r'\\' == 'x' || message.to{NESTED} == [r'\\']",
        f"R\"\\\" == 'x' || message.to{NESTED} == ['\"']",
        f"b'\\'' == bR'\\' || message.to{NESTED} == [b'']",
        f"'''it's''' == '' || message.to{NESTED} == ['''\n''']",
        f"r'''\\''' == '' || message.to{NESTED} == [''' \\'''' ]",
        f'"""\\"""" == \'\' || message.to{NESTED} == []',
        f"has(message.a) && -size(message.to{NESTED}) < 0",
        f"'http://' == '' || message.to{NESTED} == ['//']",
    ],
)
def test_macros_are_refused(source: str) -> None:
    with pytest.raises(InvalidRequest, match=r"A filter cannot call (all|exists|exists_one|existsOne|filter|map)\."):
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
        ("message.subject == b'.all(x)' || message.subject == '.all(x)'", ".all(x)"),
        ("message.subject == 's' // not .map(x), it's said", "s"),
        ("message.properties.map == 'here' && message.properties.filter == 1", "s"),
    ],
)
async def test_names_of_macros_are_allowed_in_texts_comments_and_properties(source: str, subject: str) -> None:
    assert await matches(source, metadata(subject, b'{"map":"here","filter":1}'))


@pytest.mark.parametrize("source", [r"message.subject.matches(r'\w{1000}')", "'a' . matches ( message.subject )"])
def test_regular_expressions_are_refused(source: str) -> None:
    """The pattern would be compiled for every message, which may take a third of a second."""
    with pytest.raises(InvalidRequest, match="matches"):
        CelFilter(source)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("[" + ",".join(["message"] * 60) + "]" + "+[]" * 178 + "==[]", "at most 128 operators"),
        ("[" + ",".join(["message"] * 20) + "]" + "+[]" * 4 + "==[]", "is allowed only after in"),
        ("message.priority in [message, message]", "A list in a filter holds only"),
        ("message.priority in [[1], [2]]", "A list in a filter holds only"),
        ("message.priority in [" + "1," * 127 + "1]", "at most 128 operators"),
        ("[1, 2][0] == 1", "is allowed only after in"),
        ("[1] == [1]", "is allowed only after in"),
        ("message.priority in [1][0]", "is allowed only after in"),
        ("message.subject[0] == 's'", "is allowed only after in"),
        ("message['subject'] == 's'", "single fields"),
        ("message == message", "single fields"),
        ("(message).priority == 4", "single fields"),
        ("'a' in message", "single fields"),
        ("size(message) == 1", "single fields"),
        ("message.size() == 1", "single fields"),
        (".message.priority == 4", "a dot must be between"),
        ("size(.message) == 1", "a dot must be between"),
        ("'a' in .message", "a dot must be between"),
        ("message.?priority == 4", "a dot must be between"),
        ("message.properties == message.properties", "single properties"),
        ("'a' in (message.properties)", "single properties"),
        ("message.properties.size() == 1", "single properties"),
        ("'a' in message.properties.size()", "single properties"),
        ("size(message.properties) == 1", "single properties"),
        ("message.subject" + ".size" * 100 + " == 1", "is not a field"),
        ("message.properties.a.b == 1", "is not a field"),
        ("message.properties['a'].b == 1", "is not a field"),
        ("message.properties.message.subject == 's'", "is not a field"),
        ("{'a': 1} == {'a': 1}", "Unexpected `{` at character 1."),
        ("message.`subject` == 's'", "Unexpected ``` at character 9."),
        ("+".join(["message.properties.a"] * 6) + " == 'a'", "at most 4 additions"),
        ("string(bytes(message.subject)) == 's'", "cannot call bytes"),
        ("max(1, 2) == 2", "cannot call max"),
        ("duration(message.properties.a) == duration('1s')", "duration takes only a literal text"),
        ("duration('1' + message.properties.a) == duration('1s')", "duration takes only a literal text"),
        ("-" * 129 + "1 == 1", "at most 128 operators"),
    ],
)
def test_an_expression_that_copies_messages_or_grows_is_refused(source: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        CelFilter(source)


@pytest.mark.parametrize(
    "source",
    [
        "true",
        "message.properties.region == 'eu' && message.properties['kind'] != \"a\"",
        "'region' in message.properties ? message.properties.region in ['eu', 'us'] : false",
        "message.priority in [1, -4, 4u, 4.0, 4, true, null]",
        "message.priority in [" + "1," * 126 + "4]",
        "has(message.properties.region) && !has(message.properties.missing)",
        "message.delivery_count + message.failure_count * 2 - 1 < 5",
        "message.enqueued_at + duration('30m') < message.available_at",
        "message.properties.region.startsWith('e') && message.properties.region.endsWith('u')",
        "size(message.subject) == 1 && message.subject.size() == 1",
        "int(message.properties.n) == 7 && string(7) == message.properties.n && double('0.5') < 1.0",
        "message.properties[message.subject] == 1",
        "message.state == 'available' && (message.priority >= 4 || message.redelivered)",
    ],
)
async def test_fields_and_properties_are_compared(source: str) -> None:
    assert await matches(source, metadata("s", b'{"region":"eu","kind":"b","n":"7","s":1}'))


async def test_a_filter_is_bounded_in_bytes() -> None:
    source = "message.subject == 'é'"
    longest = source + " " * (MAX_FILTER_BYTES - len(source.encode()))
    assert await matches(longest, metadata("é"))
    with pytest.raises(InvalidRequest, match=f"at most {MAX_FILTER_BYTES} bytes"):
        CelFilter(longest + " ")


def test_filters_of_one_text_are_equal() -> None:
    """Receivers with equal filters share a search."""
    one, same, other = (CelFilter(f"message.priority == {priority}") for priority in (4, 4, 5))
    assert (one, hash(one)) == (same, hash(same))
    assert one != other
    assert one != MatchAll()


async def test_every_documented_field_can_be_read() -> None:
    expression = " && ".join(f"has(message.{name})" for name in FIELDS if name != "properties")
    assert await matches(expression, metadata())


async def test_other_tasks_run_while_a_filter_is_evaluated() -> None:
    """The cancellation of a disconnected caller also takes effect there, instead of after two hundred messages."""
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    try:
        messages = [metadata()] * 200
        assert await CelFilter("message.priority == 4").select(messages) == messages
    finally:
        other.cancel()
    assert turns >= 200 // BATCH_SIZE - 1


def test_only_the_name_message_is_known() -> None:
    with pytest.raises(InvalidRequest, match="only the name message"):
        CelFilter("subject == 's'")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("", "The filter is empty."),
        ("  // nothing", "The filter is empty."),
        ("message.subject ==", "The filter ends too early, after character 18."),
        ("message.subject ==  // nothing", "The filter ends too early, after character 18."),
        ("(message.priority == 3", "The filter ends too early, after character 22."),
        ("message.priority ? 1", "The filter ends too early, after character 20."),
        ("'a' in ['b'", "The filter ends too early, after character 11."),
        ("message.priority > > 3", "Unexpected `>` at character 20."),
        ("message.priority>>3", "Unexpected `>` at character 18."),
        ("message.priority == 3)", "Unexpected `)` at character 22."),
        ("message.subject == 'ü😀' 3", "Unexpected `3` at character 25."),
        ("'''a\r\nb''' ==\n  > 3", "Unexpected `>` at character 17."),
        ("'ERROR: <input>:1:1: Syntax error: ' == )", "Unexpected `)` at character 41."),
        ("message.priority == 'a' '" + "b" * 30 + "'", "Unexpected `'" + "b" * 19 + "...` at character 25."),
        ("message.priority = 3", "Unexpected `=` at character 18. Did you mean `==`?"),
        ("message.redelivered & true", "Unexpected `&` at character 21. Did you mean `&&`?"),
        ("message.priority == 3\0", "Unexpected `U+0000` at character 22."),
        ("message.priority < 99999999999999999999", "`99999999999999999999` at character 20 is not valid."),
        ("has(1)", "`1` at character 5 is not valid."),
        ("'", "The text that begins at character 1 has no end, or an escape that CEL does not know."),
        (
            "message.subject == 's",
            "The text that begins at character 20 has no end, or an escape that CEL does not know.",
        ),
        (
            "message.subject . // all gone",
            "In a filter, a dot must be between a value and a name, unlike the one at character 17.",
        ),
    ],
)
def test_an_invalid_expression_is_refused_with_the_place(source: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        CelFilter(source)
    assert caught.value.detail == sentence


@pytest.mark.parametrize(
    "expression",
    [
        "message.properties.missing == 1",
        "message.properties['missing'] == 1",
        "message.subject > 1",
        "message.priority / 0 == 1",
        "message.priority % 0 == 1",
        "message.sequence_number * 9223372036854775807 * 2 > 0",
        "message.properties[message.subject] == 1",
        "duration('s') == duration('1s')",
        "message.priority.contains('1')",
        "timestamp(message.subject) == message.enqueued_at",
    ],
)
async def test_an_evaluation_error_is_not_a_match(expression: str) -> None:
    assert not await matches(expression, metadata())


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        (
            "message.unheard_of == 1",
            "A message has no field `unheard_of`. A property is read as `message.properties.unheard_of`.",
        ),
        ("has(message.subjet)", "A message has no field `subjet`. Did you mean `subject`?"),
        ("message.priority > 1 && message.body == 'x'", "A filter cannot read the body of a message."),
    ],
)
def test_a_field_that_cannot_exist_is_refused(expression: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        CelFilter(expression)
    assert caught.value.detail == sentence


@pytest.mark.parametrize(
    "source",
    [
        "message.enqueued_at == timestamp('2027-01-15T08:00:00Z')",
        "message.enqueued_at < timestamp('2027-01-15T08:00:00.000001Z')",
        "timestamp(message.enqueued_at) > timestamp('2027-01-01T00:00:00+01:00')",
        "message.available_at - message.enqueued_at == duration('1h')",
        "message.enqueued_at.getFullYear() == 2027",
        "message.expires_at == null && message.first_delivered_at == null && message.dead_lettered_at == null",
        "!message.redelivered",
    ],
)
async def test_times_are_timestamps(source: str) -> None:
    assert await matches(source, metadata())


async def test_a_missing_time_does_not_match() -> None:
    assert not await matches("message.expires_at > timestamp('2000-01-01T00:00:00Z')", metadata())


def test_filters_that_read_the_same_fields_share_a_conversion() -> None:
    message = FilterInput(metadata())
    fields = frozenset({"subject"})
    assert message.context(fields) is message.context(frozenset({"subject"}))
    assert message.context(fields) is not message.context(frozenset({"priority"}))


def test_few_conversions_of_a_message_are_kept() -> None:
    message = FilterInput(metadata())
    first = message.context(frozenset())
    for field in list(FIELDS)[:_MAX_CONTEXTS]:
        message.context(frozenset({field}))
    assert message.context(frozenset()) is not first


def test_the_last_conversions_of_a_message_are_kept() -> None:
    message = FilterInput(metadata())
    fields = [frozenset({field}) for field in list(FIELDS)[:_MAX_CONTEXTS]]
    contexts = [message.context(one) for one in fields]
    assert all(message.context(one) is context for one, context in zip(fields, contexts, strict=True))
