"""Expressions: which CEL a filter may use, so that no filter costs much more than another.

The library that evaluates has no limits of its own and copies values at every step. So a filter only compares fields
of a message: a value never grows beyond a few times the largest property, and none is copied but single values.

The library is given the tokens that were judged here, so the two cannot read one text in two ways.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

MOST_SYMBOLS = 128
"""Operators, brackets and commas. Compiling takes about 25 µs for each, and 1 KiB has room for hundreds."""

MOST_ADDITIONS = 4
"""A sum of texts copies what it has added up so far, so its cost grows with the square of this number."""

TIME_PARTS = (
    "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds",
    "getMinutes", "getMonth", "getSeconds",
)  # fmt: skip
CONVERSIONS = ("double", "duration", "int", "string", "timestamp", "uint")
CALLS = (*CONVERSIONS, "contains", "endsWith", "has", "size", "startsWith", *TIME_PARTS)
"""What a filter can call. Macros go through lists; `matches` reads its pattern for every message; `bytes` and what
is not named here copies its argument, also in a long chain of calls."""

TOKEN = re.compile(
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
"""The tokens of CEL's grammar (cel-spec, langdef), but those of maps and messages."""


class Token(NamedTuple):
    """A word of an expression and what kind of word it is, by the names of the groups of `TOKEN`."""

    kind: str
    text: str


NOTHING = Token("", "")


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that may be evaluated: its text, and the fields of the message that it names."""

    text: str
    fields: frozenset[str]


def read_expression(source: str) -> Expression:
    """The expression of a filter, without comments. Refuses with `ValueError`, in a sentence, what may cost too much.

    The library has the last word on the syntax.
    """
    reader = _Reader(list(_tokens(source)))
    reader.check()
    return Expression(" ".join(token.text for token in reader.tokens), frozenset(reader.fields))


def _tokens(source: str) -> Iterator[Token]:
    position = 0
    while position < len(source):
        found = TOKEN.match(source, position)
        if found is None:
            raise ValueError(
                f"This is no CEL expression for a filter: it cannot be read from {source[position:][:20]!r} on."
            )
        if found.lastgroup != "blank":
            yield Token(str(found.lastgroup), found.group())
        position = found.end()


class _Reader:
    """Looks at every token once, with those beside it."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.fields: set[str] = set()

    def check(self) -> None:
        symbols = [token.text for token in self.tokens if token.kind == "symbol" and token.text != "."]
        if len(symbols) > MOST_SYMBOLS:
            raise ValueError(f"A filter has at most {MOST_SYMBOLS} operators, brackets and commas.")
        if symbols.count("+") > MOST_ADDITIONS:
            raise ValueError(f"A filter has at most {MOST_ADDITIONS} additions.")
        for at, token in enumerate(self.tokens):
            if token.text == ".":
                self._check_dot(at)
            elif token.text == "[":
                self._check_bracket(at)
            elif token.kind == "name":
                self._check_name(at, token.text)

    def _check_dot(self, at: int) -> None:
        """A dot stands between a value and a name. So no other way leads to `message` than its plain name."""
        before, after = self._token(at - 1), self._token(at + 1)
        if (before.kind not in {"name", "text"} and before.text not in {")", "]"}) or after.kind != "name":
            raise ValueError("This is no CEL expression for a filter: a dot stands between a value and a name.")
        if self._text(at + 2) != "(" and not self._is_message(at - 1) and not self._is_properties(at - 1):
            raise ValueError(f"In a filter, {before.text}.{after.text} names nothing: only a message has fields.")

    def _check_bracket(self, at: int) -> None:
        if self._text(at - 1) == "in":
            end = next((n for n in range(at, len(self.tokens)) if self._text(n) == "]"), at)
            if any(not _is_listed(token) for token in self.tokens[at + 1 : end]):
                raise ValueError("A list in a filter holds only texts, numbers, true, false and null.")
        elif not self._is_properties(at - 1):
            raise ValueError("In a filter, [ stands only after in and after message.properties.")

    def _check_name(self, at: int, name: str) -> None:
        if self._text(at + 1) == "(":
            self._check_call(at, name)
        elif self._text(at - 1) == ".":
            return
        elif name == "message":
            self.fields.add(self._field(at))
        else:
            raise ValueError(f"A filter knows only the name message, not {name}.")

    def _check_call(self, at: int, name: str) -> None:
        if name not in CALLS:
            raise ValueError(f"A filter cannot call {name}. It can call {', '.join(sorted(CALLS))}.")
        if name == "duration" and (self._token(at + 2).kind != "text" or self._text(at + 3) != ")"):
            # Reading a duration of 32 KiB takes milliseconds.
            raise ValueError("In a filter, duration takes a text that is written there, such as duration('1h').")

    def _field(self, at: int) -> str:
        """The field that is named after `message`: one value, or one property, or a look for the name of a property."""
        field = self._text(at + 2) if self._is_read_by_name(at) else ""
        if field == "properties":
            is_one = self._text(at + 3) == "[" or self._is_read_by_name(at + 2)
            is_looked_through = self._text(at - 1) == "in" and self._text(at + 3) != "."
            if not is_one and not is_looked_through:
                raise ValueError(
                    "A filter reads single properties, as in message.properties.name or 'name' in message.properties."
                )
        elif not field:
            raise ValueError("A filter reads single fields of a message, as in message.priority.")
        return field

    def _is_read_by_name(self, at: int) -> bool:
        """Whether a dot and the name of a field follow, rather than a call on the whole value."""
        return self._text(at + 1) == "." and self._text(at + 3) != "("

    def _is_message(self, at: int) -> bool:
        return self._text(at) == "message" and self._text(at - 1) != "."

    def _is_properties(self, at: int) -> bool:
        return self._text(at) == "properties" and self._text(at - 1) == "." and self._is_message(at - 2)

    def _token(self, at: int) -> Token:
        return self.tokens[at] if 0 <= at < len(self.tokens) else NOTHING

    def _text(self, at: int) -> str:
        return self._token(at).text


def _is_listed(token: Token) -> bool:
    return token.kind in {"text", "number"} or token.text in {",", "-", "true", "false", "null"}
