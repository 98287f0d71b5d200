"""What the members of all structs have in common: their names in both protocols, and their limits.

A member has the name of its field in Pascal case. In the query protocol of SQS, a list or a map is repeated under a name of
its own, which `in_query` gives: `Entries` is `SendMessageBatchRequestEntry.1`, `SendMessageBatchRequestEntry.2` and so on. In
that of SNS, the entries have an element of their own, as `list_of_members` and `map_of_entries` say: `Tags.member.1` and
`Attributes.entry.1`.
"""

from typing import Annotated, TypeAlias

import msgspec

from app.domain.message import MAX_TEXT_LENGTH

MAX_BATCH_ENTRIES = 10
MAX_DECODED_ENTRIES = 1000
"""Entries of a batch that are told apart from malformed JSON: above `MAX_BATCH_ENTRIES` they are refused as too many. The query
protocol has no more, and millions would take fifty times their bytes."""
MAX_MESSAGES = 10
MAX_WAIT_SECONDS = 20
MAX_VISIBILITY_SECONDS = 43_200
MAX_NAMES = 64
"""Names of attributes or tags in one request."""


def in_query(
    name: str, key: str = "Name", max_length: int | None = None, entry: type[msgspec.Struct] | None = None
) -> msgspec.Meta:
    """Return the constraint for a list or map that the query protocol repeats under this name.

    Each entry of a map has two parts there, `key` and `Value`. `entry` is the struct of the entries of a list that are
    decoded one by one.
    """
    return msgspec.Meta(extra={"query": name, "key": key, "entry": entry}, max_length=max_length)


def list_of_members(max_length: int | None = None, entry: type[msgspec.Struct] | None = None) -> msgspec.Meta:
    """Return the constraint for a list of SNS. `entry` is as for `in_query`."""
    return msgspec.Meta(extra={"element": "member", "entry": entry}, max_length=max_length)


def map_of_entries(key: str = "key", value: str = "value", max_length: int | None = None) -> msgspec.Meta:
    """Return the constraint for a map of SNS, with the names of the two parts of an entry."""
    return msgspec.Meta(extra={"element": "entry", "key": key, "value": value}, max_length=max_length)


class RequestStruct(msgspec.Struct, rename="pascal", forbid_unknown_fields=True, kw_only=True):
    """A request. A member that its action does not have is refused: ignoring it could do what the client does not want."""


class AnswerStruct(msgspec.Struct, rename="pascal", omit_defaults=True, kw_only=True):
    """An answer. Members without a value are left out.

    The default of a map is `{}`: msgspec does not leave out what another factory makes.
    """


QueueUrl: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LENGTH)]
Arn: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LENGTH)]
ReceiptHandle: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LENGTH)]
VisibilitySeconds: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_VISIBILITY_SECONDS)]
AttributeNames: TypeAlias = Annotated[tuple[str, ...], in_query("AttributeName", max_length=MAX_NAMES)]
Attributes: TypeAlias = Annotated[dict[str, str], in_query("Attribute", max_length=MAX_NAMES)]
Tags: TypeAlias = Annotated[dict[str, str], in_query("Tag", key="Key", max_length=MAX_NAMES)]


class OfQueue(RequestStruct, kw_only=True):
    """A request about one queue. Without `QueueUrl`, the path of the request names it."""

    queue_url: QueueUrl | None = None


class Nothing(AnswerStruct, kw_only=True):
    """An answer without members."""


class FailedEntry(AnswerStruct, kw_only=True):
    """The refusal of one entry of a batch."""

    id: str
    code: str
    sender_fault: bool
    message: str


Failed: TypeAlias = Annotated[tuple[FailedEntry, ...], in_query("BatchResultErrorEntry")]
