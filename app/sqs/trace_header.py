"""Trace contexts: the header of AWS X-Ray, which SQS carries, and the `traceparent` of W3C, which the broker carries."""

import re

from app.wire.field_types import TRACEPARENT_PATTERN

TRACE_HEADER_PROPERTY = "sqs:trace_header"
"""The property with an AWSTraceHeader that the `traceparent` of its message does not give back exactly."""

ROOT = re.compile(r"1-([0-9a-fA-F]{8})-([0-9a-fA-F]{24})")
PARENT = re.compile(r"[0-9a-fA-F]{16}")
TRACEPARENT = re.compile(TRACEPARENT_PATTERN)
_MAX_LENGTH = 1024
"""Characters of a header that is read. Longer ones are kept and not understood."""
_SAMPLED = 1


def traceparent_of(trace_header: str) -> str | None:
    """Return the `traceparent` of a header such as `Root=1-...;Parent=...;Sampled=1`; None if it has no root or no parent.

    Without `Sampled=1` the trace is not sampled.
    """
    parts = trace_header.split(";") if len(trace_header) <= _MAX_LENGTH else ()
    fields = {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in parts)}
    root, parent = ROOT.fullmatch(fields.get("Root", "")), PARENT.fullmatch(fields.get("Parent", ""))
    if root is None or parent is None:
        return None
    trace_id, parent_id = (root[1] + root[2]).lower(), parent[0].lower()
    if not int(trace_id, 16) or not int(parent_id, 16):  # W3C: an id of zeros is invalid
        return None
    return f"00-{trace_id}-{parent_id}-{'01' if fields.get('Sampled') == '1' else '00'}"


def is_traceparent(text: str) -> bool:
    """Return whether a text has the form of a `traceparent`."""
    return TRACEPARENT.fullmatch(text) is not None


def trace_header_of(traceparent: str | None) -> str | None:
    """Return the header of AWS X-Ray with the trace, the parent and the sampling of a `traceparent`; None without one."""
    if traceparent is None or not is_traceparent(traceparent):
        return None
    _, trace_id, parent_id, flags = traceparent.split("-")
    return f"Root=1-{trace_id[:8]}-{trace_id[8:]};Parent={parent_id};Sampled={int(flags, 16) & _SAMPLED}"
