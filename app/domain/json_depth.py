"""Limit the nesting of JSON in requests, in the same way under every version of Python.

The decoder alone stops where the interpreter's stack ends, which depends on the version and on the caller. It also
skips bodies, which receivers read with other parsers.
"""

from itertools import accumulate
from operator import add

MAX_JSON_DEPTH = 500
"""Levels of arrays and objects in a request.

Python 3.11 decodes less than 1000 levels, and its callers use some of them. An answer nests a body three levels deeper,
and some parsers of receivers read 512 levels.
"""
TOO_DEEP = f"JSON in a request has at most {MAX_JSON_DEPTH} levels of arrays and objects."

_BLOCK_BYTES = 4 << 10
"""Bytes that are measured at a time. Usual JSON has fewer openings than the limit in them, so they are only counted."""

OPENING, CLOSING, QUOTE = b"1", b"0", b'"'
SYMBOLS = bytes.maketrans(b"[{]}", OPENING * 2 + CLOSING * 2)
OTHERS = bytes(set(range(256)) - set(b'[]{}"'))
"""What says nothing about the depth, once escapes are removed."""

STEPS = [[1 if byte & 128 >> place else -1 for place in range(8)] for byte in range(256)]
"""Each byte as eight openings and closings."""
RISES = [sum(steps) for steps in STEPS]
PEAKS = [max(accumulate(steps)) for steps in STEPS]


def is_too_deep(raw: bytes) -> bool:
    """Return whether JSON passes `MAX_JSON_DEPTH`. Of bytes that are not JSON, what comes before the fault counts."""
    if len(raw) <= MAX_JSON_DEPTH or raw.count(b"[") + raw.count(b"{") <= MAX_JSON_DEPTH:
        return False
    depth, is_text, escape = 0, False, b""
    for start in range(0, len(raw), _BLOCK_BYTES):
        block = (escape + raw[start : start + _BLOCK_BYTES]).replace(b"\\\\", b"")
        escape = block[-1:] if block.endswith(b"\\") else b""
        # Two adjacent quotes are an empty string, or the end of one string and the start of the next.
        symbols = block.replace(b'\\"', b"").translate(SYMBOLS, OTHERS).replace(QUOTE * 2, b"")
        parts = symbols.split(QUOTE)
        brackets = b"".join(parts[is_text::2])
        is_text ^= len(parts) % 2 == 0
        openings = brackets.count(OPENING)
        if depth + openings > MAX_JSON_DEPTH and _peak(depth, brackets) > MAX_JSON_DEPTH:
            return True
        depth += 2 * openings - len(brackets)
    return False


def _peak(depth: int, brackets: bytes) -> int:
    """Return the largest depth inside brackets that begin at this depth. Eight of them are looked up at a time."""
    packed = int(brackets + CLOSING * (-len(brackets) % 8), 2).to_bytes(-(-len(brackets) // 8))
    return max(map(add, accumulate(map(RISES.__getitem__, packed), initial=depth), map(PEAKS.__getitem__, packed)))
