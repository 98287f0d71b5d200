"""Bodies of messages on pages: as a tree of JSON, as text or in hexadecimal, chosen by what they contain.

A body is the sender's. It is shown as text in a page and never as one.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from app.console.formats import format_bytes
from app.domain.message import BodyKind
from app.domain.plurals import count_of

MAX_SHOWN_BYTES = 64 << 10
"""Bytes of a text on a page. The whole body can be downloaded."""

MAX_HEX_BYTES = 4 << 10
MAX_NODES = 2000
MAX_DEPTH = 24
"""Values of a tree, and its levels. JSON with more is shown as text."""

PREVIEW_BYTES = 160
OPEN_DEPTH = 3
"""Levels of a tree that are open at first."""

Form: TypeAlias = Literal["none", "tree", "text", "hex"]

CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
SPACES = re.compile(r"\s+")


class Number(str):
    """A number as its sender wrote it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a tree. `label` is its name or its position; `children` is None for a single value."""

    label: str | None
    kind: Literal["object", "array", "text", "number", "word"]
    text: str
    children: Sequence["Node"] | None
    is_open: bool


@dataclass(frozen=True, slots=True)
class BodyView:
    """A body in one form, and the forms in which it can be shown."""

    form: Form
    forms: Sequence[Form]
    tree: Node | None
    text: str
    shown_bytes: int
    total_bytes: int


class _TooLarge(Exception):
    """The tree would have too many values or levels."""


def body_view(body: bytes, kind: BodyKind, wanted: str = "") -> BodyView:
    """Return a body in the wanted form, or else in the best that its content has."""
    if kind is BodyKind.NONE:
        return BodyView("none", (), None, "", 0, 0)
    tree, text = _tree_of(body), text_of(body)
    possible: dict[Form, bool] = {"tree": tree is not None, "text": text is not None, "hex": True}
    forms: list[Form] = [form for form, is_possible in possible.items() if is_possible]
    form = next((form for form in forms if form == wanted), forms[0])
    if form == "tree":
        return BodyView(form, forms, tree, "", len(body), len(body))
    if form == "text" and text is not None:
        return BodyView(form, forms, None, text, min(len(body), MAX_SHOWN_BYTES), len(body))
    return BodyView("hex", forms, None, hex_dump(body[:MAX_HEX_BYTES]), min(len(body), MAX_HEX_BYTES), len(body))


def text_of(body: bytes, max_bytes: int = MAX_SHOWN_BYTES) -> str | None:
    """Return the beginning of a body that is text, of at most `max_bytes`; None for other bytes."""
    start = body[:max_bytes]
    try:
        # A character may be cut at the end of the part.
        text = start.decode("utf-8") if len(start) == len(body) else _decoded_start(start)
    except UnicodeDecodeError:
        return None
    return None if CONTROLS.search(text) else text


def preview(body: bytes, kind: BodyKind) -> str:
    """Return the beginning of a body in one line."""
    if kind is BodyKind.NONE:
        return ""
    text = text_of(body, PREVIEW_BYTES + 4)
    if text is None:
        return body[:16].hex(" ") + (" …" if len(body) > 16 else "")
    line = SPACES.sub(" ", text).strip()
    return line if len(body) <= PREVIEW_BYTES else line[:PREVIEW_BYTES] + "…"


def first_line(body: bytes, kind: BodyKind) -> str:
    """Return the first line of a body that is not blank, cut at `PREVIEW_BYTES`. A body that is not text is named as such."""
    if kind is BodyKind.NONE:
        return ""
    text = text_of(body, PREVIEW_BYTES + 4)
    if text is None:
        return f"binary, {format_bytes(len(body))}"
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    line = SPACES.sub(" ", lines[0]).strip()
    return line if len(lines) == 1 and len(body) <= PREVIEW_BYTES else line[:PREVIEW_BYTES] + " …"


def hex_dump(content: bytes) -> str:
    """Return bytes in lines of sixteen, each with its offset and its printable characters."""
    lines: list[str] = []
    for start in range(0, len(content), 16):
        part = content[start : start + 16]
        printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {printable}")
    return "\n".join(lines)


def _decoded_start(start: bytes) -> str:
    """Decode the beginning of a longer text, without a character that is cut at its end."""
    for cut in range(4):
        try:
            return start[: len(start) - cut].decode("utf-8")
        except UnicodeDecodeError:
            if cut == 3:
                raise
    raise AssertionError


def _tree_of(body: bytes) -> Node | None:
    """Return the tree of an object or array of JSON; None for other bodies, and for those that are too large."""
    if len(body) > MAX_SHOWN_BYTES or body.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        value = json.loads(
            body, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=_Members
        )
        return _Tree().node(None, value, 0)
    except (ValueError, RecursionError, _TooLarge):
        return None


class _Members(list[tuple[str, Any]]):
    """The members of an object, also those whose name is repeated."""


class _Tree:
    """Builds the nodes of one tree."""

    def __init__(self) -> None:
        self._left = MAX_NODES

    def node(self, label: str | None, value: Any, depth: int) -> Node:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise _TooLarge
        if isinstance(value, _Members):
            members = [self.node(visible(name), member, depth + 1) for name, member in value]
            return Node(label, "object", count_of(len(members), "member"), members, depth < OPEN_DEPTH)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            entries = [self.node(str(index), entry, depth + 1) for index, entry in enumerate(items)]
            return Node(label, "array", count_of(len(entries), "entry", "entries"), entries, depth < OPEN_DEPTH)
        if isinstance(value, Number):
            return Node(label, "number", value, None, is_open=False)
        if isinstance(value, str):
            return Node(label, "text", visible(value), None, is_open=False)
        return Node(label, "word", {None: "null", True: "true", False: "false"}[value], None, is_open=False)


def visible(text: str) -> str:
    """Return a text that can be encoded: half of a pair of surrogates is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()
