"""Filter expressions: the subset of CEL that a filter may use, so that no filter costs much more than another.

The CEL library has no limits of its own and copies values at every step. So a filter only compares fields of a message:
a value never grows beyond a few times the largest property, and only single values are copied.

The library compiles the tokens that this module has checked, so the two cannot parse one text in two ways.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

MAX_SYMBOLS = 128
"""Operators, brackets, commas and names of members of the body. Compiling takes about 25 µs for each, and 1 KiB has room
for hundreds."""

MAX_ADDITIONS = 4
"""A sum of texts copies what it has added up so far, so its cost grows with the square of this number."""

TIME_ACCESSORS = (
    "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds",
    "getMinutes", "getMonth", "getSeconds",
)  # fmt: skip
CONVERSIONS = ("double", "duration", "int", "string", "timestamp", "uint")
ALLOWED_FUNCTIONS = (*CONVERSIONS, "contains", "endsWith", "has", "size", "startsWith", *TIME_ACCESSORS)
"""The functions that a filter can call. Macros iterate over lists, and `matches` compiles its pattern for every
message. `bytes` and other functions copy their argument, even in a long chain of calls."""

TOKEN_PATTERN = re.compile(
    r"""
    (?P<blank> [\t\ \r\n\f]+ | //[^\n]* )
  | (?P<text> [bB]?[rR] (?: '{3}.*?'{3} | "{3}.*?"{3} | '[^'\n\r]*' | "[^"\n\r]*" )
      | [bB]? (?: '{3} (?:ESCAPE|[^\\])*? '{3} | "{3} (?:ESCAPE|[^\\])*? "{3}
                | ' (?:ESCAPE|[^\\'\n\r])* ' | " (?:ESCAPE|[^\\"\n\r])* " ) )
  | (?P<number> 0x[0-9a-fA-F]+[uU]? | [0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)? | [0-9]+(?:[eE][-+]?[0-9]+|[uU])? )
  | (?P<word> (?:true|false|null|in)(?![A-Za-z0-9_]) )
  | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
  | (?P<symbol> ==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]] )
    """.replace(
        "ESCAPE", r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
    ),
    re.VERBOSE | re.DOTALL,
)
"""The tokens of CEL's grammar (cel-spec, langdef), except those of maps and messages."""


_PLAIN_TEXT = re.compile(r"""([rR]?)('{3}|"{3}|'|")(.*)\2""", re.DOTALL)
"""A literal text with its prefix, its quotes and its characters. One of bytes has another prefix."""

_MAX_SHOWN = 20
"""Characters of a token that an error shows."""

TOO_MANY_SYMBOLS = f"A filter has at most {MAX_SYMBOLS} operators, brackets, commas and names of members of the body."
LIKELY_MEANT = {"=": "==", "&": "&&", "|": "||"}


class Token(NamedTuple):
    """A token of an expression; `kind` is a group name of `TOKEN_PATTERN`, `place` counts the characters of the source from 1."""

    kind: str
    text: str
    place: int


NO_TOKEN = Token("", "", 0)


class MemberUse(Enum):
    """What a filter does with a member of the body: read its value, search its entries with `in`, or test it with `has`."""

    VALUE = auto()
    ENTRIES = auto()
    PRESENCE = auto()


class BodyMember(NamedTuple):
    """A member of the body that a filter reads, by the names on the way to it; without names it is the whole body."""

    names: tuple[str, ...]
    use: MemberUse


