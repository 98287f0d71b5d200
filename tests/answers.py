"""Compares an answer with the form in which a guide shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.guides import documents

KINDS = ("sh", "json", "http", "text")
"""The kinds of blocks: commands, and answers as documents, as printed by `curl -i`, or as text."""

REST = "..."
"""In an object: other members. In a text: any characters."""

VARYING = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"), lambda _: "TIME"),
    (re.compile(r"\b[0-9a-f]{16,64}\b"), lambda found: "0" * len(found[0])),
    (re.compile(r"\bpk_[A-Za-z0-9_-]{43}"), lambda _: "KEY"),
)
"""Times, ids, tokens and secrets differ from run to run; their form does not."""
VARYING_NUMBERS = ("lock_remaining_ms", "oldest_available_seconds")


@dataclass(frozen=True)
class Response:
    """An answer as `curl -i` prints it."""

    status: str
    headers: Mapping[str, str]
    body: str

    @classmethod
    def read(cls, output: str) -> Response:
        """Return the last answer in the output."""
        output = output.replace("\r\n", "\n")
        head, _, body = output[output.rindex("HTTP/1.1 ") :].partition("\n\n")
        status, *lines = head.strip().split("\n")
        named = (line.partition(": ") for line in lines)
        return cls(status, {name.lower(): value for name, _, value in named}, body.strip())


def check_answer(kind: str, output: str, shown: str) -> None:
    """Compare the output with the page. Earlier answers that the page does not show must be no problem documents."""
    if kind == "http":
        _check_response(Response.read(output), Response.read(shown))
    elif kind == "text":
        assert masked(output.strip()) == masked(shown.strip())
    else:
        wanted, answers = list(shown_documents(shown)), list(documents(output))
        assert len(answers) >= len(wanted)
        unshown = answers[: len(answers) - len(wanted)]
        assert not [answer for answer in unshown if "tracking_id" in answer]
        assert folded(answers[len(unshown) :], wanted) == wanted


def _check_response(answer: Response, wanted: Response) -> None:
    assert answer.status == wanted.status, answer
    for name, value in wanted.headers.items():
        assert folded(answer.headers.get(name), value) == value, name
    if wanted.body.startswith(("{", "[")):
        check_answer("json", answer.body, wanted.body)
    else:
        assert masked(answer.body) == masked(wanted.body)


def shown_documents(shown: str) -> Iterator[Any]:
    """Return the documents of a page; `...` at the end of an object means its other members."""
    return documents(re.sub(r",\s*\.\.\.(?=\s*})", f', "{REST}": 0', shown))


def folded(answer: Any, shown: Any) -> Any:
    """Return the answer, with each value that matches the page replaced by the page's value."""
    if isinstance(answer, dict) and isinstance(shown, dict):
        names = [name for name in answer if name in shown or REST not in shown]
        rest = {REST: shown[REST]} if REST in shown else {}
        return {name: _member(name, answer[name], shown.get(name)) for name in names} | rest
    if isinstance(answer, list) and isinstance(shown, list):
        pairs = zip(answer, shown, strict=False)
        return [folded(one, other) for one, other in pairs] + answer[len(shown) :]
    if isinstance(answer, str) and isinstance(shown, str) and _is_alike(answer, shown):
        return shown
    return answer


def _is_alike(answer: str, shown: str) -> bool:
    """Whether a text matches the page, where four hexadecimal digits match any number of them."""
    if REST not in shown:
        return masked(answer) == masked(shown)
    parts = (re.sub("[0-9a-f]{4}", "[0-9a-f]+", re.escape(part)) for part in shown.split(REST))
    return re.fullmatch(".*".join(parts), answer) is not None


def _member(name: str, answer: Any, shown: Any) -> Any:
    numbers = isinstance(answer, int | float) and isinstance(shown, int | float)
    return shown if name in VARYING_NUMBERS and numbers else folded(answer, shown)


def masked(text: str) -> str:
    """Return the text with times, ids, tokens and secrets replaced by constants."""
    for form, mask in VARYING:
        text = form.sub(mask, text)
    return text
