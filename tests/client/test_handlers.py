"""How a handler is called: by the annotations of its parameters, as a function, a method, a partial or an object."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Annotated, Any

import msgspec
import pytest
from peeklock_client import SubscriberOptions, Worker
from peeklock_client.messages import Message
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


@dataclass
class Invoice:
    number: int


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
        (object, 1, 1),
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


def logged(function: Any) -> Any:
    """Return a plain function around any other, as most decorators do."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


async def test_a_coroutine_function_behind_a_plain_decorator_is_awaited(threads: Executor) -> None:
    recorder = Recorder()
    assert await Handler(logged(recorder.method)).call(receive(Broker()), threads) == []
    assert recorder.seen == ["1 body"]


async def test_a_delivery_may_be_optional_or_annotated(threads: Executor) -> None:
    seen = list[object]()

    async def handle(
        body: str, context: ReceiveContext[str] | None = None, message: Annotated[Message[str], "whole"] | None = None
    ) -> None:
        seen.extend((body, context, message))

    context = receive(Broker())
    await Handler(handle).call(context, threads)
    assert seen == ["body", context, context.message]


class Database:
    """A type that no body has."""


async def takes_a_database(database: Database) -> None: ...
async def takes_one_of_two(body: Order | Invoice) -> None: ...


@pytest.mark.parametrize("handler", [takes_a_database, takes_one_of_two])
def test_a_type_that_no_body_can_be_converted_to_is_refused_at_once(handler: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot be converted|not supported"):
        Handler(handler)


@pytest.mark.parametrize("declare", ["on", "on_state"])
def test_a_declaration_without_effect_is_refused_at_once(declare: str) -> None:
    """`@worker.on` without a call would make a worker that starts, looks healthy and receives nothing."""
    on, more = getattr(Worker(), declare), {} if declare == "on" else {"key": str, "state": dict}
    for queues in ((), (takes_a_database,)):
        with pytest.raises(TypeError, match="Name the queues"):
            on(*queues, **more)
    with pytest.raises(TypeError, match="Set max_workers in the options"):
        on("orders", options=SubscriberOptions(), max_workers=3, **more)


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