@dataclass(frozen=True, slots=True)
class Expression:
    """A valid expression: its tokens, its text, the fields of the message and the members of its body that it reads."""

    tokens: tuple[Token, ...]
    text: str
    fields: frozenset[str]
    body_members: frozenset[BodyMember] = frozenset()

    def problem_at(self, line: int, column: int, *, is_syntax: bool) -> str:
        """Return a sentence about what is wrong at this place of `text`, with the place in the source. Both count from 1."""
        if not self.tokens:
            return "The filter is empty."
        start = 0
        for _ in range(line - 1):
            start = self.text.find("\n", start) + 1
        end = -1
        for token in self.tokens:
            end += len(token.text) + 1
            if start + column - 1 < end:
                shown = f"`{token.text[:_MAX_SHOWN]}{'...' * (len(token.text) > _MAX_SHOWN)}`"
                if is_syntax:
                    return f"Unexpected {shown} at character {token.place}."
                return f"{shown} at character {token.place} is not valid."
        last = self.tokens[-1]
        return f"The filter ends too early, after character {last.place + len(last.text) - 1}."


def parse_expression(source: str) -> Expression:
    """Return the expression of a filter, without comments.

    Raises `ValueError`, with a full sentence, for an expression that may cost too much. The library makes the final
    check of the syntax.
    """
    validator = _Validator(list(_tokenize(source)))
    validator.check()
    text = " ".join(token.text for token in validator.tokens)
    fields, members = frozenset(validator.fields), frozenset(validator.body_members)
    return Expression(tuple(validator.tokens), text, fields, members)


def _tokenize(source: str) -> Iterator[Token]:
    position = 0
    while position < len(source):
        match = TOKEN_PATTERN.match(source, position)
        if match is None:
            raise ValueError(_no_token(source, position))
        if match.lastgroup != "blank":
            yield Token(str(match.lastgroup), match.group(), position + 1)
        position = match.end()


def _no_token(source: str, position: int) -> str:
    """Return a sentence about the place where no token begins."""
    place, character = position + 1, source[position]
    if character in "'\"":
        return f"The text that begins at character {place} has no end, or an escape that CEL does not know."
    meant = f" Did you mean `{LIKELY_MEANT[character]}`?" if character in LIKELY_MEANT else ""
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    return f"Unexpected `{shown}` at character {place}.{meant}"


