"""The text of a filter policy: strict JSON, bounded, and stored in its shortest form."""

import json
from typing import Any, NoReturn

from app.domain.queue import MAX_LABEL_VALUE_LENGTH
from app.domain.refusals import InvalidRequest
from app.sqs.errors import FilterPolicyLimitExceeded

MAX_POLICY_LENGTH = MAX_LABEL_VALUE_LENGTH
"""Characters of a stored policy: it is a label of its subscription."""
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "\x7f\ufffe\uffff"}
"""How JSON escapes the characters that a label or an answer in XML cannot have. It escapes control characters anyway."""
_MAX_SENT_LENGTH = 8 << 10
"""Characters of a policy as it is sent, with blanks and line breaks."""


def read_policy(text: str) -> dict[str, Any]:
    """Return a policy as a JSON object.

    Refuses with `FilterPolicyLimitExceeded` one that is too long, and with `InvalidRequest` what is no JSON object, has a
    member twice, or has half of a surrogate pair.
    """
    if len(text) > _MAX_SENT_LENGTH:
        raise _too_long()
    try:
        policy = json.loads(text, object_pairs_hook=_members, parse_constant=_refuse_constant)
        stored_policy(policy).encode()
    except (ValueError, RecursionError):
        raise InvalidRequest("FilterPolicy is not valid JSON.") from None
    if not isinstance(policy, dict):
        raise InvalidRequest("FilterPolicy is a JSON object.")
    return policy  # pyright: ignore[reportUnknownVariableType]  # of JSON


def stored_policy(policy: object) -> str:
    """Return the text of a policy as it is stored. Refuses with `FilterPolicyLimitExceeded` one that is too long."""
    text = json.dumps(policy, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)
    if len(text) > MAX_POLICY_LENGTH:
        raise _too_long()
    return text


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise InvalidRequest("FilterPolicy has a member twice in one object.")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _too_long() -> FilterPolicyLimitExceeded:
    return FilterPolicyLimitExceeded(f"A FilterPolicy has at most {MAX_POLICY_LENGTH} characters, without blanks.")
