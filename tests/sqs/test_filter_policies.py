"""A filter policy selects the messages that SNS would, and what this server does not support is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.broker.topics.subscription_filter import compiled, input_of
from app.domain.message import BodyKind, Envelope
from app.domain.refusals import InvalidRequest
from app.domain.sending import NewMessage
from app.sqs.errors import FilterPolicyLimitExceeded
from app.sqs.filter_policy.policy_text import read_policy, stored_policy
from app.sqs.filter_policy.translation import ATTRIBUTES, BODY, filter_of
from tests.sqs.filter_policy_rules import policy_matches
from tests.walks import for_each

Json = dict[str, Any]


def matches(policy: str, members: Json, scope: str = ATTRIBUTES) -> bool:
    """Return whether the filter of a policy matches a message with these properties, or with this body."""
    encoded = msgspec.json.encode(members)
    message = NewMessage(Envelope("m", properties=encoded if members else b""))
    if scope == BODY:
        message = NewMessage(Envelope("m"), encoded, BodyKind.BYTES)
    return compiled(filter_of(read_policy(policy), scope)).matches(input_of(message))


# ---- what matches ----------------------------------------------------------------------------------------------------

EXAMPLES: list[tuple[str, list[Json], list[Json]]] = [
    ("{}", [{}, {"a": "x"}], []),
    ('{"store":["example_corp"]}', [{"store": "example_corp", "other": 1}], [{}, {"store": "example"}, {"store": 1}]),
    ('{"a":["x","y"]}', [{"a": "x"}, {"a": "y"}], [{"a": "z"}]),
    ('{"a":["x"],"b":["y"]}', [{"a": "x", "b": "y"}], [{"a": "x"}, {"b": "y"}, {"a": "x", "b": "z"}]),
    ('{"a":[100]}', [{"a": 100}, {"a": 100.0}], [{"a": "100"}, {"a": 101}]),
    ('{"a":[301.5, "x"]}', [{"a": 301.5}, {"a": "x"}], [{"a": 301}]),
    ('{"a":[true]}', [{"a": True}], [{"a": False}, {"a": 1}, {"a": "true"}]),
    ('{"a":[1, 0]}', [{"a": 1}], [{"a": True}, {"a": False}]),
    ('{"a":[null]}', [{"a": None}], [{}, {"a": ""}, {"a": "null"}]),
    ('{"a":[{"prefix":"bas"}]}', [{"a": "baseball"}, {"a": "bas"}], [{"a": "football"}, {"a": 5}, {}]),
    ('{"a":[{"suffix":"ball"}]}', [{"a": "baseball"}], [{"a": "ballroom"}, {"a": True}, {}]),
    ('{"a":[{"anything-but":"x"}]}', [{"a": "y"}, {"a": 1}], [{"a": "x"}, {}]),
    ('{"a":[{"anything-but":["x","y"]}]}', [{"a": "z"}], [{"a": "x"}, {"a": "y"}, {}]),
    ('{"a":[{"anything-but":[100, 500]}]}', [{"a": 101}, {"a": "100"}], [{"a": 100}, {"a": 500.0}, {}]),
    ('{"a":[{"anything-but":{"prefix":"order-"}}]}', [{"a": "data-1"}], [{"a": "order-1"}, {}, {"a": 5}]),
    ('{"a":[{"anything-but":{"suffix":"-1"}}]}', [{"a": "data-2"}], [{"a": "order-1"}, {}]),
    ('{"a":[{"numeric":["=",301.5]}]}', [{"a": 301.5}], [{"a": 301}, {"a": "301.5"}, {}]),
    ('{"a":[{"numeric":[">",0,"<=",150]}]}', [{"a": 1}, {"a": 150}, {"a": 0.5}], [{"a": 0}, {"a": 151}, {"a": "1"}]),
    ('{"a":[{"numeric":["<",-1e-5]}]}', [{"a": -1}], [{"a": 0}, {"a": -0.00001}]),
    ('{"a":[{"numeric":[">=",1000000000]}]}', [{"a": 10**9}, {"a": 10**18}], [{"a": 10**9 - 1}]),
    ('{"a":[{"exists":true}]}', [{"a": ""}, {"a": 0}], [{}, {"b": 1}]),
    ('{"a":[{"exists":false}]}', [{}, {"b": 1}], [{"a": ""}]),
    ('{"a":[{"exists":false},"x"]}', [{}, {"a": "x"}], [{"a": "y"}]),
    ('{"a":["x",{"numeric":[">",5]},{"prefix":"y"}]}', [{"a": "x"}, {"a": 6}, {"a": "yes"}], [{"a": 5}, {"a": "no"}]),
    (
        '{"s":["c"],"$or":[{"m":["n"]},{"t":[{"prefix":"u"}],"v":[1]}]}',
        [{"s": "c", "m": "n"}, {"s": "c", "t": "up", "v": 1}],
        [{"s": "c"}, {"m": "n"}, {"s": "c", "t": "up"}, {"s": "c", "m": "o", "v": 1}],
    ),
    ('{"$or":[{"$or":[{"a":[1]},{"b":[1]}]},{"c":[1]}]}', [{"a": 1}, {"b": 1}, {"c": 1}], [{"d": 1}]),
    (r'{"a":["\"\\\n\u001f' + "'" + r'ü😀"]}', [{"a": "\"\\\n\x1f'ü😀"}], [{"a": "\"\\\n\x1f'ü"}]),
    ('{"in":["x"],"a-b.c":["y"],"size":["z"]}', [{"in": "x", "a-b.c": "y", "size": "z"}], [{"in": "x", "size": "z"}]),
]


@for_each(["policy", "matching", "others"], EXAMPLES, str)
def test_a_policy_on_attributes_selects_as_sns_does(policy: str, matching: list[Json], others: list[Json]) -> None:
    assert [matches(policy, members) for members in matching] == [True] * len(matching)
    assert [matches(policy, members) for members in others] == [False] * len(others)


@for_each(["policy", "matching", "others"], EXAMPLES, str)
def test_a_policy_on_the_body_selects_in_the_same_way(policy: str, matching: list[Json], others: list[Json]) -> None:
    assert [matches(policy, members, BODY) for members in matching] == [True] * len(matching)
    assert [matches(policy, members, BODY) for members in others] == [False] * len(others)


NESTED: list[tuple[str, list[Json], list[Json]]] = [
    ('{"o":{"a":["x"]}}', [{"o": {"a": "x"}}], [{"o": {"a": "y"}}, {"o": "x"}, {"a": "x"}, {}]),
    ('{"o":{"a":["x"],"b":[1]}}', [{"o": {"a": "x", "b": 1}}], [{"o": {"a": "x"}}]),
    ('{"o":{"$or":[{"a":[1]},{"b":[1]}]}}', [{"o": {"a": 1}}, {"o": {"b": 1}}], [{"a": 1}, {"o": {"c": 1}}]),
    ('{"o":{"a":[{"exists":false}]}}', [{"o": {}}, {}, {"o": 1}, {"o": {"b": 1}}], [{"o": {"a": None}}]),
    ('{"o":{"a":[{"exists":true}]}}', [{"o": {"a": None}}], [{"o": {}}, {}, {"o": "a"}]),
    ('{"i":["rugby","golf"]}', [{"i": ["soccer", "rugby"]}, {"i": "golf"}], [{"i": ["soccer"]}, {"i": []}]),
    ('{"i":[3]}', [{"i": [1, 3.0]}], [{"i": ["3"]}, {"i": [True]}]),
    ('{"o d":{"it\'s":["x"]}}', [{"o d": {"it's": "x"}}], [{"o d": {}}]),
]


@for_each(["policy", "matching", "others"], NESTED, str)
def test_a_policy_on_the_body_reads_objects_and_arrays(policy: str, matching: list[Json], others: list[Json]) -> None:
    assert [matches(policy, members, BODY) for members in matching] == [True] * len(matching)
    assert [matches(policy, members, BODY) for members in others] == [False] * len(others)


def test_a_body_that_is_no_object_matches_no_policy() -> None:
    match = compiled(filter_of(read_policy('{"a":[{"exists":false}]}'), BODY)).matches
    for body in (b"", b"hello", b"[1]", b'{"a"', b"\xff"):
        assert not match(input_of(NewMessage(Envelope("m"), body, BodyKind.BYTES)))


# ---- against the rules -----------------------------------------------------------------------------------------------

PLAIN_NAMES = st.sampled_from(["a", "b", "size", "properties"])
NAMES = PLAIN_NAMES | st.sampled_from(["in", "x-y"])
TEXTS = st.sampled_from(["", "x", "xy", "yx", "1", "true", '"', "\\", "ü", "x\ny"])
NUMBERS = st.sampled_from([0, 1, -1, 2.5, 1e-5, 10**9, -0.0])
SCALARS = TEXTS | NUMBERS | st.booleans() | st.none()
AFFIXES = st.sampled_from(["prefix", "suffix"]).flatmap(
    lambda operator: st.fixed_dictionaries({operator: TEXTS.filter(bool)})
)
RANGES = st.tuples(st.sampled_from([">", ">="]), NUMBERS, st.sampled_from(["<", "<="]), NUMBERS).filter(
    lambda range_: range_[1] < range_[3]
)
CONDITIONS = (
    AFFIXES
    | st.builds(lambda operand: {"exists": operand}, st.booleans())
    | st.builds(
        lambda operand: {"anything-but": operand},
        TEXTS | NUMBERS | AFFIXES | st.lists(TEXTS, min_size=1, max_size=2) | st.lists(NUMBERS, min_size=1, max_size=2),
    )
    | st.builds(
        lambda operand: {"numeric": list(operand)}, RANGES | st.tuples(st.sampled_from(["=", "<", ">="]), NUMBERS)
    )
)
RULES = st.lists(SCALARS | CONDITIONS, min_size=1, max_size=2)


def policies(names: st.SearchStrategy[str]) -> st.SearchStrategy[Json]:
    """Policies whose filters are not too large."""
    clauses = st.dictionaries(names, RULES, min_size=1, max_size=2)
    choices = st.lists(st.dictionaries(names, RULES, min_size=1, max_size=1), min_size=2, max_size=2)
    return clauses | st.builds(lambda found, either: {**found, "$or": either}, clauses, choices)


def messages(names: st.SearchStrategy[str]) -> st.SearchStrategy[list[Json]]:
    return st.lists(st.dictionaries(names, SCALARS, max_size=4), min_size=1, max_size=5)


@given(policy=policies(NAMES), sent=messages(NAMES))
def test_any_policy_selects_what_the_rules_say(policy: Json, sent: list[Json]) -> None:
    for members in sent:
        assert matches(json.dumps(policy), members) == policy_matches(policy, members)


@given(policy=policies(PLAIN_NAMES), sent=messages(PLAIN_NAMES))
def test_any_policy_on_an_object_in_the_body_selects_what_the_rules_say(policy: Json, sent: list[Json]) -> None:
    for members in sent:
        assert matches(json.dumps({"o": policy}), {"o": members}, BODY) == policy_matches(policy, members)


# ---- what is refused -------------------------------------------------------------------------------------------------


@for_each(
    ["policy", "sentence"],
    [
        ("", "not valid JSON"),
        ("[]", "is a JSON object"),
        ('{"a":"x"}', "a list of at least one"),
        ('{"a":[]}', "a list of at least one"),
        ('{"a":[["x"]]}', "has no lists"),
        ('{"a":[NaN]}', "not valid JSON"),
        ('{"a":["\\ud800"]}', "not valid JSON"),
        ("[" * 5000, "not valid JSON"),
        ('{"a":["x"],"a":["y"]}', "a member twice"),
        ('{"a":{"b":["x"]}}', "Only FilterPolicyScope MessageBody has objects"),
        ('{"a":[{}]}', "an object with one operator"),
        ('{"a":[{"prefix":"x","suffix":"y"}]}', "an object with one operator"),
        ('{"a":[{"equals-ignore-case":"x"}]}', "does not support the operator 'equals-ignore-case'"),
        ('{"a":[{"wildcard":"x*"}]}', "does not support the operator"),
        ('{"a":[{"prefixes":"x"}]}', "Did you mean `prefix`"),
        ('{"a":[{"prefix":1}]}', "a text that is not empty"),
        ('{"a":[{"suffix":""}]}', "a text that is not empty"),
        ('{"a":[{"exists":"true"}]}', "true or false"),
        ('{"a":[{"anything-but":["x",1]}]}', "either texts or numbers"),
        ('{"a":[{"anything-but":[]}]}', "either texts or numbers"),
        ('{"a":[{"anything-but":{"exists":true}}]}', "prefix and suffix"),
        ('{"a":[{"numeric":5}]}', "one comparison"),
        ('{"a":[{"numeric":[]}]}', "one comparison"),
        ('{"a":[{"numeric":["!=",5]}]}', "one comparison"),
        ('{"a":[{"numeric":["<",5,">",1]}]}', "one comparison"),
        ('{"a":[{"numeric":[">",5,"<",5]}]}', "one comparison"),
        ('{"a":[{"numeric":[">",5,"<"]}]}', "one comparison"),
        ('{"a":[{"numeric":["=",5,"=",5]}]}', "one comparison"),
        ('{"a":[{"numeric":["=","5"]}]}', "a number of 'a'"),
        ('{"a":[{"numeric":["=",true]}]}', "a number of 'a'"),
        ('{"a":[1000000001]}', "from -1,000,000,000 to 1,000,000,000"),
        ('{"$or":[{"a":["x"]}]}', "at least two objects"),
        ('{"$or":["x","y"]}', "at least two objects"),
        ('{"$or":[{"a":["x"]},{}]}', "at least one member"),
    ],
    str,
)
def test_what_is_not_understood_is_refused(policy: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        filter_of(read_policy(policy), ATTRIBUTES)
    assert sentence in refused.value.detail


@for_each(
    ["policy", "sentence"],
    [
        ({"a": ["x" * 1020]}, "at most 1024 characters"),
        ({"a": ["x" * 9000]}, "at most 1024 characters"),
        ({"a": [*range(130)]}, "too many parts"),
        ({"a": ["ü" * 500]}, "a filter has at most 1024"),
    ],
    lambda one: str(one)[:20],
)
def test_a_policy_is_as_large_as_a_filter_can_be(policy: Json, sentence: str) -> None:
    with pytest.raises(FilterPolicyLimitExceeded) as refused:
        filter_of(read_policy(json.dumps(policy)), ATTRIBUTES)
    assert sentence in refused.value.detail


def test_blanks_do_not_count_in_the_size_of_a_policy() -> None:
    policy = json.dumps({"a": ["x" * 900]}, indent=200)
    assert len(policy) > 1024
    assert stored_policy(read_policy(policy)) == json.dumps({"a": ["x" * 900]}, separators=(",", ":"))


@for_each("policy", ['{"o":{}}', '{"o":{"x-y":[{"exists":true}]}}', r'{"a\"\u0027":["x"]}', r'{"a\n":["x"]}'], str)
def test_what_a_filter_cannot_read_of_a_body_is_refused(policy: str) -> None:
    with pytest.raises(InvalidRequest):
        filter_of(read_policy(policy), BODY)
