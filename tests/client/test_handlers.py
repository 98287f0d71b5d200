"""How a handler is called: by the annotations of its parameters, as a function, a method, a partial or an object."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec
import pytest
from peeklock_client.receive_context import ReceiveContext
from peeklock_client.worker.handlers import Handler, InvalidBody, converter
from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tests.client.test_receive_context import Broker, receive

AT = datetime(2026, 1, 2, tzinfo=UTC)


class Line(BaseModel):
    number: int


class Dated(BaseModel):
    model_config = ConfigDict(strict=True)
    at: datetime


@pydantic_dataclass
class Positive:
    number: Annotated[int, Field(gt=0)]


@dataclass
class Order:
    lines: list[Line]


# ---- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (Annotated[int, msgspec.Meta(ge=0)], 1, 1),
        (Line, {"number": 1}, Line(number=1)),
        (list[Line], [{"number": 1}], [Line(number=1)]),
        (Line | None, None, None),
        (Order, {"lines": [{"number": 1}]}, Order([Line(number=1)])),
        (Dated, {"at": "2026-01-02T00:00:00Z"}, Dated(at=AT)),
        (Positive, {"number": 1}, Positive(1)),
        (Annotated[int, Field(gt=0)], 1, 1),
    ],
)
def test_a_body_is_converted_to_the_type(kind: Any, body: Any, value: Any) -> None:
    assert converter(kind)(body) == value


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Annotated[int, msgspec.Meta(ge=0)], -1),
        (list[Line], [{"number": "one"}]),
        (Order, {"lines": [{"number": "one"}]}),
        (Positive, {"number": 0}),
        (Annotated[int, Field(gt=0)], 0),
    ],
)
def test_a_body_of_another_type_is_refused(kind: Any, body: Any) -> None:
    with pytest.raises(InvalidBody):
        converter(kind)(body)


# ---- callables -------------------------------------------------------------------------------------------------------


class Recorder:
    """A handler that is an object."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, body: str) -> None:
        self.seen.append(body)

    async def method(self, context: ReceiveContext[str], body: str) -> None:
        self.seen.append(f"{context.message.sequence_number} {body}")

    async def with_an_option(self, body: str, *, prefix: str = "") -> None:
        self.seen.append(prefix + body)


@pytest.fixture
def threads() -> Executor:
    return ThreadPoolExecutor(1)


async def test_objects_methods_and_partials_are_handlers(threads: Executor) -> None:
    recorder = Recorder()
    for handler in (recorder, recorder.method, partial(recorder.with_an_option, prefix="> "), recorder.with_an_option):
        assert await Handler(handler).call(receive(Broker()), threads) == []
    assert recorder.seen == ["body", "1 body", "> body", "body"]


def test_a_parameter_that_no_value_is_found_for_is_refused_at_once() -> None:
    async def with_a_name(body: str, *, database: str) -> None: ...

    async def with_any(*bodies: str) -> None: ...

    for handler in (with_a_name, with_any):
        with pytest.raises(TypeError, match="cannot pass"):
            Handler(handler)


async def yields(body: str) -> Any:
    yield body


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda: None, "completed unread"),
        (lambda body, other: None, "2 parameters for the body"),
        (yields, "is a generator"),
    ],
)
def test_a_function_that_would_miss_its_message_is_refused_at_once(function: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        Handler(function)


async def test_a_constraint_of_an_annotation_holds(threads: Executor) -> None:
    async def handle(body: Annotated[str, msgspec.Meta(max_length=3)]) -> None: ...

    with pytest.raises(InvalidBody):
        await Handler(handle).call(receive(Broker()), threads)