class _Validator:
    """Checks every token once, together with its neighbours."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.fields: set[str] = set()
        self.body_members: set[BodyMember] = set()
        self._symbol_count = 0
        self._path_end = 0
        """The index of the first token after the last path into the body. Its tokens have been checked."""

    def check(self) -> None:
        self._check_counts()
        for index, token in enumerate(self.tokens):
            if index < self._path_end:
                continue
            if token.text == ".":
                self._check_dot(index)
            elif token.text == "[":
                self._check_bracket(index)
            elif token.kind == "name":
                self._check_name(index, token.text)

    def _check_counts(self) -> None:
        symbols = [token.text for token in self.tokens if token.kind == "symbol" and token.text != "."]
        if len(symbols) > MAX_SYMBOLS:
            raise ValueError(TOO_MANY_SYMBOLS)
        self._symbol_count = len(symbols)
        if symbols.count("+") > MAX_ADDITIONS:
            raise ValueError(f"A filter has at most {MAX_ADDITIONS} additions.")

    def _check_dot(self, index: int) -> None:
        """Check that a dot is between a value and a name, so that `message` is reached only by its plain name."""
        before, after = self._token(index - 1), self._token(index + 1)
        if (before.kind not in {"name", "text"} and before.text not in {")", "]"}) or after.kind != "name":
            place = self._token(index).place
            raise ValueError(
                f"In a filter, a dot must be between a value and a name, unlike the one at character {place}."
            )
        if self._text(index + 2) != "(" and not self._is_message(index - 1) and not self._is_properties(index - 1):
            raise ValueError(f"In a filter, {before.text}.{after.text} is not a field: only message has fields.")

    def _check_bracket(self, index: int) -> None:
        if self._text(index - 1) == "in":
            end = next((n for n in range(index, len(self.tokens)) if self._text(n) == "]"), index)
            if any(not _may_be_in_list(token) for token in self.tokens[index + 1 : end]):
                raise ValueError("A list in a filter holds only texts, numbers, true, false and null.")
        elif not self._is_properties(index - 1):
            raise ValueError("In a filter, [ is allowed only after in and after message.properties.")

    def _check_name(self, index: int, name: str) -> None:
        if self._text(index + 1) == "(":
            self._check_call(index, name)
        elif self._text(index - 1) == ".":
            return
        elif name == "message":
            field = self._field(index)
            self.fields.add(field)
            if field == "body":
                self._read_body(index)
        else:
            raise ValueError(f"A filter knows only the name message, not {name}.")

    def _check_call(self, index: int, name: str) -> None:
        if name not in ALLOWED_FUNCTIONS:
            raise ValueError(f"A filter cannot call {name}. It can call {', '.join(sorted(ALLOWED_FUNCTIONS))}.")
        if name == "duration" and (self._token(index + 2).kind != "text" or self._text(index + 3) != ")"):
            # Parsing a duration of 32 KiB takes milliseconds.
            raise ValueError("In a filter, duration takes only a literal text, such as duration('1h').")

    def _field(self, index: int) -> str:
        """Return the field that follows `message`: one value, one property, or a test for the name of a property."""
        field = self._text(index + 2) if self._is_read_by_name(index) else ""
        if field == "properties":
            is_single = self._text(index + 3) == "[" or self._is_read_by_name(index + 2)
            is_name_test = self._text(index - 1) == "in" and self._text(index + 3) != "."
            if not is_single and not is_name_test:
                raise ValueError(
                    "A filter reads single properties, as in message.properties.name or 'name' in message.properties."
                )
        elif not field:
            raise ValueError("A filter reads single fields of a message, as in message.priority.")
        return field

    def _read_body(self, index: int) -> None:
        """Note the member of the body to which the names after `message.body` lead."""
        names: list[str] = []
        end = index + 3
        while True:
            if self._is_read_by_name(end - 1) and self._token(end + 1).kind == "name":
                names.append(self._text(end + 1))
                end += 2
            elif self._text(end) == "[" and self._token(end + 1).kind == "text" and self._text(end + 2) == "]":
                names.append(_plain_text(self._token(end + 1)))
                end += 3
            else:
                break
        self.body_members.add(BodyMember(tuple(names), self._use(index)))
        self._symbol_count += len(names)
        if self._symbol_count > MAX_SYMBOLS:
            raise ValueError(TOO_MANY_SYMBOLS)
        self._path_end = end

    def _use(self, index: int) -> MemberUse:
        """Return what is done with the value that begins at this token."""
        if self._text(index - 1) == "in":
            return MemberUse.ENTRIES
        is_test = self._text(index - 1) == "(" and self._text(index - 2) == "has"
        return MemberUse.PRESENCE if is_test else MemberUse.VALUE

    def _is_read_by_name(self, index: int) -> bool:
        """Return whether a dot and a field name follow, rather than a call on the whole value."""
        return self._text(index + 1) == "." and self._text(index + 3) != "("

    def _is_message(self, index: int) -> bool:
        return self._text(index) == "message" and self._text(index - 1) != "."

    def _is_properties(self, index: int) -> bool:
        return self._text(index) == "properties" and self._text(index - 1) == "." and self._is_message(index - 2)

    def _token(self, index: int) -> Token:
        return self.tokens[index] if 0 <= index < len(self.tokens) else NO_TOKEN

    def _text(self, index: int) -> str:
        return self._token(index).text


def _plain_text(token: Token) -> str:
    """Return the text of a literal, in which a backslash has no meaning. Raises `ValueError` for others."""
    match = _PLAIN_TEXT.fullmatch(token.text)
    if match is None or ("\\" in match[3] and not match[1]):
        raise ValueError(
            f"Write the name of a member of the body as a text without escapes, or as in r'a\\b', at character {token.place}."
        )
    return match[3]


def _may_be_in_list(token: Token) -> bool:
    return token.kind in {"text", "number"} or token.text in {",", "-", "true", "false", "null"}
